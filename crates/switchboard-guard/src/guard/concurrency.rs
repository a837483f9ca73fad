//! Limits on concurrent calls of a server, a service or a method.

mod auto;
mod gradient;
#[cfg(test)]
mod simulation;

pub use auto::AutoLimit;
pub use gradient::GradientLimit;

use super::fair::Load;
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
use switchboard_core::{Flag, Result};
use switchboard_wire::{Retry, Status};

/// Limit on concurrent calls; calls above it are rejected before they start, see
/// `Server::concurrency`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Concurrency {
    /// Adapts to the peak of throughput and the lowest latency.
    Auto(AutoLimit),
    /// A fixed limit of at least one.
    Fixed(u32),
    /// Reads the limit from a [flag](switchboard_core::Flag) on each call; 0 is no limit. Calls are counted in any
    /// case,
    /// so that a limit set while they run takes effect at once.
    Flag(Flag),
    /// Adapts so that latency stays near its lowest value.
    Gradient(GradientLimit),
    /// A fixed limit that also rejects calls whose deadline is nearer than the recent duration of calls,
    /// because they would end too late. Calls without a deadline are not affected, and a call that arrives
    /// while none runs is admitted, to measure the duration.
    InTime(u32),
}

impl Concurrency {
    /// Returns [`Auto`](Concurrency::Auto) with the default bounds.
    pub fn auto() -> Concurrency {
        Concurrency::Auto(AutoLimit::default())
    }

    /// Returns [`Gradient`](Concurrency::Gradient) with the default bounds.
    pub fn gradient() -> Concurrency {
        Concurrency::Gradient(GradientLimit::default())
    }

    /// Returns [`InTime`](Concurrency::InTime) with at most this many calls.
    pub fn in_time(calls: u32) -> Concurrency {
        Concurrency::InTime(calls)
    }

    /// Returns whether the limit rejects calls with too little time.
    pub(super) fn is_in_time(&self) -> bool {
        matches!(self, Concurrency::InTime(_))
    }
}

impl From<u32> for Concurrency {
    fn from(calls: u32) -> Concurrency {
        Concurrency::Fixed(calls)
    }
}

impl From<Flag> for Concurrency {
    fn from(flag: Flag) -> Concurrency {
        Concurrency::Flag(flag)
    }
}

/// Adapts a concurrency limit to the duration of calls. Pure: the caller passes the time.
pub(super) trait Adaptive: Send {
    /// Processes a call that ended at `now`, relative to any fixed start, and returns the new limit. `ended`
    /// counts all calls that ended since that start, sampled or not; `in_flight` counts running calls.
    fn sample(&mut self, sample: Sample) -> u32;
}

/// Measurements of a call for an adaptive limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now: Duration,
    pub(super) took: Duration,
    pub(super) is_ok: bool,
    pub(super) ended: u64,
    pub(super) in_flight: u32,
}

/// Statistics of one limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConcurrencyStats {
    /// Scope: `server`, `service demo.Chat`, `method demo.Chat/Say`.
    pub what: String,
    /// Kind: `fixed`, `auto`, `gradient`, `in time`.
    pub how: &'static str,
    /// Current maximum number of concurrent calls; `u32::MAX` if a flag turns the limit off.
    pub limit: u32,
    /// Number of running calls.
    pub in_flight: u32,
    /// Number of rejected calls.
    pub refused: u64,
}

/// An active limit.
pub(super) struct Limiter {
    /// Scope of the limit, for messages.
    what: String,
    how: &'static str,
    /// Started calls in the upper half and running calls in the lower half of one word: [`ONE`] increments
    /// both.
    calls: AtomicU64,
    limit: AtomicU32,
    /// Flag that provides the limit, if configured.
    flag: Option<Flag>,
    refused: AtomicU64,
    /// Moving average of call durations in nanoseconds.
    took_ns: AtomicU64,
    began: Instant,
    /// Sampling stride: one call in this many is timed; a power of two.
    stride: AtomicU32,
    learner: Option<Mutex<Learner>>,
}

/// Time of a call and whether it succeeded; `None` if it was canceled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) outcome: Option<bool>,
}

/// An adaptive limit, and the pace of its samples.
struct Learner {
    adaptive: Box<dyn Adaptive>,
    samples: u32,
    /// Time when the samples were last counted.
    counted: Duration,
}

const STARTED: u64 = 1 << 32;
/// Increment for a call that starts.
const ONE: u64 = STARTED + 1;
/// Sampling stride of a fixed limit, whose durations are used for retry hints to rejected callers.
const TIMED: u32 = 16;
/// Interval, in samples, of adjusting the stride of an adaptive limit. The stride aims at a sample every 50
/// to 400 us, if calls arrive that fast: more samples would not justify two clock readings per call.
const COUNTED: u32 = 64;
const GAP_LEAST: Duration = Duration::from_micros(50);
const GAP_MOST: Duration = Duration::from_micros(400);
const STRIDE_MOST: u32 = 256;
/// Range of the retry delay that is sent to rejected callers.
const PAUSE_LEAST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_secs(1);

