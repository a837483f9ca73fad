//! The client machine of gRPC on HTTP/2 against arbitrary bytes.

use super::{
    Choices,
    feed::{client_event, feed},
    machines,
};
use crate::{
    Kind, Limits, Metadata, Outbox, Outgoing,
    http2::{
        client::Client,
        frame::{self, FrameHead, flag, kind},
        hpack::{Encoder, Indexing},
        settings::Settings,
    },
    wire::{ClientCallId, ClientEvent, ClientWire, Codec, Encoding, Open},
};
use bytes::{Bytes, BytesMut};
use std::collections::HashSet;

pub(super) const UNARY: u16 = 0;
pub(super) const BIDI: u16 = 1;
/// Bytes of a header block that may wait in the input: four times the largest limit of `machines::limits`, and the
/// least that is used instead.
const KEPT_MAX: usize = 4 * 4096 + 300;

pub(super) fn client(limits: Limits, out: &mut Outbox) -> Client {
    let mut client = Client::new(limits, "tcp://a:1", "a:1", false);
    client.greet(out);
    client.method(UNARY, "a.B/One", None, out);
    client.method(BIDI, "a.B/Both", None, out);
    client.streams(BIDI, Kind::Bidi);
    client
}

pub(super) fn open(
    client: &mut Client,
    id: ClientCallId,
    method: u16,
    first: Option<&Bytes>,
    out: &mut Outbox,
) {
    let metadata = Metadata::new();
    let open = Open {
        method,
        codec: Codec::Proto,
        timeout: None,
        metadata: &metadata,
        oneway: false,
        more: method == BIDI,
        encoding: if id.is_multiple_of(2) { Encoding::Gzip } else { Encoding::Identity },
        compressed: false,
        rest: &[],
    };
    client.open(id, open, first.map(Outgoing::from), out).expect("a valid call");
}

/// Feeds a client with open calls with the bytes of a server that follows no rule. Checks that it does not panic, that
/// events do not depend on the split and on the fast path, that it respects the limits, that a call ends once, and that
/// the client writes no more than its requests, and a bounded response to each frame.
///
/// # Panics
/// If the property does not hold.
pub fn http2_client_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits { stream_window_bytes: 65_535, ..machines::limits(&mut choices) };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = frames(&mut choices);
    let message_max = limits.message_bytes_max as usize;
    let request = Bytes::from(vec![7; 100_000]);
    let run = |steps: &[u8], fast: bool| {
        let mut begun = Outbox::new();
        let mut client = client(limits, &mut begun);
        for id in 0..6 {
            let first = if id == 5 { request.clone() } else { Bytes::from_static(b"request") };
            open(&mut client, id, (id % 2) as u16, Some(&first), &mut begun);
        }
        let mut ended = HashSet::new();
        feed(
            &bytes,
            steps,
            KEPT_MAX,
            |read| 2 * read + 100_200,
            |input, out| {
                let event = client_event(&mut client, fast, input, out)?;
                match &event {
                    Some(ClientEvent::Reply { id, item, .. }) => {
                        assert!(item.len() <= message_max && ended.insert(*id));
                    }
                    Some(ClientEvent::Item { id, item, .. }) => {
                        assert!(item.len() <= message_max && !ended.contains(id));
                    }
                    Some(ClientEvent::Head { id, metadata }) => {
                        assert!(
                            metadata.len() <= limits.metadata_entries_max as usize && !ended.contains(id)
                        );
                    }
                    Some(ClientEvent::End { id, .. }) => assert!(ended.insert(*id), "call {id} ends twice"),
                    _ => {}
                }
                Ok(event)
            },
        )
    };
    let whole = run(&[], false);
    assert_eq!(whole, run(&steps, false));
    assert_eq!(whole, run(&steps, true), "the fast path differs");
}

