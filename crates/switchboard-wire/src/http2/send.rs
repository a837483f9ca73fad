//! Sending on a connection: header blocks, DATA within both windows, and bytes that wait for the peer's credit.

use super::{
    frame::{FrameHead, HEAD_BYTES, flag, kind, put_header_block},
    hpack::{Encoder, Indexing},
    settings::Settings,
    window::SendWindow,
};
use crate::{
    Encoding, Encodings, Metadata, Outbox, Status,
    http::dialect::grpc::{FieldUse, Form, accept_encoding, metadata_fields, status_fields},
};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Most bytes that one stream sends in a row while others wait.
const TURN_BYTES: usize = 64 << 10;

/// Longest block that is stored, in bytes.
const STORED_BYTES_MAX: usize = 32;

/// Sending side of a connection.
#[derive(Debug)]
pub(super) struct Sending {
    /// Settings of the peer.
    pub(super) peer: Settings,
    /// Window of the connection.
    pub(super) window: SendWindow,
    pub(super) encoder: Encoder,
    /// Value of `grpc-accept-encoding`; empty if only uncompressed messages are accepted.
    accepts: String,
    /// Blocks of heads by their form, and that of the trailers of success.
    heads: Vec<(Form, Encoding, StoredBlock)>,
    success: StoredBlock,
    /// A block that is not stored.
    scratch: BytesMut,
    /// Streams with waiting bytes, in the order of their turns; some may have ended.
    pub(super) blocked: VecDeque<u32>,
    /// Bytes that wait for a window.
    pub(super) waiting_bytes: usize,
}

/// An encoded block, which is valid while the table of the encoder is the same.
#[derive(Clone, Copy, Debug)]
struct StoredBlock {
    generation: u64,
    len: u8,
    bytes: [u8; STORED_BYTES_MAX],
}

impl StoredBlock {
    const NONE: StoredBlock = StoredBlock { generation: 0, len: 0, bytes: [0; STORED_BYTES_MAX] };

    fn store(&mut self, block: &[u8], generation: u64) {
        if let Some(bytes) = self.bytes.get_mut(..block.len()) {
            bytes.copy_from_slice(block);
            (self.generation, self.len) = (generation, block.len() as u8);
        }
    }

    #[inline]
    fn find(&self, encoder: &Encoder) -> Option<&[u8]> {
        let is_valid = self.len > 0 && self.generation == encoder.generation() && !encoder.is_update_due();
        is_valid.then(|| &self.bytes[..usize::from(self.len)])
    }
}

/// Bytes of a stream that wait for its window or for that of the connection.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    parts: VecDeque<Bytes>,
    pub(super) bytes: usize,
    /// Time in milliseconds at which some were last sent, or began to wait.
    pub(super) progress: u64,
    /// End of the call, which follows the bytes.
    pub(super) end: Option<End>,
}

/// End of a response.
#[derive(Debug)]
pub(super) enum End {
    /// Trailers of a call.
    Call(Result<Metadata, Status>),
    /// The end of a body that is not one of a call.
    Body,
}

impl Waiting {
    pub(super) fn new(progress: u64) -> Waiting {
        Waiting { progress, ..Waiting::default() }
    }

