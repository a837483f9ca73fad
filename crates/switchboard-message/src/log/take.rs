//! Delivery of entries to subscriptions, acknowledgements, and redelivery.

use super::{
    Gap, GapReason, Position,
    entry::Missing,
    group::GroupEntry,
    member::{Deferred, Member, Taken, TakenEntry, Token},
    options::SlowReader,
    set::{CursorSet, SetId},
    shard::Shard,
    topic_log::TopicLog,
};
use std::{cmp::Reverse, collections::VecDeque, sync::Arc};
use switchboard_wire::Status;

/// State of a subscription in a shard after a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AfterTake {
    /// Entries may be left.
    pub(crate) has_more: bool,
    /// Charged bytes of the entries that were taken.
    pub(crate) bytes: usize,
    /// Earliest time at which an entry is delivered again, in nanoseconds of the bus's clock.
    pub(crate) deadline: Option<u64>,
}

/// Size of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSize {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Shard {
    /// Appends the next entries of a set to `batch`, in the order of the shard. Without any, the member waits.
    pub(super) fn take(
        &mut self,
        id: SetId,
        member: &Arc<Member>,
        size: BatchSize,
        now: u64,
        batch: &mut VecDeque<Taken>,
        deferred: &mut Deferred,
    ) -> AfterTake {
        self.release_due(id, now, deferred);
        let Some((set, topics, held_bytes)) = self.set_and_topics(id) else { return AfterTake::default() };
        let mut reader = Reader { member, id, now, size, taken: 0, bytes: 0, batch };
        while !reader.is_full() {
            if let Some(gap) = set.group.as_mut().and_then(|group| group.gaps.pop_front()) {
                reader.taken += 1;
                reader.batch.push_back(Taken::Gap(gap));
                continue;
            }
            if let Some(group) = &mut set.group
                && let Some((sequence, entry)) = group.redeliveries.pop_first()
            {
                reader.redeliver(set, topics, sequence, entry, deferred);
                continue;
            }
            let Some(Reverse((_, index))) = set.ready.pop() else { break };
            let Some(Some(topic)) = topics.get_mut(index as usize) else { continue };
            let before = topic.bytes();
            let is_open = reader.read(set, topic, index);
            topic.ring.trim(now, &mut deferred.removed);
            *held_bytes = *held_bytes + topic.bytes() - before;
            deferred.rooms.extend(topic.waiting_room());
            if !is_open {
                return AfterTake::default();
            }
        }
        let (has_more, bytes) = (set.has_entries(), reader.bytes);
        let has_moved = reader.taken > 0 && set.is_durable();
        if !has_more && reader.taken == 0 {
            set.wait(member);
        } else if has_more && set.group.is_some() {
            deferred.members.extend(set.next_waiting());
        }
        let deadline =
            set.group.as_mut().and_then(|group| group.next_deadline()).map(|(deadline, _)| deadline);
        let has_more = has_more || reader.taken > 0;
        self.cursors_changed |= has_moved;
        AfterTake { has_more, bytes, deadline }
    }

    /// Ends the wait of a member; wakes another member of the group, if it has entries.
    pub(super) fn pass(&mut self, id: SetId, member: &Arc<Member>, deferred: &mut Deferred) {
        let Some(set) = self.set_mut(id) else { return };
        set.stop_waiting(member);
        if set.has_entries() {
            deferred.members.extend(set.next_waiting());
        }
    }

    /// Ends the delivery of an entry; returns whether it was unacknowledged.
    pub(super) fn acknowledge(&mut self, token: Token, deferred: &mut Deferred) -> bool {
        self.cursors_changed |= self.set_mut(token.set).is_some_and(|set| set.is_durable());
        let group = self.set_mut(token.set).and_then(|set| set.group.as_mut());
        match group.and_then(|group| group.acknowledge(token.sequence)) {
            None => false,
            Some((entry, holder)) => {
                deferred.removed.push(entry);
                deferred.relieved.extend(holder);
                true
            }
        }
    }

    /// Makes an unacknowledged entry available at once; returns whether this delivery was the current one.
    pub(super) fn reject(&mut self, token: Token, deferred: &mut Deferred) -> bool {
        let group = self.set_mut(token.set).and_then(|set| set.group.as_ref());
        let held = group.and_then(|group| group.unacknowledged.get(&token.sequence));
        if held.is_none_or(|held| held.entry.attempts != token.attempt) {
            return false;
        }
        self.release(token.set, token.sequence, deferred)
    }

    /// Moves an unacknowledged entry to the redeliveries, or to the dead letters; returns false for other entries.
    pub(super) fn release(&mut self, id: SetId, sequence: u64, deferred: &mut Deferred) -> bool {
        self.cursors_changed |= self.set_mut(id).is_some_and(|set| set.is_durable());
        let Some(set) = self.set_mut(id) else { return false };
        let Some(group) = &mut set.group else { return false };
        let Some(holder) = group.unacknowledged.get(&sequence).map(|held| held.member.clone()) else {
            return false;
        };
        deferred.relieved.push(holder);
        match group.release(sequence) {
            Some((entry, _)) => self.dead_letter(id, entry, deferred),
            None => deferred.members.extend(set.next_waiting()),
        }
        true
    }

    /// Releases the entries whose period for the acknowledgement has passed.
    fn release_due(&mut self, id: SetId, now: u64, deferred: &mut Deferred) {
        loop {
            let group = self.set_mut(id).and_then(|set| set.group.as_mut());
            let Some(sequence) = group.and_then(|group| group.pop_due(now)) else { return };
            self.release(id, sequence, deferred);
        }
    }
}

