//! Both state machines of the native wire against arbitrary bytes.

use super::{
    Choices,
    feed::{client_event, feed, server_event},
};
use crate::{
    Kind, Limits, Metadata, MethodInfo, MethodTable, ServiceInfo,
    native::{Client, Server},
    wire::{ClientEvent, Encoding, Encodings, ServerEvent},
};
use std::sync::Arc;

/// Largest frame that carries no message, see `docs/native-wire.md`.
const CONTROL_MAX: usize = 64 << 10;

/// Schema of the method `Sum`; `Add` has none.
pub(super) const SCHEMA: u64 = 0x0101_0101_0101_0101;

static CALC: ServiceInfo = ServiceInfo {
    name: "calc.Calc",
    methods: &[
        MethodInfo::new("Add", Kind::Unary),
        MethodInfo::new("Sum", Kind::ClientStream).schema(SCHEMA),
    ],
    descriptor: &[],
};

/// Feeds a server machine with bytes of a client that follows no rule. Checks that it does not panic, that events do
/// not depend on the split and on the fast path, that it respects the limits, and that it writes no more bytes than it
/// reads.
///
/// # Panics
/// If the property does not hold.
pub fn server_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let encodings = encodings(&mut choices);
    let bytes = frames(&mut choices);
    let table = table();
    let run = |steps: &[u8], fast: bool| {
        let mut server = Server::new(limits, table.clone()).with_encodings(encodings);
        feed(&bytes, steps, kept_max(&limits), written_max, |input, out| {
            let event = server_event(&mut server, fast, input, out)?;
            Ok(event.inspect(|event| check_server(event, &limits, encodings)))
        })
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the fast path differs");
}

/// Feeds a client machine with bytes of a server that follows no rule, with the same checks.
///
/// # Panics
/// If the property does not hold.
pub fn client_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    let run = |steps: &[u8], fast: bool| {
        let mut client = Client::new(limits);
        feed(&bytes, steps, kept_max(&limits), written_max, |input, out| {
            let event = client_event(&mut client, fast, input, out)?;
            Ok(event.inspect(|event| check_client(event, &limits)))
        })
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the fast path differs");
}

pub(super) fn limits(choices: &mut Choices<'_>) -> Limits {
    Limits {
        message_bytes_max: 1 + (u32::from(choices.byte()) << (choices.byte() % 8)),
        metadata_bytes_max: 64 + u32::from(choices.byte()),
        metadata_entries_max: 1 + u32::from(choices.byte() % 4),
        methods_max: 8,
        calls_max: 100,
        stream_window_bytes: 64 << (10 + choices.byte() % 3),
    }
}

/// Encodings that a server accepts: mostly all, otherwise none or any bits, including unassigned ones.
pub(super) fn encodings(choices: &mut Choices<'_>) -> Encodings {
    match choices.byte() % 4 {
        0 => Encodings::NONE,
        1 => Encodings(choices.long()),
        _ => Encodings::ALL,
    }
}

pub(super) fn table() -> Arc<MethodTable> {
    let mut table = MethodTable::default();
    table.add(&CALC).expect("one service");
    Arc::new(table)
}

/// Mostly well-formed frames of every kind with unusual contents, sometimes only noise.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = b"\xF5SWB\x01\0\0\0".to_vec();
    while !choices.is_over() {
        if choices.one_in(32) {
            bytes.extend_from_slice(choices.bytes(20));
            continue;
        }
        // A second SETTINGS frame ends a connection, so most are left out.
        let kind = choices.byte() % 13;
        let kind = if kind == 0 && !choices.one_in(8) { 2 } else { kind };
        let flags = choices.byte() & if choices.one_in(32) { 0xFF } else { 0x0F };
        let body = body(kind, choices);
        let len =
            if choices.one_in(32) { choices.long() >> (choices.byte() % 32) } else { body.len() as u32 };
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&[kind, flags, choices.byte() % 8, u8::from(choices.one_in(64))]);
        bytes.extend_from_slice(&u32::from(choices.byte() % 4).to_le_bytes());
        bytes.extend_from_slice(&body);
    }
    bytes
}

