//! The counts of one measurement, and their percentiles.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Counts of one measurement, or of one worker's share of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Latencies of successful calls, and of arrivals that were missed, in nanoseconds, to three digits.
    pub latency: Histogram<u64>,
    /// Calls with a correct reply in the measured time.
    pub requests: u64,
    /// Calls made at any time, the warm-up and failures included.
    pub calls: u64,
    /// Calls that failed, or had a wrong reply, at any time.
    pub errors: u64,
    /// The text of the first error.
    pub first_error: Option<String>,
    /// Open loop: arrivals without a reply by the end.
    pub missed: u64,
    /// The time in which `requests` were completed.
    pub elapsed: Duration,
    /// Resident memory of the server for each idle connection.
    pub bytes_per_connection: Option<f64>,
    /// Resident memory of the server after the first replies and at the end.
    pub server_rss: Option<(u64, u64)>,
}

/// Longer latencies are counted as this one.
const LONGEST: Duration = Duration::from_secs(100);

impl Default for Measured {
    fn default() -> Self {
        Self::new()
    }
}

impl Measured {
    /// Returns counts of zero.
    pub fn new() -> Self {
        let longest_ns = u64::try_from(LONGEST.as_nanos()).expect("100 s fit");
        Self {
            latency: Histogram::new_with_bounds(1, longest_ns, 3).expect("valid constant bounds"),
            requests: 0,
            calls: 0,
            errors: 0,
            first_error: None,
            missed: 0,
            elapsed: Duration::ZERO,
            bytes_per_connection: None,
            server_rss: None,
        }
    }

    /// Counts one successful call.
    pub fn record(&mut self, latency: Duration) {
        self.requests += 1;
        self.record_latency(latency);
    }

    /// Counts an arrival without a reply in time, by how long it waited.
    pub fn miss(&mut self, waited: Duration) {
        self.missed += 1;
        self.record_latency(waited);
    }

    /// Counts one failed call.
    pub fn fail(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// Adds another worker's share.
    pub fn merge(&mut self, other: Self) {
        self.latency.add(&other.latency).expect("histograms of the same bounds");
        self.requests += other.requests;
        self.calls += other.calls;
        self.errors += other.errors;
        if let Some(error) = other.first_error {
            self.first_error.get_or_insert(error);
        }
        self.missed += other.missed;
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub fn requests_per_s(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.requests as f64 / self.elapsed.as_secs_f64() }
    }

    /// Returns the latency in microseconds that a share `quantile` (0 to 1) of the calls did not exceed; 0 without
    /// calls.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    pub fn mean_us(&self) -> f64 {
        self.latency.mean() / 1e3
    }

    pub fn max_us(&self) -> f64 {
        self.latency.max() as f64 / 1e3
    }

    fn record_latency(&mut self, latency: Duration) {
        self.latency.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut measured = Measured::new();
        for us in 1..=1000 {
            measured.record(Duration::from_micros(us));
        }
        for (quantile, us) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = measured.latency_us(quantile);
            assert!((found - us).abs() <= us / 1000.0, "{quantile}: {found}");
        }
        assert!((measured.mean_us() - 500.5).abs() < 1.0);
        assert!((measured.max_us() - 1000.0).abs() < 1.0);
    }

    #[test]
    fn latencies_beyond_the_longest_are_kept_as_the_longest() {
        let mut measured = Measured::new();
        measured.record(Duration::from_hours(1));
        assert!(measured.max_us() >= LONGEST.as_secs_f64() * 1e6);
    }

    #[test]
    fn shares_add_up_and_the_longest_time_counts() {
        let mut one = Measured::new();
        one.record(Duration::from_micros(1));
        one.elapsed = Duration::from_secs(1);
        let mut other = Measured::new();
        other.record(Duration::from_micros(3));
        other.fail("refused".to_owned());
        other.fail("later".to_owned());
        other.miss(Duration::from_micros(5));
        other.elapsed = Duration::from_secs(2);
        one.merge(other);
        assert_eq!((one.requests, one.errors, one.missed), (2, 2, 1));
        assert_eq!(one.first_error.as_deref(), Some("refused"));
        assert_eq!(one.requests_per_s(), 1.0);
        assert_eq!(one.latency.len(), 3);
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }
}
