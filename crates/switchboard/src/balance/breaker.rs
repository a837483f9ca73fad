//! Circuit breakers: one for each endpoint and method that failed lately.
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
//! A method without failures has no breaker, so that calls of a healthy endpoint only look at one number. Its window
//! begins with its first failure and ends when none came for as long.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// When breakers open, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaking {
    /// Failures in a row; 0 turns breakers off.
    pub(crate) consecutive: u32,
    /// Failures of 100 calls, once there are `calls_min` in the window.
    pub(crate) percent: u32,
    pub(crate) calls_min: u32,
    pub(crate) window_ns: u64,
    /// The first pause; each further one in a row is twice as long, up to `open_max_ns`.
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

/// Methods of one endpoint that may have a breaker; further ones go without.
const BREAKERS_MAX: usize = 1024;

/// The breakers of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    /// How many there are, to be seen without the lock.
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

    /// Whether a call of `method` may go here.
    #[inline]
    pub(crate) fn admit(&self, method: &str, now_ns: u64) -> bool {
        self.none() || of(&mut self.lock(), method).is_none_or(|breaker| breaker.admits(now_ns))
    }

    /// A call of `method` goes here.
    #[inline]
    pub(crate) fn begun(&self, method: &str, now_ns: u64) {
        if !self.none()
            && let Some(breaker) = of(&mut self.lock(), method)
        {
            breaker.begun(now_ns);
        }
    }

    /// A call of `method` has ended; `failed` is none when that says nothing. Says whether a breaker has opened.
    #[inline]
    pub(crate) fn ended(&self, breaking: &Breaking, method: &str, failed: Option<bool>, now_ns: u64) -> bool {
        if (self.none() && failed != Some(true)) || breaking.consecutive == 0 {
            return false;
        }
        self.count(breaking, method, failed, now_ns)
    }

    #[cold]
    fn count(&self, breaking: &Breaking, method: &str, failed: Option<bool>, now_ns: u64) -> bool {
        let mut list = self.lock();
        let at = list.iter().position(|(name, _)| **name == *method).or_else(|| {
            let room = failed == Some(true) && list.len() < BREAKERS_MAX;
            room.then(|| {
                list.push((method.into(), Breaker::new(now_ns)));
                list.len() - 1
            })
        });
        let Some(at) = at else { return false };
        let ended = list[at].1.ended(breaking, failed, now_ns);
        if ended == Ended::Healed {
            list.swap_remove(at);
        }
        self.count.store(list.len() as u32, Ordering::Relaxed);
        ended == Ended::Opened
    }

    /// Forgets everything: it is another server.
    pub(crate) fn clear(&self) {
        let mut list = self.lock();
        list.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    /// How long calls of the method do not come here, if they do not; zero when one may find out whether they do again.
    pub(crate) fn open_for(&self, method: &str, now_ns: u64) -> Option<Duration> {
        let until = of(&mut self.lock(), method)?.open_until?;
        Some(Duration::from_nanos(until.saturating_sub(now_ns)))
    }

    /// The methods whose calls do not come here now, or one at a time.
    pub(crate) fn open(&self) -> Vec<String> {
        let list = self.lock();
        let open = list.iter().filter(|(_, breaker)| breaker.open_until.is_some());
        open.map(|(name, _)| name.to_string()).collect()
    }
}

fn of<'a>(list: &'a mut [(Box<str>, Breaker)], method: &str) -> Option<&'a mut Breaker> {
    list.iter_mut().find(|(name, _)| **name == *method).map(|(_, breaker)| breaker)
}

