//! A subscription to a pattern that crashes and continues after its checkpoint, under jumps of the clock.
//!
//! Invariants: each entry that was published after the first start is received once, in the order of its topic, or is
//! in a reported gap. The end of a log that was removed during a crash is not reported, and left out.

use fastrand::Rng;
use futures_core::Stream;
use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_message::{Bus, Checkpoint, Delivery, Position, Subscription, TopicOptions};

const SECOND: u64 = 1_000_000_000;
/// Topics, and the entries that their history keeps.
const TOPICS: usize = 20;
const HISTORY: usize = 6;

/// A log: topics that are removed and created again have several.
type LogName = (usize, u64);

#[derive(Default)]
struct Received {
    last: HashMap<LogName, u64>,
    entries: HashSet<(LogName, u64)>,
    gaps: Vec<(LogName, Range<u64>)>,
}

struct Crashes {
    random: Rng,
    bus: Bus,
    clock: Arc<AtomicU64>,
    subscription: Option<Subscription<u64>>,
    checkpoint: Checkpoint,
    /// Newest entry of each topic, and the offsets of all logs.
    heads: HashMap<usize, Position>,
    published: Vec<(LogName, u64)>,
    received: Received,
    /// Logs that ended during a crash.
    ended: HashSet<LogName>,
    next: u64,
}

fn ready<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the operation waits"),
    }
}

impl Crashes {
    fn new(seed: u64) -> Crashes {
        let clock = Arc::new(AtomicU64::new(SECOND));
        let options = TopicOptions::new().history(HISTORY, Duration::from_secs(10)).backlog(HISTORY);
        let builder = Bus::builder().manual_clock(clock.clone()).topics(">", options).unwrap();
        let bus = builder.build();
        // Before the start: not received.
        for topic in 0..TOPICS / 2 {
            ready(bus.publish(&format!("t/{topic}"), &0_u64)).unwrap();
        }
        let subscription = ready(bus.subscribe::<u64>("t/*")).unwrap();
        Crashes {
            random: Rng::with_seed(seed),
            checkpoint: subscription.checkpoint().unwrap().clone(),
            bus,
            clock,
            subscription: Some(subscription),
            heads: HashMap::new(),
            published: Vec::new(),
            received: Received::default(),
            ended: HashSet::new(),
            next: 0,
        }
    }

    fn step(&mut self) {
        match self.random.usize(0..20) {
            0 => self.crash(),
            1 | 2 => self.resume(),
            3 => {
                let jump = self.random.u64(0..15 * SECOND);
                self.clock.fetch_add(jump, Ordering::AcqRel);
            }
            4..8 => {
                let most = self.random.usize(1..12);
                self.read(most);
            }
            _ => {
                let topic = self.random.usize(0..TOPICS);
                self.publish(topic);
            }
        }
    }

    fn publish(&mut self, topic: usize) {
        self.next += 1;
        let position = ready(self.bus.publish(&format!("t/{topic}"), &self.next)).unwrap();
        let before = self.heads.insert(topic, position);
        if let Some(before) = before.filter(|before| before.epoch != position.epoch) {
            // A subscription keeps its topics: it was removed during a crash.
            self.ended.insert((topic, before.epoch));
        }
        self.published.push(((topic, position.epoch), position.offset));
    }

    fn read(&mut self, most: usize) -> usize {
        let Some(subscription) = &mut self.subscription else { return 0 };
        for count in 0..most {
            let next = Pin::new(&mut *subscription).poll_next(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Some(delivery)) = next else { return count };
            let topic = |name: &str| name[2..].parse::<usize>().unwrap();
            match delivery.unwrap() {
                Delivery::Entry(message) => {
                    let Position { epoch, offset } = message.position();
                    let log = (topic(message.topic().name()), epoch);
                    let last = self.received.last.insert(log, offset);
                    assert!(last.is_none_or(|last| last < offset), "{log:?}: {offset} after {last:?}");
                    assert!(self.received.entries.insert((log, offset)), "{log:?}: {offset} again");
                }
                Delivery::Gap(gap) => {
                    self.received.gaps.push(((topic(gap.topic.name()), gap.epoch), gap.range));
                }
                _ => {}
            }
        }
        most
    }

    fn crash(&mut self) {
        if let Some(subscription) = self.subscription.take() {
            self.checkpoint = subscription.checkpoint().unwrap().clone();
        }
    }

    fn resume(&mut self) {
        if self.subscription.is_none() {
            let subscribe = self.bus.subscribe::<u64>("t/*").resume(self.checkpoint.clone());
            self.subscription = Some(ready(subscribe).unwrap());
        }
    }

    fn finish(&mut self) {
        self.resume();
        (0..TOPICS).for_each(|topic| self.publish(topic));
        while self.read(100) > 0 {}
        let Received { entries, gaps, .. } = &self.received;
        for (log, offset) in &self.published {
            let is_received = entries.contains(&(*log, *offset));
            let in_gap = || gaps.iter().any(|(known, range)| known == log && range.contains(offset));
            assert!(is_received || self.ended.contains(log) || in_gap(), "{log:?}: {offset} is missing");
        }
        let published: HashSet<_> = self.published.iter().copied().collect();
        assert!(entries.iter().all(|entry| published.contains(entry)), "older than the subscription");
        self.subscription = None;
        self.clock.fetch_add(60 * SECOND, Ordering::AcqRel);
        self.bus.remove_unused();
        let stats = self.bus.stats();
        assert_eq!((stats.topics, stats.entries, stats.bytes, stats.cursors), (0, 0, 0, 0));
    }
}

#[test]
fn a_pattern_that_crashes_misses_nothing_without_a_report() {
    for seed in 0..100 {
        let run = || {
            let mut crashes = Crashes::new(seed);
            (0..400).for_each(|_| crashes.step());
            crashes.finish();
        };
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
