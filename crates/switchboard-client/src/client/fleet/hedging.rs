//! Observed latencies for hedging: the 95th percentile of the calls of a method.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Durations of calls, by method.
#[derive(Debug, Default)]
pub(super) struct Latencies(Mutex<HashMap<&'static str, Recent>>);

/// Maximum number of methods with observations; calls of further ones are not hedged by percentile.
const METHODS_MAX: usize = 1024;
/// Number of calls that each percentile is computed from: enough for a 95th percentile, and recent.
const RECENT: usize = 128;
/// Minimum number of calls for a percentile.
const CALLS_MIN: usize = 20;

#[derive(Debug)]
struct Recent {
    took: Vec<Duration>,
    next: usize,
    p95: Option<Duration>,
}

impl Latencies {
    pub(super) fn note(&self, method: &'static str, took: Duration) {
        let mut methods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if methods.len() >= METHODS_MAX && !methods.contains_key(method) {
            return;
        }
        methods.entry(method).or_insert_with(Recent::new).note(took);
    }

    /// The 95th percentile of the last calls; `None` before there are enough calls.
    pub(super) fn p95(&self, method: &'static str) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(method)?.p95
    }
}

impl Recent {
    fn new() -> Recent {
        Recent { took: Vec::new(), next: 0, p95: None }
    }

    fn note(&mut self, took: Duration) {
        if self.took.len() < RECENT {
            self.took.push(took);
        } else {
            self.took[self.next] = took;
        }
        self.next = (self.next + 1) % RECENT;
        // Sorting costs a microsecond, so it is not done with every call.
        if self.took.len() >= CALLS_MIN && (self.next.is_multiple_of(16) || self.p95.is_none()) {
            let mut sorted = self.took.clone();
            sorted.sort_unstable();
            self.p95 = Some(sorted[(sorted.len() * 95).div_ceil(100) - 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_covers_the_last_calls() {
        let latencies = Latencies::default();
        for millis in 1..=19 {
            latencies.note("a.B/C", Duration::from_millis(millis));
        }
        assert_eq!(latencies.p95("a.B/C"), None);
        for millis in 1..=200 {
            latencies.note("a.B/C", Duration::from_millis(millis % 100 + 1));
        }
        let p95 = latencies.p95("a.B/C").unwrap().as_millis();
        assert!((90..=100).contains(&p95), "{p95}");
        for _ in 0..2 * RECENT {
            latencies.note("a.B/C", Duration::from_millis(7));
        }
        assert_eq!(latencies.p95("a.B/C"), Some(Duration::from_millis(7)));
        assert_eq!(latencies.p95("a.B/D"), None);
    }
}