fn body(kind: u8, choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.message().to_vec();
    }
    let mut block = bytes::BytesMut::new();
    match kind {
        0 => {
            let mut body = Vec::new();
            for _ in 0..choices.byte() % 4 {
                body.extend_from_slice(&(u16::from(choices.byte() % 8)).to_le_bytes());
                body.extend_from_slice(&choices.long().to_le_bytes());
            }
            body
        }
        1 => {
            let names: [&[u8]; 4] = [b"calc.Calc/Add", b"calc.Calc/Sum", b"calc.Calc/Nope", b"\xFF/"];
            let name = names[usize::from(choices.byte()) % names.len()];
            // With and without a schema, regardless of the flags.
            match choices.byte() % 4 {
                0 => [&SCHEMA.to_le_bytes(), name].concat(),
                1 => [&[choices.byte(); 8], name].concat(),
                _ => name.to_vec(),
            }
        }
        2 => {
            choices.metadata(4).encode(&mut block);
            let mut body = choices.long().to_le_bytes().to_vec();
            let encoding = if choices.one_in(2) { choices.byte() % 7 } else { 0 };
            body.extend_from_slice(&[1 + choices.byte() % 4, encoding]);
            body.extend_from_slice(&(block.len() as u16).to_le_bytes());
            body.extend_from_slice(&block);
            body.extend_from_slice(&choices.message());
            body
        }
        3 => {
            choices.metadata(4).encode(&mut block);
            block.to_vec()
        }
        4 | 5 => choices.message().to_vec(),
        6 if choices.one_in(2) => Vec::new(),
        6 => {
            choices.metadata(4).encode(&mut block);
            let text = choices.bytes(20);
            let mut body = vec![choices.byte() % 5, 0];
            body.extend_from_slice(&(block.len() as u16).to_le_bytes());
            body.extend_from_slice(&choices.long().to_le_bytes());
            body.extend_from_slice(&(text.len() as u32).to_le_bytes());
            body.extend_from_slice(&block);
            body.extend_from_slice(text);
            if choices.one_in(2) {
                body.extend_from_slice(&[2, 0, choices.byte() % 4, 0, 0, 0, b'a', b'.', 1, 2, 3]);
            }
            body
        }
        8 => choices.long().to_le_bytes().to_vec(),
        9 | 7 => Vec::new(),
        _ => choices.bytes(40).to_vec(),
    }
}

/// At most one frame.
fn kept_max(limits: &Limits) -> usize {
    CONTROL_MAX + (limits.message_bytes_max + limits.metadata_bytes_max) as usize + 32
}

/// The server writes a preface and settings, and at most 12 bytes in response to a frame of 12 bytes.
fn written_max(read: usize) -> usize {
    56 + read
}

fn check_server(event: &ServerEvent, limits: &Limits, encodings: Encodings) {
    match event {
        ServerEvent::Open { head, first, compressed, .. } => {
            check_metadata(&head.metadata, limits, true);
            assert!(encodings.has(head.encoding), "{:?} is not accepted", head.encoding);
            let named = head.encoding != Encoding::Identity && first.is_some();
            assert!(!compressed || named, "compressed without an encoding or a message");
            let len = first.as_ref().map_or(0, bytes::Bytes::len);
            assert!(len <= limits.message_bytes_max as usize, "a message of {len} bytes");
        }
        ServerEvent::Item { item, .. } => {
            assert!(item.len() <= limits.message_bytes_max as usize, "a message of {} bytes", item.len());
        }
        _ => {}
    }
}

fn check_client(event: &ClientEvent, limits: &Limits) {
    match event {
        ClientEvent::Head { metadata, .. } => check_metadata(metadata, limits, true),
        ClientEvent::Reply { item, .. } | ClientEvent::Item { item, .. } => {
            assert!(item.len() <= limits.message_bytes_max as usize, "a message of {} bytes", item.len());
        }
        ClientEvent::End { end: Ok(metadata), .. } => check_metadata(metadata, limits, false),
        ClientEvent::End { end: Err(status), .. } => check_metadata(status.metadata(), limits, false),
        _ => {}
    }
}

/// The size of trailers is bounded by their frame.
fn check_metadata(metadata: &Metadata, limits: &Limits, by_bytes: bool) {
    assert!(metadata.len() <= limits.metadata_entries_max as usize);
    let max = if by_bytes { limits.metadata_bytes_max as usize } else { CONTROL_MAX };
    assert!(metadata.encoded_len() <= max, "metadata of {} bytes", metadata.encoded_len());
}