impl Limiter {
    pub(super) fn new(what: String, concurrency: &Concurrency) -> Limiter {
        let (how, limit, adaptive) = match concurrency {
            Concurrency::Auto(bounds) => {
                ("auto", bounds.initial, Some(Box::new(Auto::new(*bounds)) as Box<dyn Adaptive>))
            }
            Concurrency::Fixed(calls) => ("fixed", *calls, None),
            Concurrency::Flag(_) => ("fixed", u32::MAX, None),
            Concurrency::Gradient(bounds) => {
                ("gradient", bounds.initial, Some(Box::new(Gradient::new(*bounds)) as Box<dyn Adaptive>))
            }
            Concurrency::InTime(calls) => ("in time", *calls, None),
        };
        let times_all = adaptive.is_some() || concurrency.is_in_time();
        Limiter {
            what,
            how,
            calls: AtomicU64::new(0),
            limit: AtomicU32::new(limit.max(1)),
            flag: match concurrency {
                Concurrency::Flag(flag) => Some(flag.clone()),
                _ => None,
            },
            refused: AtomicU64::new(0),
            took_ns: AtomicU64::new(0),
            began: switchboard_core::clock::now(),
            stride: AtomicU32::new(if times_all { 1 } else { TIMED }),
            learner: adaptive
                .map(|adaptive| Mutex::new(Learner { adaptive, samples: 0, counted: Duration::ZERO })),
        }
    }

    /// Replaces the algorithm of the limit.
    #[cfg(test)]
    pub(super) fn learning_by(self, adaptive: Box<dyn Adaptive>) -> Limiter {
        let learner = Mutex::new(Learner { adaptive, samples: 0, counted: Duration::ZERO });
        Limiter { learner: Some(learner), ..self }
    }

    /// Takes a permit; returns whether the call must be timed.
    ///
    /// # Errors
    /// `ResourceExhausted` if the limit is reached.
    #[inline]
    pub(super) fn enter(&self) -> Result<bool> {
        self.try_enter().ok_or_else(|| self.refuse())
    }

    /// Like `enter`, but returns `None` if the limit is reached.
    #[inline]
    pub(super) fn try_enter(&self) -> Option<bool> {
        // Read first: calls rejected in a flood should not write the cache line that others wait for.
        let Load { limit, in_flight: running } = self.load();
        if running >= limit {
            return None;
        }
        let before = self.calls.fetch_add(ONE, Ordering::SeqCst);
        if in_flight(before) >= limit {
            self.calls.fetch_sub(ONE, Ordering::SeqCst);
            return None;
        }
        Some(self.times((before / STARTED) as u32))
    }

    /// Returns whether the call with this number must be timed.
    #[inline]
    pub(super) fn times(&self, number: u32) -> bool {
        number & (self.stride.load(Ordering::Relaxed) - 1) == 0
    }

    /// Releases a permit.
    #[inline]
    pub(super) fn leave(&self) {
        self.calls.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts calls that reused the permit of another call, and releases the permit if `releases` is set.
    #[inline]
    pub(super) fn count(&self, calls: u32, releases: bool) {
        if calls == 0 && !releases {
            return;
        }
        let started = u64::from(calls) * STARTED;
        self.calls.fetch_add(started.wrapping_sub(u64::from(releases)), Ordering::SeqCst);
    }

    /// Checks that a call has as much time as calls recently took.
    ///
    /// # Errors
    /// `ResourceExhausted` if it has less time and other calls run.
    pub(super) fn check_time(&self, deadline: Option<Instant>) -> Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        let took = Duration::from_nanos(self.took_ns.load(Ordering::Relaxed));
        let left = deadline.saturating_duration_since(switchboard_core::clock::now());
        if left > took || in_flight(self.calls.load(Ordering::Relaxed)) == 0 {
            return Ok(());
        }
        self.count_refused();
        let text = format!(
            "calls of the {} recently took {took:.0?}, and {left:.0?} are left until the deadline of this one",
            self.what
        );
        Err(Status::resource_exhausted(text).with_retry(Retry::After(self.pause())))
    }

