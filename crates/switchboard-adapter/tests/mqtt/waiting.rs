//! Messages of clients that wait for room in a topic.

use crate::{
    AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE,
    client::{Client, id, soon, v4, v5},
    start, until,
};
use std::time::Duration;
use switchboard::Running;
use switchboard_adapter::{Mqtt, RefusedPublish};
use switchboard_message::{Bus, Delivery, SlowReader, Subscription, TopicOptions};
use switchboard_wire::mqtt::{AckKind, Connect, Packet, Publish, Reason};

const LONG: Duration = Duration::from_secs(600);

/// Starts a server whose topic `full` has room for one entry that its only reader has not read.
async fn full(wait: Duration) -> (Bus, Mqtt, Running, Subscription<bytes::Bytes>) {
    let waits = TopicOptions::new().backlog(1).slow_reader(SlowReader::Wait(wait));
    let bus = Bus::builder().topics("full", waits).unwrap().build();
    let reader = bus.subscribe_encoded("full").await.unwrap();
    bus.publish_encoded("full", switchboard_message::Publication::new(switchboard_wire::Codec::Raw, "first"))
        .await
        .unwrap();
    let mqtt = Mqtt::new(bus.clone());
    let running = start(&mqtt).await;
    (bus, mqtt, running, reader)
}

async fn entry(reader: &mut Subscription<bytes::Bytes>) -> String {
    let Some(Delivery::Entry(entry)) = soon(reader.next()).await.unwrap() else { panic!("an entry") };
    String::from_utf8(entry.to_vec()).unwrap()
}

#[tokio::test]
async fn a_message_that_is_refused_after_a_wait_closes_a_client_before_version_5() {
    let (_bus, mqtt, running, _reader) = full(Duration::from_millis(20)).await;
    for qos in [AT_LEAST_ONCE, EXACTLY_ONCE, AT_MOST_ONCE] {
        let mut client = Client::connect(&running, v4("c")).await;
        let message = client.make("full", qos, "x");
        client.send(&Packet::Publish(message)).await;
        client.closed().await;
    }
    let mut client = Client::connect(&running, v5("c5")).await;
    assert!(client.publish("full", EXACTLY_ONCE, "x").await.is_error(), "version 5 has a reason");
    assert_eq!(mqtt.stats().refused, 4);
    let acknowledges = mqtt.clone().refused_publications(RefusedPublish::Acknowledge);
    let running = start(&acknowledges).await;
    let mut client = Client::connect(&running, v4("c")).await;
    assert_eq!(client.publish("full", AT_LEAST_ONCE, "x").await, Reason::SUCCESS);
}

#[tokio::test]
async fn a_message_that_waits_survives_the_connection() {
    let (_bus, mqtt, running, mut reader) = full(LONG).await;
    let mut client = Client::connect(&running, v5("c")).await;
    let message = client.make("full", EXACTLY_ONCE, "x");
    client.send(&Packet::Publish(message.clone())).await;
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert!(ack.session_present);
    // The client is not read while the message waits: its repetition comes after it.
    client.send(&Packet::Publish(Publish { dup: true, ..message })).await;
    assert_eq!((entry(&mut reader).await, entry(&mut reader).await), ("first".into(), "x".into()));
    let Packet::Ack(ack) = client.recv().await else { panic!("PUBREC") };
    assert_eq!((ack.kind, ack.reason), (AckKind::PubRec, Reason::SUCCESS));
    client.ack(AckKind::PubRel, id(1)).await;
    let Packet::Ack(ack) = client.recv().await else { panic!("PUBCOMP") };
    assert_eq!((ack.kind, ack.reason), (AckKind::PubComp, Reason::SUCCESS));
    assert_eq!((mqtt.stats().repeated, mqtt.stats().published), (1, 1));
}

#[tokio::test]
async fn a_refused_message_of_qos_2_can_be_sent_again() {
    let (_bus, _mqtt, running, mut reader) = full(Duration::from_millis(20)).await;
    let mut connect = v4("c");
    connect.clean_start = false;
    let mut client = Client::connect(&running, connect.clone()).await;
    let message = client.make("full", EXACTLY_ONCE, "x");
    client.send(&Packet::Publish(message.clone())).await;
    client.closed().await;
    let mut client = Client::connect(&running, connect).await;
    assert_eq!(entry(&mut reader).await, "first");
    client.send(&Packet::Publish(Publish { dup: true, ..message })).await;
    assert_eq!(entry(&mut reader).await, "x");
}

#[tokio::test]
async fn messages_that_wait_keep_their_order() {
    let (_bus, _mqtt, running, mut reader) = full(LONG).await;
    let mut client = Client::connect(&running, v5("c")).await;
    for number in 0..60 {
        let qos = [AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE][number % 3];
        let message = client.make("full", qos, &number.to_string());
        client.send(&Packet::Publish(message)).await;
    }
    assert_eq!(entry(&mut reader).await, "first");
    for number in 0..60 {
        assert_eq!(entry(&mut reader).await, number.to_string());
    }
}

#[tokio::test]
async fn a_repeated_identifier_does_not_block_the_acknowledgements() {
    let folder = std::env::temp_dir().join(format!("switchboard-mqtt-repeated-{}", std::process::id()));
    let synced =
        TopicOptions::new().history(100, Duration::MAX).storage(switchboard_message::Storage::Synced);
    let files = switchboard_message::FileOptions::new(&folder);
    let bus = Bus::builder().topics("durable", synced).unwrap().open(files).unwrap();
    let running = start(&Mqtt::new(bus)).await;
    let mut client = Client::connect(&running, v4("c")).await;
    let message = client.make("durable", AT_LEAST_ONCE, "x");
    for _ in 0..20 {
        client.send(&Packet::Publish(message.clone())).await;
    }
    let last = client.make("durable", AT_LEAST_ONCE, "y");
    client.send(&Packet::Publish(last.clone())).await;
    loop {
        let Packet::Ack(ack) = client.recv().await else { panic!("PUBACK") };
        if Some(ack.packet_id) == last.packet_id {
            break;
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_refused_message_is_not_retained() {
    let (_bus, mqtt, running, mut reader) = full(Duration::from_millis(20)).await;
    let mut client = Client::connect(&running, v5("c")).await;
    let refused = Publish { retain: true, ..client.make("full", AT_LEAST_ONCE, "refused") };
    assert!(client.publish_message(refused).await.is_error());
    assert_eq!(entry(&mut reader).await, "first");
    client.retain("full", "kept").await;
    let removal = Publish { retain: true, ..client.make("full", AT_LEAST_ONCE, "") };
    assert!(client.publish_message(removal).await.is_error());
    let mut other = Client::connect(&running, v4("other")).await;
    other.subscribe("full", AT_MOST_ONCE).await;
    let message = other.message().await;
    assert_eq!((&message.payload[..], message.retain), (&b"kept"[..], true));
    until(|| mqtt.stats().refused == 2).await;
}

#[tokio::test]
async fn a_client_that_is_not_read_is_not_silent() {
    let (_bus, mqtt, running, _reader) = full(Duration::from_secs(4)).await;
    let mut client = Client::connect(&running, Connect { keep_alive: 1, ..v5("c") }).await;
    let refused = client.publish("full", AT_LEAST_ONCE, "x").await;
    assert_eq!((refused, mqtt.stats().keep_alive_timeouts), (Reason::QUOTA_EXCEEDED, 0));
}
