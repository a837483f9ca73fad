//! Topics, filters, retained messages and what messages carry.

use crate::{
    AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE,
    client::{Client, id, soon, v4, v5},
    started,
};
use bytes::Bytes;
use std::time::Duration;
use switchboard::Codec;
use switchboard_message::{Delivery, Publication};
use switchboard_wire::mqtt::{
    FilterOptions, Packet, Properties, PropertyId, Publish, Reason, RetainHandling, Subscribe,
};

fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

#[tokio::test]
async fn messages_of_every_qos_reach_clients_of_every_version_and_the_bus() {
    let (bus, mqtt, running) = started().await;
    let mut native = bus.subscribe_encoded("a/*").await.unwrap();
    let mut old = Client::connect(&running, v4("old")).await;
    let mut new = Client::connect(&running, v5("new")).await;
    for client in [&mut old, &mut new] {
        assert_eq!(client.subscribe("a/+", EXACTLY_ONCE).await, Reason::GRANTED_QOS_2);
    }
    let mut publisher = Client::connect(&running, v5("publisher")).await;
    for qos in [AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE] {
        assert_eq!(publisher.publish("a/b", qos, "hi").await, Reason::SUCCESS);
        for client in [&mut old, &mut new] {
            let message = client.message().await;
            assert_eq!((message.qos, message.dup, message.retain), (qos, false, false));
            assert_eq!((&message.topic[..], &message.payload[..]), (&b"a/b"[..], &b"hi"[..]));
            client.acknowledge(&message).await;
        }
        let Some(Delivery::Entry(entry)) = soon(native.next()).await.unwrap() else { panic!("an entry") };
        assert_eq!((entry.topic().name(), &entry[..]), ("a/b", &b"hi"[..]));
    }
    assert_eq!(publisher.publish("nothing", AT_LEAST_ONCE, "x").await, Reason::NO_MATCHING_SUBSCRIBERS);
    // Entries of the bus have the QoS of the subscription.
    bus.publish_encoded("a/c", Publication::new(Codec::Raw, "native")).await.unwrap();
    for client in [&mut old, &mut new] {
        let message = client.message().await;
        assert_eq!((message.qos, &message.payload[..]), (EXACTLY_ONCE, &b"native"[..]));
        client.acknowledge(&message).await;
        client.settled().await;
    }
    assert_eq!((mqtt.stats().published, mqtt.stats().delivered, mqtt.stats().redelivered), (4, 8, 0));
}

#[tokio::test]
async fn filters_match_as_the_standard_says() {
    let (_, _, running) = started().await;
    for qos in [AT_MOST_ONCE, AT_LEAST_ONCE] {
        for (filter, matching, others) in [
            ("a/#", &["a", "a/b", "a/b/c"][..], &["ab", "/a"][..]),
            ("+/b", &["a/b", "/b"], &["b", "a/b/c"]),
            ("#", &["a", "/", "a//b"], &[]),
            ("a/+/c", &["a//c", "a/x/c"], &["a/c"]),
            ("*/>", &["*/>"], &["a/b"]),
            ("50%", &["50%"], &["50%25"]),
        ] {
            let mut client = Client::connect(&running, v4("subscriber")).await;
            assert_eq!(client.subscribe(filter, qos).await, Reason(qos.bits()), "{filter}");
            let mut publisher = Client::connect(&running, v4("publisher")).await;
            for topic in others {
                publisher.publish(topic, AT_LEAST_ONCE, "no").await;
            }
            for topic in matching {
                publisher.publish(topic, AT_LEAST_ONCE, "yes").await;
                assert_eq!(client.text().await, pair(topic, "yes"), "{filter}");
            }
        }
    }
}

