//! The service for the servers of an application.

use crate::support::soon;
use switchboard::{Code, Running, Server, auth};
use switchboard_push::{
    Connect, Hub, Item, PushServer, Rooms,
    v1::{
        ChangeRoomsRequest, CountsRequest, DisconnectRequest, MembersRequest, PresenceRequest, Publication,
        PublishBatchRequest, PublishRequest, PushClient, RoomsRequest, Target, target,
    },
};

async fn start(api: PushServer) -> Running {
    Server::new().add(api).listen("tcp://127.0.0.1:0").start().await.unwrap()
}

fn to(target: target::Target) -> Target {
    Target { target: Some(target), ..Default::default() }
}

fn publication(text: &str) -> Publication {
    Publication { payload: text.to_owned().into(), ..Default::default() }
}

fn publish(targets: Vec<Target>, text: &str) -> PublishRequest {
    PublishRequest { targets, entry: publication(text).into(), ..Default::default() }
}

async fn text(inbox: &mut switchboard_push::Inbox) -> String {
    match soon(inbox.next()).await.unwrap() {
        Some(Item::Entry(entry)) => String::from_utf8(entry.to_vec()).unwrap(),
        other => panic!("not an entry: {other:?}"),
    }
}

#[tokio::test]
async fn an_application_publishes_and_changes_rooms_on_every_wire() {
    use target::Target::{All, Key, Room, Rooms as Pattern, User};
    let hub = Hub::builder().open().rooms("live/*", Rooms::new().presence()).build().await.unwrap();
    let server = start(PushServer::new(&hub).open()).await;
    let mut device = hub.attach_with("ali", Connect::new("test").key("phone")).await.unwrap();
    device.join("live/7").await.unwrap();
    for (round, wire) in (1..).zip(["", "?wire=grpc", "?wire=connect&codec=json"]) {
        let client = PushClient::connect(&(server.url() + wire)).await.unwrap();
        for target in
            [Room("live/7".into()), User("ali".into()), Key("phone".into()), Pattern("live/*".into())]
        {
            let response = client.publish(publish(vec![to(target)], wire)).await.unwrap().into_inner();
            assert_eq!(response.published.len(), 1);
            assert_eq!(text(&mut device).await, wire);
        }
        let targets = vec![to(Room("live/7".into())), to(Room(String::new())), to(User("ali".into()))];
        let response = client.publish(publish(targets, "three")).await.unwrap().into_inner();
        let errors: Vec<_> = response.published.iter().map(|published| published.error.is_empty()).collect();
        assert_eq!(errors, [true, false, true]);
        assert_eq!((text(&mut device).await, text(&mut device).await), ("three".into(), "three".into()));
        let batch = PublishBatchRequest {
            target: to(Room("live/7".into())).into(),
            entries: vec![publication("1"), publication("2")],
            ..Default::default()
        };
        client.publish_batch(batch).await.unwrap();
        assert_eq!((text(&mut device).await, text(&mut device).await), ("1".into(), "2".into()));
        let change = ChangeRoomsRequest {
            users: vec!["ali".into()],
            join: vec!["live/8".into()],
            leave: vec!["live/8".into()],
            ..Default::default()
        };
        client.change_rooms(change).await.unwrap();
        assert!(matches!(soon(device.next()).await.unwrap(), Some(Item::Joined(room)) if room == "live/8"));
        assert!(matches!(soon(device.next()).await.unwrap(), Some(Item::Left(room)) if room == "live/8"));
        let members = MembersRequest { room: "live/7".into(), ..Default::default() };
        let page = client.members(members).await.unwrap().into_inner();
        assert_eq!((page.count, &*page.members[0].user, &*page.members[0].key), (1, "ali", "phone"));
        let rooms = client.rooms(RoomsRequest::default()).await.unwrap().into_inner();
        assert_eq!((&*rooms.rooms[0].name, rooms.rooms[0].members, &*rooms.next), ("live/7", 1, ""));
        assert_eq!(rooms.rooms[0].published, 5 * round);
        let presence = PresenceRequest {
            users: vec!["ali".into(), "eve".into()],
            keys: vec!["phone".into(), "none".into()],
            ..Default::default()
        };
        assert_eq!(client.presence(presence).await.unwrap().into_inner().devices.len(), 2);
        let counts = CountsRequest { rooms: vec!["live/7".into(), "x".into()], ..Default::default() };
        let counts = client.counts(counts).await.unwrap().into_inner();
        assert_eq!((counts.devices, counts.rooms, &counts.members[..]), (1, 1, &[1, 0][..]));
        assert_eq!((counts.published, counts.delivered, counts.dropped), (8 * round, 8 * round, 0));
    }
    let client = PushClient::connect(&server.url()).await.unwrap();
    let mut published = Vec::new();
    for _ in 0..12 {
        published.push(client.publish(publish(vec![to(All(true))], "all")).await.map(|_| ()));
    }
    let refused = published.into_iter().find_map(Result::err).expect("the rate of publications to all");
    assert!(refused.message().contains("broadcasts_per_s=10"), "{refused}");
    assert_eq!(text(&mut device).await, "all");
    let disconnect =
        DisconnectRequest { keys: vec!["phone".into()], redirect: "tcp://b:1".into(), ..Default::default() };
    client.disconnect(disconnect).await.unwrap();
    loop {
        match soon(device.next()).await.unwrap() {
            Some(Item::Disconnected(order)) => break assert_eq!(order.text, "tcp://b:1"),
            Some(_) => {}
            None => panic!("ended"),
        }
    }
}

#[tokio::test]
async fn the_api_is_not_open_by_default() {
    let hub = Hub::builder().open().build().await.unwrap();
    let request = || publish(vec![to(target::Target::User("ali".into()))], "x");
    let closed = start(PushServer::new(&hub)).await;
    let client = PushClient::connect(&closed.url()).await.unwrap();
    assert_eq!(client.publish(request()).await.unwrap_err().code(), Code::PermissionDenied);

    let server = start(PushServer::new(&hub).token("secret")).await;
    let client = PushClient::connect(&server.url()).await.unwrap();
    assert_eq!(client.publish(request()).await.unwrap_err().code(), Code::Unauthenticated);
    for (token, is_valid) in [("secret", true), ("secre", false), ("Secret", false)] {
        let published = client.publish(request()).meta("authorization", format!("Bearer {token}")).await;
        assert_eq!(published.is_ok(), is_valid, "{token}");
    }

    let empty = start(PushServer::new(&hub).token("")).await;
    let client = PushClient::connect(&empty.url()).await.unwrap();
    assert_eq!(client.publish(request()).await.unwrap_err().code(), Code::Unauthenticated);
    let published = client.publish(request()).meta("authorization", "Bearer ").await;
    assert_eq!(published.unwrap_err().code(), Code::Unauthenticated);

    let tokens = auth::Tokens::default().token("t1", auth::Caller::new("job").role("push"));
    let tokens = tokens.token("t2", auth::Caller::new("ali"));
    let server = Server::new().auth(tokens).add(PushServer::new(&hub)).listen("tcp://127.0.0.1:0");
    let server = server.start().await.unwrap();
    let client = PushClient::connect(&server.url()).await.unwrap();
    for (token, is_valid) in [("t1", true), ("t2", false)] {
        let published = client.publish(request()).meta("authorization", format!("Bearer {token}")).await;
        assert_eq!(published.is_ok(), is_valid, "{token}");
    }
}
