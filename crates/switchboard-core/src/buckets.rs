//! Table of token buckets, each stored as the time at which it is full again (GCRA).
//!
//! The table has a fixed size. A full bucket carries no information and can be reassigned. If a new key finds
//! no full bucket, its calls share one overflow bucket with all such keys: a caller that invents keys to
//! escape a rate gets one rate for all of them, and existing keys keep their buckets.
//!
//! A call whose key has a bucket costs one compare-and-swap; only a new key takes a lock. When a bucket is
//! reassigned, its time becomes later than every time that its previous owner saw, so a successful exchange
//! belongs to the owner that was read after the time. Only if tokens were returned can a time recur, to the
//! nanosecond, while a thread is suspended between the two reads; then one token is charged to the wrong key.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// A fixed number of buckets in small sets.
#[derive(Debug)]
pub struct Buckets {
    sets: Vec<Set>,
    /// Overflow bucket for keys without a bucket.
    strangers: Bucket,
}

#[derive(Debug, Default)]
struct Set {
    buckets: [Bucket; WAYS],
    /// Held while a bucket of the set is reassigned.
    moving: Mutex<()>,
}

#[derive(Debug, Default)]
struct Bucket {
    key: AtomicU64,
    /// Time at which the bucket is full, in nanoseconds since the start; [`MOVING`] during a reassignment.
    full_at: AtomicU64,
}

const WAYS: usize = 8;
const MOVING: u64 = u64::MAX;

impl Buckets {
    /// Creates buckets for about this many keys.
    pub fn new(keys: u32) -> Buckets {
        let sets = (keys as usize).div_ceil(WAYS);
        Buckets { sets: (0..sets).map(|_| Set::default()).collect(), strangers: Bucket::default() }
    }

    /// Takes a token, and up to `more` further ones. Returns the number of further tokens, or the nanoseconds
    /// until a token is available.
    #[inline]
    pub fn take(&self, want: Want) -> Result<u32, u64> {
        let set = self.set(want.key);
        let known = set.buckets.iter().find(|bucket| bucket.key.load(Ordering::Relaxed) == want.key);
        known.and_then(|bucket| bucket.take(want)).unwrap_or_else(|| self.take_moved(set, want))
    }

    /// Takes a token for a key that had no bucket in the first lookup.
    #[cold]
    fn take_moved(&self, set: &Set, want: Want) -> Result<u32, u64> {
        // Buckets of the set are reassigned only under this lock.
        let moving = set.moving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = set.buckets.iter().find_map(|bucket| bucket.take(want)) {
            return taken;
        }
        if set.buckets.iter().any(|bucket| bucket.move_to(want)) {
            return Ok(0);
        }
        drop(moving);
        // The overflow bucket is never reassigned.
        self.strangers.take(Want { key: 0, more: 0, ..want }).unwrap_or(Ok(0))
    }

    /// Returns this many nanoseconds' worth of tokens, which the key took before, to its own bucket.
    pub fn return_tokens(&self, key: u64, worth: u64) -> bool {
        self.set(key).buckets.iter().any(|bucket| bucket.return_tokens(key, worth))
    }

    /// Returns the token of a call that did not run, to the bucket of its key or to the overflow bucket.
    pub fn refund(&self, key: u64, interval: u64) {
        if !self.return_tokens(key, interval) {
            self.strangers.return_tokens(0, interval);
        }
    }

    fn set(&self, key: u64) -> &Set {
        // The upper bits of the key select the set without a division.
        &self.sets[((u128::from(key) * self.sets.len() as u128) >> 64) as usize]
    }
}

/// A request for tokens: its key and its rate.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// The key.
    pub key: u64,
    /// Nanoseconds since the start.
    pub now: u64,
    /// Nanoseconds between two tokens.
    pub interval: u64,
    /// How far tokens may run ahead of the clock, in nanoseconds.
    pub ahead: u64,
    /// Further tokens to take if the bucket stays more than half full.
    pub more: u32,
}

