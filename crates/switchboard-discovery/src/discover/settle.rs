//! Protection against sudden loss: decides which snapshot to publish when the registry has a new one. Never less than
//! half of the instances at once without confirmation.
//!
//! Pure: time is an argument. [`Options::confirm_after`](super::Options::confirm_after) describes the rule.

use super::{Instance, Snapshot, State};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;

/// The published instances, and those of them that are unconfirmed.
pub(super) struct Settle {
    confirm_after: Duration,
    published: BTreeMap<String, Instance>,
    /// Published although the registry does not have them, with the time of the loss.
    held: BTreeMap<String, Instant>,
    /// Instances that were lost and removed, with the time of the loss.
    lost: BTreeMap<String, Instant>,
    /// Published instances with a failed connection, with its time.
    gone: BTreeMap<String, Instant>,
    /// True when the registry has failed since the last snapshot.
    registry_failed: bool,
    /// Instances that the registry has not listed again since it failed.
    unlisted: BTreeSet<String>,
}

impl Settle {
    pub(super) fn new(confirm_after: Duration) -> Settle {
        Settle {
            confirm_after,
            published: BTreeMap::new(),
            held: BTreeMap::new(),
            lost: BTreeMap::new(),
            gone: BTreeMap::new(),
            registry_failed: false,
            unlisted: BTreeSet::new(),
        }
    }

    /// Records that the registry does not respond: when it is back, it may lack instances that have not registered
    /// again yet.
    pub(super) fn registry_failed(&mut self) {
        self.registry_failed = true;
    }

    /// Returns the snapshot to publish after the registry has delivered `snapshot`.
    pub(super) fn offer(&mut self, snapshot: Snapshot, now: Instant) -> Snapshot {
        let mut next: BTreeMap<String, Instance> =
            snapshot.instances.into_iter().map(|instance| (instance.id.clone(), instance)).collect();
        let recent = |at: &Instant| now.saturating_duration_since(*at) < self.confirm_after;
        let is_there = |id: &str| next.get(id).is_some_and(|instance| instance.state != State::Down);
        self.gone.retain(|_, at| recent(at));
        self.lost.retain(|id, at| recent(at) && !is_there(id));
        if std::mem::take(&mut self.registry_failed) {
            self.unlisted = self.up().map(str::to_owned).collect();
        }
        self.unlisted.retain(|id| !is_there(id) && self.published.contains_key(id));
        let missing: Vec<String> = self.up().filter(|id| !is_there(id)).map(str::to_owned).collect();
        let (mut stay, mut new) = (BTreeMap::new(), Vec::new());
        for id in missing.into_iter().filter(|id| !self.gone.contains_key(id)) {
            match self.held.get(&id) {
                Some(since) if recent(since) => drop(stay.insert(id, *since)),
                // It was missing for `confirm_after`.
                Some(_) => {}
                None if self.unlisted.contains(&id) => drop(stay.insert(id, now)),
                None => new.push((id, now)),
            }
        }
        let in_doubt = self.lost.len() + stay.len() + new.len();
        if self.confirm_after.is_zero() {
            stay.clear();
        }
        if self.confirm_after.is_zero() || in_doubt * 2 <= self.lost.len() + self.up().count() {
            self.lost.extend(new);
        } else {
            stay.extend(new);
        }
        self.held = stay;
        for id in self.held.keys() {
            next.extend(self.published.remove_entry(id));
        }
        self.published = next;
        self.snapshot()
    }

    /// Records that a connection to this instance failed; returns the snapshot to publish, if that changes.
    pub(super) fn confirm_gone(&mut self, id: &str, now: Instant) -> Option<Snapshot> {
        if self.held.remove(id).is_some() {
            self.published.remove(id);
            return Some(self.snapshot());
        }
        // Unknown ids are not stored, so that callers cannot exhaust memory.
        if self.published.contains_key(id) {
            self.gone.insert(id.to_owned(), now);
        }
        None
    }

    /// Records that a connection to this instance succeeded, which revokes an earlier failure.
    pub(super) fn confirm_back(&mut self, id: &str) {
        self.gone.remove(id);
    }

