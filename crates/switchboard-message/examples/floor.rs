//! Publications per second with one subscription inside the process, beside a bare queue behind one lock.
//!
//! `cargo run --release -p switchboard-message --example floor -- [BYTES] [ROUNDS]` prints both, in turn: with
//! publisher and subscription on one thread, which take turns of 64 entries, and on two threads.

use bytes::Bytes;
use std::{
    collections::VecDeque,
    env,
    error::Error,
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
        println!("queue {queue:.0}/s, bus on one thread {turns:.0}/s, on two {threads:.0}/s ({bytes} bytes)");
    }
    Ok(())
}

/// The bare queue.
fn queue(payload: &Bytes) -> f64 {
    let queue = Mutex::new(VecDeque::new());
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let (began, mut entries) = (Instant::now(), 0);
    while began.elapsed() < SPAN {
        for _ in 0..TURN {
            lock().push_back(Arc::new(payload.clone()));
        }
        for _ in 0..TURN {
            drop(lock().pop_front());
        }
        entries += TURN;
    }
    entries as f64 / began.elapsed().as_secs_f64()
}

async fn turns(payload: &Bytes) -> Result<f64> {
    let (bus, topic) = (Bus::new(), Topic::new("floor")?);
    let mut subscription = bus.subscribe_encoded(&topic).await?;
    let (began, mut entries) = (Instant::now(), 0);
    while began.elapsed() < SPAN {
        for _ in 0..TURN {
            bus.publish_encoded(&topic, Publication::new(Codec::Raw, payload.clone())).await?;
        }
        for _ in 0..TURN {
            let Some(Delivery::Entry(_)) = subscription.next().await? else { return Err("a gap".into()) };
        }
        entries += TURN;
    }
    Ok(entries as f64 / began.elapsed().as_secs_f64())
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
