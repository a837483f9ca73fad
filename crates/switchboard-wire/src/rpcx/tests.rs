//! Conversations with a mock peer, in bytes recorded from rpcx 1.9.4 for Go.

use super::{Client, HEARTBEAT_BYTES_MAX, NAME_BYTES_MAX, Server};
use crate::{
    Code, Codec, Encodings, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, Retry,
    ServiceInfo, Status,
    foreign::side::{OPEN, Side, bytes},
    wire::{ClientEvent, ClientWire, Open, Push, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

static ARITH: ServiceInfo = ServiceInfo {
    name: "calc.Arith",
    methods: &[MethodInfo::new("Mul", Kind::Unary), MethodInfo::new("Count", Kind::ServerStream)],
    descriptor: &[],
};
static OTHER: ServiceInfo =
    ServiceInfo { name: "pb.Other", methods: &[MethodInfo::new("Mul", Kind::Unary)], descriptor: &[1] };

/// A call of `Arith.Mul` in JSON with `__AUTH`, the first of its connection, as recorded.
const RECORDED: &str = "08000010 0000000000000000 0000003d 00000005 4172697468 00000003 4d756c
    00000016 00000006 5f5f41555448 00000008 6265617265722078 0000000f 7b2241223a31302c2242223a32307d";

/// Builds a frame of a caller: bits, codec, sequence, and parts.
fn frame(
    bits: u8,
    codec: u8,
    sequence: u64,
    names: [&str; 2],
    metadata: &[(&str, &str)],
    payload: &[u8],
) -> Vec<u8> {
    let part = |into: &mut Vec<u8>, part: &[u8]| {
        into.extend_from_slice(&(part.len() as u32).to_be_bytes());
        into.extend_from_slice(part);
    };
    let mut block = Vec::new();
    for (name, value) in metadata {
        part(&mut block, name.as_bytes());
        part(&mut block, value.as_bytes());
    }
    let mut parts = Vec::new();
    for bytes in [names[0].as_bytes(), names[1].as_bytes(), &block, payload] {
        part(&mut parts, bytes);
    }
    let mut frame = vec![8, 0, bits, codec << 4];
    frame.extend_from_slice(&sequence.to_be_bytes());
    part(&mut frame, &parts);
    frame
}

fn mul(payload: &[u8]) -> Vec<u8> {
    frame(0, 1, 7, ["Arith", "Mul"], &[], payload)
}

fn server(limits: Limits) -> Side<Server> {
    let mut table = MethodTable::default();
    table.add(&ARITH).unwrap();
    table.add(&OTHER).unwrap();
    table.limit_messages("pb.Other/Mul", 4).unwrap();
    let machine = Server::new(limits, Arc::new(table)).with_encodings(Encodings::ALL);
    Side::new(machine)
}

impl Side<Server> {
    /// Sends bytes that the server rejects without a call; returns the status that a client reads.
    fn refused(&mut self, bytes: &[u8]) -> Status {
        assert!(matches!(self.next(bytes), Some(ServerEvent::Handled)));
        match client().events(&self.out.take_all()).pop() {
            Some(ClientEvent::End { end: Err(status), .. }) => status,
            other => panic!("{other:?}"),
        }
    }
}

fn client() -> Side<Client> {
    let mut machine = Client::new(Limits::default());
    machine.method(0, "calc.Arith/Mul", None, &mut Outbox::new());
    Side::new(machine)
}

#[test]
fn recorded_call_is_read_and_gets_a_response() {
    let mut side = server(Limits::default());
    let (id, head, first) = side.open(&bytes(RECORDED));
    assert_eq!(first, r#"{"A":10,"B":20}"#);
    assert_eq!((head.codec, head.oneway, head.timeout), (Codec::Json, false, None));
    assert_eq!(head.metadata.text("authorization"), Some("bearer x"));
    side.machine.reply(id, Outgoing::Lent(b"[]"), &mut side.out);
    let expected =
        "08008010 0000000000000000 0000001a 00000005 4172697468 00000003 4d756c 00000000 00000002 5b5d";
    assert_eq!(side.out.take_all(), bytes(expected));
}

#[test]
fn call_is_found_at_any_split_and_by_the_short_way() {
    let call = [bytes(RECORDED), mul(b"{}"), mul(b"[1]")].concat();
    let mut side = server(Limits::default());
    let mut seen = Vec::new();
    for byte in &call {
        side.input.extend(&[*byte]);
        while let Some(event) = side.machine.recv(&mut side.input, &mut side.out).unwrap() {
            let ServerEvent::Open { first, .. } = event else { panic!("{event:?}") };
            seen.push(first.unwrap());
        }
    }
    assert_eq!(seen, [&br#"{"A":10,"B":20}"#[..], b"{}", b"[1]"]);
    assert_eq!(side.machine.next_call(&mut side.input).map(|opened| opened.len), None);
    let timed = frame(0, 3, u64::MAX, ["Arith", "Mul"], &[("__ServerTimeout", "250")], b"x");
    side.input.extend(&[mul(b"short"), timed, mul(b"way")].concat());
    let mut next = || {
        let opened = side.machine.next_call(&mut side.input).unwrap();
        (side.input.take(opened.len), opened)
    };
    assert_eq!(next().0, "short");
    let (_, opened) = next();
    assert_eq!((opened.timeout, opened.codec), (Some(Duration::from_millis(250)), Codec::MsgPack));
    assert_eq!(next().0, "way");
    side.machine.reply(opened.id, Outgoing::EMPTY, &mut side.out);
    assert_eq!(side.out.take_all()[4..12], [0xFF; 8], "the sequence comes back");
}

#[test]
fn metadata_is_renamed_and_time_is_read() {
    let call = |metadata: &[(&str, &str)]| {
        let (_, head, _) = server(Limits::default()).open(&frame(0, 1, 0, ["Arith", "Mul"], metadata, b""));
        head
    };
    let head =
        call(&[("A-Key", "one"), ("a-key", "two"), ("ort", "Köln"), ("no good", "x"), ("__AUTH", "secret")]);
    let received: Vec<_> = head.metadata.iter().map(|(name, value)| (name, &value[..])).collect();
    assert_eq!(
        received,
        [
            ("a-key", &b"one"[..]),
            ("a-key", b"two"),
            ("ort-bin", "Köln".as_bytes()),
            ("authorization", b"Bearer secret")
        ]
    );
    for (text, expected) in [("1500", Some(1500)), ("0", Some(0)), ("-20", Some(0)), ("soon", None)] {
        let head = call(&[("__ServerTimeout", text)]);
        assert_eq!(head.timeout, expected.map(Duration::from_millis), "{text}");
        assert!(head.metadata.is_empty());
    }
}

#[test]
fn heartbeats_are_echoed_and_unknown_responses_are_ignored() {
    let beat = "08004030 0000000000000000 00000019 00000000 00000000 00000000 00000009 d318e9190000000000";
    let mut side = server(Limits::default());
    assert!(matches!(side.next(&bytes(beat)), Some(ServerEvent::Handled)));
    assert_eq!(side.out.take_all(), bytes(&beat.replacen("080040", "0800c0", 1)));
    // A heartbeat with names, metadata and the one-way bit.
    let odd = frame(0x60, 1, 9, ["a", "b"], &[("k", "v")], b"?");
    assert!(matches!(side.next(&odd), Some(ServerEvent::Handled)));
    assert_eq!(side.out.take_all()[2], 0xE0);
    // A response, which the server ignores.
    assert!(matches!(side.next(&frame(0x80, 1, 9, ["Arith", "Mul"], &[], b"?")), Some(ServerEvent::Handled)));
    assert!(side.out.is_empty());
}

#[test]
fn unknown_methods_get_the_error_text_of_rpcx() {
    let mut side = server(Limits::default());
    let mut refused = |frame: Vec<u8>| side.refused(&frame);
    for (names, expected) in [
        (["Missing", "Mul"], "rpcx: can't find service Missing"),
        (["", ""], "rpcx: can't find service "),
        (["Arith", "Nothing"], "rpcx: can't find method Nothing"),
    ] {
        let status = refused(frame(0, 1, 1, names, &[], b""));
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, expected));
    }
    assert!(refused(frame(0, 1, 1, ["Arith", "Count"], &[], b"")).message().contains("has a stream"));
    for codec in [5, 15] {
        let status = refused(frame(0, codec, 1, ["Arith", "Mul"], &[], b""));
        assert_eq!(status.message(), format!("can not find codec for {codec}"));
    }
    assert!(refused(frame(0x1C, 1, 1, ["Arith", "Mul"], &[], b"x")).message().contains("compression 7"));
    // Raw bytes are a message for a service with protobuf, and stay raw for others.
    for (service, number, codec) in
        [("Other", 0, Codec::Proto), ("Arith", 0, Codec::Raw), ("Arith", 4, Codec::ThriftStruct)]
    {
        assert_eq!(side.open(&frame(0, number, 1, [service, "Mul"], &[], b"")).1.codec, codec);
    }
    side.machine.refuse();
    let status = side.refused(&mul(b""));
    assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::Safe));
}

#[test]
fn oneway_calls_have_no_reply() {
    let mut side = server(Limits::default());
    let (id, head, _) = side.open(&frame(0x20, 1, 1, ["Arith", "Mul"], &[], b""));
    assert!(head.oneway);
    let (other, ..) = side.open(&frame(0x20, 1, 2, ["Arith", "Mul"], &[], b""));
    assert_ne!(id, other);
    side.machine.end(id, Err(&Status::internal("x")), &mut side.out);
    for names in [["Missing", "Mul"], ["Arith", "Nothing"]] {
        assert!(matches!(side.next(&frame(0x20, 1, 1, names, &[], b"")), Some(ServerEvent::Handled)));
    }
    assert!(side.out.is_empty());
}

#[test]
fn limits_refuse_one_call_and_the_connection_goes_on() {
    let limits = Limits {
        message_bytes_max: 100,
        metadata_bytes_max: 64,
        metadata_entries_max: 2,
        ..Limits::default()
    };
    let mut side = server(limits);
    // The rejection does not wait for the rest of the frame.
    let large = mul(&[b'x'; 101]);
    let (head, rest) = large.split_at(large.len() - 101);
    let status = side.refused(head);
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("101 bytes to calc.Arith/Mul is over the limit of 100 bytes"),
        "{status}"
    );
    assert!(side.next(&rest[..60]).is_none());
    let (_, _, first) = side.open(&[&rest[60..], &mul(b"next")].concat());
    assert_eq!(first, "next");

    let status = side.refused(&frame(0, 2, 1, ["pb.Other", "Mul"], &[], b"12345"));
    assert!(status.message().contains("limit of 4 bytes (message_bytes_max of the method)"), "{status}");
    let status = side.refused(&frame(0, 1, 1, ["Arith", "Mul"], &[("k", &"v".repeat(60))], b""));
    assert!(status.message().contains("metadata_bytes_max"), "{status}");
    let three = [("a", ""), ("b", ""), ("c", "")];
    let status = side.refused(&frame(0, 1, 1, ["Arith", "Mul"], &three, b""));
    assert!(status.message().contains("metadata_entries_max"), "{status}");
    assert_eq!(side.open(&mul(b"")).2, "");
}

