//! State machines of Thrift, against arbitrary bytes and against each other.

use super::{Choices, feed::pieces, machines::limits};
use crate::{
    Codec, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing, ServiceInfo, Status,
    thrift::{
        Client, Encoded, Framing, Reader, Server, Settings, Type,
        header::Header,
        message::{self, Form, Head},
        scan::Scanner,
        transcode,
    },
    wire::{ClientEvent, ClientWire, Encoding, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::sync::Arc;

static MATH: ServiceInfo = ServiceInfo {
    name: "test.Math",
    methods: &[
        MethodInfo::new("add", Kind::Unary),
        MethodInfo::new("note", Kind::Unary).oneway(),
        MethodInfo::new("late", Kind::Unary),
        MethodInfo::new("fail", Kind::Unary),
        MethodInfo::new("watch", Kind::ServerStream),
    ],
    descriptor: &[],
};

fn server(limits: Limits) -> Server {
    let mut table = MethodTable::default();
    table.add(&MATH).expect("one service");
    Server::new(limits, Arc::new(table))
}

/// Feeds the server with bytes of a client that follows no rule. Checks that it does not panic, that calls and
/// responses do not depend on the split, and that it respects the limits.
///
/// # Panics
/// If the property does not hold.
pub fn thrift_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut limits = limits(&mut choices);
    limits.message_bytes_max = limits.message_bytes_max.max(60);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = messages(&mut choices);
    let whole = serve(limits, &bytes, &[], false);
    assert!(whole == serve(limits, &bytes, &steps, false), "the split makes a difference: {whole:?}");
    assert!(whole == serve(limits, &bytes, &steps, true), "the fast path makes a difference: {whole:?}");
}

/// Returns events, responses, and whether the connection ended.
fn serve(limits: Limits, bytes: &[u8], steps: &[u8], short: bool) -> (Vec<String>, Vec<u8>, bool) {
    let mut server = server(limits);
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut late, mut ended) = (Vec::new(), Vec::new(), false);
    'connection: for piece in pieces(bytes, steps) {
        input.extend(piece);
        loop {
            let event = match short.then(|| server.next_call(&mut input)).flatten() {
                Some(opened) => Ok(Some((opened.id, opened.method, input.take(opened.len), false))),
                None => match server.recv(&mut input, &mut out) {
                    Ok(Some(ServerEvent::Open { id, head, first, .. })) => {
                        assert_eq!(head.codec, Codec::Thrift);
                        assert!(head.metadata.len() <= limits.metadata_entries_max as usize);
                        assert!(head.metadata.encoded_len() <= limits.metadata_bytes_max as usize);
                        Ok(Some((id, head.method, first.expect("one message"), head.oneway)))
                    }
                    Ok(Some(ServerEvent::Handled)) => continue,
                    Ok(Some(event)) => panic!("{event:?}"),
                    Ok(None) => Ok(None),
                    Err(fatal) => Err(fatal),
                },
            };
            let (id, method, first, oneway) = match event {
                Ok(Some(call)) => call,
                Ok(None) => break,
                Err(_) => {
                    ended = true;
                    break 'connection;
                }
            };
            assert!(first.len() <= limits.message_bytes_max as usize, "{} bytes", first.len());
            events.push(format!("{method:?} {oneway} {first:?}"));
            match method.0 {
                0 => server.reply(id, (&first).into(), &mut out),
                2 => late.push(id),
                _ => server.end(id, Err(&Status::aborted("so")), &mut out),
            }
        }
    }
    for id in late {
        server.reply(id, Outgoing::Lent(&[0]), &mut out);
    }
    assert_eq!(server.unsent_response_bytes(), 0);
    (events, out.take_all(), ended)
}

/// Mostly messages in all their forms, with noise in between.
fn messages(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let framing = [Framing::Framed, Framing::Header, Framing::Unframed][usize::from(choices.byte()) % 3];
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.one_in(32) {
            bytes.extend_from_slice(choices.bytes(6));
        }
        let form = [Form::Strict, Form::Compact, Form::Old][usize::from(choices.byte()) % 3];
        let names = ["add", "Math:add", "note", "late", "fail", "watch", "nope", "a:b:c"];
        let name = names[usize::from(choices.byte()) % names.len()].as_bytes();
        let kinds = [message::Kind::Call, message::Kind::Oneway, message::Kind::Call, message::Kind::Reply];
        let kind = kinds[usize::from(choices.byte()) % kinds.len()];
        let mut message = Vec::new();
        Head { form, kind, name, sequence: choices.long() as i32, len: 0 }.write(&mut message);
        let mut body = Vec::new();
        structure(choices, &mut body, 0);
        if form == Form::Compact {
            body = transcode::to_compact(&body).expect("a struct that was just written").0;
        }
        if choices.one_in(16) && !body.is_empty() {
            let at = usize::from(choices.short()) % body.len();
            body[at] ^= choices.byte();
        }
        message.extend(body);
        match framing {
            Framing::Unframed => bytes.extend(message),
            Framing::Framed => {
                let odd = if choices.one_in(32) { choices.long() } else { 0 };
                bytes.extend((message.len() as u32 ^ odd).to_be_bytes());
                bytes.extend(message);
            }
            Framing::Header => {
                let encoded = if choices.one_in(4) { Encoded::Compact } else { Encoded::Binary };
                let (sequence, flags) = (choices.long(), choices.short());
                let (zlib, metadata) = (choices.one_in(4), choices.metadata(3));
                Header { sequence, flags, encoded, zlib, metadata }.write(&message, &mut bytes);
            }
        }
    }
    bytes
}

