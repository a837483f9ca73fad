//! Captured frames of other implementations, and the behavior of the state machines on all other input.

mod layouts;
mod streams;

use super::{
    Client, Layout, Names, Server, checksum, error_code,
    frame::{self, Payload},
    meta::put_user_field,
};
use crate::{
    Code, Fatal, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, Retry,
    ServiceInfo, Status, proto,
    wire::{
        ClientEvent, ClientWire, Codec, Encoding, Encodings, Head, Open, Opened, ServerEvent, ServerWire,
    },
};
use bytes::{Bytes, BytesMut};
use std::{sync::Arc, time::Duration};

static ECHO: ServiceInfo = ServiceInfo {
    name: "test.Echo",
    methods: &[
        MethodInfo::new("Say", Kind::Unary),
        MethodInfo::new("Count", Kind::ServerStream),
        MethodInfo::new("Chat", Kind::Bidi),
    ],
    descriptor: &[],
};

/// A request of jprotobuf's client.
const REQUEST: &str =
    "50525043 00000020 0000001b 0a130a0b6563686f536572766963651204 6563686f 1800 2001 2800 0a03616263";
/// The response of jprotobuf's server, which repeats the request.
const RESPONSE: &str = "50525043 0000002a 0000001f 0a130a0b6563686f5365727669636512046563686f 12020800 1800 2001 2800 \
                        0a0968656c6c6f20616263";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

fn server(limits: Limits) -> Server {
    let mut table = MethodTable::default();
    table.add(&ECHO).unwrap();
    table.alias("echoService/echo", "test.Echo/Say").unwrap();
    Server::new(limits, Arc::new(table)).with_encodings(Encodings::ALL)
}

/// A frame with the request `service/method` and more fields.
fn request(service: &str, method: &str, message: &[u8], more: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = Outbox::new();
    frame::put(Layout::Standard, &mut out, None, &Payload::one(&Bytes::copy_from_slice(message)), |meta| {
        let mut request = BytesMut::new();
        proto::put_bytes(&mut request, 1, service.as_bytes());
        proto::put_bytes(&mut request, 2, method.as_bytes());
        proto::put_bytes(meta, 1, &request);
        more(meta);
    });
    out.take_all()
}

fn receive(server: &mut Server, bytes: &[u8]) -> Result<Vec<ServerEvent>, Fatal> {
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    input.extend(bytes);
    while let Some(event) = server.recv(&mut input, &mut out)? {
        events.push(event);
    }
    assert!(out.is_empty(), "the machine writes nothing by itself");
    Ok(events)
}

/// Receives bytes that hold exactly one call.
fn opened(server: &mut Server, bytes: &[u8]) -> (u32, Head, Bytes) {
    match receive(server, bytes).unwrap().pop() {
        Some(ServerEvent::Open { id, head, first: Some(first), more: false, .. }) => (id, head, first),
        other => panic!("{other:?}"),
    }
}

/// Returns the status with which the server rejects these bytes, and the status that the client reads.
fn refused(server: &mut Server, bytes: &[u8]) -> (Status, Status) {
    let Some(ServerEvent::Refused { id, status }) = receive(server, bytes).unwrap().pop() else {
        panic!("not refused")
    };
    let mut out = Outbox::new();
    server.end(id, Err(&status), &mut out);
    let answer = client_events(&out.take_all());
    let [ClientEvent::End { end: Err(received), .. }] = &answer[..] else { panic!("{answer:?}") };
    (status, received.clone())
}

/// Returns the events of a client that receives these bytes.
fn client_events(bytes: &[u8]) -> Vec<ClientEvent> {
    let mut client = Client::new(Limits::default());
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    input.extend(bytes);
    while let Some(event) = client.recv(&mut input, &mut out).unwrap() {
        events.push(event);
    }
    events
}

fn call<'a>(metadata: &'a Metadata) -> Open<'a> {
    Open {
        method: 0,
        codec: Codec::Proto,
        timeout: None,
        metadata,
        oneway: false,
        more: false,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    }
}

/// Encodes a call of `test.Echo/Say`.
fn sent(client: &mut Client, open: Open<'_>, message: &[u8]) -> Vec<u8> {
    let mut out = Outbox::new();
    client.method(0, "test.Echo/Say", None, &mut out);
    client.open(1, open, Some(Outgoing::Lent(message)), &mut out).unwrap();
    out.take_all()
}

