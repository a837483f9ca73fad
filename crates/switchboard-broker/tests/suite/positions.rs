//! Order, starts, holes, duplicates, trimmed histories, slow readers.

use super::{Engine, HISTORY, expect, next, next_entry, next_gap, other_bus, publish};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_message::{
    Bus, Delivery, GapReason, Position, Publication, Topic, TopicOptions,
    broker::{Broker, BrokerFuture, Capabilities, LiveEvent, Mailbox, Page, ReadFrom},
};
use switchboard_wire::Code;

pub(crate) async fn order_with_many_publishers(engine: impl Engine) {
    const PUBLISHERS: u64 = 8;
    const EACH: u64 = 50;
    let buses = [engine.bus(), engine.bus(), other_bus(&engine)];
    let mut subscriptions = Vec::new();
    for bus in &buses {
        subscriptions.push(bus.subscribe::<u64>("order").await.unwrap());
    }
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let bus = buses[publisher as usize % buses.len()].clone();
            tokio::spawn(async move {
                for entry in 0..EACH {
                    bus.publish("order", &(publisher * 1_000 + entry)).await.unwrap();
                }
            })
        })
        .collect();
    let mut orders = Vec::new();
    for subscription in &mut subscriptions {
        let (mut order, mut last) = (Vec::new(), Position::default());
        let mut expected = [0; PUBLISHERS as usize];
        while order.len() < (PUBLISHERS * EACH) as usize {
            let Delivery::Entry(entry) = next(subscription).await else { panic!("a gap") };
            let (publisher, number) = ((*entry / 1_000) as usize, *entry % 1_000);
            assert_eq!(number, expected[publisher], "of publisher {publisher}");
            expected[publisher] += 1;
            assert!(entry.position().offset > last.offset);
            last = entry.position();
            order.push((last, *entry));
        }
        orders.push(order);
    }
    assert!(orders.iter().all(|order| *order == orders[0]));
    for publisher in publishers {
        publisher.await.unwrap();
    }
}

pub(crate) async fn every_start_position(engine: impl Engine) {
    let (bus, has_history) = (engine.bus(), engine.broker().capabilities().has_history);
    let first = bus.publish("starts", &0_u64).await.unwrap();
    publish(&other_bus(&engine), "starts", 1..5).await;
    if !has_history {
        let status = bus.subscribe::<u64>("starts").last(1).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        return;
    }
    let mut head = bus.subscribe::<u64>("starts").await.unwrap();
    let mut last = bus.subscribe::<u64>("starts").last(2).await.unwrap();
    let mut more_than_kept = bus.subscribe::<u64>("starts").last(1_000).await.unwrap();
    let mut none = bus.subscribe::<u64>("starts").last(0).await.unwrap();
    let mut after = bus.subscribe::<u64>("starts").after(first).await.unwrap();
    let mut since = bus.subscribe::<u64>("starts").since(Duration::from_secs(3_600)).await.unwrap();
    let begin = Position { offset: 0, ..first };
    let mut from_the_first = other_bus(&engine).subscribe::<u64>("starts").after(begin).await.unwrap();
    bus.publish("starts", &5_u64).await.unwrap();
    expect(&mut head, 5..6).await;
    expect(&mut last, 3..6).await;
    expect(&mut more_than_kept, 0..6).await;
    expect(&mut none, 5..6).await;
    for (subscription, first) in [(&mut after, 1), (&mut since, 0), (&mut from_the_first, 0)] {
        assert!(matches!(next(subscription).await, Delivery::Recovered));
        expect(subscription, first..6).await;
    }
    let another_log = Position { epoch: first.epoch ^ 1, offset: 3 };
    let mut another = bus.subscribe::<u64>("starts").after(another_log).await.unwrap();
    assert_eq!(next_gap(&mut another).await.1, GapReason::Epoch);
    expect(&mut another, 0..6).await;
    let page = bus.history::<u64>("starts").limit(3).await.unwrap();
    assert!(matches!(&page.deliveries[..], [Delivery::Entry(third), _, _] if **third == 3), "{page:?}");
    let page = bus.history::<u64>("starts").after(first).limit(2).await.unwrap();
    assert!(page.has_more);
    assert!(
        matches!(&page.deliveries[..], [Delivery::Entry(one), Delivery::Entry(_)] if **one == 1),
        "{page:?}"
    );
}

/// A client of an engine that loses some of its live entries.
#[derive(Debug)]
struct Lossy {
    broker: Arc<dyn Broker>,
    seen: Arc<AtomicU64>,
}

impl Broker for Lossy {
    fn name(&self) -> &str {
        self.broker.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.broker.capabilities()
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        self.broker.append(topic, publications)
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        let seen = self.seen.clone();
        let lossy = Mailbox::new(move |event| {
            // Two of five, and never the last one of five.
            if matches!(event, LiveEvent::Entry(_))
                && matches!(seen.fetch_add(1, Ordering::Relaxed) % 5, 1 | 2)
            {
                return;
            }
            to.deliver(event);
        });
        self.broker.subscribe(topic, known, lossy)
    }

