//! Responses: heads, messages within both windows, and trailers.

use super::{Phase, Server};
use crate::{
    Metadata, Outbox, Outgoing, Status,
    http::dialect::grpc::{ENVELOPE_BYTES, envelope},
    http2::{
        frame::{ErrorCode, FrameHead, HEAD_BYTES, flag, kind, put_reset},
        send::{End, Waiting},
    },
    wire::{CallId, ServerEvent},
};
use bytes::Bytes;

/// Streams in the queue of blocked ones beyond those that are open, before those that have ended are removed.
const STALE_MAX: usize = 256;

impl Server {
    /// Ends a call with its only message.
    #[inline]
    pub(super) fn respond(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        self.send_item(id, item, compressed, out);
        self.end_call(id, Ok(trailers), out);
    }

    /// Responds to a request that is no call, and has ended.
    #[cold]
    pub(super) fn refuse_request(&mut self, id: CallId, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let Some(body) = stream.body.take() else { return };
        self.held -= body.memory_bytes();
        let Some((status, reason)) = body.no_call else { return };
        self.sending.put_http_status(id, status, out);
        self.wait(id, std::iter::once(Bytes::from_static(reason.as_bytes())), out);
        self.end_body(id, out);
    }

    /// Ends a body that is not one of a call.
    #[cold]
    fn end_body(&mut self, id: CallId, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if let Some(waiting) = &mut stream.waiting {
            waiting.end = Some(End::Body);
            return;
        }
        let head = FrameHead { len: 0, kind: kind::DATA, flags: flag::END_STREAM, stream: id };
        out.tail().extend_from_slice(&head.to_bytes());
        self.finish(id, out);
    }