#[tokio::test]
async fn invalid_and_reserved_filters_are_refused_one_by_one() {
    let (_, _, running) = started().await;
    let filters = ["a+", "#/a", "$SYS/#", "$share/g", "a"].map(|filter| (filter, FilterOptions::default()));
    let mut new = Client::connect(&running, v5("new")).await;
    let invalid = Reason::TOPIC_FILTER_INVALID;
    let expected = [invalid, invalid, Reason::NOT_AUTHORIZED, invalid, Reason::SUCCESS];
    assert_eq!(new.subscribe_with(Properties::default(), &filters).await, expected);
    let mut old = Client::connect(&running, v4("old")).await;
    let refused = Reason(0x80);
    let expected = [refused, refused, refused, refused, Reason::SUCCESS];
    assert_eq!(old.subscribe_with(Properties::default(), &filters).await, expected);
    assert_eq!(new.unsubscribe("a").await, [Reason::SUCCESS]);
    assert_eq!(new.unsubscribe("a").await, [Reason::NO_SUBSCRIPTION_EXISTED]);
    old.publish("a", AT_LEAST_ONCE, "x").await;
    assert_eq!(old.text().await, pair("a", "x"));
    new.settled().await;
}

#[tokio::test]
async fn retained_messages_are_kept_replaced_and_cleared() {
    let (_, _, running) = started().await;
    let mut publisher = Client::connect(&running, v5("publisher")).await;
    let mut live = Client::connect(&running, v5("live")).await;
    let as_published = FilterOptions { retain_as_published: true, ..FilterOptions::default() };
    live.subscribe_with(Properties::default(), &[("t/#", as_published)]).await;
    for (topic, payload) in [("t/a", "1"), ("t/b", "2"), ("t/a", "3"), ("t/c", "4"), ("t/c", "")] {
        publisher.retain(topic, payload).await;
        let message = live.message().await;
        assert!(message.retain && message.payload == payload, "{message:?}");
    }
    for qos in [AT_MOST_ONCE, AT_LEAST_ONCE] {
        let mut client = Client::connect(&running, v4("late")).await;
        client.subscribe("t/+", qos).await;
        for (topic, payload) in [("t/a", "3"), ("t/b", "2")] {
            let message = client.message().await;
            assert!(message.retain);
            assert_eq!((&message.topic[..], &message.payload[..]), (topic.as_bytes(), payload.as_bytes()));
            assert_eq!(message.qos, qos);
            client.acknowledge(&message).await;
        }
        publisher.publish("t/a", AT_LEAST_ONCE, "live").await;
        assert!(!client.message().await.retain, "a live message");
        live.message().await;
        // A further SUBSCRIBE sends them again in version 3.1.1.
        client.subscribe("t/b", qos).await;
        assert!(client.message().await.retain);
    }
    let mut client = Client::connect(&running, v5("handling")).await;
    let with = |retain_handling| FilterOptions { retain_handling, ..FilterOptions::default() };
    client.subscribe_with(Properties::default(), &[("t/a", with(RetainHandling::Never))]).await;
    client.subscribe_with(Properties::default(), &[("t/a", with(RetainHandling::IfNew))]).await;
    client.settled().await;
    client.subscribe_with(Properties::default(), &[("t/b", with(RetainHandling::IfNew))]).await;
    assert_eq!(client.text().await, pair("t/b", "2"));
    client.settled().await;
}

#[tokio::test]
async fn more_retained_messages_than_the_window_arrive_one_after_the_other() {
    let (_, _, running) = started().await;
    let mut publisher = Client::connect(&running, v4("publisher")).await;
    for number in 0..250 {
        publisher.retain(&format!("r/{number:03}"), "x").await;
    }
    let mut client = Client::connect(&running, v4("client")).await;
    client.subscribe("r/#", AT_LEAST_ONCE).await;
    for number in 0..250 {
        assert_eq!(client.text().await, pair(&format!("r/{number:03}"), "x"));
    }
}

