//! Streams of a server connection: flow control in both directions, and outbox space.

use super::Connection;
use crate::driver::calls::Stage;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};
use switchboard_core::{
    Result,
    compression::Message,
    context,
    memory::Pressure,
    queue::{self, Items, Queue, guarded_next},
};
use switchboard_net::connection::credit_min;
use switchboard_wire::{
    Metadata, Status,
    wire::{CallId, ServerWire},
};

/// Maximum number of windows of messages queued for a handler that itself waits for credit, on wires without
/// a window.
const WINDOWS_MAX: usize = 8;

impl<W: ServerWire> Connection<W> {
    pub(super) fn inbound(&mut self, id: CallId) -> Option<Arc<Queue>> {
        let index = self.calls.find(id)?;
        self.calls.get_mut(index)?.inbound.clone()
    }

    pub(super) fn item(&mut self, id: CallId, item: Message) {
        let Some(index) = self.calls.find(id) else { return };
        let Some(parked) = self.calls.get_mut(index) else { return };
        let (method, Some(queue)) = (parked.record.method, &parked.inbound) else { return };
        let general = self.limits.message_bytes_max;
        let message_max = self.shared.table.message_bytes_max(method, general) as usize;
        if item.bytes.len() > message_max {
            let status = self.shared.table.too_large(method, item.bytes.len() as u32, general);
            return self.finish(index, Err(status));
        }
        if let Some(counts) = &self.peer.counts {
            counts.received(1, self.now);
        }
        parked.record.received += item.bytes.len() as u64;
        if let Some(watched) = &mut parked.record.watched {
            watched.requested(self.now);
        }
        let weight = queue::weight(&item.bytes);
        // A message for a closed queue is dropped and not charged.
        let Some(ahead) = queue.push_open(item) else { return };
        parked.held += weight;
        self.memory.change(0, weight);
        // The last message may exceed the window.
        if ahead >= self.limits.stream_window_bytes as usize {
            if self.wire.advertises_windows() {
                let text = format!("{ahead} bytes sent ahead of the reader (stream_window_bytes)");
                return self.finish(index, Err(Status::resource_exhausted(text)));
            }
            if ahead >= self.ahead_max(index) {
                self.memory.pause_reading(Some((index, self.now)));
            }
        }
    }

    /// Returns the queued bytes of this call at which the connection is no longer read: the window, and more
    /// while the handler waits for credit, which may be behind these messages.
    fn ahead_max(&mut self, index: u32) -> usize {
        let window = self.limits.stream_window_bytes as usize;
        let waits = self.calls.get_mut(index).is_some_and(|parked| parked.credit <= 0);
        if waits { window.saturating_mul(WINDOWS_MAX) } else { window }
    }

    /// Resumes reading once the reader of the stream that stopped it has caught up.
    #[inline]
    pub(super) fn read_on(&mut self) {
        if let Some((index, _)) = self.memory.read_paused_by {
            let max = self.ahead_max(index);
            let queue = self.calls.get_mut(index).and_then(|parked| parked.inbound.as_ref());
            if queue.is_none_or(|queue| queue.bytes() < max) {
                self.memory.pause_reading(None);
            }
        }
    }

    /// Ends the call whose stream has stopped reading for too long. Its handler may be waiting for credit
    /// behind the unread messages.
    pub(super) fn end_stalled(&mut self) {
        let timeout = self.settings.stream_stall_timeout();
        let Some((index, since)) = self.memory.read_paused_by else { return };
        if switchboard_core::clock::after(since, timeout) > self.now {
            return;
        }
        let window = self.limits.stream_window_bytes;
        let text = format!(
            "the handler took no message for {timeout:?} (stream_stall_timeout) while {window} bytes waited for it \
             (stream_window_bytes); on {} that holds back all calls of the connection",
            self.wire.name()
        );
        self.finish(index, Err(Status::resource_exhausted(text)));
        self.read_on();
    }

