//! Frames that a client receives.

use super::{
    super::{
        frame::{self, ConnectionError, ErrorCode, FrameHead, HEAD_BYTES, flag, kind},
        hpack::HpackError,
    },
    Client, FRAME_BYTES_MAX, grpc,
    stream::call_of,
};
use crate::{
    Input, Outbox,
    wire::{ClientCallId, ClientEvent},
};

/// Number of CONTINUATION frames of one header block.
const CONTINUATIONS_MAX: u32 = 16;
/// Longest payload of SETTINGS, in bytes.
const SETTINGS_BYTES_MAX: u32 = 6 * 128;
/// Bytes of unwritten output from which frames that require a response are counted.
const ANSWERS_BYTES: usize = 512 << 10;
/// Number of such frames after which the server does not read what it causes.
const ANSWERS_MAX: u32 = 1000;

/// Input of which a part has been read.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    /// The DATA frame whose content arrives.
    data: Option<Data>,
    /// Bytes of a frame that is ignored.
    ignored: usize,
    /// Bytes of trailers that were read with the reply before them.
    read_ahead: usize,
    /// The header block that is continued.
    block: Option<HeaderBlock>,
    /// Number of responses that were written while the server did not read.
    answers: u32,
    /// True once the first frame has arrived.
    has_begun: bool,
}

impl Receiving {
    /// Returns true if the next bytes of the input do not begin a frame of any kind.
    fn is_inside_frame(&self) -> bool {
        self.data.is_some() || self.ignored > 0 || self.block.is_some()
    }

    /// Skips this many bytes of the current frame as they arrive.
    pub(super) fn ignore(&mut self, bytes: usize) {
        self.ignored = bytes;
    }

    /// Bytes of content that the current DATA frame of the stream still has.
    pub(super) fn content_left(&self, stream: u32) -> usize {
        self.data.filter(|data| data.stream == stream).map_or(0, |data| data.left)
    }
}

/// A DATA frame whose head was read.
#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    /// Bytes of content that have not been taken.
    left: usize,
    padding: usize,
    ends: bool,
}

/// A header block without its end.
#[derive(Debug)]
struct HeaderBlock {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

pub(super) fn error<T>(code: ErrorCode, reason: &'static str) -> Result<T, ConnectionError> {
    Err(ConnectionError { code, reason })
}

impl Client {
    /// Longest header block, in bytes as they are sent.
    fn block_bytes_max(&self) -> usize {
        4 * (self.limits.metadata_bytes_max as usize).max(4096)
    }

    /// Reads a plain reply to a unary call if it is next and complete: head, one message in one DATA frame, trailers,
    /// both of them blocks that came before.
    #[inline]
    pub(super) fn next_plain_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        self.skip_read_ahead(input);
        if self.receiving.is_inside_frame() || !self.events.is_empty() {
            return None;
        }
        let bytes = input.rest();
        let head = FrameHead::parse(bytes)?;
        let head_end = HEAD_BYTES + head.len as usize;
        if (head.kind, head.flags) != (kind::HEADERS, flag::END_HEADERS) {
            return None;
        }
        let data = FrameHead::parse(bytes.get(head_end..)?)?;
        let message_at = head_end + HEAD_BYTES + 5;
        let data_end = head_end + HEAD_BYTES + data.len as usize;
        if (data.kind, data.flags, data.stream) != (kind::DATA, 0, head.stream) || data_end < message_at {
            return None;
        }
        let end = FrameHead::parse(bytes.get(data_end..)?)?;
        let end_at = data_end + HEAD_BYTES;
        let end_block = bytes.get(end_at..end_at + end.len as usize)?;
        let flags = flag::END_HEADERS | flag::END_STREAM;
        if (end.kind, end.flags, end.stream) != (kind::HEADERS, flags, head.stream) {
            return None;
        }
        let len = data_end - message_at;
        let [0, a, b, c, d] = *bytes[message_at - 5..].first_chunk::<5>()? else { return None };
        let is_one_message = u32::from_be_bytes([a, b, c, d]) as usize == len
            && len <= self.limits.message_bytes_max as usize
            && data.len <= FRAME_BYTES_MAX;
        let generation = self.decoder.generation();
        let codec = self.known_heads.find(&bytes[HEAD_BYTES..head_end], generation)?;
        self.known_ends.find(end_block, generation)?;
        let state = self.streams.get(head.stream)?;
        let is_plain = state.is_unary
            && !state.has_head
            && state.has_ended
            && state.body.is_none()
            && state.held.is_none();
        if !is_one_message
            || !is_plain
            || state.codec != codec
            || state.receive_window.left() < data.len
            || !self.receive_window.receive(data.len)
        {
            return None;
        }
        self.receive_window.release(data.len);
        self.streams.remove(head.stream);
        input.skip(message_at);
        self.receiving.read_ahead = HEAD_BYTES + end.len as usize;
        Some((call_of(head.stream), len))
    }