#[test]
fn request_of_jprotobuf_is_read_and_gets_a_response() {
    let bytes = hex(REQUEST);
    let mut server = server(Limits::default());
    let (id, head, first) = opened(&mut server, &bytes);
    assert_eq!((head.codec, &first[..]), (Codec::Proto, &b"\x0a\x03abc"[..]));
    assert!(head.metadata.is_empty() && head.timeout.is_none() && !head.oneway);
    let mut out = Outbox::new();
    server.reply(id, (&first).into(), &mut out);
    let answer = hex("50525043 0000000b 00000006 12020800 2001 0a03616263");
    assert_eq!(out.take_all(), answer);
    // The fast path (`next_call`), with two requests in one piece.
    let mut input = Input::default();
    input.extend(&[&bytes[..], &bytes, &bytes[..20]].concat());
    for _ in 0..2 {
        let Opened { id, len, .. } = server.next_call(&mut input).unwrap();
        let first = input.take(len);
        server.reply(id, (&first).into(), &mut out);
    }
    assert!(server.next_call(&mut input).is_none());
    assert!(server.recv(&mut input, &mut out).unwrap().is_none());
    assert_eq!(out.take_all(), [&answer[..], &answer].concat());
}

#[test]
fn response_with_its_request_inside_is_a_response() {
    let bytes = hex(RESPONSE);
    let [ClientEvent::Reply { id: 1, item, compressed: false }] = &client_events(&bytes)[..] else {
        panic!()
    };
    assert_eq!(&item[..], b"\x0a\x09hello abc");
    let mut input = Input::default();
    input.extend(&bytes);
    assert_eq!(Client::new(Limits::default()).take_reply(&mut input).unwrap().0, 1);
    // An error response of such a server repeats the request's message.
    let error = hex("50525043 00000016 00000011 0a020a00 1207 08e907 1202 6e6f 1800 2007 0a03616263");
    let [ClientEvent::End { id: 7, end: Err(status) }] = &client_events(&error)[..] else { panic!() };
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "no"));
    assert_eq!(status.metadata().text("baidu-error-code"), Some("1001"));
}

#[test]
fn all_fields_of_a_request_arrive() {
    let mut metadata = Metadata::new();
    for (name, value) in [
        ("baidu-log-id", "-5"),
        ("baidu-trace-id", "6"),
        ("x-request-id", "r-1"),
        ("baidu-authentication", "s3cret"),
        ("tenant", "acme"),
        ("raw-bin", "\u{1}\u{ff}"),
    ] {
        metadata.insert(name, value.as_bytes().to_vec()).unwrap();
    }
    metadata.set_attachment("attached");
    let open = Open { timeout: Some(Duration::from_micros(1500)), codec: Codec::Json, ..call(&metadata) };
    let mut client = Client::new(Limits::default()).checksums(true);
    let bytes = sent(&mut client, open, b"{}");
    let mut server = server(Limits::default());
    let (id, head, first) = opened(&mut server, &bytes);
    assert_eq!(
        (head.codec, &first[..], head.timeout),
        (Codec::Json, &b"{}"[..], Some(Duration::from_millis(2)))
    );
    let text = |name| head.metadata.text(name);
    assert_eq!((text("baidu-log-id"), text("baidu-trace-id")), (Some("-5"), Some("6")));
    assert_eq!((text("x-request-id"), text("tenant")), (Some("r-1"), Some("acme")));
    assert_eq!(text("authorization"), Some("Bearer s3cret"));
    assert_eq!(head.metadata.value("raw-bin").unwrap(), "\u{1}\u{ff}");
    assert_eq!(head.metadata.attachment().unwrap(), "attached");
    // Metadata of the reply.
    let mut reply = Metadata::new();
    reply.insert("cost", "3").unwrap();
    reply.set_attachment("more");
    let mut trailers = Metadata::new();
    trailers.insert("end-bin", vec![0, 255]).unwrap();
    let mut out = Outbox::new();
    server.head(id, &reply, &mut out);
    assert!(out.is_empty());
    server.reply_with(id, Outgoing::Lent(b"[]"), false, &trailers, &mut out);
    let answer = out.take_all();
    let [
        ClientEvent::ReplyCodec { id: 1, codec: Codec::Json },
        ClientEvent::Head { id: 1, metadata },
        ClientEvent::Reply { id: 1, item, .. },
    ] = &client_events(&answer)[..]
    else {
        panic!()
    };
    assert_eq!((&item[..], metadata.text("cost")), (&b"[]"[..], Some("3")));
    assert_eq!(metadata.value("end-bin").unwrap(), &vec![0, 255]);
    assert_eq!(metadata.attachment().unwrap(), "more");
    // The checksum covers message and attachment.
    let at = answer.len() - 1;
    let damaged = [&answer[..at], &[answer[at] ^ 1]].concat();
    let [ClientEvent::End { end: Err(status), .. }] = &client_events(&damaged)[..] else { panic!() };
    assert!(status.message().contains("checksum"), "{status}");
    // The credentials belong to the connection: later calls have them too, unless they bring their own.
    let (_, head, _) = opened(&mut server, &hex(REQUEST));
    assert_eq!(head.metadata.text("authorization"), Some("Bearer s3cret"));
    let own = request("Echo", "Say", b"", |meta| put_user_field(meta, "Authorization", b"Basic eA=="));
    let (_, head, _) = opened(&mut server, &own);
    let values: Vec<_> = head.metadata.iter().collect();
    assert_eq!(values, [("authorization", &Bytes::from("Basic eA=="))]);
}

