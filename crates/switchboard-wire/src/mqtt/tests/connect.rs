//! CONNECT, and what may come before and after it.

use super::*;
use crate::mqtt::{Properties, PropertyId, QoS, Reason, Version};
use bytes::Bytes;

fn connect_of(bytes: &[u8]) -> crate::mqtt::Connect {
    let (events, _, error) = served_with(Limits::server(), bytes);
    assert_eq!(error, None);
    match &events[..] {
        [ServerEvent::Connect(connect)] => (**connect).clone(),
        events => panic!("{events:?}"),
    }
}

#[test]
fn every_version_connects() {
    let cases: [(&[u8], Version); 3] = [
        (CONNECT_V4, Version::V3_1_1),
        (CONNECT_V5, Version::V5),
        (b"\x10\x0f\0\x06MQIsdp\x03\x02\0\x3c\0\x01c", Version::V3_1),
    ];
    for (bytes, version) in cases {
        let connect = connect_of(bytes);
        assert_eq!((connect.version, &connect.client_id[..], connect.keep_alive), (version, &b"c"[..], 60));
        assert!(connect.clean_start && connect.will.is_none() && connect.authorization().is_none());
        assert_eq!(connect.session_expiry(), Some(0));
    }
}

#[test]
fn all_fields_of_connect_are_read() {
    // Will with QoS 1 and RETAIN, user name, password; session expiry 10, receive maximum 3; will delay 5.
    let mut body = b"\0\x04MQTT\x05\xec\0\0".to_vec();
    body.extend(b"\x08\x11\0\0\0\x0a\x21\0\x03");
    body.extend(b"\0\x01c\x05\x18\0\0\0\x05\0\x01w\0\x02by\0\x03ali\0\x06s3cret");
    let connect = connect_of(&packet(0x10, &body));
    assert!(!connect.clean_start);
    assert_eq!((connect.session_expiry(), connect.receive_max()), (Some(10), 3));
    assert_eq!(connect.authorization().as_deref(), Some("Basic YWxpOnMzY3JldA=="));
    let will = connect.will.clone().unwrap();
    assert_eq!((will.qos, will.retain, will.delay()), (QoS::AtLeastOnce, true, 5));
    assert_eq!((&will.topic[..], &will.payload[..]), (&b"w"[..], &b"by"[..]));
    assert!(!format!("{connect:?}").contains("s3cret"), "no secrets in messages");
    let token =
        crate::mqtt::Connect { user_name: None, password: Some(Bytes::from_static(b"t0ken")), ..connect };
    assert_eq!(token.authorization().as_deref(), Some("Bearer t0ken"));
}

