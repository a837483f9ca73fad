//! A connection of an engine.

use super::encoder::Key;
use crate::Device;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use switchboard_adapter::parts::Task;
use switchboard_core::{Peer as Remote, clock};
use switchboard_wire::{
    Metadata,
    centrifuge::{Format, Server},
};

/// A connection of an engine.
pub(super) struct Peer {
    /// `None` before the first byte, which names the format.
    pub(super) machine: Option<Server>,
    pub(super) remote: Arc<Remote>,
    /// The headers of its handshake; for verifications and calls.
    pub(super) metadata: Metadata,
    /// The token of the connection, for calls.
    pub(super) authorization: Option<Box<str>>,
    /// Set once the device is verified and connected.
    pub(super) device: Option<Device>,
    /// The verification under way: no further command is read.
    pub(super) login: Option<Task>,
    /// Commands that wait, by their ids; at most `commands_max`.
    pub(super) tasks: HashMap<u32, Task>,
    /// Subscriptions by the name of the room.
    pub(super) subscriptions: HashMap<String, Subscription>,
    /// Errors so far.
    pub(super) errors: u32,
    /// When the next ping is sent, and when it is closed without its pong.
    pub(super) ping_at: Instant,
    pub(super) pong_until: Option<Instant>,
    /// Rooms whose joins and leaves it receives.
    joins: Option<Arc<BTreeSet<String>>>,
}

/// A subscription of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Subscription {
    /// When its token expires.
    pub(super) expires_at: Option<SystemTime>,
}

impl Peer {
    pub(super) fn new(remote: Remote, metadata: Metadata, login: Duration) -> Peer {
        Peer {
            machine: None,
            remote: Arc::new(remote),
            metadata,
            authorization: None,
            device: None,
            login: None,
            tasks: HashMap::new(),
            subscriptions: HashMap::new(),
            errors: 0,
            ping_at: clock::after(clock::now(), login),
            pong_until: None,
            joins: None,
        }
    }

    pub(super) fn format(&self) -> Format {
        self.machine.as_ref().map_or(Format::Json, Server::format)
    }

    /// Returns what determines the bytes of its publications.
    pub(super) fn key(&self) -> Key {
        Key { format: self.format(), joins: self.joins.clone() }
    }

    /// Adds or removes a room whose joins and leaves it receives; returns whether this changed its key.
    pub(super) fn set_joins(&mut self, room: &str, receives: bool) -> bool {
        let has = self.joins.as_ref().is_some_and(|rooms| rooms.contains(room));
        if has == receives {
            return false;
        }
        let mut rooms = self.joins.as_deref().cloned().unwrap_or_default();
        if receives {
            rooms.insert(room.to_owned());
        } else {
            rooms.remove(room);
        }
        self.joins = (!rooms.is_empty()).then(|| Arc::new(rooms));
        true
    }

    pub(super) fn receives_joins(&self) -> bool {
        self.joins.is_some()
    }

    /// Returns the time until the next ping, or until something expires.
    pub(super) fn next_timer(&self) -> Duration {
        let until = |instant: Instant| instant.saturating_duration_since(clock::now());
        let pong = self.pong_until.map(until);
        let token = self.device.as_ref().and_then(Device::expires_in);
        let times = self.subscriptions.values().filter_map(|subscription| subscription.expires_at);
        let subscription = times.min().map(left);
        [pong, token, subscription].into_iter().flatten().fold(until(self.ping_at), Duration::min)
    }

    /// Returns whether the token of a subscription has expired.
    pub(super) fn has_expired_subscription(&self) -> bool {
        let mut times = self.subscriptions.values().filter_map(|subscription| subscription.expires_at);
        times.any(|time| left(time).is_zero())
    }
}

/// Returns the time until a time of day.
pub(super) fn left(time: SystemTime) -> Duration {
    time.duration_since(clock::time_of_day()).unwrap_or_default()
}
