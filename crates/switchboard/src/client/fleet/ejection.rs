//! Outlier ejection: endpoints that fail more than the rest of their fleet get no calls for a while, but never more of
//! them than a part.

use crate::balance::Endpoints;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// When endpoints are put aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ejecting {
    /// Endpoints of 100 that may be put aside at the same time; 0 turns it off.
    pub(super) percent_max: u32,
    /// Failures in a row, of any method.
    pub(super) consecutive: u32,
    /// Percentage points by which an endpoint fails more than the others together.
    pub(super) points: u32,
    /// Calls that it must have had since the last look.
    pub(super) calls_min: u64,
    /// The first time it is put aside so long, the second twice, up to ten times.
    pub(super) base_ns: u64,
}

impl Default for Ejecting {
    fn default() -> Ejecting {
        Ejecting { percent_max: 50, consecutive: 10, points: 30, calls_min: 20, base_ns: 5_000_000_000 }
    }
}

/// Rates are compared no more often than this.
const LOOK_NS: u64 = 1_000_000_000;

/// What is remembered of a fleet's endpoints, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ejection(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    looked: u64,
    of: HashMap<u64, Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    calls: u64,
    failures: u64,
    times: u64,
    until: u64,
}

impl Ejection {
    /// Looks at the fleet after a failure; the place of the endpoint that was put aside, if one was.
    pub(super) fn look(&self, ejecting: &Ejecting, set: &Endpoints, now_ns: u64) -> Option<usize> {
        let room = set.len() as u64 * u64::from(ejecting.percent_max) / 100;
        let ejected = set.iter().filter(|endpoint| endpoint.stats().is_ejected(now_ns)).count() as u64;
        if ejected >= room {
            return None;
        }
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |at: &usize| !set[*at].stats().is_ejected(now_ns);
        let streak = |at: &usize| set[*at].stats().streak() >= ejecting.consecutive;
        let found = (0..set.len()).filter(is_free).find(streak).or_else(|| {
            if now_ns < memory.looked.saturating_add(LOOK_NS) {
                return None;
            }
            memory.looked = now_ns;
            memory.outlier(ejecting, set).filter(is_free)
        });
        let known = memory.of.entry(set[found?].number()).or_default();
        // Who was well for as long as it was put aside begins anew.
        if now_ns > known.until.saturating_add(known.times * ejecting.base_ns) {
            known.times = 0;
        }
        known.times = (known.times + 1).min(10);
        known.until = now_ns.saturating_add(known.times * ejecting.base_ns);
        set[found?].stats().eject(known.until);
        found
    }
}

impl Memory {
    /// The endpoint that failed most since the last look, if that is much more than the others.
    fn outlier(&mut self, ejecting: &Ejecting, set: &Endpoints) -> Option<usize> {
        let since: Vec<(u64, u64)> = set
            .iter()
            .map(|endpoint| {
                let known = self.of.entry(endpoint.number()).or_default();
                let (calls, failures) = (endpoint.calls(), endpoint.failures());
                let since = (calls.saturating_sub(known.calls), failures.saturating_sub(known.failures));
                (known.calls, known.failures) = (calls, failures);
                since
            })
            .collect();
        if self.of.len() > 2 * set.len() {
            let numbers: std::collections::HashSet<_> =
                set.iter().map(crate::balance::Endpoint::number).collect();
            self.of.retain(|number, _| numbers.contains(number));
        }
        let (calls, failures) =
            since.iter().fold((0, 0), |sum, (calls, failed)| (sum.0 + calls, sum.1 + failed));
        let rate = |failures: u64, calls: u64| if calls == 0 { 0.0 } else { failures as f64 / calls as f64 };
        let excess = |at: &usize| {
            let (own_calls, own_failures) = since[*at];
            rate(own_failures, own_calls) - rate(failures - own_failures, calls - own_calls)
        };
        let enough = |at: &usize| since[*at].0 >= ejecting.calls_min;
        let worst = (0..set.len()).filter(enough).max_by(|a, b| excess(a).total_cmp(&excess(b)))?;
        (excess(&worst) * 100.0 >= f64::from(ejecting.points)).then_some(worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Code,
        balance::{Outcome, testing::fleet},
    };
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn calls(set: &Endpoints, at: usize, count: usize, code: Code) {
        for _ in 0..count {
            set[at].stats().begun();
            set[at].stats().ended(&Outcome::new(Duration::from_millis(1), code), 0);
        }
    }

    #[test]
    fn failures_in_a_row_put_it_aside() {
        let (ejection, ejecting, set) = (Ejection::default(), Ejecting::default(), fleet(&[100; 4]));
        calls(&set, 2, 9, Code::Internal);
        assert_eq!(ejection.look(&ejecting, &set, 0), None);
        calls(&set, 2, 1, Code::Internal);
        assert_eq!(ejection.look(&ejecting, &set, SECOND), Some(2));
        assert!(!set[2].is_well(6 * SECOND - 1) && set[2].is_well(6 * SECOND));
        // Still failing: twice as long.
        calls(&set, 2, 1, Code::Internal);
        assert_eq!(ejection.look(&ejecting, &set, 6 * SECOND), Some(2));
        assert!(!set[2].is_well(16 * SECOND - 1) && set[2].is_well(16 * SECOND));
        // Well for long: as the first time.
        calls(&set, 2, 1, Code::Ok);
        calls(&set, 2, 10, Code::Internal);
        assert_eq!(ejection.look(&ejecting, &set, 100 * SECOND), Some(2));
        assert!(set[2].is_well(105 * SECOND));
    }

    #[test]
    fn rates_are_compared_with_the_others() {
        let (ejection, ejecting, set) = (Ejection::default(), Ejecting::default(), fleet(&[100; 4]));
        for _ in 0..20 {
            for at in 0..4 {
                calls(&set, at, 1, Code::Ok);
                calls(&set, at, 1, Code::Internal);
            }
        }
        assert_eq!(ejection.look(&ejecting, &set, 10 * SECOND), None, "all fail alike");
        for _ in 0..20 {
            for at in 0..4 {
                calls(&set, at, 1, Code::Ok);
            }
            calls(&set, 1, 1, Code::Unavailable);
        }
        assert_eq!(ejection.look(&ejecting, &set, 10 * SECOND + 1), None, "too soon");
        assert_eq!(ejection.look(&ejecting, &set, 12 * SECOND), Some(1));
    }

    #[test]
    fn never_more_than_a_part() {
        let (ejection, ejecting, set) = (Ejection::default(), Ejecting::default(), fleet(&[100; 5]));
        for at in 0..5 {
            calls(&set, at, 100, Code::Internal);
        }
        let ejected: Vec<_> = (0..10).filter_map(|_| ejection.look(&ejecting, &set, SECOND)).collect();
        assert_eq!(ejected, [0, 1]);
        let alone = fleet(&[100]);
        calls(&alone, 0, 100, Code::Internal);
        assert_eq!(ejection.look(&ejecting, &alone, SECOND), None);
        let off = Ejecting { percent_max: 0, ..ejecting };
        let fresh = fleet(&[100; 5]);
        calls(&fresh, 0, 100, Code::Internal);
        assert_eq!(Ejection::default().look(&off, &fresh, SECOND), None);
    }
}
