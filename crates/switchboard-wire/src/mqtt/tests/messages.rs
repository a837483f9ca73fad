//! PUBLISH, SUBSCRIBE and their answers.

use super::*;
use crate::mqtt::{
    Ack, AckKind, EncodedPublish, OutgoingPublish, Properties, PropertyId, Publish, QoS, Reason, SendError,
    Version,
};
use bytes::Bytes;
use std::num::NonZeroU16;

fn published(connect: &[u8], bytes: &[u8]) -> Publish {
    let (events, out, error) = served(connect, bytes);
    assert_eq!((out, error), (vec![], None));
    match &events[..] {
        [ServerEvent::Publish(publish)] => publish.clone(),
        events => panic!("{events:?}"),
    }
}

fn id(id: u16) -> NonZeroU16 {
    NonZeroU16::new(id).unwrap()
}

/// Returns a server with an open connection.
fn open(connect: &[u8]) -> Server {
    let mut server = Server::new(Limits::server());
    feed(&mut server, connect, connect.len());
    assert!(server.is_open());
    server
}

fn message<'a>(
    topic: &'a [u8],
    qos: QoS,
    properties: &'a Properties,
    payload: &'a Bytes,
) -> OutgoingPublish<'a> {
    let payload = payload.into();
    OutgoingPublish { dup: false, qos, retain: false, topic, properties, subscription_id: None, payload }
}

#[test]
fn messages_of_every_qos_are_read_and_acknowledged() {
    let publish = published(CONNECT_V4, b"\x30\x05\0\x01ahi");
    assert_eq!((publish.qos, publish.packet_id, &publish.payload[..]), (QoS::AtMostOnce, None, &b"hi"[..]));
    let publish = published(CONNECT_V4, b"\x3b\x07\0\x01a\0\x07hi");
    assert_eq!((publish.qos, publish.packet_id), (QoS::AtLeastOnce, Some(id(7))));
    assert!(publish.dup && publish.retain);
    let publish = published(CONNECT_V5, b"\x34\x0a\0\x01a\0\x07\x02\x01\x01hi");
    assert_eq!(publish.qos, QoS::ExactlyOnce);
    assert_eq!(publish.properties.number(PropertyId::PayloadFormat), Some(1));

    let mut server = open(CONNECT_V5);
    let mut out = Outbox::new();
    for kind in [AckKind::PubAck, AckKind::PubRec, AckKind::PubRel, AckKind::PubComp] {
        server.acknowledge(kind, id(7), Reason::SUCCESS, "", &mut out);
    }
    server.acknowledge(AckKind::PubComp, id(7), Reason::PACKET_ID_NOT_FOUND, "", &mut out);
    server.acknowledge(AckKind::PubAck, id(7), Reason::QUOTA_EXCEEDED, "full", &mut out);
    let expected = b"\x40\x02\0\x07\x50\x02\0\x07\x62\x02\0\x07\x70\x02\0\x07\x70\x03\0\x07\x92\
                     \x40\x0b\0\x07\x97\x07\x1f\0\x04full";
    assert_eq!(out.take_all().escape_ascii().to_string(), expected.escape_ascii().to_string());
    let mut server = open(CONNECT_V4);
    server.acknowledge(AckKind::PubAck, id(7), Reason::QUOTA_EXCEEDED, "full", &mut out);
    assert_eq!(out.take_all(), b"\x40\x02\0\x07", "version 3.1.1 has no reason");
}

#[test]
fn acknowledgements_have_two_three_or_more_bytes() {
    for (bytes, reason) in [
        (&b"\x40\x02\0\x07"[..], Reason::SUCCESS),
        (b"\x40\x03\0\x07\x10", Reason(0x10)),
        (b"\x40\x04\0\x07\x10\0", Reason(0x10)),
    ] {
        let (events, _, error) = served(CONNECT_V5, bytes);
        assert_eq!((events, error), (vec![ServerEvent::Ack(Ack::new(AckKind::PubAck, id(7), reason))], None));
    }
    assert_eq!(served(CONNECT_V4, b"\x40\x03\0\x07\0").2, Some("malformed"));
    assert_eq!(served(CONNECT_V4, b"\x62\x02\0\0").2, Some("malformed"), "identifier 0");
}

