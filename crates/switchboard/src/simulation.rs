//! The whole stack from one seed: servers, fleets and connections on one thread, on a clock that only simulations
//! move, over pipes whose delays, cuts and partitions the seed decides.
//!
//! What a run shows is the same each time, so a seed that fails is a test: `SEED=7 cargo test -p switchboard
//! simulation` repeats it, and a line in `simulation/seeds.txt` keeps it for good. `SEEDS=1000` tries so many more.
//!
//! Not quite the same are runs with HTTP: `connectrpc` takes the deadlines of calls by the clock of the system, which
//! is behind that of the run, so that servers refuse many calls with a timeout there; and some with a registry, by the
//! order of what happens within a millisecond. Such a seed may have to be repeated some times.
//!
//! ```text
//! callers ─► fleets ─► connections of any wire ─► network (a link for each server) ─► servers, that come and go
//!               └────────────────────────► registry, that goes away and forgets ◄────────┘
//! ```
//!
//! The invariants: every call ends once, in time, with its own reply or a status of those that the trouble explains;
//! what is not idempotent takes effect once at most, and never where the status says that it did not begin; retries,
//! limits and memory stay within their budgets; a registry that is away changes nothing; when all is well again every
//! wire's calls succeed, and no call, permit, byte or connection is left.

mod callers;
mod chance;
mod journal;
mod messages;
mod network;
mod node;
mod registry;
mod regressions;
mod service;
mod trouble;
mod ways;
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

/// Seeds of every test run: each wire is that of one of them at least.
const QUICK: u64 = WIRES.len() as u64;
/// Seeds that have failed.
const KEPT: &str = include_str!("simulation/seeds.txt");

/// What a run has come to.
#[derive(Debug, Eq, PartialEq)]
struct Summary {
    /// Calls that ended.
    calls: u64,
    /// Things that the network and the servers did to them.
    events: u64,
    /// What came about, and how often: wires by the calls that succeeded on them.
    seen: BTreeMap<&'static str, u64>,
    /// Of all that happened, in order.
    digest: u64,
}

/// Runs one seed to its end, on a thread of its own: what threads remember is part of the run.
fn run(seed: u64) -> Summary {
    let run = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            crate::clock::simulate(seed);
            // A day on the clock of the run: something waits for what does not come.
            let world = World::new(seed).run();
            tokio::time::timeout(Duration::from_secs(86_400), world).await.expect("the run ends")
        })
    };
    let thread = thread::Builder::new().name(format!("seed {seed}")).spawn(move || {
        catch_unwind(AssertUnwindSafe(run)).inspect_err(|_| eprintln!("repeat it with SEED={seed}"))
    });
    thread.unwrap().join().unwrap().unwrap_or_else(|panic| resume_unwind(panic))
}

/// How many seeds are tried.
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
    for what in GOVERNED.into_iter().chain(WIRES.iter().map(Wire::name)) {
        assert!(seen.contains_key(what), "nothing of {what} in {seen:?}");
    }
}

/// What some seed of every test run has to bring about.
const GOVERNED: [&str; 7] = [
    "a drain under load",
    "a hedge",
    "a registry that goes away",
    "a sick server",
    "an ejection",
    "an open breaker",
    "servers held back",
];

#[test]
fn kept_seeds() {
    if number("SEED").is_some() {
        // That one alone: its addresses are named after it.
        return;
    }
    for line in KEPT.lines().filter(|line| !line.starts_with('#')) {
        let seed = line.split_whitespace().next().unwrap_or_default();
        let seed = seed.parse().expect("a seed begins the line");
        // The others run already.
        if seed >= seeds() {
            run(seed);
        }
    }
}

#[test]
fn seeds_repeat_themselves() {
    // None of those that run meanwhile.
    for seed in [1_000_000, 1_000_001] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