    /// Ends a call with its only message, which is in parts.
    #[cold]
    pub(super) fn respond_in_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !std::mem::replace(&mut stream.head_sent, true) {
            self.sending.put_head(id, stream.form, stream.replies, &Metadata::new(), out);
        }
        let len = parts.iter().map(Bytes::len).sum();
        let head = Bytes::copy_from_slice(&envelope(false, len));
        self.wait(id, std::iter::once(head).chain(parts.iter().cloned()), out);
        self.end_call(id, Ok(&Metadata::new()), out);
    }

    /// Sends a message, or lets it wait for the peer's credit.
    #[inline]
    pub(super) fn send_item(&mut self, id: CallId, item: Outgoing<'_>, compressed: bool, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !std::mem::replace(&mut stream.head_sent, true) {
            self.sending.put_head(id, stream.form, stream.replies, &Metadata::new(), out);
        }
        let (bytes, len) = (envelope(compressed, item.len()), ENVELOPE_BYTES + item.len());
        if stream.waiting.is_some() || !self.sending.fits(stream.send, len) {
            let parts = [Bytes::copy_from_slice(&bytes), item.to_bytes()];
            return self.wait(id, parts.into_iter(), out);
        }
        self.sending.window.take(len);
        stream.send.take(len);
        let frame = FrameHead { len: len as u32, kind: kind::DATA, flags: 0, stream: id }.to_bytes();
        let mut head = [0; HEAD_BYTES + ENVELOPE_BYTES];
        head[..HEAD_BYTES].copy_from_slice(&frame);
        head[HEAD_BYTES..].copy_from_slice(&bytes);
        out.put_with(&head, item);
        self.sent(len);
    }

    /// Counts sent bytes of bodies.
    fn sent(&mut self, bytes: usize) {
        self.pings.busy = true;
        self.budget.sent(bytes as u32);
    }

    /// Appends bytes to those that wait, and sends what the windows allow.
    fn wait(&mut self, id: CallId, parts: impl Iterator<Item = Bytes>, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let was_waiting = stream.waiting.is_some();
        let progress = self.now;
        let waiting = stream.waiting.get_or_insert_with(|| Box::new(Waiting::new(progress)));
        let before = waiting.bytes;
        if self.sending.waiting_bytes == 0 {
            self.progress = self.now;
        }
        parts.for_each(|part| waiting.add(part));
        self.sending.waiting_bytes += waiting.bytes - before;
        if was_waiting {
            return;
        }
        if !std::mem::replace(&mut stream.is_queued, true) {
            self.sending.blocked.push_back(id);
        }
        self.send_waiting_of(id, out);
        // A stream that did not have to wait is not resumed.
        self.resumed.retain(|resumed| *resumed != id);
        if self.sending.blocked.len() > self.streams.len() + STALE_MAX {
            let streams = &self.streams;
            self.sending.blocked.retain(|id| streams.get(*id).is_some());
        }
    }

    /// Resets the streams of which the peer has accepted nothing for too long.
    #[cold]
    pub(super) fn end_stalled(&mut self, out: &mut Outbox) {
        let (mut stalled, mut oldest) = (Vec::new(), self.now);
        for (id, stream) in self.streams.iter_mut() {
            let Some(waiting) = &stream.waiting else { continue };
            if self.now.saturating_sub(waiting.progress) >= self.stall_ms {
                stalled.push(id);
            } else {
                oldest = oldest.min(waiting.progress);
            }
        }
        for id in stalled {
            put_reset(id, ErrorCode::CANCEL, out.tail());
            self.resets.add(id);
            if let ServerEvent::Cancel { id } = self.remove(id) {
                self.canceled.push_back(id);
            }
        }
        self.progress = oldest;
    }

    /// Sends waiting bytes of all streams in turns, as far as the windows allow.
    pub(super) fn send_waiting(&mut self, out: &mut Outbox) {
        let mut stuck = 0;
        while stuck < self.sending.blocked.len() && self.sending.window.available() > 0 {
            let Some(id) = self.sending.blocked.pop_front() else { return };
            if let Some(stream) = self.streams.get_mut(id) {
                stream.is_queued = false;
            }
            if let Some(sent) = self.send_turn(id, out)
                && let Some(stream) = self.streams.get_mut(id)
            {
                stream.is_queued = true;
                self.sending.blocked.push_back(id);
                stuck = if sent == 0 { stuck + 1 } else { 0 };
            }
        }
    }

    /// Sends waiting bytes of one stream, as far as the windows allow, in turns with others that can send. It stays in
    /// the queue of blocked streams, which removes it in its turn.
    pub(super) fn send_waiting_of(&mut self, id: CallId, out: &mut Outbox) {
        if self.send_turn(id, out).is_some_and(|sent| sent > 0) {
            self.send_waiting(out);
        }
    }

    /// Returns true if a stream waits although both windows allow it to send.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn wastes_windows(&mut self) -> bool {
        self.sending.window.available() > 0
            && self
                .streams
                .iter_mut()
                .any(|(_, stream)| stream.waiting.is_some() && stream.send.available() > 0)
    }

    /// Sends a turn of a stream's waiting bytes; returns their number, or `None` if the stream no longer waits.
    fn send_turn(&mut self, id: CallId, out: &mut Outbox) -> Option<usize> {
        let stream = self.streams.get_mut(id)?;
        let waiting = stream.waiting.as_deref_mut()?;
        let sent = self.sending.pump(id, &mut stream.send, waiting, out);
        let is_done = waiting.bytes == 0;
        if sent > 0 {
            waiting.progress = self.now;
        }
        let end = if is_done { waiting.end.take() } else { None };
        if is_done {
            stream.waiting = None;
        }
        self.sent(sent);
        match end {
            Some(End::Call(end)) => self.end_call(id, end.as_ref(), out),
            Some(End::Body) => self.end_body(id, out),
            None if is_done => self.resumed.push_back(id),
            None => return Some(sent),
        }
        None
    }

    /// Ends a call.
    #[inline]
    pub(super) fn end_call(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if let Some(waiting) = &mut stream.waiting {
            waiting.end = Some(End::Call(end.cloned().map_err(Clone::clone)));
            return;
        }
        match end {
            Err(status) if !stream.head_sent => self.sending.put_trailers_only(id, stream.form, status, out),
            end => {
                if !stream.head_sent {
                    self.sending.put_head(id, stream.form, stream.replies, &Metadata::new(), out);
                }
                self.sending.put_trailers(id, end, out);
            }
        }
        self.finish(id, out);
    }

    /// Removes a stream whose response is complete.
    #[inline]
    fn finish(&mut self, id: CallId, out: &mut Outbox) {
        let remote_ended = self.take(id).is_none_or(|stream| stream.remote_ended);
        self.pings.busy = true;
        self.budget.answered();
        if !remote_ended {
            // The peer need not send the rest of a request whose response is complete (RFC 9113, section 8.1).
            put_reset(id, ErrorCode::NO_ERROR, out.tail());
            self.resets.add(id);
        }
        if self.phase == Phase::Refusing {
            self.end_drain(out);
        }
    }
}
