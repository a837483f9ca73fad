//! Subscriptions that senders and pushers pass on to callers, see [`Forward`].

use super::{Delivery, Message, Subscribe, Subscription};
use crate::log::Gap;
use bytes::Bytes;
use futures_core::Stream;
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};
use switchboard_core::{
    Result,
    forward::{Forward, ForwardEntry},
};
use switchboard_wire::{Codec, Status};

type OnGap = Box<dyn FnMut(&Gap) -> Result<()> + Send>;

/// A subscription to be forwarded, with a function for gaps; see [`Subscribe::on_gap`].
#[must_use = "it has no effect before it is forwarded"]
pub struct WithGaps<S> {
    subscription: S,
    on_gap: OnGap,
}

/// The entries of a forwarded subscription.
pub struct ForwardEntries<T> {
    subscription: Subscription<T>,
    on_gap: Option<OnGap>,
}

impl<'a, T> Subscribe<'a, T> {
    /// Calls `on_gap` for each gap when the subscription is forwarded with
    /// [`Sender::forward`](switchboard_core::Sender::forward) or
    /// [`Pusher::forward`](switchboard_core::Pusher::forward): `Ok` continues with the next entry, and an error ends
    /// it. Without such a function a gap ends it with `DataLoss`.
    ///
    /// ```
    /// # use switchboard_core::{Result, Sender};
    /// # use switchboard_message::Bus;
    /// # async fn watch(bus: Bus, out: Sender<f64>) -> Result<()> {
    /// let quotes = bus.subscribe("quotes/acme").on_gap(|gap| {
    ///     eprintln!("{gap}");
    ///     Ok(())
    /// });
    /// out.forward(quotes).await
    /// # }
    /// ```
    pub fn on_gap(self, on_gap: impl FnMut(&Gap) -> Result<()> + Send + 'static) -> WithGaps<Self> {
        WithGaps { subscription: self, on_gap: Box::new(on_gap) }
    }
}

impl<T> Subscription<T> {
    /// Calls `on_gap` for each gap when the subscription is forwarded; see [`Subscribe::on_gap`].
    pub fn on_gap(self, on_gap: impl FnMut(&Gap) -> Result<()> + Send + 'static) -> WithGaps<Self> {
        WithGaps { subscription: self, on_gap: Box::new(on_gap) }
    }
}

impl<T: Send> Forward for Subscription<T> {
    type Message = T;
    type Entry = Message<T>;
    type Entries = ForwardEntries<T>;

    async fn entries(self) -> Result<ForwardEntries<T>> {
        Ok(ForwardEntries { subscription: self, on_gap: None })
    }
}

impl<T: Send> Forward for Subscribe<'_, T> {
    type Message = T;
    type Entry = Message<T>;
    type Entries = ForwardEntries<T>;

    async fn entries(self) -> Result<ForwardEntries<T>> {
        self.await?.entries().await
    }
}

impl<S, T> Forward for WithGaps<S>
where
    S: Forward<Message = T, Entry = Message<T>, Entries = ForwardEntries<T>> + Send,
{
    type Message = T;
    type Entry = Message<T>;
    type Entries = ForwardEntries<T>;

    async fn entries(self) -> Result<ForwardEntries<T>> {
        let entries = self.subscription.entries().await?;
        Ok(ForwardEntries { on_gap: Some(self.on_gap), ..entries })
    }
}

impl<T> Stream for ForwardEntries<T> {
    type Item = Result<Message<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let gap = match ready!(Pin::new(&mut self.subscription).poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                Some(Ok(Delivery::Entry(message))) => return Poll::Ready(Some(Ok(message))),
                Some(Ok(Delivery::Gap(gap))) => gap,
                Some(Ok(Delivery::Recovered)) => continue,
            };
            let handled = match &mut self.on_gap {
                Some(on_gap) => on_gap(&gap),
                None => Err(Status::data_loss(format!("{gap}; subscribe again"))),
            };
            if let Err(status) = handled {
                return Poll::Ready(Some(Err(status)));
            }
        }
    }
}

impl<T> ForwardEntry for Message<T> {
    type Message = T;

    fn topic(&self) -> &str {
        Message::topic(self).name()
    }

    fn encoded(&self) -> (Codec, &Bytes) {
        (self.entry().codec(), self.entry().bytes())
    }

    fn message(&self) -> &T {
        self
    }

    fn forwarded(&self) {
        // False for a subscription that does not acknowledge.
        let _ = self.ack();
    }
}

impl<S: fmt::Debug> fmt::Debug for WithGaps<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithGaps").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ForwardEntries<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardEntries").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
