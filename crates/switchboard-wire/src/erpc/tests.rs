//! Conversations with a mock peer, in bytes recorded from erpc 7.2.2 for Go.

use super::{Client, Framing, HEAD_BYTES_MAX, NAME_BYTES_MAX, Names, Server, Settings, message::Message};
use crate::{
    Code, Codec, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Origin, Outbox, Outgoing, Retry,
    ServiceInfo, Status,
    foreign::side::{OPEN, Side, bytes},
    wire::{ClientEvent, ClientWire, Open, Push, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{borrow::Cow, sync::Arc, time::Duration};

static PAGE: ServiceInfo = ServiceInfo {
    name: "demo.Page",
    methods: &[
        MethodInfo::new("Test", Kind::Unary),
        MethodInfo::new("Note", Kind::Unary).oneway(),
        MethodInfo::new("Count", Kind::ServerStream),
    ],
    descriptor: &[],
};
static OTHER: ServiceInfo =
    ServiceInfo { name: "pb.Other", methods: &[MethodInfo::new("Mul", Kind::Unary)], descriptor: &[1] };

/// The first call of a connection in each framing, as recorded except for the name of the method.
const RAW_CALL: &str =
    "00000037 00 01 31 01 0a 2f706167652f74657374 0006 636f64653d30 000b 706565725f69643d313130 6a
    7b22617574686f72223a2278227d";
const PROTO_CALL: &str =
    "00000038 00 0801 1001 1a0a 2f706167652f74657374 2206 636f64653d30 2a0b 706565725f69643d313130
    306a 3a0e 7b22617574686f72223a2278227d";
const JSON_CALL: &str = concat!(
    r#"{"seq":1,"mtype":1,"serviceMethod":"/page/test","status":"code=0","meta":"peer_id=110","#,
    r#""bodyCodec":106,"body":"{\"author\":\"x\"}"}"#
);

const FRAMINGS: [Framing; 3] = [Framing::Raw, Framing::Json, Framing::Proto];

/// Builds a frame whose length counts the bytes that follow it.
fn counted(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32 + 1).to_be_bytes()[..], &[0], payload].concat()
}

/// A message as peers write it, in JSON or another codec.
fn call<'a>(name: &'a str, body: &'a [u8]) -> Message<'a> {
    Message {
        sequence: 7,
        kind: 1,
        name: Cow::Borrowed(name.as_bytes()),
        status: Cow::Borrowed(b"code=0"),
        metadata: Cow::Borrowed(b""),
        codec: b'j',
        body: Bytes::copy_from_slice(body),
    }
}

fn written(framing: Framing, message: &Message<'_>, gzip: bool) -> Vec<u8> {
    let mut out = Outbox::new();
    framing.put(message, gzip, &mut out);
    out.take_all()
}

fn raw(message: &Message<'_>) -> Vec<u8> {
    written(Framing::Raw, message, false)
}

fn server(limits: Limits) -> Side<Server> {
    let mut table = MethodTable::default();
    table.add(&PAGE).unwrap();
    table.add(&OTHER).unwrap();
    table.limit_messages("pb.Other/Mul", 4).unwrap();
    let machine = Server::new(limits, Arc::new(table));
    Side::new(machine)
}

impl Side<Server> {
    /// Sends bytes that the server rejects without a call; returns the status that a client reads.
    fn refused(&mut self, framing: Framing, bytes: &[u8]) -> Status {
        assert!(matches!(self.next(bytes), Some(ServerEvent::Handled)));
        match client(framing).events(&self.out.take_all()).pop() {
            Some(ClientEvent::End { id: 6, end: Err(status) }) => status,
            other => panic!("{other:?}"),
        }
    }
}

fn client(framing: Framing) -> Side<Client> {
    with(Settings { framing, ..Settings::default() })
}

fn with(settings: Settings) -> Side<Client> {
    let (mut machine, mut out) = (Client::new(Limits::default(), settings), Outbox::new());
    machine.method(0, "demo.Page/Test", None, &mut out);
    Side { out, ..Side::new(machine) }
}

impl Side<Client> {
    fn fatal(&mut self, bytes: &[u8]) -> String {
        self.input.extend(bytes);
        self.machine.recv(&mut self.input, &mut self.out).unwrap_err().0
    }
}