    #[inline]
    fn skip_read_ahead(&mut self, input: &mut Input) {
        let read_ahead = std::mem::take(&mut self.receiving.read_ahead);
        if read_ahead > 0 {
            input.skip(read_ahead);
        }
    }

    /// Reads the next frame, or the next piece of a frame that is read in pieces; false if more bytes are needed.
    pub(super) fn step(&mut self, input: &mut Input, out: &mut Outbox) -> Result<bool, ConnectionError> {
        self.skip_read_ahead(input);
        if let Some(data) = self.receiving.data {
            return Ok(self.continue_data(data, input, out));
        }
        if self.receiving.ignored > 0 {
            let count = self.receiving.ignored.min(input.len());
            input.skip(count);
            self.receiving.ignored -= count;
            return Ok(count > 0);
        }
        let Some(head) = FrameHead::parse(input.rest()) else { return Ok(false) };
        head.check(FRAME_BYTES_MAX)?;
        if !self.receiving.has_begun && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return error(ErrorCode::PROTOCOL_ERROR, "the connection does not begin with SETTINGS");
        }
        self.receiving.has_begun = true;
        self.check_order(head)?;
        match head.kind {
            kind::DATA => self.begin_data(head, input, out),
            kind::GOAWAY => Ok(self.go_away(head, input)),
            kind::HEADERS
            | kind::CONTINUATION
            | kind::RST_STREAM
            | kind::SETTINGS
            | kind::PING
            | kind::WINDOW_UPDATE => self.whole_frame(head, input, out),
            kind::PUSH_PROMISE => error(ErrorCode::PROTOCOL_ERROR, "the server pushes, which is disabled"),
            // Priorities and extensions.
            _ => {
                input.skip(HEAD_BYTES);
                self.receiving.ignored = head.len as usize;
                Ok(true)
            }
        }
    }

    /// Checks that nothing interrupts a header block, and that the stream of a frame is one that this side has opened.
    fn check_order(&self, head: FrameHead) -> Result<(), ConnectionError> {
        let continued = self.receiving.block.as_ref().map(|block| block.stream);
        if continued != (head.kind == kind::CONTINUATION).then_some(head.stream) {
            return error(ErrorCode::PROTOCOL_ERROR, "a header block is not continued by the next frame");
        }
        if head.kind == kind::PRIORITY || head.kind > kind::CONTINUATION || head.stream == 0 {
            return Ok(());
        }
        if head.stream.is_multiple_of(2) || head.stream >= self.next_stream {
            return error(ErrorCode::PROTOCOL_ERROR, "a frame names a stream that was not opened");
        }
        Ok(())
    }

    /// Handles a frame whose payload is short; it is left in the input until it is complete.
    fn whole_frame(
        &mut self,
        head: FrameHead,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<bool, ConnectionError> {
        let len = head.len as usize;
        let is_block = matches!(head.kind, kind::HEADERS | kind::CONTINUATION);
        // Padding and priority of a HEADERS frame.
        if is_block && len > self.block_bytes_max() + 262 {
            return error(ErrorCode::ENHANCE_YOUR_CALM, "a header block is over four times its limit");
        }
        if head.kind == kind::SETTINGS && head.len > SETTINGS_BYTES_MAX {
            return error(ErrorCode::ENHANCE_YOUR_CALM, "a SETTINGS frame has more than 128 settings");
        }
        let Some(payload) = input.rest().get(HEAD_BYTES..HEAD_BYTES + len) else { return Ok(false) };
        match head.kind {
            kind::HEADERS => {
                let content = frame::without_padding(head, payload)?;
                let block = frame::without_priority(head, content)?;
                self.begin_block(head, block, out)?;
            }
            kind::CONTINUATION => self.continue_block(head, payload, out)?,
            kind::RST_STREAM => self.reset(head.stream, payload),
            kind::SETTINGS if head.has(flag::ACK) => {}
            kind::SETTINGS => self.apply_settings(payload, out)?,
            kind::PING if head.has(flag::ACK) => self.events.push_back(ClientEvent::Pong),
            kind::PING => {
                self.count_answer(out)?;
                if let Some(content) = payload.first_chunk::<8>() {
                    frame::put_ping(*content, true, out.tail());
                }
            }
            _ => self.update_window(head.stream, payload, out)?,
        }
        input.skip(HEAD_BYTES + len);
        Ok(true)
    }

    /// Counts a response to a frame. A server might send frames that require responses and not read them.
    pub(super) fn count_answer(&mut self, out: &Outbox) -> Result<(), ConnectionError> {
        self.receiving.answers = if out.len() < ANSWERS_BYTES { 0 } else { self.receiving.answers + 1 };
        if self.receiving.answers > ANSWERS_MAX {
            return error(
                ErrorCode::ENHANCE_YOUR_CALM,
                "the server does not read the responses to its frames",
            );
        }
        Ok(())
    }

    fn begin_data(
        &mut self,
        head: FrameHead,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<bool, ConnectionError> {
        let is_padded = head.has(flag::PADDED);
        let (len, padding) = match input.rest().get(HEAD_BYTES) {
            Some(padding) if is_padded && head.len > 0 => {
                let padding = usize::from(*padding);
                match (head.len as usize - 1).checked_sub(padding) {
                    Some(len) => (len, padding),
                    None => return error(ErrorCode::PROTOCOL_ERROR, "the padding is longer than its frame"),
                }
            }
            _ if is_padded && head.len == 0 => {
                return error(ErrorCode::FRAME_SIZE_ERROR, "a padded frame is empty");
            }
            None if is_padded => return Ok(false),
            _ => (head.len as usize, 0),
        };
        input.skip(HEAD_BYTES + usize::from(is_padded));
        if !self.receive_window.receive(head.len) {
            return error(ErrorCode::FLOW_CONTROL_ERROR, "DATA exceeds the window of the connection");
        }
        // The memory of received bytes is bounded by the windows of the streams.
        self.receive_window.release(head.len);
        self.receiving.data =
            Some(Data { stream: head.stream, left: len, padding, ends: head.has(flag::END_STREAM) });
        if let Some(state) = self.streams.get_mut(head.stream) {
            if !state.receive_window.receive(head.len) {
                let text = format!("{} sent more than the window of the stream", self.peer);
                let status = grpc::protocol_error(text);
                self.fail(head.stream, status, ErrorCode::FLOW_CONTROL_ERROR, out);
            } else if is_padded {
                state.receive_window.release(padding as u32 + 1);
            }
        }
        Ok(true)
    }

    /// Takes the next piece of a DATA frame; false if more bytes are needed.
    fn continue_data(&mut self, data: Data, input: &mut Input, out: &mut Outbox) -> bool {
        let Data { stream, mut left, mut padding, ends } = data;
        let mut has_progress = false;
        if left > 0 {
            let was_open = self.streams.get(stream).is_some();
            let taken = self.take_content(stream, left, input, out);
            left -= taken;
            // A call that has failed takes nothing, and its content is skipped next.
            has_progress = taken > 0 || was_open && self.streams.get(stream).is_none();
        } else if padding > 0 {
            let count = padding.min(input.len());
            input.skip(count);
            padding -= count;
            has_progress = count > 0;
        }
        let is_over = left == 0 && padding == 0;
        self.receiving.data = (!is_over).then_some(Data { stream, left, padding, ends });
        if is_over && ends {
            self.end_without_trailers(stream, out);
        }
        has_progress || is_over
    }

    fn begin_block(
        &mut self,
        head: FrameHead,
        block: &[u8],
        out: &mut Outbox,
    ) -> Result<(), ConnectionError> {
        let ends_stream = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.header_block(head.stream, ends_stream, block, out);
        }
        let (stream, bytes) = (head.stream, block.to_vec());
        self.receiving.block = Some(HeaderBlock { stream, ends_stream, bytes, continuations: 0 });
        Ok(())
    }

    fn continue_block(
        &mut self,
        head: FrameHead,
        piece: &[u8],
        out: &mut Outbox,
    ) -> Result<(), ConnectionError> {
        let max = self.block_bytes_max();
        let Some(mut block) = self.receiving.block.take() else { return Ok(()) };
        block.bytes.extend_from_slice(piece);
        block.continuations += 1;
        if block.bytes.len() > max || block.continuations > CONTINUATIONS_MAX {
            return error(ErrorCode::ENHANCE_YOUR_CALM, "a header block is over four times its limit");
        }
        if head.has(flag::END_HEADERS) {
            return self.header_block(block.stream, block.ends_stream, &block.bytes, out);
        }
        self.receiving.block = Some(block);
        Ok(())
    }

    /// Returns the error of a header block that cannot be decoded.
    pub(super) fn compression_error(error: HpackError) -> ConnectionError {
        let reason = match error {
            HpackError::ListTooLarge => "a header block is over four times its limit",
            _ => "a header block cannot be decoded",
        };
        ConnectionError { code: ErrorCode::COMPRESSION_ERROR, reason }
    }
}
