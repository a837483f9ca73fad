//! Receivers as streams of `futures`, and receivers of messages that this process produces.

use super::{Queue, Receiver};
use crate::Result;
use futures_core::Stream;
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};
use switchboard_wire::{Codec, Metadata, Status};

/// A stream of messages. The lock is never contended: it makes the receiver `Sync`, which the stream need not be.
pub(super) type Source<T> = Mutex<Pin<Box<dyn Stream<Item = Result<T>> + Send>>>;

impl<T> Receiver<T> {
    /// Creates a receiver of the messages of `stream`, for a fake of a service that returns streams. Metadata and
    /// trailers are empty. The stream is not polled after an error. An iterator of messages can be
    /// [collected](Iterator::collect) into a receiver.
    ///
    /// ```
    /// use switchboard::{Receiver, Result};
    ///
    /// /// A fake of a client trait.
    /// struct Fake;
    ///
    /// impl Fake {
    ///     async fn count(&self, to: u32) -> Result<Receiver<u32>> {
    ///         Ok((1..=to).collect())
    ///     }
    /// }
    /// ```
    pub fn from_stream(stream: impl Stream<Item = Result<T>> + Send + 'static) -> Self {
        let queue = Arc::new(Queue::new(0));
        queue.finish(Ok(Metadata::new()));
        let none = |_, _| Err(Status::internal("the messages of this stream are not encoded"));
        let mut receiver = Receiver::new(queue, Codec::Raw, none, usize::MAX);
        receiver.source = Some(Mutex::new(Box::pin(stream)));
        receiver
    }

    pub(super) fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let Some(source) = self.source.as_mut().filter(|_| !self.is_over) else { return Poll::Ready(None) };
        let source = source.get_mut().unwrap_or_else(PoisonError::into_inner);
        let next = ready!(source.as_mut().poll_next(cx));
        self.is_over = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

/// The messages, in order; ends after an error.
impl<T> Stream for Receiver<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let this = self.get_mut();
        if this.source.is_some() {
            return this.poll_source(cx);
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        let next = ready!(this.poll_message(cx));
        let next = next.map(|next| next.and_then(|message| this.read(message)));
        this.is_over = !matches!(next, Some(Ok(_)));
        Poll::Ready(next)
    }
}

/// Creates a receiver of the items of an iterator, as [`Receiver::from_stream`] does.
impl<T: Send + 'static> FromIterator<T> for Receiver<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Receiver::from_stream(Listed(items.into_iter().collect()))
    }
}

/// Messages that are ready.
struct Listed<T>(VecDeque<T>);

impl<T> Unpin for Listed<T> {}

impl<T> Stream for Listed<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        Poll::Ready(self.get_mut().0.pop_front().map(Ok))
    }
}
