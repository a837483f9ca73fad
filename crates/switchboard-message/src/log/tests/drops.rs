//! Memory of the application whose end uses the bus: a payload whose owner locks the shards when it is dropped.

use super::*;
use bytes::Bytes;

/// Owner of a payload. Its end notes whether all shards can be locked.
struct Owner {
    log: Arc<Log>,
    ends: Arc<Mutex<Vec<bool>>>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        b"payload"
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let is_free = self.log.shards.iter().all(|shard| shard.try_lock().is_ok());
        self.ends.lock().unwrap().push(is_free);
    }
}

/// A log, its clock, and the ends of the payloads.
struct Owners {
    log: Arc<Log>,
    ends: Arc<Mutex<Vec<bool>>>,
    now: u64,
}

impl Owners {
    fn new(options: TopicOptions) -> Owners {
        let Fixture { log, now } = log(&[("t", options)]);
        Owners { log: Arc::new(log), ends: Arc::default(), now }
    }

    fn publish(&self, change: impl FnOnce(&mut Publication)) {
        let owner = Owner { log: self.log.clone(), ends: self.ends.clone() };
        let mut publication = Publication::new(Codec::Raw, Bytes::from_owner(owner));
        change(&mut publication);
        let entry = publication.into_entry(|| self.now, 1 << 20, 256).unwrap();
        self.log.append("t".into(), &mut smallvec![entry], self.now).unwrap();
    }

    fn subscribe(&self, group: Option<&str>, ack: Option<AckOptions>) -> Subscriber {
        let source = Source::Topic(Topic::internal("t"));
        let name = |name: &str| GroupKey { name: name.into(), source: source.clone(), is_durable: false };
        let attach = Attach { group: group.map(name), source: source.clone(), start: Start::Head, ack };
        let member = Arc::<Member>::default();
        let attached = self.log.attach(&attach, &member, self.now).unwrap().sets;
        Subscriber { member, attached, gaps: Vec::new() }
    }

    /// Takes one entry, and drops it without a lock; returns its token.
    fn take(&self, subscriber: &Subscriber) -> Option<Token> {
        let mut batch = VecDeque::new();
        let size = BatchSize { entries: 1, bytes: 1 << 20 };
        self.log.take(
            subscriber.attached[0],
            &subscriber.member,
            size,
            self.now,
            &mut batch,
            &mut Removed::new(),
        );
        batch.front().and_then(|taken| match taken {
            Taken::Entry(taken) => taken.token(),
            _ => None,
        })
    }

    /// Checks that as many payloads have ended, all of them without a lock.
    #[track_caller]
    fn ended(&self, count: usize) {
        assert_eq!(*self.ends.lock().unwrap(), vec![true; count]);
    }
}

#[test]
fn entries_that_an_append_removes_are_dropped_without_a_lock() {
    let bus = Owners::new(TopicOptions::new());
    bus.publish(|_| {});
    bus.ended(1);
    let bus = Owners::new(TopicOptions::new().history(1, Duration::MAX));
    (0..3).for_each(|_| bus.publish(|_| {}));
    bus.ended(2);
    let bus = Owners::new(TopicOptions::new().history(9, Duration::MAX).conflate());
    (0..3).for_each(|_| bus.publish(|publication| publication.key = "k".into()));
    bus.ended(2);
    let bus = Owners::new(TopicOptions::new().history(9, Duration::MAX));
    (0..3).for_each(|_| bus.publish(|publication| publication.id = "id".into()));
    bus.ended(2);
}

#[test]
fn entries_whose_newer_ones_fill_the_backlog_are_dropped_without_a_lock() {
    let bus = Owners::new(TopicOptions::new().backlog(2).slow_reader(SlowReader::KeepNewest));
    let _slow = bus.subscribe(None, None);
    for key in ["a", "a", "b", "c"] {
        bus.publish(|publication| publication.key = key.into());
    }
    bus.ended(2);
}

#[test]
fn entries_that_all_cursors_have_read_are_dropped_without_a_lock() {
    let bus = Owners::new(TopicOptions::new());
    let reader = bus.subscribe(None, None);
    bus.publish(|_| {});
    bus.ended(0);
    bus.take(&reader);
    bus.ended(1);
    bus.publish(|_| {});
    bus.log.detach(&reader.attached, &reader.member, bus.now);
    bus.ended(2);
}

#[test]
fn old_entries_are_dropped_without_a_lock() {
    let mut bus = Owners::new(TopicOptions::new().history(9, Duration::from_secs(1)));
    let removals: [fn(&Owners); 4] = [
        |bus| bus.log.remove_unused(bus.now),
        |bus| _ = bus.log.credit("t".into(), bus.now),
        |bus| {
            let reader = bus.subscribe(None, None);
            bus.log.detach(&reader.attached, &reader.member, bus.now);
        },
        |bus| bus.publish(|_| {}),
    ];
    for (ended, remove) in (1..).zip(removals) {
        bus.publish(|_| {});
        bus.now += 2 * SECOND;
        remove(&bus);
        bus.ended(ended);
    }
}

#[test]
fn entries_of_a_group_are_dropped_without_a_lock() {
    let mut bus = Owners::new(TopicOptions::new());
    let worker = bus.subscribe(Some("workers"), Some(ack(2, None)));
    bus.publish(|_| {});
    let token = bus.take(&worker).unwrap();
    assert!(bus.log.acknowledge(token, bus.now));
    bus.ended(1);
    // The last delivery, rejected: dropped, because there is no topic for dead letters.
    bus.publish(|_| {});
    for _ in 0..2 {
        let token = bus.take(&worker).unwrap();
        assert!(bus.log.reject(token, bus.now));
    }
    bus.ended(2);
    // Expired before its second delivery.
    bus.publish(|publication| publication.expires_in = Some(Duration::from_secs(1)));
    let token = bus.take(&worker).unwrap();
    assert!(bus.log.reject(token, bus.now));
    bus.now += 2 * SECOND;
    assert!(bus.take(&worker).is_none());
    bus.ended(3);
    // Held by the group at its end.
    bus.publish(|_| {});
    bus.take(&worker).unwrap();
    bus.log.detach(&worker.attached, &worker.member, bus.now);
    bus.ended(4);
}
