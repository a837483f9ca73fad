//! Circuit breakers: one for each endpoint and method with recent failures.
//!
//! ```text
//!            failures in a row, or too many of the calls of a window
//!   closed ────────────────────────────────────────────────────────▶ open
//!      ▲                                                              │ after a pause
//!      │ it succeeds                                                  ▼
//!      └───────────────────────────────────────── half open: one call at a time
//!                                                       │ it fails: open again, for twice as long
//!                                                       └─────────────────────────────────▶
//! ```
//!
//! A method without failures has no breaker, so a call of a healthy endpoint reads only one counter. The window of a
//! method begins with its first failure; the breaker is removed when no failure occurs for as long as a window.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// Thresholds and durations of circuit breakers.
#[derive(Clone, Copy, Debug)]
pub struct Breaking {
    /// Consecutive failures that open a breaker; 0 turns breakers off.
    pub consecutive: u32,
    /// Percentage of failed calls that opens a breaker, once there are `calls_min` calls in the window.
    pub(crate) percent: u32,
    pub(crate) calls_min: u32,
    pub(crate) window_ns: u64,
    /// First open duration; each further one in a row is twice as long, up to `open_max_ns`.
    pub(crate) open_ns: u64,
    pub(crate) open_max_ns: u64,
}

impl Default for Breaking {
    fn default() -> Breaking {
        Breaking {
            consecutive: 5,
            percent: 50,
            calls_min: 20,
            window_ns: 10_000_000_000,
            open_ns: 1_000_000_000,
            open_max_ns: 30_000_000_000,
        }
    }
}

/// Maximum number of methods of one endpoint with a breaker; further methods go without.
const BREAKERS_MAX: usize = 1024;
/// Method name under which a proxy calls methods by the names that its callers give. It has no breaker, because a
/// failure of one of these methods says nothing about the others.
const UNNAMED: &str = "*";

/// Circuit breakers of one endpoint.
#[derive(Debug, Default)]
pub struct Breakers {
    /// Number of breakers, readable without the lock.
    count: AtomicU32,
    list: Mutex<Vec<(Box<str>, Breaker)>>,
}

impl Breakers {
    fn lock(&self) -> MutexGuard<'_, Vec<(Box<str>, Breaker)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn none(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns true when a call of `method` may go to this endpoint.
    #[inline]
    #[doc(hidden)]
    pub fn admit(&self, method: &str, now_ns: u64) -> bool {
        self.none() || of(&mut self.lock(), method).is_none_or(|breaker| breaker.admits(now_ns))
    }

    /// Records that a call of `method` begins; returns the probe of a half-open breaker that it is, or [`Probe::NONE`].
    #[inline]
    #[doc(hidden)]
    pub fn begun(&self, method: &str, now_ns: u64) -> Probe {
        if self.none() { Probe::NONE } else { self.probe(method, now_ns) }
    }

    #[cold]
    fn probe(&self, method: &str, now_ns: u64) -> Probe {
        of(&mut self.lock(), method).map_or(Probe::NONE, |breaker| breaker.begun(now_ns))
    }

    /// Records that a call of `method` has ended. `failed` is `None` when the result is not evidence either way, and
    /// `probe` is the value that [`begun`](Self::begun) returned for the call. Returns true when a breaker has opened.
    #[inline]
    #[doc(hidden)]
    pub fn ended(
        &self,
        breaking: &Breaking,
        method: &str,
        probe: Probe,
        failed: Option<bool>,
        now_ns: u64,
    ) -> bool {
        if (self.none() && failed != Some(true)) || breaking.consecutive == 0 || method == UNNAMED {
            return false;
        }
        self.count(breaking, method, probe, failed, now_ns)
    }

    #[cold]
    fn count(
        &self,
        breaking: &Breaking,
        method: &str,
        probe: Probe,
        failed: Option<bool>,
        now_ns: u64,
    ) -> bool {
        let mut list = self.lock();
        let at = list.iter().position(|(name, _)| **name == *method).or_else(|| {
            let room = failed == Some(true) && list.len() < BREAKERS_MAX;
            room.then(|| {
                list.push((method.into(), Breaker::new(now_ns)));
                list.len() - 1
            })
        });
        let Some(at) = at else { return false };
        let ended = list[at].1.ended(breaking, probe, failed, now_ns);
        if ended == Ended::Healed {
            list.swap_remove(at);
        }
        self.count.store(list.len() as u32, Ordering::Relaxed);
        ended == Ended::Opened
    }

