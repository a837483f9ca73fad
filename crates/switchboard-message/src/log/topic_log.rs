//! Log of one topic, and the publication ids that it remembers.

use super::{GapReason, Position, Topic, TopicOptions, ring::Ring};
use crate::limits::Limits;
use foldhash::quality::RandomState;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::Notify;

/// A topic: its ring, the cursor sets on it, and its counters.
#[derive(Debug)]
pub(super) struct TopicLog {
    pub(super) topic: Topic,
    pub(super) epoch: u64,
    pub(super) options: TopicOptions,
    pub(super) ring: Ring,
    /// Cursor sets on the topic.
    pub(super) cursors: u32,
    /// Durable cursors on the topic without a member. They keep the log, not its entries.
    pub(super) parked: u32,
    /// Entries that have an offset, and are on their way to the files.
    pub(super) staged: u32,
    /// Sets whose cursor has read every entry.
    pub(super) idle: Vec<u32>,
    /// Sets of groups.
    pub(super) groups: Vec<u32>,
    ids: Option<Box<RecentIds>>,
    /// Publishers that wait for the slowest cursor.
    room: Option<Arc<Notify>>,
    pub(super) published: u64,
    pub(super) duplicates: u64,
    /// Missing entries of all subscriptions, by reason.
    missing: [u64; GapReason::ALL.len()],
}

/// Counters of a topic.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicStats {
    /// Entries in the log.
    pub entries: usize,
    /// Bytes of these entries, with about 128 per entry for the log itself, and of the publication ids that the topic
    /// remembers, with about 96 per id.
    pub bytes: usize,
    /// Cursors: subscriptions and groups.
    pub cursors: usize,
    /// Appended entries.
    pub published: u64,
    /// Publications that were not appended because their id was known.
    pub duplicates: u64,
    /// Entries that a newer one of their key replaced.
    pub conflated: u64,
    /// Entries that subscriptions missed because the history no longer contained them, or because they expired.
    pub expired: u64,
    /// Entries that subscriptions missed because they were too slow.
    pub lagged: u64,
    /// Position of the newest entry; its offset is 0 before the first one.
    pub head: Position,
}

impl TopicLog {
    pub(super) fn new(topic: Topic, epoch: u64, options: TopicOptions, limits: &Limits) -> TopicLog {
        TopicLog {
            topic,
            epoch,
            options,
            ring: Ring::new(options, limits.backlog_entries_max, limits.backlog_bytes_max),
            cursors: 0,
            parked: 0,
            staged: 0,
            idle: Vec::new(),
            groups: Vec::new(),
            ids: None,
            room: None,
            published: 0,
            duplicates: 0,
            missing: [0; GapReason::ALL.len()],
        }
    }

    /// Returns whether the topic holds nothing, so that it can be removed.
    pub(super) fn is_unused(&self) -> bool {
        self.cursors == 0
            && self.parked == 0
            && self.staged == 0
            && self.ring.len() == 0
            && self.ids.is_none()
    }

    /// Returns the bytes of the entries, and of the publication ids.
    pub(super) fn bytes(&self) -> usize {
        self.ring.bytes() + self.ids.as_ref().map_or(0, |ids| ids.bytes)
    }

    /// Returns whether the topic holds nothing but cursors that have read everything. A topic with a history is kept:
    /// subscriptions may continue after its positions.
    pub(super) fn has_idle_cursors_alone(&self) -> bool {
        let is_idle = self.cursors > 0 && self.idle.len() == self.cursors as usize;
        let holds = self.parked > 0 || self.staged > 0 || self.ring.len() > 0 || self.ids.is_some();
        is_idle && !holds && self.options.history.entries_max == 0
    }

    /// Returns the notification of publishers that wait.
    pub(super) fn room(&mut self) -> Arc<Notify> {
        self.room.get_or_insert_with(Arc::default).clone()
    }

    /// Returns the same if publishers may wait.
    pub(super) fn waiting_room(&self) -> Option<Arc<Notify>> {
        self.room.clone()
    }

    /// Counts a gap.
    pub(super) fn count_missing(&mut self, reason: GapReason, entries: u64) {
        if let Some(index) = GapReason::ALL.iter().position(|known| *known == reason) {
            // A position from outside may be any number.
            self.missing[index] = self.missing[index].saturating_add(entries);
        }
    }

    /// Returns the missing entries of all subscriptions, by reason.
    pub(super) fn missing(&self) -> impl Iterator<Item = (GapReason, u64)> {
        GapReason::ALL.into_iter().zip(self.missing)
    }

    /// Returns the offset of the entry that had this publication id within the window.
    pub(super) fn offset_of_id(&mut self, id: &[u8], now: u64, limits: &Limits) -> Option<u64> {
        self.forget_ids(now, limits);
        self.ids.as_ref()?.offsets.get(id).copied()
    }

    pub(super) fn remember_id(&mut self, id: &[u8], offset: u64, now: u64, limits: &Limits) {
        if limits.dedup_ids_max == 0 {
            return;
        }
        let ids = self.ids.get_or_insert_default();
        if ids.order.len() >= limits.dedup_ids_max {
            ids.forget_oldest();
        }
        // The window outlives the entry: a copy, so that the id does not keep its message alive.
        let id: Arc<[u8]> = id.into();
        ids.bytes += id_bytes(id.len());
        ids.order.push_back((now, id.clone()));
        ids.offsets.insert(id, offset);
    }

    /// Removes an id whose entry was not appended.
    pub(super) fn forget_id(&mut self, id: &[u8]) {
        let Some(ids) = &mut self.ids else { return };
        if ids.offsets.remove(id).is_some() {
            ids.order.retain(|(_, known)| **known != *id);
            ids.bytes -= id_bytes(id.len());
        }
        if ids.order.is_empty() {
            self.ids = None;
        }
    }

    /// Removes the ids whose window has passed.
    pub(super) fn forget_ids(&mut self, now: u64, limits: &Limits) {
        let Some(ids) = &mut self.ids else { return };
        let window = u64::try_from(limits.dedup_window.as_nanos()).unwrap_or(u64::MAX);
        while ids.order.front().is_some_and(|(time, _)| time.saturating_add(window) <= now) {
            ids.forget_oldest();
        }
        if ids.order.is_empty() {
            self.ids = None;
        }
    }

    pub(super) fn stats(&self) -> TopicStats {
        let count =
            |wanted| self.missing().find(|(reason, _)| *reason == wanted).map_or(0, |(_, count)| count);
        TopicStats {
            entries: self.ring.len(),
            bytes: self.bytes(),
            cursors: self.cursors as usize,
            published: self.published,
            duplicates: self.duplicates,
            conflated: self.ring.conflated,
            expired: count(GapReason::Expired),
            lagged: count(GapReason::Lagged),
            head: Position { epoch: self.epoch, offset: self.ring.next_offset().saturating_sub(1) },
        }
    }
}

/// Publication ids within the window.
#[derive(Debug, Default)]
struct RecentIds {
    offsets: HashMap<Arc<[u8]>, u64, RandomState>,
    /// With the times of their publications.
    order: VecDeque<(u64, Arc<[u8]>)>,
    /// Charged bytes of all ids.
    bytes: usize,
}

/// Memory of a publication id beside its bytes: reference counts, and its places in the map and in the order.
const ID_BYTES: usize = 96;

/// Returns the memory that a log charges for a publication id of this length.
pub(super) fn id_bytes(length: usize) -> usize {
    ID_BYTES + length
}

impl RecentIds {
    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.order.pop_front() {
            self.offsets.remove(&id);
            self.bytes -= id_bytes(id.len());
        }
    }
}
