//! Attacks, each with the bound that it meets.

use super::peer::{Peer, STALL_MS, Sent, data, frame, message, reset, setting, window_update};
use crate::{
    Metadata, Outgoing,
    http2::frame::kind,
    wire::{ServerEvent, ServerWire},
};

const CALM: u32 = 11;
/// Tokens of a new connection.
const TOKENS: usize = 1000;

/// Repeats what `make` writes until the connection ends; returns how often.
fn flood(peer: &mut Peer, mut make: impl FnMut(&mut Peer, u32) -> Vec<u8>) -> (usize, u32, String) {
    for at in 0..100_000 {
        let bytes = make(peer, at);
        if let Err(fatal) = peer.try_events(&bytes) {
            let Some(Sent::GoAway(_, code, text)) = peer.sent().pop() else { panic!("no GOAWAY") };
            assert_eq!(fatal.0, text);
            return (at as usize, code, text);
        }
    }
    panic!("the connection does not end")
}

#[test]
fn resets_of_unanswered_streams_end_the_connection() {
    // CVE-2023-44487.
    let mut peer = Peer::new();
    let (count, code, _) = flood(&mut peer, |peer, at| {
        let id = 2 * at + 1;
        [peer.headers(id, "Both", &[], false), reset(id)].concat()
    });
    assert!((TOKENS - 10..=TOKENS).contains(&count), "{count}");
    assert_eq!(code, CALM);
    assert_eq!(peer.machine.memory().calls, 0);
}

#[test]
fn resets_that_the_peer_makes_this_side_send_end_the_connection() {
    // CVE-2025-8671.
    type Make = fn(u32) -> Vec<u8>;
    let cases: [Make; 5] = [
        |id| window_update(id, 0),
        |id| window_update(id, (1 << 31) - 1),
        |id| [data(id, b"", true), data(id, b"", true)].concat(),
        |id| frame(kind::PRIORITY, 0, id, &[&id.to_be_bytes()[..], &[1]].concat()),
        |id| frame(kind::HEADERS, 4, id, b"\x00\x01a\x01b"),
    ];
    for make in cases {
        let mut peer = Peer::new();
        let mut canceled = 0;
        let (count, code, _) = flood(&mut peer, |peer, at| {
            let id = 2 * at + 1;
            let call = peer.headers(id, "Both", &[], false);
            canceled += peer.events(&call).len();
            make(id)
        });
        assert!(count <= TOKENS && code == CALM, "{count}");
        assert_eq!(canceled, count + 1);
        assert!(peer.machine.memory().calls <= 1);
    }
    // Bodies past their length.
    let mut peer = Peer::new();
    let (count, code, _) = flood(&mut peer, |peer, at| {
        let id = 2 * at + 1;
        let head = peer.headers(id, "Unary", &[("content-length", "6")], false);
        [head, data(id, &message(b"longer"), true)].concat()
    });
    assert!(count <= TOKENS && code == CALM, "{count}");
}

#[test]
fn a_proxy_that_cancels_every_second_call_is_never_disconnected() {
    let mut peer = Peer::new();
    peer.events(&window_update(0, 1 << 30));
    for at in 0..20_000u32 {
        let id = 4 * at + 1;
        let call = peer.call(id, b"x");
        assert_eq!(peer.events(&call).len(), 1);
        peer.machine.reply(id, Outgoing::Lent(b"y"), &mut peer.out);
        let bytes = [peer.headers(id + 2, "Both", &[], false), reset(id + 2)].concat();
        let events = peer.events(&bytes);
        assert_eq!(events.len(), 2, "{at}: {:?}", peer.sent());
        peer.sent();
    }
}

#[test]
fn floods_of_frames_that_bring_no_call_end_the_connection() {
    type Make = fn(u32) -> Vec<u8>;
    let cases: [(&str, Make); 8] = [
        ("SETTINGS", |_| setting(4, 65_535)),
        ("PRIORITY", |_| frame(kind::PRIORITY, 0, 3, &[0; 5])),
        ("WINDOW_UPDATE", |_| window_update(0, 1)),
        ("RST_STREAM", |_| reset(1)),
        ("unknown", |_| frame(0xbe, 0, 0, b"")),
        ("GOAWAY", |_| frame(kind::GOAWAY, 0, 0, &[0; 8])),
        ("empty DATA", |_| data(3, b"", false)),
        ("tiny DATA", |_| data(3, b"\0", false)),
    ];
    for (name, make) in cases {
        let mut peer = Peer::new();
        let call = peer.call(1, b"");
        peer.open(&call);
        peer.machine.end(1, Ok(&Metadata::new()), &mut peer.out);
        let call = peer.headers(3, "Both", &[], false);
        peer.open(&call);
        let start = if name == "tiny DATA" { data(3, &[0, 0, 2, 0, 0], false) } else { Vec::new() };
        peer.events(&start);
        let (count, code, _) = flood(&mut peer, |_, at| make(at));
        assert!((TOKENS / 2..TOKENS + 20).contains(&count), "{name}: {count}");
        assert_eq!(code, CALM, "{name}");
    }
}

