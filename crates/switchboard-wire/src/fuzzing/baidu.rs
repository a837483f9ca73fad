//! The machines of baidu_std: against arbitrary bytes, and against one another.

use super::{
    Choices,
    machines::{encodings, limits, table},
};
use crate::{
    Input, Limits, Metadata, Outbox, Status,
    baidu::{Client, META_BYTES_MAX, Server},
    wire::{ClientEvent, ClientWire, Codec, Encoding, Head, Open, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::time::Duration;

/// Bytes of a frame that are neither message nor attachment.
const FRAME_MAX: usize = META_BYTES_MAX as usize + 12;

/// Either machine on bytes of a peer that follows no rule: no panic, the same events and answers whatever the split and
/// the way, nothing over the limits, and no answer of a server that nobody asked for.
///
/// # Panics
/// When that is not so.
pub fn baidu_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let encodings = encodings(&mut choices);
    let bytes = frames(&mut choices);
    let served = |steps: &[u8], short: bool| {
        let mut server = Server::new(limits, table()).taking(encodings);
        let mut written = Vec::new();
        let events = fed(&bytes, steps, &limits, |input, out| {
            let event = match short.then(|| server.next_call(input)).flatten() {
                Some(opened) => Some(whole(opened)),
                None => server.recv(input, out)?,
            };
            // Every call is answered at once, so its place is that of the next.
            match &event {
                Some(ServerEvent::Open { id, head, first: Some(first), compressed, .. }) => {
                    let attached = head.metadata.attachment().map_or(0, Bytes::len);
                    assert!(first.len() + attached <= limits.message_bytes_max as usize);
                    assert!(head.metadata.len() <= limits.metadata_entries_max as usize + 1);
                    assert!(
                        encodings.has(head.encoding) && *compressed == (head.encoding != Encoding::Identity)
                    );
                    server.reply(*id, first, out);
                }
                Some(ServerEvent::Refused { id, status }) => server.end(*id, Err(status), out),
                Some(event) => panic!("{event:?}"),
                None => {}
            }
            written.extend(out.take_all());
            Ok(event)
        });
        (events, written)
    };
    let once = served(&[], false);
    assert_eq!(once, served(&steps, false));
    assert_eq!(once, served(&steps, true), "the short way differs");
    let called = |steps: &[u8], short: bool| {
        let mut client = Client::new(limits);
        fed(&bytes, steps, &limits, |input, out| {
            let event = match short.then(|| client.next_reply(input)).flatten() {
                Some((id, item)) => Some(ClientEvent::Reply { id, item, compressed: false }),
                None => client.recv(input, out)?,
            };
            if let Some(ClientEvent::Reply { item, .. }) = &event {
                assert!(item.len() <= limits.message_bytes_max as usize, "a reply of {} bytes", item.len());
            }
            assert!(out.is_empty(), "a client answers nothing");
            Ok(event)
        })
    };
    let once = called(&[], false);
    assert_eq!(once, called(&steps, false));
    assert_eq!(once, called(&steps, true), "the short way differs");
}

fn whole(opened: Opened) -> ServerEvent {
    let Opened { id, method, codec, timeout, first } = opened;
    let (encoding, metadata) = (Encoding::Identity, Metadata::new());
    let head = Head { method, codec, encoding, timeout, metadata, oneway: false };
    ServerEvent::Open { id, head, first: Some(first), compressed: false, more: false }
}

/// Feeds `bytes` in pieces of `steps`, over and over, or whole; the events, and whether they ended in a mistake.
fn fed<E: std::fmt::Debug>(
    bytes: &[u8],
    steps: &[u8],
    limits: &Limits,
    mut next: impl FnMut(&mut Input, &mut Outbox) -> Result<Option<E>, crate::Fatal>,
) -> (Vec<String>, bool) {
    let kept_max = FRAME_MAX + limits.message_bytes_max as usize;
    let (mut input, mut out) = (Input::default(), Outbox::new());
    let (mut events, mut rest) = (Vec::new(), bytes);
    for turn in 0.. {
        let step = steps.get(turn % steps.len().max(1)).map_or(bytes.len(), |step| 1 + usize::from(*step));
        let (piece, after) = rest.split_at(step.min(rest.len()));
        rest = after;
        input.extend(piece);
        loop {
            match next(&mut input, &mut out) {
                Ok(Some(event)) => events.push(format!("{event:?}")),
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
        assert!(input.len() < kept_max, "{} bytes are kept", input.len());
        assert!(input.buffer().capacity() <= bytes.len() + 4 * kept_max, "a buffer out of proportion");
        if rest.is_empty() {
            break;
        }
    }
    (events, false)
}

/// Mostly well-formed frames with odd contents, at times nothing but noise.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.one_in(64) {
            bytes.extend_from_slice(choices.bytes(20));
            continue;
        }
        let meta = meta(choices);
        let message = choices.message();
        let body = if choices.one_in(32) { choices.long() >> (choices.byte() % 32) } else { 0 };
        let body = if body == 0 { (meta.len() + message.len()) as u32 } else { body };
        bytes.extend_from_slice(b"PRPC");
        bytes.extend_from_slice(&body.to_be_bytes());
        bytes.extend_from_slice(&(meta.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&meta);
        bytes.extend_from_slice(&message);
    }
    bytes
}

/// Fields of any kind, numbers mostly small.
fn meta(choices: &mut Choices<'_>) -> Vec<u8> {
    let names: [&[u8]; 4] =
        [b"\x0a\x09calc.Calc\x12\x03Add", b"\x0a\x04Calc\x12\x03Add", b"\x0a\x04Nope\x12\x01x", b""];
    let mut meta = vec![0x0A];
    let name = names[usize::from(choices.byte()) % names.len()];
    meta.push(name.len() as u8);
    meta.extend_from_slice(name);
    if choices.one_in(3) {
        meta.extend_from_slice(&[0x12, 2, 8, choices.byte() % 128]);
    }
    for _ in 0..choices.byte() % 5 {
        match choices.byte() % 6 {
            0 => meta.extend_from_slice(&[0x18, choices.byte() % 5]),
            1 => meta.extend_from_slice(&[0x20, choices.byte() | 0x80, choices.byte() % 128]),
            2 => meta.extend_from_slice(&[0x28, choices.byte() % 128]),
            3 => {
                // A user field, a credential, a sum.
                let tag = [0x4A, 0x3A, 0x62][usize::from(choices.byte()) % 3];
                let value = choices.bytes(40);
                meta.extend_from_slice(&[tag, value.len() as u8]);
                meta.extend_from_slice(value);
            }
            4 => meta.extend_from_slice(&[
                [0x50, 0x58, 0x68][usize::from(choices.byte()) % 3],
                choices.byte() % 4,
            ]),
            _ => meta.extend_from_slice(choices.bytes(6)),
        }
    }
    meta
}

/// What a client sends a server takes, all of it, and so it is with the answer.
///
/// # Panics
/// When that is not so.
pub fn baidu_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits { metadata_entries_max: 8, metadata_bytes_max: 4096, ..Limits::default() };
    let checksums = choices.one_in(2);
    let mut client = Client::new(limits).checksums(checksums);
    let mut server = Server::new(limits, table()).taking(crate::Encodings::ALL);
    let (mut up, mut down) = (Outbox::new(), Outbox::new());
    client.greet(&mut up);
    client.method(0, "calc.Calc/Add", None, &mut up);
    let (mut at_server, mut at_client) = (Input::default(), Input::default());
    let mut id = 0;
    while !choices.is_over() {
        id += 1;
        let mut metadata = choices.metadata(4);
        metadata.set_attachment(if choices.one_in(3) { choices.message() } else { Bytes::new() });
        let message = choices.message();
        let compressed = choices.one_in(3) && !message.is_empty();
        let encoding = if compressed { Encoding::Gzip } else { Encoding::Identity };
        let codec = if choices.one_in(3) { Codec::Json } else { Codec::Proto };
        let ms = u64::from(choices.short());
        let timeout = (ms > 0).then(|| Duration::from_millis(ms));
        let (first, rest) = (message.slice(..message.len() / 2), [message.slice(message.len() / 2..)]);
        let open = Open {
            method: 0,
            codec,
            timeout,
            metadata: &metadata,
            oneway: false,
            more: false,
            encoding,
            compressed,
            rest: &rest,
        };
        client.open(id, open, Some(&first), &mut up).expect("a call within the limits");
        at_server.extend(&up.take_all());
        let heard = match choices.one_in(2).then(|| server.next_call(&mut at_server)).flatten() {
            Some(opened) => whole(opened),
            None => server.recv(&mut at_server, &mut down).expect("a frame").expect("a call"),
        };
        let ServerEvent::Open {
            id: place,
            head,
            first: Some(came),
            compressed: came_compressed,
            more: false,
        } = heard
        else {
            panic!("{heard:?}")
        };
        assert_eq!((&came, came_compressed, head.encoding), (&message, compressed, encoding));
        assert_eq!((head.codec, head.timeout, &head.metadata), (codec, timeout, &metadata));
        let mut trailers = choices.metadata(2);
        let status = choices.one_in(4).then(|| choices.status());
        match &status {
            Some(status) => server.end(place, Err(status), &mut down),
            None if choices.one_in(2) => {
                server.head(place, &metadata, &mut down);
                server.reply_with(place, &message, false, &trailers, &mut down);
                metadata.extend(std::mem::take(&mut trailers));
            }
            None => {
                metadata = Metadata::new();
                server.reply(place, &message, &mut down);
            }
        }
        at_client.extend(&down.take_all());
        let mut next = || client.recv(&mut at_client, &mut up).expect("a frame");
        if let Some(status) = status {
            let Some(ClientEvent::End { id: told, end: Err(came) }) = next() else { panic!("no end") };
            assert_eq!(told, id);
            same(&came, &status);
            continue;
        }
        if !metadata.is_empty() {
            let Some(ClientEvent::Head { id: told, metadata: came }) = next() else { panic!("no head") };
            assert_eq!((told, came), (id, metadata));
        }
        let Some(ClientEvent::Reply { id: told, item, compressed: false }) = next() else {
            panic!("no reply")
        };
        assert_eq!((told, item), (id, message));
    }
}

/// Code, text, details and metadata come through; a retry as far as brpc's numbers and a pause say it.
fn same(came: &Status, sent: &Status) {
    assert_eq!((came.code(), came.message()), (sent.code(), sent.message()));
    assert_eq!(came.details(), sent.details());
    for (name, value) in sent.metadata().iter() {
        assert!(came.metadata().iter().any(|entry| entry == (name, value)), "{name} is lost");
    }
}
