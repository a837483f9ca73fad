//! The layout and rules of the document, byte by byte, and the behavior of the state machines on all other input.

use super::{BODY_BYTES_MAX, Client, Compression, Server};
use crate::{
    Code, Codec, Encoding, Encodings, Fatal, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox,
    Outgoing, ServiceInfo, Status,
    wire::{ClientEvent, ClientWire, Head, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};

static ECHO: ServiceInfo = ServiceInfo {
    name: "test.Echo",
    methods: &[MethodInfo::new("Say", Kind::Unary), MethodInfo::new("Count", Kind::ServerStream)],
    descriptor: &[],
};

const SAY: u64 = 0x1234_5678;

fn server(limits: Limits) -> Server {
    let mut table = MethodTable::default();
    table.add(&ECHO).unwrap();
    table.alias(&format!("kiss/{SAY}"), "test.Echo/Say").unwrap();
    table.alias("kiss/7", "test.Echo/Count").unwrap();
    Server::new(limits, Arc::new(table)).with_encodings(Encodings::ALL)
}

fn client() -> Client {
    let functions = HashMap::from([("test.Echo/Say".to_owned(), SAY)]);
    Client::new(Limits::default()).functions(Arc::new(functions))
}

/// Builds a frame with this head, which is `st` and the status, and this body.
fn frame(how: [u8; 3], function: u64, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xFF, 20, 1];
    bytes.extend_from_slice(&how);
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&function.to_be_bytes());
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn receive(server: &mut Server, bytes: &[u8]) -> Result<(Vec<ServerEvent>, Vec<u8>), Fatal> {
    let (mut input, mut out, mut events) = (Input::default(), Outbox::new(), Vec::new());
    input.extend(bytes);
    while let Some(event) = server.recv(&mut input, &mut out)? {
        events.push(event);
    }
    Ok((events, out.take_all()))
}

