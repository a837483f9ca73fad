//! Automatic concurrency limit that follows the peak of throughput, after brpc's auto limiter
//! (`auto_concurrency_limiter.md` of its documentation).
//!
//! By Little's law a server that is busy but not overloaded runs `peak rate × lowest latency` calls at once.
//! More concurrent calls add latency without adding throughput. So, for every window of samples,
//!
//! ```text
//! limit = peak rate × ((2 + α) × lowest latency − latency)
//! ```
//!
//! The limit is slightly above that product while latency is at its lowest, so that a rising peak is found,
//! and below it while calls queue. α grows while no calls queue and shrinks while calls queue. The lowest
//! latency is measured again from time to time, with a limit that is low enough for a moment to prevent
//! queueing.
//!
//! At half load the rate of a server says little about its peak, and calls arrive in bursts. Therefore,
//! unlike brpc's limiter, this limit falls only while latency shows that calls queue, and grows if it was
//! reached although no calls queued.

use super::{Adaptive, Sample};
use std::time::Duration;

/// Bounds of an automatic limit, see [`Concurrency::Auto`](super::Concurrency::Auto).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AutoLimit {
    /// Limit before the first measurement; default 40.
    pub initial: u32,
    /// Lower bound of the limit; default 4.
    pub least: u32,
    /// Upper bound of the limit, which takes precedence over `least`; default 100,000.
    pub most: u32,
    /// Interval between measurements of the lowest latency, which briefly lower the limit; default 50 s.
    pub remeasure: Duration,
}

impl Default for AutoLimit {
    fn default() -> AutoLimit {
        AutoLimit { initial: 40, least: 4, most: 100_000, remeasure: Duration::from_secs(50) }
    }
}

/// A window ends after this time if it has enough samples, or with the maximum number of samples.
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES_LEAST: u32 = 100;
const SAMPLES_MOST: u32 = 200;
/// Minimum length of a window, regardless of its number of samples: a rate measured over a shorter time is
/// random.
const WINDOW_LEAST: Duration = Duration::from_millis(1);
/// A window without enough samples after this time is discarded: the server is not busy.
const WINDOW_MOST: Duration = Duration::from_secs(2);
/// Range of α, and its change per window.
const ALPHA_LEAST: f64 = 0.06;
const ALPHA_MOST: f64 = 0.3;
const ALPHA_STEP: f64 = 0.02;
/// Growth of a limit that was reached although no calls queued.
const RAISE: f64 = 1.1;
/// Weight of a window in the lowest latency; a tenth of it is the weight in a peak that sinks.
const WEIGHT: f64 = 0.1;
/// Limit during a measurement of the lowest latency, relative to the current estimate of the concurrency
/// without queueing. It is half, so that an initial limit that is much too high is corrected in a few steps.
const REMEASURE_RATIO: f64 = 0.5;
/// Time to the first measurement; the intervals double from here.
const REMEASURE_FIRST: Duration = Duration::from_secs(2);
/// Time to the next measurement after one that found a much lower latency than before: calls queued all the
/// time, and may still queue.
const REMEASURE_SOON: Duration = Duration::from_millis(250);
const MUCH_LESS: f64 = 0.8;

pub(super) struct Auto {
    bounds: AutoLimit,
    clock: Clock,
    limit: u32,
    alpha: f64,
    /// In seconds; `None` until the first window is over, and during a measurement.
    least_latency: Option<f64>,
    /// Value before the current measurement.
    known_latency: Option<f64>,
    /// In calls per second.
    peak: f64,
    window: Window,
    remeasure_at: Duration,
    remeasure_every: Duration,
    /// End of the period in which calls that started under the higher limit may still end.
    settling: Option<Duration>,
}

/// Latest time and highest count of ended calls among the samples so far.
///
/// A thread reads the clock and the count before it takes the lock of the learner, so samples arrive out of
/// order. The values of this clock never decrease.
#[derive(Default)]
struct Clock {
    now: Duration,
    /// `None` before the first sample.
    ended: Option<u64>,
}

