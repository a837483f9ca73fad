//! Publications per second with one subscription inside the process, beside a bare queue behind one lock.
//!
//! `cargo run --release -p switchboard-message --example floor -- [BYTES] [ROUNDS]` prints both, in turn: with
//! publisher and subscription on one thread, which take turns of 64 entries, and on two threads. On Linux, the rates of
//! the first two are also printed per second of processor time, for machines that do other work at the same time.

use bytes::Bytes;
use std::{
    collections::VecDeque,
    env,
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use switchboard_message::{Bus, Delivery, Publication, SlowReader, Topic, TopicOptions};
use switchboard_wire::Codec;

/// Duration of one measurement.
const SPAN: Duration = Duration::from_secs(1);
/// Entries per turn.
const TURN: u64 = 64;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let bytes: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let payload = Bytes::from(vec![7; bytes]);
    for _ in 0..rounds {
        let queue = queue(&payload);
        let turns = one.block_on(turns(&payload))?;
        let threads = two.block_on(threads(&payload))?;
        println!("queue {queue}, bus on one thread {turns}, on two {threads:.0}/s ({bytes} bytes)");
    }
    Ok(())
}

/// Entries, with the time and the processor time that they took.
struct Rate {
    entries: u64,
    time: Duration,
    processor_time: Option<Duration>,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |time: Duration| self.entries as f64 / time.as_secs_f64();
        write!(f, "{:.0}/s", rate(self.time))?;
        match self.processor_time {
            Some(time) => write!(f, " ({:.0} per processor second)", rate(time)),
            None => Ok(()),
        }
    }
}

/// Measures the time of a thread.
struct Stopwatch {
    began: Instant,
    processor_time: Option<Duration>,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { began: Instant::now(), processor_time: processor_time() }
    }

    fn is_running(&self) -> bool {
        self.began.elapsed() < SPAN
    }

    fn stop(self, entries: u64) -> Rate {
        let processor_time =
            processor_time().zip(self.processor_time).map(|(now, before)| now.saturating_sub(before));
        Rate { entries, time: self.began.elapsed(), processor_time }
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Option<Duration> {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedule.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// The bare queue.
fn queue(payload: &Bytes) -> Rate {
    let queue = Mutex::new(VecDeque::new());
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let (stopwatch, mut entries) = (Stopwatch::start(), 0);
    while stopwatch.is_running() {
        for _ in 0..TURN {
            lock().push_back(Arc::new(payload.clone()));
        }
        for _ in 0..TURN {
            drop(lock().pop_front());
        }
        entries += TURN;
    }
    stopwatch.stop(entries)
}

async fn turns(payload: &Bytes) -> Result<Rate> {
    let (bus, topic) = (Bus::new(), Topic::new("floor")?);
    let mut subscription = bus.subscribe_encoded(&topic).await?;
    let (stopwatch, mut entries) = (Stopwatch::start(), 0);
    while stopwatch.is_running() {
        for _ in 0..TURN {
            bus.publish_encoded(&topic, Publication::new(Codec::Raw, payload.clone())).await?;
        }
        for _ in 0..TURN {
            let Some(Delivery::Entry(_)) = subscription.next().await? else { return Err("a gap".into()) };
        }
        entries += TURN;
    }
    Ok(stopwatch.stop(entries))
}

async fn threads(payload: &Bytes) -> Result<f64> {
    let options = TopicOptions::new().slow_reader(SlowReader::Wait(Duration::from_secs(60)));
    let (bus, topic) = (Bus::builder().topics("floor", options)?.build(), Topic::new("floor")?);
    let mut subscription = bus.subscribe_encoded(&topic).await?;
    let publisher = tokio::spawn({
        let payload = payload.clone();
        async move {
            let began = Instant::now();
            while began.elapsed() < SPAN {
                for _ in 0..TURN {
                    bus.publish_encoded(&topic, Publication::new(Codec::Raw, payload.clone())).await?;
                }
            }
            // The last entry is empty.
            bus.publish_encoded(&topic, Publication::new(Codec::Raw, Bytes::new())).await
        }
    });
    let (began, mut entries) = (Instant::now(), 0_u64);
    while let Some(Delivery::Entry(entry)) = subscription.next().await? {
        if entry.is_empty() {
            break;
        }
        entries += 1;
    }
    publisher.await??;
    Ok(entries as f64 / began.elapsed().as_secs_f64())
}
