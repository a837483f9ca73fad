//! The end of a reply, for layers that want to know it.

use super::Reply;
use crate::{Metadata, Result, Status, compression::Message, stream::Items};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// Told how a reply has ended: with which trailers, or why it failed.
type Told = Box<dyn FnOnce(Result<&Metadata, &Status>) + Send>;

impl Reply {
    /// Calls `ended` once the reply has ended: now if it is one message, with its last message or failure if it is a
    /// stream, and with `Canceled` if nobody reads that to its end. What a stream's handler added to its trailers is
    /// told after its last message alone.
    #[must_use]
    pub fn when_ended(self, ended: impl FnOnce(Result<&Metadata, &Status>) + Send + 'static) -> Reply {
        if !self.is_many() {
            ended(Ok(&self.parts().trailers));
            return self;
        }
        self.map_items(|items| Box::pin(Ended { items, told: Some(Box::new(ended)), trailers: None }))
    }
}

/// A stream whose end somebody waits for.
struct Ended {
    items: Pin<Box<dyn Items>>,
    told: Option<Told>,
    /// Taken from the stream when it ended, for whoever asks next.
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
        if let Some(told) = this.told.take() {
            told(outcome);
        }
        item
    }

    fn next_made(self: Pin<&mut Self>) -> Option<Message> {
        self.get_mut().items.as_mut().next_made()
    }

    fn held(&self) -> usize {
        self.items.held()
    }

    fn head(&self) -> Metadata {
        self.items.head()
    }

    fn trailers(&self) -> Metadata {
        self.trailers.clone().unwrap_or_else(|| self.items.trailers())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            told(Err(&Status::canceled("nobody read the replies to their end")));
        }
    }
}
