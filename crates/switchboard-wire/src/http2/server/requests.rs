//! Heads of requests: header blocks, their fields, and the calls that they begin.

use super::{Body, Phase, STREAM_WINDOW, Server, Stream, frames::error};
use crate::{
    Encoding, Kind, MethodId, Outbox, Status,
    http::{
        dialect::{
            grpc::Form,
            open::{Opening, open},
        },
        fields::DecodedField,
        head::{PlainHead, RequestHead},
    },
    http2::{
        frame::{
            ConnectionError, ErrorCode, FrameHead, flag, kind, put_reset, without_padding, without_priority,
        },
        hpack::{HpackError, ListLimits, Listed},
        window::{ReceiveWindow, SendWindow},
    },
    wire::{Head, ServerEvent},
};

/// Most frames of a header block.
const BLOCK_FRAMES_MAX: u32 = 16;
/// A block may have this many times the bytes of a header list: a field of one byte may be encoded in more.
const BLOCK_EXCESS: usize = 4;
/// Bytes of a frame beside its block: padding and priority.
const BLOCK_EXTRA: usize = 256 + 5;
/// Fields of a request beside its metadata.
const OTHER_FIELDS_MAX: usize = 32;

/// A header block whose frames have not all arrived.
#[derive(Debug)]
pub(super) struct PartialBlock {
    pub(super) stream: u32,
    ends_stream: bool,
    frames: u32,
    block: Vec<u8>,
}

impl PartialBlock {
    pub(super) fn memory_bytes(&self) -> usize {
        self.block.capacity()
    }
}

/// Result of decoding a block.
pub(super) type Decoded = Result<(RequestHead, Listed), HpackError>;

impl Server {
    /// Checks the size of a frame of a header block before it has arrived.
    pub(super) fn check_block(&self, head: FrameHead) -> Result<(), ConnectionError> {
        let calm = |reason| Err(error(ErrorCode::ENHANCE_YOUR_CALM, reason));
        let (mut bytes, mut frames) = (head.len as usize, 1);
        match (&self.partial, head.kind) {
            (Some(partial), _) => {
                bytes += partial.block.len();
                frames += partial.frames;
            }
            (None, kind::CONTINUATION) => {
                return Err(error(ErrorCode::PROTOCOL_ERROR, "CONTINUATION without a header block"));
            }
            (None, _) => {}
        }
        if bytes > self.limits.metadata_bytes_max as usize * BLOCK_EXCESS + BLOCK_EXTRA {
            return calm("a header block is larger than 4 times the limit (metadata_bytes_max)");
        }
        if frames > BLOCK_FRAMES_MAX {
            return calm("a header block has more than 16 frames");
        }
        Ok(())
    }

