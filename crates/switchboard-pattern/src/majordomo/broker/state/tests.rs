//! The state of a broker against scripted and random peers, with times of the tests.

use super::*;
use crate::route::GONE;

/// Peers by routing id; peers whose name begins with `!` are gone.
#[derive(Default)]
struct Peers(Vec<(String, Vec<String>)>);

impl Sink for Peers {
    fn send(&mut self, message: Message) -> Sent {
        let text = |frame: &Bytes| frame.escape_ascii().to_string();
        let frames = message.frames();
        let peer = text(&frames[0]);
        if peer.starts_with('!') {
            return Sent::Gone;
        }
        self.0.push((peer, frames[1..].iter().map(text).collect()));
        Sent::Passed
    }
}

struct Bench {
    state: State,
    peers: Peers,
    now: Instant,
}

impl Bench {
    fn new(change: impl FnOnce(&mut BrokerOptions)) -> Bench {
        let mut options = BrokerOptions::default();
        change(&mut options);
        Bench { state: State::new(options), peers: Peers::default(), now: Instant::now() }
    }

    fn handle(&mut self, frames: &[&[u8]]) {
        let message = Message::new(frames.iter().map(|frame| Bytes::copy_from_slice(frame)));
        self.state.handle(self.now, message, &mut self.peers);
    }

    fn ready(&mut self, worker: &str, service: &str) {
        self.handle(&[worker.as_bytes(), b"MDPW02", b"\x01", service.as_bytes()]);
    }

    fn request(&mut self, client: &str, service: &str, body: &str) {
        self.handle(&[client.as_bytes(), b"MDPC02", b"\x01", service.as_bytes(), body.as_bytes()]);
    }

    /// Sends a request with the extension.
    fn extended(&mut self, service: &str, body: &str, priority: u8, deliveries_max: u8, tag: u64) {
        let mut command = vec![1, priority, deliveries_max, 0, 0, 0, 0];
        command.extend_from_slice(&tag.to_be_bytes());
        self.handle(&[b"x", b"MDPC02", &command, service.as_bytes(), body.as_bytes()]);
    }

    fn reply(&mut self, worker: &str, command: u8, client: &str, body: &str) {
        self.handle(&[worker.as_bytes(), b"MDPW02", &[command], client.as_bytes(), b"", body.as_bytes()]);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.state.tick(self.now, &mut self.peers);
    }

    /// Takes the messages to a peer, its frames joined by spaces.
    fn taken(&mut self, peer: &str) -> Vec<String> {
        let (own, others) = std::mem::take(&mut self.peers.0).into_iter().partition(|(to, _)| to == peer);
        self.peers.0 = others;
        let own: Vec<(String, Vec<String>)> = own;
        own.into_iter().map(|(_, frames)| frames.join(" ")).collect()
    }
}

const HEARTBEAT: &str = "MDPW02 \\x05";
const DISCONNECT: &str = "MDPW02 \\x06";

#[test]
fn requests_go_to_the_worker_that_waits_for_the_longest_time() {
    let mut bench = Bench::new(|_| {});
    bench.ready("a", "echo");
    bench.ready("b", "echo");
    bench.request("c1", "echo", "one");
    bench.request("c2", "echo", "two");
    bench.request("c3", "echo", "three");
    assert_eq!(bench.taken("a"), ["MDPW02 \\x02 c1  one"]);
    assert_eq!(bench.taken("b"), ["MDPW02 \\x02 c2  two"]);
    bench.reply("b", 3, "c2", "part");
    bench.reply("b", 4, "c2", "end");
    assert_eq!(bench.taken("c2"), ["MDPC02 \\x02 echo part", "MDPC02 \\x03 echo end"]);
    assert_eq!(bench.taken("b"), ["MDPW02 \\x02 c3  three"]);
    let stats = bench.state.stats();
    assert_eq!((stats.requests, stats.replies, stats.workers, stats.queued_bytes), (3, 1, 2, 0));
}

#[test]
fn a_request_waits_for_the_first_worker_and_expires() {
    let mut bench = Bench::new(|options| options.request_wait_max = Duration::from_secs(2));
    bench.request("c", "late", "one");
    assert_eq!(bench.state.stats().services[0].queued, 1);
    bench.ready("w", "late");
    assert_eq!(bench.taken("w"), ["MDPW02 \\x02 c  one"]);
    bench.request("c", "never", "two");
    bench.extended("never", "three", 0, 1, 7);
    bench.pass(Duration::from_secs(3));
    let stats = bench.state.stats();
    assert_eq!((stats.requests_expired, stats.queued_bytes), (2, 0));
    assert!(bench.taken("c").is_empty());
    let failure = bench.taken("x").remove(0);
    assert!(
        failure.starts_with("MDPC02 \\x03\\x04\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07 never no worker"),
        "{failure}"
    );
    assert_eq!(bench.state.services.len(), 1, "a service without workers and requests is removed");
}

