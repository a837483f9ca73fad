//! Table of a server: keys, values, sequence numbers, and times to live. Reads no clock.

use super::{
    CloneLimits,
    frames::{Properties, Update},
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    time::{Duration, Instant},
};
use switchboard_core::clock;

/// Time for which the table remembers the UUID of an update, to recognise repeated ones.
const ID_TIME: Duration = Duration::from_secs(60);
/// UUIDs that it remembers: the time is shorter above 17,000 updates a second.
const IDS_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Table {
    entries: BTreeMap<String, Entry>,
    expiries: BTreeSet<(Instant, String)>,
    ids: HashSet<u128>,
    ids_by_age: VecDeque<(Instant, u128)>,
    sequence: u64,
    bytes: usize,
    limits: CloneLimits,
}

#[derive(Debug)]
struct Entry {
    value: Bytes,
    sequence: u64,
    expires: Option<Instant>,
}

/// An update that is to be published.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Applied {
    New(Update),
    /// The present value of a key, for an update that was applied before: its sender awaits the UUID.
    Repeated(Update),
}

impl Table {
    pub(super) fn new(limits: CloneLimits) -> Table {
        Table {
            entries: BTreeMap::new(),
            expiries: BTreeSet::new(),
            ids: HashSet::new(),
            ids_by_age: VecDeque::new(),
            sequence: 0,
            bytes: 0,
            limits,
        }
    }

    /// Applies an update of a client, and numbers it.
    ///
    /// # Errors
    /// Returns the limit that the update exceeds.
    pub(super) fn apply(&mut self, mut update: Update, now: Instant) -> Result<Applied, String> {
        let id = (&*update.id).try_into().ok().map(u128::from_be_bytes);
        if id.is_some_and(|id| self.ids.contains(&id)) {
            let value = self.value(&update.key).unwrap_or_default();
            self.sequence += 1;
            let update =
                Update { sequence: self.sequence, properties: Properties::default(), value, ..update };
            return Ok(Applied::Repeated(update));
        }
        self.check(&update)?;
        self.remember(id, now);
        self.sequence += 1;
        update.sequence = self.sequence;
        self.remove(&update.key);
        if !update.value.is_empty() {
            let expires = update.properties.ttl().map(|ttl| clock::after(now, ttl));
            self.bytes += update.key.len() + update.value.len();
            self.expiries.extend(expires.map(|at| (at, update.key.clone())));
            let entry = Entry { value: update.value.clone(), sequence: self.sequence, expires };
            self.entries.insert(update.key.clone(), entry);
        }
        Ok(Applied::New(update))
    }

    fn check(&self, update: &Update) -> Result<(), String> {
        if update.value.is_empty() {
            return Ok(());
        }
        let known = self.entries.get(&update.key);
        let CloneLimits { bytes_max, entries_max, .. } = self.limits;
        if known.is_none() && self.entries.len() >= entries_max {
            return Err(format!("the table has {entries_max} entries, the limit entries_max"));
        }
        let replaced = known.map_or(0, |entry| update.key.len() + entry.value.len());
        if self.bytes - replaced + update.key.len() + update.value.len() > bytes_max {
            return Err(format!("the table would have more than bytes_max={bytes_max} bytes"));
        }
        Ok(())
    }

    fn remember(&mut self, id: Option<u128>, now: Instant) {
        while let Some((time, oldest)) = self.ids_by_age.front()
            && (self.ids_by_age.len() >= IDS_MAX || now.saturating_duration_since(*time) >= ID_TIME)
        {
            self.ids.remove(oldest);
            self.ids_by_age.pop_front();
        }
        if let Some(id) = id {
            self.ids.insert(id);
            self.ids_by_age.push_back((now, id));
        }
    }

    fn remove(&mut self, key: &str) -> bool {
        let Some((key, entry)) = self.entries.remove_entry(key) else { return false };
        self.bytes -= key.len() + entry.value.len();
        if let Some(expires) = entry.expires {
            self.expiries.remove(&(expires, key));
        }
        true
    }

    /// Removes a value whose time to live has passed; returns the update that deletes it.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Update> {
        let (at, key) = self.expiries.first().filter(|(at, _)| *at <= now)?.clone();
        self.expiries.remove(&(at, key.clone()));
        self.remove(&key);
        self.sequence += 1;
        let (sequence, properties) = (self.sequence, Properties::default());
        Some(Update { key, sequence, id: Bytes::new(), properties, value: Bytes::new() })
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Returns the entries of a subtree with their sequence numbers, and the number of the last update.
    pub(super) fn snapshot(&self, subtree: &str) -> (Vec<(String, u64, Bytes)>, u64) {
        let entries = self.entries.range(subtree.to_owned()..);
        let entries = entries.take_while(|(key, _)| key.starts_with(subtree));
        let entries = entries.map(|(key, entry)| (key.clone(), entry.sequence, entry.value.clone()));
        (entries.collect(), self.sequence)
    }