#[test]
fn bytes_that_are_no_frame_end_the_connection() {
    let fatal = |bytes: &[u8]| server(Limits::default()).fatal(bytes);
    assert!(fatal(b"\x09").contains("begins with 08"));
    assert!(fatal(&[&mul(b"")[..], b"GET /"].concat()).contains("not 47"));
    // A total that is shorter than the parts, one without space for them, and names that exceed the limit.
    let mut short = mul(b"1234");
    short[15] -= 5;
    assert!(fatal(&short).contains("shorter than its parts"), "{short:02x?}");
    assert!(fatal(&bytes("08000010 0000000000000000 0000000f")).contains("shorter"));
    let name = "n".repeat(NAME_BYTES_MAX + 1);
    assert!(fatal(&frame(0, 1, 0, [&name, "Mul"], &[], b"")).contains("limit of 1024"));
    // The length of the payload differs from the rest of the frame.
    let mut long = mul(b"1234");
    let at = long.len() - 5;
    long[at] = 3;
    assert!(fatal(&long).contains("is not the rest"));
    let mut odd = frame(0, 1, 0, ["Arith", "Mul"], &[("key", "value")], b"");
    let at = odd.len() - 4 - 6;
    odd[at] = 99;
    assert!(fatal(&odd).contains("metadata block of rpcx is cut short"));
    let beat = frame(0x40, 3, 0, ["", ""], &[], &vec![0; HEARTBEAT_BYTES_MAX]);
    assert!(fatal(&beat[..100]).contains("a heartbeat of"));
}