/// Writes a struct of values of every type.
fn structure(choices: &mut Choices<'_>, out: &mut Vec<u8>, depth: usize) {
    while !choices.one_in(3) && !choices.is_over() {
        let kind = kind(choices, depth);
        out.push(kind.0);
        out.extend(choices.short().to_be_bytes());
        value(choices, kind, out, depth);
    }
    out.push(0);
}

fn kind(choices: &mut Choices<'_>, depth: usize) -> Type {
    let kinds = [2u8, 3, 4, 6, 8, 10, 11, 16, 12, 13, 14, 15];
    let known = if depth < 5 { kinds.len() } else { 8 };
    Type(kinds[usize::from(choices.byte()) % known])
}

fn value(choices: &mut Choices<'_>, of: Type, out: &mut Vec<u8>, depth: usize) {
    match of {
        Type::BOOL => out.push(choices.byte() % 2),
        Type::I8 => out.push(choices.byte()),
        Type::I16 => out.extend(choices.short().to_be_bytes()),
        Type::I32 => out.extend(choices.long().to_be_bytes()),
        Type::I64 | Type::DOUBLE => {
            out.extend(choices.long().to_be_bytes());
            out.extend(choices.long().to_be_bytes());
        }
        Type::UUID => out.extend([choices.byte(); 16]),
        Type::STRING => {
            let text = choices.bytes(20);
            out.extend((text.len() as u32).to_be_bytes());
            out.extend_from_slice(text);
        }
        Type::STRUCT => structure(choices, out, depth + 1),
        Type::MAP => {
            let (key, element) = (kind(choices, depth + 1), kind(choices, depth + 1));
            let count = choices.byte() % 4;
            out.extend([key.0, element.0, 0, 0, 0, count]);
            for _ in 0..count {
                value(choices, key, out, depth + 1);
                value(choices, element, out, depth + 1);
            }
        }
        _ => {
            let element = kind(choices, depth + 1);
            let count = choices.byte() % 20;
            out.extend([element.0, 0, 0, 0, count]);
            for _ in 0..count {
                value(choices, element, out, depth + 1);
            }
        }
    }
}

/// Checks that all readers of a struct agree on its end, and that transcoding to the other protocol is reversible.
///
/// # Panics
/// If the property does not hold.
pub fn thrift_struct(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut bytes = Vec::new();
    let noise = choices.one_in(4);
    if noise {
        bytes.extend_from_slice(choices.rest());
    } else {
        structure(&mut choices, &mut bytes, 0);
    }
    let max = 1 << 20;
    if let Ok((compact, len)) = transcode::to_compact(&bytes) {
        let shared = Bytes::copy_from_slice(&bytes);
        let mut reader = Reader::new(&shared);
        reader.skip(Type::STRUCT).expect("a transcoded struct can be skipped");
        assert_eq!(bytes.len() - reader.left(), len);
        assert_eq!(scanned(Encoded::Binary, &bytes, max), Some(len));
        assert_eq!(scanned(Encoded::Compact, &compact, max), Some(compact.len()));
        let (binary, all) = transcode::to_binary(&compact, max).expect("valid compact");
        assert_eq!(all, compact.len());
        let (again, _) = transcode::to_compact(&binary).expect("valid binary");
        assert_eq!(transcode::to_binary(&again, max).expect("valid compact").0, binary);
    } else {
        assert!(noise, "a struct that was just written");
    }
    if let Ok((binary, len)) = transcode::to_binary(&bytes, max) {
        assert_eq!(scanned(Encoded::Compact, &bytes, max), Some(len));
        assert_eq!(transcode::to_compact(&binary).expect("valid binary").1, binary.len());
    }
    // Scanning gives the same end for any bytes, in one piece and byte by byte.
    for encoded in [Encoded::Binary, Encoded::Compact] {
        let whole = Scanner::new(encoded).scan(&bytes, max);
        let mut scanner = Scanner::new(encoded);
        let slow =
            (0..=bytes.len()).map(|end| scanner.scan(&bytes[..end], max)).find(|seen| *seen != Ok(None));
        assert_eq!(slow.unwrap_or(Ok(None)), whole);
    }
}

