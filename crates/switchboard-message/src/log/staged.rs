//! Appends to durable topics, in two steps: an entry has its offset while it is written, and is in the log afterwards.
//!
//! One thread stages all entries of durable topics, and their outcomes follow in the same order for each topic.
//! Subscriptions and publishers see an entry only when it is in the log: then its file has it.

use super::{
    AppendError, Appended, Entry, Log, Position, Storage, Topic,
    append::missing_topic,
    member::Deferred,
    shard::{Shard, Shared},
    shard_of,
    topic_log::id_bytes,
};
use smallvec::SmallVec;

/// Entries of one submission that have offsets.
#[derive(Debug)]
pub(crate) struct Staged {
    topic: Topic,
    /// Index of the topic in its shard, which keeps it.
    index: u32,
    pub(crate) epoch: u64,
    pub(crate) storage: Storage,
    pub(crate) offsets: SmallVec<[StagedOffset; 1]>,
    bytes: usize,
}

/// Offset of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StagedOffset {
    /// The publication id is that of an earlier entry.
    Known(u64),
    New(u64),
}

impl Log {
    /// Checks entries for a durable topic and assigns their offsets; all or none.
    pub(crate) fn stage(
        &self,
        topic: &Topic,
        entries: &[Entry],
        ignores_ids: bool,
        now: u64,
    ) -> Result<Staged, AppendError> {
        loop {
            let staged = self.with(shard_of(topic.hash()), now, |shard, deferred| {
                shard.stage(topic, entries, ignores_ids, now, &self.shared, deferred)
            });
            if staged.is_ok() || !self.swept(now) {
                return staged;
            }
        }
    }

    /// Appends staged entries that their file has.
    pub(crate) fn commit(
        &self,
        staged: &Staged,
        entries: SmallVec<[Entry; 1]>,
        now: u64,
    ) -> Result<Appended, AppendError> {
        self.with(shard_of(staged.topic.hash()), now, |shard, deferred| {
            shard.commit(staged, entries, now, deferred)
        })
    }

    /// Removes staged entries that their file does not have.
    pub(crate) fn abort(&self, staged: &Staged, entries: &[Entry], now: u64) {
        self.with(shard_of(staged.topic.hash()), now, |shard, deferred| {
            shard.abort(staged, entries, deferred);
        });
    }
}

impl Shard {
    fn stage(
        &mut self,
        topic: &Topic,
        entries: &[Entry],
        ignores_ids: bool,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<Staged, AppendError> {
        let index = self.topic_or_new(topic.into(), now, shared, deferred)?;
        self.trim(index, now, deferred);
        let bytes = entries.iter().map(Entry::charged_bytes).sum();
        if ignores_ids || !self.are_known(index, entries, now, shared) {
            let remembered = entries.iter().filter_map(Entry::id).filter(|_| !ignores_ids);
            let ids: usize = remembered.map(|id| id_bytes(id.len())).sum();
            self.reserve(bytes + ids, now, shared, deferred)?;
            self.check_backlog(index, entries.len(), bytes)?;
        }
        let mut offsets = SmallVec::new();
        for entry in entries {
            let id = entry.id().filter(|_| !ignores_ids);
            let Some(log) = &mut self.topics[index as usize] else { return Err(missing_topic().into()) };
            if let Some(id) = id
                && let Some(first) = log.offset_of_id(id, now, &shared.limits)
            {
                log.duplicates += 1;
                offsets.push(StagedOffset::Known(first));
                continue;
            }
            let offset = log.ring.next_offset() + u64::from(log.staged);
            log.staged += 1;
            offsets.push(StagedOffset::New(offset));
            if let Some(id) = id {
                self.remember_id(index, id, offset, now, shared);
            }
        }
        self.staged_bytes += bytes;
        let Some(log) = self.topic(index) else { return Err(missing_topic().into()) };
        let (epoch, storage) = (log.epoch, log.options.storage);
        Ok(Staged { topic: topic.clone(), index, epoch, storage, offsets, bytes })
    }

    fn commit(
        &mut self,
        staged: &Staged,
        entries: SmallVec<[Entry; 1]>,
        now: u64,
        deferred: &mut Deferred,
    ) -> Result<Appended, AppendError> {
        self.staged_bytes = self.staged_bytes.saturating_sub(staged.bytes);
        let mut last = 0;
        for (offset, entry) in staged.offsets.iter().zip(entries) {
            match *offset {
                StagedOffset::Known(first) => {
                    last = first;
                    deferred.removed.push(entry);
                }
                StagedOffset::New(offset) => {
                    let Some(Some(log)) = self.topics.get_mut(staged.index as usize) else {
                        return Err(missing_topic().into());
                    };
                    self.sequence += 1;
                    log.staged = log.staged.saturating_sub(1);
                    let before = log.bytes();
                    last = log.append(staged.index, entry, self.sequence, now, &mut self.sets, deferred);
                    self.bytes = self.bytes + log.bytes() - before;
                    debug_assert_eq!(last, offset, "entries of {} are appended in their order", staged.topic);
                }
            }
        }
        let cursors = self.topic(staged.index).map_or(0, |log| log.cursors);
        Ok(Appended { position: Position { epoch: staged.epoch, offset: last }, cursors })
    }

    fn abort(&mut self, staged: &Staged, entries: &[Entry], deferred: &mut Deferred) {
        self.staged_bytes = self.staged_bytes.saturating_sub(staged.bytes);
        let Some(Some(log)) = self.topics.get_mut(staged.index as usize) else { return };
        let before = log.bytes();
        for (offset, entry) in staged.offsets.iter().zip(entries) {
            if matches!(offset, StagedOffset::New(_)) {
                log.staged = log.staged.saturating_sub(1);
                if let Some(id) = entry.id() {
                    log.forget_id(id);
                }
            }
        }
        self.bytes = self.bytes + log.bytes() - before;
        // Publishers wait for staged entries as well.
        deferred.rooms.extend(log.waiting_room());
    }
}
