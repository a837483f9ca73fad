//! Latency histogram with four buckets per power of two, so that a percentile is off by at most an eighth.
//!
//! The first bucket ends at 32 ns; the last, from 120 s on, is open. Powers of two of 1.024 us are bucket
//! bounds, because [`MethodStats::latency`](super::MethodStats::latency) and Prometheus use them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Size of the unit: 2^5 nanoseconds.
const UNIT_BITS: u32 = 5;
/// Buckets per power of two, as a power of two.
const STEP_BITS: u32 = 2;
/// Number of powers of two of the unit, after the first values that have a bucket each.
const POWERS: usize = 31;
/// Number of buckets: 124 cells of eight bytes.
pub(super) const BUCKETS: usize = POWERS << STEP_BITS;

/// Buckets of one method on one wire of one worker.
pub(super) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    #[inline]
    pub(super) fn add(&self, nanoseconds: u64, count: u64) {
        self.0[bucket(nanoseconds)].fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn add_to(&self, latency: &mut Latency) {
        for (sum, cell) in latency.counts.iter_mut().zip(&self.0) {
            *sum += cell.load(Ordering::Relaxed);
        }
    }
}

#[inline]
fn bucket(nanoseconds: u64) -> usize {
    let units = nanoseconds >> UNIT_BITS;
    if units < 1 << STEP_BITS {
        return units as usize;
    }
    let power = 63 - units.leading_zeros();
    let step = (units >> (power - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    ((((power - STEP_BITS + 1) << STEP_BITS) as usize) + step as usize).min(BUCKETS - 1)
}

/// Returns the exclusive upper bound of a bucket in nanoseconds.
fn end(bucket: usize) -> u64 {
    let (power, step) = (bucket >> STEP_BITS, bucket as u64 & ((1 << STEP_BITS) - 1));
    let units = match power {
        0 => step + 1,
        _ => ((1 << STEP_BITS) + step + 1) << (power - 1),
    };
    units << UNIT_BITS
}

/// Distribution of call durations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Latency {
    counts: Vec<u64>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: vec![0; BUCKETS] }
    }
}

impl Latency {
    /// Returns the duration within which this fraction of the calls ended: 0.5 for the median, 0.99 for the
    /// 99th percentile. It is off by at most an eighth; 137 s means any duration beyond the last bound. Zero
    /// without calls.
    pub fn quantile(&self, part: f64) -> Duration {
        let total = self.count();
        let rank = ((total as f64 * part.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            if below + count >= rank {
                let start = if at == 0 { 0 } else { end(at - 1) };
                // Calls of one bucket are assumed to be distributed evenly.
                let within = (rank - below) as f64 / *count as f64;
                return Duration::from_nanos(start + ((end(at) - start) as f64 * within) as u64);
            }
            below += count;
        }
        Duration::ZERO
    }

    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the upper bounds of all buckets but the open last one, with the number of calls below each.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut sum = 0;
        self.counts[..BUCKETS - 1].iter().enumerate().map(move |(at, count)| {
            sum += count;
            (Duration::from_nanos(end(at)), sum)
        })
    }

    /// Adds the calls of `other`.
    pub fn merge(&mut self, other: &Latency) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
    }

    /// Returns the counts by powers of two of 1.024 us: entry n counts calls below the nth that are not
    /// counted in an earlier entry.
    pub(super) fn by_powers(&self, entries: usize) -> Vec<u64> {
        let mut powers = vec![0; entries];
        for (at, count) in self.counts.iter().enumerate() {
            let microseconds = end(at).div_ceil(1024);
            let power = microseconds.next_power_of_two().trailing_zeros() as usize;
            powers[power.min(entries - 1)] += count;
        }
        powers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket_and_bounds_grow() {
        let mut last = 0;
        for at in 0..BUCKETS {
            assert!(end(at) > last, "bucket {at}");
            assert_eq!(bucket(last), at, "{last} ns is the first of bucket {at}");
            assert_eq!(bucket(end(at) - 1), at);
            last = end(at);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(end(BUCKETS - 1) > 130_000_000_000, "{last}");
    }

    #[test]
    fn quantiles_are_an_eighth_off_at_most() {
        let histogram = Histogram::default();
        for microseconds in 1..=10_000 {
            histogram.add(microseconds * 1000, 1);
        }
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), Duration::ZERO);
        histogram.add_to(&mut latency);
        assert_eq!(latency.count(), 10_000);
        for (part, expected) in [(0.0, 1.0), (0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0), (1.0, 10_000.0)]
        {
            let found = latency.quantile(part).as_secs_f64() * 1e6;
            assert!((found / expected - 1.0).abs() < 0.125, "{part}: {found} us");
        }
    }

    #[test]
    fn powers_of_two_are_sums_of_whole_buckets() {
        let histogram = Histogram::default();
        for (nanoseconds, count) in [(10, 1), (1023, 2), (1024, 4), (2047, 8), (2048, 16), (u64::MAX, 32)] {
            histogram.add(nanoseconds, count);
        }
        let mut latency = Latency::default();
        histogram.add_to(&mut latency);
        let powers = latency.by_powers(28);
        assert_eq!((powers[0], powers[1], powers[2], powers[27]), (3, 12, 16, 32));
        let below_2048 = latency.cumulative().find(|(end, _)| end.as_nanos() == 2048).unwrap();
        assert_eq!(below_2048.1, 15);
    }
}
