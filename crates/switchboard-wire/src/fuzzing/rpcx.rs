//! Either machine of rpcx against arbitrary bytes, and against the other.

use super::{Choices, machines::limits};
use crate::{
    Code, Codec, Encoding, Encodings, Fatal, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox,
    ServiceInfo, Status,
    rpcx::{Client, HEARTBEAT_BYTES_MAX, NAME_BYTES_MAX, Server},
    wire::{ClientEvent, ClientWire, Head, Open, Opened, ServerEvent, ServerWire},
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

fn server(limits: Limits) -> Server {
    let mut table = MethodTable::default();
    table.add(&ARITH).expect("one service");
    table.limit_messages("calc.Arith/Div", 20).expect("it is there");
    Server::new(limits, Arc::new(table)).taking(Encodings::ALL)
}

/// A server's machine on bytes of a client that follows no rule: no panic, the same events whatever the split and the
/// way, nothing over the limits, and answers in proportion to what came.
///
/// # Panics
/// When that is not so.
pub fn rpcx_server_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    let run = |steps: &[u8], short: bool| {
        let mut server = server(limits);
        let recv = |input: &mut Input, out: &mut Outbox| {
            let opened = short.then(|| server.next_call(input)).flatten();
            match opened {
                Some(opened) => Ok(Some(plain(opened))),
                None => server.recv(input, out),
            }
        };
        feed(&bytes, steps, &limits, recv, |event| {
            if let ServerEvent::Open { head, first, .. } = event {
                within(&head.metadata, first.as_ref(), &limits);
            }
        })
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the short way differs");
}

/// The same for a client's machine on the bytes of a server.
///
/// # Panics
/// When that is not so.
pub fn rpcx_client_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    let run = |steps: &[u8], short: bool| {
        let mut client = Client::new(limits);
        let recv = |input: &mut Input, out: &mut Outbox| {
            let reply = short.then(|| client.next_reply(input)).flatten();
            match reply {
                Some((id, item)) => Ok(Some(ClientEvent::Reply { id, item, compressed: false })),
                None => client.recv(input, out),
            }
        };
        feed(&bytes, steps, &limits, recv, |event| match event {
            ClientEvent::Head { metadata, .. } => within(metadata, None, &limits),
            ClientEvent::Reply { item, .. } => within(&Metadata::new(), Some(item), &limits),
            ClientEvent::End { end: Err(status), .. } => within(status.metadata(), None, &limits),
            _ => {}
        })
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the short way differs");
}

/// What a client says is what the server hears, and the other way round, in whatever order it answers.
///
/// # Panics
/// When that is not so.
pub fn rpcx_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits::default();
    let (mut client, mut server) = (Client::new(limits), server(limits));
    let (mut to_server, mut to_client) = (Input::default(), Input::default());
    let (mut sent, mut answered) = (Outbox::new(), Outbox::new());
    for (number, name) in (0..).zip(["calc.Arith/Mul", "calc.Arith/Div"]) {
        client.method(number, name, None, &mut sent);
    }
    let mut open = Vec::new();
    for id in 0..u32::from(choices.byte() % 8) {
        let codec = [Codec::Json, Codec::Proto, Codec::MsgPack][usize::from(choices.byte()) % 3];
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
        client.open(id, call, Some(&message), &mut sent).expect("nothing is over a limit");
        if choices.one_in(4) {
            client.ping(&mut sent);
        }
        to_server.extend(&sent.take_all());
        let event = match server.next_call(&mut to_server) {
            Some(opened) => plain(opened),
            None => server.recv(&mut to_server, &mut answered).expect("a client of ours").expect("a call"),
        };
        let ServerEvent::Open { id: at, head, first, compressed: packed, more: false } = event else {
            panic!("{event:?}")
        };
        assert_eq!((head.method.0, head.codec, head.encoding), (method, codec, encoding));
        assert_eq!((head.timeout, head.oneway, packed), (timeout, oneway, compressed));
        assert_eq!((head.metadata, first), (metadata, Some(message)));
        while server.recv(&mut to_server, &mut answered).expect("a heartbeat").is_some() {}
        if !oneway {
            open.push((id, at));
        }
    }
    while !open.is_empty() {
        let (id, at) = open.swap_remove(usize::from(choices.byte()) % open.len());
        let (metadata, message) = (choices.metadata(4), Bytes::copy_from_slice(choices.bytes(20)));
        let expected = match choices.byte() % 4 {
            0 => {
                let code = Code::from_number(1 + u16::from(choices.byte() % 16));
                let status = Status::new(code, "why it is so").with_metadata(metadata.clone());
                server.end(at, Err(&status), &mut answered);
                Err(code)
            }
            1 => {
                server.reply_with(at, &message, false, &metadata, &mut answered);
                Ok(message)
            }
            _ => {
                server.head(at, &metadata, &mut answered);
                server.reply(at, &message, &mut answered);
                Ok(message)
            }
        };
        to_client.extend(&answered.take_all());
        let (mut heard, mut end) = (Metadata::new(), None);
        while end.is_none() {
            if let Some((of, item)) = client.next_reply(&mut to_client) {
                assert_eq!(of, id);
                end = Some(Ok(item));
                continue;
            }
            let event = client.recv(&mut to_client, &mut sent).expect("a server of ours").expect("an answer");
            match event {
                ClientEvent::Pong => {}
                ClientEvent::Head { id: of, metadata } if of == id => heard = metadata,
                ClientEvent::Reply { id: of, item, compressed: false } if of == id => end = Some(Ok(item)),
                ClientEvent::End { id: of, end: Err(status) } if of == id => {
                    assert_eq!(status.message(), "why it is so");
                    heard = status.metadata().clone();
                    end = Some(Err(status.code()));
                }
                event => panic!("{event:?}"),
            }
        }
        assert_eq!((end, heard), (Some(expected), metadata));
    }
}

