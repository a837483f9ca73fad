//! State machines of baidu_std and its older layouts, against arbitrary bytes and against each other.

use super::{
    Choices,
    feed::{client_event, feed, server_event},
    machines::{encodings, limits, table},
};
use crate::{
    Encodings, Input, Limits, Metadata, Outbox, Status,
    baidu::{Client, Layout, META_BYTES_MAX, Server, error_code},
    wire::{ClientEvent, ClientWire, Codec, Encoding, Open, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::time::Duration;

/// Bytes of a frame that are neither message nor attachment; a stream frame may hold a whole response.
const FRAME_MAX: usize = 3 * META_BYTES_MAX as usize + 24;

/// Feeds either machine with bytes of a peer that follows no rule. Checks that it does not panic, that events and
/// responses do not depend on the split and on the fast path, that it respects the limits, and that a server sends no
/// response without a request.
///
/// # Panics
/// If the property does not hold.
pub fn baidu_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let encodings = encodings(&mut choices);
    let layout = layout(&mut choices);
    let bytes = frames(&mut choices, layout);
    let served = |steps: &[u8], fast: bool| {
        let server = Server::new(limits, table()).with_encodings(encodings).with_layout(layout);
        served(server, limits, encodings, &bytes, steps, fast)
    };
    let once = served(&[], false);
    assert_eq!(once, served(&steps, false));
    assert_eq!(once, served(&steps, true), "the fast path differs");
    let called = |steps: &[u8], fast: bool| {
        let client = Client::new(limits).with_layout(layout);
        called(client, limits, layout, &bytes, steps, fast)
    };
    let once = called(&[], false);
    assert_eq!(once, called(&steps, false));
    assert_eq!(once, called(&steps, true), "the fast path differs");
}

/// Bytes that a machine may keep of its input.
fn kept_max(limits: Limits) -> usize {
    FRAME_MAX + limits.message_bytes_max as usize
}

/// Returns the events of a server for these bytes, and what it writes. Every call ends at once.
fn served(
    mut server: Server,
    limits: Limits,
    encodings: Encodings,
    bytes: &[u8],
    steps: &[u8],
    fast: bool,
) -> ((Vec<String>, bool), Vec<u8>) {
    let message_bytes_max = limits.message_bytes_max as usize;
    let mut written = Vec::new();
    // The output is taken after each event.
    let events = feed(
        bytes,
        steps,
        kept_max(limits),
        |_| 0,
        |input, out| {
            let event = server_event(&mut server, fast, input, out)?;
            // The slot of a call that ended is reused by the next.
            match &event {
                Some(ServerEvent::Open { id, head, first: Some(first), compressed, more }) => {
                    let attached = head.metadata.attachment().map_or(0, Bytes::len);
                    assert!(first.len() + attached <= message_bytes_max);
                    assert!(head.metadata.len() <= limits.metadata_entries_max as usize + 1);
                    assert!(
                        encodings.has(head.encoding) && *compressed == (head.encoding != Encoding::Identity)
                    );
                    // A call with a stream ends when the stream is closed.
                    if *more {
                        server.item(*id, first, false, out);
                    } else {
                        server.reply(*id, first.into(), out);
                    }
                }
                Some(ServerEvent::Open { id, first: None, more: true, .. }) => {
                    server.item(*id, &Bytes::from_static(b"x"), false, out);
                }
                Some(ServerEvent::Item { id, item, .. }) => {
                    assert!(item.len() <= message_bytes_max);
                    server.credit(*id, item.len() as u32, out);
                    server.item(*id, item, false, out);
                }
                Some(ServerEvent::HalfClose { id }) => server.end(*id, Ok(&Metadata::new()), out),
                Some(ServerEvent::Refused { id, status }) => server.end(*id, Err(status), out),
                Some(ServerEvent::Cancel { .. } | ServerEvent::Credit { .. } | ServerEvent::Handled)
                | None => {}
                Some(event) => panic!("{event:?}"),
            }
            written.extend(out.take_all());
            Ok(event)
        },
    );
    (events, written)
}

/// Returns the events of a client for these bytes, and what it writes. Half of the responses belong to calls with
/// streams.
fn called(
    mut client: Client,
    limits: Limits,
    layout: Layout,
    bytes: &[u8],
    steps: &[u8],
    fast: bool,
) -> ((Vec<String>, bool), Vec<u8>) {
    let (mut out, mut written) = (Outbox::new(), Vec::new());
    client.method(0, "calc.Calc/Sum", None, &mut out);
    let metadata = Metadata::new();
    for id in (0..64).take_while(|_| layout == Layout::Standard) {
        client.open(id, open(&metadata, true), None, &mut out).expect("a call within the limits");
    }
    let events = feed(
        bytes,
        steps,
        kept_max(limits),
        |_| 0,
        |input, out| {
            let event = client_event(&mut client, fast, input, out);
            written.extend(out.take_all());
            let event = event?;
            if let Some(ClientEvent::Reply { item, .. }) = &event {
                assert!(item.len() <= limits.message_bytes_max as usize, "a reply of {} bytes", item.len());
            }
            Ok(event)
        },
    );
    (events, written)
}

fn layout(choices: &mut Choices<'_>) -> Layout {
    match choices.byte() % 4 {
        0 => Layout::Hulu,
        1 => Layout::Sofa,
        _ => Layout::Standard,
    }
}

/// A call of method 0 without options.
fn open(metadata: &Metadata, more: bool) -> Open<'_> {
    let (encoding, codec) = (Encoding::Identity, Codec::Proto);
    Open {
        method: 0,
        codec,
        timeout: None,
        metadata,
        oneway: false,
        more,
        encoding,
        compressed: false,
        rest: &[],
    }
}

