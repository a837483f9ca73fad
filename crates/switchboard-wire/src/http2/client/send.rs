//! Requests of a client connection: heads and DATA within the server's windows, and calls that wait for a stream.

use super::{
    super::{
        frame::{self, FrameHead, HEAD_BYTES, flag, kind},
        window::{ReceiveWindow, SendWindow},
    },
    Client, EARLY_STREAMS_MAX, STREAM_MAX,
    stream::{Stream, call_of},
};
use crate::{
    Codec, Encoding, Metadata, Outbox, Outgoing, Status,
    wire::{ClientEvent, Open},
};
use bytes::Bytes;
use std::{collections::VecDeque, time::Duration};

/// Bytes before each message: its flag and its length.
pub(super) const PREFIX_BYTES: usize = 5;
/// Smallest window that is announced: the prefix of a message must fit into the quarter that is not announced again.
const WINDOW_BYTES_MIN: u32 = 256;
/// Bytes of one stream that are written at a time while others wait.
const TURN_BYTES: usize = 64 << 10;

/// Streams in the list of those that wait beyond the open ones, before those that have ended are removed.
const STALE_MAX: usize = 256;

/// Parts of a request that are not in the outbox.
#[derive(Debug, Default)]
pub(super) struct Pending {
    parts: VecDeque<Bytes>,
    bytes: usize,
}

impl Pending {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.bytes += part.len();
            self.parts.push_back(part);
        }
    }

    /// Adds a message in several parts.
    fn push_message(&mut self, first: Bytes, rest: &[Bytes], compressed: bool) {
        let len = first.len() + rest.iter().map(Bytes::len).sum::<usize>();
        self.push(Bytes::copy_from_slice(&prefix(len, compressed)));
        self.push(first);
        rest.iter().for_each(|part| self.push(part.clone()));
    }

    /// Moves the first `bytes` bytes to the outbox.
    fn take(&mut self, mut bytes: usize, out: &mut Outbox) {
        self.bytes -= bytes;
        while bytes > 0
            && let Some(front) = self.parts.front_mut()
        {
            if front.len() > bytes {
                out.put(&front.split_to(bytes));
                return;
            }
            bytes -= front.len();
            out.put(&*front);
            self.parts.pop_front();
        }
    }
}

fn prefix(len: usize, compressed: bool) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [u8::from(compressed), a, b, c, d]
}

/// Requests that wait.
#[derive(Debug)]
pub(super) struct Sending {
    /// Bytes that the server accepts on the connection.
    window: SendWindow,
    /// Streams with bytes that only the window of the connection, or their turn, holds back.
    pub(super) listed: VecDeque<u32>,
    /// Calls that wait for a stream, in the order of their numbers.
    waiting: VecDeque<Box<Waiting>>,
    /// Bytes of all pending parts.
    queued: usize,
}

impl Default for Sending {
    fn default() -> Sending {
        // RFC 9113, section 6.9.2.
        Sending {
            window: SendWindow::new(65_535),
            listed: VecDeque::new(),
            waiting: VecDeque::new(),
            queued: 0,
        }
    }
}

/// A call that waits until the server accepts another stream.
#[derive(Debug)]
struct Waiting {
    stream: u32,
    method: u16,
    codec: Codec,
    timeout: Option<Duration>,
    metadata: Metadata,
    encoding: Encoding,
    pending: Pending,
    /// More messages may follow the pending ones.
    more: bool,
}

impl Sending {
    #[inline]
    pub(super) fn queued_bytes(&self) -> usize {
        self.queued
    }

    fn find(&self, stream: u32) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        self.waiting.binary_search_by_key(&stream, |waiting| waiting.stream).ok()
    }

    pub(super) fn is_waiting(&self, stream: u32) -> bool {
        self.find(stream).is_some()
    }

    /// Removes a call that waits for a stream; returns false for any other.
    pub(super) fn forget(&mut self, stream: u32) -> bool {
        let Some(waiting) = self.find(stream).and_then(|at| self.waiting.remove(at)) else { return false };
        self.queued -= waiting.pending.bytes;
        true
    }

    /// Removes all calls that wait for a stream, and returns their streams.
    pub(super) fn forget_all(&mut self) -> Vec<u32> {
        let waiting = std::mem::take(&mut self.waiting);
        self.queued -= waiting.iter().map(|waiting| waiting.pending.bytes).sum::<usize>();
        waiting.into_iter().map(|waiting| waiting.stream).collect()
    }
}

impl Client {
    /// Returns true if the server accepts another stream.
    #[inline]
    fn may_start(&self) -> bool {
        let early = if self.has_settings { u32::MAX } else { EARLY_STREAMS_MAX };
        self.streams.len() < self.settings.streams_max.min(early) as usize
    }

    /// Bytes that a server may send of a stream ahead of its reader.
    pub(super) fn window_bytes(&self) -> u32 {
        self.limits.stream_window_bytes.clamp(WINDOW_BYTES_MIN, frame::WINDOW_MAX)
    }

