//! How many calls run at once: in a server, a service, a method.

mod auto;
mod gradient;
#[cfg(test)]
mod simulation;

pub use auto::AutoLimit;
pub use gradient::GradientLimit;

use crate::{Result, Retry, Status};
use auto::Auto;
use gradient::Gradient;
use std::{
    fmt,
    sync::{
        Mutex, TryLockError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How many calls may run at once; what is above is refused before it begins, see
/// [`Server::concurrency`](crate::Server::concurrency).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Concurrency {
    /// As many as the server does best with, found out from the peak of its throughput and its least latency.
    Auto(AutoLimit),
    /// So many, at least one.
    Fixed(u32),
    /// As many as keep latency what it usually is.
    Gradient(GradientLimit),
}

impl Concurrency {
    /// [`Auto`](Concurrency::Auto) within the usual bounds.
    pub fn auto() -> Concurrency {
        Concurrency::Auto(AutoLimit::default())
    }

    /// [`Gradient`](Concurrency::Gradient) within the usual bounds.
    pub fn gradient() -> Concurrency {
        Concurrency::Gradient(GradientLimit::default())
    }
}

impl From<u32> for Concurrency {
    fn from(calls: u32) -> Concurrency {
        Concurrency::Fixed(calls)
    }
}

/// Finds out how many calls may run at once, from how long they take. Pure: the clock is the caller's.
pub(super) trait Adaptive: Send {
    /// A call ended at `now`, which counts from any beginning; `ended` counts all calls that ended since then, sampled
    /// or not, and `in_flight` those that run. Says the limit from now on.
    fn sample(&mut self, sample: Sample) -> u32;
}

/// What an adaptive limit learns of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Duration,
    pub(super) took: Duration,
    pub(super) is_ok: bool,
    pub(super) ended: u64,
    pub(super) in_flight: u32,
}

/// The numbers of one limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConcurrencyStats {
    /// What is limited: `server`, `service demo.Chat`, `method demo.Chat/Say`.
    pub what: String,
    /// How: `fixed`, `auto`, `gradient`.
    pub how: &'static str,
    /// Calls that may run at once, now.
    pub limit: u32,
    /// Calls that run.
    pub in_flight: u32,
    /// Calls that were refused.
    pub refused: u64,
}

/// One limit that is in force.
pub(super) struct Limiter {
    /// What is limited, for people.
    what: String,
    how: &'static str,
    /// Calls that began, above, and calls that run, below, in one word: [`ONE`] counts in both.
    calls: AtomicU64,
    limit: AtomicU32,
    refused: AtomicU64,
    /// Nanoseconds that calls took of late.
    took_ns: AtomicU64,
    began: Instant,
    adaptive: Option<Mutex<Box<dyn Adaptive>>>,
}

const STARTED: u64 = 1 << 32;
/// A call that begins.
const ONE: u64 = STARTED + 1;
/// Of a fixed limit every so many calls are timed, to tell refused callers when to come back.
const TIMED: u64 = 16;
/// The pauses that refused callers are asked for lie between these.
const PAUSE_LEAST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_secs(1);

impl Limiter {
    pub(super) fn new(what: String, concurrency: &Concurrency) -> Limiter {
        let (how, limit, adaptive) = match concurrency {
            Concurrency::Auto(bounds) => {
                ("auto", bounds.initial, Some(Box::new(Auto::new(*bounds)) as Box<dyn Adaptive>))
            }
            Concurrency::Fixed(calls) => ("fixed", *calls, None),
            Concurrency::Gradient(bounds) => {
                ("gradient", bounds.initial, Some(Box::new(Gradient::new(*bounds)) as Box<dyn Adaptive>))
            }
        };
        Limiter {
            what,
            how,
            calls: AtomicU64::new(0),
            limit: AtomicU32::new(limit.max(1)),
            refused: AtomicU64::new(0),
            took_ns: AtomicU64::new(0),
            began: crate::clock::now(),
            adaptive: adaptive.map(Mutex::new),
        }
    }

    /// Takes a place; says whether the call is to be timed.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is none.
    #[inline]
    pub(super) fn enter(&self) -> Result<bool> {
        self.try_enter().ok_or_else(|| self.refuse())
    }