    /// Records the duration of a call that has ended. `released` is 1 if its permit has been released, and 0
    /// if the permit remains with the batch for the next call.
    pub(super) fn learn(&self, Timed { began, ended: now, outcome }: Timed, released: u32) {
        let before = self.calls.load(Ordering::SeqCst);
        let took = now.saturating_duration_since(began);
        let known = self.took_ns.load(Ordering::Relaxed);
        let took_ns = took.as_nanos() as u64;
        // The caller canceled the call early. A call that ran longer than usual was given up because of its
        // duration, by its deadline or its caller; without these samples the limit would never drop under a
        // load at which all calls are late.
        if outcome.is_none() && took_ns <= known {
            return;
        }
        // An adaptive limit learns from canceled calls; their durations must not enter the average.
        if outcome.is_some() || self.learner.is_none() {
            // Lost updates do not distort an average.
            let mean = if known == 0 { took_ns } else { known - known / 8 + took_ns / 8 };
            self.took_ns.store(mean, Ordering::Relaxed);
        }
        let is_ok = outcome == Some(true);
        let Some(learner) = &self.learner else { return };
        // A sample is skipped while another one is processed.
        let mut learner = match learner.try_lock() {
            Ok(learner) => learner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let in_flight = in_flight(before);
        let ended = (before / STARTED).wrapping_sub(u64::from(in_flight)) & u64::from(u32::MAX);
        // Includes this call.
        let in_flight = in_flight.saturating_add(released);
        let now = now.saturating_duration_since(self.began);
        let limit = learner.adaptive.sample(Sample { now, took, is_ok, ended, in_flight });
        self.limit.store(limit.max(1), Ordering::Relaxed);
        if let Some(stride) = learner.pace(now, self.stride.load(Ordering::Relaxed)) {
            self.stride.store(stride, Ordering::Relaxed);
        }
    }

    #[cold]
    fn refuse(&self) -> Status {
        self.count_refused();
        let limit = self.limit();
        let text =
            format!("{limit} calls are running, the {} concurrency limit of the {}", self.how, self.what);
        Status::resource_exhausted(text).with_retry(Retry::After(self.pause()))
    }

    /// Returns the limit and the number of running calls.
    #[inline]
    pub(super) fn load(&self) -> Load {
        let in_flight = in_flight(self.calls.load(Ordering::SeqCst));
        Load { limit: self.limit(), in_flight }
    }

    #[inline]
    fn limit(&self) -> u32 {
        match &self.flag {
            None => self.limit.load(Ordering::Relaxed),
            Some(flag) => match flag.value() {
                0 => u32::MAX,
                calls => u32::try_from(calls).unwrap_or(u32::MAX),
            },
        }
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the expected time until a permit is free.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_nanos(self.took_ns.load(Ordering::Relaxed)).clamp(PAUSE_LEAST, PAUSE_MOST)
    }

    pub(super) fn stats(&self) -> ConcurrencyStats {
        ConcurrencyStats {
            what: self.what.clone(),
            how: self.how,
            limit: self.limit(),
            in_flight: in_flight(self.calls.load(Ordering::Relaxed)),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl Learner {
    /// Returns a new stride if samples arrive too fast or too slowly.
    fn pace(&mut self, now: Duration, stride: u32) -> Option<u32> {
        self.samples += 1;
        if self.samples < COUNTED {
            return None;
        }
        let gap = now.saturating_sub(self.counted) / COUNTED;
        (self.samples, self.counted) = (0, now);
        match gap {
            gap if gap < GAP_LEAST && stride < STRIDE_MOST => Some(stride * 2),
            gap if gap > GAP_MOST && stride > 1 => Some(stride / 2),
            _ => None,
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
    use switchboard_wire::Code;

    fn ended(limiter: &Limiter, sample: Option<Timed>) {
        limiter.leave();
        sample.into_iter().for_each(|sample| limiter.learn(sample, 1));
    }

    #[test]
    fn permits_are_released() {
        let limiter = Limiter::new("server".into(), &2.into());
        let now = switchboard_core::clock::now();
        assert!(limiter.enter().unwrap(), "the first is timed");
        assert!(!limiter.enter().unwrap());
        let status = limiter.enter().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "2 calls are running, the fixed concurrency limit of the server");
        assert_eq!(status.retry(), Retry::After(PAUSE_LEAST));
        let timed = |ms, outcome| Timed { began: now, ended: now + Duration::from_millis(ms), outcome };
        ended(&limiter, Some(timed(30, Some(true))));
        assert!(!limiter.enter().unwrap());
        assert_eq!(limiter.enter().unwrap_err().retry(), Retry::After(Duration::from_millis(30)));
        limiter.leave();
        limiter.leave();
        let stats = limiter.stats();
        assert_eq!((stats.limit, stats.in_flight, stats.refused), (2, 0, 2));
    }

    #[test]
    fn call_without_the_time_that_calls_take_is_refused_while_others_run() {
        let limiter = Limiter::new("method a.B/C".into(), &Concurrency::in_time(10));
        let began = switchboard_core::clock::now();
        let ms = Duration::from_millis;
        let took_ms = |took, outcome| Some(Timed { began, ended: began + ms(took), outcome });
        let check = |left| limiter.check_time(Some(switchboard_core::clock::now() + ms(left)));
        assert!(limiter.enter().unwrap(), "all are timed");
        check(1).expect("no durations are measured yet");
        assert!(limiter.enter().unwrap());
        ended(&limiter, took_ms(10_000, Some(true)));
        let status = check(5_000).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let text = status.message();
        assert!(text.starts_with("calls of the method a.B/C recently took 10s, and 5s are left"), "{text}");
        assert_eq!(status.retry(), Retry::After(PAUSE_MOST));
        check(60_000).unwrap();
        limiter.check_time(None).unwrap();
        // Calls that were canceled by their deadline provide a lower bound of the duration.
        for _ in 0..100 {
            limiter.enter().unwrap();
            ended(&limiter, took_ms(100_000, None));
        }
        check(60_000).unwrap_err();
        ended(&limiter, took_ms(10, None));
        check(1).expect("none runs: this one finds out");
        assert_eq!(limiter.stats().refused, 2);
    }

    #[test]
    fn bounds_may_contradict_each_other() {
        let (auto, gradient) = (AutoLimit::default(), GradientLimit::default());
        for concurrency in [
            Concurrency::Auto(AutoLimit { most: 2, ..auto }),
            Concurrency::Gradient(GradientLimit { most: 2, ..gradient }),
        ] {
            let limiter = Limiter::new("server".into(), &concurrency);
            let mut now = limiter.began;
            for _ in 0..10_000 {
                let timed = limiter.enter().unwrap();
                let began = now;
                now += Duration::from_millis(1);
                let sample = Timed { began, ended: now, outcome: Some(true) };
                ended(&limiter, timed.then_some(sample));
            }
            assert!((1..=2).contains(&limiter.stats().limit), "{:?}", limiter.stats());
        }
    }

    #[test]
    fn calls_that_exceed_their_time_lower_an_adaptive_limit() {
        let limiter = Limiter::new("server".into(), &Concurrency::auto());
        let first = limiter.stats().limit;
        let mut now = Instant::now();
        let mut cut = |took| {
            limiter.enter().unwrap();
            let began = now;
            now += took;
            ended(&limiter, Some(Timed { began, ended: now, outcome: None }));
        };
        for _ in 0..2000 {
            cut(Duration::from_millis(20));
        }
        assert!(limiter.stats().limit < first, "{:?}", limiter.stats());
        // Calls that were canceled earlier than the average are ignored.
        let limiter = Limiter::new("server".into(), &Concurrency::auto());
        limiter.enter().unwrap();
        ended(
            &limiter,
            Some(Timed { began: now, ended: now + Duration::from_millis(9), outcome: Some(true) }),
        );
        for _ in 0..2000 {
            limiter.enter().unwrap();
            ended(&limiter, Some(Timed { began: now, ended: now + Duration::from_millis(8), outcome: None }));
        }
        assert_eq!(limiter.stats().limit, first);
    }

    #[test]
    fn fast_calls_are_sampled_and_slow_ones_all_timed() {
        let limiter = Limiter::new("server".into(), &Concurrency::auto());
        let mut now = limiter.began;
        let mut run = |calls: u32, gap| {
            let mut timed = 0;
            for _ in 0..calls {
                let is_timed = limiter.enter().unwrap();
                timed += u32::from(is_timed);
                let began = now;
                now += gap;
                let sample = Timed { began, ended: now, outcome: Some(true) };
                ended(&limiter, is_timed.then_some(sample));
            }
            timed
        };
        let fast = run(1_000_000, Duration::from_micros(2));
        assert!((5_000..60_000).contains(&fast), "{fast} of a million");
        run(100_000, Duration::from_millis(1));
        assert_eq!(run(1000, Duration::from_millis(1)), 1000);
    }

    #[test]
    fn permits_stay_counted_when_calls_are_sampled_out_of_order() {
        let limiter = Limiter::new("server".into(), &Concurrency::auto());
        let began = Instant::now() + Duration::from_secs(1);
        let sample = |ms| Timed { began, ended: began + Duration::from_millis(ms), outcome: Some(true) };
        for ms in (0..2000).rev() {
            limiter.enter().unwrap();
            ended(&limiter, Some(sample(ms % 7)));
        }
        let stats = limiter.stats();
        assert_eq!(stats.in_flight, 0);
        assert!(stats.limit <= 400, "{stats:?}");
    }

    #[test]
    fn the_count_of_calls_may_pass_the_word() {
        let limiter = Limiter::new("server".into(), &1.into());
        limiter.calls.store((u64::MAX / STARTED) * STARTED, Ordering::Relaxed);
        limiter.enter().unwrap();
        limiter.leave();
        assert_eq!(limiter.calls.load(Ordering::Relaxed), 0);
        limiter.enter().unwrap();
        assert_eq!(limiter.stats().in_flight, 1);
    }
}
