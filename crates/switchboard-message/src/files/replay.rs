//! Topics as their segments describe them: the newest entries, within the histories and the memory for them.
//!
//! Records of a topic are in the order of their offsets, except entries that the cleaner has copied to a later segment.

use super::record::{EntryRecord, Record};
use crate::{
    clock,
    limits::Limits,
    log::{KeptEntry, Position, SavedTopic, Topic, TopicOptions},
};
use bytes::Bytes;
use smallvec::SmallVec;
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    time::Duration,
};

/// Topics of the segments that were read.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) topics: HashMap<Topic, ReplayedTopic>,
    /// Entries of topics that are not durable any more.
    pub(super) ignored: u64,
    /// Time of the newest entry.
    pub(super) time: u64,
}

/// A topic.
pub(super) struct ReplayedTopic {
    options: TopicOptions,
    /// Epoch of the topic, and those before it that its entries have in the files.
    epochs: Vec<u64>,
    /// Offset of the next entry.
    pub(super) next: u64,
    /// Entries by offset, with their times.
    pub(super) entries: BTreeMap<u64, KeptEntry>,
    bytes: usize,
    /// Newest offset of each key, of topics that conflate.
    keys: HashMap<Bytes, u64>,
    /// Entries with a publication id, by offset, with their times: entries of a batch may share one.
    pub(super) ids: BTreeMap<u64, (u64, Bytes)>,
    /// Time of the newest entry that was removed.
    pub(super) floor_time: u64,
}

/// Topics of a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentIndex {
    pub(super) topics: HashMap<Topic, SegmentTopic>,
    /// Time of the newest entry with a publication id.
    pub(super) id_time: u64,
}

/// A topic of a segment.
#[derive(Debug)]
pub(super) struct SegmentTopic {
    /// Epoch in which its entries were written.
    pub(super) epoch: u64,
    /// Offsets of its entries, in the order of the segment: those that were published, and those that were copied.
    pub(super) ranges: SmallVec<[Range<u64>; 1]>,
}

/// Ranges of one topic in a segment; further offsets extend the last one.
const RANGES_MAX: usize = 64;

impl SegmentIndex {
    /// Notes an entry of the segment.
    pub(super) fn add(&mut self, topic: &Topic, position: Position, time: u64, has_id: bool) {
        let Position { epoch, offset } = position;
        if has_id {
            self.id_time = self.id_time.max(time);
        }
        let known = match self.topics.get_mut(topic) {
            Some(known) if known.epoch == epoch => known,
            _ => {
                let new = SegmentTopic { epoch, ranges: SmallVec::new() };
                self.topics.insert(topic.clone(), new);
                let Some(known) = self.topics.get_mut(topic) else { return };
                known
            }
        };
        let count = known.ranges.len();
        match known.ranges.last_mut() {
            Some(last) if last.end == offset => last.end = offset + 1,
            Some(last) if count >= RANGES_MAX => {
                *last = last.start.min(offset)..last.end.max(offset + 1);
            }
            _ => known.ranges.push(offset..offset + 1),
        }
    }
}

impl Replay {
    /// Adds a record of a segment.
    pub(super) fn add(
        &mut self,
        record: Record,
        segment: &mut SegmentIndex,
        options: impl Fn(&str) -> TopicOptions,
        limits: &Limits,
    ) {
        match record {
            Record::Entry(record) => {
                self.time = self.time.max(record.time);
                let known = self.topics.get_mut(&record.topic);
                let is_durable = match &known {
                    Some(known) => known.options.is_durable(),
                    None => options(record.topic.name()).is_durable(),
                };
                if !is_durable {
                    self.ignored += 1;
                    return;
                }
                segment.add(&record.topic, record.position, record.time, record.entry.id().is_some());
                let topic = record.topic.clone();
                let new = || ReplayedTopic::new(options(topic.name()), record.position.epoch);
                let topic = self.topics.entry(topic.clone()).or_insert_with(new);
                topic.add(record, limits);
            }
            Record::Topic(SavedTopic { topic, next }) => {
                let options = options(topic.name());
                if options.is_durable() {
                    let known = self.topics.entry(topic);
                    known.or_insert_with(|| ReplayedTopic::new(options, next.epoch)).renew(next);
                }
            }
            Record::Cursor(_) | Record::End(_) => {}
        }
    }

