//! Logs that follow those of an engine: their entries have the engine's positions.

use super::{
    Entry, Log, Position, Topic,
    entry::Missing,
    member::Deferred,
    set::CursorSet,
    shard::{Shard, Shared},
    shard_of,
};
use std::cmp::Reverse;
use switchboard_core::Result;

/// Event of an engine's log.
#[derive(Debug)]
pub(crate) enum Mirrored {
    /// An entry was appended.
    Entry(Position, Entry),
    /// Entries are missing; the position is that of the last one.
    Missing(Position, Missing),
}

impl Log {
    /// Begins to follow the log of an engine behind this position. Existing subscriptions continue there, and do not
    /// receive what the log contained.
    pub(crate) fn mirror_from(&self, topic: &Topic, head: Position, now: u64) -> Result<()> {
        self.mirror_if(topic, head, now, |_| true)
    }

    /// Begins to follow the log of an engine behind this position, if the topic is a new one.
    pub(crate) fn mirror_again(&self, topic: &Topic, known: Position, now: u64) -> Result<()> {
        self.mirror_if(topic, known, now, |epoch| epoch != known.epoch)
    }

    fn mirror_if(
        &self,
        topic: &Topic,
        head: Position,
        now: u64,
        applies: impl FnOnce(u64) -> bool,
    ) -> Result<()> {
        self.with(shard_of(topic.hash()), now, |shard, deferred| {
            let index = shard.topic_or_new(topic.into(), now, &self.shared, deferred)?;
            if !shard.topic(index).is_some_and(|log| applies(log.epoch)) {
                return Ok(());
            }
            let next = Position { offset: head.offset.saturating_add(1), ..head };
            shard.reset_topic(index, next, deferred);
            Ok(())
        })
    }

    /// Appends an event of an engine's log. An epoch that differs removes the entries of the log before: they are part
    /// of the gap that its first event reports. An entry for which the shard has no space becomes a missing one.
    pub(crate) fn mirror(&self, topic: &Topic, event: Mirrored, now: u64) {
        self.with(shard_of(topic.hash()), now, |shard, deferred| {
            shard.mirror(topic, event, now, &self.shared, deferred);
        });
    }
}

impl Shard {
    fn mirror(&mut self, topic: &Topic, event: Mirrored, now: u64, shared: &Shared, deferred: &mut Deferred) {
        // Without a topic there is no subscription: it was removed with the last one.
        let Some(index) = self.find_topic(topic.into()) else { return };
        let (position, entry) = match event {
            Mirrored::Missing(position, missing) => (position, Entry::missing(missing)),
            Mirrored::Entry(position, entry) => {
                let bytes = entry.charged_bytes();
                match self.reserve(bytes, now, shared, deferred) {
                    Ok(()) => (position, entry),
                    Err(_) => (position, Entry::missing(Missing::lagged(position.offset))),
                }
            }
        };
        if self.topic(index).is_some_and(|log| log.epoch != position.epoch) {
            self.reset_topic(index, position, deferred);
        }
        let Some(Some(log)) = self.topics.get_mut(index as usize) else { return };
        if position.offset < log.ring.next_offset() {
            return;
        }
        let before = log.bytes();
        log.ring.advance_to(position.offset);
        self.sequence += 1;
        log.ring.append(entry, self.sequence, now, log.cursors, &mut deferred.removed);
        log.published += 1;
        for set in log.idle.drain(..) {
            let Some(slot) = self.sets.get_mut(set as usize) else { continue };
            let Some(set) = &mut slot.set else { continue };
            set.ready.push(Reverse((self.sequence, index)));
            deferred.members.extend(CursorSet::next_waiting(set));
        }
        log.ring.trim(now, &mut deferred.removed);
        self.bytes = self.bytes + log.bytes() - before;
    }

    /// Removes the entries of a topic, and moves its cursors to this position of a log. Those in the heap of their set
    /// find the next entry there as well.
    fn reset_topic(&mut self, index: u32, next: Position, deferred: &mut Deferred) {
        let Some(Some(log)) = self.topics.get_mut(index as usize) else { return };
        let before = log.bytes();
        log.epoch = next.epoch;
        log.ring.reset(next.offset, &mut deferred.removed);
        self.bytes = self.bytes + log.bytes() - before;
        let sets = self.sets.iter_mut().filter_map(|slot| slot.set.as_mut());
        sets.filter_map(|set| set.cursor_mut(index)).for_each(|cursor| cursor.next = next.offset);
    }
}

impl Missing {
    /// Describes one entry that did not fit.
    fn lagged(offset: u64) -> Missing {
        Missing {
            range: offset..offset.saturating_add(1),
            entries: Some(1),
            reason: super::GapReason::Lagged,
        }
    }
}