    /// The same, none when there is none.
    #[inline]
    pub(super) fn try_enter(&self) -> Option<bool> {
        let limit = self.limit.load(Ordering::Relaxed);
        // Looked at first: what is refused in a flood should not make the others wait for the cache line.
        if in_flight(self.calls.load(Ordering::SeqCst)) >= limit {
            return None;
        }
        let before = self.calls.fetch_add(ONE, Ordering::SeqCst);
        if in_flight(before) >= limit {
            self.calls.fetch_sub(ONE, Ordering::SeqCst);
            return None;
        }
        Some(self.adaptive.is_some() || (before / STARTED).is_multiple_of(TIMED))
    }

    /// Gives a place back; the sample is when the call began, when it ended, and how.
    #[inline]
    pub(super) fn leave(&self, sample: Option<(Instant, Instant, bool)>) {
        let before = self.calls.fetch_sub(1, Ordering::SeqCst);
        if let Some((began, now, is_ok)) = sample {
            self.learn(before, began, now, is_ok);
        }
    }

    fn learn(&self, before: u64, began: Instant, now: Instant, is_ok: bool) {
        let took = now.saturating_duration_since(began);
        let known = self.took_ns.load(Ordering::Relaxed);
        let took_ns = took.as_nanos() as u64;
        // Lost updates do no harm to a mean.
        self.took_ns
            .store(if known == 0 { took_ns } else { known - known / 8 + took_ns / 8 }, Ordering::Relaxed);
        let Some(adaptive) = &self.adaptive else { return };
        // A sample that comes while another is taken is left out.
        let mut adaptive = match adaptive.try_lock() {
            Ok(adaptive) => adaptive,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let in_flight = in_flight(before);
        let ended = (before / STARTED).wrapping_sub(u64::from(in_flight)) & u64::from(u32::MAX);
        let now = now.saturating_duration_since(self.began);
        let limit = adaptive.sample(Sample { now, took, is_ok, ended, in_flight });
        self.limit.store(limit.max(1), Ordering::Relaxed);
    }

    #[cold]
    fn refuse(&self) -> Status {
        self.count_refused();
        let limit = self.limit.load(Ordering::Relaxed);
        let text =
            format!("{limit} calls are running, the {} concurrency limit of the {}", self.how, self.what);
        Status::resource_exhausted(text).with_retry(Retry::After(self.pause()))
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// When a place may be free.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_nanos(self.took_ns.load(Ordering::Relaxed)).clamp(PAUSE_LEAST, PAUSE_MOST)
    }

    pub(super) fn stats(&self) -> ConcurrencyStats {
        ConcurrencyStats {
            what: self.what.clone(),
            how: self.how,
            limit: self.limit.load(Ordering::Relaxed),
            in_flight: in_flight(self.calls.load(Ordering::Relaxed)),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

fn in_flight(calls: u64) -> u32 {
    calls as u32
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn places_are_given_back() {
        let limiter = Limiter::new("server".into(), &2.into());
        let now = crate::clock::now();
        assert!(limiter.enter().unwrap(), "the first is timed");
        assert!(!limiter.enter().unwrap());
        let status = limiter.enter().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "2 calls are running, the fixed concurrency limit of the server");
        assert_eq!(status.retry(), Retry::After(PAUSE_LEAST));
        limiter.leave(Some((now, now + Duration::from_millis(30), true)));
        assert!(!limiter.enter().unwrap());
        assert_eq!(limiter.enter().unwrap_err().retry(), Retry::After(Duration::from_millis(30)));
        limiter.leave(None);
        limiter.leave(None);
        let stats = limiter.stats();
        assert_eq!((stats.limit, stats.in_flight, stats.refused), (2, 0, 2));
    }

    #[test]
    fn the_count_of_calls_may_pass_the_word() {
        let limiter = Limiter::new("server".into(), &1.into());
        limiter.calls.store((u64::MAX / STARTED) * STARTED, Ordering::Relaxed);
        limiter.enter().unwrap();
        limiter.leave(None);
        assert_eq!(limiter.calls.load(Ordering::Relaxed), 0);
        limiter.enter().unwrap();
        assert_eq!(limiter.stats().in_flight, 1);
    }
}
