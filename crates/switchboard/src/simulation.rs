//! Deterministic simulation of the whole stack from one seed: servers, fleets and connections on one thread, on a clock
//! that only simulations advance, over in-memory pipes whose delays, aborts and partitions follow from the seed.
//!
//! A run is deterministic, so a seed that fails is a test: `SEED=7 cargo test -p switchboard simulation` repeats it,
//! and a line in `simulation/seeds.txt` keeps it as a regression test. `SEEDS=1000` runs that many seeds.
//!
//! Two kinds of runs are not fully deterministic: runs with HTTP, because `connectrpc` takes the deadlines of calls
//! from the system clock, which is behind that of the run, so that servers reject many calls with a timeout there; and
//! some runs with a registry, because of the order of events within a millisecond. Such a seed may have to be repeated
//! several times.
//!
//! ```text
//! callers ─► fleets ─► connections of any wire ─► network (a link per server) ─► servers, which stop and restart
//!               └────────────────────────► registry, which fails and loses its entries ◄─┘
//! ```
//!
//! The invariants: every call ends once, in time, with its own response or with a status that the injected faults
//! explain; a request that is not idempotent takes effect once at most, and never when the status says that it did not
//! begin; retries, limits and memory stay within their budgets; a failed registry changes nothing; after all faults
//! have ended, the calls of every wire succeed, and no call, permit, byte or connection is left.

mod callers;
mod clients;
mod faults;
mod journal;
mod messages;
mod network;
mod node;
mod plugins;
mod random;
mod registry;
mod regressions;
mod service;
mod wires;
mod world;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};
use wires::{WIRES, Wire};
use world::World;

/// Number of seeds of every test run: at least two start with each wire.
const QUICK: u64 = 2 * WIRES.len() as u64;
/// Seeds that have failed before.
const REGRESSION_SEEDS: &str = include_str!("simulation/seeds.txt");

/// Result of a run.
#[derive(Debug, Eq, PartialEq)]
struct Summary {
    /// Number of calls that ended.
    calls: u64,
    /// Number of faults that the network and the servers caused.
    events: u64,
    /// Observed events with their number; wires with the calls that succeeded on them.
    seen: BTreeMap<&'static str, u64>,
    /// Digest of all events, in order.
    digest: u64,
}

/// Runs one seed to its end, on its own thread, because thread-local state is part of the run.
fn run(seed: u64) -> Summary {
    let run = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            switchboard_core::clock::simulate(seed);
            // A day on the clock of the run; a run that takes longer waits for an event that never happens.
            let world = World::new(seed).run();
            tokio::time::timeout(Duration::from_secs(86_400), world).await.expect("the run ends")
        })
    };
    let thread = thread::Builder::new().name(format!("seed {seed}")).spawn(move || {
        catch_unwind(AssertUnwindSafe(run)).inspect_err(|_| eprintln!("repeat this run with SEED={seed}"))
    });
    thread.unwrap().join().unwrap().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Number of seeds to run.
fn seeds() -> u64 {
    number("SEEDS").unwrap_or(QUICK)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn quick_seeds() {
    if let Some(seed) = number("SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let (mut calls, mut events, mut seen) = (0, 0, BTreeMap::new());
    for seed in 0..seeds() {
        let summary = run(seed);
        calls += summary.calls;
        events += summary.events;
        for (what, count) in summary.seen {
            *seen.entry(what).or_insert(0) += count;
        }
    }
    println!("{calls} calls, {events} events: {seen:?}");
    if seeds() < QUICK {
        return;
    }
    assert!(calls > 200 * QUICK && events > 20 * QUICK, "{calls} calls, {events} events");
    for what in REQUIRED_EVENTS.into_iter().chain(WIRES.iter().map(Wire::name)) {
        assert!(seen.contains_key(what), "no seed caused {what}: {seen:?}");
    }
}

/// Events that some seed of every test run must cause.
const REQUIRED_EVENTS: [&str; 7] = [
    "a drain under load",
    "a hedge",
    "a failed registry",
    "a failing server",
    "an ejection",
    "an open breaker",
    "servers held back",
];

#[test]
fn regression_seeds() {
    if number("SEED").is_some() {
        // `SEED` runs one seed alone; another run of it would use the same addresses.
        return;
    }
    for line in REGRESSION_SEEDS.lines().filter(|line| !line.starts_with('#')) {
        let seed = line.split_whitespace().next().unwrap_or_default();
        let seed = seed.parse().expect("a seed begins the line");
        // `quick_seeds` runs the others.
        if seed >= seeds() {
            run(seed);
        }
    }
}

#[test]
fn seeds_are_deterministic() {
    // Seeds that no parallel test runs, because addresses contain the seed.
    for seed in [1_000_000, 1_000_001] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
