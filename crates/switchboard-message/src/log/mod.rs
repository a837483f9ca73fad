//! Logs of topics in 16 shards, and the cursors on them.
//!
//! A shard has one lock, which an append holds for the assignment of the offset and the sequence number (the order in
//! the shard), and a subscription for a batch of entries. No lock is held while a task is woken or a message decoded.
//! All functions receive the time as an argument.
//!
//! ```text
//! Log ─► Shard ─► TopicLog ─► Ring            entries, with the number of cursors that have not read each
//!          └────► CursorSet ─► Cursor, Group  one set per subscription or group: a cursor per topic
//! ```
//!
//! A pattern is resolved once per topic: a new topic gets a cursor of each set whose pattern matches its name. A set
//! has a heap of the topics with unread entries, by sequence number: it reads the entries of a shard in their order.

mod append;
mod attach;
mod durable;
mod entry;
mod group;
mod list;
mod member;
mod mirror;
pub mod names;
mod options;
mod overview;
mod pattern;
mod position;
mod restore;
mod ring;
mod set;
mod shard;
mod staged;
mod submit;
mod take;
mod topic_log;

#[cfg(test)]
mod tests;

pub(crate) use append::{AppendError, Appended};
pub(crate) use attach::{Attach, Start};
pub(crate) use durable::{Parked, ParkedCursor};
pub use entry::{Entry, Publication};
pub(crate) use entry::{EntryParts, Missing};
pub use list::ListedTopic;
pub(crate) use member::{Member, Removed, Taken, TakenEntry, Token};
pub(crate) use mirror::Mirrored;
pub use names::{NameRef, Topic};
pub use options::{History, SlowReader, Storage, TopicOptions};
pub(crate) use overview::{ListedGroup, Totals};
pub use pattern::Pattern;
pub use position::{Checkpoint, Gap, GapReason, Position};
pub(crate) use restore::{KeptEntry, SavedCursor, SavedTopic};
pub(crate) use set::{AckOptions, GroupKey, SetId, Source};
pub(crate) use staged::{Staged, StagedOffset};
pub(crate) use submit::{Refused, Submission, Submissions};
pub(crate) use take::{AfterTake, BatchSize};
pub use topic_log::TopicStats;

use crate::limits::Limits;
use member::{DeadLetter, Deferred};
use shard::{Shard, Shared};
use smallvec::{SmallVec, smallvec};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Number of shards; a member has a bit for each.
const SHARDS: usize = 16;

/// Logs of all topics of a bus.
#[derive(Debug)]
pub(crate) struct Log {
    shards: [Mutex<Shard>; SHARDS],
    shared: Shared,
    /// Identifies the sequence numbers of this process.
    epoch: u64,
    subscriptions: AtomicUsize,
    /// Dead letters that their topic did not accept.
    dead_letters_lost: AtomicUsize,
    /// Queue of durable topics to their files; `None` without files.
    submissions: Option<Arc<Submissions>>,
}

/// Sets of a subscription, by shard.
pub(crate) type Attached = SmallVec<[(u32, SetId); 1]>;

/// A subscription that has begun.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) sets: Attached,
    pub(crate) outcome: Outcome,
    /// Position before the first entry, of a subscription to one topic.
    pub(crate) position: Option<Position>,
    /// Progress before the first entry, of a subscription to a pattern.
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
}

/// First items of a subscription.
#[derive(Debug)]
pub(crate) enum Outcome {
    Gaps(Vec<Gap>),
    /// Nothing, or gaps that the group delivers.
    None,
    Recovered,
}

/// Counters of a bus.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BusStats {
    /// Topics that the bus holds.
    pub topics: usize,
    /// Entries in all logs.
    pub entries: usize,
    /// Bytes of these entries, with about 128 per entry for the log itself, and of publication ids, with about 96 per
    /// id.
    pub bytes: usize,
    /// Cursors of subscriptions and groups; a pattern has one per matching topic.
    pub cursors: usize,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Durable cursors, connected or not; that of a pattern counts in each of the 16 shards.
    pub durable_cursors: usize,
    /// Entries that were delivered as often as their group allows.
    pub dead_letters: u64,
    /// Dead letters that their topic did not accept.
    pub dead_letters_lost: usize,
}

impl Log {
    /// Creates the logs. Epochs begin with random numbers of `random`.
    pub(crate) fn new(
        limits: Limits,
        rules: Vec<(Pattern, TopicOptions)>,
        mut random: impl FnMut() -> u64,
    ) -> Log {
        let (mut index, epoch) = (0, random());
        let shards = [(); SHARDS].map(|()| {
            index += 1;
            Mutex::new(Shard::new(index - 1, random()))
        });
        let (subscriptions, dead_letters_lost) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Shared::new(limits, rules);
        Log { shards, shared, epoch, subscriptions, dead_letters_lost, submissions: None }
    }

