//! Rates by key.

use foldhash::quality::RandomState;
use std::{
    hash::{BuildHasher, Hash},
    time::{Duration, Instant},
};
use switchboard_core::{
    buckets::{Buckets, Want},
    clock,
};

/// Keys that are counted separately; further ones share a bucket.
const KEYS_MAX: u32 = 8_192;

/// A number of events per second for each key, with bursts of one second.
#[derive(Debug)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    interval: u64,
    burst: u64,
    buckets: Buckets,
    secret: RandomState,
    began: Instant,
}

impl Rate {
    /// Creates a rate. Numbers that are no rate count as the smallest: one event in 1,000 seconds.
    pub(crate) fn new(per_second: f64, keys: u32) -> Rate {
        let per_second = if per_second.is_finite() { per_second.max(0.001) } else { 1e9 };
        let interval = ((1e9 / per_second) as u64).max(1);
        let burst = per_second.clamp(1.0, f64::from(u32::MAX)) as u64;
        let (buckets, secret) = (Buckets::new(keys.min(KEYS_MAX)), RandomState::default());
        Rate { per_second, interval, burst, buckets, secret, began: clock::now() }
    }

    /// Takes this many events of a key.
    ///
    /// # Errors
    /// The time until they are allowed; the maximum for more events than a burst has.
    pub(crate) fn take(&self, key: impl Hash, events: usize) -> Result<(), Duration> {
        let Some(more) = (events as u64).checked_sub(1) else { return Ok(()) };
        if more >= self.burst {
            return Err(Duration::MAX);
        }
        let now = u64::try_from(clock::since(self.began).as_nanos()).unwrap_or(u64::MAX);
        let want = Want {
            key: self.secret.hash_one(key),
            now,
            interval: self.interval.saturating_mul(more + 1),
            ahead: self.interval.saturating_mul(self.burst - 1 - more),
            more: 0,
        };
        self.buckets.take(want).map(drop).map_err(Duration::from_nanos)
    }
}

/// A rate of one device, in 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnRate {
    /// Time at which all events of a burst are allowed again, in nanoseconds.
    full_at: u64,
}

impl OwnRate {
    /// Takes an event.
    ///
    /// # Errors
    /// The time until it is allowed.
    pub(crate) fn take(&mut self, per_second: f64) -> Result<(), Duration> {
        if !per_second.is_finite() {
            return Ok(());
        }
        let interval = (1e9 / per_second.max(0.001)) as u64;
        let ahead = ((per_second.max(1.0) - 1.0) * interval as f64) as u64;
        let now = clock::now_ns();
        let full_at = self.full_at.max(now);
        if full_at - now > ahead {
            return Err(Duration::from_nanos(full_at - now - ahead));
        }
        self.full_at = full_at.saturating_add(interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_and_then_the_rate() {
        // The clock of the process may begin after the paused one.
        clock::now_ns();
        tokio::time::advance(Duration::from_secs(60)).await;
        let (rate, mut own) = (Rate::new(10.0, 16), OwnRate::default());
        for _ in 0..10 {
            assert!(rate.take("a", 1).is_ok() && own.take(10.0).is_ok());
        }
        assert!(rate.take("a", 1).is_err() && own.take(10.0).is_err());
        assert!(rate.take("b", 10).is_ok() && rate.take("b", 1).is_err());
        assert_eq!(rate.take("c", 11), Err(Duration::MAX));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(rate.take("a", 1).is_ok() && own.take(10.0).is_ok());
        assert!(rate.take("a", 1).is_err() && own.take(10.0).is_err());
    }
}
