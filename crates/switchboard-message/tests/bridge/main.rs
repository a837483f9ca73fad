//! Bridges between buses of this process.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod failures;

use std::{sync::Arc, time::Duration};
use switchboard_message::{Bridge, Bus, Delivery, Embedded, Limits, Subscription, TopicOptions};
use switchboard_wire::Code;
use tokio::time::timeout;

fn kept() -> Bus {
    let options = TopicOptions::new().history(1_000, Duration::MAX);
    Bus::builder().topics(">", options).unwrap().build()
}

async fn next(subscription: &mut Subscription<u64>) -> u64 {
    let next = timeout(Duration::from_secs(30), subscription.next()).await.expect("an entry");
    match next.unwrap().unwrap() {
        Delivery::Entry(entry) => *entry,
        other => panic!("not an entry: {other:?}"),
    }
}

async fn publish(bus: &Bus, topic: &str, entries: std::ops::Range<u64>) {
    for entry in entries {
        bus.publish(topic, &entry).await.unwrap();
    }
}

/// Waits until a bridge has handled a number of entries.
async fn settled(bridge: &Bridge, entries: u64) {
    let settled = async {
        while bridge.stats().copied + bridge.stats().returned + bridge.stats().refused < entries {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), settled).await.expect("the bridge copies");
}

#[tokio::test]
async fn both_directions_do_not_loop() {
    let (a, b, c) = (kept(), kept(), kept());
    let both = |builder: switchboard_message::BridgeBuilder| builder.to("t/>").from("t/>").start();
    // A triangle, with each side in both directions.
    let one = both(Bridge::builder("a", &a, "b", &b)).await.unwrap();
    let two = both(Bridge::builder("b", &b, "c", &c)).await.unwrap();
    let three = both(Bridge::builder("c", &c, "a", &a)).await.unwrap();
    publish(&a, "t/1", 0..50).await;
    publish(&b, "t/1", 50..100).await;
    publish(&c, "t/2", 100..150).await;
    for (topic, entries) in [("t/1", 100), ("t/2", 50)] {
        for bus in [&a, &b, &c] {
            let mut subscription = bus.subscribe::<u64>(topic).last(1_000).await.unwrap();
            let mut received = Vec::new();
            for _ in 0..entries {
                received.push(next(&mut subscription).await);
            }
            received.sort_unstable();
            received.dedup();
            assert_eq!(received.len(), entries, "{topic}");
        }
    }
    // What arrives over two paths has one id, and each side has each entry once.
    for bus in [&a, &b, &c] {
        assert_eq!(bus.topic_stats("t/1").unwrap().entries, 100);
    }
    for bridge in [one, two, three] {
        assert_eq!((bridge.stats().gaps, bridge.stats().refused), (0, 0));
        assert!(bridge.failure().is_none());
    }
}

#[tokio::test]
async fn a_restart_neither_loses_nor_repeats() {
    for topics in ["t", "t/>"] {
        let topic = if topics == "t" { "t" } else { "t/7" };
        let (a, b) = (kept(), kept());
        let start = || Bridge::builder("a", &a, "b", &b).to(topics).first_entries(10).start();
        publish(&a, topic, 0..20).await;
        let mut copies = b.subscribe::<u64>(topic).await.unwrap();
        let mut expected = 10..;
        for round in 0..10 {
            let bridge = start().await.unwrap();
            publish(&a, topic, 20 + round * 30..30 + round * 30).await;
            for _ in 0..if round == 0 { 20 } else { 15 } {
                assert_eq!(next(&mut copies).await, expected.next().unwrap(), "{topics}");
            }
            // Some entries are on their way, and others are published while there is no bridge.
            publish(&a, topic, 30 + round * 30..40 + round * 30).await;
            drop(bridge);
            publish(&a, topic, 40 + round * 30..50 + round * 30).await;
        }
        let bridge = start().await.unwrap();
        while expected.start < 320 {
            assert_eq!(next(&mut copies).await, expected.next().unwrap(), "{topics}");
        }
        assert_eq!(bridge.stats().gaps, 0);
        assert_eq!(b.topic_stats(topic).unwrap().published, 310);
    }
}

#[tokio::test]
async fn the_first_start_begins_with_the_next_entry() {
    for topics in ["t", "*"] {
        let (a, b) = (kept(), kept());
        publish(&a, "t", 0..5).await;
        let bridge = Bridge::builder("a", &a, "b", &b).to(topics).start().await.unwrap();
        let mut copies = b.subscribe::<u64>("t").await.unwrap();
        publish(&a, "t", 5..6).await;
        assert_eq!(next(&mut copies).await, 5, "{topics}");
        assert_eq!((bridge.stats().copied, bridge.stats().gaps), (1, 0), "{topics}");
    }
}

#[tokio::test]
async fn copies_have_the_parts_of_their_entries() {
    let (a, b) = (kept(), kept());
    let _bridge = Bridge::builder("a", &a, "b", &b).to("t").start().await.unwrap();
    let mut copies = b.subscribe::<u64>("t").await.unwrap();
    a.publish("t", &7_u64)
        .key("acme")
        .id("order 7")
        .header("trace", "1")
        .expires_in(Duration::from_secs(3_600))
        .await
        .unwrap();
    let Some(Delivery::Entry(copy)) = copies.next().await.unwrap() else { panic!("a gap") };
    assert_eq!(*copy, 7);
    assert_eq!(
        (copy.entry().key().unwrap(), copy.entry().id().unwrap()),
        (&"acme".into(), &"order 7".into())
    );
    assert_eq!(
        (copy.headers().text("trace"), copy.headers().text("switchboard-trail")),
        (Some("1"), Some("a"))
    );
}

#[tokio::test]
async fn refused_copies_are_counted() {
    let mut limits = Limits::default();
    limits.entry_bytes_max = 256;
    let (a, b) = (kept(), Bus::builder().limits(limits).build());
    let bridge = Bridge::builder("a", &a, "b", &b).to("t").start().await.unwrap();
    let mut copies = b.subscribe::<String>("t").await.unwrap();
    let large = "x".repeat(1_000);
    a.publish_batch("t", &["one".to_owned(), large, "two".to_owned()]).await.unwrap();
    for expected in ["one", "two"] {
        let Some(Delivery::Entry(copy)) = copies.next().await.unwrap() else { panic!("a gap") };
        assert_eq!(*copy, expected);
    }
    settled(&bridge, 3).await;
    assert_eq!((bridge.stats().copied, bridge.stats().refused), (2, 1));
}

#[tokio::test]
async fn bad_bridges_are_refused() {
    let (a, b) = (kept(), kept());
    let engine = Bus::builder().engine(Arc::new(Embedded::new(kept()))).build();
    for (builder, code, text) in [
        (Bridge::builder("a", &a, "b", &a).to("t"), Code::InvalidArgument, "different names"),
        (Bridge::builder("a", &a, "a", &b).to("t"), Code::InvalidArgument, "different names"),
        (Bridge::builder("a b", &a, "b", &b).to("t"), Code::InvalidArgument, "\"a b\" is not the name"),
        (Bridge::builder("a", &a, "b", &b).to(""), Code::InvalidArgument, "topic"),
        (Bridge::builder("a", &engine, "b", &b).to("t/>"), Code::Unimplemented, "pattern"),
    ] {
        let status = builder.start().await.map(drop).unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
}
