//! Pseudo-random numbers of a run.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use switchboard_core::clock::mix;

/// Numbers that follow from a seed.
pub(super) struct Random(AtomicU64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(AtomicU64::new(mix(seed ^ 0x5EED)))
    }

    /// Creates another sequence, for a part of the run whose draws must not shift those of other parts.
    pub(super) fn child(&self) -> Random {
        Random::new(self.next())
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

    /// Returns true in `percent` of 100 cases.
    pub(super) fn percent(&self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(super) fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }
}
