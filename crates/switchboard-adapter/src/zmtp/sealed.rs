//! Subscribers whose messages are encrypted: each entry is sent to each of them, as no two have the same bytes.

use super::{
    Shared, entries,
    peer::{Peer, Role},
};
use crate::responses::add;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_message::Entry;
use switchboard_wire::zmtp::patterns::Subscriptions;

/// The subscribers with CURVE of an engine.
#[derive(Debug)]
pub(super) struct SealedSubscribers {
    prefixes: Subscriptions<SubscriberId>,
    /// Those for which as many bytes wait as may: they lose entries until everything is written.
    full: HashSet<SubscriberId>,
    /// Bytes that wait for one of them, at which it loses entries.
    room_bytes: usize,
    found: Vec<SubscriberId>,
}

impl SealedSubscribers {
    pub(super) fn new(subscriptions_max: u32, shared: &Shared) -> SealedSubscribers {
        SealedSubscribers {
            prefixes: Subscriptions::new(subscriptions_max),
            full: HashSet::new(),
            room_bytes: shared.options.broadcast_buffer_bytes_max.min(shared.options.outbox_bytes_max),
            found: Vec::new(),
        }
    }

    /// Adds a prefix of a subscriber, which has it once.
    pub(super) fn add(&mut self, id: SubscriberId, prefix: &[u8]) {
        // A peer has no more prefixes than it may have here: its own limit is the same.
        let _ = self.prefixes.subscribe(prefix, id);
    }

    pub(super) fn cancel(&mut self, id: SubscriberId, prefix: &[u8]) {
        self.prefixes.cancel(prefix, id);
    }

    /// The connection has ended.
    pub(super) fn remove(&mut self, id: SubscriberId) {
        self.prefixes.remove(id);
        self.full.remove(&id);
    }

    /// Everything that waited for a subscriber is written.
    pub(super) fn drained(&mut self, id: SubscriberId) {
        self.full.remove(&id);
    }

    /// Sends an entry, of this topic if it has a name, to the subscribers with a prefix of it. One for which too many
    /// bytes wait loses it, which is counted. One that may not read messages without a name does not receive them.
    pub(super) fn deliver(
        &mut self,
        topic: Option<&str>,
        entry: &Entry,
        peers: &mut HashMap<SubscriberId, Peer>,
        shared: &Shared,
        subscribers: &mut Subscribers,
    ) {
        let mut found = std::mem::take(&mut self.found);
        self.prefixes.matching(topic.map_or(&entry.bytes()[..], str::as_bytes), &mut found);
        if !found.is_empty() {
            let frames = entries::frames(topic, entry);
            for id in found.drain(..) {
                self.send(id, (topic.is_some(), &frames), peers, shared, subscribers);
            }
        }
        self.found = found;
    }

    fn send(
        &mut self,
        id: SubscriberId,
        (is_named, frames): (bool, &[Bytes]),
        peers: &mut HashMap<SubscriberId, Peer>,
        shared: &Shared,
        subscribers: &mut Subscribers,
    ) {
        let Some(peer) = peers.get_mut(&id) else { return };
        if !is_named && !matches!(&peer.role, Role::Subscriber(own) if own.reads_single_frames) {
            return;
        }
        if self.full.contains(&id) {
            let lost: usize = frames.iter().map(Bytes::len).sum();
            return add(&shared.counters.lagged_bytes, lost as u64);
        }
        let waiting = subscribers.send(id, |out| {
            // The handshake is complete.
            let _ = peer.connection.send(frames, out);
        });
        add(&shared.counters.encoded, 1);
        if waiting >= self.room_bytes {
            self.full.insert(id);
        }
    }
}
