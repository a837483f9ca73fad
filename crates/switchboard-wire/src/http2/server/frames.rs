//! Frames of a client, and those that concern the connection.

use super::{DRAIN_PING, FRAME_BYTES_MAX, Phase, Server, bodies::DataFrame};
use crate::{
    Input, Outbox,
    http2::frame::{
        ConnectionError, ErrorCode, FrameHead, HEAD_BYTES, PREFACE, WINDOW_MAX, flag, kind, put_ping,
    },
    wire::ServerEvent,
};

/// Most entries of a SETTINGS frame; far more than there are settings.
const SETTINGS_MAX: u32 = 64;
/// Smallest increment of a window that costs no token of the abuse budget.
const INCREMENT_MIN: u32 = 1 << 10;

/// Age of a stream below which its reset costs a token of the abuse budget, in milliseconds.
const YOUNG_MS: u64 = 100;

/// Position in the bytes of the peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    Preface,
    /// The first frame, which has the settings.
    First,
    Frame,
    Data(DataFrame),
    /// Rest of a frame that is ignored.
    Skip(u32),
}

pub(super) fn error(code: ErrorCode, reason: &'static str) -> ConnectionError {
    ConnectionError::new(code, reason)
}

impl Server {
    /// Processes the next bytes; `None` if more are needed.
    pub(super) fn step(
        &mut self,
        input: &mut Input,
        out: &mut Outbox,
    ) -> Result<Option<ServerEvent>, ConnectionError> {
        match self.reading {
            Reading::Preface => {
                let start = &input.rest()[..input.len().min(PREFACE.len())];
                if !PREFACE.starts_with(start) {
                    return Err(error(ErrorCode::PROTOCOL_ERROR, "the preface of HTTP/2 is invalid"));
                }
                if start.len() < PREFACE.len() {
                    return Ok(None);
                }
                input.skip(PREFACE.len());
                self.reading = Reading::First;
                Ok(Some(ServerEvent::Handled))
            }
            Reading::First | Reading::Frame => self.frame(input, out),
            Reading::Data(frame) => self.data(frame, input, out),
            Reading::Skip(left) => {
                let skipped = input.len().min(left as usize);
                input.skip(skipped);
                let left = left - skipped as u32;
                self.reading = if left == 0 { Reading::Frame } else { Reading::Skip(left) };
                Ok((left == 0).then_some(ServerEvent::Handled))
            }
        }
    }

