//! The order of messages, and which of them a subscription receives.

use crate::support::{Client, array, confirmation, push, soon, start};
use std::time::Duration;
use switchboard_adapter::Redis;
use switchboard_message::{Bus, Delivery, FileOptions, SlowReader, Storage, TopicOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// More publications than a topic keeps, in one piece: subscribers of any engine miss none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_pipeline_of_publications_reaches_every_subscriber() {
    const COUNT: usize = 8_000;
    let redis = Redis::new(Bus::new());
    let running = start(&redis).await;
    let (mut one, mut other) = (Client::connect(&running).await, Client::connect(&running).await);
    one.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    other.ask("PSUBSCRIBE t*", &confirmation('*', "psubscribe", "t*", 1)).await;
    let mut publisher = Client::connect(&running).await;
    let commands: String = (0..COUNT).map(|at| array(&["PUBLISH", "t", &at.to_string()])).collect();
    let (read, mut write) = publisher.0.split();
    let mut replies = tokio::io::BufReader::new(read);
    let publish = async { write.write_all(commands.as_bytes()).await.unwrap() };
    let confirm = async {
        let mut reply = [0; 4];
        for _ in 0..COUNT {
            replies.read_exact(&mut reply).await.unwrap();
            assert_eq!(&reply, b":2\r\n");
        }
    };
    let by_channel = async {
        for at in 0..COUNT {
            one.expect(&array(&["message", "t", &at.to_string()])).await;
        }
    };
    let by_pattern = async {
        for at in 0..COUNT {
            other.expect(&array(&["pmessage", "t*", "t", &at.to_string()])).await;
        }
    };
    soon(async { tokio::join!(publish, confirm, by_channel, by_pattern) }).await;
    let stats = redis.stats();
    assert_eq!((stats.published, stats.missed, stats.lagged), (COUNT as u64, 0, 0));
}

/// Publications of a client keep their order at a subscriber of several channels, although the bus has none between
/// topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publications_to_several_channels_arrive_in_order() {
    const COUNT: usize = 1000;
    let running = start(&Redis::new(Bus::new())).await;
    let mut subscriber = Client::connect(&running).await;
    subscriber.ask("PSUBSCRIBE c*", &confirmation('*', "psubscribe", "c*", 1)).await;
    let mut publisher = Client::connect(&running).await;
    let channel = |at: usize| format!("c{}", at * 7 % 31);
    let commands: String = (0..COUNT).map(|at| array(&["PUBLISH", &channel(at), &at.to_string()])).collect();
    let publish = async {
        publisher.write(commands.as_bytes()).await;
        publisher.expect(&":1\r\n".repeat(COUNT)).await;
    };
    let receive = async {
        for at in 0..COUNT {
            subscriber.expect(&array(&["pmessage", "c*", &channel(at), &at.to_string()])).await;
        }
    };
    tokio::join!(publish, receive);
}

/// A subscription receives no message whose publication was confirmed before it, and each one until its end.
#[tokio::test]
async fn a_subscription_begins_and_ends_between_two_publications() {
    let running = start(&Redis::new(Bus::new())).await;
    let mut other = Client::connect(&running).await;
    other.ask("PSUBSCRIBE *", &confirmation('*', "psubscribe", "*", 1)).await;
    let mut client = Client::connect(&running).await;
    client.send(&["HELLO 3"]).await;
    client.until("modules\r\n*0\r\n").await;
    for round in 0..50 {
        let name = format!("t{round}");
        client.send(&[&format!("PUBLISH {name} 1"), &format!("SUBSCRIBE {name} extra")]).await;
        client.expect(":1\r\n").await;
        client.expect(&confirmation('>', "subscribe", &name, 1)).await;
        client.expect(&confirmation('>', "subscribe", "extra", 2)).await;
        client.ask(&format!("PUBLISH {name} 2"), ":2\r\n").await;
        client.expect(&push(&["message", &name, "2"])).await;
        for text in ["1", "2"] {
            other.expect(&array(&["pmessage", "*", &name, text])).await;
        }
        // What was published before the end arrives before its confirmation.
        client.send(&[&format!("PUBLISH {name} 3"), &format!("UNSUBSCRIBE {name} extra")]).await;
        client.expect(":2\r\n").await;
        client.expect(&push(&["message", &name, "3"])).await;
        other.expect(&array(&["pmessage", "*", &name, "3"])).await;
        client.expect(&confirmation('>', "unsubscribe", &name, 1)).await;
        client.expect(&confirmation('>', "unsubscribe", "extra", 0)).await;
    }
}

