//! Content of durable topics and cursors, for the files that keep it, and back.

use super::{
    Entry, GroupKey, Log, Position, SHARDS, Source, Topic, TopicOptions,
    durable::{Parked, ParkedCursor},
    group::Group,
    member::Deferred,
    set::CursorSet,
    shard::{Shard, Shared},
    shard_of,
    topic_log::TopicLog,
};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::atomic::Ordering,
};
use switchboard_core::Result;

/// Topics that are visited under one lock.
const LOCKED_MAX: usize = 1_024;

/// A durable topic without its entries: the position of the next one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SavedTopic {
    pub(crate) topic: Topic,
    pub(crate) next: Position,
}

/// A durable cursor.
#[derive(Debug)]
pub(crate) struct SavedCursor {
    pub(crate) key: GroupKey,
    pub(crate) parked: Parked,
}

/// An entry with its offset and time.
pub(crate) type KeptEntry = (u64, u64, Entry);

impl Log {
    /// Returns the options that the rules give a topic.
    pub(crate) fn options(&self, name: &str) -> TopicOptions {
        self.shared.options(name)
    }

    /// Creates a topic as it was in its files.
    ///
    /// # Errors
    /// `ResourceExhausted` at `topics_max`.
    pub(crate) fn restore_topic(&self, topic: &Topic, epoch: u64, now: u64) -> Result<()> {
        self.with(shard_of(topic.hash()), now, |shard, deferred| {
            shard.restore_topic(topic, epoch, now, &self.shared, deferred)
        })
    }

    /// Appends an entry that a file has. The memory limit of the shard does not apply: topics are in other shards than
    /// before.
    pub(crate) fn restore_entry(&self, topic: &Topic, (offset, time, entry): KeptEntry, floor_time: u64) {
        self.with(shard_of(topic.hash()), time, |shard, deferred| {
            shard.restore_entry(topic, (offset, time, entry), floor_time, deferred);
        });
    }

    /// Ends the restoration of a topic: it continues with this offset, and knows these publication ids, with the
    /// offsets and times of their entries.
    pub(crate) fn finish_topic(&self, topic: &Topic, next: u64, ids: Vec<(u64, u64, Bytes)>, now: u64) {
        self.with(shard_of(topic.hash()), now, |shard, deferred| {
            let Some(index) = shard.find_topic(topic.into()) else { return };
            shard.sequence += 1;
            let sequence = shard.sequence;
            if let Some(Some(log)) = shard.topics.get_mut(index as usize) {
                log.ring.skip_to(next, now, sequence);
                log.parked = log.parked.saturating_sub(1);
            }
            for (offset, time, id) in ids {
                shard.remember_id(index, &id, offset, time, &self.shared);
            }
            shard.trim_all(index, now, &self.shared, deferred);
        });
    }

    /// Adds a durable cursor without a member. Positions of topics that do not exist are ignored.
    pub(crate) fn restore_cursor(&self, saved: SavedCursor) {
        let SavedCursor { key, parked } = saved;
        let mut parts: HashMap<u32, Parked> = HashMap::new();
        let empty = || Parked { parked_at: parked.parked_at, cursors: Vec::new(), gaps: VecDeque::new() };
        match &key.source {
            Source::Topic(topic) => _ = parts.insert(shard_of(topic.hash()), empty()),
            Source::Pattern(_) => parts.extend((0..SHARDS as u32).map(|index| (index, empty()))),
        }
        for cursor in parked.cursors {
            let part = parts.get_mut(&shard_of(cursor.topic.hash()));
            part.into_iter().for_each(|part| part.cursors.push(cursor.clone()));
        }
        for gap in parked.gaps {
            let part = parts.get_mut(&shard_of(gap.topic.hash()));
            part.into_iter().for_each(|part| part.gaps.push_back(gap.clone()));
        }
        for (index, part) in parts {
            self.shard(index).restore_cursor(key.clone(), part, &self.shared);
        }
    }

