//! Devices whose clients are those of RPC.

use crate::support::{builder, soon, start, token, until};
use switchboard::{Receiver, Running, Status};
use switchboard_push::{
    Hub,
    v1::{
        DevicesClient, Position, RoomStart, SubscribeEvent, SubscribeRequest, room_start::Start,
        subscribe_event::Event, topic::Topic,
    },
};

/// Options of channels: wires that have streams of replies.
const WIRES: [&str; 4] = ["", "?wire=grpc", "?wire=grpc-web", "?wire=connect"];

struct Device(Receiver<SubscribeEvent>);

impl Device {
    async fn connect(server: &Running, wire: &str, request: SubscribeRequest) -> Device {
        let client = DevicesClient::connect(&(server.url() + wire)).await.unwrap();
        Device(client.subscribe(request).await.unwrap())
    }

    async fn event(&mut self) -> Event {
        soon(self.0.next()).await.unwrap().expect("an event").event.expect("a known kind")
    }

    async fn entry(&mut self) -> (Option<Topic>, String) {
        match self.event().await {
            Event::Entry(entry) => {
                (entry.topic.topic.clone(), String::from_utf8(entry.payload.to_vec()).unwrap())
            }
            event => panic!("no entry: {event:?}"),
        }
    }

    async fn error(&mut self) -> Status {
        soon(self.0.next()).await.expect_err("an error")
    }
}

fn request(token: String, rooms: &[(&str, Option<Start>)]) -> SubscribeRequest {
    let room = |(room, start): &(&str, Option<Start>)| RoomStart {
        room: (*room).to_owned(),
        start: start.clone(),
        ..Default::default()
    };
    SubscribeRequest { token, rooms: rooms.iter().map(room).collect(), ..Default::default() }
}

#[tokio::test]
async fn a_device_is_a_member_on_every_wire() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    for wire in WIRES {
        let request = request(token("ali", ""), &[("live/7", None)]);
        let mut device = Device::connect(&server, wire, request).await;
        let Event::Connected(connected) = device.event().await else { panic!("not connected") };
        assert_eq!(connected.user, "ali", "{wire}");
        assert_eq!(hub.room("live/7").count(), 1, "{wire}");
        hub.room("live/7").publish(&wire).await.unwrap();
        let room = Some(Topic::Room("live/7".to_owned()));
        assert_eq!(device.entry().await, (room, format!("\"{wire}\"")));
        hub.user("ali").publish(&1).await.unwrap();
        assert_eq!(device.entry().await, (Some(Topic::User(true)), "1".to_owned()));
        hub.key(&connected.key).close("bye").unwrap();
        let Event::Disconnected(order) = device.event().await else { panic!("not closed") };
        assert_eq!((&*order.reason, &*order.text), ("closed", "bye"), "{wire}");
        assert!(soon(device.0.next()).await.unwrap().is_none(), "{wire}");
        until(|| hub.stats().devices == 0).await;
    }
}

#[tokio::test]
async fn a_device_that_is_cut_off_leaves_its_rooms() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    let client = DevicesClient::connect(&(server.url() + "?wire=grpc")).await.unwrap();
    let mut events = client.subscribe(request(token("ali", ""), &[("live/7", None)])).await.unwrap();
    soon(events.next()).await.unwrap();
    assert_eq!(hub.room("live/7").count(), 1);
    drop((events, client));
    until(|| hub.room("live/7").count() == 0 && hub.stats().devices == 0).await;
}

#[tokio::test]
async fn recovery_is_complete_or_has_a_gap() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    let first = hub.room("live/7").publish(&1).await.unwrap();
    hub.room("live/7").publish(&2).await.unwrap();
    let after =
        |epoch: u64, offset: u64| Some(Start::After(Position { epoch, offset, ..Default::default() }.into()));
    let wanted = request(token("ali", ""), &[("live/7", after(first.epoch, first.offset))]);
    let mut device = Device::connect(&server, "", wanted).await;
    assert!(matches!(device.event().await, Event::Connected(_)));
    assert!(matches!(device.event().await, Event::Recovered(_)));
    assert_eq!(device.entry().await.1, "2");
    let wanted = request(token("ali", ""), &[("live/7", after(1, 1)), ("live/8", Some(Start::Last(3)))]);
    let mut device = Device::connect(&server, "?wire=grpc", wanted).await;
    assert!(matches!(device.event().await, Event::Connected(_)));
    let Event::Gap(gap) = device.event().await else { panic!("no gap") };
    assert_eq!((&*gap.reason, gap.missing), ("epoch", None));
}

#[tokio::test]
async fn a_device_without_a_valid_token_is_refused() {
    let hub = builder().build().await.unwrap();
    let server = start(&hub).await;
    for wire in WIRES {
        let mut device = Device::connect(&server, wire, request("x.y.z".into(), &[("live/7", None)])).await;
        assert_eq!(device.error().await.code(), switchboard::Code::Unauthenticated, "{wire}");
    }
    assert_eq!((hub.stats().devices, hub.stats().refused), (0, WIRES.len() as u64));
    let closed = Hub::builder().build().await.unwrap();
    let server = start(&closed).await;
    let mut device = Device::connect(&server, "", request(String::new(), &[])).await;
    assert!(device.error().await.message().contains("has no verifier"));
}

/// A service of the application.
struct Accounts;

impl switchboard_push::v1::Verifier for Accounts {
    async fn verify(
        &self,
        request: switchboard_push::v1::VerifyRequest,
        _: &switchboard::Cx,
    ) -> switchboard::Result<switchboard_push::v1::VerifyResponse> {
        match request.token.as_str() {
            "open-sesame" => Ok(switchboard_push::v1::VerifyResponse {
                user: "ali".into(),
                rooms: vec!["live/1".into()],
                ..Default::default()
            }),
            _ => Err(Status::unauthenticated("no such session")),
        }
    }
}

#[tokio::test]
async fn a_service_of_the_application_verifies_devices() {
    let accounts = switchboard_push::v1::VerifierServer::new(Accounts);
    let accounts =
        switchboard::Server::new().add(accounts).listen("tcp://127.0.0.1:0").start().await.unwrap();
    let channel = switchboard::Channel::connect(&accounts.url()).await.unwrap();
    let hub = Hub::builder().auth(switchboard_push::ServiceVerifier::new(channel)).build().await.unwrap();
    let server = start(&hub).await;
    let mut device = Device::connect(&server, "?wire=grpc", request("open-sesame".into(), &[])).await;
    let Event::Connected(connected) = device.event().await else { panic!("not connected") };
    assert_eq!((&*connected.user, hub.room("live/1").count()), ("ali", 1));
    let mut device = Device::connect(&server, "", request("x".into(), &[])).await;
    let status = device.error().await;
    assert_eq!((status.code(), status.message()), (switchboard::Code::Unauthenticated, "no such session"));
}
