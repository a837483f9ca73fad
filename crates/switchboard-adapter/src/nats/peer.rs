//! Clients of an engine, by index.

use super::{
    messages::{self, NotTopic},
    shared::Shared,
};
use crate::task::Task;
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};
use switchboard_core::{Caller, Peer};
use switchboard_fanout::{Admitted, SubscriberId, Subscribers};
use switchboard_message::Topic;
use switchboard_wire::{Outbox, nats::Server};

/// A client: its connection, its subscriptions and its calls.
pub(super) struct Client {
    pub(super) id: SubscriberId,
    pub(super) server: Server,
    /// Number in INFO.
    pub(super) number: u64,
    /// The caller of services.
    pub(super) peer: Arc<Peer>,
    /// The caller of its credentials, for the rules of topics.
    pub(super) caller: Option<Arc<Caller>>,
    /// Credentials for calls, in the form of the metadata `authorization`.
    pub(super) authorization: Option<Bytes>,
    /// By sid.
    pub(super) subscriptions: HashMap<Bytes, Place>,
    /// Bytes arrived since the last look.
    pub(super) is_heard: bool,
    /// PINGs without a response.
    pub(super) pings: u32,
    /// Bytes that wait for it, when it was last written to.
    pub(super) waiting: usize,
    /// It misses messages until nothing waits any more.
    pub(super) is_slow: bool,
    /// Calls in flight.
    pub(super) calls: HashMap<u64, Task>,
    /// The check of its credentials, while it waits. It ends with the client.
    pub(super) check: Option<Task>,
    /// The subject of the last publication, and its topic.
    last: Option<(Box<[u8]>, Topic)>,
}

/// Place of a subscription: its feed, and its index there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) feed: u32,
    pub(super) member: u32,
}

impl Client {
    /// Begins a connection; INFO is appended to `out`, unless it was sent before TLS.
    pub(super) fn new(id: SubscriberId, admitted: Admitted, shared: &Shared, out: &mut Outbox) -> Client {
        let number = shared.next_client();
        let mut info = Outbox::new();
        let into = if admitted.is_greeted { &mut info } else { out };
        let server = Server::new(&shared.info(number), shared.settings.limits, into);
        Client {
            id,
            server,
            number,
            peer: Arc::new(admitted.peer),
            caller: None,
            authorization: None,
            subscriptions: HashMap::new(),
            is_heard: false,
            pings: 0,
            waiting: 0,
            is_slow: false,
            calls: HashMap::new(),
            check: None,
            last: None,
        }
    }

    /// Returns the topic of a subject. Most clients publish to the same one again.
    pub(super) fn topic(&mut self, subject: &[u8]) -> Result<&Topic, NotTopic> {
        let is_known = self.last.as_ref().is_some_and(|(known, _)| **known == *subject);
        if !is_known {
            self.last = None;
        }
        match &mut self.last {
            Some((_, topic)) => Ok(topic),
            none => {
                let topic = messages::topic(subject)?;
                Ok(&none.insert((subject.into(), topic)).1)
            }
        }
    }

    /// Returns the number that entries of this client have as their origin, if they must not come back.
    pub(super) fn origin(&self) -> Option<u64> {
        (!self.server.options().echo).then_some(self.number)
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