#[test]
fn odd_user_fields_are_kept_or_left_out() {
    let bytes = request("test.Echo", "Say", b"", |meta| {
        put_user_field(meta, "Note", "é".as_bytes());
        put_user_field(meta, "no name", b"1");
        put_user_field(meta, "x-bin", b"not base64!");
        proto::put_bytes(meta, 7, &[0, 255]);
    });
    let (_, head, _) = opened(&mut server(Limits::default()), &bytes);
    let names: Vec<_> = head.metadata.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["note-bin", "x-bin", "baidu-authentication-bin"]);
    assert_eq!(head.metadata.value("note-bin").unwrap(), "é");
    let many = request("test.Echo", "Say", b"", |meta| {
        (0..65).for_each(|_| put_user_field(meta, "a", b"b"));
    });
    let (status, _) = refused(&mut server(Limits::default()), &many);
    assert!(status.message().contains("metadata_entries_max"), "{status}");
    let long = request("test.Echo", "Say", b"", |meta| put_user_field(meta, "a", &[b'x'; 17 << 10]));
    let (status, _) = refused(&mut server(Limits::default()), &long);
    assert!(status.message().contains("metadata_bytes_max"), "{status}");
}

#[test]
fn pairs_of_brpc_java_use_the_field_of_the_request_id() {
    // log_id 77 and the pair "x-who", "bob", as written by the client of brpc-java.
    let more = "184d 3a0c 0a05782d77686f 1203626f62";
    let (names, rest) = ("0a0b6563686f536572766963651204 6563686f", "1800 2001 2800 0a03616263");
    let bytes = hex(&format!("50525043 00000030 0000002b 0a23 {names} {more} {rest}"));
    let (_, head, first) = opened(&mut server(Limits::default()), &bytes);
    let values: Vec<_> = head.metadata.iter().map(|(name, value)| (name, &value[..])).collect();
    assert_eq!(values, [("x-who", &b"bob"[..]), ("baidu-log-id", b"77")]);
    assert_eq!(first, "\n\x03abc");
}

