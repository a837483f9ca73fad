//! Rules of RFC 9113: each violation has its code, for the stream or for the connection.

use super::peer::{FIELDS, Peer, Sent, data, frame, message, reset, setting, window_update};
use crate::{
    Encodings, Limits,
    http2::{
        frame::{flag, kind},
        server::{Server, ServerOptions},
    },
    wire::{ServerEvent, ServerWire},
};

const PROTOCOL: u32 = 1;
const FLOW: u32 = 3;
const CLOSED: u32 = 5;
const SIZE: u32 = 6;
const REFUSED: u32 = 7;
const COMPRESSION: u32 = 9;

#[test]
fn violations_that_end_the_connection() {
    let whole = |peer: &mut Peer| {
        let call = peer.call(1, b"");
        peer.events(&call);
        peer.machine.end(1, Ok(&crate::Metadata::new()), &mut peer.out);
    };
    type Make = fn(&mut Peer) -> Vec<u8>;
    let cases: [(&str, u32, Make); 20] = [
        ("DATA on stream 0", PROTOCOL, |_| data(0, b"", false)),
        ("DATA on an idle stream", PROTOCOL, |_| data(3, b"", false)),
        ("HEADERS on stream 0", PROTOCOL, |_| frame(kind::HEADERS, 4, 0, b"")),
        ("an even stream", PROTOCOL, |peer| peer.headers(2, "Unary", &[], true)),
        ("RST_STREAM on an idle stream", PROTOCOL, |_| reset(3)),
        ("WINDOW_UPDATE on an idle stream", PROTOCOL, |_| window_update(3, 1)),
        ("PUSH_PROMISE", PROTOCOL, |_| frame(kind::PUSH_PROMISE, 4, 1, &[0; 4])),
        ("SETTINGS on a stream", PROTOCOL, |_| frame(kind::SETTINGS, 0, 1, b"")),
        ("an increment of 0", PROTOCOL, |_| window_update(0, 0)),
        ("a window over 2^31 - 1", FLOW, |_| window_update(0, (1 << 31) - 1)),
        ("a setting out of its range", FLOW, |_| setting(4, 1 << 31)),
        ("a PING of 7 bytes", SIZE, |_| frame(kind::PING, 0, 0, &[0; 7])),
        ("a frame over the limit", SIZE, |_| vec![0x10, 0, 1, 0, 0, 0, 0, 0, 1]),
        ("CONTINUATION alone", PROTOCOL, |_| frame(kind::CONTINUATION, 4, 1, b"")),
        ("an interrupted block", PROTOCOL, |peer| {
            let mut headers = peer.headers(3, "Unary", &[], false);
            headers[4] = 0;
            [headers, data(1, b"", false)].concat()
        }),
        ("CONTINUATION of another stream", PROTOCOL, |peer| {
            let mut headers = peer.headers(3, "Unary", &[], false);
            headers[4] = 0;
            [headers, frame(kind::CONTINUATION, 4, 5, b"")].concat()
        }),
        ("a block that is cut short", COMPRESSION, |_| frame(kind::HEADERS, 4, 3, b"\x40\x0a")),
        ("an index beyond the table", COMPRESSION, |_| frame(kind::HEADERS, 4, 3, b"\xff\xff\x0f")),
        ("a lower stream", PROTOCOL, |peer| {
            let high = peer.headers(101, "Both", &[], false);
            [high, peer.headers(99, "Unary", &[], true)].concat()
        }),
        ("HEADERS on an ended stream", CLOSED, |peer| peer.headers(1, "Unary", &[], true)),
    ];
    for (name, code, make) in cases {
        let mut peer = Peer::new();
        whole(&mut peer);
        let bytes = make(&mut peer);
        let (found, text) = peer.fatal(&bytes);
        assert_eq!(found, code, "{name}: {text}");
        assert!(!text.is_empty(), "{name}");
    }
}

#[test]
fn violations_that_end_a_stream() {
    type Make = fn(&mut Peer) -> Vec<u8>;
    let cases: [(&str, u32, Make); 7] = [
        ("DATA after the end", CLOSED, |_| [data(1, b"", true), data(1, b"", false)].concat()),
        ("HEADERS after the end", CLOSED, |peer| {
            [data(1, b"", true), frame(kind::HEADERS, 5, 1, &peer.block(&[("x", "y")]))].concat()
        }),
        ("an increment of 0", PROTOCOL, |_| window_update(1, 0)),
        ("a window over 2^31 - 1", FLOW, |_| window_update(1, (1 << 31) - 1)),
        ("trailers that do not end the stream", PROTOCOL, |peer| {
            frame(kind::HEADERS, 4, 1, &peer.block(&[("x", "y")]))
        }),
        ("trailers with a pseudo-field", PROTOCOL, |peer| {
            frame(kind::HEADERS, 5, 1, &peer.block(&[(":path", "/")]))
        }),
        ("a priority of itself", PROTOCOL, |_| frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 9])),
    ];
    for (name, code, make) in cases {
        let mut peer = Peer::new();
        let call = peer.headers(1, "Both", &[], false);
        peer.open(&call);
        peer.sent();
        let bytes = make(&mut peer);
        let events = peer.events(&bytes);
        assert!(matches!(events.last(), Some(ServerEvent::Cancel { id: 1 })), "{name}: {events:?}");
        assert!(peer.sent().contains(&Sent::Reset(1, code)), "{name}");
        // The connection goes on.
        let call = peer.call(3, b"x");
        assert_eq!(peer.open(&call).0, 3, "{name}");
    }
}