#[test]
fn malformed_messages_close_the_connection() {
    for (bytes, code, error) in [
        // QoS 3, DUP with QoS 0, identifier 0, a wildcard, no topic and no alias, U+0000, an end within a field.
        (&b"\x36\x06\0\x01a\0\x07x"[..], 0x81, "malformed"),
        (b"\x38\x05\0\x01ahi", 0x81, "malformed"),
        (b"\x32\x06\0\x01a\0\0\0", 0x81, "malformed"),
        (b"\x30\x04\0\x01+\0", 0x90, "topic_name"),
        (b"\x30\x04\0\x01#\0", 0x90, "topic_name"),
        (b"\x30\x03\0\0\0", 0x82, "protocol"),
        (b"\x30\x04\0\x01\0\0", 0x81, "malformed"),
        (b"\x30\x04\0\x09a\0", 0x81, "malformed"),
        (b"\x30\x05\0\x02\xff\xfe\0", 0x81, "malformed"),
        // A subscription identifier of a client, a response topic with a wildcard.
        (b"\x30\x06\0\x01a\x02\x0b\x01", 0x82, "protocol"),
        (b"\x30\x08\0\x01a\x04\x08\0\x01#", 0x82, "protocol"),
        // Alias 0, over the maximum, unknown.
        (b"\x30\x07\0\x01a\x03\x23\0\0", 0x94, "topic_alias"),
        (b"\x30\x07\0\x01a\x03\x23\0\x11", 0x94, "topic_alias"),
        (b"\x30\x06\0\0\x03\x23\0\x01", 0x94, "topic_alias"),
    ] {
        let expected = (vec![], disconnect(code), Some(error));
        assert_eq!(served(CONNECT_V5, bytes), expected, "{}", bytes.escape_ascii());
    }
    assert_eq!(served(CONNECT_V4, b"\x30\x02\0\0"), (vec![], vec![], Some("topic_name")));
}

