//! Bodies of requests: DATA as it arrives, its envelopes, and the messages in them.

use super::{
    Server, Stream,
    frames::{Reading, error},
};
use crate::{
    Encoding, Found, Input, Kind, Outbox, Retry, Status,
    http::dialect::grpc::{ENVELOPE_BYTES, parse_envelope},
    http2::frame::{ConnectionError, ErrorCode, FrameHead, HEAD_BYTES, flag, put_reset, put_window_update},
    wire::ServerEvent,
};
use bytes::Bytes;
use std::time::Duration;

/// Smallest DATA frame that costs no token of the abuse budget if it completes nothing, in bytes.
const PIECE_MIN: u32 = 64;
/// Most bytes that a peer is let to send beyond the window of its stream at a time.
const LET_IN_MAX: usize = 16 << 20;
/// Time after which the server may have memory for a rejected message.
const PAUSE: Duration = Duration::from_millis(250);

/// A DATA frame whose payload is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataFrame {
    stream: u32,
    /// Bytes that have not arrived, without padding.
    left: u32,
    padding: u32,
    ends_stream: bool,
    /// It is tiny and has completed nothing.
    is_futile: bool,
}

impl Server {
    /// Reads the head of a DATA frame and counts it for both windows.
    pub(super) fn begin_data(
        &mut self,
        head: FrameHead,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent>, ConnectionError> {
        let is_padded = head.has(flag::PADDED);
        let mut padding = 0;
        if is_padded && head.len > 0 {
            let Some(length) = input.rest().get(HEAD_BYTES) else { return Ok(None) };
            padding = u32::from(*length);
        }
        let id = head.stream;
        if self.is_idle(id) {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "DATA of a stream that was never open"));
        }
        let Some(left) = head.len.checked_sub(padding + u32::from(is_padded)) else {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "the padding is longer than its frame"));
        };
        if !self.window.receive(head.len) {
            let reason = "DATA is larger than the window of the connection";
            return Err(error(ErrorCode::FLOW_CONTROL_ERROR, reason));
        }
        self.pings.busy = true;
        self.budget.received(left);
        input.skip(HEAD_BYTES + usize::from(is_padded));
        self.window.release(u32::from(is_padded));
        let ends_stream = head.has(flag::END_STREAM);
        let is_futile = left < PIECE_MIN && !ends_stream;
        self.reading = Reading::Data(DataFrame { stream: id, left, padding, ends_stream, is_futile });
        if self.streams.get(id).is_some_and(|stream| stream.plain.is_some()) {
            self.unfold(id);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            if !self.resets.has(id) {
                put_reset(id, ErrorCode::STREAM_CLOSED, out.tail());
                self.resets.add(id);
                self.charge()?;
            }
            return Ok(Some(ServerEvent::Handled));
        };
        if stream.remote_ended {
            return self.reset(id, ErrorCode::STREAM_CLOSED, out).map(Some);
        }
        if !stream.window.receive(head.len) {
            return self.reset(id, ErrorCode::FLOW_CONTROL_ERROR, out).map(Some);
        }
        stream.window.release(padding + u32::from(is_padded));
        if let Some(body) = &mut stream.body {
            body.received += u64::from(left);
            if body.length.is_some_and(|length| body.received > length) {
                return self.reset(id, ErrorCode::PROTOCOL_ERROR, out).map(Some);
            }
        }
        Ok(Some(ServerEvent::Handled))
    }

    /// Reads payload of a DATA frame.
    pub(super) fn data(
        &mut self,
        mut frame: DataFrame,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent>, ConnectionError> {
        let event = loop {
            if frame.left == 0 {
                let skipped = input.len().min(frame.padding as usize);
                input.skip(skipped);
                self.window.release(skipped as u32);
                frame.padding -= skipped as u32;
                if frame.padding > 0 {
                    break None;
                }
                self.reading = Reading::Frame;
                if frame.is_futile {
                    self.charge()?;
                }
                return match frame.ends_stream && self.streams.get(frame.stream).is_some() {
                    true => self.half_close(frame.stream, out).map(Some),
                    false => Ok(Some(ServerEvent::Handled)),
                };
            }
            if input.is_empty() {
                break None;
            }
            if let Some(event) = self.piece(&mut frame, input, out) {
                break Some(event);
            }
        };
        self.reading = Reading::Data(frame);
        Ok(event)
    }

    /// Takes what the input has of an envelope or a message.
    fn piece(&mut self, frame: &mut DataFrame, input: &mut Input, out: &mut Outbox) -> Option<ServerEvent> {
        let id = frame.stream;
        let here = input.len().min(frame.left as usize);
        let stream = self.streams.get_mut(id);
        let Some(Stream { body: Some(body), window, .. }) = stream else {
            // The stream was reset, or its call was refused.
            return self.drop_piece(here, frame, input);
        };
        if body.no_call.is_some() {
            // Its response follows its end, so it gets credit.
            window.release(here as u32);
            if let Some(increment) = window.update() {
                put_window_update(id, increment, out.tail());
            }
            return self.drop_piece(here, frame, input);
        }
        let Some(missing) = body.assembly.missing() else {
            let taken = body.assembly.add_envelope(&input.rest()[..here]);
            input.skip(taken);
            frame.left -= taken as u32;
            self.window.release(taken as u32);
            let envelope = body.assembly.complete_envelope()?;
            return match self.begin_message(id, envelope) {
                Err(event) => Some(event),
                Ok(0) => {
                    frame.is_futile = false;
                    self.message(id, Some(Bytes::new()), out)
                }
                Ok(_) => None,
            };
        };
        let taken = here.min(missing);
        let is_whole = taken == missing && body.assembly.is_fresh();
        let whole = is_whole.then(|| input.take(taken));
        if whole.is_none() {
            let before = body.assembly.memory_bytes();
            body.assembly.collect(&input.rest()[..taken]);
            self.held += body.assembly.memory_bytes() - before;
            input.skip(taken);
        }
        frame.left -= taken as u32;
        self.window.release(taken as u32);
        if taken == missing {
            frame.is_futile = false;
            return self.message(id, whole, out);
        }
        // A message that is larger than the window would never be complete.
        let beyond = missing - taken;
        if window.left() == 0 && frame.left == 0 || (window.left() as usize) < beyond.min(LET_IN_MAX / 2) {
            let expected = (beyond - (frame.left as usize).min(beyond)).min(LET_IN_MAX);
            let increment = window.let_in(expected as u32);
            if increment > 0 {
                put_window_update(id, increment, out.tail());
            }
        }
        None
    }

    fn drop_piece(&mut self, len: usize, frame: &mut DataFrame, input: &mut Input) -> Option<ServerEvent> {
        input.skip(len);
        frame.left -= len as u32;
        self.window.release(len as u32);
        None
    }

    /// Checks a complete envelope and begins its message; returns the length of the message, or the event of the
    /// refusal.
    fn begin_message(&mut self, id: u32, envelope: [u8; ENVELOPE_BYTES]) -> Result<u32, ServerEvent> {
        let (general, room) = (self.limits.message_bytes_max, self.room);
        let stream = self.streams.get_mut(id).ok_or(ServerEvent::Handled)?;
        let (method, body) = (stream.method, stream.body.as_deref_mut().ok_or(ServerEvent::Handled)?);
        let refused = match parse_envelope(envelope) {
            Err(status) => status,
            Ok(_) if body.first.is_some() => {
                let name = self.table.full_name(method);
                Status::unimplemented(format!("{name} takes one request message, and more were sent"))
            }
            Ok((true, _)) if body.encoding == Encoding::Identity => {
                Status::internal("a message is compressed in a call that names no encoding")
            }
            Ok((_, len)) if len > self.table.message_bytes_max(method, general) => {
                self.table.too_large(method, len, general)
            }
            Ok((_, len)) if len > room => {
                let text =
                    format!("no memory for a message of {len} bytes now (memory_bytes_max of the receiver)");
                let retry = if body.head.is_some() { Retry::After(PAUSE) } else { Retry::IfIdempotent };
                Status::resource_exhausted(text).with_retry(retry)
            }
            Ok((compressed, len)) => {
                body.assembly.begin(compressed, len);
                return Ok(len);
            }
        };
        Err(self.refuse_body(id, refused))
    }

    /// Refuses the rest of a request: the call ends with this status. Callers without credentials get the status of
    /// the guards.
    fn refuse_body(&mut self, id: u32, status: Status) -> ServerEvent {
        let Some(stream) = self.streams.get_mut(id) else { return ServerEvent::Handled };
        let Some(body) = stream.body.take() else { return ServerEvent::Handled };
        self.held -= body.memory_bytes();
        let Some(mut head) = body.head else { return ServerEvent::Refused { id, status } };
        let found = Found { method: head.method, undeclared_name: head.undeclared_name.take() };
        match self.table.refuse_call(&found, Kind::Unary, status) {
            Err(status) => ServerEvent::Refused { id, status },
            Ok(Found { method, undeclared_name }) => {
                stream.opened = true;
                (head.method, head.undeclared_name) = (method, undeclared_name);
                head.encoding = Encoding::Identity;
                let first = Some(Bytes::new());
                ServerEvent::Open { id, head, first, compressed: false, more: false }
            }
        }
    }

    /// Passes a complete message on: `whole`, or the one that was collected. Returns an event for a stream.
    fn message(&mut self, id: u32, whole: Option<Bytes>, out: &mut Outbox) -> Option<ServerEvent> {
        let stream = self.streams.get_mut(id)?;
        let body = stream.body.as_deref_mut()?;
        self.held -= body.assembly.memory_bytes();
        let (item, compressed) = body.assembly.finish(whole)?;
        if body.head.is_some() {
            self.held += item.len();
            body.first = Some((item, compressed));
            return None;
        }
        // The driver counts an empty message as one byte.
        let weight = item.len().max(1);
        stream.unread = stream.unread.saturating_add(weight as u32);
        stream.window.release((ENVELOPE_BYTES + item.len() - weight) as u32);
        if !stream.remote_ended
            && let Some(increment) = stream.window.update()
        {
            put_window_update(id, increment, out.tail());
        }
        Some(ServerEvent::Item { id, item, compressed })
    }

    /// Ends the peer's side of a stream.
    pub(super) fn half_close(&mut self, id: u32, out: &mut Outbox) -> Result<ServerEvent, ConnectionError> {
        self.unfold(id);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ServerEvent::Handled) };
        stream.remote_ended = true;
        let Some(body) = &stream.body else { return Ok(ServerEvent::Handled) };
        if body.length.is_some_and(|length| body.received != length) {
            return self.reset(id, ErrorCode::PROTOCOL_ERROR, out);
        }
        if body.no_call.is_some() {
            self.refuse_request(id, out);
            return Ok(ServerEvent::Handled);
        }
        if !body.assembly.is_between_messages() {
            return Ok(self.refuse_body(id, Status::internal("the request ends inside a message")));
        }
        let Some(body) = stream.body.take() else { return Ok(ServerEvent::Handled) };
        self.held -= body.memory_bytes();
        let Some(mut head) = body.head else { return Ok(ServerEvent::HalfClose { id }) };
        head.timeout = stream.left(head.timeout, self.now);
        stream.opened = true;
        let (first, compressed) = match body.first {
            Some((message, compressed)) => (Some(message), compressed),
            None => (None, false),
        };
        Ok(ServerEvent::Open { id, head, first, compressed, more: false })
    }
}
