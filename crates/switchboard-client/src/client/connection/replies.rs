//! Input of a client connection: replies and other events, and the callers that they wake.

use super::{ConnectionState, Inner, deadlines::NO_RESPONSE};
use crate::client::calls::State;
use bytes::Bytes;
use std::{task::Waker, time::Instant};
use switchboard_core::{Result, compression::Message};
use switchboard_wire::{
    Code, Fatal, Input, Metadata, Origin, Status,
    wire::{ClientCallId, ClientEvent, ClientWire},
};

impl Inner {
    /// Handles all input; returns the error after which the connection cannot continue, if any. Wakers go into `wake`.
    #[inline]
    pub(super) fn receive(&mut self, input: &mut Input, wake: &mut Vec<Waker>) -> Option<Fatal> {
        loop {
            while let Some((id, len)) = self.wire.next_reply(input) {
                self.next_reply(id, len, input, wake);
            }
            match self.wire.recv(input, &mut self.out) {
                Ok(Some(event)) => {
                    self.event(event, wake);
                    if self.read_paused_by.is_some() {
                        return None;
                    }
                }
                Ok(None) => return None,
                Err(fatal) => return Some(fatal),
            }
        }
    }

    /// Stores a reply for its caller.
    #[inline(always)]
    fn reply(&mut self, id: ClientCallId, item: Bytes, wake: &mut Vec<Waker>) {
        let Some(slot) = self.calls.get_mut(id) else { return self.calls.reply_late(id) };
        match &mut slot.state {
            State::Waiting(waker) => {
                wake.extend(waker.take());
                slot.state = State::Replied(item);
            }
            State::Stream(stream) => {
                stream.inbound.push_now(item);
                self.end_stream(id, Ok(Metadata::new()));
            }
            state => {
                // A message after the end violates the protocol, or the call was rejected here.
                if let Some(parts) = state.partial_reply() {
                    parts.item = Some(Message { bytes: item, compressed: false, codec: parts.codec });
                    parts.end = Some(Ok(()));
                    wake.extend(parts.waker.take());
                } else {
                    self.calls.reply_late(id);
                }
            }
        }
    }

    /// Takes a reply of `len` bytes from `input`; a plain one goes straight to its slot, because each further move of
    /// the message would wait until the previous one is written.
    #[inline]
    fn next_reply(&mut self, id: ClientCallId, len: usize, input: &mut Input, wake: &mut Vec<Waker>) {
        if let Some(slot) = self.calls.get_mut(id)
            && let State::Waiting(waker) = &mut slot.state
        {
            wake.extend(waker.take());
            slot.state = State::Replied(input.take(len));
            return;
        }
        self.reply(id, input.take(len), wake);
    }

