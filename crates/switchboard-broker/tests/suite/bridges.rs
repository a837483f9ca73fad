//! Bridges between an engine and a bus of the process.

use super::{Engine, Path, expect, next_entry, other_bus, publish};
use std::time::Duration;
use switchboard_message::{Bridge, Bus, TopicOptions};

pub(crate) async fn a_bridge_copies_both_ways(engine: impl Engine) {
    let kept = TopicOptions::new().history(1_000, Duration::MAX);
    let near = Bus::builder().topics(">", kept).unwrap().build();
    let (far, other) = (engine.bus(), other_bus(&engine));
    // Both ways on one topic as well: what was copied does not return.
    let start =
        || Bridge::builder("near", &near, "far", &far).to("out").from("in").to("both").from("both").start();
    let mut out = other.subscribe::<u64>("out").await.unwrap();
    let mut into = near.subscribe::<u64>("in").await.unwrap();
    let mut at_far = other.subscribe::<u64>("both").await.unwrap();
    let mut at_near = near.subscribe::<u64>("both").await.unwrap();
    let mut bridge = start().await.unwrap();
    for round in [0, 20] {
        publish(&near, "out", round..round + 10).await;
        publish(&other, "in", round..round + 10).await;
        expect(&mut out, round..round + 10).await;
        expect(&mut into, round..round + 10).await;
        // An entry of each side, which the other one receives.
        near.publish("both", &(round + 100)).await.unwrap();
        assert_eq!(next_entry(&mut at_far).await, round + 100);
        other.publish("both", &(round + 101)).await.unwrap();
        assert_eq!(next_entry(&mut at_far).await, round + 101);
        expect(&mut at_near, round + 100..round + 102).await;
        if !engine.broker().capabilities().has_history {
            return;
        }
        // A part of these is copied before the bridge ends, and the others after the next one has begun.
        publish(&near, "out", round + 10..round + 15).await;
        publish(&other, "in", round + 10..round + 15).await;
        drop(bridge);
        publish(&near, "out", round + 15..round + 20).await;
        publish(&other, "in", round + 15..round + 20).await;
        bridge = start().await.unwrap();
        expect(&mut out, round + 10..round + 20).await;
        expect(&mut into, round + 10..round + 20).await;
    }
    // Through an interruption.
    engine.set(Path::Cut);
    publish(&near, "out", 40..50).await;
    publish(&other, "in", 40..50).await;
    engine.set(Path::Open);
    expect(&mut out, 40..50).await;
    expect(&mut into, 40..50).await;
    assert_eq!((bridge.stats().gaps, bridge.stats().refused), (0, 0));
    assert!(bridge.failure().is_none());
}
