//! Sets of prefixes, each with a broadcast buffer: a subscriber reads one buffer, and gets each entry once.
//!
//! Subscribers with the same few prefixes share a set. A subscriber with many has one of its own, which is changed in
//! place.

use super::peer::Prefixes;
use crate::shared_sets::{Joined, SHARED_MAX, SharedSets};
use bytes::Bytes;
use switchboard_fanout::{BufferId, SubscriberId, Subscribers};
use switchboard_wire::zmtp::patterns::Subscriptions;

/// The sets of an engine.
#[derive(Debug)]
pub(super) struct Filters {
    trie: Subscriptions<u32>,
    /// The sets; true if the members may read messages of one frame.
    sets: SharedSets<Key, bool>,
}

/// Prefixes of a shared set; true if its members may read messages of one frame.
type Key = (bool, Box<[Bytes]>);

impl Filters {
    pub(super) fn new(subscriptions_max: u32) -> Filters {
        Filters { trie: Subscriptions::new(subscriptions_max), sets: SharedSets::default() }
    }

    /// Appends the buffers of the sets with a prefix of `first_frame`.
    pub(super) fn matching(&self, first_frame: &[u8], found: &mut Vec<u32>) {
        self.trie.matching(first_frame, found);
    }

    /// Returns the buffer of a set for an entry; `None` for one without the name of a topic if the members may not read
    /// it.
    pub(super) fn buffer(&self, filter: u32, is_named: bool) -> Option<BufferId> {
        let set = self.sets.get(filter)?;
        (is_named || set.content).then_some(set.buffer)
    }

    fn buffer_of(&self, filter: u32) -> Option<BufferId> {
        self.buffer(filter, true)
    }

    /// A subscriber has a prefix more, which is among its prefixes already.
    pub(super) fn added(
        &mut self,
        id: SubscriberId,
        prefix: &Bytes,
        prefixes: &mut Prefixes,
        subscribers: &mut Subscribers,
    ) {
        match prefixes.filter {
            Some(own) if self.is_own(own) => self.insert(prefix, own),
            _ => self.follow(id, prefixes, subscribers),
        }
    }

    /// A subscriber has a prefix less, which is not among its prefixes any more.
    pub(super) fn removed(
        &mut self,
        id: SubscriberId,
        prefix: &Bytes,
        prefixes: &mut Prefixes,
        subscribers: &mut Subscribers,
    ) {
        match prefixes.filter {
            Some(own) if self.is_own(own) && !prefixes.all.is_empty() => {
                self.trie.cancel(prefix, own);
            }
            _ => self.follow(id, prefixes, subscribers),
        }
    }

    /// Moves a subscriber to the set of its prefixes.
    fn follow(&mut self, id: SubscriberId, prefixes: &mut Prefixes, subscribers: &mut Subscribers) {
        let next = if prefixes.all.is_empty() { None } else { Some(self.enter(prefixes, subscribers)) };
        let before = std::mem::replace(&mut prefixes.filter, next);
        if let Some(before) = before {
            if let Some(buffer) = self.buffer_of(before) {
                // What was dropped before was reported as lagged, or is when the rest is written.
                subscribers.leave_buffer(id, buffer);
            }
            self.leave(before, subscribers);
        }
        if let Some(buffer) = next.and_then(|next| self.buffer_of(next)) {
            subscribers.attach(id, buffer);
        }
    }

    /// Adds a member to the set of these prefixes.
    fn enter(&mut self, prefixes: &Prefixes, subscribers: &mut Subscribers) -> u32 {
        let reads_single_frames = prefixes.reads_single_frames;
        let key: Option<Key> = (prefixes.all.len() <= SHARED_MAX)
            .then(|| (reads_single_frames, prefixes.all.keys().cloned().collect()));
        match self.sets.join(key, || reads_single_frames, subscribers) {
            Joined::Known(number) => number,
            Joined::Created(number) => {
                prefixes.all.keys().for_each(|prefix| self.insert(prefix, number));
                number
            }
        }
    }

    fn insert(&mut self, prefix: &Bytes, filter: u32) {
        // A peer has no more prefixes than a set may have: its own limit is the same.
        let _ = self.trie.subscribe(prefix, filter);
    }

    /// Removes a member of a set. The last one closes it.
    pub(super) fn leave(&mut self, number: u32, subscribers: &mut Subscribers) {
        if self.sets.leave(number, subscribers).is_some() {
            self.trie.remove(number);
        }
    }

    fn is_own(&self, filter: u32) -> bool {
        self.sets.get(filter).is_some_and(|set| !set.is_shared())
    }
}
