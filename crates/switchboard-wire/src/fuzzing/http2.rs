//! The server machine of HTTP/2 against a client that follows few rules.

use super::{Choices, feed::pieces};
use crate::{
    Encoding, Encodings, Input, Kind, Limits, Metadata, MethodInfo, MethodTable, Outbox, Outgoing,
    ServiceInfo, Status,
    http2::{
        frame::{FrameHead, PREFACE, flag, kind},
        hpack::{Encoder, Indexing},
        server::{Server, ServerOptions},
        settings::Settings,
    },
    wire::{Head, Opened, ServerEvent, ServerWire},
};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

static SERVICE: ServiceInfo = ServiceInfo {
    name: "a.B",
    methods: &[
        MethodInfo::new("Unary", Kind::Unary),
        MethodInfo::new("Replies", Kind::ServerStream),
        MethodInfo::new("Uploads", Kind::ClientStream),
        MethodInfo::new("Both", Kind::Bidi),
    ],
    descriptor: &[],
};

/// Memory of a machine beside its streams and their partly received messages.
const MEMORY_FIXED: usize = 128 << 10;

/// Feeds the machine with frames of a client that follows few rules, and responds to its calls. Checks that it does
/// not panic, that events and written bytes do not depend on the split and on the fast path, that it respects the
/// limits, and that no stream waits while both windows let it send.
///
/// # Panics
/// If the property does not hold.
pub fn http2_server_input(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits {
        message_bytes_max: 1 << (4 + choices.byte() % 13),
        metadata_entries_max: u32::from(choices.byte() % 4),
        calls_max: 3 + u32::from(choices.byte() % 16),
        ..Limits::default()
    };
    let steps = [choices.byte(), choices.byte(), choices.byte()];
    let bytes = connection(&mut choices);
    let whole = Run::of(limits, &bytes, &[], false);
    assert_eq!(Run::of(limits, &bytes, &steps, false), whole);
    assert_eq!(Run::of(limits, &bytes, &[], true), whole, "on the fast path");
    assert_eq!(Run::of(limits, &bytes, &steps, true), whole, "on the fast path, split");
}

/// Events and bytes of a machine.
#[derive(Debug, PartialEq)]
struct Run {
    events: Vec<String>,
    written: Vec<u8>,
    failed: bool,
}

impl Run {
    fn of(limits: Limits, bytes: &[u8], steps: &[u8], fast: bool) -> Run {
        let mut table = MethodTable::default();
        table.add(&SERVICE).expect("one service");
        let encodings = Encodings(1 << Encoding::Gzip as u32);
        let options = ServerOptions::default();
        let mut server = Server::new(limits, Arc::new(table), encodings, options);
        let (mut input, mut out) = (Input::default(), Outbox::new());
        let mut run = Run { events: Vec::new(), written: Vec::new(), failed: false };
        for piece in pieces(bytes, steps) {
            input.extend(piece);
            while !run.failed && run.step(&mut server, fast, limits, &mut input, &mut out) {}
            run.written.extend(out.take_all());
            assert!(run.failed || !server.wastes_windows(), "a stream waits for nothing");
            let memory = server.memory();
            let max = (memory.calls + 1) * (2 * limits.message_bytes_max as usize + (1 << 10)) + MEMORY_FIXED;
            assert!(memory.bytes <= max, "{memory:?}");
            assert!(memory.calls <= limits.calls_max as usize);
        }
        run
    }