#[test]
fn a_full_queue_refuses_and_names_its_limit() {
    let mut bench = Bench::new(|options| {
        options.queue_requests_max = 2;
        options.client_requests_max = 3;
        options.services_max = 3;
    });
    for _ in 0..3 {
        bench.extended("a", "body", 0, 1, 1);
    }
    assert!(bench.taken("x")[0].contains("queue_requests_max"));
    bench.extended("b", "body", 0, 1, 1);
    bench.extended("b", "body", 0, 1, 1);
    assert!(bench.taken("x")[0].contains("client_requests_max"));
    bench.request("c", "c", "body");
    bench.extended("d", "body", 0, 1, 1);
    assert!(bench.taken("x")[0].contains("services_max"));
    let stats = bench.state.stats();
    assert_eq!((stats.refused, stats.services.len()), (3, 3));
    assert_eq!(stats.queued_bytes, 4 * (384 + 64 + 4));
}

#[test]
fn bytes_of_queues_are_limited() {
    let mut bench = Bench::new(|options| {
        options.queue_bytes_max = 2000;
        options.queued_bytes_max = 3000;
    });
    let body = "b".repeat(1500);
    bench.extended("a", &body, 0, 1, 1);
    bench.extended("a", &body, 0, 1, 1);
    assert!(bench.taken("x")[0].contains("queue_bytes_max"));
    bench.extended("b", &body, 0, 1, 1);
    assert!(bench.taken("x")[0].contains("queued_bytes_max"));
    bench.handle(&[b"x", GONE]);
    let stats = bench.state.stats();
    assert_eq!((stats.orphaned, stats.queued_bytes), (1, 0));
}

#[test]
fn higher_priorities_are_delivered_first() {
    let mut bench = Bench::new(|_| {});
    for (body, priority) in [("low", 0), ("high", 9), ("middle", 5)] {
        bench.extended("s", body, priority, 1, priority.into());
    }
    let mut order = Vec::new();
    bench.ready("w", "s");
    for _ in 0..3 {
        order.extend(bench.taken("w"));
        bench.reply("w", 4, "x", "done");
    }
    let order: Vec<_> = order.iter().map(|text| text.rsplit(' ').next().unwrap()).collect();
    assert_eq!(order, ["high", "middle", "low"]);
}

#[test]
fn a_request_of_a_lost_worker_is_delivered_again_only_if_its_client_allows_it() {
    let mut bench = Bench::new(|_| {});
    bench.ready("a", "s");
    bench.extended("s", "twice", 0, 2, 1);
    assert!(bench.state.stats().queued_bytes > 0, "the body is kept for the second delivery");
    bench.handle(&[b"a", GONE]);
    bench.ready("b", "s");
    assert_eq!(bench.taken("b"), ["MDPW02 \\x02 x  twice"]);
    assert_eq!(bench.state.stats().queued_bytes, 0, "no delivery is left");
    bench.handle(&[b"b", GONE]);
    assert!(bench.taken("x")[0].contains("no further delivery"));
    bench.ready("c", "s");
    bench.request("plain", "s", "once");
    bench.handle(&[b"c", GONE]);
    bench.ready("d", "s");
    assert!(bench.taken("d").is_empty());
    let stats = bench.state.stats();
    assert_eq!((stats.redelivered, stats.requests_lost), (1, 2));
}

#[test]
fn requests_without_the_extension_have_the_deliveries_of_the_broker() {
    let mut bench = Bench::new(|options| options.deliveries_default = 2);
    bench.ready("a", "s");
    bench.request("c", "s", "body");
    bench.handle(&[b"a", b"MDPW02", b"\x06"]);
    bench.ready("b", "s");
    assert_eq!(bench.taken("b"), ["MDPW02 \\x02 c  body"]);
    bench.handle(&[b"b", b"MDPW02", b"\x06"]);
    assert_eq!((bench.state.stats().redelivered, bench.state.stats().requests_lost), (1, 1));
}

#[test]
fn a_request_with_a_partial_reply_is_not_delivered_again() {
    let mut bench = Bench::new(|_| {});
    bench.ready("a", "s");
    bench.extended("s", "body", 0, 9, 1);
    bench.reply("a", 3, "x", "part");
    bench.handle(&[b"a", GONE]);
    let replies = bench.taken("x");
    assert!(replies[0].contains("part") && replies[1].contains("no further delivery"), "{replies:?}");
    assert_eq!(bench.state.stats().queued_bytes, 0);
}

