//! Killed engines, partitions, other epochs.

use super::{Engine, Path, expect, next, next_entry, next_gap, other_bus, publish};
use std::time::Duration;
use switchboard_message::{Bus, Delivery, GapReason};
use switchboard_wire::{Code, Retry};

/// Ends a test whose engine accepts nothing any more.
const PATIENCE: Duration = Duration::from_secs(120);

/// Publishes until the engine accepts it, under one id.
async fn publish_until_accepted(bus: &Bus, topic: &str, entry: u64) {
    let accepted = tokio::time::timeout(PATIENCE, publish_again(bus, topic, entry)).await;
    accepted.unwrap_or_else(|_| panic!("entry {entry} of {topic} is never accepted"));
}

async fn publish_again(bus: &Bus, topic: &str, entry: u64) {
    loop {
        match bus.publish(topic, &entry).id(format!("{topic} {entry}")).await {
            Ok(_) => return,
            Err(status) => {
                assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{status}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

pub(crate) async fn killed_and_restarted(mut engine: impl Engine) {
    if !engine.is_remote() {
        assert!(!engine.broker().capabilities().survives_restart, "an engine without a server cannot");
        return;
    }
    let (bus, other) = (engine.bus(), engine.bus());
    let mut subscription = bus.subscribe::<u64>("killed").await.unwrap();
    publish(&other, "killed", 0..5).await;
    expect(&mut subscription, 0..3).await;
    engine.kill().await;
    // It may be appended later: the topic is another one.
    let status = other.publish("killed/lost", &9_u64).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let status = bus.subscribe::<u64>("another").await.map(drop).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    // Entries that have arrived are read from the log of this process.
    expect(&mut subscription, 3..5).await;
    engine.restart().await;
    for entry in 5..10 {
        publish_until_accepted(&other, "killed", entry).await;
    }
    if engine.broker().capabilities().survives_restart {
        expect(&mut subscription, 5..10).await;
        let mut late = other.subscribe::<u64>("killed").last(100).await.unwrap();
        expect(&mut late, 0..10).await;
    } else {
        assert_eq!(next_gap(&mut subscription).await.1, GapReason::Epoch);
        expect(&mut subscription, 5..10).await;
    }
}

pub(crate) async fn partitions(engine: impl Engine) {
    if !engine.is_remote() {
        return;
    }
    let (bus, other) = (engine.bus(), other_bus(&engine));
    let mut subscription = bus.subscribe::<u64>("parted").await.unwrap();
    let mut entries = 0..;
    let mut publish_three = async |bus: &Bus| {
        for entry in entries.by_ref().take(3) {
            publish_until_accepted(bus, "parted", entry).await;
        }
    };
    let mut received = 0;
    for path in [Path::Stalled, Path::StalledToServer, Path::StalledToClients, Path::Cut] {
        publish_three(&other).await;
        expect(&mut subscription, received..received + 3).await;
        engine.set(path);
        publish_three(&other).await;
        // A publication that meets the partition ends, with a retry that is safe.
        let status = bus.publish("parted/lost", &0_u64).id("lost").await.unwrap_err();
        assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe), "{path:?}: {status}");
        engine.set(Path::Open);
        publish_three(&bus).await;
        expect(&mut subscription, received + 3..received + 9).await;
        received += 9;
    }
}

pub(crate) async fn a_cut_during_publications(engine: impl Engine) {
    if !engine.is_remote() {
        return;
    }
    let (bus, other) = (engine.bus(), other_bus(&engine));
    let mut subscription = bus.subscribe::<u64>("cut").await.unwrap();
    let publishing = tokio::spawn(async move {
        for entry in 0..60 {
            publish_until_accepted(&other, "cut", entry).await;
        }
    });
    for entry in 0..60 {
        if entry % 20 == 10 {
            engine.set(Path::Cut);
            engine.set(Path::Open);
        }
        assert_eq!(next_entry(&mut subscription).await, entry);
    }
    publishing.await.unwrap();
}

pub(crate) async fn another_epoch(engine: impl Engine) {
    if !engine.is_remote() {
        return;
    }
    let (bus, other) = (engine.bus(), other_bus(&engine));
    let mut subscription = bus.subscribe::<u64>("epochs").await.unwrap();
    let first = other.publish("epochs", &0_u64).await.unwrap();
    assert_eq!(next_entry(&mut subscription).await, 0);
    engine.erase().await;
    publish(&other, "epochs", 1..3).await;
    let Delivery::Gap(gap) = next(&mut subscription).await else { panic!("no gap") };
    assert_eq!((gap.reason, gap.missing), (GapReason::Epoch, None));
    let Delivery::Entry(entry) = next(&mut subscription).await else { panic!("a second gap") };
    assert_eq!(*entry, 1);
    assert_eq!(entry.position().epoch, gap.epoch);
    assert_ne!(entry.position().epoch, first.epoch);
    expect(&mut subscription, 2..3).await;
    let mut late = bus.subscribe::<u64>("epochs").after(first).await.unwrap();
    assert_eq!(next_gap(&mut late).await.1, GapReason::Epoch);
    expect(&mut late, 1..3).await;
}
