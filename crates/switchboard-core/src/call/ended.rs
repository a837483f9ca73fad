//! Notifies layers of the end of a reply.

use super::Reply;
use crate::{Result, compression::Message, queue::Items};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_wire::{Metadata, Status};

/// Callback for the end of a reply: its trailers, or the status with which it failed.
type OnEnd = Box<dyn FnOnce(Result<&Metadata, &Status>) + Send>;

impl Reply {
    /// Calls `ended` once the reply has ended. A reply of one message has ended already. A stream ends with its last
    /// message or with its failure; if it is dropped before, `ended` gets `Canceled`. The trailers of a stream's
    /// handler are passed only after its last message.
    #[must_use]
    pub fn when_ended(self, ended: impl FnOnce(Result<&Metadata, &Status>) + Send + 'static) -> Reply {
        if !self.is_many() {
            ended(Ok(&self.parts().trailers));
            return self;
        }
        self.map_items(|items| Box::pin(Ended { items, on_end: Some(Box::new(ended)), trailers: None }))
    }
}

/// A stream with a callback for its end.
struct Ended {
    items: Pin<Box<dyn Items>>,
    on_end: Option<OnEnd>,
    /// Taken from the stream when it ended, for the next reader of the trailers.
    trailers: Option<Metadata>,
}

impl Items for Ended {
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let this = self.get_mut();
        let item = this.items.as_mut().poll_next(cx);
        let outcome = match &item {
            Poll::Ready(None) => Ok(&*this.trailers.insert(this.items.trailers())),
            Poll::Ready(Some(Err(status))) => Err(status),
            _ => return item,
        };
        if let Some(on_end) = this.on_end.take() {
            on_end(outcome);
        }
        item
    }

    fn next_made(self: Pin<&mut Self>) -> Option<Message> {
        self.get_mut().items.as_mut().next_made()
    }

    fn poll_ahead(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        self.get_mut().items.as_mut().poll_ahead(cx);
    }

    fn queued_bytes(&self) -> usize {
        self.items.queued_bytes()
    }

    fn head(&self) -> Metadata {
        self.items.head()
    }

    fn is_head_complete(&self) -> bool {
        self.items.is_head_complete()
    }

    fn trailers(&self) -> Metadata {
        self.trailers.clone().unwrap_or_else(|| self.items.trailers())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end(Err(&Status::canceled("the stream of replies was dropped before its end")));
        }
    }
}