#[derive(Debug)]
struct Breaker {
    /// Failures since the last success.
    row: u32,
    window_since: u64,
    calls: u32,
    failures: u32,
    last_failure: u64,
    /// Open until then; half open after it, until a call has succeeded.
    open_until: Option<u64>,
    /// How long it was open last.
    pause: u64,
    /// When the call was sent that finds out whether it goes again.
    probed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Counted,
    /// Nothing is left to be remembered.
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
        }
    }

    fn admits(&self, now_ns: u64) -> bool {
        match self.open_until {
            None => true,
            Some(until) if now_ns < until => false,
            // A probe that does not come back must not keep it shut for ever.
            Some(_) => self.probed.is_none_or(|probed| now_ns >= probed.saturating_add(self.pause)),
        }
    }

    fn begun(&mut self, now_ns: u64) {
        if self.open_until.is_some_and(|until| now_ns >= until) {
            self.probed = Some(now_ns);
        }
    }

    fn ended(&mut self, breaking: &Breaking, failed: Option<bool>, now_ns: u64) -> Ended {
        let Some(failed) = failed else {
            self.probed = None;
            return Ended::Counted;
        };
        if let Some(until) = self.open_until {
            // Calls that were under way when it opened say nothing new.
            if self.probed.is_none() && now_ns < until {
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
        Ended::Opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Calls of one method that end at once.
    fn calls(breakers: &Breakers, count: u32, failed: bool, now_ns: u64) -> bool {
        let mut opened = false;
        for _ in 0..count {
            breakers.begun("a.B/C", now_ns);
            opened |= breakers.ended(&Breaking::default(), "a.B/C", Some(failed), now_ns);
        }
        opened
    }

    #[test]
    fn failures_in_a_row_open_it_for_this_method_only() {
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
    fn rate_opens_it_once_there_are_enough_calls() {
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
    fn old_failures_are_forgotten() {
        let breakers = Breakers::default();
        for at in 0..100 {
            calls(&breakers, 1, true, at * 11 * SECOND);
            calls(&breakers, 1, false, at * 11 * SECOND);
        }
        assert!(breakers.admit("a.B/C", 0));
        calls(&breakers, 1, false, 2000 * SECOND);
        assert!(breakers.none(), "nothing is left");
    }

    #[test]
    fn half_open_lets_one_through_and_believes_it() {
        let breakers = Breakers::default();
        calls(&breakers, 5, true, 0);
        assert!(breakers.admit("a.B/C", SECOND));
        breakers.begun("a.B/C", SECOND);
        assert!(!breakers.admit("a.B/C", SECOND), "one at a time");
        assert!(breakers.ended(&Breaking::default(), "a.B/C", Some(true), SECOND));
        assert!(!breakers.admit("a.B/C", 3 * SECOND - 1), "twice as long");
        breakers.begun("a.B/C", 3 * SECOND);
        // Nobody says how the probe ended.
        assert!(!breakers.admit("a.B/C", 4 * SECOND) && breakers.admit("a.B/C", 5 * SECOND));
        breakers.begun("a.B/C", 5 * SECOND);
        assert!(!breakers.ended(&Breaking::default(), "a.B/C", Some(false), 5 * SECOND));
        assert!(breakers.none() && breakers.admit("a.B/C", 5 * SECOND));
    }

    #[test]
    fn calls_from_before_do_not_decide() {
        let breakers = Breakers::default();
        calls(&breakers, 5, true, 0);
        assert!(!calls(&breakers, 100, true, SECOND / 2));
        calls(&breakers, 100, false, SECOND / 2);
        assert!(!breakers.admit("a.B/C", SECOND / 2));
        assert!(breakers.admit("a.B/C", SECOND));
    }

    #[test]
    fn off_is_off_and_there_is_an_end_to_them() {
        let breakers = Breakers::default();
        let off = Breaking { consecutive: 0, ..Breaking::default() };
        for _ in 0..100 {
            assert!(!breakers.ended(&off, "a.B/C", Some(true), 0));
        }
        assert!(breakers.none());
        for method in 0..2 * BREAKERS_MAX {
            breakers.ended(&Breaking::default(), &method.to_string(), Some(true), 0);
        }
        assert_eq!(breakers.lock().len(), BREAKERS_MAX);
    }
}