/// A client whose subscriptions change gets each message once, in order, in sets of any size.
#[tokio::test]
async fn changes_of_subscriptions_lose_no_message() {
    let running = start(&Redis::new(Bus::new())).await;
    let mut client = Client::connect(&running).await;
    client.ask("SUBSCRIBE t", &confirmation('*', "subscribe", "t", 1)).await;
    let mut publisher = Client::connect(&running).await;
    let mut number = 0;
    for at in 2..60 {
        for _ in 0..3 {
            publisher.ask(&format!("PUBLISH t {number}"), ":1\r\n").await;
            client.expect(&array(&["message", "t", &number.to_string()])).await;
            number += 1;
        }
        let name = format!("c{at}");
        client.ask(&format!("SUBSCRIBE {name}"), &confirmation('*', "subscribe", &name, at)).await;
    }
    for at in (2..60).rev() {
        let name = format!("c{at}");
        client.ask(&format!("UNSUBSCRIBE {name}"), &confirmation('*', "unsubscribe", &name, at - 1)).await;
        publisher.ask(&format!("PUBLISH {name} gone"), ":0\r\n").await;
        publisher.ask(&format!("PUBLISH t {number}"), ":1\r\n").await;
        client.expect(&array(&["message", "t", &number.to_string()])).await;
        number += 1;
    }
    client.ask("UNSUBSCRIBE t", &confirmation('*', "unsubscribe", "t", 0)).await;
    client.ask("PING", "+PONG\r\n").await;
}

/// A topic that makes its publishers wait makes clients wait for the reply.
#[tokio::test]
async fn a_full_topic_makes_its_publisher_wait() {
    let full = TopicOptions::new().backlog(1).slow_reader(SlowReader::Wait(Duration::from_secs(60)));
    let bus = Bus::builder().topics("jobs", full).unwrap().build();
    let mut reader = bus.subscribe_encoded("jobs").await.unwrap();
    let running = start(&Redis::new(bus)).await;
    let mut client = Client::connect(&running).await;
    client.send(&["PUBLISH jobs 1", "PUBLISH jobs 2", "PUBLISH jobs 3", "PING"]).await;
    for text in ["1", "2", "3"] {
        let Some(Delivery::Entry(job)) = soon(reader.next()).await.unwrap() else { panic!("no job") };
        assert_eq!(&job[..], text.as_bytes());
    }
    client.expect(":0\r\n:0\r\n:0\r\n+PONG\r\n").await;
}

/// The reply to a publication to a durable topic follows its file, and each is published once.
#[tokio::test]
async fn publications_to_a_durable_topic_are_kept_once() {
    let folder = std::env::temp_dir().join(format!("switchboard-redis-durable-{}", std::process::id()));
    let options = TopicOptions::new().history(100, Duration::MAX).storage(Storage::Synced);
    let bus = Bus::builder().topics("jobs", options).unwrap().open(FileOptions::new(&folder)).unwrap();
    let running = start(&Redis::new(bus.clone())).await;
    let mut client = Client::connect(&running).await;
    client.send(&["PUBLISH jobs 1", "PUBLISH jobs 2", "PUBLISH jobs 3", "PING"]).await;
    client.expect(":0\r\n:0\r\n:0\r\n+PONG\r\n").await;
    let mut reader = bus.subscribe_encoded("jobs").last(10).await.unwrap();
    for (at, text) in ["1", "2", "3"].into_iter().enumerate() {
        let Some(Delivery::Entry(job)) = soon(reader.next()).await.unwrap() else { panic!("no job") };
        assert_eq!((&job[..], job.position().offset), (text.as_bytes(), at as u64 + 1));
    }
    assert_eq!(bus.topic_stats("jobs").unwrap().published, 3);
    std::fs::remove_dir_all(&folder).unwrap();
}
