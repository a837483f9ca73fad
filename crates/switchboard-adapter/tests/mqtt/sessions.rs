//! Sessions: the state of an absent client, takeover, wills.

use crate::{
    AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE,
    client::{Client, id, v4, v5},
    start, started, until,
};
use bytes::Bytes;
use std::time::Duration;
use switchboard::Codec;
use switchboard_adapter::Mqtt;
use switchboard_message::{Bus, Publication, TopicOptions};
use switchboard_wire::mqtt::{
    AckKind, Connect, Disconnect, FilterOptions, Packet, Properties, PropertyId, Publish, QoS, Reason, Will,
};

fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

async fn publish(bus: &Bus, topic: &str, payload: impl Into<Bytes>) {
    bus.publish_encoded(topic, Publication::new(Codec::Raw, payload)).await.unwrap();
}

#[tokio::test]
async fn a_session_receives_what_was_published_while_it_was_away() {
    let (bus, mqtt, running) = started().await;
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert!(!ack.session_present);
    client.subscribe("one", AT_LEAST_ONCE).await;
    client.subscribe("many/+", EXACTLY_ONCE).await;
    client.subscribe("zero", AT_MOST_ONCE).await;
    publish(&bus, "one", "live").await;
    assert_eq!(client.text().await, pair("one", "live"));
    client.bye().await;
    const COUNT: usize = 9_000;
    const MANY: usize = 1_000;
    for number in 0..COUNT {
        publish(&bus, "one", number.to_string()).await;
        if number < MANY {
            publish(&bus, &format!("many/{}", number % 10), number.to_string()).await;
        }
    }
    publish(&bus, "zero", "not kept").await;
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert!(ack.session_present);
    let (mut one, mut many) = (0, 0);
    while one < COUNT || many < MANY {
        let (topic, payload) = client.text().await;
        match topic.as_str() {
            "one" => {
                assert_eq!(payload, one.to_string());
                one += 1;
            }
            topic => {
                let number: usize = payload.parse().unwrap();
                assert_eq!(topic, format!("many/{}", number % 10));
                many += 1;
            }
        }
    }
    publish(&bus, "zero", "live").await;
    assert_eq!(client.text().await, pair("zero", "live"));
    assert_eq!((mqtt.stats().resumed, mqtt.stats().gaps, mqtt.stats().missed), (1, 0, 0));
}

