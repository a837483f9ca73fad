//! Limits, rules, errors of clients, credentials.

use crate::{
    AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE,
    client::{Client, v4, v5},
    start, started, until,
};
use bytes::Bytes;
use std::time::Duration;
use switchboard::{Caller, Codec, Server, StopOptions, auth::Tokens};
use switchboard_adapter::{Mqtt, RefusedPublish};
use switchboard_message::{
    Bus, Delivery, FileOptions, Publication, Storage, TopicOptions, TopicRule, TopicRules,
};
use switchboard_wire::mqtt::{Connect, Limits, Packet, PropertyId, Publish, Reason, Version};

#[tokio::test]
async fn errors_before_connect_close_the_connection() {
    let (_, mqtt, running) = started().await;
    // PUBLISH first, another protocol, a length of five bytes: no protocol of the server is detected.
    for bytes in
        [&b"\x30\x05\0\x01ahi"[..], b"\x10\x0d\0\x04MQTX\x04\x02\0\x3c\0\x01c", b"\x10\xff\xff\xff\xff\x01"]
    {
        let mut client = Client::new(&running, Version::V3_1_1).await;
        client.bytes(bytes).await;
        client.closed().await;
    }
    assert_eq!(mqtt.stats().protocol_errors, 0);
    let mut client = Client::new(&running, Version::V5).await;
    client.bytes(b"\x10\x0d\0\x04MQTT\x06\x02\0\x3c\0\x01c").await;
    let Packet::ConnAck(ack) = client.recv().await else { panic!("CONNACK") };
    assert_eq!(ack.reason, Reason::UNSUPPORTED_VERSION);
    client.closed().await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.send(&Packet::Connect(Box::new(v5("c")))).await;
    assert_eq!(client.disconnected().await, Reason::PROTOCOL_ERROR);
    assert_eq!(mqtt.stats().protocol_errors, 2);
}

#[tokio::test]
async fn a_client_without_an_identifier_gets_one() {
    let (_, _, running) = started().await;
    let (_, ack) = Client::respond(&running, v5("")).await;
    let assigned = ack.properties.bytes(PropertyId::AssignedClientId).unwrap();
    assert!(assigned.starts_with(b"swb-") && assigned.len() == 36);
    Client::connect(&running, v4("")).await.settled().await;
    let (mut refused, ack) = Client::respond(&running, Connect { clean_start: false, ..v4("") }).await;
    assert_eq!(ack.reason, Reason::CLIENT_ID_NOT_VALID);
    refused.closed().await;
}

#[tokio::test]
async fn silence_longer_than_the_keep_alive_closes_the_connection() {
    let (_, mqtt, running) = started().await;
    let mut old = Client::connect(&running, Connect { keep_alive: 1, ..v4("old") }).await;
    let mut new = Client::connect(&running, Connect { keep_alive: 1, ..v5("new") }).await;
    assert_eq!(new.disconnected().await, Reason::KEEP_ALIVE_TIMEOUT);
    old.closed().await;
    assert_eq!(mqtt.stats().keep_alive_timeouts, 2);
}

#[tokio::test]
async fn a_connection_without_connect_is_closed() {
    let mqtt = Mqtt::new(Bus::new()).connect_timeout(Duration::ZERO);
    let running = start(&mqtt).await;
    let mut client = Client::new(&running, Version::V5).await;
    client.bytes(b"\x10\x0e\0\x04MQTT\x05").await;
    client.closed().await;
}

#[tokio::test]
async fn a_message_over_the_maximum_of_the_client_counts_as_delivered() {
    let (bus, mqtt, running) = started().await;
    let mut connect = v5("c");
    connect.properties = connect.properties.with_number(PropertyId::MaximumPacketSize, 100);
    let mut client = Client::connect(&running, connect).await;
    client.subscribe("zero", AT_MOST_ONCE).await;
    client.subscribe("one", AT_LEAST_ONCE).await;
    for topic in ["zero", "one"] {
        for payload in [vec![b'x'; 200], b"small".to_vec()] {
            bus.publish_encoded(topic, Publication::new(Codec::Raw, payload)).await.unwrap();
        }
        assert_eq!(client.text().await, (topic.to_owned(), "small".to_owned()));
    }
    assert_eq!(mqtt.stats().undeliverable, 2);
    let limits = Limits { packet_bytes_max: 100, ..Limits::server() };
    let running = start(&Mqtt::new(Bus::new()).limits(limits)).await;
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert_eq!(ack.properties.number(PropertyId::MaximumPacketSize), Some(100));
    let large = client.make("t", AT_MOST_ONCE, &"x".repeat(100));
    client.send(&Packet::Publish(large)).await;
    assert_eq!(client.disconnected().await, Reason::PACKET_TOO_LARGE);
}