#[tokio::test]
async fn more_bytes_than_an_outbox_holds_wait_in_the_topic() {
    let (bus, mqtt, running) = started().await;
    for qos in [AT_LEAST_ONCE, EXACTLY_ONCE] {
        let mut client = Client::connect(&running, v5("client")).await;
        client.subscribe("large", qos).await;
        let payload = "x".repeat(50_000);
        // Less than the 8 MiB that the history of a topic has.
        for _ in 0..140 {
            bus.publish_encoded("large", Publication::new(Codec::Raw, payload.clone())).await.unwrap();
        }
        for _ in 0..140 {
            assert_eq!(client.text().await.1.len(), payload.len());
        }
        client.unsubscribe("large").await;
    }
    let mut publisher = Client::connect(&running, v4("publisher")).await;
    for number in 0..60 {
        publisher.retain(&format!("kept/{number}"), &"y".repeat(50_000)).await;
    }
    let mut client = Client::connect(&running, v5("client")).await;
    client.subscribe("kept/+", AT_MOST_ONCE).await;
    for _ in 0..60 {
        assert_eq!(client.text().await.1.len(), 50_000);
    }
    assert_eq!((mqtt.stats().missed, mqtt.stats().dropped), (0, 0));
}

#[tokio::test]
async fn properties_are_forwarded_and_expiry_is_the_time_that_is_left() {
    let (_, _, running) = started().await;
    let mut client = Client::connect(&running, v5("client")).await;
    let properties = Properties::default().with_number(PropertyId::SubscriptionId, 7);
    client.subscribe_with(properties, &[("t", FilterOptions::default())]).await;
    let mut old = Client::connect(&running, v4("old")).await;
    old.subscribe("t", AT_MOST_ONCE).await;
    let mut publisher = Client::connect(&running, v5("publisher")).await;
    let sent = Properties::default()
        .with_number(PropertyId::PayloadFormat, 1)
        .with_bytes(PropertyId::ContentType, &b"text/plain"[..])
        .with_bytes(PropertyId::ResponseTopic, &b"replies"[..])
        .with_bytes(PropertyId::CorrelationData, &b"\0\x01"[..])
        .with_user(&b"A"[..], &b"1"[..])
        .with_user(&b"A"[..], &b"2"[..]);
    let with_expiry = sent.clone().with_number(PropertyId::MessageExpiry, 60);
    let message = Publish { properties: with_expiry, ..publisher.make("t", AT_LEAST_ONCE, "x") };
    publisher.publish_message(message).await;
    let mut received = client.message().await.properties;
    let left = received.number(PropertyId::MessageExpiry).unwrap();
    assert!((55..=60).contains(&left), "{left}");
    assert_eq!(received.number(PropertyId::SubscriptionId), Some(7));
    received.retain(|id| !matches!(id, PropertyId::MessageExpiry | PropertyId::SubscriptionId));
    assert_eq!(received, sent);
    assert!(old.message().await.properties.is_empty());
}

#[tokio::test]
async fn a_client_can_exclude_its_own_messages() {
    let (_, _, running) = started().await;
    let mut own = Client::connect(&running, v5("own")).await;
    let mut other = Client::connect(&running, v5("other")).await;
    for (qos, topic) in [(AT_MOST_ONCE, "zero"), (AT_LEAST_ONCE, "one")] {
        let options = FilterOptions { qos, no_local: true, ..FilterOptions::default() };
        own.subscribe_with(Properties::default(), &[(topic, options)]).await;
        own.publish(topic, qos, "mine").await;
        own.settled().await;
        other.publish(topic, qos, "other's").await;
        assert_eq!(own.text().await, pair(topic, "other's"));
    }
}

