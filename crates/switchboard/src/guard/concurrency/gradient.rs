//! The limit that follows the gradient of latency: what calls take at best, over what they take now.
//!
//! ```text
//! limit = limit × gradient + room,  gradient = tolerance × least latency ÷ latency, from 0.5 to 1
//! ```
//!
//! While calls take what they take at best, the limit grows by its room; once they take longer it shrinks by as much.
//! What is best is measured anew from time to time, under half the limit. It knows no throughput, so it reacts within a
//! few dozen calls where the automatic limit needs a window.

use super::{Adaptive, Sample};

/// Bounds of a limit by gradient, see [`Concurrency::Gradient`](super::Concurrency::Gradient).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GradientLimit {
    /// The limit before anything is known; 20 unless set.
    pub initial: u32,
    /// It is never lower; 4 unless set.
    pub least: u32,
    /// It is never higher, whatever `least` says; 100,000 unless set.
    pub most: u32,
    /// How much longer than at best calls may take before the limit shrinks; 1.5 unless set.
    pub tolerance: f64,
}

impl Default for GradientLimit {
    fn default() -> GradientLimit {
        GradientLimit { initial: 20, least: 4, most: 100_000, tolerance: 1.5 }
    }
}

/// Samples of one step.
const SAMPLES: u32 = 32;
/// Steps from one measurement of the least latency to the next.
const MEASURE_EVERY: u32 = 500;
/// Weight of one step in the limit.
const SMOOTHING: f64 = 0.2;

pub(super) struct Gradient {
    bounds: GradientLimit,
    limit: f64,
    /// In seconds.
    least: Option<f64>,
    /// Steps until the least latency is measured anew: in the last two the limit is halved.
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
            // The first soon: it may begin too high.
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
            // Calls from before end meanwhile.
            1 => return,
            _ => {}
        }
        let least = self.least.map_or(short, |least| least.min(short));
        self.least = Some(least);
        // Calls that never reach the limit say nothing about it.
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
        // Failures may be fast for other reasons than that there is little to do.
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