    /// Handles an event; returns false if there is none.
    fn step(
        &mut self,
        server: &mut Server,
        fast: bool,
        limits: Limits,
        input: &mut Input,
        out: &mut Outbox,
    ) -> bool {
        if fast && let Some(Opened { id, method, codec, replies, timeout, len }) = server.next_call(input) {
            let first = Some(input.take(len));
            self.events.push(format!("open {id} {method:?} {codec} {replies} {timeout:?} {first:?}"));
            respond(server, id, out);
            return true;
        }
        let event = match server.recv(input, out) {
            Ok(Some(event)) => event,
            Ok(None) => return false,
            Err(fatal) => {
                self.events.push(fatal.0);
                self.failed = true;
                return false;
            }
        };
        match event {
            ServerEvent::Handled => return true,
            ServerEvent::Open { id, head, first, compressed, more } => {
                let Head { method, codec, replies, timeout, metadata, .. } = head;
                assert!(metadata.len() <= limits.metadata_entries_max as usize);
                let len = first.as_ref().map_or(0, Bytes::len);
                assert!(len <= limits.message_bytes_max as usize);
                let text = format!("open {id} {method:?} {codec} {replies} {timeout:?} {first:?}");
                self.events.push(match metadata.is_empty() && !compressed && !more {
                    true => text,
                    false => format!("{text} {metadata:?} {compressed} {more}"),
                });
                if !more || id % 16 < 8 {
                    respond(server, id, out);
                }
            }
            ServerEvent::Item { id, item, compressed } => {
                assert!(item.len() <= limits.message_bytes_max as usize);
                self.events.push(format!("item {id} {item:?} {compressed}"));
                server.credit(id, item.len() as u32, out);
            }
            ServerEvent::HalfClose { id } => {
                self.events.push(format!("half {id}"));
                respond(server, id, out);
            }
            ServerEvent::Resume { id } => {
                self.events.push(format!("resume {id}"));
                server.end(id, Ok(&Metadata::new()), out);
            }
            ServerEvent::Refused { id, status } => {
                self.events.push(format!("refused {id} {status}"));
                server.end(id, Err(&status), out);
            }
            other => self.events.push(format!("{other:?}")),
        }
        true
    }
}

/// Responds to a call in one of the ways that handlers have.
fn respond(server: &mut Server, id: u32, out: &mut Outbox) {
    let mut metadata = Metadata::new();
    metadata.insert("x-own", "1").expect("it is valid");
    let item = Bytes::from(vec![id as u8; 30_000]);
    match id / 2 % 6 {
        0 => server.reply(id, Outgoing::Lent(b"short"), out),
        1 => server.reply(id, (&item).into(), out),
        2 => {
            server.head(id, &metadata, out);
            server.item(id, &item, false, out);
            server.item(id, &Bytes::from_static(b"x"), true, out);
            // The end follows when the peer has accepted the messages.
            if !server.is_blocked(id) {
                server.end(id, Ok(&metadata), out);
            }
        }
        3 => server.end(id, Err(&Status::aborted("no").with_metadata(metadata)), out),
        4 => server.reply_parts(id, &[item.slice(..7), item], out),
        _ => server.reply_with(id, Outgoing::Lent(b"y"), false, &metadata, out),
    }
}

/// Draws the bytes of a connection: mostly valid calls, and frames of any kind.
fn connection(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = BytesMut::from(&PREFACE[..]);
    let settings = Settings { window_bytes: u32::from(choices.short()), ..Settings::default() };
    settings.put(&mut bytes);
    let (mut encoder, mut next) = (Encoder::new(), 1u32);
    while !choices.is_over() && bytes.len() < 100_000 {
        // One of the last streams of the client.
        let stream = next.saturating_sub(2 + 2 * u32::from(choices.byte() % 6)).max(1);
        match choices.byte() % 16 {
            0..6 => {
                head(choices, &mut encoder, next, &mut bytes);
                let body = body(choices);
                put(choices, kind::DATA, next, &body, &mut bytes);
                next += 2;
            }
            6 => {
                head(choices, &mut encoder, next, &mut bytes);
                next += 2;
            }
            7..10 if next > 1 => {
                let body = body(choices);
                put(choices, kind::DATA, stream, &body, &mut bytes);
            }
            10 => {
                let stream = if choices.one_in(2) || next == 1 { 0 } else { stream };
                let increment = (choices.long() & 0xffff).max(u32::from(!choices.one_in(20)));
                put_frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), &mut bytes);
            }
            11 => {
                let number = [1, 3, 4, 5, 6, 9][usize::from(choices.byte() % 6)];
                let value = if choices.one_in(20) { choices.long() } else { u32::from(choices.short()) };
                let value =
                    if number == 5 { value.max(1 << 14) } else { value & !(u32::from(number == 9) * !1) };
                let entry = [&[0, number][..], &value.to_be_bytes()].concat();
                put_frame(kind::SETTINGS, 0, 0, &entry, &mut bytes);
            }
            12 if next > 1 => put_frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8], &mut bytes),
            13 => put_frame(kind::PING, choices.byte() & 1, 0, &[7; 8], &mut bytes),
            14 if choices.one_in(8) => {
                let (kind, flags) = (choices.byte() % 12, choices.byte());
                put_frame(kind, flags, stream, choices.bytes(40), &mut bytes);
            }
            15 if choices.one_in(16) => bytes.extend_from_slice(choices.bytes(12)),
            _ => put_frame(kind::PRIORITY, 0, stream, &[0, 0, 0, 0, 7], &mut bytes),
        }
    }
    bytes.to_vec()
}

