use super::*;
use crate::{Input, Outbox};
use bytes::BytesMut;

pub(super) const LIMITS: Limits = Limits { frame_bytes_max: 70_000, message_bytes_max: 100_000 };

/// Returns the result of a server for these bytes: events, payload, output, and whether it ended with an error.
fn serve(bytes: &[u8], step: usize) -> (Vec<Event>, Vec<u8>, Vec<u8>, bool) {
    run(WebSocket::new(Role::Server, LIMITS), bytes, step)
}

pub(super) fn run(mut machine: WebSocket, bytes: &[u8], step: usize) -> (Vec<Event>, Vec<u8>, Vec<u8>, bool) {
    let (mut input, mut payload, mut out) = (Input::default(), BytesMut::new(), Outbox::new());
    let mut events: Vec<Event> = Vec::new();
    for piece in bytes.chunks(step.max(1)) {
        input.extend(piece);
        loop {
            match machine.recv(&mut input, &mut payload, &mut out) {
                // Parts of a message depend on the split of its bytes.
                Ok(Some(Event::Data { last: false, .. })) => {}
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(_) => return (events, payload.to_vec(), out.take_all(), true),
            }
        }
    }
    (events, payload.to_vec(), out.take_all(), false)
}

/// Builds a masked frame of a client.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xFA, 0x21, 0x3D];
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..=125 => bytes.push(0x80 | len as u8),
        len @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

pub(super) fn whole(kind: Kind) -> Event {
    Event::Data { kind, last: true }
}

fn closed(code: u16) -> Event {
    Event::Closed(Some(Close { code, reason: String::new() }))
}

#[test]
fn messages_arrive_for_any_size_and_split() {
    for size in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
        let sent: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let bytes = frame(0x82, &sent);
        for step in [1, 3, 1000, bytes.len()] {
            let (events, payload, out, fatal) = serve(&bytes, step);
            assert_eq!(events, [whole(Kind::Binary)], "{size} by {step}");
            assert!(payload == sent && out.is_empty() && !fatal, "{size} by {step}");
        }
    }
}

#[test]
fn the_samples_of_the_rfc_are_understood() {
    let masked_hello = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(serve(masked_hello, 1).1, b"Hello");
    assert_eq!(frame(0x81, b"Hello"), masked_hello);
    let (events, _, out, _) = serve(b"\x89\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", 4);
    assert_eq!((events, &out[..]), (vec![], &b"\x8a\x05Hello"[..]));
    // A client receives unmasked frames.
    let mut machine = WebSocket::new(Role::Client { seed: 1 }, LIMITS);
    let (mut input, mut payload, mut out) = (Input::default(), BytesMut::new(), Outbox::new());
    input.extend(b"\x01\x03Hel\x80\x02lo\x8a\x05Hello");
    let mut next = || machine.recv(&mut input, &mut payload, &mut out).unwrap();
    assert_eq!(next(), Some(Event::Data { kind: Kind::Text, last: false }));
    assert_eq!(next(), Some(whole(Kind::Text)));
    assert_eq!(next(), Some(Event::Pong));
    assert_eq!(next(), None);
    assert_eq!(&payload[..], b"Hello");
}

#[test]
fn fragments_make_one_message_with_control_frames_in_between() {
    let bytes = [
        frame(1, "κό".as_bytes()),
        frame(0x89, b"x"),
        frame(0, &"σμε".as_bytes()[..3]),
        frame(0, b""),
        frame(0x80, &"σμε".as_bytes()[3..]),
    ];
    for step in [1, 2, 7, 100] {
        let (events, payload, out, fatal) = serve(&bytes.concat(), step);
        assert_eq!((events, fatal), (vec![whole(Kind::Text)], false));
        assert_eq!(payload, "κόσμε".as_bytes());
        assert_eq!(out, b"\x8a\x01x");
    }
    // An empty last fragment ends the message.
    let (events, payload, ..) = serve(&[frame(2, b"ab"), frame(0x80, b"")].concat(), 100);
    assert_eq!((events, &payload[..]), (vec![whole(Kind::Binary)], &b"ab"[..]));
}

