//! One of the shards of the logs: topics and cursor sets behind one lock.

use super::{
    BusStats, GapReason, Pattern, Topic, TopicOptions, TopicStats,
    durable::Parked,
    group::GroupEntry,
    member::{DeadLetter, Deferred},
    names::NameRef,
    overview::Totals,
    pattern::PatternIndex,
    set::{CursorSet, GroupKey, SetId, Source},
    topic_log::TopicLog,
};
use crate::limits::Limits;
use smallvec::SmallVec;
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use switchboard_core::Result;
use switchboard_wire::Status;

/// Settings and counters that all shards of a bus share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    /// Options of topics; the first pattern that matches applies.
    pub(super) rules: Vec<(Pattern, TopicOptions)>,
    pub(super) topics: AtomicUsize,
    pub(super) topic_sweep: Sweep,
    /// Durable cursors, with and without members.
    pub(super) durables: AtomicUsize,
    pub(super) durable_sweep: Sweep,
}

/// Request for a removal in all shards, after an operation was refused at a limit.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    is_requested: AtomicBool,
    /// Time of the last removal.
    swept_at: AtomicU64,
}

impl Sweep {
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    /// Returns whether a removal is due: after a request, at most once per interval.
    pub(super) fn must_sweep(&self, now: u64) -> bool {
        if !self.is_requested.swap(false, Ordering::Relaxed) {
            return false;
        }
        let swept_at = self.swept_at.load(Ordering::Relaxed);
        let is_due = swept_at == 0 || now.saturating_sub(swept_at) >= SWEEP_INTERVAL;
        is_due && self.swept_at.compare_exchange(swept_at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Shared {
    pub(super) fn new(limits: Limits, rules: Vec<(Pattern, TopicOptions)>) -> Shared {
        Shared {
            limits,
            rules,
            topics: AtomicUsize::new(0),
            topic_sweep: Sweep::default(),
            durables: AtomicUsize::new(0),
            durable_sweep: Sweep::default(),
        }
    }

    pub(super) fn options(&self, name: &str) -> TopicOptions {
        let rule = self.rules.iter().find(|(pattern, _)| pattern.matches(name));
        rule.map_or_else(TopicOptions::default, |(_, options)| *options)
    }
}

/// Content of a shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) index: u32,
    /// Sequence number of the newest entry.
    pub(super) sequence: u64,
    /// Epoch of the newest topic.
    epoch: u64,
    /// Charged bytes of all entries and publication ids.
    pub(super) bytes: usize,
    /// Charged bytes of entries on their way to the files.
    pub(super) staged_bytes: usize,
    /// Durable cursors have moved since they were saved.
    pub(super) cursors_changed: bool,
    /// Topics by the hash of their names.
    names: HashMap<u64, SmallVec<[u32; 1]>, BuildHasherDefault<Identity>>,
    pub(super) topics: Vec<Option<TopicLog>>,
    free_topics: Vec<u32>,
    pub(super) sets: Vec<SetSlot>,
    free_sets: Vec<u32>,
    pub(super) patterns: PatternIndex,
    pub(super) groups: HashMap<GroupKey, u32>,
    /// Durable cursors without a member.
    pub(super) parked: HashMap<GroupKey, Parked>,
    /// Number of topics at which unused ones are removed.
    sweep_topics: usize,
    /// Time of the last removal of expired entries for lack of space.
    pub(super) swept_at: Option<u64>,
    pub(super) dead_letters: u64,
    /// Counters of the topics that were removed.
    pub(super) removed: Totals,
}

#[derive(Debug)]
pub(super) struct SetSlot {
    generation: u32,
    pub(super) set: Option<CursorSet>,
}

/// Hasher of keys that are hashes.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Topics of a shard that are never swept.
const SWEEP_TOPICS_MIN: usize = 64;
/// Interval between two searches for expired entries, in nanoseconds: a full shard does not search at every append.
pub(super) const SWEEP_INTERVAL: u64 = 1_000_000_000;

impl Shard {
    pub(super) fn new(index: u32, epoch: u64) -> Shard {
        Shard {
            index,
            sequence: 0,
            epoch,
            bytes: 0,
            staged_bytes: 0,
            cursors_changed: false,
            names: HashMap::default(),
            topics: Vec::new(),
            free_topics: Vec::new(),
            sets: Vec::new(),
            free_sets: Vec::new(),
            patterns: PatternIndex::default(),
            groups: HashMap::new(),
            parked: HashMap::new(),
            sweep_topics: SWEEP_TOPICS_MIN,
            swept_at: None,
            dead_letters: 0,
            removed: Totals::default(),
        }
    }

    /// Removes the entries of a topic that nothing keeps.
    pub(super) fn trim(&mut self, index: u32, now: u64, deferred: &mut Deferred) {
        let Some(topic) = &mut self.topics[index as usize] else { return };
        let before = topic.bytes();
        topic.ring.trim(now, &mut deferred.removed);
        self.bytes = self.bytes + topic.bytes() - before;
    }

    /// Removes the same entries, and the publication ids whose window has passed.
    pub(super) fn trim_all(&mut self, index: u32, now: u64, shared: &Shared, deferred: &mut Deferred) {
        self.trim(index, now, deferred);
        let Some(topic) = &mut self.topics[index as usize] else { return };
        let before = topic.bytes();
        topic.forget_ids(now, &shared.limits);
        self.bytes = self.bytes + topic.bytes() - before;
    }

    /// Returns the index of the topic. Only topics of ours, not names from outside, find reserved names.
    pub(super) fn find_topic(&self, name: NameRef<'_>) -> Option<u32> {
        if name.topic.is_none() && name.name.starts_with('$') {
            return None;
        }
        let candidates = self.names.get(&name.hash)?;
        candidates.iter().copied().find(|index| {
            let topic = self.topics[*index as usize].as_ref();
            topic.is_some_and(|topic| topic.topic.name() == name.name)
        })
    }

    pub(super) fn topic(&self, index: u32) -> Option<&TopicLog> {
        self.topics.get(index as usize)?.as_ref()
    }

    /// Returns the index of the topic; creates it if it does not exist.
    pub(super) fn topic_or_new(
        &mut self,
        name: NameRef<'_>,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<u32> {
        match self.find_topic(name) {
            Some(index) => Ok(index),
            None if name.must_exist => {
                Err(Status::not_found(format!("topic \"{}\" does not exist", name.name)))
            }
            None => self.create_topic(name, now, shared, deferred),
        }
    }

    #[cold]
    fn create_topic(
        &mut self,
        name: NameRef<'_>,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<u32> {
        let topic = match name.topic {
            Some(topic) => topic.clone(),
            None => Topic::new(name.name)?,
        };
        let (max, held) = (shared.limits.topics_max, self.topics.len() - self.free_topics.len());
        if held >= self.sweep_topics {
            self.remove_unused(now, shared, deferred);
        }
        if shared.topics.load(Ordering::Relaxed) >= max {
            shared.topic_sweep.request();
            let text = format!(
                "topic \"{topic}\" cannot be created; the limit is topics_max={max}; remove subscriptions or histories"
            );
            return Err(Status::resource_exhausted(text));
        }
        shared.topics.fetch_add(1, Ordering::Relaxed);
        self.epoch = self.epoch.wrapping_add(1);
        let log = TopicLog::new(topic.clone(), self.epoch, shared.options(topic.name()), &shared.limits);
        let index = match self.free_topics.pop() {
            Some(index) => {
                self.topics[index as usize] = Some(log);
                index
            }
            None => {
                self.topics.push(Some(log));
                self.topics.len() as u32 - 1
            }
        };
        self.names.entry(topic.hash()).or_default().push(index);
        let mut matching = Vec::new();
        self.patterns.find(topic.name(), &mut matching);
        for set in matching {
            self.attach_cursor(set, index, 1);
        }
        Ok(index)
    }

    /// Removes topics that hold nothing.
    pub(super) fn remove_unused(&mut self, now: u64, shared: &Shared, deferred: &mut Deferred) {
        for index in 0..self.topics.len() as u32 {
            self.trim_all(index, now, shared, deferred);
            self.release_patterns(index);
            self.remove_if_unused(index, shared);
        }
        let held = self.topics.len() - self.free_topics.len();
        self.sweep_topics = SWEEP_TOPICS_MIN.max(2 * held);
    }

    /// Removes the cursors of a topic that only patterns have read, to its end. The next entry creates the topic and
    /// their cursors again: patterns over names that are used once, such as those of replies, do not keep them all.
    fn release_patterns(&mut self, index: u32) {
        let Some(topic) = self.topic(index).filter(|topic| topic.has_idle_cursors_alone()) else { return };
        let set = |set: &u32| self.sets.get(*set as usize).and_then(|slot| slot.set.as_ref());
        let is_pattern = |set: &CursorSet| {
            let acknowledges = set.group.as_ref().is_some_and(|group| group.ack.is_some());
            matches!(set.source, Source::Pattern(_)) && !acknowledges
        };
        if !topic.idle.iter().all(|index| set(index).is_some_and(is_pattern)) {
            return;
        }
        let Some(Some(topic)) = self.topics.get_mut(index as usize) else { return };
        topic.cursors = 0;
        topic.groups.clear();
        for set in std::mem::take(&mut topic.idle) {
            if let Some(set) = self.sets.get_mut(set as usize).and_then(|slot| slot.set.as_mut()) {
                set.remove(index);
            }
        }
    }

    /// Removes a topic that holds nothing after its last cursor has gone. Durable topics keep their epochs, for readers
    /// that return after a restart, until unused topics are removed for lack of space.
    pub(super) fn remove_after_use(&mut self, index: u32, shared: &Shared) {
        if self.topic(index).is_some_and(|topic| !topic.options.is_durable()) {
            self.remove_if_unused(index, shared);
        }
    }

    pub(super) fn remove_if_unused(&mut self, index: u32, shared: &Shared) {
        let Some(topic) = self.topics[index as usize].take_if(|topic| topic.is_unused()) else { return };
        self.removed.add(&topic);
        if let Some(indexes) = self.names.get_mut(&topic.topic.hash()) {
            indexes.retain(|known| *known != index);
            if indexes.is_empty() {
                self.names.remove(&topic.topic.hash());
            }
        }
        self.free_topics.push(index);
        shared.topics.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn insert_set(&mut self, set: CursorSet) -> SetId {
        let index = self.free_sets.pop().unwrap_or_else(|| {
            self.sets.push(SetSlot { generation: 0, set: None });
            self.sets.len() as u32 - 1
        });
        let slot = &mut self.sets[index as usize];
        slot.set = Some(set);
        SetId { index, generation: slot.generation }
    }

    pub(super) fn set_id(&self, index: u32) -> SetId {
        let generation = self.sets.get(index as usize).map_or(0, |slot| slot.generation);
        SetId { index, generation }
    }

    pub(super) fn set_mut(&mut self, id: SetId) -> Option<&mut CursorSet> {
        let slot = self.sets.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.set.as_mut()
    }

    /// Returns a set together with the topics.
    pub(super) fn set_and_topics(
        &mut self,
        id: SetId,
    ) -> Option<(&mut CursorSet, &mut [Option<TopicLog>], &mut usize)> {
        let slot = self.sets.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        Some((slot.set.as_mut()?, &mut self.topics, &mut self.bytes))
    }

    pub(super) fn remove_set(&mut self, id: SetId) -> Option<CursorSet> {
        let slot = self.sets.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let set = slot.set.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free_sets.push(id.index);
        Some(set)
    }

    /// Ends the delivery of an entry: notes a dead letter, if the group has a topic for them.
    pub(super) fn dead_letter(&mut self, set: SetId, entry: GroupEntry, deferred: &mut Deferred) {
        self.dead_letters += 1;
        let group = self.set_mut(set).and_then(|set| set.group.as_ref());
        let ack = group.and_then(|group| group.ack.as_ref());
        match ack.and_then(|ack| ack.dead_letters.clone()) {
            Some(to) => deferred.dead_letters.push(DeadLetter { to, entry: entry.entry }),
            None => deferred.removed.push(entry.entry),
        }
    }

    pub(super) fn count_missing(&mut self, topic: u32, reason: GapReason, entries: u64) {
        if let Some(Some(topic)) = self.topics.get_mut(topic as usize) {
            topic.count_missing(reason, entries);
        }
    }

    pub(super) fn add_stats(&self, stats: &mut BusStats) {
        for topic in self.topics.iter().flatten() {
            stats.entries += topic.ring.len();
            stats.cursors += topic.cursors as usize;
        }
        stats.bytes += self.bytes;
        stats.dead_letters += self.dead_letters;
    }

    pub(super) fn topic_stats(&self, name: NameRef<'_>) -> Option<TopicStats> {
        Some(self.topic(self.find_topic(name)?)?.stats())
    }
}