fn scanned(encoded: Encoded, bytes: &[u8], max: usize) -> Option<usize> {
    Scanner::new(encoded).scan(bytes, max).expect("a struct")
}

/// A call of the client, and the status with which its server ends it if its method fails.
struct SentCall {
    id: u64,
    method: u16,
    body: Bytes,
    metadata: Metadata,
    status: Status,
}

/// Sends up to eight calls with different ids: of a method that responds, of a one-way one, and of one that fails.
fn send_calls(choices: &mut Choices<'_>, client: &mut Client, out: &mut Outbox) -> Vec<SentCall> {
    let mut calls: Vec<SentCall> = Vec::new();
    for _ in 0..1 + choices.byte() % 8 {
        let id = u64::from(choices.long());
        if calls.iter().any(|call| call.id == id) {
            continue;
        }
        let method = [0, 1, 3][usize::from(choices.byte()) % 3];
        let mut body = Vec::new();
        structure(choices, &mut body, 0);
        let (body, metadata) = (Bytes::from(body), choices.metadata(3));
        let open = Open {
            method,
            codec: Codec::Thrift,
            timeout: None,
            metadata: &metadata,
            oneway: method == 1,
            more: false,
            encoding: Encoding::Identity,
            compressed: false,
            rest: &[],
        };
        client.open(id, open, Some((&body).into()), out).expect("within the limits");
        calls.push(SentCall { id, method, body, metadata, status: choices.status() });
    }
    calls
}

/// Checks that a server receives what a client sends and the reverse, for any split of the bytes.
///
/// # Panics
/// If the property does not hold.
pub fn thrift_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let settings = Settings {
        framing: [Framing::Unframed, Framing::Framed, Framing::Header][usize::from(choices.byte()) % 3],
        encoded: [Encoded::Binary, Encoded::Compact][usize::from(choices.byte()) % 2],
        multiplexed: choices.one_in(2),
        zlib: choices.one_in(2),
    };
    let headed = settings.framing == Framing::Header;
    let (mut client, mut server) = (Client::new(Limits::default(), settings), server(Limits::default()));
    let (mut there, mut back) = (Outbox::new(), Outbox::new());
    for (number, method) in MATH.methods.iter().enumerate() {
        client.method(number as u16, &format!("test.Math/{}", method.name), None, &mut there);
    }
    let calls = send_calls(&mut choices, &mut client, &mut there);
    let mut input = Input::default();
    let mut received = calls.iter();
    for piece in there.take_all().chunks(1 + usize::from(choices.byte())) {
        input.extend(piece);
        while let Some(event) = server.recv(&mut input, &mut back).expect("a valid client") {
            let ServerEvent::Open { id, head, first, .. } = event else { panic!("{event:?}") };
            let SentCall { method, body, metadata, status, .. } =
                received.next().expect("no more calls than were made");
            assert_eq!((head.method.0, head.oneway), (*method, *method == 1));
            let plain = transcode::to_compact(first.as_ref().expect("one message")).expect("a struct");
            assert_eq!(plain, transcode::to_compact(body).expect("a struct"));
            assert_eq!(head.metadata, if headed { metadata.clone() } else { Metadata::new() });
            match method {
                0 => server.reply(id, body.into(), &mut back),
                3 => server.end(id, Err(status), &mut back),
                _ => server.reply(id, Outgoing::EMPTY, &mut back),
            }
        }
    }
    assert!(received.next().is_none(), "a call did not arrive");
    let mut answers = calls.iter().filter(|call| call.method != 1);
    let mut input = Input::default();
    for piece in back.take_all().chunks(1 + usize::from(choices.byte())) {
        input.extend(piece);
        while let Some(event) = client.recv(&mut input, &mut there).expect("a valid server") {
            match event {
                ClientEvent::Head { .. } => panic!("no reply had metadata"),
                ClientEvent::Reply { id, item, .. } => {
                    let call = answers.next().expect("no more answers than calls");
                    assert_eq!((id, 0), (call.id, call.method));
                    let plain = transcode::to_compact(&item).expect("a struct");
                    assert_eq!(plain, transcode::to_compact(&call.body).expect("a struct"));
                }
                ClientEvent::End { id, end } => {
                    let SentCall { id: sent, method, status, .. } =
                        answers.next().expect("no more answers than calls");
                    let received = end.expect_err("it failed");
                    assert_eq!((id, 3), (*sent, *method));
                    assert_eq!((received.code(), received.message()), (status.code(), status.message()));
                }
                event => panic!("{event:?}"),
            }
        }
    }
    assert!(answers.next().is_none(), "an answer is missing");
}
