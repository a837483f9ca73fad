//! Concurrency limit that follows the gradient of latency: the ratio of the lowest latency to the current
//! one.
//!
//! ```text
//! limit = limit × gradient + room,  gradient = tolerance × lowest latency ÷ latency, from 0.5 to 1
//! ```
//!
//! While calls take their lowest latency, the limit grows by `room`; once they take longer, it shrinks in
//! proportion. The lowest latency is measured again from time to time, under half the limit. The algorithm
//! does not use throughput, so it reacts within a few dozen calls, whereas the automatic limit needs a
//! window.

use super::{Adaptive, Sample};

/// Bounds of a limit by gradient, see [`Concurrency::Gradient`](super::Concurrency::Gradient).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GradientLimit {
    /// Limit before the first measurement; default 20.
    pub initial: u32,
    /// Lower bound of the limit; default 4.
    pub least: u32,
    /// Upper bound of the limit, which takes precedence over `least`; default 100,000.
    pub most: u32,
    /// Ratio of latency to the lowest latency above which the limit shrinks; default 1.5.
    pub tolerance: f64,
}

impl Default for GradientLimit {
    fn default() -> GradientLimit {
        GradientLimit { initial: 20, least: 4, most: 100_000, tolerance: 1.5 }
    }
}

/// Number of samples of one step.
const SAMPLES: u32 = 32;
/// Number of steps between two measurements of the lowest latency.
const MEASURE_EVERY: u32 = 500;
/// Weight of one step in the limit.
const SMOOTHING: f64 = 0.2;

pub(super) struct Gradient {
    bounds: GradientLimit,
    limit: f64,
    /// In seconds.
    least: Option<f64>,
    /// Steps until the next measurement of the lowest latency; during the last two the limit is halved.
    steps: u32,
    samples: u32,
    total: f64,
    most_in_flight: u32,
}

impl Gradient {
    pub(super) fn new(bounds: GradientLimit) -> Gradient {
        let most = bounds.most.max(1);
        let bounds = GradientLimit { least: bounds.least.clamp(1, most), most, ..bounds };
        let limit = bounds.initial.clamp(bounds.least, most);
        Gradient {
            bounds,
            limit: f64::from(limit),
            least: None,
            // The first measurement comes early, because the initial limit may be too high.
            steps: MEASURE_EVERY / 10,
            samples: 0,
            total: 0.0,
            most_in_flight: 0,
        }
    }

    fn step(&mut self) {
        let short = (self.total / f64::from(self.samples)).max(1e-9);
        let busy = self.most_in_flight;
        (self.samples, self.total, self.most_in_flight) = (0, 0.0, 0);
        self.steps -= 1;
        match self.steps {
            0 => {
                self.steps = MEASURE_EVERY;
                self.least = Some(short);
                return;
            }
            // Calls that started before the limit was halved end during this step.
            1 => return,
            _ => {}
        }
        let least = self.least.map_or(short, |least| least.min(short));
        self.least = Some(least);
        // Latency of calls that stay far below the limit does not depend on it.
        if f64::from(busy) < self.limit / 2.0 {
            return;
        }
        let gradient = (self.bounds.tolerance * least / short).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + self.limit.sqrt();
        self.limit = self.limit * (1.0 - SMOOTHING) + wanted * SMOOTHING;
        self.limit = self.limit.clamp(f64::from(self.bounds.least), f64::from(self.bounds.most));
    }
}

impl Adaptive for Gradient {
    fn sample(&mut self, sample: Sample) -> u32 {
        // Failures may be fast for reasons other than low load.
        if sample.is_ok || self.least.is_some_and(|least| sample.took.as_secs_f64() > least) {
            self.samples += 1;
            self.total += sample.took.as_secs_f64();
            self.most_in_flight = self.most_in_flight.max(sample.in_flight);
            if self.samples == SAMPLES {
                self.step();
            }
        }
        let measures = self.steps <= 2;
        let limit = if measures { self.limit / 2.0 } else { self.limit };
        (limit as u32).max(self.bounds.least)
    }
}
