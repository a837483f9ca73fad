//! The dynamic table (RFC 7541, section 2.3.2): the last fields that were indexed, oldest evicted first.

use super::{FIELD_OVERHEAD, Field, HpackError, statics};
use std::collections::VecDeque;

/// Fields of one direction of a connection.
///
/// Names and values are in one buffer, oldest first. Bytes of evicted fields are removed from its front when they are
/// as many as the table may hold, so each byte is moved once at most.
#[derive(Debug)]
pub(super) struct Table<T = ()> {
    entries: VecDeque<Entry<T>>,
    bytes: Vec<u8>,
    /// Number of bytes at the front of `bytes` that belong to evicted fields.
    evicted: usize,
    /// Size of the fields, each with its overhead.
    size: usize,
    size_max: usize,
    /// Number of changes: an index that was found at one generation may have another field at the next.
    generation: u64,
}

/// Lengths of one field, and what its user has decoded from it.
#[derive(Debug)]
struct Entry<T> {
    /// Where it begins, counted from the first byte after the evicted ones of the current buffer.
    at: usize,
    name: u32,
    value: u32,
    decoded: T,
}

impl<T> Entry<T> {
    fn len(&self) -> usize {
        self.name as usize + self.value as usize
    }
}

impl<T> Table<T> {
    pub(super) fn new(size_max: usize) -> Table<T> {
        Table { entries: VecDeque::new(), bytes: Vec::new(), evicted: 0, size: 0, size_max, generation: 0 }
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Changes the largest size; evicts what no longer fits.
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(size_max);
    }

    /// Returns the field with an index of the static or the dynamic table.
    pub(super) fn get(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        match statics::FIELDS.get(index.wrapping_sub(1)) {
            Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
            None => Ok(self.parts(self.entry(index).ok_or(HpackError::Index(index))?)),
        }
    }

    /// Returns what was decoded from the field with this index of the dynamic table, and the size of the field.
    #[inline]
    pub(super) fn decoded(&self, index: usize) -> Option<(&T, usize)> {
        let entry = self.entry(index)?;
        Some((&entry.decoded, entry.len() + FIELD_OVERHEAD))
    }

    /// Returns the entry with an index of the dynamic table; the newest has the lowest index.
    #[inline]
    fn entry(&self, index: usize) -> Option<&Entry<T>> {
        let age = index.checked_sub(statics::FIELDS.len() + 1)?;
        self.entries.get(self.entries.len().checked_sub(age + 1)?)
    }

    fn parts(&self, entry: &Entry<T>) -> (&[u8], &[u8]) {
        self.bytes[entry.at..entry.at + entry.len()].split_at(entry.name as usize)
    }

    /// Returns the index of the field, or of its name with false.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
        let fixed = statics::FIELDS.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let dynamic = self.entries.iter().rev().map(|entry| self.parts(entry));
        let mut named = None;
        for (place, (known, its_value)) in fixed.chain(dynamic).enumerate() {
            if known == name {
                if its_value == value {
                    return Some((place + 1, true));
                }
                named = named.or(Some((place + 1, false)));
            }
        }
        named
    }

    /// Returns true if the field fits without eviction.
    pub(super) fn has_room(&self, field: &Field<'_>) -> bool {
        self.size + field.size() <= self.size_max
    }

    /// Inserts a field. One that is larger than the table empties it, which is no error (RFC 7541, section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], decoded: T) {
        self.generation = self.generation.wrapping_add(1);
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        if size > self.size_max {
            self.evict(0);
            return;
        }
        self.evict(self.size_max - size);
        if self.evicted > self.size_max {
            self.compact();
        }
        let (at, name_len, value_len) = (self.bytes.len(), name.len() as u32, value.len() as u32);
        let entry = Entry { at, name: name_len, value: value_len, decoded };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(entry);
        self.size += size;
    }

    /// Evicts the oldest fields until the size is at most `size`.
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.len() + FIELD_OVERHEAD;
            self.evicted += entry.len();
            self.generation = self.generation.wrapping_add(1);
        }
        if self.entries.is_empty() {
            self.bytes.clear();
            self.evicted = 0;
        }
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.evicted);
        for entry in &mut self.entries {
            entry.at -= self.evicted;
        }
        self.evicted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_field_has_the_first_index_and_the_oldest_is_evicted() {
        let mut table = Table::new(100);
        table.insert(b"a", b"1", ());
        table.insert(b"b", b"2", ());
        assert_eq!(table.get(62), Ok((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(63), Ok((&b"a"[..], &b"1"[..])));
        table.insert(b"c", b"3", ());
        assert_eq!(table.get(63), Ok((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(64), Err(HpackError::Index(64)));
        assert_eq!(table.size(), 68);
        table.resize(40);
        assert_eq!((table.get(62), table.size()), (Ok((&b"c"[..], &b"3"[..])), 34));
        table.insert(b"too long", &[0; 40], ());
        assert_eq!((table.size(), table.get(62)), (0, Err(HpackError::Index(62))));
        assert_eq!(table.get(0), Err(HpackError::Index(0)));
    }

    #[test]
    fn memory_is_bounded_and_fields_are_right_however_many_are_inserted() {
        let mut table = Table::new(4096);
        let value = |at: usize| vec![at as u8; at * 7 % 300];
        for at in 0..10_000usize {
            table.insert(format!("name-{at}").as_bytes(), &value(at), ());
            assert!(table.size() <= 4096 && table.bytes.len() <= 3 * 4096);
            let oldest = at + 1 - table.entries.len();
            for known in [oldest, at] {
                let (name, found) = table.get(62 + at - known).unwrap();
                assert_eq!((name, found), (format!("name-{known}").as_bytes(), &value(known)[..]));
            }
        }
    }
}
