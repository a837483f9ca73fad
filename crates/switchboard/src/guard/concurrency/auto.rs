//! The limit that finds the peak of throughput by itself, after brpc's auto limiter (`auto_concurrency_limiter.md` of
//! its documentation).
//!
//! By Little's law a server that is busy but not overloaded runs `peak rate × least latency` calls at once. More of
//! them add latency and no throughput. So, for every window of samples,
//!
//! ```text
//! limit = peak rate × ((2 + α) × least latency − latency)
//! ```
//!
//! which is a little more than that while latency is at its least, so that a peak that rises is found, and less while
//! calls queue. α grows while nothing queues and shrinks while something does. What is least is measured anew from
//! time to time, with a limit low enough for a moment that nothing can queue.
//!
//! A server with half of its load has no peak rate to speak of, and calls come in bunches: unlike brpc's, this limit
//! falls only while latency says that calls queue, and grows where it was met although none did.

use super::{Adaptive, Sample};
use std::time::Duration;

/// Bounds of an automatic limit, see [`Concurrency::Auto`](super::Concurrency::Auto).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AutoLimit {
    /// The limit before anything is known; 40 unless set.
    pub initial: u32,
    /// It is never lower; 4 unless set.
    pub least: u32,
    /// It is never higher, whatever `least` says; 100,000 unless set.
    pub most: u32,
    /// How often the least latency is measured anew, with fewer calls for a moment; 50 s unless set.
    pub remeasure: Duration,
}

impl Default for AutoLimit {
    fn default() -> AutoLimit {
        AutoLimit { initial: 40, least: 4, most: 100_000, remeasure: Duration::from_secs(50) }
    }
}

/// A window ends after this long, if it has enough samples, or with the most samples.
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES_LEAST: u32 = 100;
const SAMPLES_MOST: u32 = 200;
/// A window that has not got enough samples in this long is thrown away: nobody is busy.
const WINDOW_MOST: Duration = Duration::from_secs(2);
/// α, and by how much it changes with a window.
const ALPHA_LEAST: f64 = 0.06;
const ALPHA_MOST: f64 = 0.3;
const ALPHA_STEP: f64 = 0.02;
/// A limit that was met without a queue grows by this.
const RAISE: f64 = 1.1;
/// Weight of a window in the least latency, and a tenth of it in a peak that sinks.
const WEIGHT: f64 = 0.1;
/// The limit while the least latency is measured, relative to what fits without a queue as far as is known: half, so
/// that a limit that began much too high is found out in a few steps.
const REMEASURE_RATIO: f64 = 0.5;
/// The first measurement; the times between them double from here.
const REMEASURE_FIRST: Duration = Duration::from_secs(2);
/// The next one after one that found a latency so much less than known before: calls queued all the time, and may
/// still.
const REMEASURE_SOON: Duration = Duration::from_millis(250);
const MUCH_LESS: f64 = 0.8;

pub(super) struct Auto {
    bounds: AutoLimit,
    limit: u32,
    alpha: f64,
    /// In seconds; none until a window is over, and while it is measured anew.
    least_latency: Option<f64>,
    /// What it was before it was measured anew.
    known_latency: Option<f64>,
    /// In calls a second.
    peak: f64,
    window: Window,
    remeasure_at: Duration,
    remeasure_every: Duration,
    /// Until when calls that began under the higher limit may still end.
    settling: Option<Duration>,
}

#[derive(Default)]
struct Window {
    began: Option<(Duration, u64)>,
    samples: u32,
    good: u32,
    total: Duration,
    most_in_flight: u32,
}

impl Auto {
    pub(super) fn new(bounds: AutoLimit) -> Auto {
        let most = bounds.most.max(1);
        let bounds = AutoLimit { least: bounds.least.clamp(1, most), most, ..bounds };
        let limit = bounds.initial.clamp(bounds.least, most);
        let remeasure_every = REMEASURE_FIRST.min(bounds.remeasure);
        Auto {
            bounds,
            limit,
            alpha: ALPHA_MOST,
            least_latency: None,
            known_latency: None,
            peak: 0.0,
            window: Window::default(),
            remeasure_at: remeasure_every,
            remeasure_every,
            settling: None,
        }
    }