    /// Adds the queue of durable topics to their files.
    pub(crate) fn with_files(mut self, submissions: Arc<Submissions>) -> Log {
        self.submissions = Some(submissions);
        self
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn shard(&self, index: u32) -> MutexGuard<'_, Shard> {
        self.shards[index as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation under the lock of a shard, and its deferred work afterwards.
    fn with<R>(&self, index: u32, now: u64, run: impl FnOnce(&mut Shard, &mut Deferred) -> R) -> R {
        let mut deferred = Deferred::default();
        let result = run(&mut self.shard(index), &mut deferred);
        for letter in deferred.send(index) {
            self.append_dead_letter(letter, now);
        }
        result
    }

    /// Removes unused topics of all shards after a topic was refused, and old durable cursors after a durable cursor
    /// was refused; returns whether it did.
    fn swept(&self, now: u64) -> bool {
        let has_refused_topic = self.shared.topic_sweep.must_sweep(now);
        if has_refused_topic {
            self.remove_unused(now);
        }
        let has_refused_durable = self.shared.durable_sweep.must_sweep(now);
        if has_refused_durable {
            (0..SHARDS as u32).for_each(|index| self.shard(index).remove_old_parked(now, &self.shared));
        }
        has_refused_topic || has_refused_durable
    }

    fn append_dead_letter(&self, letter: DeadLetter, now: u64) {
        // Ids are those of the topics that the entries come from.
        let name = NameRef { ignores_ids: true, ..(&letter.to).into() };
        let mut entries = smallvec![letter.entry];
        let is_lost = match self.append(name, &mut entries, now) {
            Ok(_) => false,
            Err(AppendError::Durable) => self.submit(name, entries, false).is_err(),
            Err(_) => true,
        };
        if is_lost {
            self.dead_letters_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends all entries and leaves `entries` empty, or none.
    pub(crate) fn append(
        &self,
        name: NameRef<'_>,
        entries: &mut SmallVec<[Entry; 1]>,
        now: u64,
    ) -> Result<Appended, AppendError> {
        loop {
            let appended = self.with(shard_of(name.hash), now, |shard, deferred| {
                shard.append(name, entries, now, &self.shared, deferred)
            });
            if appended.is_ok() || !self.swept(now) {
                return appended;
            }
        }
    }

    /// Adds a subscription.
    pub(crate) fn attach(&self, attach: &Attach, member: &Arc<Member>, now: u64) -> Result<Attachment> {
        let max = self.limits().subscriptions_max;
        if self.subscriptions.fetch_add(1, Ordering::Relaxed) >= max {
            self.subscriptions.fetch_sub(1, Ordering::Relaxed);
            let text = format!("the bus accepts no subscription; the limit is subscriptions_max={max}");
            return Err(Status::resource_exhausted(text));
        }
        let shards = match &attach.source {
            Source::Topic(topic) => shard_of(topic.hash())..shard_of(topic.hash()) + 1,
            Source::Pattern(_) => 0..SHARDS as u32,
        };
        let (mut attached, mut gaps, mut is_new) = (Attached::new(), Vec::new(), false);
        let (mut created, mut position, mut sequences) = (Vec::new(), None, Vec::new());
        for index in shards {
            let begin =
                || self.with(index, now, |shard, deferred| shard.attach(attach, now, &self.shared, deferred));
            let mut set = begin();
            if set.is_err() && self.swept(now) {
                set = begin();
            }
            match set {
                Ok(set) => {
                    attached.push((index, set.id));
                    position = set.position;
                    sequences.push(set.sequence);
                    gaps.extend(set.gaps);
                    is_new |= set.is_new;
                    created.extend((set.is_new && !set.is_resumed).then_some(index));
                }
                Err(status) => {
                    self.detach(&attached, member, now);
                    self.remove_parked(attach, &created);
                    return Err(status);
                }
            }
        }
        let outcome = match attach.start {
            _ if !is_new => Outcome::None,
            Start::After(_) | Start::Behind(_) | Start::Since(_) if gaps.is_empty() => Outcome::Recovered,
            _ if attach.group.is_some() => Outcome::None,
            _ => Outcome::Gaps(gaps),
        };
        let is_pattern = matches!(attach.source, Source::Pattern(_));
        let checkpoint = is_pattern.then(|| Box::new(Checkpoint { epoch: self.epoch, sequences }));
        Ok(Attachment { sets: attached, outcome, position, checkpoint })
    }

    /// Returns the start of a subscription that continues after a checkpoint. The logs of another process are read from
    /// their beginning.
    pub(crate) fn behind(&self, checkpoint: &Checkpoint) -> Start {
        let mut known = [0; SHARDS];
        if checkpoint.epoch == self.epoch && checkpoint.sequences.len() == SHARDS {
            known.copy_from_slice(&checkpoint.sequences);
        }
        Start::Behind(known)
    }

    /// Removes a subscription.
    pub(crate) fn detach(&self, attached: &Attached, member: &Arc<Member>, now: u64) {
        self.subscriptions.fetch_sub(1, Ordering::Relaxed);
        for (index, set) in attached {
            self.with(*index, now, |shard, deferred| {
                shard.detach(*set, member, now, &self.shared, deferred);
            });
        }
    }

    /// Removes the durable cursors that a refused subscription created in some shards.
    fn remove_parked(&self, attach: &Attach, shards: &[u32]) {
        let Some(key) = &attach.group else { return };
        shards.iter().for_each(|index| _ = self.shard(*index).remove_parked(key, &self.shared));
    }

    /// Removes a durable cursor without a member; returns whether there was one.
    pub(crate) fn remove_durable(&self, key: &GroupKey) -> bool {
        let shards = 0..SHARDS as u32;
        let removed = shards.filter(|index| self.shard(*index).remove_parked(key, &self.shared)).count();
        removed > 0
    }

    /// Moves the next entries of a set to `batch`. `removed` is an empty buffer that later calls use again.
    pub(crate) fn take(
        &self,
        (index, set): (u32, SetId),
        member: &Arc<Member>,
        size: BatchSize,
        now: u64,
        batch: &mut VecDeque<Taken>,
        removed: &mut Removed,
    ) -> AfterTake {
        let after = self.with(index, now, |shard, deferred| {
            std::mem::swap(&mut deferred.removed, removed);
            let taken = shard.take(set, member, size, now, batch, deferred);
            std::mem::swap(&mut deferred.removed, removed);
            taken
        });
        // The lock is released: the end of a payload may use the bus.
        removed.clear();
        after
    }

    /// Wakes another member of a group, because this one does not take its entries now. It does not wait any more.
    pub(crate) fn pass(&self, (index, set): (u32, SetId), member: &Arc<Member>, now: u64) {
        self.with(index, now, |shard, deferred| shard.pass(set, member, deferred));
    }

    /// Acknowledges an entry; returns whether it was unacknowledged.
    pub(crate) fn acknowledge(&self, token: Token, now: u64) -> bool {
        self.with(token.shard, now, |shard, deferred| shard.acknowledge(token, deferred))
    }

    /// Makes an unacknowledged entry available to the members; returns false if it was acknowledged or released.
    pub(crate) fn reject(&self, token: Token, now: u64) -> bool {
        self.with(token.shard, now, |shard, deferred| shard.reject(token, deferred))
    }

    /// Returns how many entries a topic accepts before its publishers wait, and its notification if there are none.
    pub(crate) fn credit(&self, name: NameRef<'_>, now: u64) -> Result<usize, AppendError> {
        loop {
            let credit = self.with(shard_of(name.hash), now, |shard, deferred| {
                shard.credit_or_wait(name, now, &self.shared, deferred)
            });
            if credit.is_ok() || !self.swept(now) {
                return credit;
            }
        }
    }

    /// Checks that a topic accepts this number of entries with these charged bytes; fails with its notification if its
    /// publishers wait.
    pub(crate) fn check_room(
        &self,
        name: NameRef<'_>,
        entries: usize,
        bytes: usize,
        now: u64,
    ) -> Result<(), AppendError> {
        self.with(shard_of(name.hash), now, |shard, deferred| {
            let Some(index) = shard.find_topic(name) else { return Ok(()) };
            shard.trim(index, now, deferred);
            shard.check_backlog(index, entries, bytes)
        })
    }

    /// Removes expired entries, and topics that hold nothing.
    pub(crate) fn remove_unused(&self, now: u64) {
        for index in 0..SHARDS as u32 {
            self.with(index, now, |shard, deferred| shard.remove_unused(now, &self.shared, deferred));
        }
    }

    pub(crate) fn topic_stats(&self, name: NameRef<'_>) -> Option<TopicStats> {
        self.shard(shard_of(name.hash)).topic_stats(name)
    }

    pub(crate) fn stats(&self) -> BusStats {
        let mut stats = BusStats {
            topics: self.shared.topics.load(Ordering::Relaxed),
            subscriptions: self.subscriptions.load(Ordering::Relaxed),
            durable_cursors: self.shared.durables.load(Ordering::Relaxed),
            dead_letters_lost: self.dead_letters_lost.load(Ordering::Relaxed),
            ..BusStats::default()
        };
        (0..SHARDS as u32).for_each(|index| self.shard(index).add_stats(&mut stats));
        stats
    }
}

/// Returns the shard of a topic, by the hash of its name.
pub(crate) fn shard_of(hash: u64) -> u32 {
    (hash >> 60) as u32
}
