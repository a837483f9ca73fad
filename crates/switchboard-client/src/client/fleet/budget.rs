//! Retry budget of a channel: retries are limited to a percentage of its calls, so that an overloaded fleet does not
//! get more load from them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Retries and calls of the last seconds.
#[derive(Debug)]
pub(in super::super) struct Budget {
    /// Retries per 100 calls.
    percent: u32,
    /// Retries per second that are always allowed.
    floor: u32,
    window: Mutex<Window>,
}

/// Duration of a slot; counts expire after one to two of these.
const SLOT_NS: u64 = 5_000_000_000;

#[derive(Debug, Default)]
struct Window {
    slot: u64,
    /// Total calls of the channel at the start of this slot and of the one before it.
    calls_at: [u64; 2],
    /// Retries in this slot and in the one before it.
    spent: [u64; 2],
}

impl Budget {
    pub(in super::super) fn new(percent: u32, floor: u32, now_ns: u64) -> Budget {
        let window = Window { slot: now_ns / SLOT_NS, ..Window::default() };
        Budget { percent, floor, window: Mutex::new(window) }
    }

    /// Returns the number of retries that may be sent now.
    pub(super) fn left(&self, calls: u64, now_ns: u64) -> u64 {
        let window = self.turned(calls, now_ns);
        self.allowed(&window, calls).saturating_sub(window.spent[0] + window.spent[1])
    }

    /// Takes one retry from the budget; returns false when none is left. `calls` is the total number of calls sent so
    /// far, retries included.
    pub(in super::super) fn spend(&self, calls: u64, now_ns: u64) -> bool {
        let mut window = self.turned(calls, now_ns);
        let may = window.spent[0] + window.spent[1] < self.allowed(&window, calls);
        window.spent[0] += u64::from(may);
        may
    }

    /// Returns the window, advanced to this time.
    fn turned(&self, calls: u64, now_ns: u64) -> MutexGuard<'_, Window> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = now_ns / SLOT_NS;
        match slot.saturating_sub(window.slot) {
            0 => {}
            1 => {
                window.calls_at = [calls, window.calls_at[0]];
                window.spent = [0, window.spent[0]];
            }
            // There was no call to this function for several slots: the calls since then are distributed evenly.
            slots => {
                let each = calls.saturating_sub(window.calls_at[0]) / slots;
                *window = Window { slot, calls_at: [calls, calls.saturating_sub(each)], spent: [0, 0] };
            }
        }
        window.slot = slot.max(window.slot);
        window
    }

    fn allowed(&self, window: &Window, calls: u64) -> u64 {
        let spent = window.spent[0] + window.spent[1];
        let fresh = calls.saturating_sub(window.calls_at[1]).saturating_sub(spent);
        let seconds = 2 * SLOT_NS / 1_000_000_000;
        fresh * u64::from(self.percent) / 100 + u64::from(self.floor) * seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_alone_allows_ten_seconds_of_retries() {
        let budget = Budget::new(10, 3, 0);
        let spent = (0..100).filter(|_| budget.spend(0, SLOT_NS)).count();
        assert_eq!(spent, 30);
        assert!(!budget.spend(0, 2 * SLOT_NS), "the retries still count");
        assert!(budget.spend(0, 4 * SLOT_NS), "the retries have expired");
    }

    #[test]
    fn retries_are_a_percentage_of_the_calls() {
        let budget = Budget::new(10, 0, 0);
        let (mut calls, mut retries) = (0, 0);
        // Every call fails; a retry counts as a call.
        for at in 0..100_000u64 {
            calls += 1;
            if budget.spend(calls, at * 1_000_000) {
                calls += 1;
                retries += 1;
            }
        }
        assert!((8_000..=10_000).contains(&retries), "{retries}");
    }

    /// A healthy fleet loses a server: its calls in flight are retried at once.
    #[test]
    fn calls_without_a_failure_count_too() {
        let budget = Budget::new(10, 10, SLOT_NS);
        let (seconds, a_second) = (300, 1000);
        let (mut calls, now) = (seconds * a_second, SLOT_NS + seconds * 1_000_000_000);
        // A tenth of the calls of one slot, and the floor.
        assert_eq!(budget.left(calls, now), 5 * a_second / 10 + 100);
        for _ in 0..1000 {
            calls += u64::from(budget.spend(calls, now));
        }
        assert_eq!(calls, seconds * a_second + 600);
        let left = budget.left(calls, now + 3600 * 1_000_000_000);
        assert!(left <= 101, "{left}: calls of an hour ago do not count");
    }

    #[test]
    fn a_budget_of_zero_allows_no_retry() {
        let budget = Budget::new(0, 0, 0);
        assert!(!(0..1000).any(|call| budget.spend(call, call)));
    }
}
