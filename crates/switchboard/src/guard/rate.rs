//! How many calls a second: of a peer, to a method, with a value of metadata, of a caller.
//!
//! A token bucket for each key, kept as the time at which it is full again (GCRA). The table of keys has a fixed size.
//! A bucket that is full says nothing and gives its place away. When a new key finds no such place, its calls share one
//! bucket with all that found none: whoever invents keys to escape a rate gets one rate for all of them, and the keys
//! that are known keep theirs. Where a key goes depends on a secret of the process.

use super::key::Key;
use crate::{Call, Error, Flag, Result, Retry, Status};
use foldhash::quality::RandomState;
use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A rate of calls, see [`Server::rate`](crate::Server::rate).
///
/// ```
/// use switchboard::guard::Rate;
///
/// let server = switchboard::Server::new()
///     // Each address, all methods together.
///     .rate(Rate::per_second(100.0).burst(200).by_peer())
///     // Each tenant, these methods together.
///     .rate(Rate::per_second(1.0).by_metadata("tenant").methods("demo.Reports/*"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rate holds once a server has it"]
pub struct Rate {
    per_second: f64,
    burst: u32,
    /// What says both instead.
    flag: Option<Flag>,
    key: Key,
    pub(super) methods: String,
    keys_max: u32,
}

impl Rate {
    /// So many calls a second, of all callers together until a key is set.
    pub fn per_second(calls: f64) -> Rate {
        let burst = if calls >= 1.0 { calls.min(f64::from(u32::MAX)) as u32 } else { 1 };
        Rate { per_second: calls, burst, flag: None, key: Key::All, methods: "*".into(), keys_max: 8192 }
    }

    /// As many calls a second as the flag says when one comes, and as many at once after a pause; 0 is no limit.
    ///
    /// ```
    /// use switchboard::{Flag, Server, guard::Rate, limits::Unit};
    ///
    /// let calls = Flag::new("rate", Unit::Count, 100, 0..=10_000, "calls a second of each peer");
    /// let server = Server::new().flag(&calls).rate(Rate::by_flag(&calls).by_peer());
    /// ```
    pub fn by_flag(calls: &Flag) -> Rate {
        Rate { flag: Some(calls.clone()), ..Rate::per_second(1.0) }
    }

    /// How many may come at once after a pause; what comes in a second unless set, and at least one. Without effect
    /// on a rate that a flag says.
    pub fn burst(mut self, calls: u32) -> Rate {
        self.burst = calls.max(1);
        self
    }

    /// Counts the calls of each address apart; those of Unix sockets and of this process together.
    pub fn by_peer(mut self) -> Rate {
        self.key = Key::Peer;
        self
    }

    /// Counts the calls of each authenticated [caller](crate::Cx::caller) apart, and those of nobody together.
    pub fn by_caller(mut self) -> Rate {
        self.key = Key::Caller;
        self
    }

    /// Counts the calls to each method apart.
    pub fn by_method(mut self) -> Rate {
        self.key = Key::Method;
        self
    }

    /// Counts the calls with each value of this metadata apart, and those without it together. Callers choose their
    /// metadata: it is for those that can be trusted in this.
    pub fn by_metadata(mut self, name: impl Into<String>) -> Rate {
        self.key = Key::Metadata(name.into().to_ascii_lowercase());
        self
    }

    /// Counts calls to these methods only, `package.Service/Method`, in which a star stands for anything.
    pub fn methods(mut self, pattern: impl Into<String>) -> Rate {
        self.methods = pattern.into();
        self
    }

    /// Most keys that are told apart, 24 bytes each; 8192 unless set.
    pub fn keys_max(mut self, keys: u32) -> Rate {
        self.keys_max = keys.clamp(1, 1 << 22);
        self
    }
}

/// Of a second.
const NANOSECONDS: u64 = 1_000_000_000;

/// A rate in force.
pub(super) struct Limit {
    rate: Rate,
    /// Nanoseconds from one call to the next, and how far calls may run ahead of that.
    interval: u64,
    ahead: u64,
    buckets: Buckets,
    secret: RandomState,
    began: Instant,
    refused: AtomicU64,
}

impl Limit {
    /// # Errors
    /// A rate that is no positive number.
    pub(super) fn new(rate: Rate) -> Result<Limit, Error> {
        if !rate.per_second.is_finite() || rate.per_second <= 0.0 {
            let text =
                format!("rate: {} calls a second is no rate; leave it out for no limit", rate.per_second);
            return Err(Error::config(text));
        }
        let interval = ((1e9 / rate.per_second) as u64).max(1);
        let ahead = interval.saturating_mul(u64::from(rate.burst - 1));
        let keys = if matches!(rate.key, Key::All) { 1 } else { rate.keys_max };
        Ok(Limit {
            interval,
            ahead,
            buckets: Buckets::new(keys),
            secret: RandomState::default(),
            began: crate::clock::now(),
            refused: AtomicU64::new(0),
            rate,
        })
    }

