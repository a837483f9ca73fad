//! Entries of one log, and the number of cursors that have not read each of them.

use super::{Entry, TopicOptions, member::Removed};
use foldhash::quality::RandomState;
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    time::Duration,
};

/// Entries of a log in the order of their offsets.
///
/// An entry is removed at the front only, when the history does not keep it and no cursor needs it, or when the backlog
/// is full; and anywhere, when a newer entry of its key replaces it. Invariant: `readers` of a slot is the number of
/// attached cursors whose next offset is not behind it.
#[derive(Debug)]
pub(super) struct Ring {
    slots: VecDeque<Slot>,
    /// Slots with an entry.
    live: usize,
    /// Charged bytes of the entries.
    bytes: usize,
    /// Offset of the next entry.
    next: u64,
    /// No entry from this offset on was removed at the front.
    floor: u64,
    /// Time and sequence number of the newest entry that was removed at the front.
    floor_time: u64,
    floor_sequence: u64,
    /// Time of the newest entry. Publishers read the clock before they have the lock.
    last_time: u64,
    /// Newest offset of each key. Copies: the key of an entry may keep its message alive, and outlives the entry here.
    keys: HashMap<Box<[u8]>, u64, RandomState>,
    /// Entries that have a newer one of their key.
    superseded: usize,
    /// Entries that a newer one of their key replaced.
    pub(super) conflated: u64,
    /// Limits, from the topic's options.
    backlog_entries_max: usize,
    backlog_bytes_max: usize,
    options: TopicOptions,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) offset: u64,
    pub(super) sequence: u64,
    /// Time of the append.
    pub(super) time: u64,
    /// Cursors that have not read the entry.
    readers: u32,
    /// `None` after a newer entry of the key replaced it.
    pub(super) entry: Option<Entry>,
}

/// Replaced entries at least this many are removed from the ring when they are the majority.
const REPLACED_MIN: usize = 32;

