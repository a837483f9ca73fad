//! A peer: its connection, and what it does.

use super::login::Login;
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_wire::Metadata;
use switchboard_wire::zmtp::{Connection, SocketType, patterns::Assembly};

/// PINGs that a peer may send within a second.
const PINGS_MAX: u32 = 20;

/// A peer of an engine.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) connection: Connection,
    pub(super) role: Role,
    pub(super) life: Life,
    /// Bytes of a message that is incomplete.
    pub(super) held_bytes: usize,
    /// The other end, for verifiers and services, as long as it may be needed.
    pub(super) remote: Option<Arc<switchboard_core::Peer>>,
    /// The credentials of its login, for its calls.
    pub(super) credentials: Metadata,
    /// Nothing is read: the result of the last event is awaited.
    pub(super) is_paused: bool,
}

/// The part of a connection, known after the handshake.
#[derive(Debug)]
pub(super) enum Role {
    /// The handshake is not complete; the login of PLAIN may be under way.
    Handshake(Option<Login>),
    /// A SUB.
    Subscriber(Prefixes),
    /// A PUB or a PUSH.
    Publisher(Assembly),
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
    /// The set of these prefixes.
    pub(super) filter: Option<u32>,
}

impl Role {
    /// Returns the role of a connection whose own socket has this type.
    pub(super) fn of(own: SocketType) -> Role {
        match own {
            SocketType::Pub => Role::Subscriber(Prefixes::default()),
            SocketType::Push => Role::Worker,
            _ => Role::Publisher(Assembly::new()),
        }
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