    /// Handles one event; wakers go into `wake`.
    #[inline]
    fn event(&mut self, event: ClientEvent, wake: &mut Vec<Waker>) {
        match event {
            ClientEvent::Reply { id, item, compressed: false } => self.reply(id, item, wake),
            ClientEvent::Reply { id, item, compressed: true } => self.compressed_reply(id, item, wake),
            ClientEvent::Head { id, metadata } => match self.calls.get_mut(id).map(|slot| &mut slot.state) {
                Some(State::Stream(stream)) => stream.inbound.set_head(metadata),
                Some(state) => {
                    if let Some(parts) = state.partial_reply() {
                        parts.head = metadata;
                    }
                }
                None => {}
            },
            ClientEvent::Item { id, item, compressed } => {
                match self.calls.get_mut(id).map(|slot| &mut slot.state) {
                    Some(State::Stream(stream)) => {
                        let ahead = stream.inbound.push_now(Message { bytes: item, compressed, codec: None });
                        // One message may exceed the window.
                        let is_ahead = ahead >= self.window as usize && !self.wire.enforces_windows();
                        if is_ahead && !self.wire.advertises_windows() {
                            self.read_paused_by = Some(id);
                        } else if is_ahead {
                            self.wire.cancel(id, &mut self.out);
                            let text =
                                format!("{ahead} bytes sent ahead of the reader (stream_window_bytes)");
                            self.end_stream(id, Err(Status::resource_exhausted(text)));
                        }
                    }
                    Some(state) => {
                        if let Some(parts) = state.partial_reply() {
                            if parts.item.is_some() {
                                self.wire.cancel(id, &mut self.out);
                                let text = "the server replied with a stream to a call with one reply";
                                parts.end = Some(Err(Status::unimplemented(text)));
                                parts.awaiting_reply = true;
                                wake.extend(parts.waker.take());
                                return;
                            }
                            parts.item = Some(Message { bytes: item, compressed, codec: None });
                        }
                    }
                    None => {}
                }
            }
            ClientEvent::ReplyCodec { id, codec } => {
                if let Some(parts) = self.calls.get_mut(id).and_then(|slot| slot.state.partial_reply()) {
                    parts.codec = Some(codec);
                }
            }
            ClientEvent::End { id, end } => self.end(id, end, wake),
            ClientEvent::Credit { id, bytes } => {
                if let Some(State::Stream(stream)) = self.calls.get_mut(id).map(|slot| &mut slot.state) {
                    stream.credit = stream.credit.saturating_add(i64::from(bytes));
                    stream.note_due(id, &mut self.due);
                }
            }
            ClientEvent::Settings { window_growth } => {
                wake.extend(self.settings_waker.take());
                for (id, slot) in self.calls.iter_mut() {
                    if let State::Stream(stream) = &mut slot.state {
                        stream.credit = stream.credit.saturating_add(i64::from(window_growth));
                        stream.note_due(id, &mut self.due);
                    }
                }
            }
            ClientEvent::GoAway { status } => {
                self.state = ConnectionState::Draining(status);
                if self.wire.refuses_pings() && !std::mem::replace(&mut self.is_backed_off, true) {
                    self.ping_backoff.double();
                }
            }
            ClientEvent::Push(push) => {
                if let Some(pushes) = &self.pushes {
                    pushes.put(*push);
                }
            }
            ClientEvent::Pong => {}
        }
    }

    /// Ends a call with what the server sent.
    fn end(&mut self, id: ClientCallId, end: Result<Metadata>, wake: &mut Vec<Waker>) {
        let Some(slot) = self.calls.get_mut(id) else { return self.calls.reply_late(id) };
        let end = end.map_err(|status| of_deadline(status, slot.deadline));
        match &mut slot.state {
            State::Stream(_) => self.end_stream(id, end),
            state => {
                if let Some(parts) = state.partial_reply() {
                    wake.extend(parts.waker.take());
                    parts.end = Some(end.map(|trailers| parts.trailers = trailers));
                } else {
                    self.calls.reply_late(id);
                }
            }
        }
    }

    pub(super) fn end_stream(&mut self, id: ClientCallId, end: Result<Metadata>) {
        if let Some(State::Stream(stream)) = self.calls.remove(id) {
            if let Some(outbound) = &stream.outbound {
                let text = "the call has ended";
                outbound.close(end.as_ref().err().cloned().unwrap_or_else(|| Status::canceled(text)));
            }
            stream.inbound.finish(end);
        }
    }

    /// Ends one call with a status created here.
    pub(super) fn fail(&mut self, id: ClientCallId, status: Status, wake: &mut Vec<Waker>) {
        match self.calls.get_mut(id).map(|slot| &mut slot.state) {
            Some(State::Stream(_)) => self.end_stream(id, Err(status)),
            Some(state) => {
                if let Some(parts) = state.partial_reply() {
                    wake.extend(parts.waker.take());
                    parts.end = Some(Err(status));
                    parts.awaiting_reply = true;
                }
            }
            None => {}
        }
    }
}

/// Replaces the status of a call that its server reset at the deadline: the clock of the server was faster.
fn of_deadline(status: Status, deadline: Option<Instant>) -> Status {
    let is_reset = status.code() == Code::Canceled && status.origin() == Origin::Connection;
    if is_reset && deadline.is_some_and(|deadline| deadline <= switchboard_core::clock::now()) {
        return Status::deadline_exceeded(NO_RESPONSE);
    }
    status
}