/// Mostly well-formed frames with unusual contents, sometimes only noise.
fn frames(choices: &mut Choices<'_>, layout: Layout) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    let mut bytes = Vec::new();
    while !choices.is_over() {
        if choices.one_in(64) {
            bytes.extend_from_slice(choices.bytes(20));
            continue;
        }
        let of_stream = layout == Layout::Standard && choices.one_in(3);
        let meta = match layout {
            Layout::Standard if of_stream => stream_meta(choices),
            Layout::Standard => meta(choices),
            Layout::Hulu => fields_of(choices, &HULU),
            Layout::Sofa => fields_of(choices, &SOFA),
        };
        let message = choices.message();
        let body = if choices.one_in(32) { choices.long() >> (choices.byte() % 32) } else { 0 };
        let body = if body == 0 { (meta.len() + message.len()) as u32 } else { body };
        let meta_len = meta.len() as u32;
        bytes.extend(if of_stream { *b"STRM" } else { layout.magic() });
        match layout {
            Layout::Standard => bytes.extend([body, meta_len].map(u32::to_be_bytes).as_flattened()),
            Layout::Hulu => bytes.extend([body, meta_len].map(u32::to_le_bytes).as_flattened()),
            Layout::Sofa => {
                bytes.extend(meta_len.to_le_bytes());
                let data = u64::from(body.saturating_sub(meta_len));
                bytes.extend([data, data + u64::from(meta_len)].map(u64::to_le_bytes).as_flattened());
            }
        }
        bytes.extend_from_slice(&meta);
        bytes.extend_from_slice(&message);
    }
    bytes
}

/// Fields of hulu metas; a number or more bytes follow the last byte of each.
const HULU: [&[u8]; 11] = [
    b"\x0a\x04Calc\x10\0",
    b"\x0a\x09calc.Calc\x10",
    b"\x0a\x04Nope\x72\x03Add",
    b"\x0a\x04Calc\x72\x03Add\x20",
    b"\x08\0\x18",
    b"\x18",
    b"\x20\x80",
    b"\x28\x07\x60",
    b"\x60",
    b"\x7a\x02ab\x40",
    b"\x82\x01\x06\x0a\x01a\x12\x01b\x20",
];
/// Fields of sofa metas.
const SOFA: [&[u8]; 8] = [
    b"\x08\0\x10",
    b"\x08\x01\x10\x81",
    b"\xa2\x06\x0dcalc.Calc.Add\x10",
    b"\xa2\x06\x08Calc.Sum\x10",
    b"\xa2\x06\x03Add\xc0\x0c",
    b"\xc8\x0c",
    b"\xd2\x0c\x02no\xc0\x0c",
    b"\xe0\x12",
];

fn fields_of(choices: &mut Choices<'_>, known: &[&[u8]]) -> Vec<u8> {
    let mut meta = Vec::new();
    for _ in 0..choices.byte() % 6 {
        meta.extend_from_slice(known[usize::from(choices.byte()) % known.len()]);
        meta.push(choices.byte() % 6);
    }
    if choices.one_in(16) {
        meta.extend_from_slice(choices.bytes(6));
    }
    meta
}

/// A frame of one of the first streams, of a server or of a client.
fn stream_meta(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut meta = vec![0x08];
    match choices.byte() % 4 {
        0 => meta.push(choices.byte() % 128),
        // Consecutive streams, in the first slot.
        number => meta.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x10 * number]),
    }
    meta.extend_from_slice(&[0x10, choices.byte() % 3, 0x18, choices.byte() % 6]);
    match choices.byte() % 8 {
        0 => meta.extend_from_slice(&[0x20, 1]),
        1 => meta.extend_from_slice(&[0x2A, 2, 8, choices.byte() % 128]),
        2 => meta.extend_from_slice(choices.bytes(4)),
        _ => {}
    }
    meta
}

