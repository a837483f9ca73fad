//! Devices whose clients are those of RPC.

use super::{
    convert,
    v1::{self, room_start, subscribe_event::Event},
};
use crate::{
    accepts::Accepts,
    disconnect::Disconnect,
    hub::{Connect, Hub},
    identity::{Credentials, Identity},
    inbox::{Inbox, Item},
    start::Start,
};
use std::sync::Arc;
use switchboard::{Call, Cx, Reply, Result, Sender, Service, ServiceInfo, Status};
use switchboard_wire::Metadata;

/// Rooms that one request joins.
const ROOMS_MAX: usize = 1_000;

/// The service `switchboard.push.v1.Devices` over a [`Hub`], for [`Server::add`](switchboard::Server::add). The hub is
/// a
/// plugin that adds it, with `GET /events`.
///
/// The hub verifies the devices. Rules of the server for the method `switchboard.push.v1.Devices/Subscribe` apply
/// before; a server that requires credentials of all callers needs a rule that makes it public, or must know the
/// devices
/// itself.
#[derive(Clone, Debug)]
pub struct DevicesServer(Arc<Devices>);

impl DevicesServer {
    /// Creates the service.
    pub fn new(hub: &Hub) -> DevicesServer {
        DevicesServer(Arc::new(Devices { hub: hub.clone() }))
    }
}

#[derive(Debug)]
struct Devices {
    hub: Hub,
}

impl Service for DevicesServer {
    fn info(&self) -> &'static ServiceInfo {
        &v1::DEVICES
    }

    async fn call(&self, call: Call) -> Result<Reply> {
        v1::DevicesServer::from_arc(self.0.clone()).call(call).await
    }
}

/// Returns the token of the metadata `authorization: Bearer`.
pub(super) fn bearer(metadata: &Metadata) -> Option<&str> {
    let (scheme, token) = metadata.text("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Verifies the device of a call, with the token of the request if the metadata has none.
pub(crate) async fn identify(
    hub: &Hub,
    cx: &Cx,
    protocol: &'static str,
    (token, claimed): (&str, Identity),
) -> Result<Identity> {
    let peer = Arc::new(cx.peer().clone());
    let token = bearer(cx.metadata()).unwrap_or(token).to_owned();
    let mut metadata = cx.metadata().clone();
    // The token is there, or another scheme.
    if !token.is_empty() {
        metadata.remove("authorization");
    }
    let credentials = Credentials::new(protocol, peer).token(token).claimed(claimed).metadata(metadata);
    hub.verify(&credentials).await
}

impl v1::Devices for Devices {
    async fn subscribe(
        &self,
        request: v1::SubscribeRequest,
        cx: &Cx,
        out: Sender<v1::SubscribeEvent>,
    ) -> Result<()> {
        let closing = self.hub.state.closing.subscribe();
        if request.rooms.len() > ROOMS_MAX {
            let text = format!("field rooms has {} values; the limit is {ROOMS_MAX}", request.rooms.len());
            return Err(Status::resource_exhausted(text));
        }
        let mut claimed = Identity::new(&request.user);
        claimed.key = Some(request.key.clone()).filter(|key| !key.is_empty());
        let identity = identify(&self.hub, cx, "rpc", (&request.token, claimed)).await?;
        let mut connect = Connect::new("rpc").key(&request.key).info(request.info);
        connect.address = Some(cx.peer().address.clone());
        if !request.accepts.is_empty() {
            connect.accepts = Accepts::only(request.accepts);
        }
        if let Some(after) = request.user_after.as_option() {
            connect.user_start = Start::After(convert::to_position(after));
        }
        let mut inbox = self.hub.attach_with(identity, connect).await?;
        inbox.end_with_server(closing);
        for room in request.rooms {
            let start = match room.start {
                None => Start::Next,
                Some(room_start::Start::After(after)) => Start::After(convert::to_position(&after)),
                Some(room_start::Start::Last(entries)) => Start::Last(entries as usize),
            };
            inbox.join_from(&room.room, start).await?;
        }
        let connected = connected(&mut inbox);
        out.send(event(connected.into())).await?;
        while let Some(item) = inbox.next().await? {
            out.send(event(item_event(item))).await?;
        }
        Ok(())
    }
}

fn event(event: Event) -> v1::SubscribeEvent {
    v1::SubscribeEvent { event: Some(event), ..Default::default() }
}

fn connected(inbox: &mut Inbox) -> v1::Connected {
    let positions = inbox.positions().filter_map(|(topic, position)| {
        Some(v1::TopicPosition {
            topic: convert::topic(topic.name()).into(),
            position: convert::position(position?).into(),
            ..Default::default()
        })
    });
    let positions = positions.collect();
    let Some(device) = inbox.device() else { return v1::Connected::default() };
    v1::Connected {
        session: device.session(),
        key: device.key().to_owned(),
        user: device.identity().user.clone(),
        positions,
        ..Default::default()
    }
}

fn disconnected(order: Disconnect) -> v1::Disconnected {
    let (reason, text) = (order.reason.name().to_owned(), order.text);
    v1::Disconnected { reason, text, ..Default::default() }
}

fn item_event(item: Item) -> Event {
    let change = |room| v1::RoomChange { room, ..Default::default() };
    match item {
        Item::Entry(message) => convert::entry(&message).into(),
        Item::Gap(gap) => convert::gap(&gap).into(),
        Item::Recovered(topic) => {
            v1::Recovered { topic: convert::topic(topic.name()).into(), ..Default::default() }.into()
        }
        Item::Joined(room) => Event::Joined(change(room).into()),
        Item::Left(room) => Event::Left(change(room).into()),
        Item::Disconnected(order) => disconnected(order).into(),
    }
}
