//! What a seed decides.

use crate::balance::mix;
use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Numbers that follow from a seed.
pub(super) struct Chance(AtomicU64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(AtomicU64::new(mix(seed ^ 0x5EED)))
    }

    /// Another sequence, for somebody whose turns must not move those of others.
    pub(super) fn child(&self) -> Chance {
        Chance::new(self.next())
    }

    pub(super) fn next(&self) -> u64 {
        mix(self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
    }

    pub(super) fn within(&self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    pub(super) fn millis(&self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// True in so many of 100 cases.
    pub(super) fn percent(&self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(super) fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }
}
