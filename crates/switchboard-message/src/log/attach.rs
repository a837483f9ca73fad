//! Begin and end of subscriptions in a shard, and durable cursors without a member.

use super::{
    Gap, GapReason, Position, SHARDS,
    append::missing_topic,
    durable::ParkedCursor,
    group::Group,
    member::{Deferred, Member},
    set::{AckOptions, Cursor, CursorSet, GroupKey, SetId, Source},
    shard::{Shard, Shared},
};
use std::{cmp::Reverse, collections::HashMap, sync::Arc};
use switchboard_core::Result;
use switchboard_wire::Status;

/// First entry of a subscription.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Start {
    /// The one after this position.
    After(Position),
    /// The one after these sequence numbers of the shards.
    Behind([u64; SHARDS]),
    /// The next one that is published.
    #[default]
    Head,
    /// This number of kept entries of each topic.
    Last(usize),
    /// The first one that was published at this time or later, in nanoseconds of the bus's clock.
    Since(u64),
}

/// Parameters of a subscription in a shard.
#[derive(Clone, Debug)]
pub(crate) struct Attach {
    pub(crate) source: Source,
    pub(crate) start: Start,
    pub(crate) group: Option<GroupKey>,
    pub(crate) ack: Option<AckOptions>,
}

/// A subscription in a shard.
#[derive(Debug)]
pub(super) struct AttachedSet {
    pub(super) id: SetId,
    /// The first member of its group, or not in a group.
    pub(super) is_new: bool,
    /// Continues a durable cursor that had no member.
    pub(super) is_resumed: bool,
    /// Entries that are missing at its start; a group has them as well.
    pub(super) gaps: Vec<Gap>,
    /// Position before the first entry, of a subscription to one topic.
    pub(super) position: Option<Position>,
    /// Sequence number in the shard before the first entry.
    pub(super) sequence: u64,
}

