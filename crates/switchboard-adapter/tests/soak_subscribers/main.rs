//! Thousands of subscribers over several wires that connect, disconnect, stall and return: nothing is leaked.
//!
//! `SOAK_SECONDS=180 SOAK_SUBSCRIBERS=5000 cargo test -p switchboard-adapter --test soak_subscribers -- --nocapture`
//! runs for three minutes. Without these variables the test is short.
//!
//! The server is a process of its own, so that its memory is that of the server alone. A cycle begins and ends without
//! a connection: these states are equal, and so is their memory. Each wait ends with a state, and has a limit that only
//! a lost notification reaches.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod server;
mod subscriber;

use server::{Server, State};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use subscriber::{Phase, Shared, WIRES};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// A wait this long means that something is lost.
const LOST: Duration = Duration::from_secs(300);
/// Publications to each topic while subscribers come, go and stall.
const ROUNDS: usize = 40;
/// Cycles before the first whose memory counts: allocators and pools have reached their sizes.
const WARM_UP: usize = 2;
/// Cycles that are compared, at least.
const COMPARED: usize = 4;
/// Growth of the resident memory between the first and the last compared cycles that is not counted as a leak.
/// Allocators return pages in steps; a leak of 1 kB for each subscriber of a cycle would be more in a long run.
const GROWTH_MAX: u64 = 12 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_that_come_and_go_leave_nothing() {
    let time = Duration::from_secs(number("SOAK_SECONDS", 0));
    let subscribers = number("SOAK_SUBSCRIBERS", 100) as usize;
    let mut server = Server::start().await;
    let (mut memory, started) = (Vec::new(), Instant::now());
    let shared = Arc::new(Shared::new(&server));
    let mut lagged = 0;
    while started.elapsed() < time || memory.len() < WARM_UP + COMPARED {
        let empty = cycle(&mut server, &shared, subscribers, memory.len()).await;
        println!("cycle {}: {:.0} s, {empty:?}", memory.len(), started.elapsed().as_secs_f64());
        memory.push(empty.resident);
        lagged = empty.lagged;
    }
    let count = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed);
    let (stalls, returns) = (count(&shared.stalls), count(&shared.returns));
    println!("{} cycles, {stalls} stalls, {returns} returns, {lagged} lagged", memory.len());
    assert!(stalls > 0 && returns > 0, "{stalls} stalls, {returns} returns");
    check_slope(&memory[WARM_UP..]);
    server.stop().await;
}

/// Compares the memory of the first and of the last third.
fn check_slope(memory: &[u64]) {
    let third = (memory.len() / 3).max(1);
    let mean = |some: &[u64]| some.iter().sum::<u64>() / some.len() as u64;
    let (first, last) = (mean(&memory[..third]), mean(&memory[memory.len() - third..]));
    assert!(
        last < first + GROWTH_MAX,
        "the server has {} KiB after its first cycles and {} KiB after the last ones: {memory:?}",
        first >> 10,
        last >> 10
    );
}

/// Lets all subscribers connect, disturbs them, waits until each has the last entry, and ends them all. Returns the
/// state without a subscriber.
async fn cycle(server: &mut Server, shared: &Arc<Shared>, subscribers: usize, cycle: usize) -> State {
    let (phase, _) = watch::channel(Phase::Disturbed);
    shared.begin(cycle);
    let mut tasks = JoinSet::new();
    for index in 0..subscribers {
        let wire = WIRES[index % WIRES.len()];
        tasks.spawn(subscriber::run(shared.clone(), wire, index, phase.subscribe()));
    }
    shared
        .reach("are subscribed", &mut tasks, || shared.subscribed.load(Ordering::Relaxed) >= subscribers)
        .await;
    for round in 0..ROUNDS {
        server.publish(&format!("cycle {cycle} round {round};")).await;
        server.publish_large().await;
    }
    phase.send_replace(Phase::Settled);
    // An entry that a subscriber misses because it just reconnects is followed by another one.
    while shared.complete.load(Ordering::Relaxed) < subscribers {
        server.publish(&shared.last()).await;
        let some = shared.complete.load(Ordering::Relaxed);
        let more = async {
            while shared.complete.load(Ordering::Relaxed) == some {
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(Duration::from_secs(5), more).await.is_err() {
            shared.fail_if_lost(&mut tasks, subscribers);
        }
    }
    phase.send_replace(Phase::Ended);
    while let Some(ended) = timeout(LOST, tasks.join_next()).await.expect("all subscribers end") {
        ended.unwrap();
    }
    shared.end();
    until_empty(server).await
}

/// Waits until nothing of the subscribers is left.
async fn until_empty(server: &mut Server) -> State {
    let started = Instant::now();
    loop {
        let state = server.state().await;
        if state.is_empty() {
            return state;
        }
        assert!(started.elapsed() < LOST, "left: {state:?}");
        sleep(Duration::from_millis(50)).await;
    }
}