    #[inline]
    pub(super) fn begin(
        &mut self,
        stream: u32,
        open: &Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let len = first.map_or(0, |first| first.len()) + open.rest.iter().map(Bytes::len).sum::<usize>();
        self.check_open(open, len)?;
        if stream < self.next_stream || stream > STREAM_MAX {
            return Err(self.going_away("it has no more numbers of streams"));
        }
        if !self.sending.waiting.is_empty() || !self.may_start() {
            self.wait(stream, open, first);
            return Ok(());
        }
        let has_message = first.is_some();
        let frame_len = PREFIX_BYTES + len;
        self.put_head(stream, open, !has_message && !open.more, out);
        let mut state = self.new_stream(open.method, open.codec, open.encoding);
        let Some(first) = first else {
            state.has_ended = !open.more;
            self.streams.insert(stream, state);
            return Ok(());
        };
        if open.rest.is_empty() && frame_len <= self.room(&state) {
            state.has_ended = !open.more;
            self.put_message(stream, &mut state, first, open.compressed, out);
            self.streams.insert(stream, state);
            return Ok(());
        }
        let body = state.body_mut();
        body.ends = !open.more;
        body.pending.push_message(first.to_bytes(), open.rest, open.compressed);
        self.sending.queued += body.pending.bytes;
        self.streams.insert(stream, state);
        self.flush(stream, out);
        Ok(())
    }

    fn new_stream(&self, method: u16, codec: Codec, encoding: Encoding) -> Stream {
        let send_window = SendWindow::new(self.settings.window_bytes);
        let receive_window = ReceiveWindow::new(self.window_bytes());
        Stream::new(self.heads.is_unary(method), codec, encoding, send_window, receive_window)
    }

    /// Bytes of the stream that fit into one frame now.
    #[inline]
    fn room(&self, state: &Stream) -> usize {
        let room = state.send_window.available().min(self.sending.window.available());
        room.min(self.settings.frame_bytes_max as usize)
    }

