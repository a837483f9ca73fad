//! Plugins over simulated pipes: subscribers of a plugin, whose connections are delayed, held back and aborted.
//!
//! Runs with the same seed have the same faults. They are not fully deterministic, because an engine of
//! `switchboard-fanout` ends its turns by the system clock.

#[path = "../../tests/plugin/notes.rs"]
#[allow(dead_code, reason = "the tests of plugins use the rest")]
mod notes;

use super::{network::Link, number, random::Random};
use crate::{Running, Server, StopOptions};
use notes::Notes;
use std::{sync::Arc, thread, time::Duration};
use switchboard_net::net::memory;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Seeds of every test run.
const SEEDS: u64 = 12;
const SUBSCRIBERS: usize = 12;
/// Numbered notes that a run publishes.
const NOTES: u64 = 400;

/// Counters of subscribers.
#[derive(Debug, Default)]
struct Received {
    connections: u64,
    notes: u64,
    /// Subscribers that were connected at the end.
    complete: usize,
}

/// One run.
struct World {
    random: Random,
    notes: Notes,
    link: Link,
    front: String,
    running: Running,
    /// The number of the newest note; `u64::MAX` once the last one is published.
    newest: watch::Sender<u64>,
}

impl World {
    async fn new(seed: u64) -> World {
        let (random, notes) = (Random::new(seed), Notes::default());
        let (front, back) = (format!("sim-plugin-{seed}"), format!("sim-plugin-{seed}-back"));
        let server = Server::new().plugin(notes.clone()).listen(format!("memory://{back}"));
        let running = server.start().await.unwrap();
        let link = Link::new(front.clone(), back, random.child());
        World { random, notes, link, front, running, newest: watch::Sender::new(0) }
    }

    async fn run(self) -> Received {
        let world = Arc::new(self);
        let mut subscribers = JoinSet::new();
        for _ in 0..SUBSCRIBERS {
            subscribers.spawn(subscribe(world.clone(), world.random.child()));
        }
        let faults = tokio::spawn(cause_faults(world.clone(), world.random.child()));
        for number in 1..=NOTES {
            sleep(world.random.millis(0..=40)).await;
            world.newest.send_replace(number);
            world.notes.publish(&number.to_string());
        }
        faults.abort();
        let _ = faults.await;
        world.link.heal();
        // Every subscriber is connected again, and receives the next note.
        sleep(Duration::from_secs(120)).await;
        world.newest.send_replace(u64::MAX);
        world.notes.publish("last");
        let mut received = Received::default();
        for subscriber in subscribers.join_all().await {
            received.connections += subscriber.connections;
            received.notes += subscriber.notes;
            received.complete += subscriber.complete;
        }
        let world = Arc::into_inner(world).expect("all tasks have ended");
        until_empty(&world.running, &world.link).await;
        assert!(world.running.stop(StopOptions::new()).await.is_clean());
        received
    }
}

/// Subscribes again whenever the connection ends, until the last note.
async fn subscribe(world: Arc<World>, random: Random) -> Received {
    let mut received = Received::default();
    loop {
        sleep(random.millis(1..=300)).await;
        let Ok(mut io) = memory::dial(&world.front).await else { continue };
        received.connections += 1;
        for part in [&b"notes\n"[..2], &b"notes\n"[2..]] {
            if io.write_all(part).await.is_err() {
                break;
            }
            sleep(random.millis(0..=20)).await;
        }
        if read(&world, BufReader::new(io), &mut received).await {
            received.complete = 1;
            return received;
        }
    }
}

/// Reads to the end of a connection; returns true after the last note.
async fn read(world: &World, mut io: BufReader<DuplexStream>, received: &mut Received) -> bool {
    let mut before = None;
    loop {
        let mut line = String::new();
        match io.read_line(&mut line).await {
            Ok(bytes) if bytes > 0 && line.ends_with('\n') => {}
            // A connection may end inside a line.
            _ => return false,
        }
        match line.trim_end() {
            "welcome" => assert_eq!(before, None, "a welcome comes first"),
            "> last" => return true,
            note => {
                let number: u64 = note.strip_prefix("> ").and_then(|note| note.parse().ok()).expect(note);
                assert!(before.is_none_or(|before| number == before + 1), "{number} after {before:?}");
                assert!(number <= *world.newest.borrow());
                before = Some(number);
                received.notes += 1;
            }
        }
    }
}

async fn cause_faults(world: Arc<World>, random: Random) {
    loop {
        sleep(random.millis(50..=1_000)).await;
        match random.within(0..=4) {
            0 => _ = world.link.abort_connections(true, &random),
            1 => _ = world.link.abort_connections(false, &random),
            2 => world.link.set(|state| state.flows[1] = false),
            3 => world.link.set(|state| (state.latency, state.width) = ((5, 200), 1)),
            _ => world.link.heal(),
        }
        sleep(random.millis(50..=1_000)).await;
        world.link.set(|state| state.flows = [true, true]);
    }
}

/// Bytes that an engine keeps without subscribers: a segment of its broadcast buffer.
const KEPT_BYTES: u64 = 64 << 10;

/// Waits until nothing of the connections is left.
async fn until_empty(running: &Running, link: &Link) {
    let is_empty = || {
        let stats = running.stats();
        stats.connections == 0 && stats.memory.held <= KEPT_BYTES && link.connections() == 0
    };
    let emptied = async {
        while !is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(Duration::from_secs(600), emptied).await.is_err() {
        panic!("left: {:?}, {} links", running.stats(), link.connections());
    }
}

fn run(seed: u64) -> Received {
    let run = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            switchboard_core::clock::simulate(seed);
            let world = async { World::new(seed).await.run().await };
            timeout(Duration::from_secs(86_400), world).await.expect("the run ends")
        })
    };
    let thread = thread::Builder::new().name(format!("plugin seed {seed}")).spawn(run).unwrap();
    thread.join().unwrap_or_else(|_| panic!("repeat this run with SEED={seed}"))
}

#[test]
fn subscribers_of_a_plugin_receive_every_note_in_order() {
    let seeds = number("SEED").map_or(0..SEEDS, |seed| seed..seed + 1);
    let (runs, mut connections) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        let received = run(seed);
        assert_eq!(received.complete, SUBSCRIBERS, "seed {seed}: {received:?}");
        assert!(received.notes > NOTES, "seed {seed}: {received:?}");
        connections += received.connections;
    }
    assert!(runs < SEEDS || connections > 2 * runs * SUBSCRIBERS as u64, "{connections} connections");
}
