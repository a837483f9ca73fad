//! The last line of a client's output: counts and latencies of one measurement.

use serde::{Deserialize, Serialize};
use switchboard_cli::bench::measure::Measured;

/// The result of a client, in the form of the contract.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct ClientReport {
    /// Calls in the measured time.
    pub(crate) requests: u64,
    /// Calls including those of the warm-up.
    pub(crate) total_requests: u64,
    pub(crate) elapsed_s: f64,
    pub(crate) errors: u64,
    #[serde(default)]
    pub(crate) first_error: Option<String>,
    pub(crate) mean_us: f64,
    #[serde(default)]
    pub(crate) min_us: f64,
    pub(crate) p50_us: f64,
    #[serde(default)]
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    #[serde(default)]
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl ClientReport {
    pub(crate) fn of(measured: Measured) -> Self {
        Self {
            requests: measured.requests,
            total_requests: measured.calls,
            elapsed_s: measured.elapsed.as_secs_f64(),
            errors: measured.errors,
            mean_us: measured.mean_us(),
            min_us: measured.latency.min() as f64 / 1e3,
            p50_us: measured.latency_us(0.5),
            p90_us: measured.latency_us(0.9),
            p99_us: measured.latency_us(0.99),
            p999_us: measured.latency_us(0.999),
            max_us: measured.max_us(),
            first_error: measured.first_error,
        }
    }

    /// Merges the results of several clients that ran at once.
    ///
    /// Percentiles of the whole cannot be computed from those of its parts: means and medians are weighted by calls,
    /// and of the tails the worst is used.
    pub(crate) fn merge(parts: &[Self]) -> Self {
        let requests: u64 = parts.iter().map(|part| part.requests).sum();
        let worst = |of: fn(&Self) -> f64| parts.iter().map(of).fold(0.0, f64::max);
        let weighted = |of: fn(&Self) -> f64| {
            parts.iter().map(|part| of(part) * part.requests as f64).sum::<f64>() / requests.max(1) as f64
        };
        Self {
            requests,
            total_requests: parts.iter().map(|part| part.total_requests).sum(),
            elapsed_s: worst(|part| part.elapsed_s),
            errors: parts.iter().map(|part| part.errors).sum(),
            first_error: parts.iter().find_map(|part| part.first_error.clone()),
            mean_us: weighted(|part| part.mean_us),
            min_us: parts.iter().map(|part| part.min_us).fold(f64::INFINITY, f64::min),
            p50_us: weighted(|part| part.p50_us),
            p90_us: weighted(|part| part.p90_us),
            p99_us: worst(|part| part.p99_us),
            p999_us: worst(|part| part.p999_us),
            max_us: worst(|part| part.max_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answer(requests: u64, us: u64) -> ClientReport {
        let mut measured = Measured::new();
        (0..requests).for_each(|_| measured.record(Duration::from_micros(us)));
        measured.calls = requests + 1;
        measured.elapsed = Duration::from_secs(us);
        ClientReport::of(measured)
    }

    #[test]
    fn parts_add_up_and_tails_are_the_worst() {
        let whole = ClientReport::merge(&[answer(30, 10), answer(10, 50)]);
        assert_eq!((whole.requests, whole.total_requests, whole.elapsed_s), (40, 42, 50.0));
        assert_eq!((whole.mean_us.round(), whole.p50_us.round()), (20.0, 20.0));
        assert_eq!((whole.min_us.round(), whole.p99_us.round()), (10.0, 50.0));
    }

    #[test]
    fn optional_fields_of_a_client_default_to_zero() {
        let least = r#"{"requests":1,"total_requests":2,"elapsed_s":1,"errors":0,
            "mean_us":1,"p50_us":1,"p99_us":1,"max_us":1}"#;
        let answer: ClientReport = serde_json::from_str(least).unwrap();
        assert_eq!((answer.total_requests, answer.p999_us, answer.first_error), (2, 0.0, None));
    }
}
