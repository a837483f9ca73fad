//! How many retries a channel may send: a part of its calls, so that a fleet in trouble does not get more of them than
//! one that is well.

use std::sync::{Mutex, PoisonError};

/// Retries of the last seconds against calls of the last seconds.
#[derive(Debug)]
pub(in super::super) struct Budget {
    /// Retries for 100 calls.
    percent: u32,
    /// Retries a second that are allowed however few calls there are.
    floor: u32,
    window: Mutex<Window>,
}

/// What is counted is forgotten after one to two of these.
const SLOT_NS: u64 = 5_000_000_000;

#[derive(Debug, Default)]
struct Window {
    slot: u64,
    /// Calls of the channel in all, when this slot and the one before it began.
    calls_at: [u64; 2],
    /// Retries in this slot and in the one before it.
    spent: [u64; 2],
}

impl Budget {
    pub(in super::super) fn new(percent: u32, floor: u32) -> Budget {
        Budget { percent, floor, window: Mutex::default() }
    }

    /// Whether one more retry may be sent, which then counts. `calls` have been sent by now in all, retries included.
    pub(in super::super) fn spend(&self, calls: u64, now_ns: u64) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = now_ns / SLOT_NS;
        match slot.saturating_sub(window.slot) {
            0 => {}
            1 => {
                window.calls_at = [calls, window.calls_at[0]];
                window.spent = [0, window.spent[0]];
            }
            // Of the calls since the last retry nobody knows when they were.
            _ => *window = Window { slot, calls_at: [calls, calls], spent: [0, 0] },
        }
        window.slot = slot;
        let spent = window.spent[0] + window.spent[1];
        let fresh = calls.saturating_sub(window.calls_at[1]).saturating_sub(spent);
        let seconds = 2 * SLOT_NS / 1_000_000_000;
        let allowed = fresh * u64::from(self.percent) / 100 + u64::from(self.floor) * seconds;
        let may = spent < allowed;
        window.spent[0] += u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_alone_is_ten_seconds_worth() {
        let budget = Budget::new(10, 3);
        let spent = (0..100).filter(|_| budget.spend(0, SLOT_NS)).count();
        assert_eq!(spent, 30);
        assert!(!budget.spend(0, 2 * SLOT_NS), "they are remembered");
        assert!(budget.spend(0, 4 * SLOT_NS), "and forgotten");
    }

    #[test]
    fn retries_are_a_part_of_the_calls() {
        let budget = Budget::new(10, 0);
        let (mut calls, mut retries) = (0, 0);
        // Every call fails; a retry is a call, too.
        for at in 0..100_000u64 {
            calls += 1;
            if budget.spend(calls, at * 1_000_000) {
                calls += 1;
                retries += 1;
            }
        }
        assert!((8_000..=10_000).contains(&retries), "{retries}");
    }

    #[test]
    fn nothing_is_nothing() {
        let budget = Budget::new(0, 0);
        assert!(!(0..1000).any(|call| budget.spend(call, call)));
    }
}
