//! Entries of a log, passed on to a caller.

use super::Sender;
use crate::{
    Result,
    forward::{Forward, ForwardEntry},
};
use futures_core::Stream;
use std::{
    future::poll_fn,
    pin::pin,
    task::{Poll, ready},
};

impl<T> Sender<T> {
    /// Sends the messages of a subscription until it ends: its history, then live entries, without a hole between them.
    ///
    /// The next entry is read when the queue of the stream has room. A caller that reads slowly therefore holds no more
    /// than that queue, and its cursor falls behind in the log, where the options of the topic apply. An entry of a
    /// group that acknowledges is acknowledged when it is in the queue.
    ///
    /// Ends with `Ok` when the subscription ends. Cancel safe: an entry is read and queued in one step, so that a
    /// dropped `forward` takes none from the other members of a group.
    ///
    /// A handler writes `out.forward(self.bus.subscribe("quotes/acme").last(10)).await` with a bus of the crate
    /// `switchboard-message`.
    ///
    /// # Errors
    /// `Canceled` when the caller has disconnected, the status with which the call ended, the errors of the
    /// subscription, and `DataLoss` for entries that are missing.
    pub async fn forward<F: Forward<Message = T>>(&self, source: F) -> Result<()> {
        let mut entries = pin!(source.entries().await?);
        loop {
            let next = poll_fn(|cx| {
                ready!(self.queue.poll_push(cx, &mut None))?;
                match entries.as_mut().poll_next(cx) {
                    Poll::Ready(entry) => Poll::Ready(entry.transpose()),
                    // The caller may disconnect before the next entry.
                    Poll::Pending => self.queue.poll_closed(cx).map(Err),
                }
            });
            let Some(entry) = next.await? else { return Ok(()) };
            let message = self.packing.pack((self.encode)(entry.message(), self.codec)?);
            self.queue.push_ready(message)?;
            entry.forwarded();
        }
    }
}