/// Mostly well-formed frames with unusual contents, sometimes only noise.
fn frames(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    if choices.one_in(8) {
        return choices.rest().to_vec();
    }
    Settings::default().put(&mut bytes);
    let mut encoder = Encoder::new();
    while !choices.is_over() {
        if choices.one_in(64) {
            bytes.extend_from_slice(choices.bytes(30));
        }
        let stream = 1 + 2 * u32::from(choices.byte() % 6);
        match choices.byte() % 16 {
            0..=4 => head(&mut encoder, choices, stream, &mut bytes),
            5..=9 => data(choices, stream, &mut bytes),
            10 => frame::put_reset(stream, frame::ErrorCode(u32::from(choices.byte() % 16)), &mut bytes),
            11 => {
                let increment = (choices.long() & frame::WINDOW_MAX).max(1) >> (choices.byte() % 31);
                let on = if choices.one_in(2) { 0 } else { stream };
                frame::put_window_update(on, increment.max(1), &mut bytes);
            }
            12 => {
                let window_bytes = choices.long() & 0xffff;
                Settings { window_bytes, ..Settings::default() }.put(&mut bytes);
            }
            13 => frame::put_ping([1; 8], choices.one_in(2), &mut bytes),
            14 => frame::put_go_away(stream, frame::ErrorCode(0), "bye", &mut bytes),
            _ => {
                let payload = choices.bytes(20);
                let len = payload.len() as u32;
                let (kind, flags) = (choices.byte() % 12, choices.byte());
                let stream = if choices.one_in(4) { 0 } else { stream };
                bytes.extend_from_slice(&FrameHead { len, kind, flags, stream }.to_bytes());
                bytes.extend_from_slice(payload);
            }
        }
    }
    bytes.to_vec()
}

fn head(encoder: &mut Encoder, choices: &mut Choices<'_>, stream: u32, bytes: &mut BytesMut) {
    let mut block = BytesMut::new();
    encoder.begin(&mut block);
    let mut put = |name: &str, value: &[u8]| {
        let indexing = if choices.one_in(3) { Indexing::Once } else { Indexing::Recurring };
        encoder.field(name.as_bytes(), value, indexing, &mut block);
    };
    let shape = stream % 3 + u32::from(bytes.len() as u8 % 2);
    if shape > 0 {
        put(":status", if shape == 3 { b"103" } else { b"200" });
        put("content-type", b"application/grpc");
    }
    if shape == 2 {
        put("grpc-encoding", b"gzip");
    }
    if shape == 0 {
        put("grpc-status", b"0");
    }
    for (name, value) in choices.metadata(2).iter() {
        encoder.field(name.as_bytes(), value, Indexing::Recurring, &mut block);
    }
    let ends = if shape == 0 { !choices.one_in(8) } else { choices.one_in(8) };
    let len_max = if choices.one_in(4) { 7 } else { 1 << 14 };
    frame::put_header_block(stream, &block, ends, len_max, bytes);
}

fn data(choices: &mut Choices<'_>, stream: u32, bytes: &mut BytesMut) {
    let message = choices.message();
    let mut body = vec![u8::from(choices.one_in(6))];
    let len = if choices.one_in(16) { choices.long() } else { message.len() as u32 };
    body.extend_from_slice(&len.to_be_bytes());
    body.extend_from_slice(&message);
    if choices.one_in(5) {
        let at = usize::from(choices.short()) % (body.len() + 1);
        let rest = body.split_off(at);
        put_data(stream, 0, &body, bytes);
        body = rest;
    }
    if choices.one_in(6) {
        body.insert(0, 3);
        body.extend_from_slice(&[0; 3]);
        return put_data(stream, flag::PADDED, &body, bytes);
    }
    let flags = if choices.one_in(8) { flag::END_STREAM } else { 0 };
    put_data(stream, flags, &body, bytes);
}

fn put_data(stream: u32, flags: u8, body: &[u8], bytes: &mut BytesMut) {
    let head = FrameHead { len: body.len() as u32, kind: kind::DATA, flags, stream };
    bytes.extend_from_slice(&head.to_bytes());
    bytes.extend_from_slice(body);
}