    /// Sends replies of a stream while there is credit and outbox space.
    pub(super) fn poll_replies(
        &mut self,
        index: u32,
        mut items: Pin<Box<dyn Items>>,
        mut head_sent: bool,
        deadline: Option<Instant>,
    ) {
        let mut is_waiting = false;
        while self.calls.get_mut(index).is_some_and(|parked| parked.credit > 0) {
            if !self.has_stream_room() || self.is_over() {
                // List the stream once, even if the peer grants credit repeatedly.
                if let Some(parked) = self.calls.get_mut(index)
                    && !std::mem::replace(&mut parked.stalled, true)
                {
                    self.stalled.push_back(index);
                }
                break;
            }
            let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
            let (id, method) = (parked.id, parked.record.method);
            if self.wire.is_blocked(id) {
                break;
            }
            let item = if let Some(made) = items.as_mut().next_made() {
                Some(Ok(made))
            } else {
                let began = self.now;
                let trace = parked.record.trace.clone();
                let mut cx = Context::from_waker(waker);
                let polled =
                    context::scope(deadline, trace.as_ref(), || guarded_next(items.as_mut(), &mut cx));
                self.clock(began, method);
                self.turned(index, began);
                match polled {
                    Poll::Pending => {
                        is_waiting = true;
                        if !head_sent && let Some(head) = items.early_head() {
                            head_sent = true;
                            self.wire.head(id, &head, &mut self.out);
                        }
                        break;
                    }
                    Poll::Ready(item) => item,
                }
            };
            if !std::mem::replace(&mut head_sent, true) {
                let head = items.head();
                if !head.is_empty() {
                    self.wire.head(id, &head, &mut self.out);
                }
            }
            match item {
                Some(Ok(item)) => self.send_reply(index, id, &item),
                None => return self.end_stream(index, Ok(&items.late_head_and_trailers())),
                Some(Err(mut status)) => {
                    status.metadata_mut().extend(items.late_head_and_trailers());
                    return self.end_stream(index, Err(&status));
                }
            }
        }
        if !is_waiting {
            self.poll_ahead(index, items.as_mut(), deadline);
        }
        if let Some(parked) = self.calls.get_mut(index) {
            parked.stage = Stage::Replies { items, head_sent };
        }
    }

    /// Writes a reply of a stream, which takes credit.
    #[inline(always)]
    fn send_reply(&mut self, index: u32, id: CallId, item: &Message) {
        if let Some(parked) = self.calls.get_mut(index) {
            parked.credit -= queue::weight(&item.bytes) as i64;
            parked.record.sent += item.bytes.len() as u64;
            if let Some(watched) = &mut parked.record.watched {
                watched.replied(self.now);
            }
        }
        if let Some(counts) = &self.peer.counts {
            counts.sent(1, self.now);
        }
        self.wire.item(id, &item.bytes, item.compressed, &mut self.out);
    }

    /// Polls a handler whose replies cannot be sent now, so that it keeps reading requests. Otherwise a
    /// caller that reads replies only after it has sent all requests would deadlock with a reply above the
    /// window.
    fn poll_ahead(&mut self, index: u32, items: Pin<&mut dyn Items>, deadline: Option<Instant>) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        if parked.inbound.is_none() || self.memory.restrictions.pressure == Pressure::Exhausted {
            return;
        }
        let (method, trace, began) = (parked.record.method, parked.record.trace.clone(), self.now);
        let mut cx = Context::from_waker(waker);
        context::scope(deadline, trace.as_ref(), || guarded_ahead(items, &mut cx));
        self.clock(began, method);
    }

    pub(super) fn end_stream(&mut self, index: u32, end: Result<&Metadata, &Status>) {
        if let Some(parked) = self.take(index) {
            self.end(&parked, end);
        }
    }

    /// Grants the peer credit for a stream whose reader has taken bytes.
    pub(super) fn give_credit(&mut self, index: u32) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        let Some(queue) = &parked.inbound else { return };
        queue.watch_consumer(waker);
        let least = credit_min(self.wire.advertises_windows(), self.limits.stream_window_bytes);
        if let Some(bytes) = queue.take_credit(least) {
            self.wire.credit(parked.id, bytes, &mut self.out);
        }
    }

    /// Returns whether streams may send: the outbox is small, and memory is available.
    #[inline]
    fn has_stream_room(&self) -> bool {
        self.out.len() <= self.memory.stream_limit && self.memory.restrictions.pressure != Pressure::Exhausted
    }

    /// Returns whether a stream in the queue may send.
    #[inline]
    pub(super) fn can_resume(&self) -> bool {
        !self.stalled.is_empty() && self.has_stream_room()
    }

    /// Polls queued streams in order of their waiting time, until the outbox is full or the turn is over.
    pub(super) fn resume_stalled(&mut self) {
        while self.can_resume()
            && !self.is_over()
            && let Some(index) = self.stalled.pop_front()
        {
            // The index may belong to another call by now.
            if let Some(parked) = self.calls.get_mut(index)
                && std::mem::replace(&mut parked.stalled, false)
            {
                self.poll_call(index);
            }
        }
    }
}

/// Polls a handler ahead of its sends; a panic is reported when the next message is polled, because the
/// handler has ended.
fn guarded_ahead(items: Pin<&mut dyn Items>, cx: &mut Context<'_>) {
    let ahead = std::panic::AssertUnwindSafe(|| items.poll_ahead(cx));
    let _ = std::panic::catch_unwind(ahead);
}
