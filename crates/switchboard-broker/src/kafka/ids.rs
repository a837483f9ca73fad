//! Publication ids of one partition that this process remembers.

use super::batch::Record;
use crate::record;
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Topic and id of a publication.
pub(super) type IdKey = (Bytes, Bytes);

/// Bytes of the topics and ids of one partition that are remembered.
const BYTES_MAX: usize = 32 << 20;

/// Ids of the records in a window before the newest one that was read.
#[derive(Debug, Default)]
pub(super) struct Ids {
    /// Offset of the next record to be read; `None` before the first one.
    pub(super) through: Option<i64>,
    offsets: HashMap<IdKey, i64>,
    /// In the order of their records, with times in milliseconds since 1970.
    order: VecDeque<(i64, IdKey)>,
    /// Bytes of the keys.
    bytes: usize,
}

impl Ids {
    /// Returns the offset of the record that has an id.
    pub(super) fn find(&self, key: &IdKey) -> Option<i64> {
        self.offsets.get(key).copied()
    }

    /// Notes the id of a record that was read, if it has one.
    pub(super) fn note_record(&mut self, record: &Record, ids_max: usize) {
        let Some(topic) = &record.key else { return };
        let Some(publication) = record::decode(record.value.clone(), Duration::ZERO) else { return };
        if !publication.id.is_empty() {
            // Copies: the record is a part of a response that is much larger.
            let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
            self.note((copy(topic), copy(&publication.id)), record.offset, record.timestamp, ids_max);
        }
    }

    /// Notes an id. The first record that has it counts.
    pub(super) fn note(&mut self, key: IdKey, offset: i64, time_ms: i64, ids_max: usize) {
        if self.offsets.contains_key(&key) {
            return;
        }
        self.bytes += bytes_of(&key);
        while self.offsets.len() >= ids_max || self.bytes > BYTES_MAX {
            let Some((_, oldest)) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
        self.offsets.insert(key.clone(), offset);
        self.order.push_back((time_ms, key));
    }

    /// Forgets the ids of records that are older than this time.
    pub(super) fn forget_before(&mut self, time_ms: i64) {
        let fresh = self.order.iter().position(|(time, _)| *time >= time_ms).unwrap_or(self.order.len());
        let old: Vec<_> = self.order.drain(..fresh).collect();
        old.iter().for_each(|(_, key)| self.forget(key));
    }

    fn forget(&mut self, key: &IdKey) {
        self.offsets.remove(key);
        self.bytes = self.bytes.saturating_sub(bytes_of(key));
    }
}

fn bytes_of((topic, id): &IdKey) -> usize {
    topic.len() + id.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_forgotten_by_age_and_number() {
        let key = |number: i64| (Bytes::from_static(b"topic"), Bytes::from(number.to_string()));
        let mut ids = Ids::default();
        for number in 0..5 {
            ids.note(key(number), number * 10, number, 3);
        }
        assert_eq!([1, 2, 3, 4].map(|number| ids.find(&key(number))), [None, Some(20), Some(30), Some(40)]);
        // The first record counts.
        ids.note(key(4), 99, 9, 3);
        assert_eq!(ids.find(&key(4)), Some(40));
        ids.forget_before(4);
        let large = (Bytes::from_static(b"topic"), Bytes::from(vec![0; BYTES_MAX - 11]));
        ids.note(large.clone(), 50, 5, 3);
        assert_eq!((ids.find(&key(4)), ids.find(&large)), (Some(40), Some(50)));
        ids.note(key(6), 60, 6, 9);
        assert_eq!((ids.find(&key(4)), ids.find(&large), ids.find(&key(6))), (None, Some(50), Some(60)));
        ids.note(key(4), 40, 6, 9);
        assert_eq!([3, 4].map(|number| ids.find(&key(number))), [None, Some(40)]);
    }
}