    /// Removes all breakers: the endpoint is now another server process.
    pub(crate) fn clear(&self) {
        let mut list = self.lock();
        list.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    /// Returns how long the breaker of the method remains open, or `None` when it is closed; zero when it is half open.
    #[doc(hidden)]
    pub fn open_for(&self, method: &str, now_ns: u64) -> Option<Duration> {
        let until = of(&mut self.lock(), method)?.open_until?;
        Some(Duration::from_nanos(until.saturating_sub(now_ns)))
    }

    /// The methods with an open or half-open breaker.
    #[doc(hidden)]
    pub fn open(&self) -> Vec<String> {
        let list = self.lock();
        let open = list.iter().filter(|(_, breaker)| breaker.open_until.is_some());
        open.map(|(name, _)| name.to_string()).collect()
    }
}

fn of<'a>(list: &'a mut [(Box<str>, Breaker)], method: &str) -> Option<&'a mut Breaker> {
    list.iter_mut().find(|(name, _)| **name == *method).map(|(_, breaker)| breaker)
}

/// Number that identifies a probe of a half-open breaker. Calls that began before the breaker opened are not probes and
/// do not change its state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Probe(u64);

impl Probe {
    /// A call that is not a probe.
    pub(crate) const NONE: Probe = Probe(0);
}

#[derive(Debug)]
struct Breaker {
    /// Consecutive failures since the last success.
    row: u32,
    window_since: u64,
    calls: u32,
    failures: u32,
    last_failure: u64,
    /// Open until this time; half open after it, until a call has succeeded.
    open_until: Option<u64>,
    /// Duration of the last open state.
    pause: u64,
    /// Start time of the probe in flight, until it has ended.
    probed: Option<u64>,
    /// Number of the last probe.
    probes: u64,
    /// Number of the last probe that began before the breaker opened; the result of such a probe is ignored.
    stale: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Counted,
    /// The breaker can be removed.
    Healed,
    Opened,
}

impl Breaker {
    fn new(now_ns: u64) -> Breaker {
        Breaker {
            row: 0,
            window_since: now_ns,
            calls: 0,
            failures: 0,
            last_failure: now_ns,
            open_until: None,
            pause: 0,
            probed: None,
            probes: 0,
            stale: 0,
        }
    }

    fn admits(&self, now_ns: u64) -> bool {
        match self.open_until {
            None => true,
            Some(until) if now_ns < until => false,
            // A probe that never ends must not keep the breaker open forever.
            Some(_) => self.probed.is_none_or(|probed| now_ns >= probed.saturating_add(self.pause)),
        }
    }

    fn begun(&mut self, now_ns: u64) -> Probe {
        if self.open_until.is_none_or(|until| now_ns < until) {
            return Probe::NONE;
        }
        self.probed = Some(now_ns);
        self.probes += 1;
        Probe(self.probes)
    }

    fn ended(&mut self, breaking: &Breaking, probe: Probe, failed: Option<bool>, now_ns: u64) -> Ended {
        let Some(failed) = failed else {
            // The next call becomes the probe; calls that began before the breaker opened change nothing.
            if probe == Probe(self.probes) && probe.0 > self.stale {
                self.probed = None;
            }
            return Ended::Counted;
        };
        if self.open_until.is_some() {
            if probe.0 <= self.stale {
                return Ended::Counted;
            }
            if !failed {
                return Ended::Healed;
            }
            self.pause = (self.pause * 2).min(breaking.open_max_ns);
            return self.open(now_ns);
        }
        if now_ns.saturating_sub(self.window_since) > breaking.window_ns {
            if !failed && now_ns.saturating_sub(self.last_failure) > breaking.window_ns {
                return Ended::Healed;
            }
            (self.window_since, self.calls, self.failures) = (now_ns, 0, 0);
        }
        self.calls = self.calls.saturating_add(1);
        if !failed {
            self.row = 0;
            return Ended::Counted;
        }
        self.row += 1;
        self.failures += 1;
        self.last_failure = now_ns;
        let rate = u64::from(self.failures) * 100 >= u64::from(self.calls) * u64::from(breaking.percent);
        if self.row >= breaking.consecutive || (self.calls >= breaking.calls_min && rate) {
            self.pause = breaking.open_ns;
            return self.open(now_ns);
        }
        Ended::Counted
    }

