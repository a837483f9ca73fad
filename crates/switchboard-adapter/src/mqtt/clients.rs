//! Connected clients of an engine, by index.

use super::session::Session;
use crate::task::Task;
use bytes::Bytes;
use std::{collections::VecDeque, num::NonZeroU16, sync::Arc, time::Duration};
use switchboard_core::{Caller, Peer, clock};
use switchboard_fanout::{Admitted, SubscriberId, Subscribers};
use switchboard_message::Topic;
use switchboard_wire::mqtt::{AckKind, Connect, Limits, Reason, Server, Will};

/// Bytes that wait for a client, at which it gets no further messages until they are written.
pub(super) const ROOM_BYTES: usize = 256 << 10;

/// A connected client.
pub(super) struct Client {
    pub(super) id: SubscriberId,
    pub(super) server: Server,
    pub(super) peer: Arc<Peer>,
    /// The caller of its credentials, for the rules of topics.
    pub(super) caller: Option<Arc<Caller>>,
    /// CONNECT, until it is accepted.
    pub(super) connect: Option<Box<Connect>>,
    /// The check of its credentials, while it waits. It ends with the client.
    pub(super) check: Option<Task>,
    /// The session, from the acceptance on, until another connection takes it.
    pub(super) session: Option<Box<Session>>,
    /// Seconds that the session is kept; `None` as long as possible.
    pub(super) session_expiry: Option<u32>,
    pub(super) will: Option<Will>,
    /// Silence after which it is closed.
    pub(super) silence_max: Option<Duration>,
    /// Time of the last bytes.
    pub(super) heard_at: u64,
    /// Bytes that waited while its socket was full, when its silence was last looked at, and how often in a row they
    /// were the same.
    pub(super) unwritten: Option<(usize, u32)>,
    /// Bytes that wait for it, when it was last written to.
    pub(super) waiting: usize,
    /// A later turn looks at its outbox again.
    pub(super) is_rechecked: bool,
    /// Feeds that wait for room in its window or its outbox.
    pub(super) stalled: Vec<u32>,
    /// The feed of its last message, except those of QoS 0 that it shares.
    pub(super) served: Option<u32>,
    /// Acknowledgements in the order of their messages.
    pub(super) acks: VecDeque<PendingAck>,
    /// It is not read until the bus has messages of it.
    pub(super) is_paused: bool,
    /// The topic name of the last publication, and its topic.
    pub(super) last: Option<(Bytes, Topic)>,
}

/// Acknowledgement of a message of a client.
pub(super) struct PendingAck {
    pub(super) kind: AckKind,
    pub(super) packet_id: NonZeroU16,
    /// `None` while the bus has not accepted the message.
    pub(super) outcome: Option<(Reason, String)>,
}

impl Client {
    pub(super) fn new(id: SubscriberId, admitted: Admitted, limits: Limits) -> Client {
        Client {
            id,
            server: Server::new(limits),
            peer: Arc::new(admitted.peer),
            caller: None,
            connect: None,
            check: None,
            session: None,
            session_expiry: Some(0),
            will: None,
            silence_max: None,
            heard_at: clock::now_ns(),
            unwritten: None,
            waiting: 0,
            is_rechecked: false,
            stalled: Vec::new(),
            served: None,
            acks: VecDeque::new(),
            is_paused: false,
            last: None,
        }
    }

    /// Returns whether a message can be sent to it; one of QoS 1 or 2 needs room in the window.
    pub(super) fn has_room(&self, needs_window: bool) -> bool {
        let has_window = self.session.as_ref().is_some_and(|session| {
            // Messages that are sent again come first.
            !needs_window || session.window.has_room() && !session.window.is_resending()
        });
        self.waiting < ROOM_BYTES && has_window && self.server.is_open()
    }

    /// Returns whether the acknowledgement of a message waits for the bus.
    pub(super) fn awaits_outcome(&self, packet_id: NonZeroU16) -> bool {
        self.acks.iter().any(|ack| ack.packet_id == packet_id && ack.outcome.is_none())
    }

    /// Adds a feed that is read when the client has room.
    pub(super) fn stall(&mut self, feed: u32) {
        if !self.stalled.contains(&feed) {
            self.stalled.push(feed);
        }
    }
}

/// The clients of an engine. The state of a subscriber has its index here.
#[derive(Default)]
pub(super) struct Clients {
    clients: Vec<Option<Box<Client>>>,
    free: Vec<u32>,
}

impl Clients {
    /// Adds a client.
    pub(super) fn insert(&mut self, client: Client, subscribers: &mut Subscribers) -> u32 {
        let id = client.id;
        let index = match self.free.pop() {
            Some(index) => {
                self.clients[index as usize] = Some(Box::new(client));
                index
            }
            None => {
                self.clients.push(Some(Box::new(client)));
                (self.clients.len() - 1) as u32
            }
        };
        if let Some(state) = subscribers.state(id) {
            state.bits = index.into();
        }
        index
    }

    /// Returns the index of a subscriber.
    pub(super) fn index(&self, id: SubscriberId, subscribers: &mut Subscribers) -> Option<u32> {
        let index = subscribers.state(id)?.bits as u32;
        self.get(index).filter(|client| client.id == id).map(|_| index)
    }

    pub(super) fn get(&self, index: u32) -> Option<&Client> {
        self.clients.get(index as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Client> {
        self.clients.get_mut(index as usize)?.as_deref_mut()
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<Box<Client>> {
        let client = self.clients.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(client)
    }

    /// Returns all clients.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.iter_mut().filter_map(Option::as_deref_mut)
    }
}