    /// Returns the durable topics.
    pub(crate) fn durable_topics(&self) -> Vec<SavedTopic> {
        let mut topics = Vec::new();
        for index in 0..SHARDS as u32 {
            let mut at = 0;
            loop {
                let shard = self.shard(index);
                let end = shard.topics.len().min(at + LOCKED_MAX);
                let page = shard.topics.get(at..end).unwrap_or_default().iter().flatten();
                topics.extend(page.filter(|log| log.options.is_durable()).map(saved_topic));
                at = end;
                if at == shard.topics.len() {
                    break;
                }
            }
        }
        topics
    }

    /// Returns whether durable cursors have moved since the last call.
    pub(crate) fn take_cursor_changes(&self) -> bool {
        let shards = 0..SHARDS as u32;
        shards.fold(false, |changed, index| std::mem::take(&mut self.shard(index).cursors_changed) | changed)
    }

    /// Has the durable cursors saved again.
    pub(crate) fn note_cursor_change(&self) {
        self.shard(0).cursors_changed = true;
    }

    /// Returns the durable cursors of durable topics, connected or not.
    pub(crate) fn durable_cursors(&self, now: u64) -> Vec<SavedCursor> {
        let mut merged: HashMap<GroupKey, Parked> = HashMap::new();
        for index in 0..SHARDS as u32 {
            for SavedCursor { key, parked } in self.shard(index).durable_cursors(now, &self.shared) {
                match merged.get_mut(&key) {
                    Some(known) => {
                        known.cursors.extend(parked.cursors);
                        known.gaps.extend(parked.gaps);
                    }
                    None => _ = merged.insert(key, parked),
                }
            }
        }
        merged.into_iter().map(|(key, parked)| SavedCursor { key, parked }).collect()
    }

    /// Returns the entries of a topic in these ranges of offsets; none of another epoch.
    pub(crate) fn kept(&self, topic: &Topic, epoch: u64, ranges: &[Range<u64>]) -> Vec<KeptEntry> {
        let shard = self.shard(shard_of(topic.hash()));
        let log = shard.find_topic(topic.into()).and_then(|index| shard.topic(index));
        let Some(log) = log.filter(|log| log.epoch == epoch) else { return Vec::new() };
        let entries = ranges.iter().flat_map(|range| log.ring.within(range));
        entries.map(|(offset, time, entry)| (offset, time, entry.clone())).collect()
    }

    /// Returns whether a topic has an entry in these ranges of offsets.
    pub(crate) fn keeps(&self, topic: &Topic, epoch: u64, ranges: &[Range<u64>], now: u64) -> bool {
        self.with(shard_of(topic.hash()), now, |shard, deferred| {
            let Some(index) = shard.find_topic(topic.into()) else { return false };
            shard.trim(index, now, deferred);
            let log = shard.topic(index).filter(|log| log.epoch == epoch);
            log.is_some_and(|log| ranges.iter().any(|range| log.ring.within(range).next().is_some()))
        })
    }

    /// Returns whether an entry in these ranges of offsets is not in the log yet.
    pub(crate) fn is_staged(&self, topic: &Topic, epoch: u64, ranges: &[Range<u64>]) -> bool {
        let shard = self.shard(shard_of(topic.hash()));
        let log = shard.find_topic(topic.into()).and_then(|index| shard.topic(index));
        log.is_some_and(|log| {
            log.epoch == epoch && ranges.iter().any(|range| range.end > log.ring.next_offset())
        })
    }
}

fn saved_topic(log: &TopicLog) -> SavedTopic {
    // Staged entries may be in no file yet.
    let offset = log.ring.next_offset();
    SavedTopic { topic: log.topic.clone(), next: Position { epoch: log.epoch, offset } }
}