#[tokio::test]
async fn subscriptions_and_retained_messages_are_limited() {
    let mqtt = Mqtt::new(Bus::new()).subscriptions_max(2).retained_max(1).window_max(3);
    let running = start(&mqtt).await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.subscribe("a", AT_MOST_ONCE).await;
    client.subscribe("b", AT_LEAST_ONCE).await;
    assert_eq!(client.subscribe("c", AT_MOST_ONCE).await, Reason::QUOTA_EXCEEDED);
    assert_eq!(client.subscribe("a", AT_MOST_ONCE).await, Reason::SUCCESS, "the same again");
    client.unsubscribe("a").await;
    assert_eq!(client.subscribe("c", AT_MOST_ONCE).await, Reason::SUCCESS);
    client.retain("r/1", "x").await;
    let second = Publish { retain: true, ..client.make("r/2", AT_LEAST_ONCE, "x") };
    assert_eq!(client.publish_message(second).await, Reason::QUOTA_EXCEEDED);
    client.retain("r/1", "").await;
    client.retain("r/2", "x").await;
    for _ in 0..4 {
        client.publish("b", AT_LEAST_ONCE, "x").await;
    }
    for _ in 0..3 {
        client.message().await;
    }
    // The fourth waits for the window.
    client.settled().await;
    client.ack(switchboard_wire::mqtt::AckKind::PubAck, crate::client::id(1)).await;
    client.message().await;
}

#[tokio::test]
async fn rules_refuse_publications_and_subscriptions() {
    let rules = || TopicRules::new([TopicRule::topics("closed/>").deny()]).unwrap();
    let mqtt = Mqtt::new(Bus::new()).rules(rules());
    let running = start(&mqtt).await;
    let mut new = Client::connect(&running, v5("new")).await;
    assert_eq!(new.subscribe("closed/a", AT_MOST_ONCE).await, Reason::NOT_AUTHORIZED);
    assert_eq!(new.subscribe("#", AT_MOST_ONCE).await, Reason::NOT_AUTHORIZED);
    for qos in [AT_LEAST_ONCE, EXACTLY_ONCE] {
        assert_eq!(new.publish("closed/a", qos, "x").await, Reason::NOT_AUTHORIZED);
        assert_eq!(new.publish("$SYS/a", qos, "x").await, Reason::NOT_AUTHORIZED);
        assert_eq!(new.publish(&"x".repeat(300), qos, "x").await, Reason::TOPIC_NAME_INVALID);
    }
    new.publish("closed/a", AT_MOST_ONCE, "x").await;
    new.settled().await;
    assert_eq!((mqtt.stats().refused, mqtt.stats().published), (7, 0));
    let mut old = Client::connect(&running, v4("old")).await;
    let message = old.make("closed/a", AT_MOST_ONCE, "x");
    old.send(&Packet::Publish(message)).await;
    old.closed().await;
    let mqtt = Mqtt::new(Bus::new()).rules(rules()).refused_publications(RefusedPublish::Acknowledge);
    let running = start(&mqtt).await;
    let mut old = Client::connect(&running, v4("old")).await;
    assert_eq!(old.publish("closed/a", EXACTLY_ONCE, "x").await, Reason::SUCCESS);
    assert_eq!((mqtt.stats().refused, mqtt.stats().published), (1, 0));
}

