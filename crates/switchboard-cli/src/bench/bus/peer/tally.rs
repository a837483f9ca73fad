//! Counts of the measuring side of a workload.

use super::{PeerArgs, Reading};
use crate::bench::bus::stamp::{Checker, Stamp};
use hdrhistogram::Histogram;
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// Counts of the receivers of a process, which are tasks of one thread.
#[derive(Debug)]
pub(crate) struct Tally {
    messages: AtomicU64,
    lost: AtomicU64,
    duplicates: AtomicU64,
    delays: Mutex<Histogram<u64>>,
    started: Notify,
}

/// Longer delays are counted as this one.
const DELAY_MAX: Duration = Duration::from_secs(100);

impl Tally {
    pub(crate) fn new() -> Self {
        let longest = DELAY_MAX.as_nanos() as u64;
        Self {
            messages: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            delays: Mutex::new(Histogram::new_with_bounds(1, longest, 3).expect("valid constant bounds")),
            started: Notify::new(),
        }
    }

    fn delays(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a message that arrived, and checks its number.
    pub(crate) fn receive(&self, message: &[u8], checker: &mut Checker, may_skip: bool) {
        let Some(stamp) = Stamp::read(message) else {
            add(&self.lost, 1);
            return;
        };
        self.count(stamp, checker, may_skip);
        if let Some(delay) = stamp.delay() {
            self.record(delay);
        }
    }

    fn count(&self, stamp: Stamp, checker: &mut Checker, may_skip: bool) {
        let before = *checker;
        checker.check(stamp.number, may_skip);
        if *checker != before {
            add(&self.lost, checker.lost - before.lost);
            add(&self.duplicates, checker.duplicates - before.duplicates);
        }
        if add(&self.messages, 1) == 1 {
            self.started.notify_one();
        }
    }

    /// Counts a message whose delay was measured by the caller.
    pub(crate) fn receive_timed(&self, message: &[u8], checker: &mut Checker, delay: Duration) {
        match Stamp::read(message) {
            Some(stamp) => self.count(stamp, checker, false),
            None => {
                add(&self.lost, 1);
            }
        }
        self.record(delay);
    }

    fn record(&self, delay: Duration) {
        self.delays().saturating_record(delay.as_nanos() as u64);
    }

    /// Waits for the first message and for the warm-up, prints `begin`, and returns the counts of the measured time.
    pub(crate) async fn measure(&self, args: &PeerArgs) -> Reading {
        self.started.notified().await;
        tokio::time::sleep(Duration::from_secs_f64(args.warm_up)).await;
        self.delays().reset();
        println!("begin");
        let (start, before) = (Instant::now(), self.messages.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_secs_f64(args.seconds)).await;
        let messages = self.messages.load(Ordering::Relaxed) - before;
        let elapsed_s = start.elapsed().as_secs_f64();
        let delays = self.delays();
        let at = |quantile| (!delays.is_empty()).then(|| delays.value_at_quantile(quantile) as f64 / 1e3);
        Reading {
            messages,
            elapsed_s,
            lost: self.lost.load(Ordering::Relaxed),
            duplicates: self.duplicates.load(Ordering::Relaxed),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            ..Reading::default()
        }
    }
}

/// Adds to a count that one thread changes and another may read; returns the sum.
fn add(count: &AtomicU64, more: u64) -> u64 {
    let sum = count.load(Ordering::Relaxed) + more;
    count.store(sum, Ordering::Relaxed);
    sum
}