/// Writes the head of a call, in one frame or two.
fn head(choices: &mut Choices<'_>, encoder: &mut Encoder, stream: u32, into: &mut BytesMut) {
    let path = ["/a.B/Unary", "/a.B/Unary", "/a.B/Replies", "/a.B/Uploads", "/a.B/Both", "/a.B/None"];
    let path = path[usize::from(choices.byte()) % path.len()];
    let mut fields = vec![(":method", "POST"), (":scheme", "http"), (":path", path), ("te", "trailers")];
    fields.push(("content-type", if choices.one_in(16) { "text/plain" } else { "application/grpc" }));
    let others = [
        ("grpc-timeout", "3S"),
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "gzip"),
        ("x-bin", "AAA"),
        ("x", "y"),
        ("user-agent", "t"),
        ("x", "z"),
        ("grpc-accept-encoding", "identity"),
        ("grpc-timeout", "100m"),
        ("grpc-timeout", "junk"),
        ("Upper", "x"),
        ("content-length", "9"),
    ];
    for _ in 0..choices.byte() % 4 {
        fields.push(others[usize::from(choices.byte()) % others.len()]);
    }
    let mut block = BytesMut::new();
    encoder.begin(&mut block);
    for (name, value) in fields {
        let indexing = if choices.one_in(2) { Indexing::Once } else { Indexing::Recurring };
        encoder.field(name.as_bytes(), value.as_bytes(), indexing, &mut block);
    }
    let ends = u8::from(choices.one_in(12));
    let middle = if choices.one_in(5) { block.len() / 2 } else { block.len() };
    let (first, rest) = block.split_at(middle);
    let end = if rest.is_empty() { flag::END_HEADERS } else { 0 };
    put_frame(kind::HEADERS, ends | end, stream, first, into);
    if !rest.is_empty() {
        put_frame(kind::CONTINUATION, flag::END_HEADERS, stream, rest, into);
    }
}

/// Draws a body: one message mostly, or any bytes.
fn body(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.one_in(8) {
        return choices.bytes(20).to_vec();
    }
    let message = choices.message();
    let flag = if choices.one_in(10) { choices.byte() % 3 } else { 0 };
    [&[flag][..], &(message.len() as u32).to_be_bytes(), &message].concat()
}

/// Writes a payload as DATA, whole or in two frames, that ends its stream or not.
fn put(choices: &mut Choices<'_>, kind: u8, stream: u32, payload: &[u8], into: &mut BytesMut) {
    let middle = if choices.one_in(4) { payload.len() / 3 } else { 0 };
    let (first, rest) = payload.split_at(middle);
    if !first.is_empty() {
        put_frame(kind, 0, stream, first, into);
    }
    let ends = !choices.one_in(5);
    let is_apart = choices.one_in(4);
    put_frame(kind, u8::from(ends && !is_apart), stream, rest, into);
    if ends && is_apart {
        put_frame(kind, flag::END_STREAM, stream, b"", into);
    }
}

fn put_frame(kind: u8, flags: u8, stream: u32, payload: &[u8], into: &mut BytesMut) {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    into.extend_from_slice(&head.to_bytes());
    into.extend_from_slice(payload);
}
