//! Limits on calls per second, by peer, method, metadata value or caller.
//!
//! Each key has a token bucket. The position of a key in the table depends on a secret of the process.

use super::key::Key;
use foldhash::quality::RandomState;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use switchboard_core::{
    Call, Error, Flag, Result,
    buckets::{Buckets, Want},
};
use switchboard_wire::{Retry, Status};

/// A rate of calls, see `Server::rate`.
///
/// ```
/// use switchboard::guard::Rate;
///
/// let server = switchboard::Server::new()
///     // Per peer address, for all methods together.
///     .rate(Rate::per_second(100.0).burst(200).by_peer())
///     // Per tenant, for these methods together.
///     .rate(Rate::per_second(1.0).by_metadata("tenant").methods("demo.Reports/*"));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rate holds once a server has it"]
pub struct Rate {
    per_second: f64,
    burst: u32,
    /// Flag that provides the rate and the burst, if configured.
    flag: Option<Flag>,
    key: Key,
    pub(super) methods: String,
    keys_max: u32,
}

impl Rate {
    /// Allows this many calls per second, of all callers together unless a key is set.
    pub fn per_second(calls: f64) -> Rate {
        let burst = if calls >= 1.0 { calls.min(f64::from(u32::MAX)) as u32 } else { 1 };
        Rate { per_second: calls, burst, flag: None, key: Key::All, methods: "*".into(), keys_max: 8192 }
    }

    /// Allows as many calls per second as the flag currently says, and a burst of the same size; 0 is no
    /// limit.
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

    /// Sets the burst: the number of calls allowed at once after a pause; default is one second's worth, at
    /// least one. Has no effect on a rate that uses a flag.
    pub fn burst(mut self, calls: u32) -> Rate {
        self.burst = calls.max(1);
        self
    }

    /// Counts the calls of each address separately; those from Unix sockets and from this process together.
    pub fn by_peer(mut self) -> Rate {
        self.key = Key::Peer;
        self
    }

    /// Counts the calls of each authenticated [caller](switchboard_core::Cx::caller) separately, and those without a
    /// caller together.
    pub fn by_caller(mut self) -> Rate {
        self.key = Key::Caller;
        self
    }

    /// Counts the calls to each method separately.
    pub fn by_method(mut self) -> Rate {
        self.key = Key::Method;
        self
    }

    /// Counts the calls with each value of this metadata separately, and those without it together. Callers
    /// choose their metadata: use it only for trusted callers.
    pub fn by_metadata(mut self, name: impl Into<String>) -> Rate {
        self.key = Key::Metadata(name.into().to_ascii_lowercase());
        self
    }

    /// Counts only calls to these methods, `package.Service/Method`, in which a star matches any text.
    pub fn methods(mut self, pattern: impl Into<String>) -> Rate {
        self.methods = pattern.into();
        self
    }

    /// Sets the maximum number of keys that are counted separately, 24 bytes each; default 8192.
    pub fn keys_max(mut self, keys: u32) -> Rate {
        self.keys_max = keys.clamp(1, 1 << 22);
        self
    }
}

/// Nanoseconds per second.
const NANOSECONDS: u64 = 1_000_000_000;

/// Tokens that a worker took in advance for the next calls with the same key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    key: u64,
    left: u32,
    /// Interval in nanoseconds at which each token was taken.
    interval: u64,
}

/// Number of tokens taken in advance, if the bucket stays more than half full.
const AHEAD: u32 = 16;

/// An active rate.
pub(super) struct Limit {
    rate: Rate,
    /// Nanoseconds between two calls at the full rate; the next field is how far calls may run ahead of it.
    interval: u64,
    ahead: u64,
    buckets: Buckets,
    secret: RandomState,
    began: Instant,
    refused: AtomicU64,
}

impl Limit {
    /// # Errors
    /// Fails if the rate is not a positive number.
    pub(super) fn new(rate: Rate) -> Result<Limit, Error> {
        if !rate.per_second.is_finite() || rate.per_second <= 0.0 {
            let text = format!(
                "rate: {} calls per second is not a valid rate; omit it for no limit",
                rate.per_second
            );
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
            began: switchboard_core::clock::now(),
            refused: AtomicU64::new(0),
            rate,
        })
    }

    /// Takes a token for a call.
    ///
    /// # Errors
    /// `ResourceExhausted` with the time until a token is available.
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

    /// Takes a token from the bucket that all workers share, and more in advance if the key repeats.
    fn take_shared(&self, key: u64, call: &Call, mut ahead: Option<&mut Ahead>) -> Result<()> {
        let Some((interval, most)) = self.pace() else { return Ok(()) };
        let mut more = 0;
        if let Some(ahead) = &mut ahead {
            more = if ahead.key == key { AHEAD } else { 0 };
            self.return_tokens(std::mem::take(ahead));
        }
        let now = call.cx().arrived().saturating_duration_since(self.began).as_nanos() as u64;
        let want = Want { key, now, interval, ahead: most, more };
        let left = self.buckets.take(want).map_err(|pause| self.refuse(pause))?;
        if let Some(ahead) = ahead {
            *ahead = Ahead { key, left, interval };
        }
        Ok(())
    }

    /// Returns unused tokens to the bucket.
    pub(super) fn return_tokens(&self, ahead: Ahead) {
        if ahead.left > 0 {
            self.buckets.return_tokens(ahead.key, u64::from(ahead.left).saturating_mul(ahead.interval));
        }
    }

    /// Returns the token of a call that another rate or a limit rejected: a call that does not run takes
    /// nothing.
    #[cold]
    pub(super) fn refund(&self, call: &Call, ahead: Option<&mut Ahead>) {
        let Some((interval, _)) = self.pace() else { return };
        let key = self.rate.key.of(call.cx(), &self.secret);
        match ahead {
            Some(ahead) if ahead.key == key && ahead.left > 0 => ahead.left += 1,
            _ => self.buckets.refund(key, interval),
        }
    }

    /// Returns the nanoseconds between two calls and how far calls may run ahead; `None` without a limit.
    #[inline]
    fn pace(&self) -> Option<(u64, u64)> {
        let Some(flag) = &self.rate.flag else { return Some((self.interval, self.ahead)) };
        let calls = flag.value();
        // Calls under a previous rate are at most a second ahead of the clock.
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
        write!(f, "{per_second} calls a second of {} to {methods}", key.description())
    }
}
