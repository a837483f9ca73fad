//! The stamps of messages, and what the measuring side counts.

use crate::arguments::Arguments;
use bytes::Bytes;
use hdrhistogram::Histogram;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Notify;

const STAMP_BYTES: usize = 20;

pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A new message each time, as an application makes it. Every 64th one has the time.
pub(crate) fn message(sender: u32, number: u64, bytes: usize) -> Bytes {
    let mut message = vec![0; bytes];
    let time_ns = if number.is_multiple_of(64) { now_ns() } else { 0 };
    message[..4].copy_from_slice(&sender.to_le_bytes());
    message[4..12].copy_from_slice(&number.to_le_bytes());
    message[12..STAMP_BYTES].copy_from_slice(&time_ns.to_le_bytes());
    Bytes::from(message)
}

/// Sender of a message, 0 without a stamp.
pub(crate) fn sender(message: &[u8]) -> u32 {
    message.first_chunk().map_or(0, |sender| u32::from_le_bytes(*sender))
}

/// The number of the next message of a sender.
pub(crate) type Next = Option<u64>;

/// Counts of the receivers of a process, which are tasks of one thread.
pub(crate) struct Tally {
    messages: AtomicU64,
    lost: AtomicU64,
    duplicates: AtomicU64,
    delays: Mutex<Histogram<u64>>,
    started: Notify,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            messages: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            delays: Mutex::new(Histogram::new_with_bounds(1, 100_000_000_000, 3).unwrap()),
            started: Notify::new(),
        }
    }

    /// Counts a message. With `may_skip` other receivers have the missing ones; `delay_ns` was measured by the caller.
    pub(crate) fn receive(&self, message: &[u8], next: &mut Next, may_skip: bool, delay_ns: Option<u64>) {
        let Some(stamp) = message.get(..STAMP_BYTES) else {
            add(&self.lost, 1);
            return;
        };
        let at = |from: usize| u64::from_le_bytes(stamp[from..from + 8].try_into().unwrap());
        let (number, time_ns) = (at(4), at(12));
        match *next {
            Some(expected) if number < expected => {
                add(&self.duplicates, 1);
            }
            expected => {
                if let Some(expected) = expected.filter(|_| !may_skip)
                    && number > expected
                {
                    add(&self.lost, number - expected);
                }
                *next = Some(number + 1);
            }
        }
        if add(&self.messages, 1) == 1 {
            self.started.notify_one();
        }
        let delay_ns = delay_ns.or_else(|| (time_ns > 0).then(|| now_ns().saturating_sub(time_ns)));
        if let Some(delay_ns) = delay_ns {
            self.delays.lock().unwrap().saturating_record(delay_ns);
        }
    }

    /// Waits for the first message and the warm-up, prints `begin`, then the result.
    pub(crate) async fn measure(&self, arguments: &Arguments) {
        self.started.notified().await;
        tokio::time::sleep(Duration::from_secs_f64(arguments.warm_up)).await;
        self.delays.lock().unwrap().reset();
        println!("begin");
        let (start, before) = (Instant::now(), self.messages.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_secs_f64(arguments.seconds)).await;
        let messages = self.messages.load(Ordering::Relaxed) - before;
        let elapsed = start.elapsed().as_secs_f64();
        let delays = self.delays.lock().unwrap();
        let at = |quantile| delays.value_at_quantile(quantile) as f64 / 1e3;
        println!(
            "{{\"messages\":{messages},\"elapsed_s\":{elapsed},\"lost\":{},\"duplicates\":{},\"p50_us\":{},\
             \"p99_us\":{},\"p999_us\":{}}}",
            self.lost.load(Ordering::Relaxed),
            self.duplicates.load(Ordering::Relaxed),
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
}

fn add(count: &AtomicU64, more: u64) -> u64 {
    let sum = count.load(Ordering::Relaxed) + more;
    count.store(sum, Ordering::Relaxed);
    sum
}
