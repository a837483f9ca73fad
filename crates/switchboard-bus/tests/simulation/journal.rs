//! Entries of a run, which received ones are compared with.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};
use switchboard_message::{Gap, GapReason, Position};

/// Entries that the history of each class of topics keeps.
pub(crate) const LONG: usize = 100_000;
pub(crate) const SHORT: usize = 12;

/// A log: its topic and its epoch.
pub(crate) type LogName = (String, u64);

#[derive(Default)]
struct State {
    /// Values by position: those that a publisher knows to be accepted, and those that a receiver has received.
    values: HashMap<(LogName, u64), u64>,
    /// Positions of each value: one in each log at most.
    positions: HashMap<(LogName, u64), u64>,
    /// Values that were accepted, with their positions.
    accepted: Vec<(LogName, u64)>,
    heads: HashMap<LogName, u64>,
}

/// The entries of a run.
#[derive(Default)]
pub(crate) struct Journal(Mutex<State>);

impl Journal {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A publisher knows the position of its value.
    pub(crate) fn accepted(&self, topic: &str, position: Position, value: u64) {
        self.seen(topic, position, value);
        self.lock().accepted.push(((topic.to_owned(), position.epoch), position.offset));
    }

    /// A client saw a value at a position: it is the only one there, and nowhere else in the log.
    pub(crate) fn seen(&self, topic: &str, position: Position, value: u64) {
        let log = (topic.to_owned(), position.epoch);
        let mut state = self.lock();
        let known = *state.values.entry((log.clone(), position.offset)).or_insert(value);
        assert_eq!(known, value, "two entries at {position} of {topic}");
        let offset = *state.positions.entry((log.clone(), value)).or_insert(position.offset);
        assert_eq!(offset, position.offset, "value {value} was appended to {topic} twice");
        let head = state.heads.entry(log).or_default();
        *head = position.offset.max(*head);
    }

    /// Checks that the reason explains the range, `head` being the newest offset of the log if it exists.
    pub(crate) fn check_gap(&self, gap: &Gap, head: Option<u64>) {
        let name = gap.topic.name();
        assert!(gap.range.start <= gap.range.end, "{gap}");
        match gap.reason {
            GapReason::Expired | GapReason::Lagged => {
                assert!(gap.range.start < gap.range.end, "an empty gap: {gap}");
                assert!(!name.starts_with("long/"), "within the history: {gap}");
                if let Some(missing) = gap.missing {
                    assert!(missing <= gap.range.end - gap.range.start, "{gap}");
                }
                let head = head.unwrap_or(u64::MAX);
                assert!(
                    gap.range.end <= head.saturating_add(1),
                    "entries that do not exist, head {head}: {gap}"
                );
                if name.starts_with("short/") {
                    // Each missing entry is older than the history.
                    assert!(gap.range.end + SHORT as u64 <= head.saturating_add(1), "head {head}: {gap}");
                }
            }
            GapReason::Epoch => {}
            reason => panic!("{reason}: {gap}"),
        }
    }

    /// Returns the accepted entries of a log, in no order.
    pub(crate) fn accepted_in(&self, topic: &str, epoch: u64) -> Vec<u64> {
        let state = self.lock();
        let of_log = state.accepted.iter().filter(|((name, of), _)| name == topic && *of == epoch);
        of_log.map(|(_, offset)| *offset).collect()
    }

    pub(crate) fn accepted_count(&self) -> u64 {
        self.lock().accepted.len() as u64
    }
}
