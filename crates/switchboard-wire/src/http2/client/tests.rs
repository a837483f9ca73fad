//! Conversations as bytes: frames of a server against the events of the client, and the frames that the client sends.

mod conversations;
mod flow;
mod hostile;
mod replies;

use super::{super::frame::*, super::hpack::*, super::settings::Settings, *};
use crate::{Codec, Metadata};
use bytes::BytesMut;

/// A frame: kind, flags, stream, payload.
pub(super) type Frame = (u8, u8, u32, Vec<u8>);

pub(super) const END_HEADERS: u8 = flag::END_HEADERS;
pub(super) const END_STREAM: u8 = flag::END_STREAM;

/// A client, and a server that writes frames by hand.
pub(super) struct World {
    pub(super) client: Client,
    pub(super) out: Outbox,
    pub(super) input: Input,
    encoder: Encoder,
    decoder: Decoder,
    next: ClientCallId,
    /// Bytes of each piece that the client receives; 0 for all at once.
    pub(super) piece: usize,
}

pub(super) const UNARY: u16 = 0;
pub(super) const BIDI: u16 = 1;

impl World {
    pub(super) fn new(limits: Limits) -> World {
        let mut world = World {
            client: Client::new(limits, "tcp://a:1", "a:1", false),
            out: Outbox::new(),
            input: Input::default(),
            encoder: Encoder::new(),
            decoder: Decoder::new(TABLE_BYTES),
            next: 0,
            piece: 0,
        };
        world.client.greet(&mut world.out);
        world.client.method(UNARY, "a.B/One", None, &mut world.out);
        world.client.method(BIDI, "a.B/Both", None, &mut world.out);
        world.client.streams(BIDI, Kind::Bidi);
        world
    }

    /// A client whose server has sent its settings.
    pub(super) fn started(settings: Settings) -> World {
        let mut world = World::new(Limits::default());
        let mut frame = BytesMut::new();
        settings.put(&mut frame);
        assert_eq!(world.receive(&frame), ["settings"]);
        world.sent();
        world
    }

    pub(super) fn open_with(&mut self, open: Open<'_>, first: Option<&[u8]>) -> ClientCallId {
        let id = self.next;
        self.next += 1;
        self.client.open(id, open, first.map(Outgoing::Lent), &mut self.out).unwrap();
        id
    }

    pub(super) fn unary(&mut self, message: &[u8]) -> ClientCallId {
        self.open_with(open(UNARY, false, &Metadata::new()), Some(message))
    }

    pub(super) fn bidi(&mut self) -> ClientCallId {
        self.open_with(open(BIDI, true, &Metadata::new()), None)
    }

    /// Returns the frames that the client has sent, after its preface.
    pub(super) fn sent(&mut self) -> Vec<Frame> {
        let bytes = self.out.take_all();
        let mut rest = bytes.strip_prefix(&PREFACE[..]).unwrap_or(&bytes);
        let mut frames = Vec::new();
        while let Some(head) = FrameHead::parse(rest) {
            let end = HEAD_BYTES + head.len as usize;
            frames.push((head.kind, head.flags, head.stream, rest[HEAD_BYTES..end].to_vec()));
            rest = &rest[end..];
        }
        assert!(rest.is_empty());
        frames
    }

    /// Returns kind, flags and stream of the frames that the client has sent.
    pub(super) fn sent_heads(&mut self) -> Vec<(u8, u8, u32)> {
        self.sent().into_iter().map(|(kind, flags, stream, _)| (kind, flags, stream)).collect()
    }

    /// Returns the fields of a header block of the client.
    pub(super) fn fields(&mut self, block: &[u8]) -> Vec<String> {
        let mut fields = Vec::new();
        let limits = ListLimits { bytes_max: 1 << 20, fields_max: 1000 };
        let add = |field: Field<'_>| {
            fields.push(format!(
                "{}: {}{}",
                String::from_utf8_lossy(field.name),
                String::from_utf8_lossy(field.value),
                if field.never_indexed { " (secret)" } else { "" }
            ));
        };
        self.decoder.decode(block, limits, add).unwrap();
        fields
    }

    /// Encodes a header block of the server.
    pub(super) fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = BytesMut::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Recurring, &mut block);
        }
        block.to_vec()
    }

    pub(super) fn headers(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
        let block = self.block(fields);
        frame_bytes(kind::HEADERS, END_HEADERS | flags, stream, &block)
    }

    /// A plain head, message and trailers.
    pub(super) fn plain_reply(&mut self, stream: u32, message: &[u8]) -> Vec<u8> {
        let head = self.headers(stream, 0, HEAD);
        let data = frame_bytes(kind::DATA, 0, stream, &envelope(0, message));
        let end = self.headers(stream, END_STREAM, &[("grpc-status", "0")]);
        [head, data, end].concat()
    }

    /// Delivers bytes to the client; returns its events, or the error after them.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        let size = if self.piece == 0 { bytes.len().max(1) } else { self.piece };
        for piece in bytes.chunks(size) {
            self.input.extend(piece);
            loop {
                while let Some((id, len)) = self.client.next_reply(&mut self.input) {
                    let item = self.input.take(len);
                    events.push(text(&ClientEvent::Reply { id, item, compressed: false }));
                }
                match self.client.recv(&mut self.input, &mut self.out) {
                    Ok(Some(event)) => events.push(text(&event)),
                    Ok(None) => break,
                    Err(fatal) => {
                        events.push(format!("fatal: {fatal}"));
                        return events;
                    }
                }
            }
        }
        events
    }
}

pub(super) const HEAD: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/grpc")];

pub(super) fn open(method: u16, more: bool, metadata: &Metadata) -> Open<'_> {
    Open {
        method,
        codec: Codec::Proto,
        timeout: None,
        metadata,
        oneway: false,
        more,
        encoding: Encoding::Identity,
        compressed: false,
        rest: &[],
    }
}

pub(super) fn frame_bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHead { len: payload.len() as u32, kind, flags, stream };
    [&head.to_bytes()[..], payload].concat()
}

pub(super) fn envelope(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

pub(super) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame_bytes(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub(super) fn reset(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame_bytes(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes())
}

pub(super) fn settings(settings: Settings) -> Vec<u8> {
    let mut frame = BytesMut::new();
    settings.put(&mut frame);
    frame.to_vec()
}

/// Short text of an event.
fn text(event: &ClientEvent) -> String {
    let shown = |bytes: &Bytes| match bytes.len() {
        0..100 => String::from_utf8_lossy(bytes).into_owned(),
        len => format!("{len} bytes"),
    };
    let packed = |compressed: &bool| if *compressed { " compressed" } else { "" };
    match event {
        ClientEvent::Head { id, metadata } => format!("{id} head {metadata:?}"),
        ClientEvent::Reply { id, item, compressed } => {
            format!("{id} reply {}{}", shown(item), packed(compressed))
        }
        ClientEvent::Item { id, item, compressed } => {
            format!("{id} item {}{}", shown(item), packed(compressed))
        }
        ClientEvent::End { id, end: Ok(trailers) } => format!("{id} end {trailers:?}"),
        ClientEvent::End { id, end: Err(status) } => {
            format!("{id} {:?} {:?} {}", status.code(), status.retry(), status.message())
        }
        ClientEvent::Credit { id, bytes } => format!("{id} credit {bytes}"),
        ClientEvent::Settings { .. } => "settings".into(),
        ClientEvent::GoAway { status } => format!("go away: {}", status.message()),
        ClientEvent::Pong => "pong".into(),
        other => format!("{other:?}"),
    }
}
