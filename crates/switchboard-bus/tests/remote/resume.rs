//! Subscriptions over killed and restarted servers.

use crate::support::{Host, entries, entry, gap, with_history};
use std::time::Duration;
use switchboard_message::{Bus, Delivery, GapReason, Pattern, TopicOptions};

const WIRES: [&str; 3] = ["", "?wire=grpc", "ws"];

#[tokio::test]
async fn a_subscription_continues_without_holes_and_duplicates() {
    for wire in WIRES {
        let topics = with_history(1_000);
        let mut host = Host::start(&topics).await;
        let bus = host.connect(wire).await;
        let mut one = bus.subscribe::<u32>("t/a").await.unwrap();
        let mut all = bus.subscribe::<u32>("t/*").await.unwrap();
        let mut prefix = bus.subscribe::<u32>(Pattern::prefix("t/")).await.unwrap();
        let mut expected = 0;
        for round in 0..3_u32 {
            // Read in part, so that entries are lost with the buffers of the connection.
            for number in round * 100..round * 100 + 60 {
                topics.publish("t/a", &number).await.unwrap();
            }
            for subscription in [&mut one, &mut all, &mut prefix] {
                assert_eq!(entries(subscription, 30).await, (expected..expected + 30).collect::<Vec<_>>());
            }
            host.kill();
            for number in round * 100 + 60..round * 100 + 100 {
                topics.publish("t/a", &number).await.unwrap();
            }
            host.restart(&topics).await;
            for subscription in [&mut one, &mut all, &mut prefix] {
                let rest = (expected + 30..expected + 100).collect::<Vec<_>>();
                assert_eq!(entries(subscription, 70).await, rest, "{wire}");
            }
            expected += 100;
        }
    }
}

#[tokio::test]
async fn a_pattern_continues_in_topics_that_it_has_not_seen() {
    let topics = with_history(100);
    // Before the subscription: not delivered, also after a restart.
    topics.publish("t/old", &0_u32).await.unwrap();
    let mut host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let mut all = bus.subscribe::<u32>("t/*").await.unwrap();
    host.kill();
    topics.publish("t/old", &1_u32).await.unwrap();
    topics.publish("t/new", &2_u32).await.unwrap();
    host.restart(&topics).await;
    let mut received = entries(&mut all, 2).await;
    received.sort_unstable();
    assert_eq!(received, [1, 2]);
    topics.publish("t/old", &3_u32).await.unwrap();
    assert_eq!(entry(&mut all).await.0, 3);
}

#[tokio::test]
async fn a_trimmed_history_is_a_gap() {
    for wire in WIRES {
        let topics = with_history(5);
        let mut host = Host::start(&topics).await;
        let bus = host.connect(wire).await;
        let mut one = bus.subscribe::<u32>("t/a").await.unwrap();
        let mut all = bus.subscribe::<u32>("t/*").await.unwrap();
        for number in 1..=3_u32 {
            topics.publish("t/a", &number).await.unwrap();
        }
        assert_eq!(entries(&mut one, 3).await, [1, 2, 3]);
        assert_eq!(entries(&mut all, 3).await, [1, 2, 3]);
        host.kill();
        // The subscriptions of the killed server end, and keep no entries.
        while topics.stats().subscriptions > 0 {
            tokio::task::yield_now().await;
        }
        for number in 4..=20_u32 {
            topics.publish("t/a", &number).await.unwrap();
        }
        host.restart(&topics).await;
        for subscription in [&mut one, &mut all] {
            let gap = gap(subscription).await;
            assert_eq!((gap.range.clone(), gap.reason), (4..16, GapReason::Expired), "{wire}: {gap}");
            assert_eq!(entries(subscription, 5).await, [16, 17, 18, 19, 20], "{wire}");
        }
    }
}

#[tokio::test]
async fn a_server_with_other_logs_is_a_gap_and_begins_with_its_first_entry() {
    for wire in WIRES {
        let mut host = Host::start(&with_history(5)).await;
        let bus = host.connect(wire).await;
        let mut one = bus.subscribe::<u32>("t/a").await.unwrap();
        let mut all = bus.subscribe::<u32>("t/*").await.unwrap();
        let position = bus.publish("t/a", &1_u32).await.unwrap();
        assert_eq!((entry(&mut one).await, entry(&mut all).await), ((1, 1), (1, 1)));
        host.kill();
        let topics = with_history(5);
        topics.publish("t/a", &2_u32).await.unwrap();
        topics.publish("t/b", &3_u32).await.unwrap();
        host.restart(&topics).await;
        let missing = gap(&mut one).await;
        assert_eq!((missing.reason, missing.topic.name()), (GapReason::Epoch, "t/a"), "{wire}");
        assert_ne!(missing.epoch, position.epoch, "{wire}");
        assert_eq!(entry(&mut one).await, (2, 1), "{wire}");
        let missing = gap(&mut all).await;
        assert_eq!((missing.reason, missing.range, missing.epoch), (GapReason::Epoch, 2..2, position.epoch));
        let mut rest = entries(&mut all, 2).await;
        rest.sort_unstable();
        assert_eq!(rest, [2, 3], "{wire}");
    }
}