/// Fields of any kind, with mostly small numbers.
fn meta(choices: &mut Choices<'_>) -> Vec<u8> {
    let names: [&[u8]; 5] = [
        b"\x0a\x09calc.Calc\x12\x03Add",
        b"\x0a\x04Calc\x12\x03Add",
        b"\x0a\x04Calc\x12\x03Sum",
        b"\x0a\x04Nope\x12\x01x",
        b"",
    ];
    let mut meta = vec![0x0A];
    let name = names[usize::from(choices.byte()) % names.len()];
    meta.push(name.len() as u8);
    meta.extend_from_slice(name);
    if choices.one_in(3) {
        meta.extend_from_slice(&[0x12, 2, 8, choices.byte() % 128]);
    }
    if choices.one_in(3) {
        meta.extend_from_slice(&[0x42, 6, 8, choices.byte() % 128, 0x10, 1, 0x18, choices.byte() % 2]);
    }
    for _ in 0..choices.byte() % 5 {
        match choices.byte() % 6 {
            0 => meta.extend_from_slice(&[0x18, choices.byte() % 5]),
            1 => meta.extend_from_slice(&[0x20, choices.byte() | 0x80, choices.byte() % 128]),
            2 => meta.extend_from_slice(&[0x28, choices.byte() % 128]),
            3 => {
                // A user field, a credential, a checksum.
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

/// Checks that a server receives exactly the calls that a client sends, and the client exactly the responses.
///
/// # Panics
/// If the property does not hold.
pub fn baidu_conversation(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits { metadata_entries_max: 8, metadata_bytes_max: 4096, ..Limits::default() };
    let layout = layout(&mut choices);
    let is_standard = layout == Layout::Standard;
    let checksums = is_standard && choices.one_in(2);
    let mut client = Client::new(limits).checksums(checksums).with_layout(layout);
    let mut server = Server::new(limits, table()).with_encodings(Encodings::ALL).with_layout(layout);
    let (mut up, mut down) = (Outbox::new(), Outbox::new());
    client.greet(&mut up);
    client.method(0, "calc.Calc/Add", None, &mut up);
    client.index(0, 0);
    let (mut at_server, mut at_client) = (Input::default(), Input::default());
    let mut id = 0;
    while !choices.is_over() {
        id += 1;
        let mut metadata = choices.metadata(4);
        metadata.set_attachment(if choices.one_in(3) { choices.message() } else { Bytes::new() });
        if layout == Layout::Sofa {
            metadata = Metadata::new();
        }
        let message = choices.message();
        let compressed = choices.one_in(3) && !message.is_empty();
        let encoding = if compressed { Encoding::Gzip } else { Encoding::Identity };
        let codec = if is_standard && choices.one_in(3) { Codec::Json } else { Codec::Proto };
        let ms = if is_standard { u64::from(choices.short()) } else { 0 };
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
        client.open(id, open, Some((&first).into()), &mut up).expect("a call within the limits");
        at_server.extend(&up.take_all());
        let event = server_event(&mut server, choices.one_in(2), &mut at_server, &mut down);
        let event = event.expect("a frame").expect("a call");
        let ServerEvent::Open {
            id: place,
            head,
            first: Some(came),
            compressed: came_compressed,
            more: false,
        } = event
        else {
            panic!("{event:?}")
        };
        assert_eq!((&came, came_compressed, head.encoding), (&message, compressed, encoding));
        assert_eq!((head.codec, head.timeout, &head.metadata), (codec, timeout, &metadata));
        let mut trailers = choices.metadata(2);
        let status = choices.one_in(4).then(|| choices.status());
        match &status {
            Some(status) => server.end(place, Err(status), &mut down),
            None if choices.one_in(2) => {
                server.head(place, &metadata, &mut down);
                server.reply_with(place, (&message).into(), false, &trailers, &mut down);
                let attachment = metadata.attachment().cloned();
                if is_standard {
                    metadata.extend(std::mem::take(&mut trailers));
                } else {
                    // Everything that a response can carry.
                    metadata = Metadata::new();
                    metadata.set_attachment(attachment.unwrap_or_default());
                }
            }
            None => {
                metadata = Metadata::new();
                server.reply(place, (&message).into(), &mut down);
            }
        }
        at_client.extend(&down.take_all());
        // The codec of the reply precedes it.
        let mut next = || loop {
            match client.recv(&mut at_client, &mut up).expect("a frame") {
                Some(ClientEvent::ReplyCodec { .. }) => {}
                event => return event,
            }
        };
        if let Some(status) = status {
            let Some(ClientEvent::End { id: received, end: Err(came) }) = next() else { panic!("no end") };
            assert_eq!(received, id);
            if is_standard {
                same(&came, &status);
            } else {
                assert_eq!((error_code(&came), came.message()), (error_code(&status), status.message()));
            }
            continue;
        }
        if !metadata.is_empty() {
            let Some(ClientEvent::Head { id: received, metadata: came }) = next() else { panic!("no head") };
            assert_eq!((received, came), (id, metadata));
        }
        let Some(ClientEvent::Reply { id: received, item, compressed: false }) = next() else {
            panic!("no reply")
        };
        assert_eq!((received, item), (id, message));
    }
}

/// Checks that each side receives what the other side sends in a stream, in order, with credit for all bytes.
///
/// # Panics
/// If the property does not hold.
pub fn baidu_streams(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut client = Client::new(Limits::default());
    let mut server = Server::new(Limits::default(), table());
    let (mut up, mut down) = (Outbox::new(), Outbox::new());
    let (mut at_server, mut at_client) = (Input::default(), Input::default());
    client.method(0, "calc.Calc/Sum", None, &mut up);
    let mut id = 0;
    while !choices.is_over() {
        id += 1;
        client.open(id, open(&Metadata::new(), true), None, &mut up).expect("a call within the limits");
        at_server.extend(&up.take_all());
        let received = server.recv(&mut at_server, &mut down).expect("a frame").expect("a call");
        let ServerEvent::Open { id: place, first: None, more: true, .. } = received else {
            panic!("{received:?}")
        };
        let late = choices.one_in(2);
        if late {
            assert!(server.recv(&mut at_server, &mut down).expect("no frame").is_none());
        }
        let (mut requests, mut replies) = (Vec::new(), Vec::new());
        let (mut credit, mut granted) = (0, 0);
        for _ in 0..choices.byte() % 8 {
            if choices.one_in(2) {
                replies.push(choices.message());
                server.item(place, &replies[replies.len() - 1], false, &mut down);
            } else {
                requests.push(choices.message());
            }
        }
        assert!(server.recv(&mut at_server, &mut down).expect("no frame").is_none());
        let mut taken = Vec::new();
        at_client.extend(&down.take_all());
        while let Some(event) = client.recv(&mut at_client, &mut up).expect("a frame") {
            match event {
                ClientEvent::Credit { bytes, .. } => credit += bytes,
                ClientEvent::Item { item, .. } => {
                    client.credit(id, item.len().max(1) as u32, &mut up);
                    taken.push(item);
                }
                event => panic!("{event:?}"),
            }
        }
        assert!(taken == replies && credit > 0);
        for item in &requests {
            client.item(id, item, false, &mut up).expect("a message within the limits");
        }
        client.half_close(id, &mut up);
        at_server.extend(&up.take_all());
        let mut closed = false;
        taken.clear();
        while let Some(event) = server.recv(&mut at_server, &mut down).expect("a frame") {
            match event {
                ServerEvent::Credit { bytes, .. } => granted += bytes as usize,
                ServerEvent::Item { item, .. } => taken.push(item),
                ServerEvent::HalfClose { .. } => closed = true,
                event => panic!("{event:?}"),
            }
        }
        assert!(taken == requests && closed);
        let empty = replies.iter().filter(|item| item.is_empty()).count();
        let sent = replies.iter().map(Bytes::len).sum::<usize>();
        assert_eq!(granted, sent + empty);
        let status = choices.one_in(3).then(|| choices.status());
        let trailers = choices.metadata(2);
        server.end(place, status.as_ref().map_or(Ok(&trailers), Err), &mut down);
        at_client.extend(&down.take_all());
        let received = client.recv(&mut at_client, &mut up).expect("a frame");
        match (received, status) {
            (Some(ClientEvent::End { end: Ok(came), .. }), None) => assert_eq!(came, trailers),
            (Some(ClientEvent::End { end: Err(came), .. }), Some(status)) => same(&came, &status),
            (received, status) => panic!("{received:?} for {status:?}"),
        }
        assert!(up.is_empty() && client.recv(&mut at_client, &mut up).expect("no frame").is_none());
    }
}

/// Compares code, text, details and metadata, and the retry property as far as brpc's numbers and a delay express it.
fn same(came: &Status, sent: &Status) {
    assert_eq!((came.code(), came.message()), (sent.code(), sent.message()));
    assert_eq!(came.details(), sent.details());
    for (name, value) in sent.metadata().iter() {
        assert!(came.metadata().iter().any(|entry| entry == (name, value)), "{name} is lost");
    }
}
