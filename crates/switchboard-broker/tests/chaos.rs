//! A bus on an engine that fails, loses, repeats and interrupts at random, from seeds: each subscription receives each
//! entry once and in order, or an exact gap.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use switchboard_message::{
    Bus, Delivery, Embedded, Position, Publication, Subscription, Topic, TopicOptions,
    broker::{Broker, BrokerFuture, Capabilities, LiveEvent, Mailbox, Page, ReadFrom},
};
use switchboard_wire::Status;
use tokio::time::timeout;

thread_local! {
    static RANDOM: RefCell<fastrand::Rng> = const { RefCell::new(fastrand::Rng::with_seed(0)) };
}

/// Returns true once in `n` times.
fn one_in(n: u32) -> bool {
    below(n) == 0
}

fn below(n: u32) -> u32 {
    RANDOM.with_borrow_mut(|random| random.u32(..n))
}

/// A client of an engine that misbehaves as networks and servers do.
#[derive(Debug)]
struct Chaos {
    broker: Embedded,
    is_quiet: Arc<AtomicBool>,
}

impl Chaos {
    /// Waits for other tasks, and fails sometimes.
    async fn disturb(&self) -> Result<(), Status> {
        for _ in 0..below(4) {
            tokio::task::yield_now().await;
        }
        match !self.is_quiet.load(Ordering::Relaxed) && one_in(4) {
            true => Err(Status::unavailable("the engine is away")),
            false => Ok(()),
        }
    }
}

impl Broker for Chaos {
    fn name(&self) -> &str {
        "chaos"
    }

    fn capabilities(&self) -> Capabilities {
        self.broker.capabilities()
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        Box::pin(async move {
            self.disturb().await?;
            let position = self.broker.append(topic, publications).await?;
            // The response is lost.
            self.disturb().await?;
            Ok(position)
        })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        let is_quiet = self.is_quiet.clone();
        let has_ended = AtomicBool::new(false);
        let disturbed = Mailbox::new(move |event| {
            if has_ended.load(Ordering::Relaxed) {
                return;
            }
            if is_quiet.load(Ordering::Relaxed) {
                return to.deliver(event);
            }
            match (below(12), event) {
                (0 | 1, _) => {}
                (2, LiveEvent::Entry(entry)) => {
                    let again = entry.publication.as_ref().map(copy);
                    let again =
                        switchboard_message::broker::StoredEntry::new(entry.position, entry.previous, again);
                    to.deliver(LiveEvent::Entry(again));
                    to.deliver(LiveEvent::Entry(entry));
                }
                (3, _) => {
                    has_ended.store(true, Ordering::Relaxed);
                    to.deliver(LiveEvent::Interrupted(Status::unavailable("the connection was lost")));
                }
                (_, event) => to.deliver(event),
            }
        });
        Box::pin(async move {
            self.disturb().await?;
            let head = self.broker.subscribe(topic, known, disturbed).await?;
            self.disturb().await?;
            Ok(head)
        })
    }

    fn unsubscribe(&self, topic: &Topic) {
        self.broker.unsubscribe(topic);
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        Box::pin(async move {
            self.disturb().await?;
            self.broker.read(topic, from, entries_max.min(1 + below(6) as usize)).await
        })
    }
}

fn copy(publication: &Publication) -> Publication {
    let mut copy = Publication::new(publication.codec, publication.bytes.clone());
    copy.id = publication.id.clone();
    copy
}

/// Ends a test whose engine fails for ever: it fails one time in four.
const PATIENCE: Duration = Duration::from_secs(60);

