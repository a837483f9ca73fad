//! Messages of responses: found in DATA as it arrives, and collected if they are in several pieces.

use super::{
    super::frame::{self, ErrorCode},
    Client, grpc,
    send::PREFIX_BYTES,
    stream::{Body, call_of},
};
use crate::{Code, Input, Origin, Outbox, Status, wire::ClientEvent};
use bytes::{Bytes, BytesMut};

/// Bytes of a message that arrive before memory for all of it is reserved.
const RESERVED_AFTER: usize = 32 << 10;

impl Client {
    /// Takes a piece of DATA, at most `left` bytes, from the input: up to the end of one message. Returns the number of
    /// bytes taken.
    pub(super) fn take_content(
        &mut self,
        stream: u32,
        left: usize,
        input: &mut Input,
        out: &mut Outbox,
    ) -> usize {
        let available = left.min(input.len());
        let max = self.limits.message_bytes_max as usize;
        let Some(state) = self.streams.get_mut(stream) else {
            // The call has ended here.
            input.skip(available);
            return available;
        };
        if !state.has_head {
            let status = grpc::protocol_error(format!("{} sent a message before the head", self.peer));
            self.fail(stream, status, ErrorCode::PROTOCOL_ERROR, out);
            return 0;
        }
        let is_encoded = state.body.as_ref().is_some_and(|body| body.is_encoded);
        let is_inside = state.body.as_ref().is_some_and(|body| body.is_inside_message());
        if !is_inside && let Some(prefix) = input.rest()[..available].first_chunk::<PREFIX_BYTES>().copied() {
            let (compressed, len) = match envelope(prefix, is_encoded, max) {
                Ok(envelope) => envelope,
                Err(status) => {
                    self.fail(stream, status, ErrorCode::CANCEL, out);
                    return 0;
                }
            };
            input.skip(PREFIX_BYTES);
            if available >= PREFIX_BYTES + len {
                let message = input.take(len);
                self.deliver(stream, message, compressed, out);
                return PREFIX_BYTES + len;
            }
            let body = state.body_mut();
            (body.prefix, body.prefix_len, body.message_len) = (prefix, PREFIX_BYTES as u8, len);
            self.let_in(stream, left - PREFIX_BYTES, out);
            return PREFIX_BYTES;
        }
        if available == 0 {
            return 0;
        }
        let body = state.body_mut();
        body.early_end = None;
        let at = usize::from(body.prefix_len);
        if at < PREFIX_BYTES {
            let count = available.min(PREFIX_BYTES - at);
            body.prefix[at..at + count].copy_from_slice(&input.rest()[..count]);
            input.skip(count);
            body.prefix_len += count as u8;
            if at + count == PREFIX_BYTES {
                self.end_prefix(stream, left - count, out);
            }
            return count;
        }
        let count = available.min(body.message_len - body.message.len());
        collect(body, &input.rest()[..count]);
        input.skip(count);
        if body.message.len() == body.message_len {
            self.end_message(stream, out);
        }
        count
    }

    /// Handles a flag and a length that arrived in pieces.
    fn end_prefix(&mut self, stream: u32, in_frame: usize, out: &mut Outbox) {
        let max = self.limits.message_bytes_max as usize;
        let Some(state) = self.streams.get_mut(stream) else { return };
        let body = state.body_mut();
        match envelope(body.prefix, body.is_encoded, max) {
            Err(status) => self.fail(stream, status, ErrorCode::CANCEL, out),
            Ok((_, 0)) => self.end_message(stream, out),
            Ok((_, len)) => {
                body.message_len = len;
                self.let_in(stream, in_frame, out);
            }
        }
    }

    /// Passes on a message that arrived in pieces.
    fn end_message(&mut self, stream: u32, out: &mut Outbox) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        let body = state.body_mut();
        let (message, compressed) = (std::mem::take(&mut body.message).freeze(), body.prefix[0] == 1);
        (body.prefix_len, body.message_len) = (0, 0);
        self.deliver(stream, message, compressed, out);
    }

    /// Passes a message on: the one of a unary call waits for the end of the call.
    fn deliver(&mut self, stream: u32, item: Bytes, compressed: bool, out: &mut Outbox) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        if state.is_unary {
            if let Some(body) = &mut state.body {
                body.early_end = None;
            }
            if state.held.is_some() {
                let text = "the server sent more than one reply to a unary call";
                let status = grpc::from_path(Code::Unimplemented, text);
                return self.fail(stream, status, ErrorCode::CANCEL, out);
            }
            state.held = Some((item, compressed));
            return;
        }
        // As the queue of the reader counts it: an empty message counts too.
        let weight = item.len().max(1) as u32;
        let body = state.body_mut();
        body.early_end = None;
        body.delivered = body.delivered.saturating_add(weight);
        state.receive_window.release((PREFIX_BYTES + item.len()) as u32 - weight);
        if let Some(increment) = state.receive_window.update() {
            frame::put_window_update(stream, increment, out.tail());
        }
        self.events.push_back(ClientEvent::Item { id: call_of(stream), item, compressed });
    }

    /// Lets the server send the rest of a message that is larger than the window, if its reader has nothing left to
    /// take that would open the window. The window has counted the `in_frame` bytes that the current frame still has.
    pub(super) fn let_in(&mut self, stream: u32, in_frame: usize, out: &mut Outbox) {
        let quarter = self.window_bytes() / 4;
        let Some(state) = self.streams.get_mut(stream) else { return };
        let Some(body) = state.body.as_deref() else { return };
        // A reader returns credit by quarters of the window.
        if !body.is_inside_message() || body.delivered >= quarter.max(1) {
            return;
        }
        let missing = body.message_len.saturating_sub(body.message.len() + in_frame);
        let increment = state.receive_window.let_in(missing as u32);
        if increment > 0 {
            frame::put_window_update(stream, increment, out.tail());
        }
    }

    /// Ends a call whose response cannot be read, and resets its stream.
    pub(super) fn fail(&mut self, stream: u32, status: Status, code: ErrorCode, out: &mut Outbox) {
        if self.close(stream).is_some() {
            frame::put_reset(stream, code, out.tail());
            self.events.push_back(ClientEvent::End { id: call_of(stream), end: Err(status) });
        }
    }
}

/// Reads the flag and the length of a message of at most `max` bytes; `is_encoded` if the head names an encoding.
fn envelope(prefix: [u8; PREFIX_BYTES], is_encoded: bool, max: usize) -> Result<(bool, usize), Status> {
    let [flags, length @ ..] = prefix;
    let len = u32::from_be_bytes(length) as usize;
    if flags > 1 {
        let text = format!("the server sent a message with unknown flags {flags:#04x}");
        return Err(grpc::protocol_error(text));
    }
    if flags == 1 && !is_encoded {
        let text = "the server sent a compressed message without the name of the compression";
        return Err(grpc::protocol_error(text));
    }
    if len > max {
        let text = format!(
            "a reply of {len} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
        );
        return Err(Status::resource_exhausted(text).with_origin(Origin::Local));
    }
    Ok((flags == 1, len))
}

/// Appends a piece of a message. Memory for all of it is reserved only once some of it has arrived.
fn collect(body: &mut Body, piece: &[u8]) {
    let Body { message, message_len, .. } = body;
    let len = message.len() + piece.len();
    if message.capacity() < len {
        let wanted = if len >= RESERVED_AFTER { *message_len } else { (*message_len).min(RESERVED_AFTER) };
        let mut moved = BytesMut::with_capacity(wanted.max(len));
        moved.extend_from_slice(message);
        *message = moved;
    }
    message.extend_from_slice(piece);
}