/// Receives bytes that hold exactly one call.
fn opened(server: &mut Server, bytes: &[u8]) -> (u32, Head, Bytes) {
    match receive(server, bytes).unwrap().0.pop() {
        Some(ServerEvent::Open { id, head, first: Some(first), compressed: false, more: false }) => {
            (id, head, first)
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the response of the server with `message`.
fn answer(server: &mut Server, id: u32, message: &[u8]) -> Vec<u8> {
    let mut out = Outbox::new();
    server.reply(id, Outgoing::Lent(message), &mut out);
    out.take_all()
}

/// Returns the status with which the server rejects these bytes, and the response.
fn refused(server: &mut Server, bytes: &[u8]) -> (Status, Vec<u8>) {
    let Some(ServerEvent::Refused { id, status }) = receive(server, bytes).unwrap().0.pop() else {
        panic!("not refused")
    };
    let mut out = Outbox::new();
    server.end(id, Err(&status), &mut out);
    (status, out.take_all())
}

/// Returns the event of a client that receives these bytes.
fn client_event(bytes: &[u8]) -> ClientEvent {
    let (mut input, mut out) = (Input::default(), Outbox::new());
    input.extend(bytes);
    let event = client().recv(&mut input, &mut out).unwrap().unwrap();
    assert!(input.is_empty() && out.is_empty());
    event
}

fn call(metadata: &Metadata) -> Open<'_> {
    Open {
        method: 0,
        codec: Codec::FlatBuffers,
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
fn sent(client: &mut Client, open: Open<'_>, message: &[u8]) -> Result<Vec<u8>, Status> {
    let mut out = Outbox::new();
    client.method(0, "test.Echo/Say", None, &mut out);
    client.open(5, open, Some(Outgoing::Lent(message)), &mut out)?;
    Ok(out.take_all())
}

#[test]
fn request_and_response_are_as_the_document_has_them() {
    let request = sent(&mut client(), call(&Metadata::new()), b"abc").unwrap();
    let expected = [
        &[0xFF, 0xFF, 0x14, 0x01, 0x00, 0x04, 0x00, 0, 0][..],
        &[0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78],
        &[0, 0, 0, 5, 0, 3],
        b"abc",
    ]
    .concat();
    assert_eq!(request, expected);
    let mut server = server(Limits::default());
    let (id, head, first) = opened(&mut server, &request);
    assert_eq!((head.codec, &first[..], head.oneway), (Codec::FlatBuffers, &b"abc"[..], false));
    // The response repeats function, sequence and codec of the request.
    let response = answer(&mut server, id, b"defg");
    assert_eq!(response, frame([0, 4, 0], SAY, 5, b"defg"));
    let ClientEvent::Reply { id: 5, item, compressed: false } = client_event(&response) else { panic!() };
    assert_eq!(item, "defg");
}

#[test]
fn non_blocking_bit_is_copied_and_others_are_not() {
    let mut server = server(Limits::default());
    let (id, ..) = opened(&mut server, &frame([0, 4, 0x60], SAY, 1, b""));
    assert_eq!(answer(&mut server, id, b""), frame([0, 4, 0x20], SAY, 1, b""));
    // Two calls with the same sequence are separate calls.
    let twice = [frame([0, 4, 0], SAY, 9, b"a"), frame([0, 4, 0x20], SAY, 9, b"b")].concat();
    assert_eq!(receive(&mut server, &twice).unwrap().0.len(), 2);
    assert_eq!(answer(&mut server, 1, b"b"), frame([0, 4, 0x20], SAY, 9, b"b"));
    assert_eq!(answer(&mut server, 0, b"a"), frame([0, 4, 0], SAY, 9, b"a"));
}

#[test]
fn heartbeats_are_echoed_and_recognized() {
    let mut pinged = Outbox::new();
    client().ping(&mut pinged);
    let heartbeat = pinged.take_all();
    assert_eq!(heartbeat, frame([0, 0, 0], 0, 0, b""));
    let (events, echo) = receive(&mut server(Limits::default()), &heartbeat).unwrap();
    assert!(matches!(&events[..], [ServerEvent::Handled]));
    assert_eq!(echo, heartbeat);
    assert!(matches!(client_event(&echo), ClientEvent::Pong));
    let odd = frame([2, 4, 0x80], 0, 77, b"body");
    let (_, echo) = receive(&mut server(Limits::default()), &odd).unwrap();
    assert_eq!(echo, frame([2, 4, 0x80], 0, 77, b""));
    assert!(!client().responds_to_pings() && client().heartbeats(true).responds_to_pings());
}

#[test]
fn snappy_follows_the_request() {
    let pack = |plain: &[u8]| snap::raw::Encoder::new().compress_vec(plain).unwrap();
    let mut server = server(Limits::default());
    let (short, long) = (vec![b'a'; 199], vec![b'a'; 200]);
    for (kind, message, packed) in [
        (0, &long, false),
        (1, &short, false),
        (1, &long, true),
        (2, &short, true),
        (2, &Vec::new(), true),
        (9, &long, false),
    ] {
        // The own bits of a body mark it as compressed, independent of the requested compression.
        let request = frame([0xF0 | kind, 4, 0], SAY, 1, &pack(b"hello"));
        let (id, _, first) = opened(&mut server, &request);
        assert_eq!(first, "hello");
        let kind = if kind > 2 { 0 } else { kind };
        let expected = match packed {
            true => frame([0xF0 | kind, 4, 0], SAY, 1, &pack(message)),
            false => frame([kind, 4, 0], SAY, 1, message),
        };
        let response = answer(&mut server, id, message);
        assert_eq!(response, expected, "kind {kind}");
        let ClientEvent::Reply { item, compressed: false, .. } = client_event(&response) else { panic!() };
        assert_eq!(item, message[..]);
    }
    let metadata = Metadata::new();
    for (compression, encoding, first) in [
        (Compression::None, Encoding::Identity, 0x00),
        (Compression::None, Encoding::Snappy, 0xF1),
        (Compression::Dynamic, Encoding::Identity, 0xF1),
        (Compression::Forced, Encoding::Snappy, 0xF2),
    ] {
        let mut client = client().compressing(compression);
        let sent = sent(&mut client, Open { encoding, ..call(&metadata) }, &long).unwrap();
        assert_eq!(sent[4], first, "{compression:?}");
    }
    // A message that the driver compressed is sent unchanged.
    let open = Open { encoding: Encoding::Snappy, compressed: true, ..call(&metadata) };
    assert_eq!(sent(&mut client(), open, b"xyz").unwrap(), frame([0xF1, 4, 0], SAY, 5, b"xyz"));
}

#[test]
fn failure_is_one_bit() {
    let mut server = server(Limits { message_bytes_max: 100, ..Limits::default() });
    let failed = frame([0, 4, 1], SAY, 3, b"");
    let huge = snap::raw::Encoder::new().compress_vec(&[0; 101]).unwrap();
    for (request, code) in [
        (frame([0, 1, 0], SAY, 3, b""), Code::InvalidArgument),
        (frame([0xF2, 4, 0], SAY, 3, b"\xFF\xFF"), Code::InvalidArgument),
        (frame([0xF2, 4, 0], SAY, 3, &huge), Code::InvalidArgument),
        (frame([0, 4, 0], SAY, 3, &[0; 101]), Code::ResourceExhausted),
        (frame([0, 4, 0], 4, 3, b""), Code::Unimplemented),
        (frame([0, 4, 0], 7, 3, b""), Code::Unimplemented),
    ] {
        let (status, answer) = refused(&mut server, &request);
        assert_eq!(status.code(), code, "{status}");
        assert_eq!((answer.len(), answer[6], &answer[17..]), (failed.len(), 1, &failed[17..]));
    }
    server.refuse();
    assert_eq!(refused(&mut server, &frame([0, 4, 0], SAY, 3, b"")).0.code(), Code::Unavailable);
    let ClientEvent::End { id: 3, end: Err(status) } = client_event(&failed) else { panic!() };
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().contains("carries no reason"));
}

#[test]
fn messages_too_large_for_a_frame_are_not_truncated() {
    let mut server = server(Limits::default());
    let (id, ..) = opened(&mut server, &frame([0, 4, 0], SAY, 1, b""));
    let response = answer(&mut server, id, &[0; BODY_BYTES_MAX + 1]);
    assert_eq!(response, frame([0, 4, 1], SAY, 1, b""));
    let (id, ..) = opened(&mut server, &frame([0, 4, 0], SAY, 1, b""));
    assert_eq!(answer(&mut server, id, &[0; BODY_BYTES_MAX]).len(), 1 << 16);
    let metadata = Metadata::new();
    let status = sent(&mut client(), call(&metadata), &[0; BODY_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    // The compressed message fits.
    let mut client = client().compressing(Compression::Dynamic);
    assert!(sent(&mut client, call(&metadata), &[0; BODY_BYTES_MAX + 1]).unwrap().len() < 4000);
}

#[test]
fn calls_that_the_wire_cannot_carry_are_not_sent() {
    let metadata = Metadata::new();
    let status = sent(&mut client(), Open { more: true, ..call(&metadata) }, b"").unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let status = sent(&mut client(), Open { codec: Codec::Postcard, ..call(&metadata) }, b"").unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let status = sent(&mut Client::new(Limits::default()), call(&metadata), b"").unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("function=test.Echo/Say:NUMBER"), "{status}");
}

#[test]
fn one_way_calls_have_no_reply() {
    let metadata = Metadata::new();
    let request = sent(&mut client(), Open { oneway: true, ..call(&metadata) }, b"x").unwrap();
    assert_eq!(request, frame([0, 4, 0x80], SAY, 5, b"x"));
    let mut server = server(Limits::default());
    let (id, head, _) = opened(&mut server, &request);
    assert!(head.oneway);
    assert!(answer(&mut server, id, b"unused").is_empty());
    assert!(refused(&mut server, &frame([0, 4, 0x80], 99, 1, b"")).1.is_empty());
}

#[test]
fn bytes_that_are_no_frames_end_the_connection() {
    for (bytes, text) in [
        (&b"\xFF\xFE"[..], "ff, fe"),
        (b"\xFF\xFF\x14\x02", "14, 02"),
        (b"\xFF\xFF\x10\x01", "a peer with 32 bits"),
        (b"\xAA\xBB\xCC\xDD\xAA\xAA\xAA\xFF", "aa, bb"),
    ] {
        let fatal = receive(&mut server(Limits::default()), bytes).unwrap_err();
        assert!(fatal.0.contains(text), "{fatal}");
        let mut input = Input::default();
        input.extend(bytes);
        assert!(client().recv(&mut input, &mut Outbox::new()).is_err());
    }
}
