//! Topics that keep the newest entry of each key: every subscription ends with the newest value of each key, or with a
//! gap that contains it.

use fastrand::Rng;
use futures_core::Stream;
use std::{
    collections::HashMap,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_message::{Bus, Delivery, SlowReader, Subscription, TopicOptions};

const OPERATIONS: usize = 600;
const KEPT: usize = 8;

struct Reader {
    subscription: Subscription<u64>,
    newest: HashMap<String, u64>,
    /// Offset of the last item.
    offset: u64,
    gaps: Vec<std::ops::Range<u64>>,
}

impl Reader {
    /// Reads at most this number of items.
    fn read(&mut self, items: usize) {
        for _ in 0..items {
            let item = pin!(&mut self.subscription).poll_next(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(item) = item else { return };
            match item.unwrap().unwrap() {
                Delivery::Entry(message) => {
                    assert!(message.position().offset > self.offset, "order");
                    self.offset = message.position().offset;
                    let key = String::from_utf8(message.entry().key().unwrap().to_vec()).unwrap();
                    let before = self.newest.insert(key, *message);
                    assert!(before.is_none_or(|before| before < *message));
                }
                Delivery::Gap(gap) => {
                    assert!(gap.range.start > self.offset && gap.missing.is_none_or(|missing| missing == 1));
                    self.offset = gap.range.end - 1;
                    self.gaps.push(gap.range);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Runs random publications and reads with this number of keys; returns the number of gaps.
fn run(options: TopicOptions, keys: usize, seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let bus = Bus::builder().topics("t", options).unwrap().build();
    let subscribe = || {
        let mut future = pin!(std::future::IntoFuture::into_future(bus.subscribe("t").last(KEPT)));
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(subscription) => subscription.unwrap(),
            Poll::Pending => panic!("a subscription waits"),
        }
    };
    let reader = || Reader { subscription: subscribe(), newest: HashMap::new(), offset: 0, gaps: Vec::new() };
    let mut readers = vec![reader(), reader()];
    let mut published: HashMap<String, (u64, u64)> = HashMap::new();
    for value in 0..OPERATIONS as u64 {
        let key = format!("k{}", random.usize(0..keys));
        let position = bus.publish("t", &value).key(key.clone()).now().unwrap();
        published.insert(key, (position.offset, value));
        assert!(bus.topic_stats("t").unwrap().entries <= KEPT);
        if random.u32(0..20) == 0 {
            let (index, items) = (random.usize(0..readers.len()), random.usize(0..30));
            readers[index].read(items);
        }
    }
    if options == conflating() {
        // A later subscription receives the newest entries of all keys.
        readers.push(reader());
    }
    let mut gaps = 0;
    for mut reader in readers {
        reader.read(usize::MAX);
        gaps += reader.gaps.len();
        for (key, (offset, value)) in &published {
            let is_missing = reader.gaps.iter().any(|gap| gap.contains(offset));
            let is_history = keys > KEPT && options == conflating();
            assert!(reader.newest.get(key) == Some(value) || is_missing || is_history, "{key} {offset}");
        }
    }
    drop(bus);
    gaps
}

fn conflating() -> TopicOptions {
    TopicOptions::new().history(KEPT, Duration::MAX).conflate().backlog(1)
}

fn keeping_newest() -> TopicOptions {
    TopicOptions::new().backlog(KEPT).slow_reader(SlowReader::KeepNewest)
}

#[test]
fn every_subscription_receives_the_newest_entry_of_each_key() {
    for seed in 0..100 {
        for options in [conflating(), keeping_newest()] {
            assert_eq!(run(options, KEPT, seed), 0, "seed {seed}");
            assert!(run(options, 3 * KEPT, seed) > 0, "seed {seed}");
        }
    }
}
