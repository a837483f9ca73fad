//! Streams of a server connection: credit both ways, and room in the outbox.

use super::Connection;
use crate::{
    Metadata, Result, Status,
    compression::Message,
    context,
    driver::calls::Stage,
    memory::Level,
    stream::{self, Items, Queue},
};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};
use switchboard_wire::wire::{CallId, ServerWire};

impl<W: ServerWire + ?Sized> Connection<W> {
    pub(super) fn inbound(&mut self, id: CallId) -> Option<Arc<Queue>> {
        let index = self.calls.find(id)?;
        self.calls.get_mut(index)?.inbound.clone()
    }

    pub(super) fn item(&mut self, id: CallId, item: Message) {
        let Some(index) = self.calls.find(id) else { return };
        let Some(parked) = self.calls.get_mut(index) else { return };
        let (method, Some(queue)) = (parked.method, &parked.inbound) else { return };
        let general = self.limits.message_bytes_max;
        let message_max = self.shared.table.message_bytes_max(method, general) as usize;
        if item.bytes.len() > message_max {
            let status = self.shared.table.too_large(method, item.bytes.len() as u32, general);
            return self.finish(index, Err(status));
        }
        if let Some(counts) = &self.peer.counts {
            counts.received(1, self.now);
        }
        parked.received += item.bytes.len() as u64;
        let weight = stream::weight(&item.bytes);
        let ahead = queue.push_now(item);
        parked.held += weight;
        self.holding.change(0, weight);
        // One message may overdraw the window, further ones are the peer's fault.
        if ahead >= self.limits.stream_window_bytes as usize {
            let text = format!("{ahead} bytes sent ahead of the reader (stream_window_bytes)");
            self.finish(index, Err(Status::resource_exhausted(text)));
        }
    }

    /// Sends replies of a stream while there is credit and room.
    pub(super) fn poll_replies(
        &mut self,
        index: u32,
        mut items: Pin<Box<dyn Items>>,
        mut head_sent: bool,
        deadline: Option<Instant>,
    ) {
        while self.calls.get_mut(index).is_some_and(|parked| parked.credit > 0) {
            if self.out.len() > self.holding.stream_limit || self.holding.room.level == Level::Full {
                // Once, however often the peer grants credit meanwhile.
                if !self.stalled.contains(&index) {
                    self.stalled.push(index);
                }
                break;
            }
            let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
            let (id, method) = (parked.id, parked.method);
            let item = if let Some(made) = items.as_mut().next_made() {
                Some(Ok(made))
            } else {
                let began = self.now;
                let trace = parked.trace.clone();
                let mut cx = Context::from_waker(waker);
                let polled =
                    context::scope(deadline, trace.as_ref(), || guarded_next(items.as_mut(), &mut cx));
                self.clock(began, method);
                match polled {
                    Poll::Pending => break,
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
                Some(Ok(item)) => {
                    if let Some(parked) = self.calls.get_mut(index) {
                        parked.credit -= stream::weight(&item.bytes) as i64;
                        parked.sent += item.bytes.len() as u64;
                    }
                    if let Some(counts) = &self.peer.counts {
                        counts.sent(1, self.now);
                    }
                    self.wire.item(id, &item.bytes, item.compressed, &mut self.out);
                }
                None => return self.end_stream(index, Ok(&items.trailers())),
                Some(Err(mut status)) => {
                    status.metadata_mut().extend(items.trailers());
                    return self.end_stream(index, Err(&status));
                }
            }
        }
        if let Some(parked) = self.calls.get_mut(index) {
            parked.stage = Stage::Replies { items, head_sent };
        }
    }

    pub(super) fn end_stream(&mut self, index: u32, end: Result<&Metadata, &Status>) {
        if let Some(parked) = self.take(index) {
            self.end(&parked, end);
        }
    }

    /// Lets the peer send more of a stream whose reader took something.
    pub(super) fn give_credit(&mut self, index: u32) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        let Some(queue) = &parked.inbound else { return };
        queue.watch_consumer(waker);
        if let Some(bytes) = queue.take_credit(self.limits.stream_window_bytes / 4) {
            self.wire.credit(parked.id, bytes, &mut self.out);
        }
    }

    pub(super) fn resume_stalled(&mut self) {
        for index in std::mem::take(&mut self.stalled) {
            self.poll_call(index);
        }
    }
}

/// A panic in a streaming handler ends its call, not the connection.
pub(crate) fn guarded_next(
    items: Pin<&mut dyn Items>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Message>>> {
    let next = std::panic::AssertUnwindSafe(|| items.poll_next(cx));
    std::panic::catch_unwind(next)
        .unwrap_or_else(|_| Poll::Ready(Some(Err(Status::internal("handler panicked")))))
}
