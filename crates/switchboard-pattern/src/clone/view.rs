//! Copy of the table at a client: snapshots and updates in the order of their numbers. Reads no clock, has no socket.

use super::{CloneLimits, frames::Update};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct View {
    entries: BTreeMap<String, Bytes>,
    bytes: usize,
    sequence: u64,
    subtree: String,
    limits: CloneLimits,
}

/// Difference between the copy before and after.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Change {
    pub key: String,
    /// `None` for a deleted key.
    pub value: Option<Bytes>,
}

/// Outcome of an update.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    /// Applied; without a change if the value was deleted before.
    Applied(Option<Change>),
    /// Its number is not above that of the last one.
    Old,
    /// Updates before it were lost.
    Gap,
}

/// A snapshot that is being received.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    entries: BTreeMap<String, Bytes>,
    bytes: usize,
}

impl Snapshot {
    /// Adds an entry.
    ///
    /// # Errors
    /// Returns the limit that the snapshot exceeds.
    pub(super) fn add(&mut self, update: Update, limits: &CloneLimits) -> Result<(), String> {
        insert(&mut self.entries, &mut self.bytes, update.key, update.value, limits)
    }
}

impl View {
    pub(super) fn new(subtree: String, limits: CloneLimits) -> View {
        View { entries: BTreeMap::new(), bytes: 0, sequence: 0, subtree, limits }
    }

    /// Replaces the copy by a snapshot; returns the differences.
    pub(super) fn replace(&mut self, snapshot: Snapshot, sequence: u64) -> Vec<Change> {
        let before = std::mem::replace(&mut self.entries, snapshot.entries);
        (self.bytes, self.sequence) = (snapshot.bytes, sequence);
        let deleted = before.keys().filter(|key| !self.entries.contains_key(*key));
        let deleted = deleted.map(|key| Change { key: key.clone(), value: None });
        let updated = self.entries.iter().filter(|(key, value)| before.get(*key) != Some(value));
        let updated = updated.map(|(key, value)| Change { key: key.clone(), value: Some(value.clone()) });
        deleted.chain(updated).collect()
    }

    /// Applies an update. Only a copy of the whole table sees each number, and notices lost ones.
    ///
    /// # Errors
    /// Returns the limit that the copy exceeds.
    pub(super) fn apply(&mut self, update: Update) -> Result<Outcome, String> {
        if update.sequence <= self.sequence {
            return Ok(Outcome::Old);
        }
        if self.subtree.is_empty() && update.sequence > self.sequence + 1 {
            return Ok(Outcome::Gap);
        }
        self.sequence = update.sequence;
        if !update.key.starts_with(&self.subtree) {
            return Ok(Outcome::Applied(None));
        }
        if update.value.is_empty() {
            let Some((key, value)) = self.entries.remove_entry(&update.key) else {
                return Ok(Outcome::Applied(None));
            };
            self.bytes -= key.len() + value.len();
            return Ok(Outcome::Applied(Some(Change { key, value: None })));
        }
        let change = Change { key: update.key.clone(), value: Some(update.value.clone()) };
        insert(&mut self.entries, &mut self.bytes, update.key, update.value, &self.limits)?;
        Ok(Outcome::Applied(Some(change)))
    }

    pub(super) fn value(&self, key: &str) -> Option<Bytes> {
        self.entries.get(key).cloned()
    }

    pub(super) fn entries(&self) -> BTreeMap<String, Bytes> {
        self.entries.clone()
    }

    /// Returns the number of entries, their bytes, and the number of the last update.
    pub(super) fn size(&self) -> (usize, usize, u64) {
        (self.entries.len(), self.bytes, self.sequence)
    }
}

fn insert(
    entries: &mut BTreeMap<String, Bytes>,
    bytes: &mut usize,
    key: String,
    value: Bytes,
    limits: &CloneLimits,
) -> Result<(), String> {
    let (key_bytes, value_bytes) = (key.len(), value.len());
    let replaced = entries.get(&key).map(Bytes::len);
    if replaced.is_none() && entries.len() >= limits.entries_max {
        return Err(format!("the server has more than entries_max={} entries", limits.entries_max));
    }
    let after = *bytes + value_bytes + key_bytes - replaced.map_or(0, |value| value + key_bytes);
    if after > limits.bytes_max {
        return Err(format!("the entries of the server have more than bytes_max={} bytes", limits.bytes_max));
    }
    *bytes = after;
    entries.insert(key, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clone::frames::Properties;

    fn update(key: &str, sequence: u64, value: &str) -> Update {
        let (id, properties) = (Bytes::new(), Properties::default());
        Update { key: key.to_owned(), sequence, id, properties, value: value.to_owned().into() }
    }

    fn change(key: &str, value: Option<&str>) -> Change {
        Change { key: key.to_owned(), value: value.map(|value| value.to_owned().into()) }
    }

    fn snapshot(entries: &[(&str, &str)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (key, value) in entries {
            snapshot.add(update(key, 0, value), &CloneLimits::default()).unwrap();
        }
        snapshot
    }

    #[test]
    fn updates_after_the_snapshot_are_applied_once_and_a_lost_one_is_noticed() {
        let mut view = View::new(String::new(), CloneLimits::default());
        view.replace(snapshot(&[("a", "1")]), 5);
        assert_eq!(view.apply(update("a", 5, "old")), Ok(Outcome::Old));
        assert_eq!(view.apply(update("b", 6, "2")), Ok(Outcome::Applied(Some(change("b", Some("2"))))));
        assert_eq!(view.apply(update("b", 6, "3")), Ok(Outcome::Old));
        assert_eq!(view.apply(update("c", 8, "3")), Ok(Outcome::Gap));
        assert_eq!(view.apply(update("a", 7, "")), Ok(Outcome::Applied(Some(change("a", None)))));
        assert_eq!(view.apply(update("a", 8, "")), Ok(Outcome::Applied(None)));
        assert_eq!(view.size(), (1, 2, 8));
    }

    #[test]
    fn a_subtree_has_holes_in_its_numbers() {
        let mut view = View::new("/a/".to_owned(), CloneLimits::default());
        assert!(matches!(view.apply(update("/a/x", 9, "1")), Ok(Outcome::Applied(Some(_)))));
        assert_eq!(view.apply(update("/b/x", 10, "1")), Ok(Outcome::Applied(None)));
        assert_eq!(view.size().0, 1);
    }

    #[test]
    fn a_snapshot_reports_the_differences() {
        let mut view = View::new(String::new(), CloneLimits::default());
        view.replace(snapshot(&[("same", "1"), ("changed", "1"), ("gone", "1")]), 9);
        let changes = view.replace(snapshot(&[("same", "1"), ("changed", "2"), ("new", "1")]), 3);
        let expected = [change("gone", None), change("changed", Some("2")), change("new", Some("1"))];
        assert_eq!((&changes[..], view.size().2), (&expected[..], 3));
    }

    #[test]
    fn a_server_with_more_than_the_limit_is_refused() {
        let limits = CloneLimits { entries_max: 1, bytes_max: 5, ..CloneLimits::default() };
        let mut filling = Snapshot::default();
        filling.add(update("a", 0, "1"), &limits).unwrap();
        filling.add(update("a", 0, "1234"), &limits).unwrap();
        assert!(filling.add(update("a", 0, "12345"), &limits).unwrap_err().contains("bytes_max=5"));
        assert!(filling.add(update("b", 0, "1"), &limits).unwrap_err().contains("entries_max=1"));
    }
}