    pub(super) fn value(&self, key: &str) -> Option<Bytes> {
        self.entries.get(key).map(|entry| entry.value.clone())
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Returns the number of entries, their bytes, and the number of the last update.
    pub(super) fn size(&self) -> (usize, usize, u64) {
        (self.entries.len(), self.bytes, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(key: &str, value: &str, id: u8, ttl: Option<u64>) -> Update {
        Update {
            key: key.to_owned(),
            sequence: 99,
            id: vec![id; 16].into(),
            properties: Properties::with_ttl(ttl.map(Duration::from_secs)),
            value: value.to_owned().into(),
        }
    }

    fn new(applied: Result<Applied, String>) -> u64 {
        match applied {
            Ok(Applied::New(update)) => update.sequence,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn updates_are_numbered_and_snapshots_have_their_subtree() {
        let (mut table, now) = (Table::new(CloneLimits::default()), Instant::now());
        for (number, key) in (1..).zip(["/a/1", "/a/2", "/b/1"]) {
            assert_eq!(new(table.apply(update(key, "v", number as u8, None), now)), number);
        }
        assert_eq!(new(table.apply(update("/a/1", "", 4, None), now)), 4);
        let (entries, sequence) = table.snapshot("/a/");
        assert_eq!((entries, sequence), (vec![("/a/2".to_owned(), 2, Bytes::from("v"))], 4));
        assert_eq!(table.snapshot("").0.len(), 2);
    }

    #[test]
    fn a_repeated_update_states_the_present_value_and_changes_nothing() {
        let (mut table, now) = (Table::new(CloneLimits::default()), Instant::now());
        new(table.apply(update("k", "first", 1, None), now));
        new(table.apply(update("k", "second", 2, None), now));
        let repeated = table.apply(update("k", "first", 1, None), now).unwrap();
        let Applied::Repeated(repeated) = repeated else { panic!("{repeated:?}") };
        assert_eq!((&*repeated.value, repeated.sequence, repeated.id[0]), (&b"second"[..], 3, 1));
        assert_eq!(table.value("k").unwrap(), "second");
    }

    #[test]
    fn values_end_with_their_time_to_live_unless_they_are_set_again() {
        let (mut table, now) = (Table::new(CloneLimits::default()), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        new(table.apply(update("short", "v", 1, Some(1)), now));
        new(table.apply(update("renewed", "v", 2, Some(1)), now));
        new(table.apply(update("renewed", "v", 3, Some(5)), now));
        new(table.apply(update("kept", "v", 4, Some(1)), now));
        new(table.apply(update("kept", "v", 5, None), now));
        assert_eq!(table.expire(now), None);
        let expired = table.expire(after(2)).unwrap();
        assert_eq!((&*expired.key, expired.value.len(), expired.sequence), ("short", 0, 6));
        assert_eq!((table.expire(after(2)), table.next_expiry()), (None, Some(after(5))));
        assert_eq!(table.keys(), ["kept", "renewed"]);
    }

    #[test]
    fn entries_and_bytes_are_limited_and_a_value_may_be_replaced_at_the_limit() {
        let limits = CloneLimits { entries_max: 2, bytes_max: 8, ..CloneLimits::default() };
        let (mut table, now) = (Table::new(limits), Instant::now());
        new(table.apply(update("a", "xyz", 1, None), now));
        new(table.apply(update("b", "xyz", 2, None), now));
        new(table.apply(update("b", "abc", 3, None), now));
        assert!(table.apply(update("c", "v", 4, None), now).unwrap_err().contains("entries_max"));
        assert!(table.apply(update("b", "vwxyz", 5, None), now).unwrap_err().contains("bytes_max=8"));
        new(table.apply(update("c", "", 6, None), now));
        assert_eq!(table.size(), (2, 8, 4));
    }

    #[test]
    fn identifiers_are_forgotten_after_their_time() {
        let (mut table, start) = (Table::new(CloneLimits::default()), Instant::now());
        let repeated = |applied| matches!(applied, Ok(Applied::Repeated(_)));
        new(table.apply(update("k", "1", 1, None), start));
        new(table.apply(update("k", "2", 2, None), start + ID_TIME / 2));
        assert!(repeated(table.apply(update("k", "1", 1, None), start + ID_TIME / 4 * 3)));
        new(table.apply(update("k", "3", 3, None), start + ID_TIME));
        assert!(repeated(table.apply(update("k", "2", 2, None), start + ID_TIME)));
        new(table.apply(update("k", "1", 1, None), start + ID_TIME));
        assert_eq!((table.ids.len(), table.ids_by_age.len()), (3, 3));
    }

    #[test]
    fn any_updates_keep_the_limits_and_the_indexes_agree() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = CloneLimits { entries_max: 5, bytes_max: 60, ..CloneLimits::default() };
            let (mut table, start) = (Table::new(limits), Instant::now());
            let (mut now, mut last) = (start, 0);
            for number in 0..400_u64 {
                now += Duration::from_secs(random.u64(..2));
                let value = "v".repeat(random.usize(..20));
                let mut update =
                    update(&random.u8(..9).to_string(), &value, 0, random.bool().then(|| random.u64(..6)));
                update.id = Bytes::copy_from_slice(&u128::from(number / 2).to_be_bytes());
                let published: Vec<Update> = match table.apply(update, now) {
                    Ok(Applied::New(update) | Applied::Repeated(update)) => vec![update],
                    Err(_) => Vec::new(),
                };
                let expired = std::iter::from_fn(|| table.expire(now)).collect::<Vec<_>>();
                for update in published.into_iter().chain(expired) {
                    assert_eq!(update.sequence, last + 1, "seed {seed}");
                    last += 1;
                }
                let bytes: usize =
                    table.entries.iter().map(|(key, entry)| key.len() + entry.value.len()).sum();
                let timed = table.entries.values().filter(|entry| entry.expires.is_some()).count();
                assert_eq!((bytes, timed), (table.bytes, table.expiries.len()), "seed {seed}");
                assert!(table.bytes <= 60 && table.entries.len() <= 5);
            }
        }
    }
}
