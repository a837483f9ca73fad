//! Calls of gRPC of all kinds, their refusals, and their responses.

use super::peer::{FIELDS, Peer, Sent, data, frame, head, message, reset, setting, success};
use crate::{
    Code, Codec, Encoding, Encodings, Limits, Metadata, Outgoing, Retry, Status,
    http2::frame::{flag, kind},
    wire::{Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::time::Duration;

const GZIP: Encodings = Encodings(1 << Encoding::Gzip as u32);

/// Sends bytes that are refused; returns the status.
fn refused(peer: &mut Peer, bytes: &[u8]) -> Status {
    match peer.events(bytes).pop() {
        Some(ServerEvent::Refused { id, status }) => {
            peer.machine.end(id, Err(&status), &mut peer.out);
            status
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_unary_call_gets_one_response() {
    let mut peer = Peer::new();
    for id in [1, 3, 5, 7] {
        let call = peer.call(id, b"hello");
        let (opened, call, first, more) = peer.open(&call);
        assert_eq!((opened, call.codec, call.timeout, more), (id, Codec::Proto, None, false));
        assert_eq!(first.unwrap(), "hello");
        peer.machine.reply(id, Outgoing::Lent(b"world"), &mut peer.out);
        assert_eq!(peer.sent(), [head(id), Sent::Data(id, message(b"world"), false), success(id)]);
    }
    assert_eq!(peer.machine.memory().calls, 0);
}

#[test]
fn the_direct_path_reads_what_recv_reads() {
    let mut peer = Peer::new();
    let timeouts = ["5S", "7S", "7S", "7S", "100m"];
    for (at, timeout) in timeouts.into_iter().enumerate() {
        let id = 2 * at as u32 + 1;
        let (split, more) = (at % 2 == 0, [("grpc-timeout", timeout)]);
        let mut bytes = peer.headers(id, "Unary", &more, false);
        bytes.extend(data(id, &message(b"hello"), !split));
        if split {
            bytes.extend(data(id, b"", true));
        }
        peer.input.extend(&bytes);
        let Opened { method, timeout: read, len, .. } = peer.machine.next_call(&mut peer.input).unwrap();
        assert_eq!((method.0, len), (0, 5));
        assert_eq!(read, crate::http::text::timeout(timeout.as_bytes()));
        assert_eq!(peer.input.take(len), "hello");
        assert!(peer.events(b"").is_empty() && peer.input.is_empty());
        peer.machine.reply(id, Outgoing::Lent(b"x"), &mut peer.out);
        assert_eq!(peer.sent(), [head(id), Sent::Data(id, message(b"x"), false), success(id)]);
    }
    // A call that is not in its simplest form is left to `recv`, whatever of it was decoded.
    for (id, method, more) in [(11, "Unary", &[("x-a", "1")][..]), (13, "Replies", &[]), (15, "Unary", &[])] {
        let mut bytes = peer.headers(id, method, more, false);
        bytes.extend(data(id, &message(b"hello"), true));
        if id == 15 {
            bytes.truncate(bytes.len() - 1);
        }
        peer.input.extend(&bytes);
        assert!(peer.machine.next_call(&mut peer.input).is_none());
        let rest = if id == 15 { &b"o"[..] } else { b"" };
        let (opened, _, first, _) = peer.open(rest);
        assert_eq!((opened, first.as_deref()), (id, Some(&b"hello"[..])));
    }
}

#[test]
fn heads_and_messages_of_several_calls_may_alternate() {
    let mut peer = Peer::new();
    for start in [1, 21] {
        let ids: Vec<u32> = (start..start + 20).step_by(2).collect();
        let mut bytes: Vec<u8> = ids.iter().flat_map(|id| peer.headers(*id, "Unary", &[], false)).collect();
        for id in ids.iter().rev() {
            bytes.extend(data(*id, &message(&[*id as u8]), true));
        }
        peer.input.extend(&bytes);
        for id in ids.iter().rev() {
            let opened = peer.machine.next_call(&mut peer.input).unwrap();
            assert_eq!((opened.id, &peer.input.take(opened.len)[..]), (*id, &[*id as u8][..]));
            peer.machine.reply(*id, Outgoing::EMPTY, &mut peer.out);
        }
        assert!(peer.machine.next_call(&mut peer.input).is_none() && peer.input.is_empty());
    }
    // A body in another form, and one without a message.
    let bytes = [peer.headers(41, "Unary", &[], false), peer.headers(43, "Unary", &[], false)].concat();
    peer.input.extend(&bytes);
    assert!(peer.machine.next_call(&mut peer.input).is_none());
    let (id, _, first, _) =
        peer.open(&[data(41, &message(b"ab")[..6], false), data(41, b"b", true)].concat());
    assert_eq!((id, first.as_deref()), (41, Some(&b"ab"[..])));
    let (id, _, first, more) = peer.open(&data(43, b"", true));
    assert_eq!((id, first, more), (43, None, false));
}

#[test]
fn metadata_timeouts_and_codecs_are_read() {
    let mut peer = Peer::new();
    let more = [
        ("grpc-timeout", "250m"),
        ("x-a", "1"),
        ("x-a", "2"),
        ("x-bin", "AP8, AQ=="),
        ("user-agent", "t"),
        ("grpc-previous-rpc-attempts", "1"),
    ];
    // Twice: the second time every field is one of the table.
    for id in [1, 3] {
        let mut bytes = peer.headers(id, "Unary", &more, false);
        bytes.extend(data(id, &message(b""), true));
        let (_, head, first, _) = peer.open(&bytes);
        assert_eq!(head.timeout, Some(Duration::from_millis(250)));
        let entries: Vec<_> =
            head.metadata.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        let expected = [("x-a", &b"1"[..]), ("x-a", b"2"), ("x-bin", &[0, 255]), ("x-bin", &[1])]
            .map(|(name, value)| (name.to_owned(), value.to_vec()));
        assert_eq!(entries, expected);
        assert_eq!(first.unwrap(), "");
    }
    for (id, kind, codec) in [
        (5, "application/grpc+json", Codec::Json),
        (7, "application/grpc+proto", Codec::Proto),
        (9, "application/grpc+flatbuffers", Codec::FlatBuffers),
    ] {
        let mut fields = FIELDS;
        fields[4].1 = kind;
        let block = peer.block(&[&[(":path", "/a.B/Unary")][..], &fields].concat());
        let mut bytes = frame(kind::HEADERS, flag::END_HEADERS, id, &block);
        bytes.extend(data(id, &message(b""), true));
        assert_eq!(peer.open(&bytes).1.codec, codec);
        peer.sent();
        peer.machine.reply(id, Outgoing::EMPTY, &mut peer.out);
        let Sent::Headers(_, text, _) = &peer.sent()[0] else { panic!("no head") };
        assert!(text.ends_with(kind), "{text}");
    }
}

#[test]
fn all_kinds_of_streams() {
    let mut peer = Peer::new();
    // Replies: opens with its whole request.
    let mut bytes = peer.headers(1, "Replies", &[], false);
    bytes.extend(data(1, &message(b"q"), false));
    assert!(peer.events(&bytes).is_empty());
    let (id, _, first, more) = peer.open(&data(1, b"", true));
    assert_eq!((id, first.as_deref(), more), (1, Some(&b"q"[..]), false));
    let mut metadata = Metadata::new();
    metadata.insert("x-a", "1").unwrap();
    peer.machine.head(1, &metadata, &mut peer.out);
    for item in ["a", "b"] {
        peer.machine.item(1, &Bytes::from_static(item.as_bytes()), false, &mut peer.out);
    }
    peer.machine.end(1, Ok(&metadata), &mut peer.out);
    let texts = ["content-type=application/grpc x-a=1", "grpc-status=0 x-a=1"];
    assert_eq!(
        peer.sent(),
        [
            Sent::Headers(1, format!(":status=200 {}", texts[0]), false),
            Sent::Data(1, message(b"a"), false),
            Sent::Data(1, message(b"b"), false),
            Sent::Headers(1, texts[1].into(), true)
        ]
    );
    // Uploads: opens at its head, and messages follow.
    for (id, method) in [(3, "Uploads"), (5, "Both")] {
        let bytes = peer.headers(id, method, &[], false);
        let (opened, _, first, more) = peer.open(&bytes);
        assert_eq!((opened, first, more), (id, None, true));
        let bytes = [message(b"a"), message(b""), message(b"ccc")].concat();
        let events = peer.events(&data(id, &bytes, true));
        let items: Vec<_> = events
            .iter()
            .map(|event| match event {
                ServerEvent::Item { item, compressed: false, .. } => item.to_vec(),
                ServerEvent::HalfClose { .. } => b"end".to_vec(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(items, [&b"a"[..], b"", b"ccc", b"end"]);
        peer.machine.reply(id, Outgoing::Lent(b"r"), &mut peer.out);
        assert_eq!(peer.sent(), [head(id), Sent::Data(id, message(b"r"), false), success(id)]);
    }
    assert_eq!(peer.machine.memory().calls, 0);
}

#[test]
fn failures_have_one_head_and_end_the_request() {
    let mut peer = Peer::new();
    let bytes = peer.headers(1, "Both", &[], false);
    peer.open(&bytes);
    let status = Status::not_found("no ü").with_detail("a.D", &b"x"[..]);
    peer.machine.end(1, Err(&status), &mut peer.out);
    let sent = peer.sent();
    let Sent::Headers(1, text, true) = &sent[0] else { panic!("{sent:?}") };
    let start = ":status=200 content-type=application/grpc grpc-status=5 grpc-message=no %C3%BC grpc-status-details-bin=";
    assert!(text.starts_with(start), "{text}");
    // The peer has not ended its side: it need not, and what it still sends is dropped.
    assert_eq!(sent[1..], [Sent::Reset(1, 0)]);
    assert!(peer.events(&data(1, &message(b"late"), true)).is_empty());
    assert!(peer.sent().is_empty());
}

#[test]
fn calls_that_cannot_be_read_get_their_status() {
    let mut peer = Peer::with(Limits::default(), GZIP);
    let wrong = |name, value| [(name, value)];
    for (id, method, more, code, text) in [
        (1, "None", None, Code::Unimplemented, "a.B/None"),
        (3, "Unary", Some(wrong("grpc-timeout", "5x")), Code::Internal, "malformed grpc-timeout"),
        (5, "Unary", Some(wrong("grpc-encoding", "br")), Code::Unimplemented, "\"br\""),
        (7, "Unary", Some(wrong("grpc-encoding", "zstd")), Code::Unimplemented, "gzip,identity"),
        (9, "Unary", Some(wrong("x-bin", "!")), Code::InvalidArgument, "x-bin is not base64"),
    ] {
        let bytes = peer.headers(id, method, more.as_ref().map_or(&[], |more| &more[..]), false);
        let status = refused(&mut peer, &bytes);
        assert_eq!(status.code(), code);
        assert!(status.message().contains(text), "{status}");
        let sent = peer.sent();
        let Sent::Headers(_, fields, true) = &sent[0] else { panic!("{sent:?}") };
        assert!(fields.contains("grpc-accept-encoding=gzip,identity"), "{fields}");
        assert_eq!(sent[1], Sent::Reset(id, 0));
    }
    let mut fields = FIELDS;
    for (id, kind, status) in [(11, "application/grpc-web", 415), (13, "text/plain", 415)] {
        fields[4].1 = kind;
        let block = peer.block(&[&[(":path", "/a.B/Unary")][..], &fields].concat());
        let bytes =
            [frame(kind::HEADERS, flag::END_HEADERS, id, &block), data(id, &[9; 100], false)].concat();
        assert!(peer.events(&bytes).is_empty() && peer.sent().is_empty());
        assert!(peer.events(&data(id, b"", true)).is_empty());
        let sent = peer.sent();
        assert!(matches!(&sent[0], Sent::Headers(_, text, false) if text.contains(&status.to_string())));
        assert!(matches!(&sent[1], Sent::Data(_, text, false) if text.ends_with(b"gRPC only")));
        assert_eq!(sent[2], Sent::Data(id, Vec::new(), true));
    }
    assert_eq!(peer.machine.memory().calls, 0);
}

#[test]
fn bodies_that_cannot_be_read_get_their_status() {
    let mut peer = Peer::new();
    let too_long = [&[0, 0, 0, 0, 5][..], b"12"].concat();
    let cases = [
        ("Unary", vec![2, 0, 0, 0, 0], Code::Internal, "flag 2"),
        ("Unary", vec![1, 0, 0, 0, 1, 9], Code::Internal, "names no encoding"),
        ("Small", too_long, Code::ResourceExhausted, "limit of 4 bytes"),
        ("Unary", [message(b"1"), message(b"2")].concat(), Code::Unimplemented, "one request message"),
        ("Unary", vec![0, 0, 0, 0, 9, 9], Code::Internal, "inside a message"),
        ("Both", vec![0, 0, 0], Code::Internal, "inside a message"),
    ];
    for (at, (method, body, code, text)) in cases.into_iter().enumerate() {
        let id = 2 * at as u32 + 1;
        let bytes = [peer.headers(id, method, &[], false), data(id, &body, true)].concat();
        let status = refused(&mut peer, &bytes);
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
    assert_eq!(peer.machine.memory().calls, 0);
    assert_eq!(peer.machine.held, 0);
    // None at all is for the driver, which knows the kind of the method.
    let bytes = peer.headers(21, "Unary", &[], true);
    let (_, _, first, more) = peer.open(&bytes);
    assert_eq!((first, more), (None, false));
}

#[test]
fn messages_for_which_there_is_no_memory_are_refused_at_their_length() {
    let mut peer = Peer::new();
    peer.machine.take_at_most(100);
    let bytes = [peer.headers(1, "Unary", &[], false), data(1, &[0, 0, 0, 0, 101], false)].concat();
    let status = refused(&mut peer, &bytes);
    assert!(status.message().contains("memory_bytes_max"), "{status}");
    assert!(matches!(status.retry(), Retry::After(_)));
}

#[test]
fn compressed_messages_are_marked_in_both_directions() {
    let mut peer = Peer::with(Limits::default(), GZIP);
    let more = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, gzip")];
    let mut bytes = peer.headers(1, "Unary", &more, false);
    bytes.extend(data(1, &[1, 0, 0, 0, 2, b'z', b'z'], true));
    let Some(ServerEvent::Open { head, first, compressed: true, .. }) = peer.events(&bytes).pop() else {
        panic!("not compressed")
    };
    assert_eq!(
        (head.encoding, head.replies, first.as_deref()),
        (Encoding::Gzip, Encoding::Gzip, Some(&b"zz"[..]))
    );
    peer.machine.reply_with(1, Outgoing::Lent(b"yy"), true, &Metadata::new(), &mut peer.out);
    let sent = peer.sent();
    assert!(matches!(&sent[0], Sent::Headers(1, text, false) if text.contains("grpc-encoding=gzip")));
    assert_eq!(sent[1], Sent::Data(1, vec![1, 0, 0, 0, 2, b'y', b'y'], false));
}

#[test]
fn canceled_calls_are_reported_and_forgotten() {
    let mut peer = Peer::new();
    let bytes = [peer.headers(1, "Both", &[], false), reset(1)].concat();
    let events = peer.events(&bytes);
    assert!(matches!(events[..], [ServerEvent::Open { .. }, ServerEvent::Cancel { id: 1 }]), "{events:?}");
    // A response that was on its way is not sent.
    peer.machine.reply(1, Outgoing::Lent(b"x"), &mut peer.out);
    assert!(peer.sent().is_empty());
    // A call that the driver does not know yet is dropped silently.
    let bytes =
        [peer.headers(3, "Unary", &[], false), data(3, &message(b"12")[..6], false), reset(3)].concat();
    assert!(peer.events(&bytes).is_empty());
    assert_eq!((peer.machine.held, peer.machine.memory().calls), (0, 0));
}

#[test]
fn replies_in_parts_and_large_ones_are_whole() {
    let mut peer = Peer::new();
    let call = peer.call(1, b"");
    peer.open(&call);
    let parts = [Bytes::from(vec![1; 20_000]), Bytes::from(vec![2; 9_000])];
    peer.machine.reply_parts(1, &parts, &mut peer.out);
    let mut body = Vec::new();
    for sent in peer.sent() {
        if let Sent::Data(1, part, false) = sent {
            assert!(part.len() <= 16_384, "larger than the peer's frames");
            body.extend(part);
        }
    }
    assert_eq!(body, message(&parts.concat()));
}

#[test]
fn a_drain_has_two_steps() {
    let mut peer = Peer::new();
    let call = peer.headers(1, "Both", &[], false);
    peer.open(&call);
    peer.machine.drain("going away", &mut peer.out);
    let ping = *b"draining";
    let notice = Sent::GoAway((1 << 31) - 1, 0, "going away".into());
    assert_eq!(peer.sent(), [notice, Sent::Ping(false, ping)]);
    let crossed = peer.headers(3, "Both", &[], false);
    assert_eq!(peer.open(&crossed).0, 3, "a call that crossed the notice");
    peer.events(&frame(kind::PING, flag::ACK, 0, &ping));
    assert_eq!(peer.sent(), [Sent::GoAway(3, 0, String::new())]);
    let late = peer.headers(5, "Both", &[], false);
    assert!(peer.events(&late).is_empty());
    assert_eq!(peer.sent(), [Sent::Reset(5, 7)]);
    for id in [1, 3] {
        peer.machine.reply(id, Outgoing::EMPTY, &mut peer.out);
    }
    assert!(peer.sent().contains(&success(3)));
    // Without a response to the PING, the driver ends the notice period.
    let mut silent = Peer::new();
    silent.machine.drain("going away", &mut silent.out);
    silent.machine.refuse();
    assert!(!silent.machine.close(&mut silent.out));
    assert_eq!(silent.sent().pop(), Some(Sent::GoAway(0, 0, String::new())));
}

#[test]
fn the_timeout_counts_from_the_head() {
    // In one frame, which the direct path reads, and in two.
    for split in [5, 3] {
        let mut peer = Peer::new();
        for (id, waited, left) in [(1, 600, 400), (3, 1500, 0)] {
            let head = peer.headers(id, "Unary", &[("grpc-timeout", "1S")], false);
            peer.machine.at(0);
            peer.input.extend(&head);
            assert!(peer.machine.next_call(&mut peer.input).is_none());
            peer.machine.at(waited);
            let body = message(b"");
            peer.input.extend(&[data(id, &body[..split], false), data(id, &body[split..], true)].concat());
            let timeout = match peer.machine.next_call(&mut peer.input) {
                Some(opened) => opened.timeout,
                None => peer.open(b"").1.timeout,
            };
            assert_eq!(timeout, Some(Duration::from_millis(left)));
            assert!(peer.events(b"").is_empty());
        }
    }
}

#[test]
fn a_size_update_is_written_once() {
    let mut peer = Peer::new();
    peer.events(&setting(1, 4000));
    peer.sent();
    for (id, has_update) in [(1, true), (3, false), (5, false)] {
        let call = peer.call(id, b"");
        peer.open(&call);
        peer.machine.reply(id, Outgoing::EMPTY, &mut peer.out);
        let bytes = peer.out.take_all();
        // The first byte of the block of the head.
        assert_eq!(bytes[9] & 0xe0 == 0x20, has_update, "{id}");
    }
}