#[tokio::test]
async fn the_outcome_of_a_start_is_delivered_once() {
    let topics = with_history(10);
    let mut host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let first = topics.publish("t", &1_u32).await.unwrap();
    let mut after = bus.subscribe::<u32>("t").after(first).await.unwrap();
    let mut since = bus.subscribe::<u32>("t").since(Duration::ZERO).await.unwrap();
    host.kill();
    topics.publish("t", &2_u32).await.unwrap();
    host.restart(&topics).await;
    for subscription in [&mut after, &mut since] {
        assert!(matches!(subscription.next().await, Ok(Some(Delivery::Recovered))));
        assert_eq!(entry(subscription).await.0, 2);
    }
    host.kill();
    topics.publish("t", &3_u32).await.unwrap();
    host.restart(&topics).await;
    for subscription in [&mut after, &mut since] {
        assert_eq!(entry(subscription).await.0, 3);
    }
}

#[tokio::test]
async fn unacknowledged_entries_of_a_durable_cursor_are_delivered_again() {
    let topics = with_history(100);
    let mut host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let mut inbox = bus.subscribe::<u32>("inbox").durable("phone").await.unwrap();
    for number in 1..=3_u32 {
        topics.publish("inbox", &number).await.unwrap();
    }
    let mut held = Vec::new();
    for _ in 1..=3 {
        let Some(Delivery::Entry(note)) = inbox.next().await.unwrap() else { panic!("no entry") };
        held.push(note);
    }
    assert!(held[1].ack());
    host.kill();
    host.restart(&topics).await;
    let mut again = Vec::new();
    while again.len() < 2 {
        let Some(Delivery::Entry(note)) = inbox.next().await.unwrap() else { panic!("no entry") };
        // The acknowledgement may have been lost with the connection.
        if *note != 2 {
            again.push((*note, note.attempt()));
        }
        assert!(note.ack());
    }
    assert_eq!(again, [(1, 2), (3, 2)]);
}

#[tokio::test]
async fn a_slow_reader_that_its_topic_closes_is_not_resumed() {
    let options = TopicOptions::new().backlog(1).slow_reader(switchboard_message::SlowReader::Close);
    let topics = Bus::builder().topics("t", options).unwrap().build();
    let host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let mut slow = bus.subscribe_encoded("t").await.unwrap();
    let payload = vec![0_u8; 64 << 10];
    for _ in 0..600 {
        let publication = switchboard_message::Publication::new(switchboard::Codec::Raw, payload.clone());
        topics.publish_encoded("t", publication).await.unwrap();
    }
    let error = loop {
        match slow.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error"),
            Err(status) => break status,
        }
    };
    assert_eq!(error.code(), switchboard::Code::ResourceExhausted, "{error}");
    assert!(matches!(slow.next().await, Ok(None)));
}

#[tokio::test]
async fn entries_of_a_topic_without_history_are_a_gap_after_a_lost_connection() {
    let topics = Bus::new();
    let mut host = Host::start(&topics).await;
    let bus = host.connect("").await;
    let mut one = bus.subscribe::<u32>("t/a").await.unwrap();
    let mut all = bus.subscribe::<u32>("t/*").await.unwrap();
    topics.publish("t/a", &1_u32).await.unwrap();
    assert_eq!((entry(&mut one).await.0, entry(&mut all).await.0), (1, 1));
    host.kill();
    while topics.stats().subscriptions > 0 {
        tokio::task::yield_now().await;
    }
    // No cursor is on the topic: it is removed, and this entry is dropped.
    topics.publish("t/a", &2_u32).await.unwrap();
    host.restart(&topics).await;
    for subscription in [&mut one, &mut all] {
        assert_eq!(gap(subscription).await.range, 1..2, "the only entry of a new log");
    }
    topics.publish("t/a", &3_u32).await.unwrap();
    assert_eq!((entry(&mut one).await.0, entry(&mut all).await.0), (3, 3));
}
