//! Appends to the logs of a shard, and the checks before them.

use super::{
    Entry, Position,
    member::Deferred,
    names::NameRef,
    options::SlowReader,
    set::CursorSet,
    shard::{SWEEP_INTERVAL, SetSlot, Shard, Shared},
    topic_log::{TopicLog, id_bytes},
};
use smallvec::SmallVec;
use std::{cmp::Reverse, sync::Arc, time::Duration};
use switchboard_core::Result;
use switchboard_wire::{Retry, Status};
use tokio::sync::Notify;

/// Outcome of an append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    /// Position of the last entry.
    pub(crate) position: Position,
    /// Cursors that receive it.
    pub(crate) cursors: u32,
}

/// Reason why an append failed.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// The topic is durable: entries are [submitted](super::Log::submit) to its files.
    Durable,
    Failed(Status),
    /// The backlog is full, and the publisher waits at most this long.
    Wait(Arc<Notify>, Duration),
}

impl From<Status> for AppendError {
    fn from(status: Status) -> Self {
        AppendError::Failed(status)
    }
}

impl Shard {
    /// Appends all entries, or none.
    pub(super) fn append(
        &mut self,
        name: NameRef<'_>,
        entries: &mut SmallVec<[Entry; 1]>,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<Appended, AppendError> {
        let index = self.topic_or_new(name, now, shared, deferred)?;
        if self.topic(index).is_some_and(|topic| topic.options.is_durable()) {
            return Err(AppendError::Durable);
        }
        let (count, charged) = (entries.len(), entries.iter().map(Entry::charged_bytes).sum::<usize>());
        self.trim(index, now, deferred);
        if name.ignores_ids || !self.are_known(index, entries, now, shared) {
            let remembered = entries.iter().filter_map(Entry::id).filter(|_| !name.ignores_ids);
            let ids: usize = remembered.map(|id| id_bytes(id.len())).sum();
            self.reserve(charged + ids, now, shared, deferred)?;
            self.check_backlog(index, count, charged)?;
        }
        let Shard { topics, sets, sequence, bytes, .. } = self;
        let Some(topic) = &mut topics[index as usize] else { return Err(missing_topic().into()) };
        let mut offset = 0;
        for entry in entries.drain(..) {
            let id = entry.id().filter(|_| !name.ignores_ids).cloned();
            if let Some(id) = &id
                && let Some(first) = topic.offset_of_id(id, now, &shared.limits)
            {
                topic.duplicates += 1;
                offset = first;
                deferred.removed.push(entry);
                continue;
            }
            *sequence += 1;
            let before = topic.bytes();
            offset = topic.append(index, entry, *sequence, now, sets, deferred);
            if let Some(id) = id {
                topic.remember_id(&id, offset, now, &shared.limits);
            }
            *bytes = *bytes + topic.bytes() - before;
        }
        let position = Position { epoch: topic.epoch, offset };
        Ok(Appended { position, cursors: topic.cursors })
    }

    /// Notes the publication id of an entry.
    pub(super) fn remember_id(&mut self, index: u32, id: &[u8], offset: u64, now: u64, shared: &Shared) {
        let Some(topic) = &mut self.topics[index as usize] else { return };
        let before = topic.bytes();
        topic.remember_id(id, offset, now, &shared.limits);
        self.bytes = self.bytes + topic.bytes() - before;
    }

    /// Returns whether all entries are publications that the topic remembers.
    pub(super) fn are_known(&mut self, index: u32, entries: &[Entry], now: u64, shared: &Shared) -> bool {
        let Some(topic) = &mut self.topics[index as usize] else { return false };
        let mut entries = entries.iter();
        let before = topic.bytes();
        let are_known = entries
            .all(|entry| entry.id().is_some_and(|id| topic.offset_of_id(id, now, &shared.limits).is_some()));
        self.bytes = self.bytes + topic.bytes() - before;
        are_known
    }

    /// Checks that publishers of the topic do not have to wait.
    pub(super) fn check_backlog(
        &mut self,
        index: u32,
        entries: usize,
        bytes: usize,
    ) -> Result<(), AppendError> {
        let Some(topic) = &mut self.topics[index as usize] else { return Err(missing_topic().into()) };
        let SlowReader::Wait(limit) = topic.options.slow_reader else { return Ok(()) };
        if topic.ring.exceeds_backlog(entries, bytes) {
            let text = format!(
                "a batch of {entries} entries does not fit into the backlog of topic \"{}\"; publish smaller batches, \
                 or raise backlog_entries_max and backlog_bytes_max",
                topic.topic
            );
            return Err(Status::resource_exhausted(text).into());
        }
        // Entries on their way to the files are appended first.
        match topic.ring.must_wait(entries + topic.staged as usize, bytes) {
            true => Err(AppendError::Wait(topic.room(), limit)),
            false => Ok(()),
        }
    }

    /// Checks that the shard has space, after the removal of expired entries if necessary.
    pub(super) fn reserve(
        &mut self,
        bytes: usize,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<()> {
        let max = shared.limits.shard_bytes_max;
        if self.bytes.saturating_add(self.staged_bytes).saturating_add(bytes) <= max {
            return Ok(());
        }
        if self.swept_at.is_none_or(|swept| now.saturating_sub(swept) >= SWEEP_INTERVAL) {
            self.swept_at = Some(now);
            (0..self.topics.len() as u32).for_each(|index| self.trim_all(index, now, shared, deferred));
            if self.bytes.saturating_add(self.staged_bytes).saturating_add(bytes) <= max {
                return Ok(());
            }
        }
        let text = format!(
            "no space for {bytes} bytes: the shard of the topic holds {} bytes; the limit is shard_bytes_max={max}; \
             shorten histories, or raise the limit",
            self.bytes
        );
        Err(Status::resource_exhausted(text).with_retry(Retry::Safe))
    }

    /// Returns how many entries a topic accepts; without any, the error of a publisher that waits.
    pub(super) fn credit_or_wait(
        &mut self,
        name: NameRef<'_>,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<usize, AppendError> {
        let index = self.topic_or_new(name, now, shared, deferred)?;
        self.trim(index, now, deferred);
        let credit = |topic: &TopicLog| topic.ring.credit().saturating_sub(topic.staged as usize);
        match self.topic(index).map_or(0, credit) {
            0 => Err(self.wait(index)),
            credit => Ok(credit),
        }
    }

    /// Returns the error of a publisher that waits for the slowest cursor of a topic.
    fn wait(&mut self, index: u32) -> AppendError {
        let topic = self.topics.get_mut(index as usize).and_then(Option::as_mut);
        topic.map_or(AppendError::Failed(missing_topic()), |topic| {
            let limit = match topic.options.slow_reader {
                SlowReader::Wait(limit) => limit,
                _ => Duration::ZERO,
            };
            AppendError::Wait(topic.room(), limit)
        })
    }
}

impl TopicLog {
    /// Appends an entry that passed the checks, and wakes its readers; returns its offset.
    #[inline]
    pub(super) fn append(
        &mut self,
        index: u32,
        entry: Entry,
        sequence: u64,
        now: u64,
        sets: &mut [SetSlot],
        deferred: &mut Deferred,
    ) -> u64 {
        let offset = self.ring.append(entry, sequence, now, self.cursors, &mut deferred.removed);
        self.published += 1;
        for set in self.idle.drain(..) {
            let Some(slot) = sets.get_mut(set as usize) else { continue };
            let Some(set) = &mut slot.set else { continue };
            set.ready.push(Reverse((sequence, index)));
            if set.group.is_none() {
                deferred.members.extend(set.next_waiting());
            }
        }
        for set in &self.groups {
            // One member per entry: a woken member that is busy does not delay the next entry.
            let set = sets.get_mut(*set as usize).and_then(|slot| slot.set.as_mut());
            deferred.members.extend(set.and_then(CursorSet::next_waiting));
        }
        self.ring.trim(now, &mut deferred.removed);
        offset
    }
}

/// Error for an index without a topic, which no caller has.
pub(super) fn missing_topic() -> Status {
    Status::internal("a topic was removed while it was in use")
}
