//! Frames of publications, and the replies to subscriptions.

use super::{
    settings::Context,
    stats::{Counters, count},
};
use crate::{
    Hub, HubEvent,
    feeds::{Begun, Encoder, Outcome},
    names,
};
use bytes::Bytes;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use switchboard_fanout::SubscriberId;
use switchboard_message::{Gap, Message, Position, Topic};
use switchboard_wire::{
    Outbox,
    centrifuge::{
        Data, Format, Info, Member, MessagePush, Publication, Push, Reply, SubscribePush, Subscribed,
        Unsubscribed, code,
    },
};

/// Header of an entry with the client that published it, as JSON.
pub(crate) const INFO: &str = "centrifuge-info";
/// Header of an entry with its tags, as JSON.
pub(crate) const TAGS: &str = "centrifuge-tags";

/// Parameters that determine the bytes of publications.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    pub(super) format: Format,
    /// Rooms whose joins and leaves the client receives.
    pub(super) joins: Option<Arc<BTreeSet<String>>>,
}

/// A subscription that has not begun.
pub(super) enum Pending {
    /// It is part of the reply to *connect*.
    Connect,
    /// The reply to *subscribe*.
    Subscribe { id: u32, subscribed: Box<Subscribed> },
}

/// A subscription that has begun, for the adapter.
pub(super) enum BegunBy {
    /// For the reply to *connect*.
    Connect(SubscriberId, Topic, Subscribed),
    /// The reply to this command was written.
    Subscribe(SubscriberId, u32),
}

/// Encodes entries as publications.
pub(super) struct PushEncoder {
    hub: Hub,
    counters: Arc<Counters>,
    pub(super) pending: HashMap<(SubscriberId, Topic), Pending>,
    pub(super) begun: Vec<BegunBy>,
}

impl PushEncoder {
    pub(super) fn new(context: &Context) -> PushEncoder {
        let (hub, counters) = (context.hub.clone(), context.counters.clone());
        PushEncoder { hub, counters, pending: HashMap::new(), begun: Vec::new() }
    }

    /// Returns the name of the room of a topic that keeps entries.
    fn kept_room<'a>(&self, topic: &'a Topic) -> Option<&'a str> {
        names::room_of(topic.name()).filter(|room| has_history(&self.hub, room))
    }

    /// Returns the push of an entry; `None` if the format cannot have its data.
    fn push(&self, format: Format, message: &Message<Bytes>) -> Option<Push> {
        let topic = message.topic();
        if topic.name() == names::EVENTS {
            return self.member(message);
        }
        let data = data(format, message)?;
        let Some(room) = names::room_of(topic.name()) else {
            let mut message = MessagePush::default();
            message.data = data;
            return Some(push(|push| push.message = Some(Box::new(message))));
        };
        let mut publication = publication(data, message, has_history(&self.hub, room));
        if format == Format::Json && publication.info.as_ref().is_some_and(|info| !is_json(info)) {
            publication.info = None;
        }
        Some(push(|push| {
            push.channel = channel(room);
            push.publication = Some(Box::new(publication));
        }))
    }

    /// Returns the push of a client that has joined or left.
    fn member(&self, message: &Message<Bytes>) -> Option<Push> {
        let event = event(message)?;
        let device = self.hub.key(&event.key).device().filter(|device| device.session == event.session);
        let mut info = Info::default();
        (info.user, info.client) = (event.user, client_id(event.session));
        info.conn_info = device.map_or_else(Data::default, |device| Data(device.info));
        let mut member = Member::default();
        member.info = Some(Box::new(info));
        let member = Some(Box::new(member));
        Some(push(|push| {
            push.channel = channel(&event.room);
            if event.event == "joined" { push.join = member } else { push.leave = member }
        }))
    }
}

impl Encoder for PushEncoder {
    type Key = Key;

    fn admits(&self, key: &Key, entry: &Message<Bytes>) -> bool {
        if entry.topic().name() != names::EVENTS {
            return true;
        }
        let Some(rooms) = &key.joins else { return false };
        event(entry)
            .is_some_and(|event| matches!(&*event.event, "joined" | "left") && rooms.contains(&*event.room))
    }

    fn encode(&mut self, key: &Key, entries: &[&Message<Bytes>], out: &mut Outbox) {
        for entry in entries {
            if let Some(push) = self.push(key.format, entry) {
                Reply::push(push).write(key.format, out);
            }
        }
    }