impl Ring {
    pub(super) fn new(options: TopicOptions, backlog_entries_max: usize, backlog_bytes_max: usize) -> Ring {
        Ring {
            slots: VecDeque::new(),
            live: 0,
            bytes: 0,
            next: 1,
            floor: 1,
            floor_time: 0,
            floor_sequence: 0,
            last_time: 0,
            keys: HashMap::default(),
            superseded: 0,
            conflated: 0,
            backlog_entries_max: options.backlog_entries_max.unwrap_or(backlog_entries_max).max(1),
            backlog_bytes_max: options.backlog_bytes_max.unwrap_or(backlog_bytes_max),
            options,
        }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Returns the number of entries that some cursor has not read, with those that a newer one of their key replaced.
    pub(super) fn unread(&self) -> u64 {
        (self.slots.len() - self.slots.partition_point(|slot| slot.readers == 0)) as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next_offset(&self) -> u64 {
        self.next
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns whether an entry that was published at this time or later was removed at the front.
    pub(super) fn has_lost_since(&self, time: u64) -> bool {
        self.floor > 1 && self.floor_time >= time
    }

    /// Returns whether an entry behind this sequence number was removed at the front.
    pub(super) fn has_lost_after(&self, sequence: u64) -> bool {
        self.floor_sequence > sequence
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.options.is_keyed()
    }

    /// Returns the number of entries that can be appended before a publisher has to wait.
    pub(super) fn credit(&self) -> usize {
        let unread = self.slots.iter().rev().filter(|slot| slot.entry.is_some());
        let unread = unread.take_while(|slot| slot.readers > 0).take(self.limit());
        let bytes_of = |slot: &Slot| slot.entry.as_ref().map_or(0, Entry::charged_bytes);
        let (entries, bytes) =
            unread.fold((0, 0), |(entries, bytes), slot| (entries + 1, bytes + bytes_of(slot)));
        if entries > 0 && bytes >= self.bytes_limit() { 0 } else { self.limit() - entries }
    }

    /// Returns whether appending these entries would remove one that a cursor needs.
    pub(super) fn must_wait(&self, entries: usize, bytes: usize) -> bool {
        let mut live = self.live.saturating_add(entries);
        let mut bytes = self.bytes.saturating_add(bytes);
        // Entries of the history that all cursors have read are removed first.
        for slot in &self.slots {
            let Some(entry) = &slot.entry else { continue };
            if live <= self.limit() && bytes <= self.bytes_limit() {
                return false;
            }
            if slot.readers > 0 {
                return true;
            }
            live -= 1;
            bytes = bytes.saturating_sub(entry.charged_bytes());
        }
        false
    }

    /// Returns whether these entries do not fit into an empty ring.
    pub(super) fn exceeds_backlog(&self, entries: usize, bytes: usize) -> bool {
        entries > self.limit() || (entries > 1 && bytes > self.bytes_limit())
    }

    fn limit(&self) -> usize {
        self.backlog_entries_max.max(self.options.history.entries_max)
    }

    fn bytes_limit(&self) -> usize {
        let history = &self.options.history;
        self.backlog_bytes_max.max(if history.entries_max > 0 { history.bytes_max } else { 0 })
    }

    /// Appends an entry that `readers` cursors will read; returns its offset. Call [`trim`](Self::trim) afterwards.
    pub(super) fn append(
        &mut self,
        entry: Entry,
        sequence: u64,
        time: u64,
        readers: u32,
        removed: &mut Removed,
    ) -> u64 {
        let offset = self.next;
        self.next += 1;
        if self.is_keyed() {
            self.index_key(&entry, offset, removed);
        }
        self.last_time = self.last_time.max(time);
        self.live += 1;
        self.bytes += entry.charged_bytes();
        let time = self.last_time;
        self.slots.push_back(Slot { offset, sequence, time, readers, entry: Some(entry) });
        offset
    }

    /// Continues with this offset: entries before it are not in the ring. Entries that were never in it are before the
    /// floor, with this time and sequence number.
    pub(super) fn skip_to(&mut self, offset: u64, time: u64, sequence: u64) {
        self.next = self.next.max(offset);
        if self.slots.is_empty() && self.next > self.floor {
            (self.floor, self.floor_time, self.floor_sequence) = (self.next, time, sequence);
        }
    }

    /// Iterates over the entries in a range of offsets, with their offsets and times.
    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64, &Entry)> {
        let end = range.end;
        let from = self.index_of(range.start).min(self.slots.len());
        let slots = self.slots.range(from..).take_while(move |slot| slot.offset < end);
        slots.filter_map(|slot| Some((slot.offset, slot.time, slot.entry.as_ref()?)))
    }

    /// Sets the offset of the next entry; has no effect if it would be lower.
    pub(super) fn advance_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Removes all entries, and begins with this offset. Cursors have to be moved to it.
    pub(super) fn reset(&mut self, next: u64, removed: &mut Removed) {
        removed.extend(self.slots.drain(..).filter_map(|slot| slot.entry));
        self.keys.clear();
        (self.live, self.bytes, self.superseded) = (0, 0, 0);
        (self.next, self.floor) = (next, next);
    }

    fn index_key(&mut self, entry: &Entry, offset: u64, removed: &mut Removed) {
        let Some(key) = entry.key() else { return };
        let is_full = self.live >= self.limit();
        if is_full && self.superseded > 0 {
            self.remove_superseded(removed);
        }
        let Some(newest) = self.keys.get_mut(&**key) else {
            self.keys.insert(key[..].into(), offset);
            return;
        };
        let previous = std::mem::replace(newest, offset);
        if self.options.conflates || is_full {
            self.replace(previous, removed);
        } else {
            self.superseded += 1;
        }
    }

    /// Removes an entry whose key has a newer one.
    fn replace(&mut self, offset: u64, removed: &mut Removed) {
        let index = self.index_of(offset);
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.offset == offset) else { return };
        if let Some(entry) = slot.entry.take() {
            self.live -= 1;
            self.bytes -= entry.charged_bytes();
            self.conflated += 1;
            removed.push(entry);
        }
        let replaced = self.slots.len() - self.live;
        if replaced >= REPLACED_MIN && replaced > self.live {
            self.slots.retain(|slot| slot.entry.is_some());
        }
    }

    fn remove_superseded(&mut self, removed: &mut Removed) {
        let Ring { slots, keys, live, bytes, conflated, .. } = self;
        slots.retain_mut(|slot| {
            let Some(entry) = &slot.entry else { return false };
            let newest = entry.key().and_then(|key| keys.get(&**key));
            if newest.is_none_or(|newest| *newest == slot.offset) {
                return true;
            }
            *live -= 1;
            *bytes -= entry.charged_bytes();
            *conflated += 1;
            removed.extend(slot.entry.take());
            false
        });
        self.superseded = 0;
    }

    /// Removes entries at the front that neither the history nor a cursor keeps, and those that a full backlog does not
    /// keep.
    pub(super) fn trim(&mut self, now: u64, removed: &mut Removed) {
        while let Some(front) = self.slots.front() {
            let Some(entry) = &front.entry else {
                self.slots.pop_front();
                continue;
            };
            let (is_read, time) = (front.readers == 0, front.time);
            let is_history = self.is_in_history(time, now) && !(is_read && entry.is_expired(now));
            let is_backlog =
                !is_read && self.live <= self.limit() && (self.live == 1 || self.bytes <= self.bytes_limit());
            if is_history || is_backlog {
                return;
            }
            self.pop(removed);
        }
        if self.slots.is_empty() && self.slots.capacity() > KEPT_SLOTS_MAX {
            self.slots = VecDeque::new();
        }
    }

    fn is_in_history(&self, time: u64, now: u64) -> bool {
        let history = &self.options.history;
        self.live <= history.entries_max
            && self.bytes <= history.bytes_max
            && Duration::from_nanos(now.saturating_sub(time)) <= history.age_max
    }

    fn pop(&mut self, removed: &mut Removed) {
        let Some(slot) = self.slots.pop_front() else { return };
        let Some(entry) = slot.entry else { return };
        self.live -= 1;
        self.bytes -= entry.charged_bytes();
        if let Some(key) = entry.key().filter(|_| self.options.is_keyed()) {
            if self.keys.get(&**key) == Some(&slot.offset) {
                self.keys.remove(&**key);
            } else {
                // Its newer entry is still in the ring: nothing is missing.
                self.superseded = self.superseded.saturating_sub(1);
                self.conflated += 1;
                removed.push(entry);
                return;
            }
        }
        removed.push(entry);
        self.floor = slot.offset + 1;
        self.floor_time = slot.time;
        self.floor_sequence = slot.sequence;
    }

    /// Returns the index of the first slot whose offset is not before this one.
    fn index_of(&self, offset: u64) -> usize {
        let Some(front) = self.slots.front() else { return 0 };
        // Without replaced entries the offsets are dense.
        let guess = offset.saturating_sub(front.offset) as usize;
        match self.slots.get(guess) {
            Some(slot) if slot.offset == offset => guess,
            _ => self.slots.partition_point(|slot| slot.offset < offset),
        }
    }

    /// Returns the first entry from this offset on.
    pub(super) fn first_from(&self, offset: u64) -> Option<&Slot> {
        let index = self.index_of(offset);
        self.slots.range(index.min(self.slots.len())..).find(|slot| slot.entry.is_some())
    }

    /// Notes that a cursor moves from `from` to `to`, behind the entry before `to`.
    pub(super) fn advance(&mut self, from: u64, to: u64) {
        let index = self.index_of(from);
        for slot in self.slots.range_mut(index.min(self.slots.len())..) {
            if slot.offset >= to {
                return;
            }
            slot.readers = slot.readers.saturating_sub(1);
        }
    }

    /// Notes that a cursor begins at this offset.
    pub(super) fn attach(&mut self, offset: u64) {
        let index = self.index_of(offset);
        self.slots.range_mut(index.min(self.slots.len())..).for_each(|slot| slot.readers += 1);
    }

    /// Returns the offset of the `entries`-th last entry.
    pub(super) fn last(&self, entries: usize) -> u64 {
        if entries == 0 {
            return self.next;
        }
        let live = self.slots.iter().rev().filter(|slot| slot.entry.is_some());
        live.take(entries).last().map_or(self.next, |slot| slot.offset)
    }

    /// Returns the offset of the first entry behind this sequence number.
    pub(super) fn after_sequence(&self, sequence: u64) -> u64 {
        let index = self.slots.partition_point(|slot| slot.sequence <= sequence);
        self.slots.get(index).map_or(self.next, |slot| slot.offset)
    }

    /// Returns the offset of the first entry that was published at this time or later.
    pub(super) fn since(&self, time: u64) -> u64 {
        let index = self.slots.partition_point(|slot| slot.time < time);
        self.slots.get(index).map_or(self.next, |slot| slot.offset)
    }
}

/// Slots that an empty ring keeps for later entries.
const KEPT_SLOTS_MAX: usize = 64;