#[test]
fn silent_workers_expire_and_late_ones_have_to_register_again() {
    let mut bench = Bench::new(|options| {
        options.heartbeat_interval = Duration::from_secs(1);
        options.liveness = 3;
        options.busy_expiry = Duration::from_secs(10);
    });
    bench.ready("idle", "s");
    bench.ready("busy", "t");
    bench.request("c", "t", "long");
    bench.taken("busy");
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.taken("idle"), [HEARTBEAT]);
    bench.handle(&[b"idle", b"MDPW02", b"\x05"]);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.state.stats().workers_expired, 1);
    bench.taken("idle");
    bench.handle(&[b"idle", b"MDPW02", b"\x05"]);
    assert_eq!(bench.taken("idle"), [DISCONNECT]);
    bench.pass(Duration::from_secs(7));
    assert_eq!((bench.state.stats().workers, bench.state.stats().requests_lost), (0, 1));
    bench.reply("busy", 4, "c", "late");
    assert!(bench.taken("busy").contains(&DISCONNECT.to_owned()));
    assert!(bench.taken("c").is_empty());
}

#[test]
fn workers_survive_a_pause_of_the_broker() {
    let mut bench = Bench::new(|_| {});
    bench.ready("w", "s");
    bench.now += Duration::from_secs(60);
    bench.state.forgive(bench.now);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.state.stats().workers, 1);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.state.stats().workers, 0);
}

#[test]
fn a_worker_that_violates_the_protocol_is_disconnected() {
    let mut bench = Bench::new(|options| options.workers_max = 1);
    bench.ready("w", "s");
    bench.ready("w", "s");
    assert_eq!(bench.taken("w"), [DISCONNECT]);
    bench.ready("w", "s");
    bench.reply("w", 4, "c", "without a request");
    assert_eq!(bench.taken("w"), [DISCONNECT]);
    bench.ready("w", "s");
    bench.handle(&[b"w", b"MDPW02", b"\x09"]);
    assert_eq!(bench.taken("w"), [DISCONNECT]);
    bench.ready("w", "mmi.service");
    assert_eq!(bench.taken("w"), [DISCONNECT]);
    bench.ready("w", "s");
    bench.ready("v", "s");
    assert_eq!(bench.taken("v"), [DISCONNECT]);
    bench.ready("v", "");
    let stats = bench.state.stats();
    assert_eq!((stats.unexpected, stats.invalid, stats.refused_workers, stats.workers), (2, 2, 2, 1));
}

#[test]
fn a_worker_that_cannot_be_reached_is_skipped() {
    let mut bench = Bench::new(|_| {});
    bench.ready("!gone", "s");
    bench.ready("w", "s");
    bench.request("c", "s", "body");
    assert_eq!(bench.taken("w"), ["MDPW02 \\x02 c  body"]);
    assert_eq!((bench.state.stats().workers, bench.state.stats().redelivered), (1, 0));
}

#[test]
fn management_requests_are_answered_by_the_broker() {
    let mut bench = Bench::new(|_| {});
    bench.ready("w", "s");
    for (service, body) in [("mmi.service", "s"), ("mmi.service", "t"), ("mmi.other", "s")] {
        bench.request("c", service, body);
    }
    let codes: Vec<_> =
        bench.taken("c").iter().map(|text| text.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(codes, ["200", "404", "501"]);
}

#[test]
fn peers_of_the_first_version_are_served() {
    let mut bench = Bench::new(|_| {});
    bench.handle(&[b"w", b"", b"MDPW01", b"\x01", b"s"]);
    bench.handle(&[b"c", b"", b"MDPC01", b"s", b"body"]);
    assert_eq!(bench.taken("w"), [" MDPW01 \\x02 c  body"]);
    bench.handle(&[b"w", b"", b"MDPW01", b"\x03", b"c", b"", b"done"]);
    assert_eq!(bench.taken("c"), [" MDPC01 s done"]);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.taken("w"), [" MDPW01 \\x04"]);
    bench.handle(&[b"w", b"", b"MDPW01", b"\x05"]);
    assert_eq!(bench.state.stats().workers, 0);
    bench.handle(&[b"w", b"", b"MDPW01", b"\x04"]);
    assert_eq!(bench.taken("w"), [" MDPW01 \\x05"]);
}

#[test]
fn peers_with_an_empty_frame_before_each_message_are_served() {
    let mut bench = Bench::new(|_| {});
    bench.handle(&[b"w", b"", b"MDPW02", b"\x01", b"s"]);
    bench.handle(&[b"c", b"", b"MDPC02", b"\x01", b"s", b"body"]);
    assert_eq!(bench.taken("w"), [" MDPW02 \\x02 c  body"]);
    bench.handle(&[b"w", b"", b"MDPW02", b"\x03", b"c", b"", b"part"]);
    bench.handle(&[b"w", b"", b"MDPW02", b"\x04", b"c", b"", b"done"]);
    assert_eq!(bench.taken("c"), [" MDPC02 \\x02 s part", " MDPC02 \\x03 s done"]);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.taken("w"), [" MDPW02 \\x05"]);
    bench.handle(&[b"w", b"", b"MDPW02", b"\x06"]);
    bench.handle(&[b"w", b"", b"MDPW02", b"\x05"]);
    assert_eq!(bench.taken("w"), [" MDPW02 \\x06"]);
}

