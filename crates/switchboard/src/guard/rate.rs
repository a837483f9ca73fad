//! How many calls a second: of a peer, to a method, with a value of metadata, of a caller.
//!
//! A token bucket for each key. Where a key goes depends on a secret of the process.

mod buckets;

use super::key::Key;
use crate::{Call, Error, Flag, Result, Retry, Status};
use buckets::{Buckets, Want};
use foldhash::quality::RandomState;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
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

/// Tokens that a worker took ahead, for the next calls of the same key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    key: u64,
    left: u32,
    /// What each was worth, in nanoseconds.
    interval: u64,
}

/// So many are taken ahead, where the bucket stays more than half full.
const AHEAD: u32 = 16;

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
    #[inline]
    pub(super) fn take(&self, call: &Call, ahead: Option<&mut Ahead>) -> Result<()> {
        let key = self.rate.key.of(call.cx(), &self.secret);
        match ahead {
            Some(ahead) if ahead.key == key && ahead.left > 0 => {
                ahead.left -= 1;
                Ok(())
            }
            ahead => self.take_shared(key, call, ahead),
        }
    }

    /// The same from the bucket that all workers share; for a key that comes again with some more.
    fn take_shared(&self, key: u64, call: &Call, mut ahead: Option<&mut Ahead>) -> Result<()> {
        let Some((interval, most)) = self.pace() else { return Ok(()) };
        let mut more = 0;
        if let Some(ahead) = &mut ahead {
            more = if ahead.key == key { AHEAD } else { 0 };
            self.give_back(std::mem::take(ahead));
        }
        let now = call.cx().arrived().saturating_duration_since(self.began).as_nanos() as u64;
        let want = Want { key, now, interval, ahead: most, more };
        let left = self.buckets.take(want).map_err(|pause| self.refuse(pause))?;
        if let Some(ahead) = ahead {
            *ahead = Ahead { key, left, interval };
        }
        Ok(())
    }

    /// Gives tokens back that no call had.
    pub(super) fn give_back(&self, ahead: Ahead) {
        if ahead.left > 0 {
            self.buckets.give_back(ahead.key, u64::from(ahead.left) * ahead.interval);
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