    fn open(&mut self, now_ns: u64) -> Ended {
        self.open_until = Some(now_ns.saturating_add(self.pause));
        self.probed = None;
        self.stale = self.probes;
        Ended::Opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Makes `count` calls of one method that end at once; returns true when one of them opened the breaker.
    fn calls(breakers: &Breakers, count: u32, failed: bool, now_ns: u64) -> bool {
        let mut opened = false;
        for _ in 0..count {
            let probe = breakers.begun("a.B/C", now_ns);
            opened |= breakers.ended(&Breaking::default(), "a.B/C", probe, Some(failed), now_ns);
        }
        opened
    }

    #[test]
    fn consecutive_failures_open_the_breaker_of_this_method_only() {
        let breakers = Breakers::default();
        assert!(!calls(&breakers, 4, true, 0));
        assert!(!calls(&breakers, 1, false, 0));
        assert!(!calls(&breakers, 4, true, 0));
        assert!(breakers.admit("a.B/C", 0));
        assert!(calls(&breakers, 1, true, 0));
        assert!(!breakers.admit("a.B/C", SECOND - 1));
        assert!(breakers.admit("a.B/D", 0));
        assert_eq!(breakers.open(), ["a.B/C"]);
    }

    #[test]
    fn failure_rate_opens_the_breaker_after_calls_min() {
        let breakers = Breakers::default();
        for at in 0..9 {
            assert!(!calls(&breakers, 1, true, at) && !calls(&breakers, 1, false, at));
        }
        assert!(!calls(&breakers, 1, true, 10), "19 calls");
        assert!(calls(&breakers, 1, true, 10), "11 of 20");
        let breakers = Breakers::default();
        for at in 0..50 {
            assert!(!calls(&breakers, 1, true, at) && !calls(&breakers, 2, false, at), "a third fails");
        }
    }

    #[test]
    fn old_failures_expire() {
        let breakers = Breakers::default();
        for at in 0..100 {
            calls(&breakers, 1, true, at * 11 * SECOND);
            calls(&breakers, 1, false, at * 11 * SECOND);
        }
        assert!(breakers.admit("a.B/C", 0));
        calls(&breakers, 1, false, 2000 * SECOND);
        assert!(breakers.none(), "the breaker is removed");
    }

    #[test]
    fn half_open_admits_one_probe_and_its_result_decides() {
        let breakers = Breakers::default();
        calls(&breakers, 5, true, 0);
        assert!(breakers.admit("a.B/C", SECOND));
        let probe = breakers.begun("a.B/C", SECOND);
        assert!(!breakers.admit("a.B/C", SECOND), "one at a time");
        assert!(breakers.ended(&Breaking::default(), "a.B/C", probe, Some(true), SECOND));
        assert!(!breakers.admit("a.B/C", 3 * SECOND - 1), "twice as long");
        breakers.begun("a.B/C", 3 * SECOND);
        // The result of this probe is never reported.
        assert!(!breakers.admit("a.B/C", 4 * SECOND) && breakers.admit("a.B/C", 5 * SECOND));
        let probe = breakers.begun("a.B/C", 5 * SECOND);
        assert!(!breakers.ended(&Breaking::default(), "a.B/C", probe, Some(false), 5 * SECOND));
        assert!(breakers.none() && breakers.admit("a.B/C", 5 * SECOND));
    }

    #[test]
    fn calls_begun_before_the_opening_do_not_count() {
        let breakers = Breakers::default();
        calls(&breakers, 5, true, 0);
        assert!(!calls(&breakers, 100, true, SECOND / 2));
        calls(&breakers, 100, false, SECOND / 2);
        assert!(!breakers.admit("a.B/C", SECOND / 2));
        assert!(breakers.admit("a.B/C", SECOND));
    }

    /// Five calls fail while a sixth, which began before the breaker opened, is in flight.
    fn opened_with_one_in_flight() -> (Breakers, Probe) {
        let breakers = Breakers::default();
        let before = breakers.begun("a.B/C", 0);
        calls(&breakers, 5, true, 0);
        (breakers, before)
    }

    #[test]
    fn a_canceled_earlier_call_does_not_admit_a_second_probe() {
        let (breakers, before) = opened_with_one_in_flight();
        let probe = breakers.begun("a.B/C", SECOND);
        breakers.ended(&Breaking::default(), "a.B/C", before, None, SECOND);
        assert!(!breakers.admit("a.B/C", SECOND), "the probe is still under way");
        breakers.ended(&Breaking::default(), "a.B/C", probe, None, SECOND);
        assert!(breakers.admit("a.B/C", SECOND), "after a canceled probe the next call is the probe");
    }

    #[test]
    fn an_earlier_success_does_not_close_the_breaker() {
        let (breakers, before) = opened_with_one_in_flight();
        for probing in [false, true] {
            let probe = if probing { breakers.begun("a.B/C", SECOND) } else { Probe::NONE };
            for failed in [false, true] {
                assert!(!breakers.ended(&Breaking::default(), "a.B/C", before, Some(failed), SECOND));
                assert_eq!(breakers.open(), ["a.B/C"]);
            }
            assert_eq!(breakers.admit("a.B/C", SECOND), !probing);
            if probing {
                breakers.ended(&Breaking::default(), "a.B/C", probe, Some(false), SECOND);
                assert!(breakers.none(), "the probe closes it");
            }
        }
    }

    #[test]
    fn zero_turns_breakers_off_and_their_number_is_limited() {
        let breakers = Breakers::default();
        let off = Breaking { consecutive: 0, ..Breaking::default() };
        for _ in 0..100 {
            assert!(!breakers.ended(&off, "a.B/C", Probe::NONE, Some(true), 0));
        }
        assert!(breakers.none());
        for method in 0..2 * BREAKERS_MAX {
            breakers.ended(&Breaking::default(), &method.to_string(), Probe::NONE, Some(true), 0);
        }
        assert_eq!(breakers.lock().len(), BREAKERS_MAX);
    }
}
