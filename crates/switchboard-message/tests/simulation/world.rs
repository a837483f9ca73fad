//! The bus under test, with a clock that is moved by hand and subscriptions that are polled by hand.

use crate::model::{GroupModel, OwnModel, Published, Record, Started, TopicLimits};
use fastrand::Rng;
use futures_core::Stream;
use std::{
    collections::HashMap,
    future::IntoFuture,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use switchboard_message::{
    Bus, BusStats, Delivery, Message, Pattern, Position, SlowReader, Subscribe, Subscription, TopicOptions,
};
use switchboard_wire::Code;

const SECOND: u64 = 1_000_000_000;
const TOPICS: [&str; 8] = ["plain/0", "plain/1", "plain/2", "kept/0", "kept/1", "aged/0", "wait/0", "wait/1"];
const OWN: [&str; 8] = ["plain/0", "plain/1", "plain/*", "kept/0", "aged/>", "aged/0", "wait/0", "*/*"];
const BACKLOG: u64 = 8;
const ATTEMPTS_MAX: u32 = 3;
const UNACKNOWLEDGED_MAX: usize = 4;
const ACK_WAIT: u64 = 10 * SECOND;

/// Groups: name, topics, whether they acknowledge, whether they are durable.
const GROUPS: [(&str, &str, bool, bool); 4] = [
    ("queue", "plain/0", false, false),
    ("spread", "wait/*", false, false),
    ("workers", "plain/>", true, false),
    ("device", "kept/*", true, true),
];

fn limits(topic: &str) -> TopicLimits {
    let plain = TopicLimits { backlog: BACKLOG, history: 0, age: u64::MAX, waits: false };
    match topic.split('/').next() {
        Some("kept") => TopicLimits { history: 5, ..plain },
        Some("aged") => TopicLimits { history: 12, age: 50 * SECOND, ..plain },
        Some("wait") => TopicLimits { waits: true, ..plain },
        _ => plain,
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Subscriber {
    subscription: Subscription<u64>,
    topics: &'static str,
    kind: Kind,
    woken: Arc<Woken>,
    /// Time of the last poll, if it found nothing.
    idle_since: Option<u64>,
}

enum Kind {
    /// With the heads at its start.
    Own(OwnModel, Started),
    /// Index in `GROUPS`.
    Member(usize),
}

/// A group while it exists.
struct GroupState {
    model: GroupModel,
    started: Started,
    members: usize,
}

pub(crate) struct World {
    random: Rng,
    bus: Bus,
    clock: Arc<AtomicU64>,
    published: Published,
    values: HashMap<u64, (String, Position)>,
    next_value: u64,
    subscribers: Vec<Subscriber>,
    groups: [Option<GroupState>; GROUPS.len()],
    dead_letters: Vec<Subscription<u64>>,
    held: Vec<(usize, Message<u64>)>,
}

fn ready<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the operation waits"),
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let clock = Arc::new(AtomicU64::new(SECOND));
        let options = |name| {
            let limits = limits(name);
            let age = Duration::from_nanos(limits.age);
            let wait = if limits.waits { SlowReader::Wait(Duration::MAX) } else { SlowReader::Notify };
            let history = TopicOptions::new().history(limits.history as usize, age);
            history.backlog(limits.backlog as usize).slow_reader(wait)
        };
        let mut builder = Bus::builder().manual_clock(clock.clone());
        for class in ["plain", "kept", "aged", "wait"] {
            builder = builder.topics(&format!("{class}/>"), options(class)).unwrap();
        }
        let bus = builder.build();
        let dead_letters = GROUPS
            .iter()
            .map(|(name, ..)| ready(bus.subscribe(format!("dead/letters/{name}"))).unwrap())
            .collect();
        World {
            random: Rng::with_seed(seed),
            bus,
            clock,
            published: Published::default(),
            values: HashMap::new(),
            next_value: 0,
            subscribers: Vec::new(),
            groups: Default::default(),
            dead_letters,
            held: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub(crate) fn step(&mut self) {
        match self.random.u32(0..100) {
            0..40 => self.publish(),
            40..70 => self.read(),
            70..80 => self.acknowledge(),
            80..86 if self.subscribers.len() < 12 => self.subscribe(),
            86..92 if self.subscribers.len() < 12 => self.join(),
            92..96 => self.leave(),
            _ => {
                let pause = self.random.u64(0..12) * SECOND;
                self.clock.fetch_add(pause, Ordering::Relaxed);
            }
        }
        self.read_dead_letters();
    }

    fn publish(&mut self) {
        let topic = self.random.choice(TOPICS).unwrap();
        for _ in 0..self.random.usize(1..4) {
            let (value, now) = (self.next_value, self.now());
            let mut publish = self.bus.publish(topic, &value);
            let mut expires_at = u64::MAX;
            // Of an entry in a group that expires, the end is not seen.
            if topic == "aged/0" && self.random.u32(0..4) == 0 {
                expires_at = now + 5 * SECOND;
                publish = publish.expires_in(Duration::from_secs(5));
            }
            match publish.id(value.to_string()).now() {
                Ok(position) => {
                    self.next_value += 1;
                    self.published.add(topic, position, Record { value, time: now, expires_at });
                    self.values.insert(value, (topic.to_owned(), position));
                    let again = self.bus.publish(topic, &value).id(value.to_string()).now();
                    assert_eq!(again.unwrap(), position);
                }
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted);
                    assert!(limits(topic).waits, "{status}");
                    let stats = self.bus.topic_stats(topic).unwrap();
                    assert!(stats.entries as u64 == BACKLOG && stats.cursors > 0, "{stats:?}");
                }
            }
        }
    }

    fn subscribe(&mut self) {
        let topics = self.random.choice(OWN).unwrap();
        let (mut model, started) = (OwnModel::default(), Started::now(&self.published));
        for (topic, epoch, _) in self.published.logs() {
            model.start(topic, epoch, started.first(topic, epoch));
        }
        let mut subscribe = self.bus.subscribe(topics);
        if let Some(head) = self.published.newest(topics).filter(|_| topics.starts_with("kept")) {
            let back = self.random.u64(0..8).min(head.offset);
            if self.random.bool() {
                let kept = self.bus.topic_stats(topics).map_or(0, |stats| stats.entries as u64);
                model.start(topics, head.epoch, head.offset + 1 - back.min(kept));
                subscribe = subscribe.last(back as usize);
            } else {
                let position = Position { offset: head.offset - back, ..head };
                model.start(topics, head.epoch, position.offset + 1);
                subscribe = subscribe.after(position);
            }
        }
        let subscription = ready(subscribe).unwrap();
        self.add(subscription, topics, Kind::Own(model, started));
    }

    fn join(&mut self) {
        let index = self.random.usize(0..GROUPS.len());
        let (name, topics, acknowledges, is_durable) = GROUPS[index];
        let mut subscribe: Subscribe<'_, u64> = self.bus.subscribe(topics);
        subscribe = if is_durable { subscribe.durable(name) } else { subscribe.group(name) };
        if acknowledges {
            subscribe = subscribe
                .ack_wait(Duration::from_nanos(ACK_WAIT))
                .attempts_max(ATTEMPTS_MAX)
                .unacknowledged_max(UNACKNOWLEDGED_MAX)
                .dead_letters(&format!("dead/letters/{name}"));
        }
        let subscription = ready(subscribe).unwrap();
        let started = Started::now(&self.published);
        let group = self.groups[index].get_or_insert_with(|| GroupState {
            model: GroupModel::default(),
            started,
            members: 0,
        });
        group.members += 1;
        self.add(subscription, topics, Kind::Member(index));
    }

    fn add(&mut self, subscription: Subscription<u64>, topics: &'static str, kind: Kind) {
        let woken = Arc::new(Woken::default());
        self.subscribers.push(Subscriber { subscription, topics, kind, woken, idle_since: None });
    }

    fn read(&mut self) {
        if self.subscribers.is_empty() {
            return;
        }
        let index = self.random.usize(0..self.subscribers.len());
        for _ in 0..self.random.usize(1..20) {
            if !self.poll(index) {
                return;
            }
        }
    }

    /// Polls a subscription; returns whether it had an item.
    fn poll(&mut self, index: usize) -> bool {
        let now = self.now();
        // Without a notification since the last poll there is nothing, unless time has passed in a group.
        let must_be_idle = match self.subscribers[index].kind {
            Kind::Own(..) => self.is_idle(index),
            Kind::Member(group) => self
                .subscribers
                .iter()
                .enumerate()
                .filter(|(_, other)| matches!(other.kind, Kind::Member(known) if known == group))
                .all(|(other, subscriber)| self.is_idle(other) && subscriber.idle_since == Some(now)),
        };
        let subscriber = &mut self.subscribers[index];
        subscriber.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(subscriber.woken.clone());
        let Poll::Ready(item) =
            pin!(&mut subscriber.subscription).poll_next(&mut Context::from_waker(&waker))
        else {
            subscriber.idle_since = Some(now);
            return false;
        };
        subscriber.idle_since = None;
        let delivery = item.expect("the subscription is open").unwrap();
        assert!(!must_be_idle, "{} was not notified of {delivery:?}", subscriber.topics);
        match &mut subscriber.kind {
            Kind::Own(..) if matches!(delivery, Delivery::Recovered) => {}
            Kind::Own(model, _) => model.receive(&delivery, &self.published, now, limits),
            Kind::Member(group) => {
                let group = *group;
                self.receive(group, delivery);
            }
        }
        true
    }

    fn is_idle(&self, index: usize) -> bool {
        let subscriber = &self.subscribers[index];
        subscriber.idle_since.is_some() && !subscriber.woken.0.load(Ordering::Relaxed)
    }

    fn receive(&mut self, group: usize, delivery: Delivery<u64>) {
        let acknowledges = GROUPS[group].2;
        let now = self.now();
        // Its last dead letters were not seen before this delivery.
        let state = self.groups[group].as_mut().expect("a member of the group");
        match delivery {
            Delivery::Entry(message) => {
                let (topic, position) = (message.topic().name(), message.position());
                state.model.deliver(topic, position, message.attempt(), ATTEMPTS_MAX);
                assert_eq!(
                    self.published.log(topic, position.epoch)[position.offset as usize - 1].value,
                    *message
                );
                if acknowledges {
                    self.held.push((group, message));
                } else {
                    state.model.finish(topic, position);
                }
            }
            Delivery::Gap(gap) => {
                self.published.check_gap(&gap, now, limits(gap.topic.name()));
                state.model.gap(&gap);
            }
            other => panic!("{other:?}"),
        }
    }

    fn acknowledge(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (group, message) = self.held.swap_remove(self.random.usize(0..self.held.len()));
        if self.random.u32(0..5) == 0 {
            message.reject();
        } else if message.ack() {
            let state = self.groups[group].as_mut().expect("acknowledged in a group that has ended");
            state.model.finish(message.topic().name(), message.position());
        }
    }

    fn leave(&mut self) {
        if self.subscribers.is_empty() {
            return;
        }
        let index = self.random.usize(0..self.subscribers.len());
        let subscriber = self.subscribers.swap_remove(index);
        self.drop_subscriber(subscriber);
    }

    fn drop_subscriber(&mut self, subscriber: Subscriber) {
        drop(subscriber.subscription);
        let Kind::Member(group) = subscriber.kind else { return };
        self.read_dead_letters();
        let state = self.groups[group].as_mut().expect("a member of the group");
        state.members -= 1;
        if state.members == 0 && !GROUPS[group].3 {
            self.groups[group] = None;
        }
    }

    fn read_dead_letters(&mut self) {
        for (index, letters) in self.dead_letters.iter_mut().enumerate() {
            while let Poll::Ready(letter) =
                pin!(&mut *letters).poll_next(&mut Context::from_waker(Waker::noop()))
            {
                let Some(Ok(Delivery::Entry(letter))) = letter else { panic!("{letter:?}") };
                let (topic, position) = &self.values[&*letter];
                let state = self.groups[index].as_mut().expect("a dead letter of a group that has ended");
                assert_eq!(
                    state.model.deliveries(&(topic.clone(), position.epoch, position.offset)),
                    ATTEMPTS_MAX
                );
                state.model.finish(topic, *position);
            }
        }
    }

    pub(crate) fn check_budgets(&self) {
        for topic in TOPICS {
            let Some(stats) = self.bus.topic_stats(topic) else { continue };
            let limits = limits(topic);
            assert!(stats.entries as u64 <= limits.backlog.max(limits.history), "{topic}: {stats:?}");
        }
        for subscriber in &self.subscribers {
            assert!(subscriber.subscription.unacknowledged() <= UNACKNOWLEDGED_MAX);
        }
        assert_eq!(self.bus.stats().subscriptions, self.subscribers.len() + self.dead_letters.len());
    }

    /// Reads and acknowledges all, then drops all.
    pub(crate) fn finish(mut self) {
        self.held.clear();
        for _ in 0..=ATTEMPTS_MAX {
            self.clock.fetch_add(ACK_WAIT, Ordering::Relaxed);
            loop {
                let mut has_items = false;
                for index in 0..self.subscribers.len() {
                    while self.poll(index) {
                        has_items = true;
                        self.acknowledge_all();
                    }
                }
                self.read_dead_letters();
                if !has_items {
                    break;
                }
            }
        }
        for subscriber in &mut self.subscribers {
            let pattern = Pattern::new(subscriber.topics).unwrap();
            match &mut subscriber.kind {
                Kind::Own(model, started) => {
                    model.check_complete(&self.published, |topic| pattern.matches(topic), started);
                }
                Kind::Member(group) => {
                    let state = self.groups[*group].as_ref().unwrap();
                    assert_eq!(state.model.open(), Default::default());
                    state.model.check_complete(
                        &self.published,
                        |topic| pattern.matches(topic),
                        &state.started,
                    );
                }
            }
        }
        for subscriber in std::mem::take(&mut self.subscribers) {
            self.drop_subscriber(subscriber);
        }
        self.dead_letters.clear();
        for (name, topics, _, _) in GROUPS {
            _ = self.bus.remove_durable(topics, name);
        }
        // Behind the window for publication ids and the age of the history; some topics keep their history forever.
        self.clock.fetch_add(1_000 * SECOND, Ordering::Relaxed);
        self.bus.remove_unused();
        let stats = self.bus.stats();
        let kept =
            TOPICS.iter().filter_map(|topic| self.bus.topic_stats(*topic)).map(|stats| stats.entries).sum();
        assert!(kept <= 10, "{stats:?}");
        let mut empty = BusStats::default();
        (empty.topics, empty.entries, empty.bytes) = (stats.topics, kept, stats.bytes);
        empty.dead_letters = stats.dead_letters;
        assert_eq!(stats, empty);
        assert!(stats.topics <= 2 && (stats.entries > 0) == (stats.bytes > 0), "{stats:?}");
    }

    fn acknowledge_all(&mut self) {
        for (group, message) in std::mem::take(&mut self.held) {
            if message.ack() {
                let state = self.groups[group].as_mut().unwrap();
                state.model.finish(message.topic().name(), message.position());
            }
        }
    }
}
