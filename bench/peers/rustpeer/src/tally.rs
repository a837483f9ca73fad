//! Latencies, and the line of results.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Latencies that a caller keeps before it takes the lock of its runtime's histogram.
const BATCH: usize = 128;

/// Latencies of a caller, added to the histogram of its runtime in batches, so that a call needs neither a
/// lock nor a histogram for each caller.
pub(crate) struct Tally {
    to: Arc<Mutex<Latencies>>,
    begin: Instant,
    total: u64,
    errors: u64,
    first_error: Option<String>,
    last: Instant,
    nanos: Vec<u64>,
}

impl Tally {
    pub(crate) fn new(to: &Arc<Mutex<Latencies>>) -> Self {
        let begin = to.lock().expect("no thread panics with the lock").begin;
        let nanos = Vec::with_capacity(BATCH);
        Self { to: to.clone(), begin, total: 0, errors: 0, first_error: None, last: begin, nanos }
    }

    /// Takes a call that began at `from` and has just ended; the time now.
    pub(crate) fn record(&mut self, from: Instant, outcome: Result<(), String>) -> Instant {
        let now = Instant::now();
        self.total += 1;
        match outcome {
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert(error);
                self.last = self.last.max(now);
            }
            Ok(()) if from >= self.begin => {
                self.last = now;
                self.nanos.push((now - from).as_nanos() as u64);
                if self.nanos.len() == BATCH {
                    self.flush();
                }
            }
            Ok(()) => {}
        }
        now
    }

    fn flush(&mut self) {
        let mut to = self.to.lock().expect("no thread panics with the lock");
        for nanos in self.nanos.drain(..) {
            to.outcome.latencies.saturating_record(nanos);
        }
        to.outcome.total += std::mem::take(&mut self.total);
        to.outcome.errors += std::mem::take(&mut self.errors);
        to.outcome.elapsed = to.outcome.elapsed.max(self.last - self.begin);
        if to.outcome.first_error.is_none() {
            to.outcome.first_error = self.first_error.take();
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Latencies of the callers of a runtime.
pub(crate) struct Latencies {
    begin: Instant,
    outcome: Outcome,
}

impl Latencies {
    /// Calls that begin before `begin` are not counted.
    pub(crate) fn new(begin: Instant) -> Self {
        Self { begin, outcome: Outcome::default() }
    }

    pub(crate) fn take(&mut self) -> Outcome {
        std::mem::take(&mut self.outcome)
    }
}

/// The measurements of a client.
pub(crate) struct Outcome {
    latencies: Histogram<u64>,
    total: u64,
    errors: u64,
    first_error: Option<String>,
    /// From the end of the warm-up to the last reply.
    elapsed: Duration,
}

impl Default for Outcome {
    fn default() -> Self {
        let latencies =
            Histogram::new_with_max(60_000_000_000, 3).expect("the bounds are those of the crate");
        Self { latencies, total: 0, errors: 0, first_error: None, elapsed: Duration::ZERO }
    }
}

impl Outcome {
    /// Adds what another runtime measured at the same time.
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.add(&other.latencies).expect("all have the same bounds");
        self.total += other.total;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// One JSON object.
    pub(crate) fn line(&self) -> String {
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        let at = |part: f64| micros(self.latencies.value_at_quantile(part));
        let line = Line {
            requests: self.latencies.len(),
            total_requests: self.total,
            elapsed_s: self.elapsed.as_secs_f64(),
            errors: self.errors,
            first_error: self.first_error.as_deref(),
            mean_us: self.latencies.mean() / 1_000.0,
            min_us: micros(self.latencies.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(self.latencies.max()),
        };
        serde_json::to_string(&line).expect("numbers and a text become JSON")
    }
}

/// Microseconds of calls that began after the warm-up.
#[derive(Serialize)]
struct Line<'a> {
    requests: u64,
    total_requests: u64,
    elapsed_s: f64,
    errors: u64,
    first_error: Option<&'a str>,
    mean_us: f64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_warm_up_count_only_in_the_total() {
        let now = Instant::now();
        let latencies = Arc::new(Mutex::new(Latencies::new(now)));
        let mut tally = Tally::new(&latencies);
        tally.record(now - Duration::from_secs(1), Ok(()));
        tally.record(now, Ok(()));
        tally.record(now, Err("the connection is gone".to_owned()));
        drop(tally);
        let line: serde_json::Value = serde_json::from_str(&latencies.lock().unwrap().take().line()).unwrap();
        assert_eq!(
            (&line["requests"], &line["total_requests"], &line["errors"]),
            (&1.into(), &3.into(), &1.into())
        );
        assert_eq!(line["first_error"], "the connection is gone");
    }
}