    /// Adds the position of a topic that was saved outside of the segments; returns whether the segments have lost
    /// entries before it.
    pub(super) fn add_saved(&mut self, saved: &SavedTopic, options: TopicOptions) -> bool {
        if !options.is_durable() {
            return false;
        }
        let SavedTopic { topic, next } = saved;
        let new = || ReplayedTopic::new(options, next.epoch);
        let known = self.topics.entry(topic.clone()).or_insert_with(new);
        if known.epoch() != next.epoch || known.next >= next.offset {
            return false;
        }
        let has_lost = !known.entries.is_empty();
        known.next = next.offset;
        has_lost
    }
}

impl ReplayedTopic {
    fn new(options: TopicOptions, epoch: u64) -> ReplayedTopic {
        ReplayedTopic {
            options,
            epochs: vec![epoch],
            next: 1,
            entries: BTreeMap::new(),
            bytes: 0,
            keys: HashMap::new(),
            ids: BTreeMap::new(),
            floor_time: 0,
        }
    }

    pub(super) fn options(&self) -> &TopicOptions {
        &self.options
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epochs.last().copied().unwrap_or_default()
    }

    /// Returns whether entries with this epoch are in the topic.
    pub(super) fn has_epoch(&self, epoch: u64) -> bool {
        self.epochs.contains(&epoch)
    }

    /// Continues in another epoch with the entries of this one.
    pub(super) fn renew(&mut self, next: Position) {
        if !self.has_epoch(next.epoch) {
            self.epochs.push(next.epoch);
        }
        self.next = self.next.max(next.offset);
    }

    /// Returns whether the topic has an entry that its history keeps, or a publication id within the window.
    pub(super) fn is_used(&self, dedup_window: Duration, now: u64) -> bool {
        let age_max = self.options.kept().age_max;
        // Offsets before times: the clock of the machine may have been set back.
        let mut newest = 0;
        let has_entry = self.entries.values().any(|(_, time, entry)| {
            newest = newest.max(*time);
            clock::after(newest, age_max) >= now && !entry.is_expired(now)
        });
        has_entry || self.ids.values().any(|(time, _)| clock::after(*time, dedup_window) > now)
    }

    fn add(&mut self, record: EntryRecord, limits: &Limits) {
        let EntryRecord { position: Position { epoch, offset }, time, entry, .. } = record;
        if !self.has_epoch(epoch) {
            // The topic was removed, and created again.
            *self = ReplayedTopic::new(self.options, epoch);
        }
        self.next = self.next.max(offset + 1);
        if let Some(id) = entry.id() {
            self.ids.insert(offset, (time, id.clone()));
            if self.ids.len() > limits.dedup_ids_max {
                self.ids.pop_first();
            }
        }
        if self.options.conflates()
            && let Some(key) = entry.key()
        {
            let newest = self.keys.entry(key.clone()).or_insert(offset);
            match offset.cmp(newest) {
                std::cmp::Ordering::Less => return,
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => {
                    let replaced = std::mem::replace(newest, offset);
                    self.remove(replaced);
                }
            }
        }
        self.bytes += entry.charged_bytes();
        if let Some((_, _, known)) = self.entries.insert(offset, (offset, time, entry)) {
            self.bytes -= known.charged_bytes();
        }
        self.trim();
    }

    fn remove(&mut self, offset: u64) {
        if let Some((_, _, entry)) = self.entries.remove(&offset) {
            self.bytes -= entry.charged_bytes();
        }
    }

    /// Removes the entries that the history does not keep.
    fn trim(&mut self) {
        let history = *self.options.kept();
        while self.entries.len() > history.entries_max || self.bytes > history.bytes_max {
            let Some((offset, (_, time, entry))) = self.entries.pop_first() else { return };
            self.bytes -= entry.charged_bytes();
            self.floor_time = self.floor_time.max(time);
            if self.options.conflates()
                && let Some(key) = entry.key()
                && self.keys.get(key) == Some(&offset)
            {
                self.keys.remove(key);
            }
        }
    }
}
