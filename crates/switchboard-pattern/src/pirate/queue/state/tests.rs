//! The state of a queue against scripted and random peers, with times of the tests.

use super::*;
use std::time::Duration;

#[derive(Default)]
struct Peers {
    clients: Vec<String>,
    workers: Vec<String>,
}

fn text(message: &Message) -> String {
    message.frames().iter().map(|frame| frame.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

impl Sink for Peers {
    fn to_client(&mut self, message: Message) -> Sent {
        self.clients.push(text(&message));
        Sent::Passed
    }

    fn to_worker(&mut self, message: Message) -> Sent {
        if message.frames()[0].starts_with(b"!") {
            return Sent::Gone;
        }
        self.workers.push(text(&message));
        Sent::Passed
    }
}

struct Bench {
    state: State,
    peers: Peers,
    now: Instant,
}

impl Bench {
    fn new(change: impl FnOnce(&mut QueueOptions)) -> Bench {
        let mut options = QueueOptions::default();
        change(&mut options);
        Bench { state: State::new(options), peers: Peers::default(), now: Instant::now() }
    }

    fn client(&mut self, frames: &[&'static str]) {
        self.state.client_message(self.now, Message::new(frames.iter().copied()), &mut self.peers);
    }

    fn worker(&mut self, frames: &[&'static str]) {
        self.state.worker_message(self.now, Message::new(frames.iter().copied()), &mut self.peers);
    }
}

#[test]
fn workers_of_both_kinds_are_served() {
    let mut bench = Bench::new(|_| {});
    bench.worker(&["paranoid", "\x01"]);
    bench.worker(&["simple", "", "READY"]);
    bench.client(&["a", "", "one"]);
    bench.client(&["b", "", "two"]);
    bench.client(&["c", "", "three"]);
    assert_eq!(bench.peers.workers, ["paranoid a  one", "simple  b  two"]);
    bench.worker(&["simple", "", "b", "", "2"]);
    bench.worker(&["paranoid", "a", "", "1"]);
    assert_eq!(bench.peers.clients, ["b  2", "a  1"]);
    assert_eq!(bench.peers.workers[2], "simple  c  three");
    let stats = bench.state.stats();
    assert_eq!(
        (stats.requests, stats.replies, stats.workers, stats.idle, stats.waiting_bytes),
        (3, 2, 2, 1, 0)
    );
}

#[test]
fn limits_hold_and_are_counted() {
    let mut bench = Bench::new(|options| {
        options.queue_requests_max = 2;
        options.queue_bytes_max = 1000;
        options.workers_max = 1;
        options.request_wait_max = Duration::from_secs(1);
    });
    for _ in 0..3 {
        bench.client(&["a", "", "body"]);
    }
    assert_eq!(bench.state.stats().refused, 1);
    bench.client(&["a", "\0gone"]);
    assert_eq!((bench.state.stats().orphaned, bench.state.stats().waiting_bytes), (2, 0));
    let long: &'static str = Box::leak("l".repeat(900).into_boxed_str());
    bench.client(&["a", "", long]);
    assert_eq!(bench.state.stats().refused, 2);
    bench.client(&["a", "", "body"]);
    bench.now += Duration::from_secs(1);
    bench.state.tick(bench.now, &mut bench.peers);
    assert_eq!(bench.state.stats().requests_expired, 1);
    bench.worker(&["v", "\x01"]);
    bench.worker(&["w", "\x01"]);
    assert_eq!(bench.state.stats().refused_workers, 1);
}

#[test]
fn silent_workers_expire_and_register_again_with_any_message() {
    let mut bench = Bench::new(|options| {
        options.heartbeat_interval = Duration::from_secs(1);
        options.liveness = 2;
        options.busy_expiry = Duration::from_secs(5);
    });
    bench.worker(&["idle", "\x01"]);
    bench.worker(&["simple", "", "\x01"]);
    bench.now += Duration::from_secs(1);
    bench.state.tick(bench.now, &mut bench.peers);
    assert_eq!(bench.peers.workers, ["idle \\x02"]);
    bench.now += Duration::from_secs(1);
    bench.state.tick(bench.now, &mut bench.peers);
    assert_eq!((bench.state.stats().workers, bench.state.stats().workers_expired), (1, 1));
    bench.worker(&["idle", "\x02"]);
    bench.client(&["c", "", "one"]);
    assert_eq!(bench.state.stats().idle, 1);
    bench.now += Duration::from_secs(5);
    bench.state.tick(bench.now, &mut bench.peers);
    assert_eq!((bench.state.stats().workers, bench.state.stats().requests_lost), (0, 1));
    bench.worker(&["simple", "", "c", "", "late"]);
    assert!(bench.peers.clients.is_empty(), "the client has sent the request again");
    assert_eq!((bench.state.stats().workers, bench.state.stats().replies_dropped), (1, 1));
}

#[test]
fn a_worker_that_cannot_be_reached_is_skipped() {
    let mut bench = Bench::new(|_| {});
    bench.worker(&["!gone", "\x01"]);
    bench.worker(&["w", "\x01"]);
    bench.client(&["c", "", "body"]);
    assert_eq!(bench.peers.workers, ["w c  body"]);
}

/// Any frames: nothing panics, and the limits hold.
#[test]
fn any_frames_keep_the_invariants() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::new(|options| {
            options.queue_requests_max = 3;
            options.queue_bytes_max = 900;
            options.workers_max = 3;
        });
        for _ in 0..300 {
            let words: [&[u8]; 8] = [b"", b"\x01", b"\x02", b"a", b"!b", b"c", GONE, b"READY"];
            let count = random.usize(..6);
            let frames = (0..count).map(|_| match random.u8(..12) {
                0 => Bytes::from((0..random.usize(..20)).map(|_| random.u8(..)).collect::<Vec<_>>()),
                _ => Bytes::from_static(words[random.usize(..words.len())]),
            });
            let message = Message::new(frames.collect::<Vec<_>>());
            match random.u8(..8) {
                0 => {
                    bench.now += Duration::from_millis(random.u64(..9000));
                    bench.state.tick(bench.now, &mut bench.peers);
                }
                1..4 => bench.state.client_message(bench.now, message, &mut bench.peers),
                _ => bench.state.worker_message(bench.now, message, &mut bench.peers),
            }
            let state = &bench.state;
            assert!(state.workers.len() <= 3 && state.waiting.len() <= 3 && state.waiting_bytes <= 900);
            let sum: usize = state.waiting.iter().map(|waiting| bytes(&waiting.frames)).sum();
            assert_eq!(state.waiting_bytes, sum, "seed {seed}");
            let idle = state.workers.values().filter(|worker| worker.client.is_none()).count();
            assert_eq!(state.idle.len(), idle, "seed {seed}");
        }
    }
}