#[test]
fn an_alias_is_the_last_name_that_it_arrived_with() {
    let bytes = b"\x30\x08\0\x01a\x03\x23\0\x031\x30\x07\0\0\x03\x23\0\x032\x30\x08\0\x01b\x03\x23\0\x033\
                  \x30\x07\0\0\x03\x23\0\x034";
    let (events, _, error) = served(CONNECT_V5, bytes);
    assert_eq!(error, None);
    let names = events.iter().map(|event| match event {
        ServerEvent::Publish(publish) => {
            assert!(publish.properties.is_empty(), "the alias is of the connection");
            (publish.topic[0], publish.payload[0])
        }
        event => panic!("{event:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), [(b'a', b'1'), (b'a', b'2'), (b'b', b'3'), (b'b', b'4')]);
}

#[test]
fn receive_maximum_counts_until_the_last_acknowledgement() {
    let limits = Limits { receive_max: 1, ..Limits::server() };
    let two = [CONNECT_V5, b"\x32\x06\0\x01a\0\x01\0", b"\x34\x06\0\x01a\0\x02\0"].concat();
    let (events, out, error) = served_with(limits, &two);
    assert_eq!((events.len(), error.unwrap().kind().name()), (2, "receive_maximum"));
    assert!(out.ends_with(&disconnect(0x93)));
    let mut server = Server::new(limits);
    feed(&mut server, CONNECT_V5, 99);
    let mut out = Outbox::new();
    for round in 0..3 {
        assert_eq!(feed(&mut server, b"\x34\x06\0\x01a\0\x02\0", 99).2, None, "{round}");
        server.acknowledge(AckKind::PubRec, id(2), Reason::SUCCESS, "", &mut out);
        assert_eq!(feed(&mut server, b"\x62\x02\0\x02", 99).2, None);
        server.acknowledge(AckKind::PubComp, id(2), Reason::SUCCESS, "", &mut out);
    }
    let many = [CONNECT_V4.to_vec(), b"\x32\x05\0\x01a\0\x01".repeat(200)].concat();
    assert_eq!(served_with(limits, &many).2, None, "version 3.1.1 has no such limit");
}

#[test]
fn subscriptions_are_read_and_answered() {
    let (events, _, error) = served(CONNECT_V5, b"\x82\x0f\0\x09\x02\x0b\x05\0\x01a\x2e\0\x03b/#\x01");
    assert_eq!(error, None);
    let [ServerEvent::Subscribe(subscribe)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        (subscribe.packet_id, subscribe.properties.number(PropertyId::SubscriptionId)),
        (id(9), Some(5))
    );
    let options: Vec<_> =
        subscribe.filters.iter().map(|(filter, options)| (&filter[..], options.bits())).collect();
    assert_eq!(options, [(&b"a"[..], 0x2e), (b"b/#", 1)]);
    let reasons = vec![Reason::GRANTED_QOS_2, Reason::NOT_AUTHORIZED];
    let mut out = Outbox::new();
    for (connect, suback, unsuback) in [
        (CONNECT_V5, &b"\x90\x05\0\x09\0\x02\x87"[..], &b"\xb0\x05\0\x09\0\x02\x87"[..]),
        (CONNECT_V4, b"\x90\x04\0\x09\x02\x80", b"\xb0\x02\0\x09"),
    ] {
        let mut server = open(connect);
        server.suback(id(9), reasons.clone(), &mut out);
        assert_eq!(out.take_all(), suback);
        server.unsuback(id(9), reasons.clone(), &mut out);
        assert_eq!(out.take_all(), unsuback);
    }
    let (events, _, _) = served(CONNECT_V4, b"\xa2\x08\0\x09\0\x01a\0\x01b");
    let [ServerEvent::Unsubscribe(unsubscribe)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(unsubscribe.filters, [&b"a"[..], b"b"]);
}

#[test]
fn malformed_subscriptions_close_the_connection() {
    for (bytes, error) in [
        // No filter; QoS 3, reserved bits, retain handling 3; "no local" of a shared subscription.
        (&b"\x82\x03\0\x09\0"[..], "protocol"),
        (b"\xa2\x03\0\x09\0", "protocol"),
        (b"\x82\x07\0\x09\0\0\x01a\x03", "malformed"),
        (b"\x82\x07\0\x09\0\0\x01a\x40", "malformed"),
        (b"\x82\x07\0\x09\0\0\x01a\x30", "malformed"),
        (b"\x82\x10\0\x09\0\0\x0a$share/g/a\x04", "protocol"),
        (b"\x82\x09\0\x09\x02\x0b\0\0\x01a\0", "protocol"),
    ] {
        assert_eq!(served(CONNECT_V5, bytes).2, Some(error), "{}", bytes.escape_ascii());
    }
    assert_eq!(
        served(CONNECT_V4, b"\x82\x06\0\x09\0\x01a\x04").2,
        Some("malformed"),
        "options in version 3.1.1"
    );
    let many = [&b"\0\x09"[..], &b"\0\x01a\0".repeat(101)].concat();
    assert_eq!(served(CONNECT_V4, &packet(0x82, &many)).2, Some("quota"));
    let long = [&b"\0\x09\x04\x01"[..], &[b'a'; 1025], b"\0"].concat();
    assert_eq!(served(CONNECT_V4, &packet(0x82, &long)).2, Some("topic_filter"));
    let long = [&b"\x04\x01"[..], &[b'a'; 1025]].concat();
    assert_eq!(served(CONNECT_V4, &packet(0x30, &long)).2, Some("topic_name"));
}

#[test]
fn messages_to_clients_differ_in_their_packet_id_alone() {
    let properties = Properties::default().with_number(PropertyId::MessageExpiry, 9);
    let payload = Bytes::from_static(b"hi");
    let message = OutgoingPublish {
        retain: true,
        subscription_id: Some(300),
        ..message(b"a", QoS::AtLeastOnce, &properties, &payload)
    };
    let mut out = Outbox::new();
    let encoded = EncodedPublish::new(message, Version::V5);
    encoded.write(Some(id(7)), &mut out);
    let bytes = out.take_all();
    assert_eq!(bytes, b"\x33\x10\0\x01a\0\x07\x08\x02\0\0\0\x09\x0b\xac\x02hi");
    assert_eq!(bytes.len(), encoded.packet_len());
    EncodedPublish::new(message, Version::V3_1_1).write(Some(id(8)), &mut out);
    assert_eq!(out.take_all(), b"\x33\x07\0\x01a\0\x08hi");
    let shared = OutgoingPublish { qos: QoS::AtMostOnce, ..message };
    assert_eq!(&EncodedPublish::new(shared, Version::V3_1_1).head()[..], b"\x31\x05\0\x01a");
}

#[test]
fn a_packet_over_the_maximum_of_the_client_is_not_sent() {
    // Maximum packet size 20, and no reason strings.
    let mut server = open(b"\x10\x15\0\x04MQTT\x05\x02\0\x3c\x07\x27\0\0\0\x14\x17\0\0\x01c");
    let (none, payload, mut out) = (Properties::default(), Bytes::from(vec![0; 14]), Outbox::new());
    let fits = message(b"a", QoS::AtMostOnce, &none, &payload);
    assert_eq!(server.publish(&fits, None, &mut out), Ok(()));
    assert_eq!(out.take_all().len(), 20);
    let payload = Bytes::from(vec![0; 15]);
    let too_large = message(b"a", QoS::AtMostOnce, &none, &payload);
    assert_eq!(server.publish(&too_large, None, &mut out), Err(SendError::TooLarge));
    server.acknowledge(AckKind::PubAck, id(1), Reason::QUOTA_EXCEEDED, "full", &mut out);
    assert_eq!(out.take_all(), b"\x40\x03\0\x01\x97");
    server.close(Reason::SERVER_SHUTTING_DOWN, &mut out);
    assert_eq!(server.publish(&fits, None, &mut out), Err(SendError::NotOpen));
    assert_eq!(out.take_all(), b"\xe0\x01\x8b");
}

#[test]
fn a_client_that_accepts_aliases_gets_them_for_the_first_topics() {
    // Topic alias maximum 1.
    let mut server = open(b"\x10\x11\0\x04MQTT\x05\x02\0\x3c\x03\x22\0\x01\0\x01c");
    let (none, payload, mut out) = (Properties::default(), Bytes::from_static(b"x"), Outbox::new());
    for topic in [&b"long/name"[..], b"long/name", b"other"] {
        server.publish(&message(topic, QoS::AtMostOnce, &none, &payload), None, &mut out).unwrap();
    }
    let expected = b"\x30\x10\0\x09long/name\x03\x23\0\x01x\x30\x07\0\0\x03\x23\0\x01x\x30\x09\0\x05other\0x";
    assert_eq!(out.take_all().escape_ascii().to_string(), expected.escape_ascii().to_string());
}