    /// Processes a frame, or the head of one whose payload is passed on as it arrives.
    fn frame(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, ConnectionError> {
        let Some(head) = FrameHead::parse(input.rest()) else { return Ok(None) };
        if let Reading::First = self.reading {
            if head.kind != kind::SETTINGS || head.has(flag::ACK) {
                return Err(error(ErrorCode::PROTOCOL_ERROR, "the first frame is not SETTINGS"));
            }
            self.reading = Reading::Frame;
        }
        head.check(FRAME_BYTES_MAX)?;
        if let Some(partial) = &self.partial
            && (head.kind != kind::CONTINUATION || head.stream != partial.stream)
        {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "a header block is interrupted by another frame"));
        }
        match head.kind {
            kind::DATA => return self.begin_data(head, input, out),
            kind::HEADERS | kind::CONTINUATION => self.check_block(head)?,
            kind::PUSH_PROMISE => {
                return Err(error(ErrorCode::PROTOCOL_ERROR, "PUSH_PROMISE of a client"));
            }
            kind::SETTINGS if head.len > 6 * SETTINGS_MAX => {
                return Err(error(ErrorCode::ENHANCE_YOUR_CALM, "more than 64 settings in a frame"));
            }
            kind::SETTINGS | kind::PRIORITY | kind::RST_STREAM | kind::PING | kind::WINDOW_UPDATE => {}
            // A client that goes away sends no more calls; unknown frames are ignored.
            _ => {
                self.charge()?;
                input.skip(HEAD_BYTES);
                self.reading = Reading::Skip(head.len);
                return Ok(Some(ServerEvent::Handled));
            }
        }
        let end = HEAD_BYTES + head.len as usize;
        let Some(payload) = input.rest().get(HEAD_BYTES..end) else { return Ok(None) };
        let event = match head.kind {
            kind::HEADERS => self.headers(head, payload, out)?,
            kind::CONTINUATION => self.continuation(head, payload, out)?,
            _ => self.control(head, payload, out)?,
        };
        input.skip(end);
        Ok(Some(event))
    }

    fn control(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        match head.kind {
            kind::SETTINGS if head.has(flag::ACK) => Ok(ServerEvent::Handled),
            kind::SETTINGS => self.settings(payload, out),
            kind::PING => self.ping_received(head, payload, out),
            kind::RST_STREAM => self.reset_received(head.stream),
            kind::WINDOW_UPDATE => {
                let increment = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.window_update(head.stream, increment & WINDOW_MAX, out)
            }
            // Priorities are ignored, except for one that is malformed.
            _ => {
                self.charge()?;
                let dependency = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                if dependency & WINDOW_MAX != head.stream {
                    return Ok(ServerEvent::Handled);
                }
                match self.streams.get(head.stream) {
                    Some(_) => self.reset(head.stream, ErrorCode::PROTOCOL_ERROR, out),
                    None => Err(error(ErrorCode::PROTOCOL_ERROR, "a stream depends on itself")),
                }
            }
        }
    }

    fn settings(&mut self, payload: &[u8], out: &mut Outbox) -> Result<ServerEvent, ConnectionError> {
        self.charge()?;
        let before = self.sending.peer;
        self.sending.peer.apply(payload)?;
        let now = self.sending.peer;
        if now.header_table_bytes != before.header_table_bytes {
            self.sending.encoder.limit(now.header_table_bytes as usize);
        }
        let difference = i64::from(now.window_bytes) - i64::from(before.window_bytes);
        if difference != 0 {
            for (_, stream) in self.streams.iter_mut() {
                stream.send.shift(difference).map_err(|_| {
                    error(ErrorCode::FLOW_CONTROL_ERROR, "a setting makes a window larger than 2^31 - 1")
                })?;
            }
        }
        let ack = FrameHead { len: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 };
        out.tail().extend_from_slice(&ack.to_bytes());
        if difference > 0 {
            self.send_waiting(out);
        }
        Ok(ServerEvent::Handled)
    }

    fn ping_received(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        let content = *payload.first_chunk().unwrap_or(&[0; 8]);
        if head.has(flag::ACK) {
            if content == DRAIN_PING && self.phase == Phase::Draining {
                self.end_drain(out);
            }
            return Ok(ServerEvent::Pong);
        }
        self.charge()?;
        if !self.pings.received(self.now) {
            return Err(error(ErrorCode::ENHANCE_YOUR_CALM, "too_many_pings"));
        }
        put_ping(content, true, out.tail());
        Ok(ServerEvent::Handled)
    }

    fn reset_received(&mut self, id: u32) -> Result<ServerEvent, ConnectionError> {
        if self.is_idle(id) {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "RST_STREAM of a stream that was never open"));
        }
        self.pings.busy = true;
        // A reset of a stream that has ended may have crossed its end. One of a stream that was open for a while is
        // that of a caller whose time is over: 1000 streams at a time bound those.
        let is_futile = match self.streams.get(id) {
            Some(stream) => self.now.saturating_sub(stream.began) < YOUNG_MS,
            None => !self.resets.has(id),
        };
        let event = self.remove(id);
        if is_futile {
            self.charge()?;
        }
        Ok(event)
    }

    /// Returns true for a stream that the peer has not opened.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    fn window_update(
        &mut self,
        id: u32,
        increment: u32,
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        if increment < INCREMENT_MIN {
            self.charge()?;
        }
        if id == 0 {
            return self.connection_window_update(increment, out);
        }
        if self.is_idle(id) {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that was never open"));
        }
        let Some(stream) = self.streams.get_mut(id) else { return Ok(ServerEvent::Handled) };
        if increment == 0 {
            return self.reset(id, ErrorCode::PROTOCOL_ERROR, out);
        }
        if stream.send.grow(increment).is_err() {
            return self.reset(id, ErrorCode::FLOW_CONTROL_ERROR, out);
        }
        if stream.waiting.is_some() {
            self.send_waiting_of(id, out);
        }
        Ok(ServerEvent::Handled)
    }

    fn connection_window_update(
        &mut self,
        increment: u32,
        out: &mut Outbox,
    ) -> Result<ServerEvent, ConnectionError> {
        if increment == 0 {
            return Err(error(ErrorCode::PROTOCOL_ERROR, "a WINDOW_UPDATE has an increment of 0"));
        }
        let was_closed = self.sending.window.available() == 0;
        self.sending.window.grow(increment).map_err(|_| {
            error(ErrorCode::FLOW_CONTROL_ERROR, "the window of the connection is larger than 2^31 - 1")
        })?;
        if was_closed {
            self.send_waiting(out);
        }
        Ok(ServerEvent::Handled)
    }
}