#[test]
fn statuses_survive_the_wire() {
    let mut metadata = Metadata::new();
    metadata.insert("detail", "d").unwrap();
    let long = "é".repeat(4000);
    for status in [
        Status::not_found("no such post")
            .with_metadata(metadata.clone())
            .with_detail("test.Why", &b"\xFF"[..])
            .with_detail("", &b""[..]),
        Status::unknown("as Go says it"),
        Status::unavailable("later").with_retry(Retry::After(Duration::from_millis(1200))),
        Status::resource_exhausted("full").with_retry(Retry::Safe),
        Status::internal("Köln\n"),
        Status::invalid_argument(&*long),
    ] {
        let mut side = server(Limits::default());
        let (id, ..) = side.open(&mul(b""));
        side.machine.end(id, Err(&status), &mut side.out);
        let mut events = client().events(&side.out.take_all());
        let Some(ClientEvent::End { id: 7, end: Err(back) }) = events.pop() else { panic!("{events:?}") };
        assert_eq!((back.code(), back.retry()), (status.code(), status.retry()));
        assert_eq!((back.metadata(), back.details()), (status.metadata(), status.details()));
        let sent = status.message();
        assert!(back.message() == sent || sent.len() > 4096 && sent.starts_with(back.message()), "{back}");
        assert_eq!(back.origin(), crate::Origin::Peer);
    }
    // Texts of servers in Go.
    for (text, code) in [
        ("divide by zero", Code::Unknown),
        ("rpcx: can't find service X", Code::Unimplemented),
        ("context deadline exceeded", Code::DeadlineExceeded),
        ("context canceled", Code::Canceled),
        ("[service internal error]: boom", Code::Internal),
    ] {
        let response = frame(0x81, 1, 7, ["Arith", "Mul"], &[("__rpcx_error__", text)], b"{}");
        let Some(ClientEvent::End { end: Err(status), .. }) = client().events(&response).pop() else {
            panic!()
        };
        assert_eq!((status.code(), status.message()), (code, text));
    }
}

