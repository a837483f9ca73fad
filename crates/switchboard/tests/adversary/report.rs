//! How quick the calls of a well-behaved caller were, and the table of it: p99 in milliseconds, by the clock
//! and in processor time of the serving thread, alone and beside the peer.

use std::{fmt, time::Duration};

/// Calls that take no more processor time than this are quick whatever they take alone.
/// Without optimisation everything takes several times as long.
const FLOOR: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 20 });
/// As many times as long as alone calls may take beside a hostile peer.
const RATIO_MAX: u32 = 10;

/// Calls whose times are kept.
const KEPT_MAX: usize = 10_000;

/// Durations of calls: by the clock, and as processor time of the serving thread.
#[derive(Default)]
pub struct Latencies {
    calls: usize,
    clock: Vec<Duration>,
    work: Vec<Duration>,
}

impl Latencies {
    pub fn add(&mut self, clock: Duration, work: Duration) {
        self.calls += 1;
        // The heap of this thread is measured, so the samples are limited.
        if self.clock.len() < KEPT_MAX {
            self.clock.push(clock);
            self.work.push(work);
        }
    }

    pub fn len(&self) -> usize {
        self.calls
    }

    /// Both at the 99th percentile.
    fn p99(&self) -> [Duration; 2] {
        [&self.clock, &self.work].map(|all| {
            let mut all = all.clone();
            all.sort();
            all.get((all.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
        })
    }
}

/// One strategy against one wire.
pub struct Row {
    pub wire: &'static str,
    pub name: &'static str,
    pub deeds: u64,
    pub alone: Latencies,
    pub beside: Latencies,
    /// The most heap that the peer made the serving thread use.
    pub peak: i64,
    /// Heap that is in use after it, beyond that before the first strategy.
    pub left: i64,
}

impl Row {
    /// Returns whether calls beside the peer took little more work than alone.
    pub fn is_quick(&self) -> bool {
        let ([_, alone], [_, beside]) = (self.alone.p99(), self.beside.p99());
        beside <= FLOOR.max(alone * RATIO_MAX)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([clock_alone, work_alone], [clock, work]) = (self.alone.p99(), self.beside.p99());
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let ratio = work.as_secs_f64() / work_alone.as_secs_f64().max(1e-9);
        write!(
            f,
            "{:<19} {:<38} {:>7} {:>6} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>6.1} {:>8} {:>6}",
            self.wire,
            self.name,
            self.deeds,
            self.beside.len(),
            millis(clock_alone),
            millis(clock),
            millis(work_alone),
            millis(work),
            ratio,
            self.peak >> 10,
            self.left >> 10,
        )
    }
}

/// The head of the table of all rows.
pub fn head() -> String {
    format!(
        "{:<19} {:<38} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>6}",
        "wire",
        "strategy",
        "rounds",
        "calls",
        "alone",
        "beside",
        "work",
        "beside",
        "ratio",
        "peak KiB",
        "left"
    )
}
