//! Group cursors: entries that are delivered and not acknowledged, and those to be delivered again.

use super::{
    Entry, Gap,
    member::Member,
    set::{AckOptions, GroupKey},
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};
use switchboard_core::clock;

/// State of a group cursor.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) key: GroupKey,
    pub(super) ack: Option<AckOptions>,
    /// Entries that are missing at the start of a durable cursor, until a member receives them.
    pub(super) gaps: VecDeque<Gap>,
    /// Delivered entries that are not acknowledged, by sequence number.
    pub(super) unacknowledged: BySequence<Unacknowledged>,
    /// Entries to be delivered again, by sequence number.
    pub(super) redeliveries: BTreeMap<u64, GroupEntry>,
    /// Deadlines with their sequence numbers, in order, because all have the period of the group. Entries that were
    /// acknowledged stay in it until their deadline, or until they are the majority.
    deadlines: VecDeque<(u64, u64)>,
}

/// An entry outside of the log, held by its group.
#[derive(Clone, Debug)]
pub(super) struct GroupEntry {
    /// Index of the topic in the shard.
    pub(super) topic: u32,
    pub(super) offset: u64,
    pub(super) entry: Entry,
    /// Deliveries until now.
    pub(super) attempts: u32,
}

#[derive(Debug)]
pub(super) struct Unacknowledged {
    pub(super) entry: GroupEntry,
    pub(super) member: Arc<Member>,
    deadline: u64,
}

pub(super) type BySequence<T> = HashMap<u64, T, BuildHasherDefault<SequenceHasher>>;

/// Hash of sequence numbers. The log assigns them, so that no peer can choose those of one bucket.
#[derive(Debug, Default)]
pub(super) struct SequenceHasher(u64);

impl Hasher for SequenceHasher {
    fn write_u64(&mut self, sequence: u64) {
        self.0 = clock::mix(sequence);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| clock::mix(hash ^ u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Deadlines of acknowledged entries at least this many are removed when they are the majority.
const DEADLINES_MIN: usize = 64;

impl Group {
    pub(super) fn new(key: GroupKey, ack: Option<AckOptions>) -> Group {
        Group {
            key,
            ack,
            gaps: VecDeque::new(),
            unacknowledged: BySequence::default(),
            redeliveries: BTreeMap::new(),
            deadlines: VecDeque::new(),
        }
    }

    /// Adds gaps; each extends the last one of its topic, if it follows directly. A client that connects again and
    /// again without reading does not make them more.
    pub(super) fn add_gaps(&mut self, gaps: &[Gap]) {
        let mut last = HashMap::new();
        for gap in gaps {
            let known = last.get(&gap.topic).and_then(|index: &usize| self.gaps.get_mut(*index));
            if !known.is_some_and(|known| known.extend(gap)) {
                last.insert(&gap.topic, self.gaps.len());
                self.gaps.push_back(gap.clone());
            }
        }
    }

    /// Notes the delivery of an entry that has to be acknowledged.
    pub(super) fn deliver(&mut self, sequence: u64, entry: GroupEntry, member: &Arc<Member>, now: u64) {
        let Some(ack) = &self.ack else { return };
        let deadline = now.saturating_add(ack.wait.as_nanos().try_into().unwrap_or(u64::MAX));
        self.deadlines.push_back((deadline, sequence));
        member.delivered();
        self.unacknowledged.insert(sequence, Unacknowledged { entry, member: member.clone(), deadline });
        if self.deadlines.len() >= DEADLINES_MIN && self.deadlines.len() > 2 * self.unacknowledged.len() {
            let Group { deadlines, unacknowledged, .. } = self;
            deadlines.retain(|(deadline, sequence)| is_current(unacknowledged, *deadline, *sequence));
        }
    }

    /// Removes an entry that was acknowledged; returns it with the member that held it, or without one if it was to be
    /// delivered again.
    pub(super) fn acknowledge(&mut self, sequence: u64) -> Option<(Entry, Option<Arc<Member>>)> {
        if let Some(found) = self.unacknowledged.remove(&sequence) {
            found.member.released();
            return Some((found.entry.entry, Some(found.member)));
        }
        self.redeliveries.remove(&sequence).map(|found| (found.entry, None))
    }

    /// Returns the sequence numbers of the entries that this member holds.
    pub(super) fn held_by(&self, member: &Arc<Member>) -> Vec<u64> {
        let held = self.unacknowledged.iter().filter(|(_, held)| Arc::ptr_eq(&held.member, member));
        let mut held: Vec<u64> = held.map(|(sequence, _)| *sequence).collect();
        held.sort_unstable();
        held
    }

    /// Returns the next entry whose period for the acknowledgement has passed.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<u64> {
        let (_, sequence) = self.next_deadline().filter(|(deadline, _)| *deadline <= now)?;
        self.deadlines.pop_front();
        Some(sequence)
    }

    /// Returns the earliest deadline of an unacknowledged entry, with its sequence number.
    pub(super) fn next_deadline(&mut self) -> Option<(u64, u64)> {
        while let Some((deadline, sequence)) = self.deadlines.front().copied() {
            if is_current(&self.unacknowledged, deadline, sequence) {
                return Some((deadline, sequence));
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Moves an unacknowledged entry to the redeliveries; returns it instead if it was delivered as often as it may.
    pub(super) fn release(&mut self, sequence: u64) -> Option<(GroupEntry, Arc<Member>)> {
        let Unacknowledged { entry, member, .. } = self.unacknowledged.remove(&sequence)?;
        member.released();
        if self.ack.as_ref().is_some_and(|ack| entry.attempts >= ack.attempts_max) {
            return Some((entry, member));
        }
        self.redeliveries.insert(sequence, entry);
        None
    }
}

fn is_current(unacknowledged: &BySequence<Unacknowledged>, deadline: u64, sequence: u64) -> bool {
    unacknowledged.get(&sequence).is_some_and(|held| held.deadline == deadline)
}
