//! Moves the messages that a caller streams into the queue that the handler reads.

use super::{call_guard::CallGuard, convert};
use connectrpc::dispatcher::RequestStream;
use std::{
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_core::{call::RequestBody, compression::Message, queue::Queue};
use switchboard_wire::{Metadata, Status};

/// Bytes that wait for the handler; more stays in the connection, whose flow control then slows the caller.
const ROOM: usize = 64 << 10;

/// Moves messages as long as the queue has room; polled along with the handler, so it needs no task.
pub(super) struct Requests {
    stream: RequestStream,
    queue: Arc<Queue>,
    /// A message for which the queue has no room.
    waiting: Option<Message>,
    ended: bool,
}

impl Requests {
    /// Creates the source to poll, and the body for the handler.
    pub(super) fn new(stream: RequestStream) -> (Requests, RequestBody) {
        let queue = Arc::new(Queue::new(ROOM));
        let body = RequestBody::Many(queue.clone());
        (Requests { stream, queue, waiting: None, ended: false }, body)
    }

    /// Moves the messages that fit and counts them for their call; `cx` is woken when more can be moved.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, call_guard: &mut CallGuard) {
        while !self.ended {
            if self.waiting.is_some() {
                match self.queue.poll_push(cx, &mut self.waiting) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => {}
                    // The handler no longer reads: messages that still arrive are discarded.
                    Poll::Ready(Err(_)) => self.ended = true,
                }
                continue;
            }
            match self.stream.as_mut().poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => {
                    call_guard.received(message.len());
                    self.waiting = Some(message.into());
                }
                Poll::Ready(Some(Err(error))) => self.end(Err(convert::status(&error))),
                Poll::Ready(None) => self.end(Ok(Metadata::new())),
            }
        }
    }

    /// Bytes that wait for the handler.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.bytes() + self.waiting.as_ref().map_or(0, |message| message.bytes.len())
    }

    fn end(&mut self, end: Result<Metadata, Status>) {
        self.ended = true;
        self.queue.finish(end);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // A handler in another task may still wait for messages.
        self.queue.finish(Err(Status::canceled("the caller disconnected")));
    }
}