    pub(super) fn add(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Moves `len` bytes to the outbox.
    fn put(&mut self, mut len: usize, out: &mut Outbox) {
        self.bytes -= len;
        while let Some(part) = self.parts.front_mut() {
            if part.len() > len {
                if len > 0 {
                    out.put(&part.split_to(len));
                }
                return;
            }
            len -= part.len();
            out.put(&*part);
            self.parts.pop_front();
        }
    }
}

impl Sending {
    pub(super) fn new(encodings: Encodings) -> Sending {
        let peer = Settings::default();
        let accepts = if encodings == Encodings::NONE { String::new() } else { accept_encoding(encodings) };
        Sending {
            peer,
            window: SendWindow::new(peer.window_bytes),
            encoder: Encoder::new(),
            accepts,
            heads: Vec::new(),
            success: StoredBlock::NONE,
            scratch: BytesMut::new(),
            blocked: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Returns true if a DATA frame of this size can be sent now.
    #[inline]
    pub(super) fn fits(&self, window: SendWindow, bytes: usize) -> bool {
        bytes <= self.window.available().min(window.available())
            && bytes <= self.peer.frame_bytes_max as usize
    }

    /// Sends waiting bytes of a stream as both windows allow, at most a turn; returns their number.
    pub(super) fn pump(
        &mut self,
        stream: u32,
        window: &mut SendWindow,
        waiting: &mut Waiting,
        out: &mut Outbox,
    ) -> usize {
        let mut sent = 0;
        while waiting.bytes > 0 && sent < TURN_BYTES {
            let room = self.window.available().min(window.available());
            let len = waiting.bytes.min(room).min(self.peer.frame_bytes_max as usize).min(TURN_BYTES - sent);
            if len == 0 {
                break;
            }
            let head = FrameHead { len: len as u32, kind: kind::DATA, flags: 0, stream };
            out.tail().extend_from_slice(&head.to_bytes());
            waiting.put(len, out);
            self.window.take(len);
            window.take(len);
            sent += len;
        }
        self.waiting_bytes -= sent;
        sent
    }

    /// Writes the head of a reply; `metadata` is that of the handler.
    pub(super) fn put_head(
        &mut self,
        stream: u32,
        form: Form,
        replies: Encoding,
        metadata: &Metadata,
        out: &mut Outbox,
    ) {
        let stored = self.heads.iter().position(|(known, its, _)| (*known, *its) == (form, replies));
        if metadata.is_empty()
            && let Some(stored) = stored
            && let Some(block) = self.heads[stored].2.find(&self.encoder)
        {
            return put_short(stream, block, 0, out);
        }
        // A block with a size update is not for the next one.
        let is_update_due = self.encoder.is_update_due();
        let generation = self.encoder.generation();
        self.begin_head(form);
        if replies != Encoding::Identity {
            self.field(b"grpc-encoding", replies.name().as_bytes(), FieldUse::Recurring);
        }
        metadata_fields(metadata, |name, value, usage| {
            put_field(&mut self.encoder, name, value, usage, &mut self.scratch);
        });
        if metadata.is_empty() && !is_update_due && generation == self.encoder.generation() {
            let stored = stored.unwrap_or_else(|| {
                self.heads.push((form, replies, StoredBlock::NONE));
                self.heads.len() - 1
            });
            self.heads[stored].2.store(&self.scratch, generation);
        }
        put_header_block(stream, &self.scratch, false, self.peer.frame_bytes_max, out.tail());
    }

    /// Writes the trailers of a call whose head was sent.
    pub(super) fn put_trailers(&mut self, stream: u32, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        let is_plain = end.is_ok_and(Metadata::is_empty);
        if is_plain && let Some(block) = self.success.find(&self.encoder) {
            return put_short(stream, block, flag::END_STREAM, out);
        }
        let is_update_due = self.encoder.is_update_due();
        let generation = self.encoder.generation();
        self.begin();
        self.end_fields(end);
        if is_plain && !is_update_due && generation == self.encoder.generation() {
            self.success.store(&self.scratch, generation);
        }
        put_header_block(stream, &self.scratch, true, self.peer.frame_bytes_max, out.tail());
    }

    /// Writes the only head of a call that fails before its head was sent.
    #[cold]
    pub(super) fn put_trailers_only(&mut self, stream: u32, form: Form, status: &Status, out: &mut Outbox) {
        self.begin_head(form);
        self.end_fields(Err(status));
        put_header_block(stream, &self.scratch, true, self.peer.frame_bytes_max, out.tail());
    }

    /// Writes the head of the response to a request that is no call.
    #[cold]
    pub(super) fn put_http_status(&mut self, stream: u32, status: u16, out: &mut Outbox) {
        self.begin();
        self.field(b":status", status.to_string().as_bytes(), FieldUse::Recurring);
        if status == 405 {
            self.field(b"allow", b"POST", FieldUse::Once);
        } else {
            self.field(b"accept-post", Form::Plain.name().as_bytes(), FieldUse::Once);
        }
        self.field(b"content-type", b"text/plain", FieldUse::Once);
        put_header_block(stream, &self.scratch, false, self.peer.frame_bytes_max, out.tail());
    }

    fn begin(&mut self) {
        self.scratch.clear();
        self.encoder.begin(&mut self.scratch);
    }

    fn begin_head(&mut self, form: Form) {
        self.begin();
        self.field(b":status", b"200", FieldUse::Recurring);
        self.field(b"content-type", form.name().as_bytes(), FieldUse::Recurring);
        if !self.accepts.is_empty() {
            let Sending { encoder, accepts, scratch, .. } = self;
            put_field(encoder, b"grpc-accept-encoding", accepts.as_bytes(), FieldUse::Recurring, scratch);
        }
    }

    fn end_fields(&mut self, end: Result<&Metadata, &Status>) {
        match end {
            Ok(trailers) => {
                self.field(b"grpc-status", b"0", FieldUse::Recurring);
                metadata_fields(trailers, |name, value, usage| self.field(name, value, usage));
            }
            Err(status) => status_fields(status, |name, value, usage| self.field(name, value, usage)),
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8], usage: FieldUse) {
        put_field(&mut self.encoder, name, value, usage, &mut self.scratch);
    }
}

fn put_field(encoder: &mut Encoder, name: &[u8], value: &[u8], usage: FieldUse, into: &mut BytesMut) {
    let indexing = match usage {
        FieldUse::Recurring => Indexing::Recurring,
        FieldUse::Once => Indexing::Once,
        FieldUse::Secret => Indexing::Never,
    };
    encoder.field(name, value, indexing, into);
}

/// Writes a stored block, which is smaller than any frame may be.
#[inline]
fn put_short(stream: u32, block: &[u8], flags: u8, out: &mut Outbox) {
    let head =
        FrameHead { len: block.len() as u32, kind: kind::HEADERS, flags: flags | flag::END_HEADERS, stream };
    let tail = out.tail();
    tail.reserve(HEAD_BYTES + STORED_BYTES_MAX);
    tail.extend_from_slice(&head.to_bytes());
    tail.extend_from_slice(block);
}
