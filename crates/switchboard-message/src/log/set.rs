//! Cursor sets: the cursors of one subscription, or of one group, in one shard.

use super::{Pattern, Topic, group::Group, member::Member};
use smallvec::SmallVec;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Topics of a subscription.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Source {
    Pattern(Pattern),
    Topic(Topic),
}

/// Name of a group and its source: groups of other sources are other groups.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct GroupKey {
    pub(crate) name: Arc<str>,
    pub(crate) source: Source,
    /// The group is kept while it has no member.
    pub(crate) is_durable: bool,
}

/// Acknowledgements of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AckOptions {
    /// Period after which an unacknowledged entry is delivered again.
    pub(crate) wait: Duration,
    /// Deliveries of one entry.
    pub(crate) attempts_max: u32,
    /// Topic for entries that were delivered as often.
    pub(crate) dead_letters: Option<Topic>,
}

/// Index of a set in its shard; the generation distinguishes it from later sets with the index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SetId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Cursors of the topics that match one source.
#[derive(Debug)]
pub(super) struct CursorSet {
    pub(super) source: Source,
    /// `None` for the own cursors of a subscription.
    pub(super) group: Option<Box<Group>>,
    /// By topic.
    cursors: SmallVec<[Cursor; 1]>,
    /// Topics with entries behind the cursor, by the sequence number of the next entry. A cursor is either here or in
    /// the list of idle sets of its topic.
    pub(super) ready: BinaryHeap<Reverse<(u64, u32)>>,
    /// Members that found no entry, in the order in which they receive the next ones.
    waiting: VecDeque<Arc<Member>>,
    pub(super) members: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    /// Index of the topic in the shard.
    pub(super) topic: u32,
    /// Offset of the next entry.
    pub(super) next: u64,
}

impl CursorSet {
    pub(super) fn new(source: Source, group: Option<Box<Group>>) -> CursorSet {
        CursorSet {
            source,
            group,
            cursors: SmallVec::new(),
            ready: BinaryHeap::new(),
            waiting: VecDeque::new(),
            members: 1,
        }
    }

    pub(super) fn cursors(&self) -> &[Cursor] {
        &self.cursors
    }

    pub(super) fn insert(&mut self, cursor: Cursor) {
        let index = self.cursors.partition_point(|known| known.topic < cursor.topic);
        self.cursors.insert(index, cursor);
    }

    pub(super) fn cursor_mut(&mut self, topic: u32) -> Option<&mut Cursor> {
        // A subscription to one topic has one cursor.
        let index = match self.cursors.len() {
            1 => 0,
            _ => self.cursors.partition_point(|known| known.topic < topic),
        };
        self.cursors.get_mut(index).filter(|cursor| cursor.topic == topic)
    }

    /// Removes the cursor of a topic.
    pub(super) fn remove(&mut self, topic: u32) {
        let index = self.cursors.partition_point(|known| known.topic < topic);
        if self.cursors.get(index).is_some_and(|cursor| cursor.topic == topic) {
            self.cursors.remove(index);
        }
    }

    /// Returns whether a member would receive something.
    pub(super) fn has_entries(&self) -> bool {
        let has_entries = |group: &Group| !group.redeliveries.is_empty() || !group.gaps.is_empty();
        !self.ready.is_empty() || self.group.as_deref().is_some_and(has_entries)
    }

    /// Returns whether it is kept while it has no member.
    pub(super) fn is_durable(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.key.is_durable)
    }

    /// Adds a member that found no entry.
    pub(super) fn wait(&mut self, member: &Arc<Member>) {
        if !self.waiting.iter().any(|known| Arc::ptr_eq(known, member)) {
            self.waiting.push_back(member.clone());
        }
    }

    /// Returns the member that receives the next entry.
    pub(super) fn next_waiting(&mut self) -> Option<Arc<Member>> {
        self.waiting.pop_front()
    }

    pub(super) fn stop_waiting(&mut self, member: &Arc<Member>) {
        self.waiting.retain(|known| !Arc::ptr_eq(known, member));
    }
}