impl Shard {
    /// Adds a subscription, in one step: kept entries from its start and all later ones are delivered.
    pub(super) fn attach(
        &mut self,
        attach: &Attach,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<AttachedSet> {
        if let Some(key) = &attach.group
            && let Some(index) = self.groups.get(key)
        {
            let id = self.set_id(*index);
            self.join(id, attach)?;
            return Ok(self.attached(id, false, false, Vec::new()));
        }
        // First: the limit of topics may refuse it.
        let single = match &attach.source {
            Source::Topic(topic) => Some(self.topic_or_new(topic.into(), now, shared, deferred)?),
            Source::Pattern(_) => None,
        };
        if let Some(key) = attach.group.as_ref().filter(|key| key.is_durable) {
            self.count_durable(key, now, shared)?;
        }
        let group = attach.group.clone().map(|key| Box::new(Group::new(key, attach.ack.clone())));
        let id = self.insert_set(CursorSet::new(attach.source.clone(), group));
        let mut parked = None;
        if let Some(key) = &attach.group {
            self.groups.insert(key.clone(), id.index);
            parked = self.parked.remove(key);
        }
        let topics = match (&attach.source, single) {
            (Source::Pattern(pattern), _) => {
                self.patterns.insert(pattern, id.index);
                self.matching(pattern)
            }
            (Source::Topic(_), single) => single.into_iter().collect(),
        };
        let mut gaps = Vec::new();
        let is_resumed = parked.is_some();
        let mut parked = parked.map(|parked| {
            gaps.extend(parked.gaps);
            let by_topic = |cursor: ParkedCursor| (cursor.topic.clone(), cursor);
            parked.cursors.into_iter().map(by_topic).collect::<HashMap<_, _>>()
        });
        for index in topics {
            self.trim(index, now, deferred);
            match &mut parked {
                Some(parked) => {
                    let cursor = self.topic(index).and_then(|topic| parked.remove(&topic.topic));
                    self.resume(id, index, cursor, now, &mut gaps);
                }
                None => {
                    if let Some((next, gap)) = self.start(index, attach.start) {
                        self.report(index, gap, &mut gaps);
                        self.attach_cursor(id.index, index, next);
                    }
                }
            }
        }
        if let Some(group) = self.set_mut(id).and_then(|set| set.group.as_mut()) {
            // Kept by the group: a member that leaves before it has read them does not take them along.
            group.add_gaps(&gaps);
        }
        Ok(self.attached(id, true, is_resumed, gaps))
    }

    /// Describes a set with the place of its first entry.
    fn attached(&mut self, id: SetId, is_new: bool, is_resumed: bool, gaps: Vec<Gap>) -> AttachedSet {
        let newest = self.sequence;
        let (mut position, mut sequence) = (None, newest);
        if let Some((set, topics, _)) = self.set_and_topics(id) {
            sequence = set.ready.peek().map_or(newest, |Reverse((sequence, _))| sequence.saturating_sub(1));
            if let (Source::Topic(_), [cursor]) = (&set.source, set.cursors()) {
                let topic = topics.get(cursor.topic as usize).and_then(Option::as_ref);
                let offset = cursor.next.saturating_sub(1);
                position = topic.map(|topic| Position { epoch: topic.epoch, offset });
            }
        }
        AttachedSet { id, is_new, is_resumed, gaps, position, sequence }
    }

    fn join(&mut self, id: SetId, attach: &Attach) -> Result<()> {
        let Some(set) = self.set_mut(id) else { return Err(missing_topic()) };
        if let Some(group) = set.group.as_ref().filter(|group| group.ack != attach.ack) {
            let name = &group.key.name;
            let text = format!(
                "group \"{name}\" has other options for acknowledgements; all of its members use the same options"
            );
            return Err(Status::failed_precondition(text));
        }
        set.members += 1;
        Ok(())
    }

    fn matching(&self, pattern: &super::Pattern) -> Vec<u32> {
        let topics = (0..).zip(&self.topics);
        let matching = topics
            .filter(|(_, topic)| topic.as_ref().is_some_and(|topic| pattern.matches(topic.topic.name())));
        matching.map(|(index, _)| index).collect()
    }

    /// Returns the first offset of a subscription, and the entries that are missing before it.
    pub(super) fn start(&self, index: u32, start: Start) -> Option<(u64, Option<Gap>)> {
        let topic = self.topic(index)?;
        let (ring, head) = (&topic.ring, topic.ring.next_offset());
        let gap = |reason, range: std::ops::Range<u64>| {
            let is_exact = !ring.is_keyed() && reason != GapReason::Epoch;
            let missing = is_exact.then(|| range.end.saturating_sub(range.start));
            Gap { topic: topic.topic.clone(), epoch: topic.epoch, range, missing, reason }
        };
        Some(match start {
            Start::Head => (head, None),
            Start::Last(entries) => (ring.last(entries), None),
            Start::Behind(sequences) => {
                let sequence = sequences.get(self.index as usize).copied().unwrap_or_default();
                // The first of the missing entries is not known.
                let is_lost = ring.has_lost_after(sequence);
                let lost = is_lost.then(|| Gap { missing: None, ..gap(GapReason::Expired, 1..ring.floor()) });
                (ring.after_sequence(sequence), lost)
            }
            Start::Since(time) => {
                let next = ring.since(time);
                // The first of the missing entries is not known.
                let is_lost = ring.has_lost_since(time);
                let lost = is_lost.then(|| Gap { missing: None, ..gap(GapReason::Expired, 1..ring.floor()) });
                (next, lost)
            }
            Start::After(position) if position.epoch != topic.epoch => {
                (ring.floor(), Some(gap(GapReason::Epoch, 1..ring.floor())))
            }
            Start::After(position) if position.offset >= head => {
                (head, Some(gap(GapReason::Lost, head..position.offset.saturating_add(1))))
            }
            Start::After(position) => {
                let next = position.offset + 1;
                let lost = next < ring.floor();
                (next.max(ring.floor()), lost.then(|| gap(GapReason::Expired, next..ring.floor())))
            }
        })
    }

    pub(super) fn report(&mut self, index: u32, gap: Option<Gap>, gaps: &mut Vec<Gap>) {
        if let Some(gap) = gap {
            self.count_missing(index, gap.reason, gap.missing.unwrap_or(0));
            gaps.push(gap);
        }
    }

    /// Puts a cursor of a set before this offset of a topic.
    pub(super) fn attach_cursor(&mut self, set_index: u32, index: u32, next: u64) {
        let id = self.set_id(set_index);
        let Some((set, topics, _)) = self.set_and_topics(id) else { return };
        let Some(Some(topic)) = topics.get_mut(index as usize) else { return };
        topic.ring.attach(next);
        topic.cursors += 1;
        if set.group.is_some() {
            topic.groups.push(set_index);
        }
        match topic.ring.first_from(next) {
            Some(slot) => set.ready.push(Reverse((slot.sequence, index))),
            None => topic.idle.push(set_index),
        }
        set.insert(Cursor { topic: index, next });
    }

    /// Removes a member; with the last one, the cursors.
    pub(super) fn detach(
        &mut self,
        id: SetId,
        member: &Arc<Member>,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) {
        let Some(set) = self.set_mut(id) else { return };
        set.stop_waiting(member);
        set.members = set.members.saturating_sub(1);
        let is_last = set.members == 0;
        let held = set.group.as_ref().map_or_else(Vec::new, |group| group.held_by(member));
        for sequence in held {
            self.release(id, sequence, deferred);
        }
        let Some(set) = self.set_mut(id) else { return };
        if !is_last {
            if set.has_entries() {
                deferred.members.extend(set.next_waiting());
            }
            return;
        }
        self.park(id, now);
        let Some(set) = self.remove_set(id) else { return };
        if let Some(group) = &set.group {
            self.groups.remove(&group.key);
        }
        if let Source::Pattern(pattern) = &set.source {
            self.patterns.remove(pattern, id.index);
        }
        for cursor in set.cursors() {
            if let Some(Some(topic)) = self.topics.get_mut(cursor.topic as usize) {
                topic.ring.advance(cursor.next, u64::MAX);
                topic.cursors = topic.cursors.saturating_sub(1);
                for sets in [&mut topic.idle, &mut topic.groups] {
                    if let Some(at) = sets.iter().position(|set| *set == id.index) {
                        sets.swap_remove(at);
                    }
                }
                deferred.rooms.extend(topic.waiting_room());
            }
            self.trim(cursor.topic, now, deferred);
            self.remove_after_use(cursor.topic, shared);
        }
        deferred.ended.push(set);
    }
}
