//! A peer: its connection, and what it does.

use super::{calls::Calls, login::Login, profiles::Profile, publishing::Publishing, routed::Routed};
use crate::task::Task;
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_core::{Caller, clock};
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_wire::{Metadata, zmtp::Connection};

/// PINGs that a peer may send within a second.
const PINGS_MAX: u32 = 20;

/// Memory of a prefix beside its bytes: its entries in the tables of the peer and of the engine.
const PREFIX_BYTES: usize = 256;

/// A peer of an engine.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) connection: Connection,
    /// The mapping of its listener.
    pub(super) profile: Arc<Profile>,
    pub(super) role: Role,
    pub(super) life: Life,
    /// Bytes of a message that is incomplete.
    pub(super) held_bytes: usize,
    /// The other end, for verifiers and services, as long as it may be needed.
    pub(super) remote: Option<Arc<switchboard_core::Peer>>,
    /// The credentials of its login, for its calls.
    pub(super) credentials: Metadata,
    /// The caller of its login or of its key, for the rules of topics.
    pub(super) caller: Option<Arc<Caller>>,
    /// Limit of its calls in flight.
    pub(super) calls_max: usize,
    /// Its last message waits for room.
    waits_for: Option<Task>,
    /// Nothing is read: the result of an earlier event is awaited.
    pub(super) is_paused: bool,
}

/// The part of a connection, known after the handshake.
#[derive(Debug)]
pub(super) enum Role {
    /// The handshake is not complete; the login of PLAIN may be under way.
    Handshake(Option<Login>),
    /// A REQ or a DEALER that calls services.
    Caller(Box<Calls>),
    /// A PUB or a PUSH.
    Publisher(Publishing),
    /// A peer of a ROUTER of the application.
    Routed(Box<Routed>),
    /// A SUB.
    Subscriber(Prefixes),
    /// A PULL.
    Worker,
}

/// The subscriptions of a SUB.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// How often each was subscribed to.
    pub(super) all: BTreeMap<Bytes, u32>,
    /// All of them together.
    pub(super) count: u32,
    /// Memory of the prefixes, as if no other peer had them.
    bytes: usize,
    /// The set of these prefixes.
    pub(super) filter: Option<u32>,
    /// The rules allow the peer to read messages of one frame.
    pub(super) reads_single_frames: bool,
}

impl Prefixes {
    /// Creates the subscriptions of a peer that has none yet.
    pub(super) fn new(reads_single_frames: bool) -> Prefixes {
        Prefixes { reads_single_frames, ..Prefixes::default() }
    }

    /// Counts a subscription; returns true if it is the first one to its prefix.
    pub(super) fn add(&mut self, prefix: &Bytes) -> bool {
        self.count = self.count.saturating_add(1);
        let count = self.all.entry(prefix.clone()).or_default();
        *count = count.saturating_add(1);
        let is_first = *count == 1;
        if is_first {
            self.bytes = self.bytes.saturating_add(prefix_bytes(prefix));
        }
        is_first
    }

    /// Ends a subscription, if there is one; returns true if it was the last one to its prefix.
    pub(super) fn remove(&mut self, prefix: &[u8]) -> bool {
        let Some(count) = self.all.get_mut(prefix) else { return false };
        *count = count.saturating_sub(1);
        let is_last = *count == 0;
        self.count = self.count.saturating_sub(1);
        if is_last {
            self.all.remove(prefix);
            self.bytes = self.bytes.saturating_sub(prefix_bytes(prefix));
        }
        is_last
    }
}

/// Returns the memory that a prefix takes, at most: the peer and the topics to read share its bytes, a set of prefixes
/// has a copy of them.
fn prefix_bytes(prefix: &[u8]) -> usize {
    prefix.len().saturating_mul(2).saturating_add(PREFIX_BYTES)
}

impl Peer {
    /// Creates a peer whose handshake begins. `calls_max` is the limit of its calls in flight.
    pub(super) fn new(
        connection: Connection,
        profile: Arc<Profile>,
        remote: switchboard_core::Peer,
        calls_max: usize,
    ) -> Peer {
        Peer {
            connection,
            profile,
            role: Role::Handshake(None),
            life: Life::new(clock::now()),
            held_bytes: 0,
            remote: Some(Arc::new(remote)),
            credentials: Metadata::new(),
            caller: None,
            calls_max,
            waits_for: None,
            is_paused: false,
        }
    }

    /// Stops reading the peer until [`resume`](Self::resume), which the task brings about.
    pub(super) fn wait(&mut self, id: SubscriberId, subscribers: &mut Subscribers, task: Task) {
        self.waits_for = Some(task);
        self.is_paused = true;
        subscribers.pause(id);
    }

    /// Reads the peer again.
    pub(super) fn resume(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        self.waits_for = None;
        if std::mem::take(&mut self.is_paused) {
            subscribers.resume(id);
        }
    }

    /// Returns the bytes that are held for the peer here.
    pub(super) fn adapter_bytes(&self) -> usize {
        let of_role = match &self.role {
            Role::Caller(calls) => calls.waiting_bytes(),
            Role::Subscriber(prefixes) => prefixes.bytes,
            _ => 0,
        };
        self.held_bytes.saturating_add(of_role)
    }
}

/// Heartbeats of a peer.
#[derive(Debug)]
pub(super) struct Life {
    /// The peer wants its connection closed if it is silent for this time.
    pub(super) ttl: Option<Duration>,
    /// The last bytes of the peer, as far as it has a TTL.
    pub(super) heard: Instant,
    /// Start of the second in which its PINGs are counted.
    second: Instant,
    pings: u32,
}

impl Life {
    pub(super) fn new(now: Instant) -> Life {
        Life { ttl: None, heard: now, second: now, pings: 0 }
    }

    /// Counts a PING; returns false if there were too many.
    pub(super) fn ping(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.pings) = (now, 0);
        }
        self.pings = self.pings.saturating_add(1);
        self.pings <= PINGS_MAX
    }
}