#[test]
fn early_pings_of_an_idle_peer_end_the_connection() {
    let mut peer = Peer::new();
    let (count, code, text) = flood(&mut peer, |_, _| frame(kind::PING, 0, 0, &[0; 8]));
    assert_eq!((count, code, &*text), (3, CALM, "too_many_pings"));
    let mut late = Peer::new();
    for at in 0..100 {
        late.machine.at(1000 * at);
        late.events(&frame(kind::PING, 0, 0, &[0; 8]));
    }
}

#[test]
fn floods_of_continuation_end_the_connection() {
    for piece in [&b""[..], &[0; 8000]] {
        let mut peer = Peer::new();
        let mut headers = peer.headers(1, "Unary", &[], false);
        headers[4] = 0;
        peer.events(&headers);
        let (count, code, text) = flood(&mut peer, |_, _| frame(kind::CONTINUATION, 0, 1, piece));
        assert!(count <= 16 && code == CALM, "{count} {text}");
    }
    // A single frame over the limit is refused before it arrives.
    let mut peer = Peer::new();
    let (code, text) = peer.fatal(&[1, 0x11, 0, 1, 4, 0, 0, 0, 1]);
    assert!(code == CALM && text.contains("metadata_bytes_max"), "{text}");
}

#[test]
fn blocks_that_grow_without_bytes_end_the_connection() {
    // CVE-2016-6581 by size, CVE-2026-49975 by number.
    let mut by_size = Peer::new();
    let large = [&b"\x40\x01a\x7f\x81\x1e"[..], &[b'v'; 4000]].concat();
    let block = [&large[..], &[0xbe; 4000]].concat();
    assert_eq!(by_size.fatal(&frame(kind::HEADERS, 4, 1, &block)).0, CALM);
    let mut by_number = Peer::new();
    let block = [&b"\x40\x06cookie\x00"[..], &[0xbe; 8000]].concat();
    assert_eq!(by_number.fatal(&frame(kind::HEADERS, 4, 1, &block)).0, CALM);
}

#[test]
fn windows_that_are_opened_byte_by_byte_end_the_connection() {
    let mut peer = Peer::new();
    peer.events(&setting(4, 0));
    let call = peer.call(1, b"");
    peer.open(&call);
    peer.machine.reply(1, Outgoing::Lent(&[7; 100_000]), &mut peer.out);
    assert_eq!(peer.machine.waiting_bytes(), 100_005);
    // Each piece that is sent allows an update of two windows, so this ends with the window of the connection.
    peer.events(&setting(4, 65_000));
    for _ in 0..10 {
        peer.events(&window_update(1, 60_000));
    }
    let (count, code, _) = flood(&mut peer, |_, _| window_update(1, 1));
    assert!(count <= TOKENS && code == CALM, "{count}");
}

#[test]
fn replies_that_are_never_read_are_held_by_reference_and_counted() {
    let mut peer = Peer::new();
    peer.events(&setting(4, 0));
    let reply = bytes::Bytes::from(vec![7; 1 << 20]);
    for at in 0..100u32 {
        let id = 2 * at + 1;
        let call = peer.call(id, b"");
        peer.open(&call);
        peer.machine.reply(id, (&reply).into(), &mut peer.out);
        assert_eq!(peer.machine.waiting_bytes(), (at as usize + 1) * (reply.len() + 5));
    }
    assert!(peer.out.len() < 10_000);
    for at in 0..100u32 {
        assert!(peer.events(&reset(2 * at + 1)).is_empty(), "the driver has ended the call");
    }
    assert_eq!((peer.machine.waiting_bytes(), peer.machine.memory().calls), (0, 0));
}

