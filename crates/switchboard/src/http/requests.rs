//! The messages that a caller streams, on their way into the queue that the handler reads.

use super::{convert, ticket::Ticket};
use crate::{Metadata, Status, call::RequestBody, compression::Message, stream::Queue};
use connectrpc::dispatcher::RequestStream;
use std::{
    sync::Arc,
    task::{Context, Poll},
};

/// Bytes that wait for the handler; more stays in the connection, whose flow control then slows the caller.
const ROOM: usize = 64 << 10;

/// Moves messages as long as there is room; polled along with the handler, so it needs no task.
pub(super) struct Requests {
    stream: RequestStream,
    queue: Arc<Queue>,
    /// A message that found no room.
    waiting: Option<Message>,
    ended: bool,
}

impl Requests {
    /// What is to be polled, and what the handler gets.
    pub(super) fn new(stream: RequestStream) -> (Requests, RequestBody) {
        let queue = Arc::new(Queue::new(ROOM));
        let body = RequestBody::Many(queue.clone());
        (Requests { stream, queue, waiting: None, ended: false }, body)
    }

    /// Moves what can be moved and counts it for its call; `cx` is woken when there is more to do.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, ticket: &mut Ticket) {
        while !self.ended {
            if self.waiting.is_some() {
                match self.queue.poll_push(cx, &mut self.waiting) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => {}
                    // The handler reads no more: what the caller still sends is not wanted.
                    Poll::Ready(Err(_)) => self.ended = true,
                }
                continue;
            }
            match self.stream.as_mut().poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => {
                    ticket.received(message.len());
                    self.waiting = Some(message.into());
                }
                Poll::Ready(Some(Err(error))) => self.end(Err(convert::status(&error))),
                Poll::Ready(None) => self.end(Ok(Metadata::new())),
            }
        }
    }

    /// Bytes that wait for the handler.
    pub(super) fn held(&self) -> usize {
        self.queue.bytes() + self.waiting.as_ref().map_or(0, |message| message.bytes.len())
    }

    fn end(&mut self, end: Result<Metadata, Status>) {
        self.ended = true;
        self.queue.finish(end);
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // A handler that runs elsewhere may still wait for messages.
        self.queue.finish(Err(Status::canceled("the caller has gone")));
    }
}