impl Bucket {
    /// Like [`Buckets::take`]; returns `None` if the bucket does not belong to this key.
    #[inline]
    fn take(&self, want: Want) -> Option<Result<u32, u64>> {
        let Want { key, now, interval, ahead, more } = want;
        let mut seen = self.full_at.load(Ordering::Acquire);
        loop {
            if seen == MOVING || self.key.load(Ordering::Acquire) != key {
                return None;
            }
            let early = seen.saturating_sub(now);
            if early > ahead {
                return Some(Err(early - ahead));
            }
            let worth = interval.saturating_mul(u64::from(more));
            let (worth, more) = if early.saturating_add(worth) < ahead / 2 { (worth, more) } else { (0, 0) };
            let next = full_after(seen.max(now).saturating_add(worth), interval);
            match self.full_at.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Ok(more)),
                Err(other) => seen = other,
            }
        }
    }

    /// Returns false and does nothing if the bucket does not belong to this key.
    fn return_tokens(&self, key: u64, worth: u64) -> bool {
        let mut seen = self.full_at.load(Ordering::Acquire);
        while seen != MOVING && self.key.load(Ordering::Acquire) == key {
            let next = seen.saturating_sub(worth);
            match self.full_at.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
        false
    }

    /// Reassigns a full bucket to another key and takes its first token. Requires the lock of the set.
    fn move_to(&self, Want { key, now, interval, .. }: Want) -> bool {
        let seen = self.full_at.load(Ordering::Acquire);
        let moves = seen <= now
            && self.full_at.compare_exchange(seen, MOVING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if moves {
            self.key.store(key, Ordering::Release);
            self.full_at.store(full_after(now, interval), Ordering::Release);
        }
        moves
    }
}

/// Returns the time at which a bucket is full after one token is taken; it would have been full at `full_at`
/// without that.
fn full_after(full_at: u64, interval: u64) -> u64 {
    full_at.saturating_add(interval).min(MOVING - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn bucket_gives_its_burst_and_then_its_rate() {
        let buckets = Buckets::new(8);
        let (interval, ahead) = (SECOND / 10, SECOND / 10 * 4);
        let take = |key, now| buckets.take(Want { key, now, interval, ahead, more: 0 });
        for _ in 0..5 {
            take(1, 0).unwrap();
        }
        assert_eq!(take(1, 0), Err(SECOND / 10));
        take(2, 0).unwrap();
        assert_eq!(take(1, SECOND / 20), Err(SECOND / 20));
        take(1, SECOND / 10).unwrap();
        assert!(take(1, SECOND / 10).is_err());
        let mut taken = 0;
        for now in (SECOND..11 * SECOND).step_by(SECOND as usize / 1000) {
            taken += u32::from(take(1, now).is_ok());
        }
        assert!((100..=105).contains(&taken), "{taken}");
    }

    #[test]
    fn invented_keys_share_one_rate_and_leave_the_known_alone() {
        let buckets = Buckets::new(8);
        let take = |key, now| buckets.take(Want { key, now, interval: SECOND, ahead: 4 * SECOND, more: 0 });
        for key in 1..=8 {
            for _ in 0..3 {
                take(key, 0).unwrap();
            }
        }
        let strangers = (100..1100).filter(|key| take(*key, SECOND).is_ok()).count();
        assert_eq!(strangers, 5, "one bucket for all of them");
        for key in 1..=8 {
            take(key, SECOND).unwrap();
        }
        // Buckets that are full again can be reassigned.
        assert!(take(5000, 9 * SECOND).is_ok());
        let keys = buckets.sets[0].buckets.iter().map(|bucket| bucket.key.load(Ordering::Relaxed));
        assert_eq!(keys.filter(|key| *key == 5000).count(), 1);
    }

    #[test]
    fn token_of_a_call_that_did_not_run_returns_to_its_bucket() {
        let buckets = Buckets::new(8);
        let take = |key| buckets.take(Want { key, now: 0, interval: 10, ahead: 20, more: 0 });
        for key in 1..=8 {
            for _ in 0..100 {
                take(key).unwrap();
                buckets.refund(key, 10);
            }
        }
        assert_eq!((1..=8).map(|key| (0..9).filter(|_| take(key).is_ok()).count()).sum::<usize>(), 8 * 3);
        // Keys without a bucket share one.
        for key in 100..200 {
            take(key).unwrap();
            buckets.refund(key, 10);
        }
        assert_eq!((100..200).filter(|key| take(*key).is_ok()).count(), 3);
    }

    #[test]
    fn tokens_that_threads_take_at_once_are_counted_once() {
        // There are more keys than buckets, so buckets are reassigned all the time. Each is full again a
        // nanosecond later, so at any time there is one token in each bucket and one in the overflow bucket,
        // and a key gets one at most.
        let (threads, keys, times) = (4, 12, 2_000);
        let buckets = Buckets::new(8);
        let taken: Vec<AtomicU64> = (0..keys * times).map(|_| AtomicU64::new(0)).collect();
        let barrier = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (barrier, buckets, taken) = (&barrier, &buckets, &taken);
                scope.spawn(move || {
                    for now in 0..times {
                        barrier.wait();
                        for n in 0..keys {
                            let key = (n + 3 * thread) % keys;
                            let (owner, now_ns) = (key as u64 + 1, now as u64);
                            let want = Want { key: owner, now: now_ns, interval: 1, ahead: 0, more: 0 };
                            let got = u64::from(buckets.take(want).is_ok());
                            taken[now * keys + key].fetch_add(got, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        for (now, taken) in taken.chunks(keys).enumerate() {
            let taken: Vec<u64> = taken.iter().map(|taken| taken.load(Ordering::Relaxed)).collect();
            assert_eq!((taken.iter().sum::<u64>(), taken.iter().max()), (9, Some(&1)), "at {now}: {taken:?}");
        }
    }

    #[test]
    fn rates_slower_than_the_clock_counts_end() {
        let buckets = Buckets::new(8);
        let take = || buckets.take(Want { key: 1, now: 5, interval: u64::MAX, ahead: 0, more: 9 });
        assert_eq!(take(), Ok(0));
        assert_eq!(take(), Err(u64::MAX - 1 - 5));
    }

    #[test]
    fn tokens_taken_in_advance_are_counted_and_can_be_returned() {
        let buckets = Buckets::new(8);
        let take = |key, more| buckets.take(Want { key, now: 7, interval: 10, ahead: 990, more });
        // The first call has no bucket yet and gets one.
        assert_eq!(take(1, 40), Ok(0));
        assert_eq!(take(1, 40), Ok(40));
        assert_eq!(take(1, 40), Ok(0), "less than half would be left");
        assert!(buckets.return_tokens(1, 400));
        assert!(!buckets.return_tokens(2, 400));
        assert_eq!(take(1, 40), Ok(40));
        let left = (0..).take_while(|_| take(1, 40).is_ok()).count();
        assert_eq!(4 + 40 + left, 100);
    }
}