#[tokio::test]
async fn aliases_work_in_both_directions() {
    let (_, _, running) = started().await;
    let mut connect = v5("client");
    connect.properties = connect.properties.with_number(PropertyId::TopicAliasMaximum, 4);
    let mut client = Client::connect(&running, connect).await;
    client.subscribe("long/topic", AT_LEAST_ONCE).await;
    let aliased = |topic: &str, client: &mut Client, payload: &str| Publish {
        properties: Properties::default().with_number(PropertyId::TopicAlias, 2),
        ..client.make(topic, AT_LEAST_ONCE, payload)
    };
    for (topic, payload) in [("long/topic", "1"), ("", "2"), ("", "3")] {
        let message = aliased(topic, &mut client, payload);
        assert_eq!(client.publish_message(message).await, Reason::SUCCESS);
        assert_eq!(client.text().await, pair("long/topic", payload));
    }
    let unknown = Publish {
        properties: Properties::default().with_number(PropertyId::TopicAlias, 3),
        ..client.make("", AT_MOST_ONCE, "")
    };
    client.send(&Packet::Publish(unknown)).await;
    assert_eq!(client.disconnected().await, Reason::TOPIC_ALIAS_INVALID);
}

#[tokio::test]
async fn expired_messages_are_not_delivered() {
    let (bus, _, running) = started().await;
    let client = Client::connect(&running, v5("client")).await;
    let mut client = client;
    client.subscribe("t", AT_LEAST_ONCE).await;
    client.bye().await;
    let mut publication = Publication::new(Codec::Raw, "old");
    publication.expires_in = Some(Duration::ZERO);
    bus.publish_encoded("t", publication).await.unwrap();
    bus.publish_encoded("t", Publication::new(Codec::Raw, Bytes::from_static(b"new"))).await.unwrap();
    let (mut client, _) = Client::respond(&running, v5("client")).await;
    assert_eq!(client.text().await, pair("t", "new"));
}

#[tokio::test]
async fn a_further_subscribe_replaces_the_options_without_a_gap() {
    let (_, _, running) = started().await;
    for (client_id, filter) in [("a", "t"), ("b", "+")] {
        let mut client = Client::connect(&running, v5(client_id)).await;
        client.subscribe(filter, AT_MOST_ONCE).await;
        let retains = FilterOptions { retain_as_published: true, ..FilterOptions::default() };
        let reliable = FilterOptions { qos: AT_LEAST_ONCE, ..FilterOptions::default() };
        let options = [FilterOptions::default(), retains, reliable, FilterOptions::default(), reliable];
        let mut packets = Vec::new();
        for (number, options) in options.into_iter().enumerate() {
            packets.push(Packet::Publish(client.make("t", AT_MOST_ONCE, &number.to_string())));
            packets.push(Packet::Subscribe(Subscribe {
                packet_id: id(100 + number as u16),
                properties: Properties::default(),
                filters: vec![(filter.into(), options)],
            }));
        }
        packets.push(Packet::Publish(client.make("t", AT_LEAST_ONCE, "5")));
        client.send_all(&packets).await;
        for _ in 0..=options.len() {
            client.other().await;
        }
        for number in 0..=options.len() {
            assert_eq!(client.text().await, pair("t", &number.to_string()));
        }
    }
}

#[tokio::test]
async fn a_filter_that_matches_few_retained_messages_finds_them_behind_many() {
    let (_, _, running) = started().await;
    let mut publisher = Client::connect(&running, v5("publisher")).await;
    let mut packets = Vec::new();
    for number in 0..5_000 {
        let message = publisher.make(&format!("many/{number:04}/x"), AT_MOST_ONCE, "x");
        packets.push(Packet::Publish(Publish { retain: true, ..message }));
    }
    publisher.send_all(&packets).await;
    publisher.retain("many/last/y", "y").await;
    publisher.retain("many", "all").await;
    let mut client = Client::connect(&running, v5("client")).await;
    client.subscribe("many/+/y", AT_LEAST_ONCE).await;
    assert_eq!(client.text().await, pair("many/last/y", "y"));
    client.subscribe("many/#", AT_LEAST_ONCE).await;
    assert_eq!(client.text().await, pair("many", "all"));
}
