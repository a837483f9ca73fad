//! The messages of a stream as its connection takes them.

use crate::{Result, compression::Message};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_wire::{Metadata, Status};

/// The messages of a reply, produced while they are sent.
pub trait Items: Send {
    /// Returns the next message, `None` at the end, or the status of a failure.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>>;
    /// Returns the next message if it is produced already, without polling the producer.
    fn next_made(self: Pin<&mut Self>) -> Option<Message> {
        None
    }
    /// Lets the producer of the messages continue while none can be sent: it reads requests, and waits when it has
    /// produced as many messages as it may buffer.
    fn poll_ahead(self: Pin<&mut Self>, _cx: &mut Context<'_>) {}
    /// Bytes of messages that were produced and not taken yet.
    fn queued_bytes(&self) -> usize;
    /// Metadata for the head that was not taken yet. It is sent with the first message. It is sent earlier if there is
    /// some and the next message is not ready, because a caller may wait for it before it sends more. Metadata that is
    /// added later is sent with the end.
    fn head(&self) -> Metadata;
    /// Returns whether the head is complete before the first message, so that it is sent even if it is empty.
    fn is_head_complete(&self) -> bool {
        false
    }
    /// Metadata for the end; read after the last `poll_next`.
    fn trailers(&self) -> Metadata;
}

impl dyn Items {
    /// Returns the metadata of the head if the head must be sent now, before the first message.
    #[doc(hidden)]
    pub fn early_head(&self) -> Option<Metadata> {
        let head = self.head();
        (!head.is_empty() || self.is_head_complete()).then_some(head)
    }

    /// Returns the trailers and the metadata that was added for the head after the head was sent.
    #[doc(hidden)]
    pub fn late_head_and_trailers(&self) -> Metadata {
        let mut trailers = self.head();
        trailers.extend(self.trailers());
        trailers
    }
}

/// A stream that processes the messages of another stream.
pub trait Passing: Send {
    /// Returns the other stream.
    fn items(&self) -> &dyn Items;
    /// Returns the other stream, to be polled.
    fn items_mut(self: Pin<&mut Self>) -> Pin<&mut (dyn Items + 'static)>;
    /// Polls for the next message; see [`Items::poll_next`].
    fn poll_passed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>>;
}

impl<P: Passing> Items for P {
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        self.poll_passed(cx)
    }

    fn poll_ahead(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        self.items_mut().poll_ahead(cx);
    }

    fn queued_bytes(&self) -> usize {
        self.items().queued_bytes()
    }

    fn head(&self) -> Metadata {
        self.items().head()
    }

    fn is_head_complete(&self) -> bool {
        self.items().is_head_complete()
    }

    fn trailers(&self) -> Metadata {
        self.items().trailers()
    }
}

/// Converts a panic in a streaming handler to the end of its call, not of the connection.
pub fn guarded_next(items: Pin<&mut dyn Items>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
    let next = std::panic::AssertUnwindSafe(|| items.poll_next(cx));
    std::panic::catch_unwind(next)
        .unwrap_or_else(|_| Poll::Ready(Some(Err(Status::internal("handler panicked")))))
}