impl Clock {
    /// Advances to the time and the count of a sample, unless they are older; returns the sample with the
    /// current values.
    fn advance(&mut self, sample: Sample) -> Sample {
        self.now = self.now.max(sample.now);
        let known = self.ended.unwrap_or(sample.ended);
        // Counts have 32 bits and wrap around. A difference in the upper half means an older count.
        let more = u32::try_from(sample.ended.wrapping_sub(known) as i32).unwrap_or(0);
        let ended = known.wrapping_add(u64::from(more));
        self.ended = Some(ended);
        Sample { now: self.now, ended, ..sample }
    }
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
            clock: Clock::default(),
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
            // All calls fail; an overload is a possible reason.
            return self.set(f64::from(self.limit) / 2.0);
        }
        // The time of failed calls is charged to the successful ones.
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
            self.remeasure_at = sample.now.saturating_add(self.remeasure_every);
        }
        self.least_latency = Some(least);
        let calls = sample.ended.saturating_sub(ended).max(u64::from(window.samples));
        let rate = calls as f64 / sample.now.saturating_sub(began).max(WINDOW_LEAST).as_secs_f64();
        let weight = WEIGHT / 10.0;
        self.peak = if rate >= self.peak { rate } else { rate * weight + self.peak * (1.0 - weight) };
        // If the number of calls stays far below the limit, the limit delays no calls and no calls queue.
        let idle = window.most_in_flight < self.limit / 2;
        let is_met = window.most_in_flight + 1 >= self.limit;
        if self.remeasure_at <= sample.now {
            self.remeasure_every = self.remeasure_every.saturating_mul(2).min(self.bounds.remeasure);
            self.remeasure_at = sample.now.saturating_add(self.remeasure_every);
            if idle || !is_met && latency <= least * (1.0 + ALPHA_LEAST) {
                self.least_latency = Some(latency);
            } else {
                // The calls that run now have ended by then.
                let settles = Duration::try_from_secs_f64(latency * 2.0).unwrap_or(Duration::MAX);
                self.settling = Some(sample.now.saturating_add(settles));
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
        // The measured peak is the server's only while the server is busy. If the limit was reached and no
        // calls queued, either the limit holds the rate down or a burst arrived.
        let limit = f64::from(self.limit);
        let floor = match latency <= least * (1.0 + self.alpha) {
            true if is_met => limit * RAISE,
            true => limit,
            // One bad window halves the limit at most.
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
        let sample = self.clock.advance(sample);
        if let Some(settled) = self.settling {
            if sample.now < settled {
                return self.limit;
            }
            self.settling = None;
            self.known_latency = self.least_latency.take();
            self.window = Window::default();
        }
        let (began, _) = *self.window.began.get_or_insert((sample.now, sample.ended));
        self.window.samples = self.window.samples.saturating_add(1);
        self.window.good = self.window.good.saturating_add(u32::from(sample.is_ok));
        self.window.total = self.window.total.saturating_add(sample.took);
        self.window.most_in_flight = self.window.most_in_flight.max(sample.in_flight);
        let age = sample.now.saturating_sub(began);
        match self.window.samples {
            SAMPLES_MOST.. if age >= WINDOW_LEAST => self.close(sample),
            SAMPLES_LEAST.. if age >= WINDOW => self.close(sample),
            _ if age >= WINDOW_MOST => self.window = Window::default(),
            _ => {}
        }
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sample(now_ms: u64, ended: u64) -> Sample {
        let now = Duration::from_millis(now_ms);
        Sample { now, took: MS, is_ok: true, ended, in_flight: 20 }
    }

    /// Closes windows of 200 calls, one per second, until the limit is at most `least`; returns their number.
    fn windows_until(auto: &mut Auto, least: u32) -> u64 {
        let is_above = |auto: &mut Auto, window: u64| {
            let base = 2000 + window * 1000;
            (0..200).for_each(|n| _ = auto.sample(sample(base + n * 5, base + n)));
            auto.limit > least
        };
        (0..).find(|window| *window == 5000 || !is_above(auto, *window)).unwrap_or(5000)
    }

    #[test]
    fn sample_from_before_its_window_closes_the_window() {
        let mut auto = Auto::new(AutoLimit::default());
        (0..199).for_each(|n| _ = auto.sample(sample(1000 + n, 1000 + n)));
        auto.sample(sample(999, 1199));
        assert_eq!(auto.window.samples, 0);
        assert!(auto.limit <= 200, "{}", auto.limit);
    }

    #[test]
    fn older_count_of_ended_calls_is_no_peak() {
        let mut auto = Auto::new(AutoLimit::default());
        (0..199).for_each(|n| _ = auto.sample(sample(1000 + n, 1000 + n)));
        let limit = auto.sample(sample(1200, 999));
        assert!(limit <= 200, "{limit}");
        assert_eq!(windows_until(&mut auto, 200), 0);
    }

    #[test]
    fn counts_may_wrap_within_a_window() {
        let mut auto = Auto::new(AutoLimit::default());
        let wrapping = |n: u64| (u64::from(u32::MAX) - 100 + n) & u64::from(u32::MAX);
        (0..200).for_each(|n| _ = auto.sample(sample(1000 + n * 5, wrapping(n))));
        assert_eq!(auto.window.samples, 0);
        assert!((150.0..=250.0).contains(&auto.peak), "{}", auto.peak);
    }

    #[test]
    fn samples_of_one_instant_are_no_rate() {
        let mut auto = Auto::new(AutoLimit::default());
        (0..100_000).for_each(|n| _ = auto.sample(sample(1000, 1000 + n)));
        assert_eq!(auto.peak, 0.0);
        assert_eq!(auto.limit, AutoLimit::default().initial);
    }

    /// The limit stays within its bounds and converges to the same order of magnitude, in any order of
    /// samples.
    #[test]
    fn order_of_samples_does_not_matter() {
        let mut state = 88_172_645_463_325_252u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 11
        };
        for remeasure in [Duration::ZERO, Duration::from_secs(50), Duration::MAX] {
            let mut auto = Auto::new(AutoLimit { remeasure, ..AutoLimit::default() });
            for n in 0..200_000u64 {
                let (late, older) = (random() % 3000, random() % 500);
                let took = Duration::from_millis(random() % 10);
                let now = Duration::from_millis((n * 2).saturating_sub(late * (random() % 2)));
                let ended = n.wrapping_sub(older) & u64::from(u32::MAX);
                let is_ok = random() % 10 > 0;
                let limit =
                    auto.sample(Sample { now, took, is_ok, ended, in_flight: (random() % 60) as u32 });
                assert!((4..=2000).contains(&limit), "{limit} after {n} samples");
            }
        }
    }
}
