//! Senders as sinks of `futures`.

use super::Sender;
use crate::Result;
use futures_sink::Sink;
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_wire::{Metadata, Status};

/// Takes messages as [`Sender::send`] does: it is ready when the queue has room. Messages need no flush. Closing the
/// sink ends the stream of a client; that of a server ends when its handler returns.
impl<T> Sink<T> for Sender<T> {
    type Error = Status;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.queue.poll_push(cx, &mut None)
    }

    fn start_send(self: Pin<&mut Self>, message: T) -> Result<()> {
        let message = self.packing.pack((self.encode)(&message, self.codec)?);
        self.queue.push_ready(message)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        if self.ends {
            self.queue.finish(Ok(Metadata::new()));
        }
        Poll::Ready(Ok(()))
    }
}