async fn publish(bus: &Bus, entry: u64) {
    let accepted = async {
        while bus.publish("chaos", &entry).id(entry.to_string()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, accepted).await.unwrap_or_else(|_| panic!("entry {entry} is never accepted"));
}

async fn subscribe(bus: &Bus, after: Option<Position>) -> Subscription<u64> {
    timeout(PATIENCE, subscribe_again(bus, after)).await.expect("the engine accepts a subscription")
}

async fn subscribe_again(bus: &Bus, after: Option<Position>) -> Subscription<u64> {
    loop {
        let subscribe = bus.subscribe("chaos");
        let subscribed = match after {
            Some(position) => subscribe.after(position).await,
            None => subscribe.await,
        };
        match subscribed {
            Ok(subscription) => return subscription,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Receives until the last entry; checks that entries and gaps follow each other. Returns the entries and the missing
/// ones.
async fn receive(bus: Bus, first: Position, last: Arc<std::sync::Mutex<u64>>) -> (u64, u64) {
    let mut subscription = subscribe(&bus, Some(first)).await;
    let (mut position, mut entries, mut missing) = (first, 0, 0);
    loop {
        if one_in(40) {
            // As after a crash.
            drop(subscription);
            subscription = subscribe(&bus, Some(position)).await;
        }
        let next = timeout(PATIENCE, subscription.next()).await;
        let delivery = next.unwrap_or_else(|_| panic!("no entry after {position}")).unwrap().unwrap();
        match delivery {
            Delivery::Entry(entry) => {
                assert_eq!(entry.position().offset, position.offset + 1, "{position}");
                assert_eq!(*entry, entry.position().offset);
                position = entry.position();
                entries += 1;
            }
            Delivery::Gap(gap) => {
                assert_eq!(gap.range.start, position.offset + 1, "{gap:?}");
                assert_eq!(gap.missing, Some(gap.range.end - gap.range.start), "{gap:?}");
                position.offset = gap.range.end - 1;
                missing += gap.range.end - gap.range.start;
            }
            _ => {}
        }
        if position.offset >= *last.lock().unwrap() {
            return (entries, missing);
        }
    }
}

async fn run(seed: u64, history: usize) {
    const ENTRIES: u64 = 300;
    RANDOM.set(fastrand::Rng::with_seed(seed));
    let kept = TopicOptions::new().history(history, Duration::MAX);
    let topics = Bus::builder().topics(">", kept).unwrap().build();
    let is_quiet = Arc::<AtomicBool>::default();
    let bus = || {
        let broker = Chaos { broker: Embedded::new(topics.clone()), is_quiet: is_quiet.clone() };
        let small = TopicOptions::new().backlog(5);
        Bus::builder().topics(">", small).unwrap().engine(Arc::new(broker)).build()
    };
    let (publisher, one, other) = (bus(), bus(), bus());
    publish(&publisher, 1).await;
    let first = topics.topic_stats("chaos").unwrap().head;
    let last = Arc::new(std::sync::Mutex::new(u64::MAX));
    let receivers: Vec<_> = [&one, &one, &other, &publisher]
        .map(|bus| tokio::spawn(receive(bus.clone(), first, last.clone())))
        .into();
    for entry in 2..ENTRIES {
        publish(&publisher, entry).await;
    }
    is_quiet.store(true, Ordering::Relaxed);
    *last.lock().unwrap() = ENTRIES;
    // What was lost shows by the entry after it.
    let (mut entry, started) = (ENTRIES, tokio::time::Instant::now());
    while receivers.iter().any(|receiver| !receiver.is_finished()) {
        assert!(started.elapsed() < PATIENCE, "seed {seed}: a receiver misses the entries up to {entry}");
        publish(&publisher, entry).await;
        entry += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for receiver in receivers {
        let (entries, missing) = receiver.await.unwrap();
        assert!(entries + missing >= ENTRIES - 1, "seed {seed}: {entries}, {missing}");
        assert!(missing == 0 || history < ENTRIES as usize, "seed {seed}: {missing} are missing");
    }
    assert_eq!(one.stats().subscriptions, 0, "seed {seed}");
}

#[tokio::test]
async fn nothing_is_missing_within_the_history() {
    for seed in 0..12 {
        run(seed, 10_000).await;
    }
}

#[tokio::test]
async fn gaps_are_exact_with_a_short_history() {
    for seed in 100..112 {
        run(seed, 20).await;
    }
}
