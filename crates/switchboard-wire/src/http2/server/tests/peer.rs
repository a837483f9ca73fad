//! A client of the machine that writes and reads frames.

use crate::{
    Encodings, Fatal, Input, Kind, Limits, MethodInfo, MethodTable, Outbox, ServiceInfo,
    http2::{
        frame::{FrameHead, HEAD_BYTES, PREFACE, flag, kind},
        hpack::{Decoder, Encoder, Indexing, ListLimits},
        server::{Server, ServerOptions},
        settings::Settings,
    },
    wire::{CallId, Head, ServerEvent, ServerWire},
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
        MethodInfo::new("Small", Kind::Unary),
    ],
    descriptor: &[],
};

pub(super) fn table() -> Arc<MethodTable> {
    let mut table = MethodTable::default();
    table.add(&SERVICE).unwrap();
    table.limit_messages("a.B/Small", 4).unwrap();
    Arc::new(table)
}

/// A frame that the machine has written.
#[derive(Debug, PartialEq)]
pub(super) enum Sent {
    /// Fields, joined by spaces, and the end of the stream.
    Headers(u32, String, bool),
    Data(u32, Vec<u8>, bool),
    Reset(u32, u32),
    /// Last stream, code and text.
    GoAway(u32, u32, String),
    Ping(bool, [u8; 8]),
    Settings(bool),
    Window(u32, u32),
}

/// The machine with its peer.
pub(super) struct Peer {
    pub(super) machine: Server,
    pub(super) input: Input,
    pub(super) out: Outbox,
    encoder: Encoder,
    decoder: Decoder,
}

/// Time after which stalled streams are reset.
pub(super) const STALL_MS: u64 = 30_000;

pub(super) const FIELDS: [(&str, &str); 5] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
];

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.to_bytes()[..], payload].concat()
}

pub(super) fn message(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

pub(super) fn data(stream: u32, payload: &[u8], ends: bool) -> Vec<u8> {
    frame(kind::DATA, u8::from(ends), stream, payload)
}

pub(super) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

pub(super) fn setting(number: u16, value: u32) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(kind::SETTINGS, 0, 0, &payload)
}

impl Peer {
    /// Creates a connection whose settings were exchanged.
    pub(super) fn new() -> Peer {
        Peer::with(Limits::default(), Encodings::NONE)
    }

    pub(super) fn with(limits: Limits, encodings: Encodings) -> Peer {
        let options = ServerOptions::default().with_ping_interval_ms(1000).with_stall_ms(STALL_MS);
        let mut peer = Peer {
            machine: Server::new(limits, table(), encodings, options),
            input: Input::default(),
            out: Outbox::new(),
            encoder: Encoder::new(),
            decoder: Decoder::new(4096),
        };
        let mut hello = BytesMut::from(&PREFACE[..]);
        Settings::default().put(&mut hello);
        assert!(peer.events(&hello).is_empty());
        let written = peer.sent();
        assert_eq!(written[0], Sent::Settings(false));
        assert!(written.contains(&Sent::Settings(true)));
        peer
    }

    /// Sends bytes; returns all events but `Handled`.
    pub(super) fn events(&mut self, bytes: &[u8]) -> Vec<ServerEvent> {
        self.try_events(bytes).unwrap()
    }

    pub(super) fn try_events(&mut self, bytes: &[u8]) -> Result<Vec<ServerEvent>, Fatal> {
        self.input.extend(bytes);
        let mut events = Vec::new();
        while let Some(event) = self.machine.recv(&mut self.input, &mut self.out)? {
            if !matches!(event, ServerEvent::Handled) {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Sends bytes that end the connection; returns the code and the text of the GOAWAY.
    pub(super) fn fatal(&mut self, bytes: &[u8]) -> (u32, String) {
        let fatal = self.try_events(bytes).unwrap_err();
        let Some(Sent::GoAway(_, code, text)) = self.sent().pop() else { panic!("no GOAWAY") };
        assert_eq!(text, fatal.0);
        (code, text)
    }

    /// Returns the frames that the machine wrote since the last call.
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let bytes = self.out.take_all();
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        let mut block = Vec::new();
        while let Some(head) = FrameHead::parse(rest) {
            let end = HEAD_BYTES + head.len as usize;
            let payload = &rest[HEAD_BYTES..end];
            rest = &rest[end..];
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            frames.push(match head.kind {
                kind::HEADERS | kind::CONTINUATION => {
                    block.extend_from_slice(payload);
                    if !head.has(flag::END_HEADERS) {
                        continue;
                    }
                    let (mut fields, limits) =
                        (Vec::new(), ListLimits { bytes_max: 1 << 20, fields_max: 1000 });
                    let visit = |field: crate::http2::hpack::Field<'_>| {
                        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                        fields.push(format!("{}={}", text(field.name), text(field.value)));
                    };
                    self.decoder.decode(&std::mem::take(&mut block), limits, visit).unwrap();
                    Sent::Headers(head.stream, fields.join(" "), head.has(flag::END_STREAM))
                }
                kind::DATA => Sent::Data(head.stream, payload.to_vec(), head.has(flag::END_STREAM)),
                kind::RST_STREAM => Sent::Reset(head.stream, number(0)),
                kind::GOAWAY => {
                    Sent::GoAway(number(0), number(4), String::from_utf8_lossy(&payload[8..]).into_owned())
                }
                kind::PING => Sent::Ping(head.has(flag::ACK), payload.try_into().unwrap()),
                kind::SETTINGS => Sent::Settings(head.has(flag::ACK)),
                kind::WINDOW_UPDATE => Sent::Window(head.stream, number(0)),
                other => panic!("a frame of kind {other}"),
            });
        }
        assert!(rest.is_empty());
        frames
    }

    /// Encodes a block.
    pub(super) fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = BytesMut::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Recurring, &mut block);
        }
        block.to_vec()
    }

    /// Encodes the HEADERS frame of a call with further fields.
    pub(super) fn headers(
        &mut self,
        stream: u32,
        method: &str,
        more: &[(&str, &str)],
        ends: bool,
    ) -> Vec<u8> {
        let path = format!("/a.B/{method}");
        let mut fields = vec![(":path", &*path)];
        fields.extend(FIELDS);
        fields.extend_from_slice(more);
        let block = self.block(&fields);
        frame(kind::HEADERS, flag::END_HEADERS | u8::from(ends), stream, &block)
    }

    /// Encodes a unary call.
    pub(super) fn call(&mut self, stream: u32, payload: &[u8]) -> Vec<u8> {
        [self.headers(stream, "Unary", &[], false), data(stream, &message(payload), true)].concat()
    }

    /// Sends bytes that open one call, or nothing.
    pub(super) fn open(&mut self, bytes: &[u8]) -> (CallId, Head, Option<Bytes>, bool) {
        match self.events(bytes).pop() {
            Some(ServerEvent::Open { id, head, first, more, .. }) => (id, head, first, more),
            other => panic!("{other:?}"),
        }
    }
}

/// Head of a successful reply to a caller that accepts no compression.
pub(super) fn head(stream: u32) -> Sent {
    Sent::Headers(stream, ":status=200 content-type=application/grpc".into(), false)
}

/// Trailers of a successful reply.
pub(super) fn success(stream: u32) -> Sent {
    Sent::Headers(stream, "grpc-status=0".into(), true)
}