    fn begun(&mut self, id: SubscriberId, key: &Key, begun: &Begun<'_>, out: &mut Outbox) {
        let Some(room) = names::room_of(begun.topic.name()) else { return };
        let pending = self.pending.remove(&(id, begun.topic.clone()));
        let mut subscribed = Subscribed::default();
        let command = match pending {
            Some(Pending::Subscribe { id, subscribed: given }) => {
                subscribed = *given;
                Some(id)
            }
            Some(Pending::Connect) => Some(0),
            None => None,
        };
        if let (Some(position), true) = (begun.position, self.kept_room(begun.topic).is_some()) {
            (subscribed.recoverable, subscribed.positioned) = (true, true);
            (subscribed.epoch, subscribed.offset) = (epoch(position), position.offset);
        }
        subscribed.recovered = subscribed.was_recovering && matches!(begun.outcome, Outcome::Complete);
        match command {
            Some(0) => self.begun.push(BegunBy::Connect(id, begun.topic.clone(), subscribed)),
            Some(command) => {
                let mut reply = Reply::default();
                (reply.id, reply.subscribe) = (command, Some(Box::new(subscribed)));
                reply.write(key.format, out);
                self.begun.push(BegunBy::Subscribe(id, command));
            }
            None => {
                let mut made = SubscribePush::default();
                (made.recoverable, made.positioned) = (subscribed.recoverable, subscribed.positioned);
                (made.epoch, made.offset) = (subscribed.epoch, subscribed.offset);
                let push = push(|push| {
                    push.channel = channel(room);
                    push.subscribe = Some(Box::new(made));
                });
                Reply::push(push).write(key.format, out);
            }
        }
    }

    /// Has clients subscribe again: they then recover, or learn that publications are missing.
    fn gap(&mut self, key: &Key, gap: &Gap, out: &mut Outbox) {
        let Some(room) = self.kept_room(&gap.topic) else { return };
        let push = unsubscribed(room, code::INSUFFICIENT, "insufficient state");
        Reply::push(push).write(key.format, out);
    }

    fn stays_after_lag(&mut self, _id: SubscriberId, topic: &Topic) -> bool {
        count(&self.counters.lagged);
        self.kept_room(topic).is_some()
    }
}

/// Returns whether clients may recover in a room.
pub(super) fn has_history(hub: &Hub, room: &str) -> bool {
    hub.state.class_of(room).settings.options.has_history()
}

/// Creates a push.
fn push(fill: impl FnOnce(&mut Push)) -> Push {
    let mut push = Push::default();
    fill(&mut push);
    push
}

/// Creates the push that ends a subscription.
pub(super) fn unsubscribed(room: &str, code: u32, reason: &str) -> Push {
    let mut ended = Unsubscribed::default();
    (ended.code, ended.reason) = (code, reason.to_owned());
    push(|push| {
        push.channel = channel(room);
        push.unsubscribe = Some(Box::new(ended));
    })
}

/// Returns the data of an entry; `None` if the format cannot have it.
fn data(format: Format, message: &Message<Bytes>) -> Option<Data> {
    match format {
        Format::Json => Data::for_json(message),
        Format::Protobuf => Some(Data((**message).clone())),
    }
}

/// Returns a kept entry as a publication; `None` if the format cannot have its data.
pub(crate) fn kept_publication(format: Format, message: &Message<Bytes>) -> Option<Publication> {
    Some(publication(data(format, message)?, message, true))
}

fn publication(data: Data, message: &Message<Bytes>, has_offset: bool) -> Publication {
    let mut publication = Publication::default();
    publication.data = data;
    if has_offset {
        publication.offset = message.position().offset;
    }
    let headers = message.headers();
    if !headers.is_empty() {
        let info = headers.text(INFO).and_then(|info| serde_json::from_str::<Info>(info).ok());
        publication.info = info.map(Box::new);
        let tags = headers.text(TAGS).and_then(|tags| serde_json::from_str(tags).ok());
        publication.tags = tags.unwrap_or_default();
    }
    publication
}

fn is_json(info: &Info) -> bool {
    serde_json::to_vec(info).is_ok()
}

fn event(message: &Message<Bytes>) -> Option<HubEvent> {
    serde_json::from_slice(message).ok()
}

/// Returns the name in the protocol of a room.
pub(crate) fn channel(room: &str) -> String {
    switchboard_message::names::to_separated(room, ":")
}

/// Returns the name in the hub of a channel.
pub(crate) fn room(channel: &str) -> String {
    switchboard_message::names::from_separated(channel, ":")
}

/// Returns the id of a connection in the protocol.
pub(crate) fn client_id(session: u64) -> String {
    format!("{session:016x}")
}

/// Returns the identifier of a log in the protocol.
pub(crate) fn epoch(position: Position) -> String {
    format!("{:x}", position.epoch)
}

/// Returns the position that a client names. An epoch that is none of this server is that of another log.
pub(crate) fn position(epoch: &str, offset: u64) -> Position {
    Position { epoch: u64::from_str_radix(epoch, 16).unwrap_or(0), offset }
}
