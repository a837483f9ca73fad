//! A table of token buckets, each kept as the time at which it is full again (GCRA).
//!
//! It has a fixed size. A bucket that is full says nothing and gives its place away. When a new key finds no such
//! place, its calls share one bucket with all that found none: whoever invents keys to escape a rate gets one rate for
//! all of them, and the keys that are known keep theirs.
//!
//! A call of a key that has a bucket costs one exchange of a word; only one of a new key takes a lock. When a bucket
//! changes hands its time becomes later than what its owner before had seen, so an exchange that succeeds was of the
//! owner that was seen after the time had been read. Only where tokens were given back can a time come about again, to
//! the nanosecond, while a thread stands still between the two; then one token is the wrong key's.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// A fixed number of buckets in sets of a few.
pub(super) struct Buckets {
    sets: Vec<Set>,
    /// For keys that found no place.
    strangers: Bucket,
}

#[derive(Default)]
struct Set {
    buckets: [Bucket; WAYS],
    /// Held by whoever gives a bucket to another key.
    moving: Mutex<()>,
}

#[derive(Default)]
struct Bucket {
    key: AtomicU64,
    /// When it is full, in nanoseconds since the beginning; [`MOVING`] while it changes hands.
    full_at: AtomicU64,
}

const WAYS: usize = 8;
const MOVING: u64 = u64::MAX;

impl Buckets {
    pub(super) fn new(keys: u32) -> Buckets {
        let sets = (keys as usize).div_ceil(WAYS);
        Buckets { sets: (0..sets).map(|_| Set::default()).collect(), strangers: Bucket::default() }
    }

    /// Takes a token, and those that are wanted more, or says in how many nanoseconds there is one. Says how many more.
    #[inline]
    pub(super) fn take(&self, want: Want) -> Result<u32, u64> {
        let set = self.set(want.key);
        let known = set.buckets.iter().find(|bucket| bucket.key.load(Ordering::Relaxed) == want.key);
        known.and_then(|bucket| bucket.take(want)).unwrap_or_else(|| self.take_moved(set, want))
    }

    /// The same for a key that had no bucket just now.
    #[cold]
    fn take_moved(&self, set: &Set, want: Want) -> Result<u32, u64> {
        // Nothing moves under this lock but by it.
        let moving = set.moving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = set.buckets.iter().find_map(|bucket| bucket.take(want)) {
            return taken;
        }
        if set.buckets.iter().any(|bucket| bucket.move_to(want)) {
            return Ok(0);
        }
        drop(moving);
        // Theirs is never moved.
        self.strangers.take(Want { key: 0, more: 0, ..want }).unwrap_or(Ok(0))
    }

    /// Gives back so many nanoseconds' worth of tokens that a key took a moment ago.
    pub(super) fn give_back(&self, key: u64, worth: u64) {
        for bucket in &self.set(key).buckets {
            bucket.give_back(key, worth);
        }
    }

    fn set(&self, key: u64) -> &Set {
        // The upper bits choose, without a division.
        &self.sets[((u128::from(key) * self.sets.len() as u128) >> 64) as usize]
    }
}

/// Whose token is wanted, and at what rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) key: u64,
    /// Nanoseconds since the beginning.
    pub(super) now: u64,
    /// Nanoseconds from one token to the next, and how far they may run ahead of that.
    pub(super) interval: u64,
    pub(super) ahead: u64,
    /// Tokens that are wanted besides from a bucket that stays more than half full.
    pub(super) more: u32,
}

impl Bucket {
    /// As for all of them; none if the bucket is not this key's.
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

    /// Does nothing if the bucket is not this key's.
    fn give_back(&self, key: u64, worth: u64) {
        let mut seen = self.full_at.load(Ordering::Acquire);
        while seen != MOVING && self.key.load(Ordering::Acquire) == key {
            let next = seen.saturating_sub(worth);
            match self.full_at.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Gives it to another key, which takes its first token, if it is full; only for who holds the lock of its set.
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

/// When a bucket is full that would have been at `full_at`, had nobody taken a token.
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
        // Buckets that are full again make room.
        assert!(take(5000, 9 * SECOND).is_ok());
        let keys = buckets.sets[0].buckets.iter().map(|bucket| bucket.key.load(Ordering::Relaxed));
        assert_eq!(keys.filter(|key| *key == 5000).count(), 1);
    }

    #[test]
    fn tokens_that_threads_take_at_once_are_counted_once() {
        // More keys than places: buckets change hands all the while. Each is full again a nanosecond later, so at each
        // time there are a token of each bucket and one of the strangers', and a key gets one at most.
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
    fn tokens_taken_ahead_are_counted_and_can_be_given_back() {
        let buckets = Buckets::new(8);
        let take = |key, more| buckets.take(Want { key, now: 7, interval: 10, ahead: 990, more });
        // The first needs no bucket, and finds one.
        assert_eq!(take(1, 40), Ok(0));
        assert_eq!(take(1, 40), Ok(40));
        assert_eq!(take(1, 40), Ok(0), "less than half would be left");
        buckets.give_back(1, 400);
        buckets.give_back(2, 400);
        assert_eq!(take(1, 40), Ok(40));
        let left = (0..).take_while(|_| take(1, 40).is_ok()).count();
        assert_eq!(4 + 40 + left, 100);
    }
}