    /// Takes a token for a call.
    ///
    /// # Errors
    /// `ResourceExhausted` with the time at which there is one.
    pub(super) fn take(&self, call: &Call) -> Result<()> {
        let Some((interval, ahead)) = self.pace() else { return Ok(()) };
        let now = call.cx().arrived().saturating_duration_since(self.began).as_nanos() as u64;
        match self.buckets.take(self.rate.key.of(call.cx(), &self.secret), now, interval, ahead) {
            Ok(()) => Ok(()),
            Err(pause) => Err(self.refuse(pause)),
        }
    }

    /// Nanoseconds from one call to the next, and how far calls may run ahead; none without a limit.
    #[inline]
    fn pace(&self) -> Option<(u64, u64)> {
        let Some(flag) = &self.rate.flag else { return Some((self.interval, self.ahead)) };
        let calls = flag.value();
        // What came before under another rate is at most a second ahead of the clock.
        let interval = (NANOSECONDS.checked_div(calls)?).max(1);
        Some((interval, interval.saturating_mul(calls - 1)))
    }

    #[cold]
    fn refuse(&self, pause: u64) -> Status {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let text = format!("more than {self}");
        Status::resource_exhausted(text).with_retry(Retry::After(Duration::from_nanos(pause)))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate { per_second, flag, key, methods, .. } = &self.rate;
        let per_second = flag.as_ref().map_or(*per_second, |flag| flag.value() as f64);
        write!(f, "{per_second} calls a second of {} to {methods}", key.whom())
    }
}

/// A fixed number of buckets in sets of a few, each set under its own lock.
struct Buckets {
    sets: Vec<Mutex<[Bucket; WAYS]>>,
    /// For keys that found no place.
    strangers: Mutex<Bucket>,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    key: u64,
    /// When it is full, in nanoseconds since the beginning.
    full_at: u64,
}

const WAYS: usize = 8;

impl Buckets {
    fn new(keys: u32) -> Buckets {
        let sets = (keys as usize).div_ceil(WAYS);
        Buckets { sets: (0..sets).map(|_| Mutex::default()).collect(), strangers: Mutex::default() }
    }

    /// Takes a token, or says in how many nanoseconds there is one.
    fn take(&self, key: u64, now: u64, interval: u64, ahead: u64) -> Result<(), u64> {
        // The upper bits choose, without a division.
        let set = &self.sets[((u128::from(key) * self.sets.len() as u128) >> 64) as usize];
        {
            let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
            let known = set.iter().position(|bucket| bucket.key == key);
            let place = known.or_else(|| set.iter().position(|bucket| bucket.full_at <= now));
            if let Some(place) = place {
                let bucket = &mut set[place];
                if bucket.key != key {
                    *bucket = Bucket { key, full_at: 0 };
                }
                return bucket.take(now, interval, ahead);
            }
        }
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner).take(now, interval, ahead)
    }
}

impl Bucket {
    fn take(&mut self, now: u64, interval: u64, ahead: u64) -> Result<(), u64> {
        let full_at = self.full_at.max(now);
        let early = full_at - now;
        if early > ahead {
            return Err(early - ahead);
        }
        self.full_at = full_at.saturating_add(interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn bucket_gives_its_burst_and_then_its_rate() {
        let buckets = Buckets::new(8);
        let (interval, ahead) = (SECOND / 10, SECOND / 10 * 4);
        let take = |key, now| buckets.take(key, now, interval, ahead);
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
        let (interval, ahead) = (SECOND, 4 * SECOND);
        for key in 1..=8 {
            for _ in 0..3 {
                buckets.take(key, 0, interval, ahead).unwrap();
            }
        }
        let strangers = (100..1100).filter(|key| buckets.take(*key, SECOND, interval, ahead).is_ok()).count();
        assert_eq!(strangers, 5, "one bucket for all of them");
        for key in 1..=8 {
            buckets.take(key, SECOND, interval, ahead).unwrap();
        }
        // Buckets that are full again make room.
        assert!(buckets.take(5000, 9 * SECOND, interval, ahead).is_ok());
        let sets = buckets.sets[0].lock().unwrap();
        assert_eq!(sets.iter().filter(|bucket| bucket.key == 5000).count(), 1);
    }
}