#[test]
fn checksums_cover_the_compressed_message() {
    let metadata = Metadata::new();
    let mut client = Client::new(Limits::default()).checksums(true);
    for (encoding, number) in [(Encoding::Snappy, 1), (Encoding::Gzip, 2), (Encoding::Deflate, 3)] {
        let open = Open { encoding, compressed: true, ..call(&metadata) };
        let bytes = sent(&mut client, open, b"squeezed");
        let mut server = server(Limits::default());
        let events = receive(&mut server, &bytes).unwrap();
        let [ServerEvent::Open { id, head, first: Some(first), compressed: true, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((head.encoding, &first[..]), (encoding, &b"squeezed"[..]));
        let mut out = Outbox::new();
        server.reply_with(*id, first.into(), true, &Metadata::new(), &mut out);
        let answer = out.take_all();
        assert!(answer[12..].windows(2).any(|pair| pair == [0x18, number]), "{answer:02x?}");
        // The reply is not compressed, so the client cannot decompress it.
        let [ClientEvent::End { end: Err(status), .. }] = &client_events(&answer)[..] else { panic!() };
        assert!(status.message().contains("cannot be decompressed"), "{status}");
        let damaged = [&bytes[..bytes.len() - 1], b"!"].concat();
        let (status, received) = refused(&mut server, &damaged);
        assert!(status.message().contains("checksum"), "{status}");
        assert_eq!(error_code(&received), 1003);
    }
    let open = Open { encoding: Encoding::Zstd, compressed: true, ..call(&metadata) };
    let status = client.open(1, open, Some(Outgoing::EMPTY), &mut Outbox::new()).unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[test]
fn replies_in_another_compression_than_requested_are_read() {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[7; 5_000_000]).unwrap();
    let bomb = gzip.finish().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[7; 5000]).unwrap();
    let small = gzip.finish().unwrap();
    let answer = |item: Vec<u8>, number| {
        let mut out = Outbox::new();
        frame::put(Layout::Standard, &mut out, None, &Payload::one(&item.into()), |meta| {
            proto::put_number(meta, 3, number);
            proto::put_number(meta, 4, 1);
        });
        client_events(&out.take_all()).pop().unwrap()
    };
    let snapped = snap::raw::Encoder::new().compress_vec(&[7; 5000]).unwrap();
    for (item, number) in [(small, 2), (snapped, 1)] {
        let ClientEvent::Reply { item, compressed: false, .. } = answer(item, number) else { panic!() };
        assert_eq!(item, [7; 5000][..]);
    }
    for (item, number, text) in [
        (bomb, 2, "message_bytes_max"),
        (vec![1], 3, "cannot be decompressed"),
        (vec![1], 4, "compress type 4"),
        (vec![0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0], 1, "message_bytes_max"),
        (vec![0x80, 0x80, 0x40, 0], 1, "cannot decompress"),
    ] {
        let ClientEvent::End { end: Err(status), .. } = answer(item, number) else { panic!() };
        assert!(status.message().contains(text), "{status}");
    }
}

#[test]
fn names_are_found_full_and_short() {
    let mut server = server(Limits::default());
    for (service, method) in [("test.Echo", "Say"), ("Echo", "Say"), ("echoService", "echo")] {
        // The second lookup uses the cache.
        for _ in 0..2 {
            assert_eq!(opened(&mut server, &request(service, method, b"", |_| {})).1.method.0, 0);
        }
    }
    for (service, method, number, text) in [
        ("test.Echo", "Nope", 1002, "test.Echo has Say, Count, Chat"),
        ("Echo", "Nope", 1002, "test.Echo has Say, Count, Chat"),
        ("Nope", "Say", 1001, "unknown service Nope"),
        ("a.Nope", "Say", 1001, "unknown service a.Nope"),
        ("Echo", "Count", 1002, "open a stream"),
        ("\u{1}", "", 1001, "unknown service"),
    ] {
        let (status, received) = refused(&mut server, &request(service, method, b"x", |_| {}));
        assert!(status.message().contains(text), "{status}");
        assert_eq!(error_code(&received), number, "{received}");
        assert_eq!((received.code(), received.message()), (Code::Unimplemented, status.message()));
    }
    let (status, _) = refused(&mut server, &request(&"x".repeat(257), "Say", b"", |_| {}));
    assert!(status.message().contains("at most 256 bytes"), "{status}");
    let mut out = Outbox::new();
    let mut client = Client::new(Limits::default()).naming(Names::Short);
    client.method(0, "test.Echo/Say", None, &mut out);
    client.open(9, call(&Metadata::new()), Some(Outgoing::EMPTY), &mut out).unwrap();
    assert_eq!(out.take_all(), hex("50525043 0000000f 0000000f 0a0b 0a044563686f 1203536179 2009"));
}

#[test]
fn invalid_frames_are_rejected_or_end_the_connection() {
    for (bytes, text) in [
        (hex("50525044"), "where a frame of baidu_std begins"),
        (hex("5354524e"), "where a frame of baidu_std begins"),
        (hex("5354524d 00000000 00000000"), "a StreamFrameMeta that cannot be read"),
        (hex("5354524d 00000000 00000001"), "a meta of 1"),
        (hex("50525043 00000002 00000002 4200"), "cannot be read"),
        (hex("50525043 00000001 00000002"), "a meta of 2"),
        (hex("50525043 00020000 00010001"), "the limit is 65536"),
        (hex("50525043 00000000 00000000"), "without a request"),
        (hex("50525043 00000002 00000002 2001"), "without a request"),
        (hex("50525043 00000002 00000002 0aff"), "cannot be read"),
    ] {
        let fatal = receive(&mut server(Limits::default()), &bytes).unwrap_err();
        assert!(fatal.0.contains(text), "{fatal}");
    }
    let limits = Limits { message_bytes_max: 100, ..Limits::default() };
    let mut server = server(limits);
    type More = fn(&mut BytesMut);
    let cases: [(usize, More, i32, &str); 7] = [
        (3, |meta| proto::put_number(meta, 5, 4), 1003, "an attachment of 4 bytes"),
        (3, |meta| proto::put_number(meta, 5, u64::MAX), 1003, "an attachment of -1 bytes"),
        (3, |meta| proto::put_number(meta, 3, 4), 1003, "compress type 4"),
        (3, |meta| proto::put_number(meta, 3, 77), 1003, "compress type 77"),
        (3, |meta| proto::put_number(meta, 10, 3), 1003, "content type 3"),
        (3, |meta| proto::put_number(meta, 11, 1), 1003, "checksum"),
        (101, |_| {}, 2001, "message_bytes_max"),
    ];
    for (len, more, number, text) in cases {
        let bytes = request("Echo", "Say", &vec![b'x'; len], more);
        let (status, received) = refused(&mut server, &[&bytes[..], &hex(REQUEST)[..5]].concat());
        assert!(status.message().contains(text), "{status}");
        assert_eq!(error_code(&received), number, "{received}");
    }
    // The whole payload may be the attachment.
    let bytes = request("Echo", "Say", b"abc", |meta| proto::put_number(meta, 5, 3));
    let (_, head, first) = opened(&mut server, &bytes);
    assert_eq!((first.len(), head.metadata.attachment().map(|bytes| &bytes[..])), (0, Some(&b"abc"[..])));
    // The server rejects a message before it has arrived completely.
    let large = request("Echo", "Say", &[0; 200], |_| {});
    let (mut input, mut out) = (Input::default(), Outbox::new());
    input.extend(&large[..large.len() - 200]);
    let event = server.recv(&mut input, &mut out).unwrap();
    assert!(matches!(event, Some(ServerEvent::Refused { .. })), "{event:?}");
    input.extend(&[&[0; 200][..], &hex(REQUEST)].concat());
    assert!(matches!(server.recv(&mut input, &mut out), Ok(Some(ServerEvent::Open { .. }))));
}

#[test]
fn statuses_come_with_all_that_they_have() {
    let mut server = server(Limits::default());
    let mut metadata = Metadata::new();
    metadata.insert("hint", "later").unwrap();
    for status in [
        Status::not_found("no such post")
            .with_detail("test.Detail", &b"\x08\x01"[..])
            .with_metadata(metadata),
        Status::resource_exhausted("full").with_retry(Retry::After(Duration::from_millis(250))),
        Status::unavailable("going").with_retry(Retry::Safe),
        Status::unavailable("somewhere").with_retry(Retry::IfIdempotent),
        Status::data_loss(""),
    ] {
        let (id, ..) = opened(&mut server, &hex(REQUEST));
        let mut out = Outbox::new();
        server.end(id, Err(&status), &mut out);
        let [ClientEvent::End { id: 1, end: Err(received) }] = &client_events(&out.take_all())[..] else {
            panic!()
        };
        assert_eq!(
            (received.code(), received.message(), received.retry()),
            (status.code(), status.message(), status.retry())
        );
        assert_eq!(received.details(), status.details());
        assert_eq!(received.metadata().text("hint"), status.metadata().text("hint"));
    }
    // A server that shuts down refuses calls.
    server.refuse();
    let (_, received) = refused(&mut server, &hex(REQUEST));
    assert_eq!(error_code(&received), 2003);
}

#[test]
fn slots_are_reused_and_each_call_has_one_response() {
    let mut server = server(Limits::default());
    let mut out = Outbox::new();
    let ids: Vec<_> = (0..200).map(|_| opened(&mut server, &hex(REQUEST)).0).collect();
    for id in ids {
        server.reply(id, Outgoing::EMPTY, &mut out);
        let len = out.len();
        server.reply(id, Outgoing::EMPTY, &mut out);
        server.end(id, Err(&Status::internal("")), &mut out);
        assert_eq!(out.len(), len);
    }
    assert_eq!(opened(&mut server, &hex(REQUEST)).0, 0);
    assert_eq!(client_events(&out.take_all()).len(), 200);
}

#[test]
fn correlation_ids_are_any_64_bits() {
    let mut server = server(Limits::default());
    for number in [0, u64::MAX, 1 << 63] {
        let bytes = request("Echo", "Say", b"", |meta| proto::put_number(meta, 4, number));
        let (id, ..) = opened(&mut server, &bytes);
        let mut out = Outbox::new();
        server.reply(id, Outgoing::EMPTY, &mut out);
        let answer = out.take_all();
        assert_eq!(super::meta::Meta::read(&answer[12..]).unwrap().correlation_id, number);
    }
    // The driver drops responses of calls that are not in flight, and the connection stays open.
    let stray = {
        let mut out = Outbox::new();
        let payload = Bytes::from_static(b"abc");
        frame::put(Layout::Standard, &mut out, None, &Payload::one(&payload), |meta| {
            proto::put_number(meta, 4, 1 << 40);
        });
        out.take_all()
    };
    assert_eq!(client_events(&[&stray[..], &hex(RESPONSE)].concat()).len(), 2);
    assert_eq!(checksum::value([]).len(), 4);
}
