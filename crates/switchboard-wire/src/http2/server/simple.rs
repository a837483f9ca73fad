//! Unary calls in their simplest form, which come in runs: their frames are read without an event for each.

use super::{Body, FRAME_BYTES_MAX, Phase, STREAM_WINDOW, Server, frames::Reading};
use crate::{
    Input, Kind,
    http::{
        dialect::{
            grpc::{ENVELOPE_BYTES, parse_envelope, reply_encoding},
            open::{Opening, open},
        },
        head::PlainHead,
    },
    http2::{
        frame::{FrameHead, HEAD_BYTES, flag, kind},
        hpack::Listed,
    },
    wire::Opened,
};
use std::time::Duration;

/// Longest block of such a call, in bytes.
const BLOCK_BYTES_MAX: u32 = 4 << 10;

impl Server {
    /// Reads heads of unary calls until one of them has its message: the only one, uncompressed, and completely
    /// received. Heads and messages of several calls may alternate in any order. Everything else is left to `recv`.
    #[inline]
    pub(super) fn next_unary(&mut self, input: &mut Input) -> Option<Opened> {
        let is_ready = matches!(self.reading, Reading::Frame)
            && self.partial.is_none()
            && self.decoded.is_none()
            && self.resumed.is_empty()
            && self.canceled.is_empty()
            && self.phase < Phase::Refusing;
        if !is_ready {
            return None;
        }
        loop {
            let head = FrameHead::parse(input.rest())?;
            match head.kind {
                kind::HEADERS => self.next_head(head, input)?,
                kind::DATA => return self.next_message(head, input),
                _ => return None,
            }
        }
    }

    /// Takes the head of a call; `None` if it is left to `recv`.
    #[inline]
    fn next_head(&mut self, head: FrameHead, input: &mut Input) -> Option<()> {
        let FrameHead { len, flags, stream: id, .. } = head;
        let is_new = id & 1 == 1 && id > self.last && self.streams.len() < self.streams_max() as usize;
        if flags != flag::END_HEADERS || !is_new || len > BLOCK_BYTES_MAX {
            return None;
        }
        let end = HEAD_BYTES + len as usize;
        let block = input.rest().get(HEAD_BYTES..end)?;
        let plain = match self.find_block(block) {
            Some(plain) if self.is_simple(&plain) => plain,
            Some(_) => return None,
            None => self.decode_simple(block)?,
        };
        input.skip(end);
        self.last = id;
        self.pings.busy = true;
        let replies = reply_encoding(plain.accepted, self.encodings);
        self.insert(id, plain.method, plain.form, replies, false);
        self.streams.get_mut(id)?.plain = Some(plain);
        Some(())
    }

    /// Returns true for a unary call in an encoding that is accepted.
    #[inline]
    fn is_simple(&self, plain: &PlainHead) -> bool {
        self.encodings.has(plain.encoding) && self.table.info(plain.method).kind == Kind::Unary
    }

    /// Decodes the block of a call; a block of any other request is left to `recv`, decoded.
    fn decode_simple(&mut self, block: &[u8]) -> Option<PlainHead> {
        let decoded = self.decode(block);
        if let Ok((head, Listed::Complete)) = &decoded
            && let Some(plain) = head.plain().filter(|plain| self.is_simple(plain))
        {
            return Some(plain);
        }
        self.decoded = Some(decoded);
        None
    }

    /// Takes the message of a call up to its first byte: in one DATA frame that ends the stream, or that an empty one
    /// follows.
    #[inline]
    fn next_message(&mut self, head: FrameHead, input: &mut Input) -> Option<Opened> {
        let FrameHead { len, flags, stream: id, .. } = head;
        let ends_stream = flags == flag::END_STREAM;
        if len > FRAME_BYTES_MAX.min(STREAM_WINDOW)
            || len > self.window.left()
            || !(ends_stream || flags == 0)
        {
            return None;
        }
        let stream = self.streams.get_mut(id)?;
        let plain = stream.plain?;
        let rest = &input.rest()[HEAD_BYTES..];
        let payload = rest.get(..len as usize)?;
        let (compressed, message_len) = parse_envelope(*payload.first_chunk()?).ok()?;
        let max = self.table.message_bytes_max(plain.method, self.limits.message_bytes_max).min(self.room);
        let is_whole = !compressed
            && message_len as usize + ENVELOPE_BYTES == payload.len()
            && message_len <= max
            && (ends_stream || is_end(&rest[payload.len()..], id));
        let timeout = stream.left(plain.timeout, self.now);
        // A call that has arrived late is left to `recv`.
        if !is_whole || (timeout != plain.timeout && timeout == Some(Duration::ZERO)) {
            return None;
        }
        (stream.plain, stream.remote_ended, stream.opened) = (None, true, true);
        let replies = stream.replies;
        input.skip(HEAD_BYTES + ENVELOPE_BYTES);
        if !ends_stream {
            self.reading = Reading::Skip(HEAD_BYTES as u32);
        }
        // It is within the window, as was checked.
        let _ = self.window.receive(len);
        self.window.release(len);
        self.budget.received(len);
        self.pings.busy = true;
        let (method, codec) = (plain.method, plain.form.codec());
        Some(Opened { id, method, codec, replies, timeout, len: message_len as usize })
    }

    /// Prepares a call whose head was taken here for a body in another form.
    #[cold]
    pub(super) fn unfold(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let Some(plain) = stream.plain.take() else { return };
        let head = plain.into_head(self.limits.metadata_entries_max as usize);
        // It is a call, as was checked.
        if let Opening::Call(head, _) = open(head, &self.table, self.encodings) {
            self.hold(id, Body::new(Some(head), plain.encoding));
        }
    }
}

/// Returns true if the next frame is an empty DATA frame that ends the stream.
fn is_end(rest: &[u8], id: u32) -> bool {
    FrameHead::parse(rest).is_some_and(|head| {
        head == FrameHead { len: 0, kind: kind::DATA, flags: flag::END_STREAM, stream: id }
    })
}