    fn close(&mut self, sample: Sample) {
        let window = std::mem::take(&mut self.window);
        let Some((began, ended)) = window.began else { return };
        if window.good == 0 {
            // Everything fails: perhaps because there is too much of it.
            return self.set(f64::from(self.limit) / 2.0);
        }
        // Failures count as time that the good calls cost.
        let latency = window.total.as_secs_f64() / f64::from(window.good);
        let least = match self.least_latency {
            Some(least) if latency >= least => least,
            Some(least) => latency * WEIGHT + least * (1.0 - WEIGHT),
            None => latency,
        };
        if let Some(known) = self.known_latency.take() {
            let next = match least < known * MUCH_LESS {
                true => REMEASURE_SOON,
                false => self.remeasure_every.max(REMEASURE_FIRST),
            };
            self.remeasure_every = next.min(self.bounds.remeasure);
            self.remeasure_at = sample.now + self.remeasure_every;
        }
        self.least_latency = Some(least);
        let rate = f64::from((sample.ended.wrapping_sub(ended) as u32).max(window.samples))
            / (sample.now - began).as_secs_f64().max(1e-6);
        let weight = WEIGHT / 10.0;
        self.peak = if rate >= self.peak { rate } else { rate * weight + self.peak * (1.0 - weight) };
        // Where nothing comes near the limit it holds nothing back, and nothing queues.
        let idle = window.most_in_flight < self.limit / 2;
        let is_met = window.most_in_flight + 1 >= self.limit;
        if self.remeasure_at <= sample.now {
            self.remeasure_every = (self.remeasure_every * 2).min(self.bounds.remeasure);
            self.remeasure_at = sample.now + self.remeasure_every;
            if idle || !is_met && latency <= least * (1.0 + ALPHA_LEAST) {
                self.least_latency = Some(latency);
            } else {
                // Calls that run now are over by then.
                self.settling = Some(sample.now + Duration::from_secs_f64(latency * 2.0));
                return self.set(self.peak * least * REMEASURE_RATIO);
            }
        }
        if idle {
            return;
        }
        let calm = latency <= least * (1.0 + ALPHA_LEAST) || rate <= self.peak / (1.0 + ALPHA_LEAST);
        let step = if calm { ALPHA_STEP } else { -ALPHA_STEP };
        self.alpha = (self.alpha + step).clamp(ALPHA_LEAST, ALPHA_MOST);
        let wanted = self.peak * ((2.0 + self.alpha) * least - latency);
        // The peak is that of the server only while it is busy: where the limit was met and nothing queued, it is the
        // limit that holds the rate down, or chance that brought so many calls at once.
        let limit = f64::from(self.limit);
        let floor = match latency <= least * (1.0 + self.alpha) {
            true if is_met => limit * RAISE,
            true => limit,
            // One bad window halves it at most.
            false => limit / 2.0,
        };
        self.set(wanted.max(floor));
    }

    fn set(&mut self, limit: f64) {
        self.limit = (limit.ceil() as u32).clamp(self.bounds.least, self.bounds.most);
    }
}

impl Adaptive for Auto {
    fn sample(&mut self, sample: Sample) -> u32 {
        if let Some(settled) = self.settling {
            if sample.now < settled {
                return self.limit;
            }
            self.settling = None;
            self.known_latency = self.least_latency.take();
            self.window = Window::default();
        }
        let (began, _) = *self.window.began.get_or_insert((sample.now, sample.ended));
        self.window.samples += 1;
        self.window.good += u32::from(sample.is_ok);
        self.window.total += sample.took;
        self.window.most_in_flight = self.window.most_in_flight.max(sample.in_flight);
        let age = sample.now.saturating_sub(began);
        match self.window.samples {
            SAMPLES_MOST.. => self.close(sample),
            SAMPLES_LEAST.. if age >= WINDOW => self.close(sample),
            _ if age >= WINDOW_MOST => self.window = Window::default(),
            _ => {}
        }
        self.limit
    }
}