    pub(super) fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        self.pings.busy = true;
        let block = without_priority(head, without_padding(head, payload)?)?;
        let ends_stream = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.block(head.stream, ends_stream, block, out);
        }
        self.partial =
            Some(PartialBlock { stream: head.stream, ends_stream, frames: 1, block: block.to_vec() });
        Ok(ServerEvent::Handled)
    }

    pub(super) fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        let Some(mut partial) = self.partial.take() else { return Ok(ServerEvent::Handled) };
        partial.block.extend_from_slice(payload);
        partial.frames += 1;
        if head.has(flag::END_HEADERS) {
            return self.block(partial.stream, partial.ends_stream, &partial.block, out);
        }
        self.partial = Some(partial);
        Ok(ServerEvent::Handled)
    }

    /// Processes a whole header block.
    fn block(
        &mut self,
        id: u32,
        ends_stream: bool,
        block: &[u8],
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        if id.is_multiple_of(2) {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "a client opens a stream with an even number"));
        }
        let decoded = match self.decoded.take() {
            Some(decoded) => decoded,
            None => self.decode(block),
        };
        let (head, listed) = decoded.map_err(|reason| match reason {
            HpackError::ListTooLarge => {
                let reason = "a header list is larger than 4 times the limit (metadata_bytes_max)";
                error(ErrorCode::ENHANCE_YOUR_CALM, reason)
            }
            HpackError::Huffman => {
                error(ErrorCode::COMPRESSION_ERROR, "a header has an invalid Huffman code")
            }
            _ => error(ErrorCode::COMPRESSION_ERROR, "a header block cannot be decoded"),
        })?;
        if id > self.last {
            self.last = id;
            return self.request(id, ends_stream, head, listed, out);
        }
        match self.streams.get(id) {
            Some(stream) if stream.remote_ended => self.reset(id, ErrorCode::STREAM_CLOSED, out),
            Some(_) if !ends_stream || head.malformed_trailers().is_some() => {
                self.reset(id, ErrorCode::PROTOCOL_ERROR, out)
            }
            Some(_) => self.half_close(id, out),
            None if self.resets.has(id) => Ok(ServerEvent::Handled),
            None if self.streams.has_ended(id) => {
                Err(error(ErrorCode::STREAM_CLOSED, "HEADERS on a stream that has ended"))
            }
            None => Err(error(ErrorCode::PROTOCOL_ERROR, "the number of a stream is lower than the last")),
        }
    }

    /// Finds a block that was decoded before.
    #[inline]
    pub(super) fn find_block(&self, block: &[u8]) -> Option<PlainHead> {
        if self.decoder.needs_update() {
            return None;
        }
        self.blocks.find(block, self.decoder.generation()).copied()
    }

    /// Decodes a block, with the caches of the connection.
    pub(super) fn decode(&mut self, block: &[u8]) -> Decoded {
        let entries_max = self.limits.metadata_entries_max as usize;
        if let Some(plain) = self.find_block(block) {
            return Ok((plain.into_head(entries_max), Listed::Complete));
        }
        let generation = self.decoder.generation();
        let limits = ListLimits {
            bytes_max: self.limits.metadata_bytes_max as usize,
            fields_max: entries_max + OTHER_FIELDS_MAX,
        };
        let (table, mut head) = (&self.table, RequestHead::new(entries_max));
        let listed = self.decoder.decode_values(
            block,
            limits,
            |field| DecodedField::of_http2(field.name, field.value, table),
            |field| head.add(field),
        )?;
        let has_update = block.first().is_some_and(|first| first & 0xe0 == 0x20);
        if listed == Listed::Complete
            && !has_update
            && self.decoder.generation() == generation
            && let Some(plain) = head.plain()
        {
            self.blocks.add(block, generation, plain);
        }
        Ok((head, listed))
    }

    /// Begins the request of a new stream.
    fn request(
        &mut self,
        id: u32,
        ends_stream: bool,
        head: RequestHead,
        listed: Listed,
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        if self.phase >= Phase::Refusing || self.streams.len() >= self.streams_max() as usize {
            put_reset(id, ErrorCode::REFUSED_STREAM, out.tail());
            self.resets.add(id);
            // Calls that crossed a GOAWAY are no fault of the peer.
            if self.phase < Phase::Refusing {
                self.charge()?;
            }
            return Ok(ServerEvent::Handled);
        }
        if listed == Listed::OverLimit {
            let text = format!(
                "request metadata is over the limit of {} bytes (metadata_bytes_max)",
                self.limits.metadata_bytes_max
            );
            self.insert(id, MethodId(0), Form::Plain, Encoding::Identity, ends_stream);
            return Ok(ServerEvent::Refused { id, status: Status::resource_exhausted(text) });
        }
        if head.malformed().is_some() || (ends_stream && head.content_length.is_some_and(|len| len > 0)) {
            return self.reset(id, ErrorCode::PROTOCOL_ERROR, out);
        }
        let length = head.content_length;
        match open(head, &self.table, self.encodings) {
            Opening::Call(head, form) => Ok(self.call(id, ends_stream, head, form, length)),
            Opening::Refused(status, form) => {
                self.insert(id, MethodId(0), form, Encoding::Identity, ends_stream);
                Ok(ServerEvent::Refused { id, status })
            }
            Opening::NoCall(status, reason) => {
                self.insert(id, MethodId(0), Form::Plain, Encoding::Identity, ends_stream);
                let (body, no_call) = (Body::new(None, Encoding::Identity), Some((status, reason)));
                self.hold(id, Body { length, no_call, ..body });
                if ends_stream {
                    self.refuse_request(id, out);
                }
                Ok(ServerEvent::Handled)
            }
        }
    }

    fn call(
        &mut self,
        id: u32,
        ends_stream: bool,
        head: Head,
        form: Form,
        length: Option<u64>,
    ) -> ServerEvent {
        let kind = self.table.info(head.method).kind;
        self.insert(id, head.method, form, head.replies, ends_stream);
        let Some(stream) = self.streams.get_mut(id) else { return ServerEvent::Handled };
        let (encoding, compressed, more) = (head.encoding, false, !ends_stream);
        let is_whole = matches!(kind, Kind::Unary | Kind::ServerStream);
        if ends_stream || !is_whole {
            stream.opened = true;
        }
        if ends_stream {
            // A stream without messages, or a call that lacks its message.
            return ServerEvent::Open { id, head, first: None, compressed, more };
        }
        if is_whole {
            self.hold(id, Body { length, ..Body::new(Some(head), encoding) });
            return ServerEvent::Handled;
        }
        self.hold(id, Body { length, ..Body::new(None, encoding) });
        ServerEvent::Open { id, head, first: None, compressed, more }
    }

    /// Stores a request whose body is to be received.
    pub(super) fn hold(&mut self, id: u32, body: Body) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.held += body.memory_bytes();
            stream.body = Some(Box::new(body));
        }
    }

    pub(super) fn insert(
        &mut self,
        id: u32,
        method: MethodId,
        form: Form,
        replies: Encoding,
        remote_ended: bool,
    ) {
        let stream = Stream {
            method,
            form,
            replies,
            remote_ended,
            opened: false,
            head_sent: false,
            began: self.now,
            send: SendWindow::new(self.sending.peer.window_bytes),
            window: ReceiveWindow::new(STREAM_WINDOW),
            unread: 0,
            body: None,
            waiting: None,
            plain: None,
            is_queued: false,
        };
        self.streams.insert(id, stream);
    }
}