    /// Time when the registry must be read again because instances are held back.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held
            .values()
            .min()
            .map(|since| switchboard_core::clock::after(since.into_std(), self.confirm_after).into())
    }

    /// The ids that stay published although the registry lacks them.
    pub(super) fn held_back(&self) -> impl Iterator<Item = &str> {
        self.held.keys().map(String::as_str)
    }

    fn up(&self) -> impl Iterator<Item = &str> {
        let up = self.published.values().filter(|instance| instance.state == State::Up);
        up.map(|instance| instance.id.as_str())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { instances: self.published.values().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(10);

    /// Feeds a `Settle` with lists of ids at given seconds.
    struct Case {
        settle: Settle,
        start: Instant,
    }

    impl Case {
        fn new() -> Case {
            Case { settle: Settle::new(AFTER), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        /// Offers a snapshot after `seconds` and returns the published ids. Ids with a `-` are draining, with a `!`
        /// down.
        fn offer(&mut self, seconds: u64, ids: &str) -> String {
            let make = |id: &str| {
                let state = match id.as_bytes().last() {
                    Some(b'-') => State::Draining,
                    Some(b'!') => State::Down,
                    _ => State::Up,
                };
                Instance::new("s", "tcp://h:1").id(id.trim_end_matches(['-', '!'])).state(state)
            };
            let at = self.at(seconds);
            ids_of(&self.settle.offer(Snapshot::new(ids.split_whitespace().map(make)), at))
        }

        fn confirm(&mut self, seconds: u64, id: &str) -> Option<String> {
            let at = self.at(seconds);
            self.settle.confirm_gone(id, at).map(|snapshot| ids_of(&snapshot))
        }
    }

    fn ids_of(snapshot: &Snapshot) -> String {
        let ids: Vec<_> = snapshot.instances.iter().map(|instance| instance.id.as_str()).collect();
        ids.join(" ")
    }

    #[test]
    fn half_may_leave_and_more_than_half_are_held_back() {
        let mut case = Case::new();
        assert_eq!(case.offer(0, "a b c d"), "a b c d");
        assert_eq!(case.offer(1, "a b"), "a b");
        let mut case = Case::new();
        case.offer(0, "a b c d");
        assert_eq!(case.offer(1, "a"), "a b c d");
        assert_eq!(case.settle.held_back().collect::<Vec<_>>(), ["b", "c", "d"]);
    }

    #[test]
    fn losses_one_by_one_add_up() {
        let mut case = Case::new();
        case.offer(0, "a b c d");
        assert_eq!(case.offer(1, "a b c"), "a b c");
        assert_eq!(case.offer(2, "a b"), "a b");
        assert_eq!(case.offer(3, "a"), "a b", "three of four within ten seconds");
        assert_eq!(case.offer(13, "a"), "a");
    }

    #[test]
    fn a_reconnected_instance_is_held_back_like_the_others() {
        let mut case = Case::new();
        case.offer(0, "a b c d");
        assert_eq!(case.confirm(1, "a"), None);
        assert_eq!(case.confirm(1, "b"), None);
        case.settle.confirm_back("a");
        assert_eq!(case.offer(2, ""), "a c d", "a restarted registry has no instances");
    }

    #[test]
    fn after_an_outage_missing_instances_are_held_back() {
        let mut case = Case::new();
        case.offer(0, "a b c d");
        case.settle.registry_failed();
        assert_eq!(case.offer(1, "a b c"), "a b c d", "one of four has not registered again");
        assert_eq!(case.settle.held_back().collect::<Vec<_>>(), ["d"]);
        assert_eq!(case.offer(2, "a b d"), "a b d", "one has left");
        assert_eq!(case.settle.due(), None);
        case.settle.registry_failed();
        assert_eq!(case.offer(3, "a b"), "a b d");
        assert_eq!(case.confirm(4, "d").as_deref(), Some("a b"));
        case.settle.registry_failed();
        assert_eq!(case.offer(5, "a"), "a b");
        assert_eq!(case.offer(15, "a"), "a", "it was missing for confirm_after");
        let mut case = Case { settle: Settle::new(Duration::ZERO), start: Instant::now() };
        case.offer(0, "a b c");
        case.settle.registry_failed();
        assert_eq!(case.offer(0, "a"), "a");
    }

    #[test]
    fn old_losses_do_not_count() {
        let mut case = Case::new();
        case.offer(0, "a b c d");
        assert_eq!(case.offer(1, "a b"), "a b");
        assert_eq!(case.offer(11, "a"), "a");
    }

    #[test]
    fn time_confirms_only_with_a_snapshot() {
        let mut case = Case::new();
        case.offer(0, "a b c");
        assert_eq!(case.settle.due(), None);
        assert_eq!(case.offer(1, ""), "a b c");
        assert_eq!(case.offer(10, ""), "a b c");
        assert_eq!(case.settle.due(), Some(case.at(11)));
        assert_eq!(case.offer(11, ""), "");
        assert_eq!(case.settle.due(), None);
    }

    #[test]
    fn a_returning_instance_is_published_as_before() {
        let mut case = Case::new();
        case.offer(0, "a b c");
        case.offer(1, "");
        assert_eq!(case.offer(2, "a b"), "a b c");
        assert_eq!(case.settle.held_back().collect::<Vec<_>>(), ["c"]);
        assert_eq!(case.offer(3, "a b c"), "a b c");
        assert_eq!(case.settle.due(), None);
    }

    #[test]
    fn new_instances_are_published_while_others_are_held_back() {
        let mut case = Case::new();
        case.offer(0, "a b");
        assert_eq!(case.offer(1, "c d"), "a b c d");
        assert_eq!(case.offer(11, "c d"), "c d");
    }

    #[test]
    fn a_failed_connection_confirms_before_and_after() {
        let mut case = Case::new();
        case.offer(0, "a b c");
        assert_eq!(case.confirm(1, "a"), None, "the registry still has it");
        assert_eq!(case.offer(2, ""), "b c");
        assert_eq!(case.confirm(3, "c").as_deref(), Some("b"));
        assert_eq!(case.confirm(3, "unknown"), None);
        assert_eq!(case.offer(4, ""), "b");
    }

    #[test]
    fn an_old_failed_connection_confirms_nothing() {
        let mut case = Case::new();
        case.offer(0, "a");
        case.confirm(1, "a");
        assert_eq!(case.offer(11, ""), "a");
    }

    #[test]
    fn draining_instances_may_leave() {
        let mut case = Case::new();
        case.offer(0, "a b");
        case.offer(1, "a- b-");
        assert_eq!(case.offer(2, ""), "");
    }

    #[test]
    fn instances_that_all_go_down_are_held_back() {
        let mut case = Case::new();
        case.offer(0, "a b c");
        case.offer(1, "a! b! c!");
        let up = case.settle.published.values().filter(|instance| instance.state == State::Up).count();
        assert_eq!(up, 3);
        case.offer(11, "a! b! c!");
        let up = case.settle.published.values().filter(|instance| instance.state == State::Up).count();
        assert_eq!(up, 0);
    }

    #[test]
    fn zero_confirm_after_accepts_every_snapshot() {
        let mut case = Case { settle: Settle::new(Duration::ZERO), start: Instant::now() };
        case.offer(0, "a b c");
        assert_eq!(case.offer(0, ""), "");
    }

    /// For any snapshots within ten seconds, at least half of the maximum number of instances stays up.
    #[test]
    fn never_below_half_of_the_instances_up() {
        let mut seed = 7_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let (mut case, mut most) = (Case::new(), 0);
            for seconds in 0..10 {
                let ids: Vec<String> = (0..random(12)).map(|_| format!("i{}", random(12))).collect();
                let published = case.offer(seconds, &ids.join(" "));
                let up = published.split_whitespace().count();
                assert!(up * 2 >= most, "{published} after {most}");
                most = most.max(up);
            }
        }
    }
}