#[test]
fn malformed_beginnings_are_refused() {
    let cases: &[(&[u8], &[u8], &str)] = &[
        // Five bytes of length, an empty CONNECT, another name, a packet before CONNECT.
        (b"\x10\xff\xff\xff\xff\x01", b"", "malformed"),
        (b"\x10\0", b"", "malformed"),
        (b"\x10\x0d\0\x04MQTX\x04\x02\0\x3c\0\x01c", b"", "not_connect"),
        (b"\x30\x05\0\x01ahi", b"", "not_connect"),
        (b"\xc0\0", b"", "not_connect"),
        (b"\x11\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01c", b"", "not_connect"),
        // Levels 6 and 2: the response is in a form that such a client may know.
        (b"\x10\x0d\0\x04MQTT\x06\x02\0\x3c\0\x01c", b"\x20\x03\0\x84\0", "unsupported_version"),
        (b"\x10\x0d\0\x04MQTT\x02\x02\0\x3c\0\x01c", b"\x20\x02\0\x01", "unsupported_version"),
        (b"\x10\x0d\0\x04MQTT\x03\x02\0\x3c\0\x01c", b"\x20\x02\0\x01", "unsupported_version"),
        // Reserved flag, will QoS 3, will QoS without a will, a password without a user name.
        (b"\x10\x0d\0\x04MQTT\x04\x03\0\x3c\0\x01c", b"", "malformed"),
        (b"\x10\x0e\0\x04MQTT\x05\x03\0\x3c\0\0\x01c", b"\x20\x03\0\x81\0", "malformed"),
        (b"\x10\x14\0\x04MQTT\x04\x1e\0\x3c\0\x01c\0\x01w\0\x02by", b"", "malformed"),
        (b"\x10\x0d\0\x04MQTT\x04\x0a\0\x3c\0\x01c", b"", "malformed"),
        (b"\x10\x10\0\x04MQTT\x04\x42\0\x3c\0\x01c\0\x01p", b"", "malformed"),
        // No client identifier without a clean session: code 2. U+0000 in it, and bytes after the end.
        (b"\x10\x0c\0\x04MQTT\x04\0\0\x3c\0\0", b"\x20\x02\0\x02", "client_id"),
        (b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01\0", b"", "malformed"),
        (b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x01c!", b"", "malformed"),
        // A will to a topic with a wildcard.
        (b"\x10\x13\0\x04MQTT\x04\x06\0\x3c\0\x01c\0\x01#\0\x01x", b"", "topic_name"),
    ];
    for (bytes, out, error) in cases {
        assert_eq!(refused(bytes), (out.to_vec(), *error), "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_its_bytes() {
    let (events, out, error) = served_with(Limits::server(), b"\x10\xff\xff\xff\x7f");
    assert_eq!((events, out), (vec![], vec![]));
    let text = "mqtt: a packet has 268435455 bytes; the limit is 262144 (packet_bytes_max)";
    assert_eq!(error.unwrap().to_string(), text);
    let (_, out, error) = served(CONNECT_V5, b"\x30\x81\x80\x10");
    assert_eq!((&out[..], error), (&disconnect(0x95)[..], Some("packet_too_large")));
}

#[test]
fn an_empty_client_id_is_left_to_the_driver() {
    assert!(connect_of(b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0").client_id.is_empty());
    let mut server = Server::new(Limits::server());
    let (mut input, mut out) = (Input::default(), Outbox::new());
    input.extend(b"\x10\x0d\0\x04MQTT\x05\0\0\x3c\0\0\0\xc0\0");
    assert!(matches!(server.recv(&mut input, &mut out), Ok(Some(ServerEvent::Connect(_)))));
    assert_eq!(server.recv(&mut input, &mut out), Ok(None), "waits for a verdict");
    let accept = Accept {
        assigned_client_id: Some(Bytes::from_static(b"x1")),
        keep_alive: Some(30),
        session_expiry: Some(7),
        user: vec![(Bytes::from_static(b"gap"), Bytes::from_static(b"lagged"))],
        ..Accept::default()
    };
    server.accept(&accept, &mut out);
    let expected = b"\x20\x29\0\0\x26\x11\0\0\0\x07\x21\0\x64\x27\0\x04\0\0\x22\0\x10\x13\0\x1e\x12\0\x02x1\
                     \x26\0\x03gap\0\x06lagged";
    assert_eq!(out.take_all().escape_ascii().to_string(), expected.escape_ascii().to_string());
    assert_eq!(
        server.recv(&mut input, &mut out),
        Ok(Some(ServerEvent::Ping)),
        "what was sent before CONNACK"
    );
    assert_eq!(out.take_all(), b"\xd0\0");
}

#[test]
fn a_rejected_client_gets_the_code_of_its_version() {
    for (connect, expected) in
        [(CONNECT_V4, &b"\x20\x02\0\x04"[..]), (CONNECT_V5, b"\x20\x08\0\x86\x05\x1f\0\x02no")]
    {
        let mut server = Server::new(Limits::server());
        let (mut input, mut out) = (Input::default(), Outbox::new());
        input.extend(connect);
        server.recv(&mut input, &mut out).unwrap().unwrap();
        server.reject(Reason::BAD_CREDENTIALS, "no", &mut out);
        assert_eq!(out.take_all(), expected);
        assert!(server.is_closed() && server.recv(&mut input, &mut out) == Ok(None));
    }
}

#[test]
fn a_second_connect_is_an_error() {
    assert_eq!(served(CONNECT_V4, CONNECT_V4), (vec![], vec![], Some("protocol")));
    assert_eq!(served(CONNECT_V5, CONNECT_V5), (vec![], disconnect(0x82), Some("protocol")));
}

#[test]
fn reserved_flags_of_every_type_are_refused() {
    for first in 0x20..=0xff_u8 {
        let is_valid = match first >> 4 {
            3 => first & 6 != 6 && first & 14 != 8,
            6 | 8 | 10 => first & 15 == 2,
            _ => first & 15 == 0,
        };
        // The flags are checked before the length arrives.
        let (events, _, error) = served_with(Limits::server(), &[CONNECT_V4, &[first]].concat());
        assert_eq!((events.len(), error.is_none()), (1, is_valid), "0x{first:02x}");
    }
    let (_, _, error) = served(CONNECT_V4, b"\x0f\0");
    assert_eq!(error, Some("malformed"));
}

#[test]
fn packets_of_servers_are_refused() {
    for bytes in [&b"\x20\x02\0\0"[..], b"\x90\x03\0\x01\0", b"\xb0\x02\0\x01", b"\xd0\0"] {
        assert_eq!(served(CONNECT_V4, bytes).2, Some("protocol"), "{bytes:02x?}");
    }
    assert_eq!(served(CONNECT_V4, b"\xf0\0").2, Some("protocol"), "AUTH in version 3.1.1");
}

#[test]
fn disconnect_cannot_keep_a_session_that_connect_did_not() {
    let (events, out, error) = served(CONNECT_V5, b"\xe0\x07\0\x05\x11\0\0\0\x01");
    assert_eq!((events, &out[..], error), (vec![], &disconnect(0x82)[..], Some("protocol")));
    let (events, out, error) = served(CONNECT_V5, b"\xe0\x01\x04\xc0\0");
    let [ServerEvent::Disconnect(disconnect)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((disconnect.reason, &out[..], error), (Reason::DISCONNECT_WITH_WILL, &b""[..], None));
}

#[test]
fn properties_are_checked() {
    let with = |properties: &[u8]| {
        let mut body = b"\0\x04MQTT\x05\x02\0\x3c".to_vec();
        body.push(properties.len() as u8);
        body.extend(properties);
        body.extend(b"\0\x01c");
        refused(&packet(0x10, &body))
    };
    for (properties, code, error) in [
        // Unknown, of another packet, twice, zero where it must not be, a flag of 2.
        (&b"\x7f\0"[..], 0x81, "malformed"),
        (b"\x23\0\x01", 0x82, "protocol"),
        (b"\x21\0\x01\x21\0\x01", 0x82, "protocol"),
        (b"\x21\0\0", 0x82, "protocol"),
        (b"\x27\0\0\0\0", 0x82, "protocol"),
        (b"\x17\x02", 0x82, "protocol"),
        (b"\x16\0\x01x", 0x82, "protocol"),
        (b"\x11\0\0", 0x81, "malformed"),
        (b"\x26\0\x01a\0\x09", 0x81, "malformed"),
    ] {
        let expected = (vec![0x20, 3, 0, code, 0], error);
        assert_eq!(with(properties), expected, "{}", properties.escape_ascii());
    }
    let many = b"\x26\0\x01a\0\0".repeat(33);
    let mut body = b"\0\x04MQTT\x05\x02\0\x3c".to_vec();
    body.extend([many.len() as u8 & 0x7f | 0x80, (many.len() >> 7) as u8]);
    body.extend(&many);
    body.extend(b"\0\x01c");
    assert_eq!(refused(&packet(0x10, &body)).1, "quota");
    let long = Properties::default().with_user(vec![b'n'; 1000], vec![b'v'; 25]);
    let mut block = bytes::BytesMut::new();
    long.encode(&mut block);
    assert_eq!(long.encoded_len(), block.len());
    assert_eq!(Properties::decode_message(block.clone().freeze(), &Limits::server()), None);
    let wider = Limits { user_property_bytes_max: 1025, ..Limits::server() };
    assert_eq!(Properties::decode_message(block.freeze(), &wider), Some(long));
}

#[test]
fn every_property_is_written_as_it_is_read() {
    for id in PropertyId::ALL {
        let number = Properties::default().with_number(*id, 1);
        let bytes = Properties::default().with_bytes(*id, &b"x"[..]);
        for properties in [number, bytes, Properties::default().with_user(&b"a"[..], &b"b"[..])] {
            let mut block = bytes::BytesMut::new();
            properties.encode(&mut block);
            assert_eq!(block.len(), properties.encoded_len(), "{id:?}");
        }
    }
}

#[test]
fn fields_over_their_limits_are_refused() {
    let mut body = b"\0\x04MQTT\x04\x02\0\x3c\x01\x01".to_vec();
    body.extend([b'c'; 257]);
    assert_eq!(refused(&packet(0x10, &body)), (b"\x20\x02\0\x02".to_vec(), "client_id"));
    let mut body = b"\0\x04MQTT\x05\x06\0\x3c\0\0\x01c\0\0\x01w\xff\xff".to_vec();
    body.extend([0; 65_535]);
    let limits = Limits { will_bytes_max: 65_534, ..Limits::server() };
    let (_, out, error) = served_with(limits, &packet(0x10, &body));
    assert_eq!((&out[..], error.unwrap().kind().name()), (&b"\x20\x03\0\x97\0"[..], "quota"));
}

#[test]
fn properties_of_a_packet_are_not_taken_from_metadata() {
    let properties = Properties::default().with_user(&b"a"[..], &b"b"[..]);
    let mut block = bytes::BytesMut::new();
    properties
        .clone()
        .with_number(PropertyId::TopicAlias, 257)
        .with_number(PropertyId::SubscriptionId, 1)
        .with_number(PropertyId::MessageExpiry, 9)
        .encode(&mut block);
    assert_eq!(Properties::decode_message(block.freeze(), &Limits::server()), Some(properties));
}
