//! Frames that change a stream or the connection: resets, settings, windows, and the end.

use super::{
    super::frame::{ConnectionError, ErrorCode, FrameHead, HEAD_BYTES, WINDOW_MAX, flag, kind},
    Client, grpc,
    receive::error,
    stream::call_of,
};
use crate::{Input, Outbox, wire::ClientEvent};

/// Part of the text of a GOAWAY that is read, in bytes.
const REASON_BYTES_MAX: usize = 1024;

impl Client {
    pub(super) fn reset(&mut self, stream: u32, payload: &[u8]) {
        let code = ErrorCode(payload.first_chunk().map_or(0, |code| u32::from_be_bytes(*code)));
        if self.close(stream).is_some() {
            let end = Err(grpc::of_reset(code, &self.peer));
            self.events.push_back(ClientEvent::End { id: call_of(stream), end });
        }
    }

    pub(super) fn apply_settings(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), ConnectionError> {
        let before = self.settings.window_bytes;
        self.settings.apply(payload)?;
        self.has_settings = true;
        self.heads.limit_table(self.settings.header_table_bytes);
        self.count_answer(out)?;
        let ack = FrameHead { len: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 };
        out.tail().extend_from_slice(&ack.to_bytes());
        let difference = i64::from(self.settings.window_bytes) - i64::from(before);
        if difference != 0 {
            let mut opened = Vec::new();
            for (stream, state) in self.streams.iter_mut() {
                if state.send_window.shift(difference).is_err() {
                    return error(ErrorCode::FLOW_CONTROL_ERROR, "a setting makes a window too large");
                }
                if difference > 0 && state.body.as_ref().is_some_and(|body| body.pending.bytes() > 0) {
                    opened.push(stream);
                }
            }
            opened.sort_unstable();
            for stream in opened {
                self.flush(stream, out);
            }
        }
        self.events.push_back(ClientEvent::Settings { window_growth: 0 });
        self.start_waiting(out);
        Ok(())
    }

    pub(super) fn update_window(
        &mut self,
        stream: u32,
        payload: &[u8],
        out: &mut Outbox,
    ) -> Result<(), ConnectionError> {
        let increment = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes) & WINDOW_MAX);
        if stream == 0 {
            return match increment {
                0 => error(ErrorCode::PROTOCOL_ERROR, "a WINDOW_UPDATE of the connection is zero"),
                _ if self.grow_window(increment, out) => Ok(()),
                _ => error(ErrorCode::FLOW_CONTROL_ERROR, "the window of the connection is too large"),
            };
        }
        let Some(state) = self.streams.get_mut(stream) else { return Ok(()) };
        let code = match increment {
            0 => ErrorCode::PROTOCOL_ERROR,
            _ if state.send_window.grow(increment).is_ok() => {
                self.flush(stream, out);
                return Ok(());
            }
            _ => ErrorCode::FLOW_CONTROL_ERROR,
        };
        let text = format!("{} sent an invalid HTTP/2 response: a WINDOW_UPDATE of {increment}", self.peer);
        self.fail(stream, grpc::protocol_error(text), code, out);
        Ok(())
    }

    /// Handles GOAWAY, once the part of its text that is used has arrived: streams above its last one were not
    /// processed.
    pub(super) fn go_away(&mut self, head: FrameHead, input: &mut Input) -> bool {
        let len = (head.len as usize).min(8 + REASON_BYTES_MAX);
        let Some(payload) = input.rest().get(HEAD_BYTES..HEAD_BYTES + len) else { return false };
        let number = |at: usize| {
            payload.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        let (last, code) = (number(0) & WINDOW_MAX, ErrorCode(number(4)));
        let text = String::from_utf8_lossy(payload.get(8..).unwrap_or_default()).into_owned();
        // The text of gRFC A8: servers end connections with this code for other reasons too.
        self.refuses_pings |= code == ErrorCode::ENHANCE_YOUR_CALM && text.contains("too_many_pings");
        let reason = match code {
            ErrorCode::NO_ERROR => "the server is going away".to_owned(),
            code => format!("{} {text}", grpc::name_of(code)),
        };
        input.skip(HEAD_BYTES + len);
        self.receiving.ignore(head.len as usize - len);
        self.last_stream = Some(self.last_stream.map_or(last, |before| before.min(last)));
        let status = self.going_away(reason.trim_end());
        let mut refused: Vec<u32> =
            self.streams.iter_mut().map(|(stream, _)| stream).filter(|stream| *stream > last).collect();
        refused.sort_unstable();
        refused.retain(|stream| self.close(*stream).is_some());
        refused.extend(self.sending.forget_all());
        self.events.push_back(ClientEvent::GoAway { status: status.clone() });
        for stream in refused {
            let end = Err(status.clone());
            self.events.push_back(ClientEvent::End { id: call_of(stream), end });
        }
        true
    }
}