impl Shard {
    fn restore_topic(
        &mut self,
        topic: &Topic,
        epoch: u64,
        now: u64,
        shared: &Shared,
        deferred: &mut Deferred,
    ) -> Result<()> {
        let index = self.topic_or_new(topic.into(), now, shared, deferred)?;
        if let Some(Some(log)) = self.topics.get_mut(index as usize) {
            log.epoch = epoch;
            // Kept until its entries are there: the creation of other topics may remove unused ones.
            log.parked += 1;
        }
        Ok(())
    }

    fn restore_entry(
        &mut self,
        topic: &Topic,
        (offset, time, entry): KeptEntry,
        floor_time: u64,
        deferred: &mut Deferred,
    ) {
        let Some(index) = self.find_topic(topic.into()) else { return };
        self.sequence += 2;
        let (before, sequence) = (self.bytes, self.sequence);
        let Some(Some(log)) = self.topics.get_mut(index as usize) else { return };
        let held = log.bytes();
        log.ring.skip_to(offset, floor_time, sequence - 1);
        log.ring.append(entry, sequence, time, log.cursors, &mut deferred.removed);
        self.bytes = before + log.bytes() - held;
    }

    fn restore_cursor(&mut self, key: GroupKey, mut parked: Parked, shared: &Shared) {
        parked.cursors.retain(|cursor| self.find_topic((&cursor.topic).into()).is_some());
        for cursor in &parked.cursors {
            let index = self.find_topic((&cursor.topic).into());
            if let Some(Some(log)) = index.and_then(|index| self.topics.get_mut(index as usize)) {
                log.parked += 1;
            }
        }
        if self.parked.insert(key, parked).is_none() {
            shared.durables.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn durable_cursors(&mut self, now: u64, shared: &Shared) -> Vec<SavedCursor> {
        let keeps_patterns = shared.rules.iter().any(|(_, options)| options.is_durable());
        let keeps = |key: &GroupKey| match &key.source {
            Source::Topic(topic) => shared.options(topic.name()).is_durable(),
            Source::Pattern(_) => keeps_patterns,
        };
        let mut saved = Vec::new();
        for (key, parked) in self.parked.iter().filter(|(key, _)| keeps(key)) {
            let cursors =
                parked.cursors.iter().filter(|cursor| shared.options(cursor.topic.name()).is_durable());
            let cursors = cursors.cloned().collect();
            let parked = Parked { parked_at: parked.parked_at, cursors, gaps: parked.gaps.clone() };
            saved.push(SavedCursor { key: key.clone(), parked });
        }
        for set in self.sets.iter().filter_map(|slot| slot.set.as_ref()) {
            let Some(group) = set.group.as_ref().filter(|group| group.key.is_durable && keeps(&group.key))
            else {
                continue;
            };
            let cursors = durable_positions(set, group, &self.topics);
            let parked = Parked { parked_at: now, cursors, gaps: group.gaps.clone() };
            saved.push(SavedCursor { key: group.key.clone(), parked });
        }
        saved
    }
}

/// Returns the positions of a connected group in durable topics, as if its members left now.
fn durable_positions(set: &CursorSet, group: &Group, topics: &[Option<TopicLog>]) -> Vec<ParkedCursor> {
    let mut unacknowledged: HashMap<u32, Vec<(u64, u32)>> = HashMap::new();
    let held = group.unacknowledged.values().map(|held| &held.entry);
    for entry in held.chain(group.redeliveries.values()) {
        unacknowledged.entry(entry.topic).or_default().push((entry.offset, entry.attempts));
    }
    let cursors = set.cursors().iter().filter_map(|cursor| {
        let log = topics.get(cursor.topic as usize)?.as_ref().filter(|log| log.options.is_durable())?;
        let mut unacknowledged = unacknowledged.remove(&cursor.topic).unwrap_or_default();
        unacknowledged.sort_unstable();
        let next = Position { epoch: log.epoch, offset: cursor.next };
        Some(ParkedCursor { topic: log.topic.clone(), next, unacknowledged })
    });
    cursors.collect()
}