#[test]
fn protocol_errors_close_with_their_code() {
    let unmasked = b"\x81\x05Hello".to_vec();
    let ping_of_126 = frame(0x89, &[0; 126]);
    let too_long_len = [&b"\x82\xff\x80\0\0\0\0\0\0\0"[..], &[0; 4]].concat();
    let cases: [(&str, Vec<u8>, u16); 22] = [
        ("not masked", unmasked, 1002),
        ("rsv1", frame(0xC1, b"x"), 1002),
        ("rsv2", frame(0xA1, b"x"), 1002),
        ("rsv3", frame(0x91, b"x"), 1002),
        ("rsv on ping", frame(0xC9, b""), 1002),
        ("opcode 3", frame(0x83, b""), 1002),
        ("opcode 7", frame(0x87, b""), 1002),
        ("opcode 11", frame(0x8B, b""), 1002),
        ("opcode 15", frame(0x8F, b""), 1002),
        ("fragmented ping", frame(0x09, b"x"), 1002),
        ("long ping", ping_of_126, 1002),
        ("continuation of nothing", frame(0x80, b"x"), 1002),
        ("text inside of a message", [frame(1, b"a"), frame(0x81, b"b")].concat(), 1002),
        ("highest bit", too_long_len, 1002),
        ("length in two bytes", b"\x82\xfe\0\x05\0\0\0\0abcde".to_vec(), 1002),
        ("length in eight bytes", b"\x82\xff\0\0\0\0\0\0\xff\xff\0\0\0\0".to_vec(), 1002),
        ("frame too large", frame(0x82, &[0; 70_001]), 1009),
        ("message too large", [frame(2, &[0; 60_000]), frame(0x80, &[0; 60_000])].concat(), 1009),
        ("no utf-8", frame(0x81, b"\xce\xba\xed\xa0\x80"), 1007),
        ("utf-8 cut at the end", frame(0x81, b"\xce"), 1007),
        ("close code 999", frame(0x88, &999u16.to_be_bytes()), 1002),
        ("reason no utf-8", frame(0x88, b"\x03\xe8\xff"), 1007),
    ];
    for (name, bytes, code) in cases {
        for step in [1, bytes.len()] {
            let (events, _, out, fatal) = serve(&bytes, step);
            assert!(fatal && events.is_empty(), "{name}: {events:?}");
            assert_eq!((out[0], &out[2..4]), (0x88, &code.to_be_bytes()[..]), "{name}");
            assert_eq!(out.len(), 2 + usize::from(out[1]), "{name}");
        }
    }
}

#[test]
fn text_is_refused_before_the_frame_is_whole() {
    let bytes = frame(0x81, b"\xce\xba\xf4\x90 and much more text");
    let (_, _, out, fatal) = serve(&bytes[..10], 1);
    assert!(fatal && out[2..4] == 1007u16.to_be_bytes());
}

#[test]
fn close_codes_are_echoed_once_and_the_rest_is_ignored() {
    for code in
        [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999u16]
    {
        let bytes = [frame(0x88, &code.to_be_bytes()), frame(0x81, b"late"), frame(0x88, b"")].concat();
        let (events, payload, out, fatal) = serve(&bytes, 5);
        assert_eq!((events, fatal), (vec![closed(code)], false));
        assert!(payload.is_empty());
        assert_eq!(out, [&[0x88, 2][..], &code.to_be_bytes()].concat());
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535u16] {
        assert!(serve(&frame(0x88, &code.to_be_bytes()), 100).3, "{code}");
    }
    assert_eq!(serve(&frame(0x88, b""), 100).2, b"\x88\0");
    assert!(serve(&frame(0x88, b"\x03"), 100).3);
    let long = [&1000u16.to_be_bytes()[..], &[b'a'; 123]].concat();
    assert!(
        matches!(&serve(&frame(0x88, &long), 1).0[..], [Event::Closed(Some(close))] if close.reason.len() == 123)
    );
}

#[test]
fn after_its_own_close_a_side_sends_nothing_more() {
    let mut machine = WebSocket::new(Role::Server, LIMITS);
    let (mut input, mut payload, mut out) = (Input::default(), BytesMut::new(), Outbox::new());
    machine.close(close::GOING_AWAY, &"ä".repeat(100), &mut out);
    machine.close(close::NORMAL, "", &mut out);
    machine.send(Kind::Text, &[b"late"], &mut out);
    machine.ping(&mut out);
    assert!(!machine.head(Kind::Text, 4, &mut out));
    let written = out.take_all();
    assert_eq!((&written[..4], written.len()), (&b"\x88\x7c\x03\xe9"[..], 2 + 124));
    // Messages that the peer sent before it received the CLOSE still arrive; its CLOSE ends the connection.
    input.extend(&[frame(0x89, b""), frame(0x81, b"x"), frame(0x88, &1001u16.to_be_bytes())].concat());
    let mut next = || machine.recv(&mut input, &mut payload, &mut out).unwrap();
    assert_eq!(next(), Some(whole(Kind::Text)));
    assert_eq!(next(), Some(closed(1001)));
    assert!(out.is_empty() && machine.is_closed());
}

#[test]
fn messages_of_a_client_are_read_by_a_server() {
    let mut client = WebSocket::new(Role::Client { seed: 7 }, LIMITS);
    let mut out = Outbox::new();
    client.send(Kind::Text, &[b"one ", b"message"], &mut out);
    client.send(Kind::Binary, &[&[0; 300]], &mut out);
    client.close(close::NORMAL, "bye", &mut out);
    let bytes = out.take_all();
    assert!(!bytes.windows(7).any(|window| window == b"message"), "masked");
    let (events, payload, ..) = serve(&bytes, 9);
    let bye = Event::Closed(Some(Close { code: 1000, reason: "bye".into() }));
    assert_eq!(events, [whole(Kind::Text), whole(Kind::Binary), bye]);
    assert_eq!(payload, [&b"one message"[..], &[0; 300]].concat());
}