    fn unsubscribe(&self, topic: &Topic) {
        self.broker.unsubscribe(topic);
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        self.broker.read(topic, from, entries_max)
    }
}

pub(crate) async fn holes_are_filled(engine: impl Engine) {
    let seen = Arc::<AtomicU64>::default();
    let lossy = Lossy { broker: engine.broker(), seen: seen.clone() };
    let has_history = lossy.capabilities().has_history;
    let bus = Bus::builder().engine(Arc::new(lossy)).build();
    let mut subscription = bus.subscribe::<u64>("holes").await.unwrap();
    publish(&other_bus(&engine), "holes", 0..50).await;
    if has_history {
        expect(&mut subscription, 0..50).await;
    } else {
        assert_eq!(next_entry(&mut subscription).await, 0);
        assert_eq!(next_gap(&mut subscription).await.1, GapReason::Lost);
    }
    assert!(seen.load(Ordering::Relaxed) > 5, "entries were lost");
}

pub(crate) async fn duplicates_are_dropped(engine: impl Engine) {
    let (bus, other) = (engine.bus(), other_bus(&engine));
    let mut subscription = other.subscribe::<u64>("ids").await.unwrap();
    let first = bus.publish("ids", &0_u64).id("order 0").await.unwrap();
    let again = other.publish("ids", &0_u64).id("order 0").await.unwrap();
    bus.publish("ids", &1_u64).id("order 1").await.unwrap();
    assert_eq!(next_entry(&mut subscription).await, 0);
    match engine.broker().capabilities().drops_duplicates {
        true => assert_eq!(first, again),
        false => assert_eq!(next_entry(&mut subscription).await, 0),
    }
    assert_eq!(next_entry(&mut subscription).await, 1);
}

pub(crate) async fn history_is_trimmed_below_a_reader(engine: impl Engine) {
    let bus = engine.bus();
    if !bus_keeps(&engine) {
        return;
    }
    let first = bus.publish("trimmed", &0_u64).await.unwrap();
    publish(&bus, "trimmed", 1..50).await;
    let fiftieth = bus.publish("trimmed", &50_u64).await.unwrap();
    publish(&bus, "trimmed", 51..HISTORY + 50).await;
    if !engine.broker().capabilities().has_history_per_topic {
        engine.trim(fiftieth).await;
    }
    let mut late = other_bus(&engine).subscribe::<u64>("trimmed").after(first).await.unwrap();
    let (range, reason) = next_gap(&mut late).await;
    assert_eq!(reason, GapReason::Expired);
    let Delivery::Entry(oldest) = next(&mut late).await else { panic!("a second gap") };
    // The gap covers the entries between the position and the first entry.
    assert!(range.start > first.offset && range.end <= oldest.position().offset, "{range:?}");
    if engine.broker().capabilities().has_dense_offsets {
        assert_eq!(range, first.offset + 1..first.offset + 50);
        assert_eq!(oldest.position().offset, first.offset + 50);
    }
    let oldest = *oldest;
    assert!((2..=50).contains(&oldest), "{oldest}");
    expect(&mut late, oldest + 1..HISTORY + 50).await;
}

fn bus_keeps(engine: &impl Engine) -> bool {
    engine.broker().capabilities().has_history
}

pub(crate) async fn a_slow_reader_catches_up(engine: impl Engine) {
    let small = TopicOptions::new().backlog(5);
    let bus = Bus::builder().topics("slow", small).unwrap().engine(engine.broker()).build();
    let mut slow = bus.subscribe::<u64>("slow").await.unwrap();
    let mut quick = bus.subscribe::<u64>("slow").await.unwrap();
    let other = other_bus(&engine);
    for entry in 0..80 {
        other.publish("slow", &entry).await.unwrap();
        assert_eq!(next_entry(&mut quick).await, entry);
    }
    match bus_keeps(&engine) {
        true => expect(&mut slow, 0..80).await,
        false => {
            let (range, reason) = next_gap(&mut slow).await;
            assert_eq!((range.end - range.start, reason), (75, GapReason::Lagged));
            expect(&mut slow, 75..80).await;
        }
    }
    // One that is slower than the engine keeps them receives the exact gap.
    let publications = HISTORY + 80;
    for entry in 80..publications + 80 {
        other.publish("slow", &entry).await.unwrap();
        assert_eq!(next_entry(&mut quick).await, entry);
    }
    if bus_keeps(&engine) && !engine.broker().capabilities().has_history_per_topic {
        return expect(&mut slow, 80..publications + 80).await;
    }
    let (range, _) = next_gap(&mut slow).await;
    let Delivery::Entry(next) = next(&mut slow).await else { panic!("a second gap") };
    assert!(range.end <= next.position().offset, "{range:?}");
    if engine.broker().capabilities().has_dense_offsets && bus_keeps(&engine) {
        assert_eq!((range.end, range.end - range.start), (next.position().offset, 80));
    }
    expect(&mut slow, *next + 1..publications + 80).await;
}
