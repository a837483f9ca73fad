//! Many topics, the end of a process, and what engines do not have.

use super::{Engine, expect, next_entry, other_bus, publish};
use switchboard_message::{Bus, Delivery};
use switchboard_wire::Code;

pub(crate) async fn many_topics(engine: impl Engine) {
    const TOPICS: u64 = 10_000;
    let (bus, other) = (engine.bus(), other_bus(&engine));
    let topics = TOPICS.min(engine.broker().capabilities().topics_max as u64);
    let mut subscribing = Vec::new();
    for workers in 0..32 {
        let bus = bus.clone();
        subscribing.push(tokio::spawn(async move {
            let mut subscriptions = Vec::new();
            for topic in (workers..topics).step_by(32) {
                let subscription = bus.subscribe::<u64>(format!("many/{topic}")).await.unwrap();
                subscriptions.push((topic, subscription));
            }
            subscriptions
        }));
    }
    let mut subscriptions = Vec::new();
    for subscribed in subscribing {
        subscriptions.extend(subscribed.await.unwrap());
    }
    assert_eq!(bus.stats().topics as u64, topics);
    for topic in (0..topics).step_by(100) {
        other.publish(&format!("many/{topic}"), &topic).await.unwrap();
    }
    for (topic, subscription) in subscriptions.iter_mut().filter(|(topic, _)| topic % 100 == 0) {
        assert_eq!(next_entry(subscription).await, *topic);
    }
    drop(subscriptions);
    bus.remove_unused();
    assert_eq!((bus.stats().topics, bus.stats().subscriptions), (0, 0));
    // The engine has not mixed up ends and beginnings.
    let mut again = bus.subscribe::<u64>("many/7").await.unwrap();
    publish(&other, "many/7", 0..3).await;
    expect(&mut again, 0..3).await;
}

pub(crate) async fn drain(engine: impl Engine) {
    let (bus, other) = (engine.bus(), other_bus(&engine));
    let mut subscription = other.subscribe::<u64>("drain").await.unwrap();
    let publishing: Vec<_> = (0..20_u64)
        .map(|entry| {
            let bus = bus.clone();
            tokio::spawn(async move { bus.publish("drain", &entry).await })
        })
        .collect();
    // The process ends with its last publication: what was accepted is there.
    drop(bus);
    let mut accepted = 0;
    for publication in publishing {
        accepted += u64::from(publication.await.unwrap().is_ok());
    }
    assert_eq!(accepted, 20);
    let mut received = Vec::new();
    for _ in 0..accepted {
        received.push(next_entry(&mut subscription).await);
    }
    received.sort_unstable();
    assert_eq!(received, (0..20).collect::<Vec<_>>());
}

pub(crate) async fn unsupported_operations_name_the_engine(engine: impl Engine) {
    let (bus, name) = (engine.bus(), engine.broker().name().to_owned());
    let mut refused = vec![
        bus.subscribe::<u64>("jobs").group("workers").ack().await.map(drop).unwrap_err(),
        bus.subscribe::<u64>("jobs").durable("worker").await.map(drop).unwrap_err(),
        bus.subscribe::<u64>("jobs/*").await.map(drop).unwrap_err(),
        bus.request::<u64, u64>("jobs", &1).await.map(drop).unwrap_err(),
        bus.publish("jobs", &1_u64).now().unwrap_err(),
    ];
    refused.push(bus.publish("jobs", &1_u64).later().unwrap_err());
    for status in refused {
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        assert!(status.message().contains(&name), "{status} does not name {name}");
    }
    let status = bus.publish("jobs/*", &1_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let mut limits = switchboard_message::Limits::default();
    limits.entry_bytes_max = 8;
    let small = Bus::builder().limits(limits).engine(engine.broker()).build();
    let status = small.publish("jobs", &"longer than this".to_owned()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    // Reserved topics are those of the process.
    assert_eq!(bus.credit("jobs").await.unwrap(), bus.limits().batch_entries_max);
    let mut batch = bus.subscribe::<u64>("batch").await.unwrap();
    let last = bus.publish_batch("batch", &[0_u64, 1, 2]).await;
    if engine.broker().capabilities().appends_batches {
        expect(&mut batch, 0..2).await;
        let third = super::next(&mut batch).await;
        assert!(matches!(third, Delivery::Entry(third) if third.position() == last.unwrap()));
    } else {
        assert_eq!(last.unwrap_err().code(), Code::Unimplemented);
    }
}
