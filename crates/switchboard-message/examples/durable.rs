//! Publications per second by storage, with 1 and 64 publishers that await each position.
//!
//! `cargo run --release -p switchboard-message --example durable -- [FOLDER] [BYTES]` prints a line for each storage.
//! FOLDER is on the disk to be measured, by default the one for temporary files; nothing is left in it.

use bytes::Bytes;
use std::{
    env,
    error::Error,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use switchboard_message::{Bus, FileOptions, Publication, Storage, Topic, TopicOptions};
use switchboard_wire::Codec;

/// Duration of one measurement.
const SPAN: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("switchboard-durable-{}", std::process::id()));
    let bytes: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for storage in [Storage::Memory, Storage::File, Storage::Synced] {
        for publishers in [1, 64] {
            let rules = TopicOptions::new().history(1_000, Duration::MAX).storage(storage);
            let bus = Bus::builder().topics(">", rules)?.open(FileOptions::new(&folder))?;
            let rate = runtime.block_on(rate(&bus, publishers, &Bytes::from(vec![7; bytes])))?;
            println!("{storage:?}, {publishers} publishers: {rate:.0}/s ({bytes} bytes)");
            drop(bus);
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

async fn rate(bus: &Bus, publishers: usize, payload: &Bytes) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    let publish = |number| {
        let (bus, payload) = (bus.clone(), payload.clone());
        tokio::spawn(async move {
            let topic = Topic::new(&format!("topic/{number}"))?;
            let mut published = 0_u64;
            while started.elapsed() < SPAN {
                bus.publish_encoded(&topic, Publication::new(Codec::Raw, payload.clone())).await?;
                published += 1;
                if published.is_multiple_of(64) {
                    tokio::task::yield_now().await;
                }
            }
            Ok::<_, switchboard_wire::Status>(published)
        })
    };
    let publishers: Vec<_> = (0..publishers).map(publish).collect();
    let mut published = 0;
    for publisher in publishers {
        published += publisher.await??;
    }
    Ok(published as f64 / started.elapsed().as_secs_f64())
}
