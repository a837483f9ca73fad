//! Publishers, subscriptions, patterns and durable groups of other processes under faults, from seeds.
//!
//! A run has one thread, a clock that only the run advances, and the simulated network of the framework: delays,
//! aborted connections, partitions in each direction, and listeners that refuse. The server crashes, with its topics or
//! without them; receivers crash and continue after what they have noted; the clock jumps.
//!
//! `SEED=7 cargo test -p switchboard-bus --test simulation` repeats the run of a seed, `SEEDS=1000` runs that many.
//! Seeds that have failed are kept in `seeds.txt`.
//!
//! The invariants: entries of a topic are received in their order; none is received twice by a receiver that drops the
//! offsets that it knows; none is missing within the history; each gap has the range that is missing and a reason that
//! explains it; a delivery of a group has one number, and an entry whose acknowledgement the server has confirmed
//! is not delivered again; the limits of topics hold; when all have ended, no subscription, cursor, connection or
//! byte is left.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod faults;
mod journal;
mod members;
#[path = "../../../switchboard/src/simulation/network.rs"]
#[allow(dead_code, reason = "the simulation of calls uses the rest")]
mod network;
mod publishers;
#[path = "../../../switchboard/src/simulation/random.rs"]
#[allow(dead_code, reason = "the simulation of calls uses the rest")]
mod random;
mod readers;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};
use world::{Summary, World};

/// Seeds of each test run.
const SEEDS: u64 = 24;
/// Seeds that have failed before.
const REGRESSION_SEEDS: &str = include_str!("seeds.txt");

/// Runs one seed to its end, on its own thread, because thread-local state is part of the run.
fn run(seed: u64) -> Summary {
    let run = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            switchboard_core::clock::simulate(seed);
            // A day on the clock of the run; a run that takes longer waits for an event that never happens.
            let world = async { World::start(seed).await.run().await };
            tokio::time::timeout(Duration::from_secs(86_400), world).await.expect("the run ends")
        })
    };
    let thread = thread::Builder::new().name(format!("seed {seed}")).spawn(move || {
        catch_unwind(AssertUnwindSafe(run)).inspect_err(|_| {
            eprintln!("repeat: SEED={seed} cargo test -p switchboard-bus --test simulation");
        })
    });
    thread.unwrap().join().unwrap().unwrap_or_else(|panic| resume_unwind(panic))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn receivers_get_each_entry_once_or_an_exact_gap() {
    if let Some(seed) = number("SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    let mut all = Summary::default();
    for seed in 0..seeds {
        all.add(&run(seed));
    }
    println!("{seeds} seeds: {all:?}");
    let Summary { published, received, gaps, redelivered, confirmed, crashes, new_logs, cuts, resumes } = all;
    // Each kind of event has happened.
    let rare = [gaps, redelivered, crashes, new_logs, cuts, resumes];
    assert!(seeds < SEEDS || rare.into_iter().all(|count| count > 0), "{all:?}");
    assert!(published >= 100 * seeds && received > published && confirmed >= 10 * seeds, "{all:?}");
}

#[test]
fn seeds_that_have_failed() {
    if number("SEED").is_some() {
        return;
    }
    for line in REGRESSION_SEEDS.lines().filter(|line| !line.starts_with('#')) {
        let seed = line.split_whitespace().next().unwrap_or_default();
        let seed: u64 = seed.parse().expect("a seed begins the line");
        // The addresses of a run contain its seed: the other test runs the lower ones.
        if seed >= number("SEEDS").unwrap_or(SEEDS) {
            run(seed);
        }
    }
}