#[tokio::test]
async fn credentials_are_those_of_the_server() {
    let tokens = || {
        Tokens::default().token("t0ken-of-ali", Caller::new("ali")).token("t0ken-of-eve", Caller::new("eve"))
    };
    let mqtt = Mqtt::new(Bus::new());
    let server = Server::new().auth(tokens()).plugin(mqtt.clone()).listen("tcp://127.0.0.1:0");
    let running = server.start().await.unwrap();
    let with = |connect: Connect, token: &'static str| Connect {
        user_name: Some(Bytes::new()),
        password: Some(Bytes::from_static(token.as_bytes())),
        ..connect
    };
    for (connect, reason) in [
        (v4("c"), Reason::BAD_CREDENTIALS),
        (with(v4("c"), "wrong"), Reason::BAD_CREDENTIALS),
        (with(v5("c"), "wrong"), Reason::BAD_CREDENTIALS),
    ] {
        let (mut client, ack) = Client::respond(&running, connect).await;
        assert_eq!(ack.reason, reason);
        client.closed().await;
    }
    assert_eq!(mqtt.stats().unauthorized, 3);
    let mut ali = Client::connect(&running, with(v5("c"), "t0ken-of-ali")).await;
    ali.settled().await;
    // Another caller cannot take the session over, also while its client is away.
    let (_, ack) = Client::respond(&running, with(v5("c"), "t0ken-of-eve")).await;
    assert_eq!(ack.reason, Reason::CLIENT_ID_NOT_VALID);
    ali.settled().await;
    ali.bye().await;
    let (_, ack) = Client::respond(&running, with(v5("c"), "t0ken-of-eve")).await;
    assert_eq!(ack.reason, Reason::CLIENT_ID_NOT_VALID);
    assert!(Client::respond(&running, with(v5("c"), "t0ken-of-ali")).await.1.session_present);
    let mut method = v5("m");
    method.properties = method.properties.with_bytes(PropertyId::AuthenticationMethod, &b"SCRAM"[..]);
    let (_, ack) = Client::respond(&running, method).await;
    assert_eq!(ack.reason, Reason::BAD_AUTHENTICATION_METHOD);
    let anonymous = Mqtt::new(Bus::new()).anonymous();
    let server = Server::new().auth(tokens()).plugin(anonymous).listen("tcp://127.0.0.1:0");
    Client::connect(&server.start().await.unwrap(), v4("c")).await.settled().await;
}

#[tokio::test]
async fn durable_topics_are_acknowledged_in_order() {
    let folder = std::env::temp_dir().join(format!("switchboard-mqtt-{}", std::process::id()));
    let synced = TopicOptions::new().history(100, Duration::MAX).storage(Storage::Synced);
    let bus = Bus::builder().topics("durable", synced).unwrap().open(FileOptions::new(&folder)).unwrap();
    let mqtt = Mqtt::new(bus.clone());
    let running = start(&mqtt).await;
    let mut all = bus.subscribe_encoded("durable").await.unwrap();
    let mut client = Client::connect(&running, v5("c")).await;
    for number in 0..50 {
        let topic = if number % 3 == 2 { "memory" } else { "durable" };
        let qos = [AT_LEAST_ONCE, EXACTLY_ONCE][number % 2];
        let message = client.make(topic, qos, &number.to_string());
        client.send(&Packet::Publish(message)).await;
    }
    for number in 1..=50 {
        let Packet::Ack(ack) = client.recv().await else { panic!("an acknowledgement") };
        assert_eq!(ack.packet_id.get(), number);
        assert!(!ack.reason.is_error());
    }
    let expected = (0..50).filter(|number| number % 3 != 2);
    for number in expected {
        let Some(Delivery::Entry(entry)) = all.next().await.unwrap() else { panic!("an entry") };
        assert_eq!(&entry[..], number.to_string().as_bytes());
    }
    client.publish("durable", AT_MOST_ONCE, "last").await;
    client.settled().await;
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let (_, mqtt, running) = started().await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.settled().await;
    let stopping = tokio::spawn(running.stop(StopOptions::new()));
    assert_eq!(client.disconnected().await, Reason::SERVER_SHUTTING_DOWN);
    stopping.await.unwrap();
    until(|| mqtt.stats().protocol_errors == 0).await;
}

#[tokio::test]
async fn bytes_of_retained_messages_are_limited_and_expired_ones_removed() {
    let mqtt = Mqtt::new(Bus::new()).retained_max(3).retained_bytes_max(3_000);
    let running = start(&mqtt).await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.retain("r/1", &"x".repeat(1_500)).await;
    client.retain("r/1", &"y".repeat(1_500)).await;
    let second = Publish { retain: true, ..client.make("r/2", AT_LEAST_ONCE, &"x".repeat(600)) };
    assert_eq!(client.publish_message(second).await, Reason::QUOTA_EXCEEDED);
    client.retain("r/1", "").await;
    for number in 1..=3 {
        let mut message = Publish { retain: true, ..client.make(&format!("e/{number}"), AT_LEAST_ONCE, "x") };
        message.properties = message.properties.with_number(PropertyId::MessageExpiry, 1);
        assert!(!client.publish_message(message).await.is_error());
    }
    crate::client::soon(async {
        loop {
            let message = Publish { retain: true, ..client.make("after", AT_LEAST_ONCE, "x") };
            if !client.publish_message(message).await.is_error() {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}
