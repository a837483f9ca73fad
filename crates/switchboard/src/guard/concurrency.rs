//! How many calls run at once: in a server, a service, a method.

mod auto;
mod gradient;
#[cfg(test)]
mod simulation;

pub use auto::AutoLimit;
pub use gradient::GradientLimit;

use super::fair::Load;
use crate::{Flag, Result, Retry, Status};
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
    /// As many as the [flag](crate::Flag) says when a call comes; 0 is no limit. Calls are counted in any case, so that
    /// a limit that is set while they run holds at once.
    Flag(Flag),
    /// As many as keep latency what it usually is.
    Gradient(GradientLimit),
    /// So many, and no call whose deadline is nearer than calls of late have taken: it would only be late. A call
    /// without a deadline is not concerned, and one that comes while none runs is let in, to find out.
    InTime(u32),
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

    /// [`InTime`](Concurrency::InTime) with at most so many calls.
    pub fn in_time(calls: u32) -> Concurrency {
        Concurrency::InTime(calls)
    }

    /// Whether it is in the way of calls with too little time.
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
    /// How: `fixed`, `auto`, `gradient`, `in time`.
    pub how: &'static str,
    /// Calls that may run at once, now; `u32::MAX` where a flag says that there is no limit.
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
    /// What says the limit instead.
    flag: Option<Flag>,
    refused: AtomicU64,
    /// Nanoseconds that calls took of late.
    took_ns: AtomicU64,
    began: Instant,
    /// One call in so many is timed, a power of two.
    stride: AtomicU32,
    learner: Option<Mutex<Learner>>,
}

/// When a call ran, and whether it went well; none if it was cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) outcome: Option<bool>,
}

/// An adaptive limit, and how fast its samples come.
struct Learner {
    adaptive: Box<dyn Adaptive>,
    samples: u32,
    /// When the samples were last counted.
    counted: Duration,
}

const STARTED: u64 = 1 << 32;
/// A call that begins.
const ONE: u64 = STARTED + 1;
/// Of a fixed limit every so many calls are timed, to tell refused callers when to come back.
const TIMED: u32 = 16;
/// Of an adaptive one so many that a sample comes every 50 to 400 us, where calls come that fast: what more would tell
/// is not worth two readings of the clock a call. Looked at after each 64.
const COUNTED: u32 = 64;
const GAP_LEAST: Duration = Duration::from_micros(50);
const GAP_MOST: Duration = Duration::from_micros(400);
const STRIDE_MOST: u32 = 256;
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
            began: crate::clock::now(),
            stride: AtomicU32::new(if times_all { 1 } else { TIMED }),
            learner: adaptive
                .map(|adaptive| Mutex::new(Learner { adaptive, samples: 0, counted: Duration::ZERO })),
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
        // Looked at first: what is refused in a flood should not make the others wait for the cache line.
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

    /// Whether the call of this number is to be timed.
    #[inline]
    pub(super) fn times(&self, number: u32) -> bool {
        number & (self.stride.load(Ordering::Relaxed) - 1) == 0
    }

    /// Gives a place back.
    #[inline]
    pub(super) fn leave(&self) {
        self.calls.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts calls that had a place which another had taken, and gives it back, if it is to be.
    #[inline]
    pub(super) fn count(&self, calls: u32, gives_back: bool) {
        if calls == 0 && !gives_back {
            return;
        }
        let started = u64::from(calls) * STARTED;
        self.calls.fetch_add(started.wrapping_sub(u64::from(gives_back)), Ordering::SeqCst);
    }

    /// Whether a call has the time that calls take.
    ///
    /// # Errors
    /// `ResourceExhausted` when it has not, and others run.
    pub(super) fn check_time(&self, deadline: Option<Instant>) -> Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        let took = Duration::from_nanos(self.took_ns.load(Ordering::Relaxed));
        let left = deadline.saturating_duration_since(crate::clock::now());
        if left > took || in_flight(self.calls.load(Ordering::Relaxed)) == 0 {
            return Ok(());
        }
        self.count_refused();
        let text = format!(
            "calls of the {} take {took:.0?} of late, and {left:.0?} are left until the deadline of this one",
            self.what
        );
        Err(Status::resource_exhausted(text).with_retry(Retry::After(self.pause())))
    }

    /// Takes note of a call that has its place yet.
    pub(super) fn learn(&self, Timed { began, ended: now, outcome }: Timed) {
        let before = self.calls.load(Ordering::SeqCst);
        let took = now.saturating_duration_since(began);
        let known = self.took_ns.load(Ordering::Relaxed);
        let took_ns = took.as_nanos() as u64;
        // Somebody changed their mind. What took longer was given up because it did, by its deadline or its caller, and
        // a limit that did not hear of those would never sink under a load at which all calls are late.
        if outcome.is_none() && took_ns <= known {
            return;
        }
        // Where a limit learns from those that are cut, they must not become what is usual.
        if outcome.is_some() || self.learner.is_none() {
            // Lost updates do no harm to a mean.
            let mean = if known == 0 { took_ns } else { known - known / 8 + took_ns / 8 };
            self.took_ns.store(mean, Ordering::Relaxed);
        }
        let is_ok = outcome == Some(true);
        let Some(learner) = &self.learner else { return };
        // A sample that comes while another is taken is left out.
        let mut learner = match learner.try_lock() {
            Ok(learner) => learner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let in_flight = in_flight(before);
        let ended = (before / STARTED).wrapping_sub(u64::from(in_flight)) & u64::from(u32::MAX);
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

    /// The limit, and the calls that run.
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

    /// When a place may be free.
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
    /// Another stride, if samples come too fast or too slowly.
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
    use crate::Code;

    fn ended(limiter: &Limiter, sample: Option<Timed>) {
        sample.into_iter().for_each(|sample| limiter.learn(sample));
        limiter.leave();
    }

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
        let began = crate::clock::now();
        let ms = Duration::from_millis;
        let took_ms = |took, outcome| Some(Timed { began, ended: began + ms(took), outcome });
        let check = |left| limiter.check_time(Some(crate::clock::now() + ms(left)));
        assert!(limiter.enter().unwrap(), "all are timed");
        check(1).expect("nobody knows yet what calls take");
        assert!(limiter.enter().unwrap());
        ended(&limiter, took_ms(10_000, Some(true)));
        let status = check(5_000).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let text = status.message();
        assert!(text.starts_with("calls of the method a.B/C take 10s of late, and 5s are left"), "{text}");
        assert_eq!(status.retry(), Retry::After(PAUSE_MOST));
        check(60_000).unwrap();
        limiter.check_time(None).unwrap();
        // Those that were cut for their time say how long calls take, too: at least so long.
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
                now += Duration::from_millis(1);
                let sample = Timed { began: now - Duration::from_millis(1), ended: now, outcome: Some(true) };
                ended(&limiter, timed.then_some(sample));
            }
            assert!((1..=2).contains(&limiter.stats().limit), "{:?}", limiter.stats());
        }
    }

    #[test]
    fn calls_that_are_cut_for_their_time_lower_an_adaptive_limit() {
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
        // Those that end before others do say nothing.
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
                now += gap;
                let sample = Timed { began: now - gap, ended: now, outcome: Some(true) };
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