    /// Writes a message that fits into one frame; the last one if the request has ended.
    #[inline]
    fn put_message(
        &mut self,
        stream: u32,
        state: &mut Stream,
        message: Outgoing<'_>,
        compressed: bool,
        out: &mut Outbox,
    ) {
        let len = PREFIX_BYTES + message.len();
        state.send_window.take(len);
        self.sending.window.take(len);
        let flags = if state.has_ended { flag::END_STREAM } else { 0 };
        let mut start = [0; HEAD_BYTES + PREFIX_BYTES];
        let (head, before) = start.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&FrameHead { len: len as u32, kind: kind::DATA, flags, stream }.to_bytes());
        before.copy_from_slice(&prefix(message.len(), compressed));
        out.put_with(&start, message);
    }

    /// Writes the head of a request.
    #[inline]
    fn put_head(&mut self, stream: u32, open: &Open<'_>, ends: bool, out: &mut Outbox) {
        self.next_stream = stream + 2;
        let tail = out.tail();
        let at = tail.len();
        tail.extend_from_slice(&[0; HEAD_BYTES]);
        self.heads.put(open, tail);
        let len = (tail.len() - at - HEAD_BYTES) as u32;
        let max = self.settings.frame_bytes_max;
        if len > max {
            let block = tail.split_off(at + HEAD_BYTES);
            tail.truncate(at);
            return frame::put_header_block(stream, &block, ends, max, tail);
        }
        let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
        let head = FrameHead { len, kind: kind::HEADERS, flags, stream };
        tail[at..at + HEAD_BYTES].copy_from_slice(&head.to_bytes());
    }

    /// Stores a call until the server accepts another stream.
    #[cold]
    fn wait(&mut self, stream: u32, open: &Open<'_>, first: Option<Outgoing<'_>>) {
        let mut pending = Pending::default();
        if let Some(first) = first {
            pending.push_message(first.to_bytes(), open.rest, open.compressed);
        }
        self.sending.queued += pending.bytes;
        let Open { method, codec, timeout, encoding, more, .. } = *open;
        let metadata = open.metadata.clone();
        let waiting = Waiting { stream, method, codec, timeout, metadata, encoding, pending, more };
        self.sending.waiting.push_back(Box::new(waiting));
    }

    /// Begins calls that wait, while the server accepts streams.
    #[inline]
    pub(super) fn start_waiting(&mut self, out: &mut Outbox) {
        while !self.sending.waiting.is_empty() && self.may_start() {
            self.start_first_waiting(out);
        }
    }

    #[cold]
    fn start_first_waiting(&mut self, out: &mut Outbox) {
        let Some(waiting) = self.sending.waiting.pop_front() else { return };
        let Waiting { stream, method, codec, timeout, metadata, encoding, pending, more } = *waiting;
        let open = Open {
            method,
            codec,
            timeout,
            metadata: &metadata,
            oneway: false,
            more,
            encoding,
            compressed: false,
            rest: &[],
        };
        let ends = pending.bytes == 0 && !more;
        self.put_head(stream, &open, ends, out);
        let mut state = self.new_stream(method, codec, encoding);
        state.has_ended = ends;
        let had_pending = pending.bytes > 0;
        let body = state.body_mut();
        body.pending = pending;
        body.ends = !more;
        self.streams.insert(stream, state);
        self.flush(stream, out);
        if !had_pending {
            self.resume(stream);
        }
    }

    pub(super) fn send_item(&mut self, stream: u32, item: &Bytes, compressed: bool, out: &mut Outbox) {
        let len = PREFIX_BYTES + item.len();
        if let Some(at) = self.sending.find(stream) {
            self.sending.waiting[at].pending.push_message(item.clone(), &[], compressed);
            self.sending.queued += len;
            return;
        }
        let Some(mut state) = self.streams.remove(stream) else { return };
        let is_first = state.body.as_ref().is_none_or(|body| body.pending.bytes == 0);
        if is_first && len <= self.room(&state) {
            self.put_message(stream, &mut state, item.into(), compressed, out);
            self.streams.insert(stream, state);
            return;
        }
        state.body_mut().pending.push_message(item.clone(), &[], compressed);
        self.sending.queued += len;
        self.streams.insert(stream, state);
        self.flush(stream, out);
    }

    pub(super) fn end_request(&mut self, stream: u32, out: &mut Outbox) {
        if let Some(at) = self.sending.find(stream) {
            self.sending.waiting[at].more = false;
        } else if let Some(state) = self.streams.get_mut(stream) {
            state.body_mut().ends = true;
            self.flush(stream, out);
        }
    }

    /// Writes pending bytes of a stream, in turns with the others that wait, while the windows have room.
    pub(super) fn flush(&mut self, stream: u32, out: &mut Outbox) {
        self.flush_turn(stream, out);
        self.flush_listed(out);
    }

    /// Writes the pending bytes of one turn of a stream, within its window and that of the connection.
    fn flush_turn(&mut self, stream: u32, out: &mut Outbox) {
        let mut turn = TURN_BYTES;
        let frame_max = self.settings.frame_bytes_max as usize;
        let Sending { window, listed, queued, .. } = &mut self.sending;
        let Some(state) = self.streams.get_mut(stream) else { return };
        let Some(body) = state.body.as_deref_mut() else { return };
        let had_pending = body.pending.bytes > 0;
        loop {
            let len = body.pending.bytes.min(frame_max);
            let len = len.min(state.send_window.available()).min(window.available()).min(turn);
            let is_last = len == body.pending.bytes && body.ends && !state.has_ended;
            if len == 0 && !is_last {
                break;
            }
            let flags = if is_last { flag::END_STREAM } else { 0 };
            state.has_ended |= is_last;
            let head = FrameHead { len: len as u32, kind: kind::DATA, flags, stream };
            out.tail().extend_from_slice(&head.to_bytes());
            body.pending.take(len, out);
            state.send_window.take(len);
            window.take(len);
            (*queued, turn) = (*queued - len, turn - len);
        }
        if body.pending.bytes > 0 {
            if state.send_window.available() > 0 && !std::mem::replace(&mut state.is_listed, true) {
                listed.push_back(stream);
            }
        } else if had_pending {
            self.resume(stream);
        }
    }

    /// Reports that a stream may send again.
    fn resume(&mut self, stream: u32) {
        let sends = self.streams.get(stream).is_some_and(|state| !state.is_unary && !state.has_ended);
        if sends {
            self.events.push_back(ClientEvent::Credit { id: call_of(stream), bytes: 0 });
        }
    }

    /// Writes pending bytes of the streams that wait for the connection, in turns.
    pub(super) fn flush_listed(&mut self, out: &mut Outbox) {
        while self.sending.window.available() > 0
            && let Some(stream) = self.sending.listed.pop_front()
        {
            if let Some(state) = self.streams.get_mut(stream) {
                state.is_listed = false;
                self.flush_turn(stream, out);
            }
        }
    }

    /// Grows the window of the connection; returns false if it would be too large.
    pub(super) fn grow_window(&mut self, increment: u32, out: &mut Outbox) -> bool {
        let is_valid = self.sending.window.grow(increment).is_ok();
        self.flush_listed(out);
        is_valid
    }

    /// Removes an open stream, with what it had to send.
    #[inline]
    pub(super) fn close(&mut self, stream: u32) -> Option<Stream> {
        let state = self.streams.remove(stream)?;
        if let Some(body) = &state.body {
            self.sending.queued -= body.pending.bytes;
        }
        if self.sending.listed.len() > self.streams.len() + STALE_MAX {
            let streams = &self.streams;
            self.sending.listed.retain(|stream| streams.get(*stream).is_some());
        }
        Some(state)
    }
}