#[test]
fn recorded_calls_get_the_same_replies_as_in_go() {
    let reply = "0000001e 00 01 31 02 00 0006 636f64653d30 0000 6a 7b226f6b223a2231227d";
    let failed = concat!(
        r#"{"seq":1,"mtype":2,"serviceMethod":"","status":"code=404&msg=no","meta":"grpc-status=12","#,
        r#""body":"","bodyCodec":0}"#
    );
    for (framing, recorded) in [
        (Framing::Raw, bytes(RAW_CALL)),
        (Framing::Proto, bytes(PROTO_CALL)),
        (Framing::Json, counted(JSON_CALL.as_bytes())),
    ] {
        let mut side = server(Limits::default());
        let (id, head, first) = side.open(&recorded);
        assert_eq!((head.method.0, head.codec, head.oneway), (0, Codec::Json, false));
        assert_eq!((head.metadata.text("peer_id"), &first[..]), (Some("110"), &br#"{"author":"x"}"#[..]));
        side.machine.reply(id, Outgoing::Lent(br#"{"ok":"1"}"#), &mut side.out);
        let answer = side.out.take_all();
        if framing == Framing::Raw {
            assert_eq!(answer, bytes(reply));
        }
        assert!(matches!(&client(framing).events(&answer)[..], [ClientEvent::Reply { id: 0, .. }]));
        // JSON replies of Switchboard have their body at a position where Go never puts it.
        let (id, ..) = side.open(&recorded);
        side.machine.end(id, Err(&Status::unimplemented("no")), &mut side.out);
        let answer = side.out.take_all();
        if framing == Framing::Json {
            assert_eq!(answer, counted(failed.as_bytes()));
        }
    }
}

#[test]
fn client_writes_the_same_bytes_as_go() {
    let mut metadata = Metadata::new();
    metadata.insert("peer_id", "110").unwrap();
    let open = Open { metadata: &metadata, ..OPEN };
    let request = Bytes::from_static(br#"{"author":"x"}"#);
    for (framing, recorded) in [(Framing::Raw, RAW_CALL), (Framing::Proto, PROTO_CALL)] {
        let mut side = client(framing);
        side.machine.open(0, open, Some((&request).into()), &mut side.out).unwrap();
        assert_eq!(side.out.take_all(), bytes(recorded));
    }
    let mut side = client(Framing::Raw);
    let rest = [Bytes::from_static(b":"), Bytes::from_static(b"1}")];
    let open = Open { oneway: true, timeout: Some(Duration::from_micros(1500)), rest: &rest, ..OPEN };
    side.machine.open(35, open, Some(Outgoing::Lent(b"{\"a\"")), &mut side.out).unwrap();
    let push = Message {
        sequence: 36,
        kind: 3,
        metadata: b"x-timeout-ms=2"[..].into(),
        ..call("/page/test", b"{\"a\":1}")
    };
    assert_eq!(side.out.take_all(), raw(&push));

    let refused = |open: Open<'_>, first: Option<&Bytes>| {
        let mut side = client(Framing::Raw);
        let status = side.machine.open(1, open, first.map(Outgoing::from), &mut side.out).unwrap_err();
        assert!(side.out.is_empty());
        status
    };
    let status = refused(Open { codec: Codec::MsgPack, ..OPEN }, Some(&request));
    assert!(status.message().contains("codec msgpack is not supported on erpc"), "{status}");
    for (more, first) in [(true, Some(&request)), (false, None)] {
        assert_eq!(refused(Open { more, ..OPEN }, first).code(), Code::Unimplemented);
    }
    metadata.insert("large", vec![b'x'; 17_000]).unwrap();
    let status = refused(Open { metadata: &metadata, ..OPEN }, Some(&request));
    assert!(status.message().contains("metadata_bytes_max"), "{status}");
    let limits = Limits { metadata_bytes_max: 1 << 20, ..Limits::default() };
    let mut wide = Client::new(limits, Settings::default());
    metadata.insert("escaped", vec![b'%'; 20_000]).unwrap();
    let status = wide.open(1, Open { metadata: &metadata, ..OPEN }, Some((&request).into()), &mut side.out);
    assert!(status.unwrap_err().message().contains("is over the 65535 of erpc"));
    for (len, fits) in [(NAME_BYTES_MAX - "//test".len(), true), (NAME_BYTES_MAX, false)] {
        side.machine.method(1, &format!("{}/Test", "h".repeat(len)), None, &mut side.out);
        let opened = side.machine.open(1, Open { method: 1, ..OPEN }, Some((&request).into()), &mut side.out);
        assert_eq!(opened.is_ok(), fits, "{opened:?}");
    }
}

#[test]
fn any_sequence_is_repeated() {
    for (sequence, text) in [(i32::MAX, "zik0zj"), (i32::MIN, "-zik0zk"), (0, "0"), (-1, "-1"), (36, "10")] {
        for framing in FRAMINGS {
            let mut side = server(Limits::default());
            let message = Message { sequence, ..call("/page/test", b"{}") };
            let sent = written(framing, &message, false);
            if framing == Framing::Raw {
                assert_eq!((usize::from(sent[5]), &sent[6..6 + text.len()]), (text.len(), text.as_bytes()));
            }
            let (id, ..) = side.open(&sent);
            side.machine.reply(id, Outgoing::EMPTY, &mut side.out);
            let expected = u64::from((sequence as u32).wrapping_sub(1));
            let events = client(framing).events(&side.out.take_all());
            assert!(matches!(&events[..], [ClientEvent::Reply { id, .. }] if *id == expected), "{events:?}");
        }
    }
}

#[test]
fn filtered_calls_get_filtered_replies() {
    let large = Bytes::from(vec![b' '; 50_000]);
    for framing in FRAMINGS {
        let mut side = with(Settings { framing, gzip: true, ..Settings::default() });
        side.machine.open(6, OPEN, Some((&large).into()), &mut side.out).unwrap();
        let sent = side.out.take_all();
        assert!(sent.len() < 1000 && sent[4..8] == *b"\x01g\x1f\x8b", "{} bytes", sent.len());
        let mut peer = server(Limits::default());
        for byte in &sent[..sent.len() - 1] {
            assert!(peer.next(&[*byte]).is_none());
        }
        let (id, _, first) = peer.open(&sent[sent.len() - 1..]);
        assert_eq!(first, large);
        peer.machine.reply(id, (&large).into(), &mut peer.out);
        let answer = peer.out.take_all();
        assert_eq!(answer[4..6], *b"\x01g");
        let events = side.events(&answer);
        assert!(matches!(&events[..], [ClientEvent::Reply { id: 6, item, .. }] if *item == large));
        // An unfiltered call gets an unfiltered reply on the same connection.
        let (id, ..) = peer.open(&written(framing, &call("/page/test", b"{}"), false));
        peer.machine.reply(id, (&large).into(), &mut peer.out);
        assert_eq!(peer.out.take_all()[4], 0);
        // Decompressed messages have a limit, and the call gets an error.
        let bomb = written(framing, &call("/page/test", &vec![b' '; 20 << 20]), true);
        let status = peer.refused(framing, &bomb);
        assert!(status.message().contains("message_bytes_max"), "{status}");
    }
    let mut damaged = written(Framing::Raw, &call("/page/test", b"{}"), true);
    let at = damaged.len() - 6;
    damaged[at] ^= 1;
    assert!(server(Limits::default()).fatal(&damaged).contains("cannot be inflated"));
}

#[test]
fn pushes_have_no_reply_and_unknown_replies_are_ignored() {
    let mut side = server(Limits::default());
    let push = |name, body| raw(&Message { kind: 3, ..call(name, body) });
    let (id, head, _) = side.open(&push("/page/note", b"3"));
    assert!(head.oneway);
    let (other, ..) = side.open(&push("/page/test", b"3"));
    assert_ne!(id, other);
    side.machine.end(id, Err(&Status::internal("x")), &mut side.out);
    for name in ["/page/nothing", "", "/page/count", "/heartbeat"] {
        assert!(matches!(side.next(&push(name, b"")), Some(ServerEvent::Handled)), "{name}");
    }
    for kind in [2, 5] {
        let message = Message { kind, ..call("", b"{}") };
        assert!(matches!(side.next(&raw(&message)), Some(ServerEvent::Handled)));
    }
    assert!(side.out.is_empty());

    let mut side = client(Framing::Raw);
    let said = [4, 5].map(|kind| raw(&Message { kind, ..call("/news/flash", b"{}") }));
    assert!(side.events(&said.concat()).is_empty() && side.out.is_empty());
    // A server that makes a call gets an error, whose number does not match a call of the client.
    assert!(side.events(&raw(&call("/client/ask", b"{}"))).is_empty());
    let events = client(Framing::Raw).events(&side.out.take_all());
    let [ClientEvent::End { id: 6, end: Err(status) }] = &events[..] else { panic!("{events:?}") };
    assert!(status.code() == Code::Unimplemented && status.message().contains("/client/ask"), "{status}");
}

#[test]
fn pushes_work_in_every_framing() {
    let mut metadata = Metadata::new();
    metadata.insert("k", "a & b").unwrap();
    for framing in FRAMINGS {
        let mut side = server(Limits::default());
        side.open(&written(framing, &call("/page/test", b"{}"), true));
        for (sequence, path, name, codec, id) in [
            (1, "news/flash", "/news/flash", Codec::Json, b'j'),
            (2, "/news/flash", "/news/flash", Codec::Proto, b'p'),
            (3, "News.Flash", "News.Flash", Codec::MsgPack, 0),
        ] {
            let push = Push::new(path, "true").with_metadata(metadata.clone()).with_codec(codec);
            side.machine.push(&push, &mut side.out);
            let metadata = Cow::Borrowed(&b"k=a%20%26%20b"[..]);
            let expected = Message { sequence, kind: 3, codec: id, metadata, ..call(name, b"true") };
            let sent = side.out.take_all();
            assert_eq!(sent, written(framing, &expected, false), "{framing} {path}");
            let events = client(framing).events(&sent);
            let [ClientEvent::Push(received)] = &events[..] else { panic!("{events:?}") };
            let codec = if id == 0 { Codec::Raw } else { codec };
            let path = path.trim_start_matches('/').to_owned();
            assert_eq!(**received, Push { path, ..push }.with_codec(codec), "{framing}");
        }
    }
    let with_query = raw(&Message { kind: 3, ..call("/news/flash?k=b", b"") });
    let events = client(Framing::Raw).events(&with_query);
    assert!(matches!(&events[..], [ClientEvent::Push(received)] if received.metadata.text("k") == Some("b")));
    // The client drops pushes that exceed a limit.
    let large = format!("k={}", "v".repeat(20_000)).into_bytes();
    let too_much = Message { kind: 3, metadata: large.into(), ..call("/news/flash", b"") };
    let body = vec![b' '; (4 << 20) + 1];
    let too_large = Message { kind: 3, ..call("/news/flash", &body) };
    for message in [too_much, too_large] {
        assert!(client(Framing::Raw).events(&raw(&message)).is_empty());
    }
}

#[test]
fn heartbeats_are_handled_unless_a_method_has_the_name() {
    let mut side = server(Limits::default());
    for metadata in ["", "hb_=3", "other=1&hb_=0"] {
        let beat = Message { metadata: metadata.as_bytes().into(), ..call("/heartbeat", b"") };
        assert!(matches!(side.next(&raw(&beat)), Some(ServerEvent::Handled)));
        let events = client(Framing::Raw).events(&side.out.take_all());
        assert!(matches!(events.last(), Some(ClientEvent::Reply { id: 6, .. })), "{events:?}");
    }
    for rate in ["-1", "soon", ""] {
        let metadata = format!("hb_={rate}").into_bytes();
        let beat = Message { metadata: metadata.into(), ..call("/heartbeat", b"") };
        assert_eq!(side.refused(Framing::Raw, &raw(&beat)).code(), Code::InvalidArgument);
    }
}

#[test]
fn credentials_of_the_connection_are_those_of_its_calls() {
    for (codec, body, name, expected) in [
        (b's', &b"sesame"[..], "authorization", &b"Bearer sesame"[..]),
        (b'j', b"\"Basic x\"", "authorization", b"Basic x"),
        (b'p', b"\x0a\x01x", "erpc-auth-bin", b"\x0a\x01x"),
    ] {
        let mut side = server(Limits::default());
        let auth = Message { kind: 4, codec, ..call("", body) };
        assert!(matches!(side.next(&raw(&auth)), Some(ServerEvent::Handled)));
        let answer = raw(&Message { kind: 5, codec: 0, ..call("", b"") });
        assert_eq!(side.out.take_all(), answer);
        for _ in 0..2 {
            let (_, head, _) = side.open(&raw(&call("/page/test", b"{}")));
            assert_eq!(head.metadata.value(name).map(|value| &value[..]), Some(expected));
        }
        let own = Message { metadata: b"Authorization=mine"[..].into(), ..call("/page/test", b"{}") };
        let (_, head, _) = side.open(&raw(&own));
        assert_eq!(head.metadata.text("authorization"), Some("mine"));
    }
}

#[test]
fn metadata_is_renamed_and_time_is_read() {
    let call = |name: &str, metadata: &str| {
        let message = Message { metadata: metadata.as_bytes().into(), ..call(name, b"{}") };
        server(Limits::default()).open(&raw(&message)).1
    };
    let head =
        call("/page/test?page=2&A-Key=three", "A-Key=one&a-key=two%20&ort=K%C3%B6ln&no good=x&X-Real-IP=::1");
    let received: Vec<_> = head.metadata.iter().map(|(name, value)| (name, &value[..])).collect();
    assert_eq!(
        received,
        [
            ("a-key", &b"one"[..]),
            ("a-key", b"two "),
            ("ort-bin", "Köln".as_bytes()),
            ("x-real-ip", b"::1"),
            ("page", b"2"),
            ("a-key", b"three"),
        ]
    );
    let head = call("/page/test", "x-timeout-ms=1500");
    assert_eq!((head.timeout, head.metadata.len()), (Some(Duration::from_millis(1500)), 0));
    let head = call("/page/test", "x-timeout-ms=soon");
    assert_eq!((head.timeout, head.metadata.len()), (None, 1));
}

#[test]
fn codecs_are_accepted_or_rejected() {
    let mut side = server(Limits::default());
    for (name, codec, body, read) in [
        ("/page/test", b'j', &b""[..], (Codec::Json, &b"{}"[..])),
        ("/page/test", 0, b"", (Codec::Json, b"{}")),
        ("/page/test", b'p', b"\x08\x01", (Codec::Proto, b"\x08\x01")),
        ("/other/mul", 0, b"\x08\x01", (Codec::Proto, b"\x08\x01")),
        ("/other/mul", b'p', b"", (Codec::Proto, b"")),
    ] {
        let (_, head, first) = side.open(&raw(&Message { codec, ..call(name, body) }));
        assert_eq!((head.codec, &first[..]), read, "{name} {codec}");
    }
    for (codec, body) in [(b'x', &b""[..]), (b'f', b"a=b"), (b's', b"x"), (b't', b"x"), (0, b"x"), (255, b"")]
    {
        let status = side.refused(Framing::Raw, &raw(&Message { codec, ..call("/page/test", body) }));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(&format!("unsupported codec id: {codec};")), "{status}");
    }
    // A reply in an unsupported codec, and an empty reply.
    let reply = |codec, body| raw(&Message { kind: 2, codec, ..call("", body) });
    let events =
        client(Framing::Raw).events(&[reply(b'x', b"<a/>"), reply(b'j', b""), reply(b'p', b"")].concat());
    let [
        ClientEvent::End { end: Err(status), .. },
        ClientEvent::Reply { item: json, .. },
        ClientEvent::Reply { item: proto, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(status.message().contains("codec 120"), "{status}");
    assert_eq!((&json[..], &proto[..]), (&b"null"[..], &b""[..]));
}

#[test]
fn unknown_methods_get_an_error() {
    let mut side = server(Limits::default());
    for (name, code, text) in [
        ("/missing/mul", Code::Unimplemented, "unknown service missing"),
        ("/page/nothing", Code::Unimplemented, "demo.Page has Test, Note, Count"),
        ("", Code::Unimplemented, "expected /service/method"),
        ("/page/count", Code::Unimplemented, "has a stream"),
        ("/page/\u{1}", Code::Unimplemented, "unknown method"),
    ] {
        let status = side.refused(Framing::Raw, &raw(&call(name, b"{}")));
        assert_eq!(status.code(), code);
        assert!(status.message().contains(text), "{status}");
    }
    let long = format!("/page/{}", "x".repeat(NAME_BYTES_MAX));
    let message = call(&long, b"{}");
    let status = server(Limits::default()).refused(Framing::Proto, &written(Framing::Proto, &message, false));
    assert!(status.message().contains("at most 255 bytes"), "{status}");
    side.machine.refuse();
    let status = side.refused(Framing::Raw, &raw(&call("/page/test", b"{}")));
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe));
}

#[test]
fn limits_refuse_one_call_and_the_connection_goes_on() {
    for framing in FRAMINGS {
        let limits = Limits {
            message_bytes_max: 100,
            metadata_bytes_max: 64,
            metadata_entries_max: 2,
            ..Limits::default()
        };
        let mut side = server(limits);
        let small = written(framing, &call("/page/test", b"next"), false);
        side.open(&small);
        let status = side.refused(framing, &written(framing, &call("/page/test", &[b'x'; 101]), false));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(
            status.message().contains("101 bytes to demo.Page/Test is over the limit of 100"),
            "{status}"
        );
        // The rejection does not wait for the rest of a frame that is larger than the limit.
        let large = written(framing, &call("/page/test", &vec![b'x'; 2 * HEAD_BYTES_MAX]), false);
        let (head, rest) = large.split_at(400);
        let status = side.refused(framing, head);
        assert!(status.message().contains("is over the limit of 100"), "{status}");
        assert!(side.next(&rest[..600]).is_none());
        assert_eq!(side.open(&[&rest[600..], &small].concat()).2, "next");

        let message = Message { codec: b'p', ..call("/other/mul", b"12345") };
        let status = side.refused(framing, &written(framing, &message, false));
        assert!(status.message().contains("limit of 4 bytes (message_bytes_max of the method)"), "{status}");
        for (metadata, limit) in [
            ("k=".to_owned() + &"v".repeat(80), "metadata_bytes_max"),
            ("a&b&c".to_owned(), "metadata_entries_max"),
        ] {
            let message = Message { metadata: metadata.as_bytes().into(), ..call("/page/test", b"") };
            let status = side.refused(framing, &written(framing, &message, false));
            assert!(status.message().contains(limit), "{status}");
        }
        let body = vec![b'x'; 2 * HEAD_BYTES_MAX];
        let push = Message { kind: 3, ..call("/page/note", &body) };
        let push = written(framing, &push, false);
        assert!(matches!(side.next(&push), Some(ServerEvent::Handled)) && side.out.is_empty());
        assert_eq!(side.open(&small).2, "next");
    }
}

#[test]
fn bytes_that_are_no_message_end_the_connection() {
    let fatal = |bytes: &[u8]| server(Limits::default()).fatal(bytes);
    let good = bytes(RAW_CALL);
    for (wrong, text) in [
        (bytes("00000000 00"), "no framing"),
        (bytes("00000004 00 01"), "a length of 4 has no message"),
        (bytes("00000005 00 01"), "a length of 5 has no message"),
        (bytes("00000006 00 01"), "no raw message"),
        (bytes("00000010 ff"), "255 transfer filters"),
        (bytes("00000010 01 6d"), "transfer filter 109"),
        (bytes("00000008 00 10 01 00 00 00 00 00"), "no framing"),
        ([&good[..], &bytes("00000008 00 08 31 31")].concat(), "no raw message"),
        ([&good[..], b"GET / HTTP/1.1\r\n\r\n"].concat(), "47 transfer filters"),
        (raw(&Message { kind: 9, ..call("/page/test", b"") }), "of kind 9"),
        (raw(&Message { status: b"X-Reply-Error=1"[..].into(), ..call("/a/b", b"") }), "5 and older"),
        (counted(b"{\"seq\":1"), "no json message"),
        (counted(br#"{"seq":1,"mtype":1,"body":"cut"#), "no json message"),
        (counted(br#"{"seq":"one","mtype":1}"#), "no json message"),
        (counted(b"\x08\x01\x12"), "no proto message"),
        (counted(b"\x08\x01\x10\xff\x7f"), "no proto message"),
    ] {
        let error = fatal(&wrong);
        assert!(error.contains(text), "{error} for {wrong:02x?}");
    }
    // A sequence that is too long, and one out of range.
    assert!(
        fatal(&[&good[..], &bytes("0000000e 00 08 3131313131313131")].concat()).contains("no raw message")
    );
    assert!(
        fatal(&[&good[..], &bytes("0000000e 00 07 7a7a7a7a7a7a7a 01")].concat()).contains("no raw message")
    );
    assert!(client(Framing::Raw).fatal(&raw(&Message { kind: 0, ..call("", b"") })).contains("of kind 0"));
}

#[test]
fn bodies_in_json_are_read_as_they_were_written() {
    let body = |document: &str| server(Limits::default()).open(&counted(document.as_bytes())).2;
    let go = |body: &str| {
        let escaped = body.replace('"', "\\\"");
        format!(r#"{{"seq":1,"mtype":1,"serviceMethod":"/page/test","bodyCodec":106,"body":"{escaped}"}}"#)
    };
    for text in [
        "{}",
        r#"{"a":"x\"y"}"#,
        r#"{"a":"C:\\new"}"#,
        r#"{"a":"\u003c\n\\"}"#,
        r#"{"body":"x"}"#,
        "{\"a\":\"\n no JSON\"}",
        "\\",
    ] {
        assert_eq!(body(&go(text)), text, "as Go writes it");
        let message = call("/page/test", text.as_bytes());
        let (_, _, first) = server(Limits::default()).open(&written(Framing::Json, &message, false));
        assert_eq!(first, text, "as it is written here");
    }
    // A correct writer with Go's field order, and one with whitespace and another order.
    let ordered = serde_json::json!(r#"{"a":"x\"y\\n"}"#);
    let head = r#""seq":1,"mtype":1,"serviceMethod":"/page/test""#;
    assert_eq!(body(&format!(r#"{{{head},"bodyCodec":106,"body":{ordered}}}"#)), r#"{"a":"x\"y\\n"}"#);
    let first = r#""body" : "{\u0022\ud83e\udd80\ud83eA\u0022\t:1}""#;
    let expected = "{\"\u{1f980}\u{fffd}A\"\t:1}";
    assert_eq!(body(&format!(r#"{{{first}, "bodyCodec": 106, {head}}}"#)), expected);
    assert_eq!(body(&format!(r#"{{{head},"bodyCodec":106,"body":null}}"#)), "{}");
    assert_eq!(body(&format!(r#"{{{head},"bodyCodec":106}}"#)), "{}");
    // A body of arbitrary bytes.
    let binary: Vec<u8> = (0..=255).collect();
    let message = Message { codec: b'p', ..call("/page/test", &binary) };
    let (_, _, first) = server(Limits::default()).open(&written(Framing::Json, &message, false));
    assert_eq!(first, binary);
}

#[test]
fn statuses_survive_the_wire() {
    let mut metadata = Metadata::new();
    metadata.insert("detail", "d & e").unwrap();
    metadata.insert("own-bin", &b"\0\xff"[..]).unwrap();
    let long = "é".repeat(4000);
    for framing in FRAMINGS {
        for status in [
            Status::not_found("no such post")
                .with_metadata(metadata.clone())
                .with_detail("test.Why", &b"\xFF"[..])
                .with_detail("test.Empty", &b""[..]),
            Status::unknown("100 % + ; é\n"),
            Status::unavailable("later").with_retry(Retry::After(Duration::from_millis(1200))),
            Status::resource_exhausted("full").with_retry(Retry::Safe),
            Status::internal("Köln\n\"\\"),
            Status::canceled(""),
            Status::invalid_argument(&*long),
        ] {
            let mut side = server(Limits::default());
            let (id, ..) = side.open(&written(framing, &call("/page/test", b""), false));
            side.machine.end(id, Err(&status), &mut side.out);
            let mut events = client(framing).events(&side.out.take_all());
            let Some(ClientEvent::End { id: 6, end: Err(back) }) = events.pop() else { panic!("{events:?}") };
            assert_eq!(
                (back.code(), back.retry(), back.origin()),
                (status.code(), status.retry(), Origin::Peer)
            );
            assert_eq!((back.metadata(), back.details()), (status.metadata(), status.details()));
            let sent = status.message();
            assert!(
                back.message() == sent || sent.len() > 4096 && sent.starts_with(back.message()),
                "{back}"
            );
        }
    }
    // The status is sent without metadata that does not fit.
    let mut side = server(Limits::default());
    let (id, ..) = side.open(&raw(&call("/page/test", b"")));
    metadata.insert("large-bin", vec![0; 30_000]).unwrap();
    side.machine.end(id, Err(&Status::aborted("again").with_metadata(metadata.clone())), &mut side.out);
    let events = client(Framing::Raw).events(&side.out.take_all());
    let [ClientEvent::End { end: Err(status), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((status.code(), status.message()), (Code::Aborted, "again"));
    let (id, ..) = side.open(&raw(&call("/page/test", b"")));
    side.machine.head(id, &metadata, &mut side.out);
    side.machine.reply(id, Outgoing::EMPTY, &mut side.out);
    let events = client(Framing::Raw).events(&side.out.take_all());
    let [ClientEvent::End { end: Err(status), .. }] = &events[..] else { panic!("{events:?}") };
    assert!(status.message().contains("is over the 65535 bytes of erpc"), "{status}");
}

#[test]
fn numbers_of_go_are_statuses() {
    let read_status = |text: &str| {
        let reply = raw(&Message { kind: 2, codec: 0, status: text.as_bytes().into(), ..call("", b"") });
        match client(Framing::Raw).events(&reply).pop() {
            Some(ClientEvent::End { end: Err(status), .. }) => status,
            other => panic!("{other:?}"),
        }
    };
    for (text, code, message, number, cause) in [
        ("code=1001&msg=my%20msg&cause=cause%20x", Code::Unknown, "my msg", Some("1001"), Some("cause x")),
        ("code=1005&msg=not_found: x", Code::Unknown, "not_found: x", Some("1005"), None),
        ("code=404&msg=Not%20Found&cause=", Code::Unimplemented, "Not Found", None, None),
        (
            "code=405&msg=Message+Type+Not+Allowed",
            Code::Unimplemented,
            "Message Type Not Allowed",
            Some("405"),
            None,
        ),
        ("code=400&msg=Bad%20Message&cause=it", Code::InvalidArgument, "Bad Message", None, Some("it")),
        ("code=401", Code::Unauthenticated, "", None, None),
        ("code=408", Code::DeadlineExceeded, "", None, None),
        ("code=500&cause=panic", Code::Internal, "panic", None, None),
        ("code=502", Code::Unavailable, "", None, None),
        ("code=102", Code::Unavailable, "", Some("102"), None),
        ("code=-1&msg=Unknown Error", Code::Unknown, "Unknown Error", Some("-1"), None),
        ("code=much", Code::Unknown, "", Some("-1"), None),
    ] {
        let status = read_status(text);
        assert_eq!((status.code(), status.message()), (code, message), "{text}");
        let own = |name| status.metadata().text(name);
        assert_eq!((own("erpc-code"), own("erpc-cause")), (number, cause), "{text}");
    }
    assert_eq!(read_status("code=502").retry(), Retry::IfIdempotent);
    // Metadata of a handler's status selects number and cause.
    let mut side = server(Limits::default());
    let mut status = Status::not_found("gone");
    status.metadata_mut().insert("erpc-code", "2004").unwrap();
    status.metadata_mut().insert("erpc-cause", "since May").unwrap();
    let (id, ..) = side.open(&raw(&call("/page/test", b"")));
    side.machine.end(id, Err(&status), &mut side.out);
    let answer = side.out.take_all();
    let query = b"code=2004&msg=gone&cause=since%20May";
    assert!(answer.windows(query.len()).any(|part| part == query), "{answer:02x?}");
    let events = client(Framing::Raw).events(&answer);
    let [ClientEvent::End { end: Err(back), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((back.code(), back.metadata()), (Code::NotFound, status.metadata()));
}

#[test]
fn metadata_goes_before_a_reply_in_one_message() {
    for framing in FRAMINGS {
        let mut side = server(Limits::default());
        let (id, ..) = side.open(&written(framing, &call("/page/test", b""), false));
        let (mut head, mut trailers) = (Metadata::new(), Metadata::new());
        head.insert("first", "1 = 1").unwrap();
        trailers.insert("last-bin", &b"\0&\xff"[..]).unwrap();
        side.machine.head(id, &head, &mut side.out);
        assert!(side.out.is_empty());
        side.machine.reply_with(id, Outgoing::Lent(b"[1]"), false, &trailers, &mut side.out);
        let events = client(framing).events(&side.out.take_all());
        let [ClientEvent::Head { metadata, .. }, ClientEvent::Reply { id: 6, item, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        head.extend(trailers);
        assert_eq!((metadata, &item[..]), (&head, &b"[1]"[..]));
    }
}

#[test]
fn client_rejects_a_reply_over_its_limits() {
    for framing in FRAMINGS {
        let limits = Limits { message_bytes_max: 10, metadata_bytes_max: 64, ..Limits::default() };
        let mut machine = Client::new(limits, Settings { framing, ..Settings::default() });
        let (mut input, mut out) = (Input::default(), Outbox::new());
        let metadata = format!("k={}", "v".repeat(70)).into_bytes();
        let reply = |body: usize, metadata: &[u8]| {
            let body = vec![b'x'; body];
            let message = Message { kind: 2, metadata: metadata.to_vec().into(), ..call("", &body) };
            written(framing, &message, false)
        };
        for (reply, limit) in [
            (reply(11, b""), "message_bytes_max"),
            (reply(3 * HEAD_BYTES_MAX, b""), "message_bytes_max"),
            (reply(1, &metadata), "metadata_bytes_max"),
        ] {
            input.extend(&reply);
            let event = machine.recv(&mut input, &mut out).unwrap();
            let Some(ClientEvent::End { id: 6, end: Err(status) }) = event else { panic!("{event:?}") };
            assert!(status.message().contains(limit), "{status}");
        }
        input.extend(&reply(4, b""));
        assert!(matches!(machine.recv(&mut input, &mut out), Ok(Some(ClientEvent::Reply { id: 6, .. }))));
    }
}

#[test]
fn names_are_those_of_the_servers_routes() {
    for (names, prefix, expected) in [
        (Names::Path, "v1", "/v1/page/test"),
        (Names::Rpc, "", "Page.Test"),
        (Names::Full, "", "/demo.Page/Test"),
    ] {
        let mut side = with(Settings { names, prefix: prefix.to_owned(), ..Settings::default() });
        side.machine.open(6, OPEN, Some(Outgoing::Lent(b"{}")), &mut side.out).unwrap();
        assert_eq!(side.out.take_all(), raw(&call(expected, b"{}")));
    }
}