#[test]
fn a_closed_broker_informs_its_peers() {
    let mut bench = Bench::new(|_| {});
    bench.ready("w", "s");
    bench.extended("s", "delivered", 0, 1, 1);
    bench.extended("s", "waiting", 0, 1, 2);
    bench.taken("w");
    bench.state.close(&mut bench.peers);
    assert_eq!(bench.taken("w"), [DISCONNECT]);
    assert_eq!(bench.taken("x").len(), 2);
    assert_eq!(bench.state.stats().queued_bytes, 0);
}

#[test]
fn an_idle_worker_is_small() {
    assert!(size_of::<Worker>() + size_of::<Bytes>() <= 160, "{}", size_of::<Worker>());
}

/// Any frames, most of them nearly right: nothing panics, the limits hold, and all memory is accounted for.
#[test]
fn any_frames_keep_the_invariants() {
    const SEEDS: u64 = 300;
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::new(|options| {
            options.queue_requests_max = 5;
            options.queue_bytes_max = 4000;
            options.queued_bytes_max = 6000;
            options.services_max = 3;
            options.workers_max = 4;
        });
        for _ in 0..300 {
            if random.u8(..20) == 0 {
                bench.pass(Duration::from_millis(random.u64(..20_000)));
            }
            let frames = random_frames(&mut random);
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            bench.handle(&frames);
            bench.peers.0.clear();
            check(&bench.state, seed);
        }
    }
}

fn random_frames(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let words: [&[u8]; 12] = [
        b"",
        b"MDPC02",
        b"MDPW02",
        b"MDPC01",
        b"MDPW01",
        b"a",
        b"!b",
        b"c",
        b"s",
        b"t",
        GONE,
        b"mmi.service",
    ];
    let word = |random: &mut fastrand::Rng| match random.u8(..10) {
        0 => (0..random.usize(..40)).map(|_| random.u8(..)).collect(),
        1 => {
            vec![1, random.u8(..), random.u8(..3), 0, 0, 0, random.u8(..), 0, 0, 0, 0, 0, 0, 0, random.u8(..)]
        }
        _ => words[random.usize(..words.len())].to_vec(),
    };
    let peer = |random: &mut fastrand::Rng| vec![[b'a', b'c', b'd', b'e', b'f'][random.usize(..5)]];
    let service = [b"s".to_vec(), b"t".to_vec(), b"u".to_vec(), b"v".to_vec()][random.usize(..4)].clone();
    let mut frames = match random.u8(..8) {
        0 => vec![peer(random), b"MDPW02".to_vec(), vec![1], service],
        1 | 2 => vec![peer(random), b"MDPC02".to_vec(), vec![1], service, word(random)],
        3 => vec![
            peer(random),
            b"MDPC02".to_vec(),
            vec![1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            service,
            word(random),
        ],
        4 | 5 => {
            let command = vec![random.u8(3..5)];
            vec![peer(random), b"MDPW02".to_vec(), command, peer(random), Vec::new(), word(random)]
        }
        6 => vec![peer(random), GONE.to_vec()],
        _ => (0..random.usize(..8)).map(|_| word(random)).collect(),
    };
    if random.u8(..6) == 0 && !frames.is_empty() {
        let index = random.usize(..frames.len());
        frames[index] = word(random);
    }
    frames
}

fn check(state: &State, seed: u64) {
    let queued: usize = state.services.values().map(|service| service.queue.bytes()).sum();
    let kept = state.workers.values().filter_map(|worker| worker.job.as_ref());
    let kept: usize = kept.filter(|job| job.deliveries > 0).map(|job| job.bytes()).sum();
    assert_eq!(state.kept_bytes, queued + kept, "seed {seed}");
    assert!(state.kept_bytes <= state.options.queued_bytes_max, "seed {seed}");
    assert!(state.workers.len() <= state.options.workers_max, "seed {seed}");
    assert!(state.services.len() <= state.options.services_max, "seed {seed}");
    let waiting: u32 = state.clients.values().sum();
    let lens: usize = state.services.values().map(|service| service.queue.len()).sum();
    assert_eq!(waiting as usize, lens, "seed {seed}");
    for (name, service) in &state.services {
        let workers = state.workers.values().filter(|worker| worker.service == *name);
        let idle = workers.clone().filter(|worker| worker.job.is_none()).count();
        assert_eq!((service.workers, service.idle.len()), (workers.count(), idle), "seed {seed}");
        assert!(
            idle == 0 || service.queue.len() == 0,
            "seed {seed}: requests wait although workers are idle"
        );
    }
}
