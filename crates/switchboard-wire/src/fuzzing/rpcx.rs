//! Both state machines of rpcx, against arbitrary bytes and against each other.

use super::{
    Choices,
    feed::{client_event, feed, server_event},
    machines::limits,
    outcomes::{self, Outcome},
};
use crate::{
    Codec, Encoding, Encodings, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, ServiceInfo,
    rpcx::{Client, HEARTBEAT_BYTES_MAX, NAME_BYTES_MAX, Server},
    wire::{ClientEvent, ClientWire, Open, Push, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

static ARITH: ServiceInfo = ServiceInfo {
    name: "calc.Arith",
    methods: &[
        MethodInfo::new("Mul", Kind::Unary),
        MethodInfo::new("Div", Kind::Unary),
        MethodInfo::new("Count", Kind::ServerStream),
    ],
    descriptor: &[],
};

/// Largest message of `calc.Arith/Div`.
const METHOD_BYTES_MAX: u32 = 20;

fn server(limits: Limits) -> Server {
    let mut table = MethodTable::default();
    table.add(&ARITH).expect("one service");
    table.limit_messages("calc.Arith/Div", METHOD_BYTES_MAX).expect("it is there");
    Server::new(limits, Arc::new(table)).with_encodings(Encodings::ALL)
}

/// Feeds a server machine with bytes of a client that follows no rule. Checks that it does not panic, that events do
/// not depend on the split and on the fast path, that it respects the limits, and that its output is proportional to
/// the input.
///
/// # Panics
/// If the property does not hold.
pub fn rpcx_server_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    // The limit of a method takes precedence over that of the connection, also where it is larger.
    let message_bytes_max = limits.message_bytes_max.max(METHOD_BYTES_MAX);
    let most = Limits { message_bytes_max, ..limits };
    let run = |steps: &[u8], fast: bool| {
        let mut server = server(limits);
        feed(&bytes, steps, kept_max(&most), written_max, |input, out| {
            let event = server_event(&mut server, fast, input, out)?;
            if let Some(ServerEvent::Open { head, first, .. }) = &event {
                within(&head.metadata, first.as_ref(), &most);
            }
            Ok(event)
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
pub fn rpcx_client_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    let run = |steps: &[u8], fast: bool| {
        let mut client = Client::new(limits);
        feed(&bytes, steps, kept_max(&limits), written_max, |input, out| {
            let event = client_event(&mut client, fast, input, out)?;
            match &event {
                Some(ClientEvent::Head { metadata, .. }) => within(metadata, None, &limits),
                Some(ClientEvent::Reply { item, .. }) => within(&Metadata::new(), Some(item), &limits),
                Some(ClientEvent::End { end: Err(status), .. }) => within(status.metadata(), None, &limits),
                Some(ClientEvent::Push(push)) => within(&push.metadata, Some(&push.message), &limits),
                _ => {}
            }
            Ok(event)
        })
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the fast path differs");
}

/// Checks that a server receives what a client sends and the reverse, for any order of responses.
///
/// # Panics
/// If the property does not hold.
pub fn rpcx_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits::default();
    let (mut client, mut server) = (Client::new(limits), server(limits));
    let (mut to_server, mut to_client) = (Input::default(), Input::default());
    let (mut sent, mut replies) = (Outbox::new(), Outbox::new());
    for (number, name) in (0..).zip(["calc.Arith/Mul", "calc.Arith/Div"]) {
        client.method(number, name, None, &mut sent);
    }
    let mut open = Vec::new();
    for id in 0..u64::from(choices.byte() % 8) {
        const CODECS: [Codec; 5] =
            [Codec::Json, Codec::Proto, Codec::MsgPack, Codec::Raw, Codec::ThriftStruct];
        let codec = CODECS[usize::from(choices.byte()) % CODECS.len()];
        let compressed = choices.one_in(4);
        let encoding = if compressed { Encoding::Gzip } else { Encoding::Identity };
        let milliseconds = choices.one_in(2).then(|| 1 + u64::from(choices.short()));
        let timeout = milliseconds.map(Duration::from_millis);
        let metadata = choices.metadata(4);
        let message = Bytes::copy_from_slice(choices.bytes(20));
        let oneway = choices.one_in(4);
        let method = u16::from(choices.byte() % 2);
        let call = Open {
            method,
            codec,
            timeout,
            metadata: &metadata,
            oneway,
            more: false,
            encoding,
            compressed,
            rest: &[],
        };
        client.open(id, call, Some((&message).into()), &mut sent).expect("nothing is over a limit");
        if choices.one_in(4) {
            client.ping(&mut sent);
        }
        to_server.extend(&sent.take_all());
        let event = server_event(&mut server, true, &mut to_server, &mut replies);
        let event = event.expect("a valid client").expect("a call");
        let ServerEvent::Open { id: at, head, first, compressed: packed, more: false } = event else {
            panic!("{event:?}")
        };
        assert_eq!((head.method.0, head.codec, head.encoding), (method, codec, encoding));
        assert_eq!((head.timeout, head.oneway, packed), (timeout, oneway, compressed));
        assert_eq!((head.metadata, first), (metadata, Some(message)));
        while server.recv(&mut to_server, &mut replies).expect("a heartbeat").is_some() {}
        if !oneway {
            open.push((id, at));
        }
    }
    while !open.is_empty() {
        let (id, at) = open.swap_remove(usize::from(choices.byte()) % open.len());
        let message = Bytes::copy_from_slice(choices.bytes(20));
        let push = choices.one_in(4).then(|| {
            let codec = if choices.one_in(2) { Codec::Json } else { Codec::Raw };
            let push = Push::new("news.Feed/Flash", message.clone()).with_metadata(choices.metadata(4));
            let push = push.with_codec(codec);
            server.push(&push, &mut replies);
            push
        });
        let expected = outcomes::end(&mut server, at, message, &mut choices, &mut replies);
        to_client.extend(&replies.take_all());
        let received = outcomes::receive(&mut client, id, &mut to_client, &mut sent);
        assert_eq!(received, Outcome { push, ..expected });
    }
}

/// At most a message or a heartbeat.
fn kept_max(limits: &Limits) -> usize {
    let message = (limits.message_bytes_max + limits.metadata_bytes_max) as usize + 2 * NAME_BYTES_MAX + 32;
    message.max(HEARTBEAT_BYTES_MAX)
}

/// An error repeats the requested name, with at most three bytes for each byte that is not text.
fn written_max(read: usize) -> usize {
    16 * read
}

pub(super) fn within(metadata: &Metadata, message: Option<&Bytes>, limits: &Limits) {
    assert!(metadata.len() <= limits.metadata_entries_max as usize, "{} entries", metadata.len());
    assert!(metadata.encoded_len() <= limits.metadata_bytes_max as usize, "{} bytes", metadata.encoded_len());
    let len = message.map_or(0, Bytes::len);
    assert!(len <= limits.message_bytes_max as usize, "a message of {len} bytes");
}

/// Mostly well-formed frames with unusual contents, sometimes only noise.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.one_in(32) {
            bytes.extend_from_slice(choices.bytes(20));
        }
        let bits = if choices.one_in(2) { choices.byte() } else { choices.byte() & 0x80 };
        let names: [&[u8]; 6] = [b"calc.Arith", b"Arith", b"Mul", b"Div", b"Count", b"\xFF"];
        let mut name = || names[usize::from(choices.byte()) % names.len()];
        let (path, method) = if name().len() > 3 { (&b"Arith"[..], &b"Mul"[..]) } else { (name(), name()) };
        let mut block = Vec::new();
        for _ in 0..choices.byte() % 4 {
            let names: [&[u8]; 6] =
                [b"__AUTH", b"__ServerTimeout", b"__rpcx_error__", b"x-status", b"Key", b"\xC3\xB6"];
            put(&mut block, names[usize::from(choices.byte()) % names.len()], choices);
            match choices.byte() % 3 {
                0 => put(&mut block, b"250", choices),
                _ => {
                    let value = choices.bytes(12).to_vec();
                    put(&mut block, &value, choices);
                }
            }
        }
        let payload = choices.message().to_vec();
        let mut parts = Vec::new();
        for part in [path, method, &block, &payload] {
            put(&mut parts, part, choices);
        }
        bytes.extend_from_slice(&[8, choices.byte() & 1, bits, choices.byte() & 0x3F]);
        let sequence = if choices.one_in(16) { u64::MAX } else { u64::from(choices.byte() % 8) };
        bytes.extend_from_slice(&sequence.to_be_bytes());
        put(&mut bytes, &parts, choices);
    }
    bytes
}

/// Appends a part after its length, which is sometimes wrong.
fn put(into: &mut Vec<u8>, part: &[u8], choices: &mut Choices<'_>) {
    let lie = if choices.one_in(64) { choices.long() >> (choices.byte() % 32) } else { 0 };
    into.extend_from_slice(&(part.len() as u32 ^ lie).to_be_bytes());
    into.extend_from_slice(part);
}