fn plain(Opened { id, method, codec, timeout, first }: Opened) -> ServerEvent {
    let (encoding, metadata) = (Encoding::Identity, Metadata::new());
    let head = Head { method, codec, encoding, timeout, metadata, oneway: false };
    ServerEvent::Open { id, head, first: Some(first), compressed: false, more: false }
}

fn within(metadata: &Metadata, message: Option<&Bytes>, limits: &Limits) {
    assert!(metadata.len() <= limits.metadata_entries_max as usize, "{} entries", metadata.len());
    assert!(metadata.encoded_len() <= limits.metadata_bytes_max as usize, "{} bytes", metadata.encoded_len());
    let len = message.map_or(0, Bytes::len);
    assert!(len <= limits.message_bytes_max as usize, "a message of {len} bytes");
}

/// Mostly well-formed frames with odd contents, at times nothing but noise.
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

/// Appends a part after its length, which is at times a lie.
fn put(into: &mut Vec<u8>, part: &[u8], choices: &mut Choices<'_>) {
    let lie = if choices.one_in(64) { choices.long() >> (choices.byte() % 32) } else { 0 };
    into.extend_from_slice(&(part.len() as u32 ^ lie).to_be_bytes());
    into.extend_from_slice(part);
}

/// Feeds `bytes` in pieces of `steps`, over and over, or whole; returns the events and whether they ended in a fatal
/// mistake.
fn feed<E: std::fmt::Debug>(
    bytes: &[u8],
    steps: &[u8],
    limits: &Limits,
    mut recv: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, Fatal>,
    check: impl Fn(&E),
) -> (Vec<String>, bool) {
    let limited = (limits.message_bytes_max + limits.metadata_bytes_max) as usize + 2 * NAME_BYTES_MAX + 32;
    let kept_max = limited.max(HEARTBEAT_BYTES_MAX);
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut rest, mut written) = (Vec::new(), bytes, 0);
    for turn in 0.. {
        let step = steps.get(turn % steps.len().max(1)).map_or(bytes.len(), |step| 1 + usize::from(*step));
        let (piece, after) = rest.split_at(step.min(rest.len()));
        rest = after;
        input.extend(piece);
        loop {
            match recv(&mut input, &mut out) {
                Ok(Some(event)) => {
                    check(&event);
                    events.push(format!("{event:?}"));
                }
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
        written += out.take_all().len();
        // An error says what was asked for once more, at most three bytes for each that is no text.
        assert!(written <= 16 * (bytes.len() - rest.len()), "{written} bytes out, too many");
        assert!(input.len() <= kept_max, "{} bytes are kept", input.len());
        assert!(input.buffer().capacity() <= 4 * (bytes.len() + kept_max), "a buffer out of proportion");
        if rest.is_empty() {
            break;
        }
    }
    (events, false)
}