#[tokio::test]
async fn more_than_the_history_is_reported_as_a_gap() {
    let history = TopicOptions::new().history(10, Duration::MAX);
    let bus = Bus::builder().topics(">", history).unwrap().build();
    let mqtt = Mqtt::new(bus.clone());
    let running = start(&mqtt).await;
    for (client_id, filter) in [("topic", "t"), ("pattern", "+")] {
        let mut client = Client::connect(&running, v5(client_id)).await;
        client.subscribe(filter, AT_LEAST_ONCE).await;
        publish(&bus, "t", "first").await;
        client.text().await;
        client.bye().await;
    }
    for number in 0..10_000 {
        publish(&bus, "t", number.to_string()).await;
    }
    for client_id in ["topic", "pattern"] {
        let (mut client, ack) = Client::respond(&running, v5(client_id)).await;
        assert!(!ack.session_present, "{client_id}");
        // The bus counts the missing entries of one topic; those of a pattern only while it is read.
        let expected = [Some(("gap", "expired")), (client_id == "topic").then_some(("gap-missing", "9991"))];
        let expected =
            expected.into_iter().flatten().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let user = ack.properties.user().map(|(name, value)| (&name[..], &value[..]));
        assert_eq!(user.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{client_id}");
        // What the history has is delivered.
        for number in 9_990..10_000 {
            assert_eq!(client.text().await, pair("t", &number.to_string()));
        }
    }
    assert_eq!((mqtt.stats().gaps, mqtt.stats().missed), (2, 9_991));
}

#[tokio::test]
async fn a_message_of_qos_1_is_sent_again_after_a_cut_with_dup_and_in_order() {
    let (bus, mqtt, running) = started().await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.subscribe("t", AT_LEAST_ONCE).await;
    for number in 1..=3 {
        publish(&bus, "t", number.to_string()).await;
    }
    let first: Vec<Publish> = [client.message().await, client.message().await, client.message().await].into();
    client.ack(AckKind::PubAck, first[1].packet_id.unwrap()).await;
    client.settled().await;
    drop(client);
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert!(ack.session_present);
    for expected in [&first[0], &first[2]] {
        let again = client.message().await;
        assert_eq!(again, Publish { dup: true, ..expected.clone() });
        client.acknowledge(&again).await;
    }
    client.bye().await;
    let (mut client, _) = Client::respond(&running, v5("c")).await;
    publish(&bus, "t", "4").await;
    let next = client.message().await;
    assert!(!next.dup && next.payload == "4", "once");
    assert_eq!(mqtt.stats().redelivered, 2);
}

#[tokio::test]
async fn a_message_of_qos_2_arrives_once_wherever_the_connection_is_cut() {
    let (bus, _, running) = started().await;
    // Cut after PUBLISH, after PUBREC, after PUBREL, after PUBCOMP.
    for cut in 0..4 {
        let client_id = format!("c{cut}");
        let mut client = Client::connect(&running, v5(&client_id)).await;
        client.subscribe("t", EXACTLY_ONCE).await;
        publish(&bus, "t", "x").await;
        let message = client.message().await;
        let packet_id = message.packet_id.unwrap();
        if cut > 0 {
            client.ack(AckKind::PubRec, packet_id).await;
            let Packet::Ack(released) = client.recv().await else { panic!("PUBREL") };
            assert_eq!(released.kind, AckKind::PubRel);
        }
        if cut > 2 {
            client.ack(AckKind::PubComp, packet_id).await;
            client.settled().await;
        }
        drop(client);
        let (mut client, _) = Client::respond(&running, v5(&client_id)).await;
        match cut {
            0 => assert_eq!(client.message().await, Publish { dup: true, ..message }),
            1 | 2 => {
                let Packet::Ack(again) = client.recv().await else { panic!("PUBREL") };
                assert_eq!((again.kind, again.packet_id), (AckKind::PubRel, packet_id));
                client.ack(AckKind::PubComp, packet_id).await;
                client.settled().await;
            }
            _ => client.settled().await,
        }
        client.bye().await;
    }
}

#[tokio::test]
async fn a_client_may_repeat_a_message_of_qos_2_after_a_cut() {
    let (bus, mqtt, running) = started().await;
    let mut all = bus.subscribe_encoded("t").await.unwrap();
    let mut client = Client::connect(&running, v5("c")).await;
    let message = client.make("t", EXACTLY_ONCE, "x");
    client.send(&Packet::Publish(message.clone())).await;
    let Packet::Ack(ack) = client.recv().await else { panic!("PUBREC") };
    assert_eq!(ack.kind, AckKind::PubRec);
    drop(client);
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert!(ack.session_present);
    let again = Publish { dup: true, ..message };
    client.send(&Packet::Publish(again)).await;
    let Packet::Ack(ack) = client.recv().await else { panic!("PUBREC") };
    assert_eq!((ack.kind, ack.reason), (AckKind::PubRec, Reason::SUCCESS));
    for expected in [Reason::SUCCESS, Reason::PACKET_ID_NOT_FOUND] {
        client.ack(AckKind::PubRel, id(1)).await;
        let Packet::Ack(ack) = client.recv().await else { panic!("PUBCOMP") };
        assert_eq!((ack.kind, ack.reason), (AckKind::PubComp, expected));
    }
    // The identifier is free for another message.
    let other = client.make("t", EXACTLY_ONCE, "y");
    assert_eq!(client.publish_message(other).await, Reason::SUCCESS);
    for expected in ["x", "y"] {
        let Some(switchboard_message::Delivery::Entry(entry)) = all.next().await.unwrap() else {
            panic!("an entry")
        };
        assert_eq!(&entry[..], expected.as_bytes());
    }
    assert_eq!(mqtt.stats().repeated, 1);
}

#[tokio::test]
async fn receive_maximum_1_sends_one_message_at_a_time() {
    let (bus, _, running) = started().await;
    let mut connect = v5("c");
    connect.properties = connect.properties.with_number(PropertyId::ReceiveMaximum, 1);
    let mut client = Client::connect(&running, connect).await;
    client.subscribe("t", AT_LEAST_ONCE).await;
    client.subscribe("u", EXACTLY_ONCE).await;
    for number in 0..20 {
        publish(&bus, if number % 2 == 0 { "t" } else { "u" }, number.to_string()).await;
    }
    let mut received = Vec::new();
    for _ in 0..20 {
        let message = client.message().await;
        // Nothing arrives before the acknowledgement.
        client.settled().await;
        received.push(String::from_utf8(message.payload.to_vec()).unwrap().parse::<u32>().unwrap());
        client.acknowledge(&message).await;
    }
    received.sort_unstable();
    assert_eq!(received, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn clean_start_ends_the_session() {
    let (bus, _, running) = started().await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.subscribe("t", AT_LEAST_ONCE).await;
    client.bye().await;
    publish(&bus, "t", "missed").await;
    let (mut client, ack) = Client::respond(&running, Connect { clean_start: true, ..v5("c") }).await;
    assert!(!ack.session_present);
    publish(&bus, "t", "nothing").await;
    client.settled().await;
    // A session of version 3.1.1 is kept without "clean session".
    let kept = || Connect { clean_start: false, ..v4("old") };
    let mut old = Client::connect(&running, kept()).await;
    old.subscribe("t", AT_LEAST_ONCE).await;
    old.bye().await;
    publish(&bus, "t", "kept").await;
    let (mut old, ack) = Client::respond(&running, kept()).await;
    assert!(ack.session_present);
    assert_eq!(old.text().await, pair("t", "kept"));
}

#[tokio::test]
async fn sessions_expire_and_the_oldest_are_evicted() {
    let bus = Bus::builder().topics(">", TopicOptions::new().history(10, Duration::MAX)).unwrap().build();
    let mqtt = Mqtt::new(bus.clone()).sessions_max(2).session_expiry_max(Duration::from_secs(1000));
    let running = start(&mqtt).await;
    let (client, ack) = Client::respond(&running, v5("long")).await;
    assert_eq!(ack.properties.number(PropertyId::SessionExpiry), Some(1000), "less than CONNECT requires");
    client.bye().await;
    for client_id in ["a", "b"] {
        Client::connect(&running, v5(client_id)).await.bye().await;
    }
    until(|| mqtt.stats().evicted == 1).await;
    assert!(!Client::respond(&running, v5("long")).await.1.session_present);
    // DISCONNECT can shorten the time.
    let (mut client, ack) = Client::respond(&running, v5("b")).await;
    assert!(ack.session_present);
    let properties = Properties::default().with_number(PropertyId::SessionExpiry, 1);
    client.send(&Packet::Disconnect(Disconnect { properties, ..Disconnect::default() })).await;
    client.closed().await;
    until(|| mqtt.stats().expired == 1).await;
    assert!(!Client::respond(&running, v5("b")).await.1.session_present);
}

#[tokio::test]
async fn a_second_connection_takes_the_session_over() {
    let (bus, mqtt, running) = started().await;
    let mut first = Client::connect(&running, v5("c")).await;
    first.subscribe("t", AT_LEAST_ONCE).await;
    let (mut second, ack) = Client::respond(&running, v5("c")).await;
    assert!(ack.session_present);
    assert_eq!(first.disconnected().await, Reason::SESSION_TAKEN_OVER);
    publish(&bus, "t", "x").await;
    assert_eq!(second.text().await, pair("t", "x"));
    let mut old = Client::connect(&running, v4("o")).await;
    let _other = Client::connect(&running, v4("o")).await;
    old.closed().await;
    assert_eq!(mqtt.stats().taken_over, 2);
}

fn with_will(mut connect: Connect, topic: &'static str, qos: QoS, delay: u32) -> Connect {
    let properties = match delay {
        0 => Properties::default(),
        delay => Properties::default().with_number(PropertyId::WillDelay, delay),
    };
    let topic = Bytes::from_static(topic.as_bytes());
    connect.will = Some(Will { qos, retain: true, properties, topic, payload: Bytes::from_static(b"gone") });
    connect
}

#[tokio::test]
async fn a_will_is_published_unless_the_client_says_goodbye() {
    let (_, mqtt, running) = started().await;
    let mut watcher = Client::connect(&running, v4("watcher")).await;
    watcher.subscribe("will/#", AT_LEAST_ONCE).await;
    Client::connect(&running, with_will(v4("polite"), "will/polite", AT_LEAST_ONCE, 0)).await.bye().await;
    drop(Client::connect(&running, with_will(v4("killed"), "will/killed", AT_LEAST_ONCE, 0)).await);
    assert_eq!(watcher.text().await, pair("will/killed", "gone"));
    let mut requires =
        Client::connect(&running, with_will(v5("requires"), "will/requires", AT_LEAST_ONCE, 0)).await;
    let reason = Reason::DISCONNECT_WITH_WILL;
    requires.send(&Packet::Disconnect(Disconnect { reason, ..Disconnect::default() })).await;
    assert_eq!(watcher.text().await, pair("will/requires", "gone"));
    // Back before the delay has passed; then the session ends, and the will does not wait for its delay.
    let delayed = || with_will(v5("delayed"), "will/delayed", AT_LEAST_ONCE, 3600);
    drop(Client::connect(&running, delayed()).await);
    until(|| mqtt.stats().wills == 2).await;
    drop(Client::connect(&running, delayed()).await);
    let back = Client::connect(&running, Connect { clean_start: true, ..v5("delayed") }).await;
    assert_eq!(watcher.text().await, pair("will/delayed", "gone"));
    back.bye().await;
    // It is a retained message.
    let mut late = Client::connect(&running, v4("late")).await;
    late.subscribe("will/killed", AT_MOST_ONCE).await;
    assert!(late.message().await.retain);
    assert_eq!(mqtt.stats().wills, 3);
}

#[tokio::test]
async fn a_will_is_delayed() {
    let (_, _, running) = started().await;
    let mut watcher = Client::connect(&running, v4("watcher")).await;
    watcher.subscribe("will", AT_LEAST_ONCE).await;
    drop(Client::connect(&running, with_will(v5("delayed"), "will", AT_LEAST_ONCE, 1)).await);
    assert_eq!(watcher.text().await, pair("will", "gone"));
}

#[tokio::test]
async fn more_bytes_than_an_outbox_holds_are_sent_again() {
    let (bus, _, running) = started().await;
    let mut client = Client::connect(&running, v5("c")).await;
    client.subscribe("t", AT_LEAST_ONCE).await;
    for number in 0..110 {
        publish(&bus, "t", format!("{number:03}{}", "x".repeat(20 << 10))).await;
    }
    for _ in 0..100 {
        client.message().await;
    }
    for connection in 0..2 {
        let ack;
        (client, ack) = Client::respond(&running, v5("c")).await;
        assert!(ack.session_present);
        for number in 0..100 {
            let message = client.message().await;
            assert!(message.dup && message.payload.starts_with(format!("{number:03}").as_bytes()));
            if connection == 1 {
                client.acknowledge(&message).await;
            }
        }
    }
    for number in 100..110 {
        let message = client.message().await;
        assert!(!message.dup && message.payload.starts_with(format!("{number:03}").as_bytes()));
    }
}

#[tokio::test]
async fn retained_messages_that_were_not_sent_follow_after_a_cut() {
    let (_, _, running) = started().await;
    let mut publisher = Client::connect(&running, v4("publisher")).await;
    for number in 0..150 {
        publisher.retain(&format!("r/{number:03}"), "x").await;
    }
    let mut client = Client::connect(&running, v5("c")).await;
    client.subscribe("r/#", AT_LEAST_ONCE).await;
    for _ in 0..100 {
        client.message().await;
    }
    let (mut client, ack) = Client::respond(&running, v5("c")).await;
    assert!(ack.session_present);
    for number in 0..150 {
        assert_eq!(client.text().await, pair(&format!("r/{number:03}"), "x"));
    }
}

#[tokio::test]
async fn a_subscription_with_a_backlog_leaves_room_to_others() {
    let (bus, _, running) = started().await;
    let mut connect = v5("c");
    connect.properties = connect.properties.with_number(PropertyId::ReceiveMaximum, 1);
    let mut client = Client::connect(&running, connect.clone()).await;
    client.subscribe("busy/#", AT_LEAST_ONCE).await;
    client.subscribe("alarm", AT_LEAST_ONCE).await;
    client.bye().await;
    for _ in 0..50 {
        publish(&bus, "busy/1", "x").await;
    }
    publish(&bus, "alarm", "x").await;
    let (mut client, _) = Client::respond(&running, connect).await;
    let mut topics = Vec::new();
    for _ in 0..4 {
        topics.push(client.text().await.0);
    }
    assert!(topics.iter().any(|topic| topic == "alarm"), "{topics:?}");
}

#[tokio::test]
async fn no_local_hides_no_messages_of_an_earlier_server() {
    let history = TopicOptions::new().history(100, Duration::MAX).conflate();
    let retained = Bus::builder().topics("retained", history).unwrap().build();
    for (at, payload) in ["first", "second"].into_iter().enumerate() {
        let running = start(&Mqtt::new(Bus::new()).retained(retained.clone())).await;
        let mut client = Client::connect(&running, v5("c")).await;
        let options = FilterOptions { no_local: true, ..FilterOptions::default() };
        client.subscribe_with(Properties::default(), &[("t", options)]).await;
        if at == 1 {
            assert_eq!(client.text().await, pair("t", "first"));
        }
        client.retain("t", payload).await;
    }
}