#[test]
fn malformed_requests_are_reset() {
    let good = [&[(":path", "/a.B/Unary")][..], &FIELDS].concat();
    let mut cases: Vec<Vec<(&str, &str)>> = Vec::new();
    for (name, value) in [
        ("Upper", "x"),
        ("connection", "close"),
        ("te", "gzip"),
        (":path", "/again"),
        (":unknown", "x"),
        ("content-length", "1"),
        ("content-length", "x"),
        ("x", "a\nb"),
    ] {
        cases.push([&good[..], &[(name, value)]].concat());
    }
    for at in 0..3 {
        let mut without = good.clone();
        without.remove(at);
        cases.push(without);
    }
    let mut peer = Peer::new();
    for (at, fields) in cases.iter().enumerate() {
        let id = 2 * at as u32 + 1;
        let block = peer.block(fields);
        let bytes = [
            frame(kind::HEADERS, flag::END_HEADERS, id, &block),
            data(id, &message(b"longer than one byte"), true),
        ]
        .concat();
        let events = peer.events(&bytes);
        assert!(events.is_empty(), "{fields:?}: {events:?}");
        assert_eq!(peer.sent(), [Sent::Reset(id, PROTOCOL)], "{fields:?}");
    }
}

#[test]
fn blocks_may_have_padding_a_priority_and_several_frames() {
    let mut peer = Peer::new();
    let block = peer.block(&[&[(":path", "/a.B/Unary")][..], &FIELDS].concat());
    let padded = [&[3][..], &[0, 0, 0, 0, 9], &block[..10], &[0; 3]].concat();
    let mut bytes = frame(kind::HEADERS, flag::PADDED | flag::PRIORITY, 1, &padded);
    bytes.extend(frame(kind::CONTINUATION, 0, 1, &block[10..12]));
    bytes.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[12..]));
    bytes.extend(data(1, &message(b"x"), true));
    assert_eq!(peer.open(&bytes).0, 1);
}

#[test]
fn streams_above_the_limit_are_refused_and_can_be_repeated() {
    let limits = Limits { calls_max: 2, ..Limits::default() };
    let mut peer = Peer::with(limits, Encodings::NONE);
    for id in [1, 3] {
        let call = peer.headers(id, "Both", &[], false);
        peer.open(&call);
    }
    let call = peer.headers(5, "Both", &[], false);
    assert!(peer.events(&call).is_empty());
    assert_eq!(peer.sent().pop(), Some(Sent::Reset(5, REFUSED)));
    assert!(peer.events(&data(5, b"late", true)).is_empty() && peer.sent().is_empty());
    peer.machine.end(1, Ok(&crate::Metadata::new()), &mut peer.out);
    let call = peer.headers(7, "Both", &[], false);
    assert_eq!(peer.open(&call).0, 7);
}

#[test]
fn lists_over_the_limit_are_refused_for_their_stream() {
    let mut peer = Peer::new();
    let long = "v".repeat(3000);
    let names: Vec<String> = (0..6).map(|at| format!("x-{at}")).collect();
    let more: Vec<_> = names.iter().map(|name| (&**name, &*long)).collect();
    let bytes = peer.headers(1, "Unary", &more, false);
    let events = peer.events(&bytes);
    let [ServerEvent::Refused { id: 1, status }] = &events[..] else { panic!("{events:?}") };
    assert!(status.message().contains("metadata_bytes_max"), "{status}");
    peer.machine.end(1, Err(status), &mut peer.out);
    let call = peer.call(3, b"x");
    assert_eq!(peer.open(&call).0, 3, "the table is known");
    let many: Vec<_> = (0..70).map(|_| ("x", "y")).collect();
    let bytes = peer.headers(5, "Unary", &many, false);
    let events = peer.events(&bytes);
    let [ServerEvent::Refused { id: 5, status }] = &events[..] else { panic!("{events:?}") };
    assert!(status.message().contains("metadata_entries_max"), "{status}");
}

#[test]
fn the_first_bytes_are_a_preface_and_settings() {
    let fresh =
        || Server::new(Limits::default(), super::peer::table(), Encodings::NONE, ServerOptions::default());
    let preface = crate::http2::frame::PREFACE;
    let cases = [b"GET / HTTP/1.1\r\n".to_vec(), [&preface[..], &frame(kind::PING, 0, 0, &[0; 8])].concat()];
    for bytes in cases {
        let mut side = crate::foreign::side::Side::new(fresh());
        assert!(!side.fatal(&bytes).is_empty());
    }
    let mut peer = Peer::new();
    peer.events(&setting(1, 0));
    assert_eq!(peer.sent(), [Sent::Settings(true)]);
    let call = peer.call(1, b"");
    peer.open(&call);
    peer.machine.reply(1, crate::Outgoing::EMPTY, &mut peer.out);
    // Both heads are decoded by a table of no bytes.
    assert!(peer.machine.sending.encoder.generation() == 0);
    peer.events(&frame(kind::PING, 0, 0, b"12345678"));
    assert_eq!(peer.sent().pop(), Some(Sent::Ping(true, *b"12345678")));
    peer.events(&frame(0xbe, 0xff, 7, &[0; 100]));
    assert!(peer.sent().is_empty(), "unknown frames are ignored");
}