/// Reads entries for one batch.
struct Reader<'a> {
    member: &'a Arc<Member>,
    id: SetId,
    now: u64,
    size: BatchSize,
    taken: usize,
    bytes: usize,
    batch: &'a mut VecDeque<Taken>,
}

impl Reader<'_> {
    fn is_full(&self) -> bool {
        self.taken >= self.size.entries || self.bytes >= self.size.bytes
    }

    /// Reads from one topic until the batch is full, another topic has an older entry, or all is read. Returns false if
    /// the subscription was too slow and ends.
    fn read(&mut self, set: &mut CursorSet, topic: &mut TopicLog, index: u32) -> bool {
        let older = set.ready.peek().map_or(u64::MAX, |Reverse((sequence, _))| *sequence);
        let (is_group, acknowledges) =
            set.group.as_ref().map_or((false, false), |group| (true, group.ack.is_some()));
        let Some(cursor) = set.cursor_mut(index) else { return true };
        let mut next = cursor.next;
        if next < topic.ring.floor() {
            self.push_gap(topic, next..topic.ring.floor(), GapReason::Lagged);
            next = topic.ring.floor();
            if topic.options.slow_reader == SlowReader::Close && !is_group {
                cursor.next = next;
                self.batch.push_back(Taken::Closed(too_slow(topic)));
                return false;
            }
        }
        let mut deliveries = Vec::new();
        let following = loop {
            let Some(slot) = topic.ring.first_from(next) else { break None };
            if self.is_full() || slot.sequence > older {
                break Some(slot.sequence);
            }
            let (offset, sequence) = (slot.offset, slot.sequence);
            let Some(entry) = slot.entry.clone() else { break None };
            if offset > next && topic.options.is_durable() && !topic.ring.is_keyed() {
                // Entries that a damaged file has lost.
                self.push_gap(topic, next..offset, GapReason::Expired);
            }
            topic.ring.advance(next, offset + 1);
            next = offset + 1;
            if let Some(missing) = entry.as_missing() {
                self.push_missing(topic, missing);
                continue;
            }
            if entry.is_expired(self.now) {
                self.push_gap(topic, offset..offset + 1, GapReason::Expired);
                continue;
            }
            self.taken += 1;
            self.bytes += entry.charged_bytes();
            let group = acknowledges.then_some(self.id);
            if acknowledges {
                let entry = GroupEntry { topic: index, offset, entry: entry.clone(), attempts: 1 };
                deliveries.push((sequence, entry));
            }
            let position = Position { epoch: topic.epoch, offset };
            let topic = topic.topic.clone();
            let taken = TakenEntry { topic, position, entry, sequence, attempt: 1, group };
            self.batch.push_back(Taken::Entry(taken));
        };
        cursor.next = if following.is_some() { next } else { topic.ring.next_offset() };
        match following {
            Some(sequence) => set.ready.push(Reverse((sequence, index))),
            None => topic.idle.push(self.id.index),
        }
        if let Some(group) = &mut set.group {
            for (sequence, entry) in deliveries {
                group.deliver(sequence, entry, self.member, self.now);
            }
        }
        true
    }

    fn redeliver(
        &mut self,
        set: &mut CursorSet,
        topics: &mut [Option<TopicLog>],
        sequence: u64,
        mut entry: GroupEntry,
        deferred: &mut Deferred,
    ) {
        let Some(Some(topic)) = topics.get_mut(entry.topic as usize) else {
            return deferred.removed.push(entry.entry);
        };
        if entry.entry.is_expired(self.now) {
            deferred.removed.push(entry.entry);
            self.push_gap(topic, entry.offset..entry.offset + 1, GapReason::Expired);
            return;
        }
        entry.attempts = entry.attempts.saturating_add(1);
        self.taken += 1;
        self.bytes += entry.entry.charged_bytes();
        self.batch.push_back(Taken::Entry(TakenEntry {
            topic: topic.topic.clone(),
            position: Position { epoch: topic.epoch, offset: entry.offset },
            entry: entry.entry.clone(),
            sequence,
            attempt: entry.attempts,
            group: Some(self.id),
        }));
        if let Some(group) = &mut set.group {
            group.deliver(sequence, entry, self.member, self.now);
        }
    }

    /// Adds a gap, or extends the one before it.
    fn push_gap(&mut self, topic: &mut TopicLog, range: std::ops::Range<u64>, reason: GapReason) {
        let entries =
            (!topic.ring.is_keyed() || range.end - range.start == 1).then(|| range.end - range.start);
        self.push_missing(topic, &Missing { range, entries, reason });
    }

    fn push_missing(&mut self, topic: &mut TopicLog, missing: &Missing) {
        let Missing { range, entries: missing, reason } = missing.clone();
        topic.count_missing(reason, missing.unwrap_or(0));
        let gap = Gap { topic: topic.topic.clone(), epoch: topic.epoch, range, missing, reason };
        if let Some(Taken::Gap(last)) = self.batch.back_mut()
            && last.extend(&gap)
        {
            return;
        }
        // A batch of gaps alone is bounded as well.
        self.taken += 1;
        self.batch.push_back(Taken::Gap(gap));
    }
}

fn too_slow(topic: &TopicLog) -> Status {
    let text = format!(
        "the subscription to topic \"{}\" was closed: it was slower than the topic's backlog allows; read faster, or \
         raise backlog_entries_max",
        topic.topic
    );
    Status::resource_exhausted(text)
}
