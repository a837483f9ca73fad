//! Outlier ejection: endpoints that fail more than the rest of their fleet get no calls for a while, up to a maximum
//! percentage of the fleet.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};
use switchboard_discovery::balance::Endpoints;

/// Thresholds and durations of ejection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ejecting {
    /// Maximum percentage of endpoints that may be ejected at the same time; 0 turns ejection off.
    pub(super) percent_max: u32,
    /// Consecutive failures of any method that eject an endpoint.
    pub(super) consecutive: u32,
    /// Percentage points by which the failure rate of an endpoint exceeds that of all others together.
    pub(super) points: u32,
    /// Minimum number of calls since the last comparison.
    pub(super) calls_min: u64,
    /// Duration of the first ejection; each further one is longer by this time, up to ten times.
    pub(super) base_ns: u64,
}

impl Default for Ejecting {
    fn default() -> Ejecting {
        Ejecting { percent_max: 50, consecutive: 10, points: 30, calls_min: 20, base_ns: 5_000_000_000 }
    }
}

/// Minimum time between two comparisons of failure rates.
const LOOK_NS: u64 = 1_000_000_000;

/// State of ejection: the history of a fleet's endpoints, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Ejection(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    looked: u64,
    of: HashMap<u64, History>,
}

#[derive(Clone, Copy, Debug, Default)]
struct History {
    calls: u64,
    failures: u64,
    times: u64,
    until: u64,
}

impl Ejection {
    /// Checks the fleet after a failure; returns the index of the endpoint that was ejected, if any.
    pub(super) fn check(&self, ejecting: &Ejecting, set: &Endpoints, now_ns: u64) -> Option<usize> {
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
        let history = memory.of.entry(set[found?].number()).or_default();
        // An endpoint that was healthy for as long as its last ejection starts again with the shortest one.
        if now_ns > history.until.saturating_add(history.times * ejecting.base_ns) {
            history.times = 0;
        }
        history.times = (history.times + 1).min(10);
        history.until = now_ns.saturating_add(history.times * ejecting.base_ns);
        set[found?].stats().eject(history.until);
        found
    }
}

impl Memory {
    /// Returns the endpoint with the highest failure rate since the last comparison, if it exceeds that of the others
    /// by the threshold.
    fn outlier(&mut self, ejecting: &Ejecting, set: &Endpoints) -> Option<usize> {
        let since: Vec<(u64, u64)> = set
            .iter()
            .map(|endpoint| {
                let history = self.of.entry(endpoint.number()).or_default();
                let (calls, failures) = (endpoint.calls(), endpoint.failures());
                let since = (calls.saturating_sub(history.calls), failures.saturating_sub(history.failures));
                (history.calls, history.failures) = (calls, failures);
                since
            })
            .collect();
        if self.of.len() > 2 * set.len() {
            let numbers: std::collections::HashSet<_> =
                set.iter().map(switchboard_discovery::balance::Endpoint::number).collect();
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
    use std::time::Duration;
    use switchboard_discovery::{
        balance::{Endpoint, Outcome},
        discover::Instance,
    };
    use switchboard_wire::Code;

    const SECOND: u64 = 1_000_000_000;

    fn fleet(weights: &[u32]) -> Endpoints {
        let endpoint = |(at, weight): (usize, &u32)| {
            Endpoint::new(Instance::new("a.B", format!("tcp://10.0.0.{at}:1")).weight(*weight))
        };
        Endpoints::new(weights.iter().enumerate().map(endpoint).collect())
    }

    fn calls(set: &Endpoints, at: usize, count: usize, code: Code) {
        for _ in 0..count {
            set[at].stats().begun();
            set[at].stats().ended(&Outcome::new(Duration::from_millis(1), code), 0);
        }
    }

    #[test]
    fn consecutive_failures_eject_the_endpoint() {
        let (ejection, ejecting, set) = (Ejection::default(), Ejecting::default(), fleet(&[100; 4]));
        calls(&set, 2, 9, Code::Internal);
        assert_eq!(ejection.check(&ejecting, &set, 0), None);
        calls(&set, 2, 1, Code::Internal);
        assert_eq!(ejection.check(&ejecting, &set, SECOND), Some(2));
        assert!(!set[2].is_healthy(6 * SECOND - 1) && set[2].is_healthy(6 * SECOND));
        // Still failing: twice as long.
        calls(&set, 2, 1, Code::Internal);
        assert_eq!(ejection.check(&ejecting, &set, 6 * SECOND), Some(2));
        assert!(!set[2].is_healthy(16 * SECOND - 1) && set[2].is_healthy(16 * SECOND));
        // Healthy for long: as the first time.
        calls(&set, 2, 1, Code::Ok);
        calls(&set, 2, 10, Code::Internal);
        assert_eq!(ejection.check(&ejecting, &set, 100 * SECOND), Some(2));
        assert!(set[2].is_healthy(105 * SECOND));
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
        assert_eq!(ejection.check(&ejecting, &set, 10 * SECOND), None, "all fail alike");
        for _ in 0..20 {
            for at in 0..4 {
                calls(&set, at, 1, Code::Ok);
            }
            calls(&set, 1, 1, Code::Unavailable);
        }
        assert_eq!(ejection.check(&ejecting, &set, 10 * SECOND + 1), None, "too soon");
        assert_eq!(ejection.check(&ejecting, &set, 12 * SECOND), Some(1));
    }

    #[test]
    fn ejections_are_limited_to_a_percentage() {
        let (ejection, ejecting, set) = (Ejection::default(), Ejecting::default(), fleet(&[100; 5]));
        for at in 0..5 {
            calls(&set, at, 100, Code::Internal);
        }
        let ejected: Vec<_> = (0..10).filter_map(|_| ejection.check(&ejecting, &set, SECOND)).collect();
        assert_eq!(ejected, [0, 1]);
        let alone = fleet(&[100]);
        calls(&alone, 0, 100, Code::Internal);
        assert_eq!(ejection.check(&ejecting, &alone, SECOND), None);
        let off = Ejecting { percent_max: 0, ..ejecting };
        let fresh = fleet(&[100; 5]);
        calls(&fresh, 0, 100, Code::Internal);
        assert_eq!(Ejection::default().check(&off, &fresh, SECOND), None);
    }
}