#[test]
fn metadata_goes_before_a_reply_in_one_frame() {
    let mut side = server(Limits::default());
    let (id, ..) = side.open(&mul(b""));
    let (mut head, mut trailers) = (Metadata::new(), Metadata::new());
    head.insert("first", "1").unwrap();
    trailers.insert("last", "2").unwrap();
    side.machine.head(id, &head, &mut side.out);
    assert!(side.out.is_empty());
    side.machine.reply_with(id, Outgoing::Lent(b"packed"), true, &trailers, &mut side.out);
    let sent = side.out.take_all();
    assert_eq!(sent[2], 0x84);
    let events = client().events(&sent);
    let [ClientEvent::Head { metadata, .. }, ClientEvent::Reply { id: 7, item, compressed: true }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((metadata.text("first"), metadata.text("last")), (Some("1"), Some("2")));
    assert_eq!(item, "packed");
}

#[test]
fn client_writes_the_same_bytes_as_go() {
    let mut side = client();
    let mut metadata = Metadata::new();
    metadata.insert("authorization", "bearer x").unwrap();
    let open = Open { metadata: &metadata, ..OPEN };
    let mut short = Client::new(Limits::default()).with_short_names(true);
    short.method(0, "calc.v1.Arith/Mul", None, &mut side.out);
    let request = Bytes::from_static(br#"{"A":10,"B":20}"#);
    short.open(0, open, Some((&request).into()), &mut side.out).unwrap();
    assert_eq!(side.out.take_all(), bytes(RECORDED));

    let timeout = Some(Duration::from_micros(1_500_001));
    let open = Open { timeout, codec: Codec::MsgPack, oneway: true, ..OPEN };
    side.machine.open(1, open, Some(Outgoing::EMPTY), &mut side.out).unwrap();
    let expected = frame(0x20, 3, 1, ["calc.Arith", "Mul"], &[("__ServerTimeout", "1501")], b"");
    assert_eq!(side.out.take_all(), expected);

    let refused = |open: Open<'_>, first: Option<&Bytes>| {
        client().machine.open(1, open, first.map(Outgoing::from), &mut Outbox::new()).unwrap_err()
    };
    assert!(
        refused(Open { codec: Codec::Postcard, ..OPEN }, Some(&request))
            .message()
            .contains("codec postcard is not supported")
    );
    for (more, first) in [(true, Some(&request)), (false, None)] {
        assert_eq!(refused(Open { more, ..OPEN }, first).code(), Code::Unimplemented);
    }
    metadata.insert("large", vec![b'x'; 20_000]).unwrap();
    assert!(
        refused(Open { metadata: &metadata, ..OPEN }, Some(&request))
            .message()
            .contains("metadata_bytes_max")
    );
}

#[test]
fn client_separates_replies_from_pushes() {
    let mut side = client();
    let push = frame(0x20, 0, 7, ["News", "Flash"], &[], b"!");
    let reply = frame(0x80, 1, 7, ["Arith", "Mul"], &[], b"1");
    let far = frame(0x80, 1, u64::MAX, ["Arith", "Mul"], &[], b"2");
    side.input.extend(&push);
    assert!(side.machine.take_reply(&mut side.input).is_none());
    let events = side.events(&[&far[..], &reply].concat());
    let [ClientEvent::Push(pushed), ClientEvent::Reply { id: 7, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(**pushed, Push::new("News/Flash", "!"));
    side.input.extend(&[&reply[..], &far].concat());
    assert_eq!(side.machine.take_reply(&mut side.input), Some((7, Bytes::from_static(b"1"))));
    assert!(side.machine.take_reply(&mut side.input).is_none());
    assert!(side.events(b"").is_empty());

    side.machine.ping(&mut side.out);
    let ping = side.out.take_all();
    let mut peer = server(Limits::default());
    assert!(matches!(peer.next(&ping), Some(ServerEvent::Handled)));
    assert!(matches!(side.events(&peer.out.take_all())[..], [ClientEvent::Pong]));
}

/// A push as `SendMessage` of a server in Go writes it: a one-way request with raw bytes and its own sequence.
#[test]
fn pushes_are_written_as_in_go() {
    let mut side = server(Limits::default());
    let mut metadata = Metadata::new();
    metadata.insert("k", "v").unwrap();
    let push = Push::new("a.News/Flash", "breaking").with_metadata(metadata);
    for sequence in 1..3 {
        side.machine.push(&push, &mut side.out);
        let sent = side.out.take_all();
        assert_eq!(sent, frame(0x20, 0, sequence, ["a.News", "Flash"], &[("k", "v")], b"breaking"));
        let events = client().events(&sent);
        assert!(matches!(&events[..], [ClientEvent::Push(heard)] if **heard == push), "{events:?}");
    }
    // Pushes with an unsupported compression, over a limit, or truncated.
    assert!(client().events(&frame(0x24, 0, 1, ["a", "b"], &[], b"x")).is_empty());
    let large = "v".repeat(20_000);
    assert!(client().events(&frame(0x20, 0, 1, ["a", "b"], &[("k", &large)], b"x")).is_empty());
    let mut odd = frame(0x20, 0, 1, ["a", "b"], &[("key", "value")], b"");
    let at = odd.len() - 4 - 6;
    odd[at] = 99;
    let mut side = client();
    side.input.extend(&odd);
    assert!(side.machine.recv(&mut side.input, &mut side.out).unwrap_err().0.contains("cut short"));
}

#[test]
fn client_rejects_a_reply_over_its_limits() {
    let mut machine =
        Client::new(Limits { message_bytes_max: 10, metadata_bytes_max: 64, ..Limits::default() });
    let (mut input, mut out) = (Input::default(), Outbox::new());
    for (metadata, payload, limit) in [(60, 0, "metadata_bytes_max"), (0, 11, "message_bytes_max")] {
        let value = "v".repeat(metadata);
        let metadata = [("k", &*value)];
        let metadata = if value.is_empty() { &[] } else { &metadata[..] };
        input.extend(&frame(0x80, 1, 3, ["Arith", "Mul"], metadata, &vec![b'x'; payload]));
        assert!(machine.take_reply(&mut input).is_none());
        let event = machine.recv(&mut input, &mut out).unwrap();
        let Some(ClientEvent::End { id: 3, end: Err(status) }) = event else { panic!("{event:?}") };
        assert!(status.message().contains(limit), "{status}");
    }
    input.extend(&frame(0x80, 1, 4, ["Arith", "Mul"], &[], b"fits"));
    assert!(matches!(machine.recv(&mut input, &mut out), Ok(Some(ClientEvent::Reply { id: 4, .. }))));
}

#[test]
fn connect_is_accepted_for_any_line_ends_and_split() {
    const ANSWER: &[u8] = b"HTTP/1.0 200 Connected to rpcx\n\n";
    for request in ["CONNECT /_rpcx_ HTTP/1.0\n\n", "CONNECT /_rpcx_ HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut side = server(Limits::default());
        for byte in request.bytes() {
            assert!(side.out.is_empty());
            assert!(side.next(&[byte]).is_none());
        }
        assert_eq!(side.out.take_all(), ANSWER);
        assert_eq!(side.open(&mul(b"1")).2, "1");
    }
    for (request, said) in [("CONNECT /other HTTP/1.0\n\n", "404"), (&*"C".repeat(5000), "")] {
        let mut side = server(Limits::default());
        side.fatal(request.as_bytes());
        assert!(String::from_utf8_lossy(&side.out.take_all()).contains(said));
    }
}

#[test]
fn client_begins_with_a_heartbeat() {
    let (mut side, mut peer) = (client(), server(Limits::default()));
    side.machine.greet(&mut side.out);
    assert!(matches!(peer.next(&side.out.take_all()), Some(ServerEvent::Handled)));
    assert!(matches!(side.events(&peer.out.take_all())[..], [ClientEvent::Pong]));
}

#[test]
fn client_sends_nothing_before_the_response_to_connect() {
    let mut side = client();
    side.machine = Client::new(Limits::default()).over_http(true);
    side.machine.method(0, "calc.Arith/Mul", None, &mut side.out);
    side.machine.greet(&mut side.out);
    let first = Bytes::from_static(b"first");
    side.machine.open(0, OPEN, Some((&first).into()), &mut side.out).unwrap();
    let request = side.out.take_all();
    assert_eq!(request, b"CONNECT /_rpcx_ HTTP/1.0\n\n");
    let mut peer = server(Limits::default());
    assert!(peer.next(&request).is_none());
    assert!(side.events(&peer.out.take_all()).is_empty());
    let (id, _, first) = peer.open(&side.out.take_all());
    assert_eq!(first, "first");
    peer.machine.reply(id, (&first).into(), &mut peer.out);
    assert!(matches!(side.events(&peer.out.take_all())[..], [ClientEvent::Reply { id: 0, .. }]));

    let mut odd = Client::new(Limits::default()).over_http(true);
    odd.greet(&mut Outbox::new());
    let mut input = Input::default();
    input.extend(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n");
    assert!(odd.recv(&mut input, &mut Outbox::new()).unwrap_err().0.contains("405"));
}