#[test]
fn streams_whose_windows_are_never_opened_are_reset() {
    let mut peer = Peer::new();
    peer.events(&setting(4, 0));
    let calls = [peer.call(1, b""), peer.headers(3, "Both", &[], false)].concat();
    assert_eq!(peer.events(&calls).len(), 2);
    let item = bytes::Bytes::from_static(b"x");
    peer.machine.reply(1, (&item).into(), &mut peer.out);
    peer.machine.item(3, &item, false, &mut peer.out);
    // Credit is progress.
    peer.machine.at(STALL_MS - 1);
    peer.events(&window_update(3, 5));
    peer.machine.at(2 * STALL_MS - 2);
    let ack = frame(kind::PING, 1, 0, &[0; 8]);
    assert!(matches!(peer.events(&ack)[..], [ServerEvent::Pong]));
    // Credit of one stream is no progress of the other.
    assert!(peer.sent().contains(&Sent::Reset(1, 8)));
    peer.machine.at(2 * STALL_MS - 1);
    let events = peer.events(&ack);
    assert!(matches!(events[..], [ServerEvent::Cancel { id: 3 }, ServerEvent::Pong]), "{events:?}");
    let sent = peer.sent();
    assert!(sent.contains(&Sent::Reset(3, 8)), "{sent:?}");
    assert_eq!((peer.machine.waiting_bytes(), peer.machine.memory().calls), (0, 0));
}

#[test]
fn data_over_the_windows_is_an_error() {
    let mut peer = Peer::new();
    let call = peer.headers(1, "Both", &[], false);
    peer.open(&call);
    peer.sent();
    let piece = [&[0, 0, 16, 0, 0][..], &vec![0; (1 << 20) - 5]].concat();
    peer.events(&data(1, &piece, false));
    // The message was let in, and nothing beyond it.
    let events = peer.events(&data(1, &vec![0; 1 << 20], false));
    assert!(
        matches!(
            events[..],
            [ServerEvent::Item { .. }, ServerEvent::Cancel { id: 1 }] | [ServerEvent::Cancel { id: 1 }]
        ),
        "{events:?}"
    );
    assert!(peer.sent().contains(&Sent::Reset(1, 3)));
    assert_eq!(peer.machine.held, 0);
}

#[test]
fn a_thousand_uploads_hold_no_more_than_their_windows() {
    let mut peer = Peer::new();
    for at in 0..1000u32 {
        let id = 2 * at + 1;
        let call = peer.headers(id, "Unary", &[], false);
        peer.events(&call);
        peer.events(&data(id, &[0, 0, 64, 0, 0], false));
        peer.events(&data(id, &[7; 1000], false));
        peer.sent();
    }
    let memory = peer.machine.memory();
    assert_eq!(memory.calls, 1000);
    assert!(memory.bytes < 1000 * (34 << 10), "{} bytes", memory.bytes);
    let call = peer.headers(2001, "Unary", &[], false);
    peer.events(&call);
    assert_eq!(peer.sent(), [Sent::Reset(2001, 7)], "above the announced number of streams");
    for at in 0..1000u32 {
        peer.machine.end(2 * at + 1, Err(&crate::Status::aborted("")), &mut peer.out);
    }
    assert_eq!((peer.machine.held, peer.machine.memory().calls), (0, 0));
}

#[test]
fn whole_requests_that_do_not_end_are_counted() {
    let mut peer = Peer::new();
    for at in 0..100u32 {
        let id = 2 * at + 1;
        let more = [("x-a", &*"v".repeat(100))];
        let head = peer.headers(id, "Unary", if at % 2 == 0 { &[] } else { &more }, false);
        peer.events(&head);
        peer.events(&data(id, &message(&[7; 10_000]), false));
    }
    let held = peer.machine.held;
    assert!(held > 100 * 10_000 + 50 * 100, "{held} bytes");
    assert!(peer.machine.has_partial_calls());
    // They end in each possible way.
    for at in 0..100u32 {
        let id = 2 * at + 1;
        peer.events(&match at % 3 {
            0 => data(id, b"", true),
            1 => reset(id),
            _ => data(id, &message(b"one too many"), true),
        });
        peer.machine.end(id, Ok(&Metadata::new()), &mut peer.out);
    }
    assert_eq!((peer.machine.held, peer.machine.memory().calls), (0, 0));
}

#[test]
fn callers_whose_time_is_over_are_never_disconnected() {
    let mut peer = Peer::new();
    for at in 0..5000u32 {
        let id = 2 * at + 1;
        let call = peer.headers(id, "Both", &[], false);
        peer.events(&call);
        if at >= 500 {
            peer.events(&reset(id - 1000));
        }
        peer.machine.at(u64::from(at));
        peer.sent();
    }
}
