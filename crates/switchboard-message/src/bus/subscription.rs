//! Subscriptions: streams of entries, gaps and outcomes.

use super::{
    Bus, Delivery, Message,
    engine::EngineSubscription,
    local_subscription::{LocalItem, LocalSubscription},
    remote::{RemoteEvent, RemoteStream},
};
use crate::log::{Checkpoint, Position, Taken};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_core::Result;
use switchboard_wire::Codec;

/// A stream of the entries of a topic or of all topics of a pattern; made by [`Bus::subscribe`].
///
/// Entries of a topic arrive in their order. Dropping it ends the subscription; unacknowledged entries then go to the
/// other members of the group.
///
/// ```
/// # use switchboard_message::{Bus, Delivery};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// let bus = Bus::new();
/// let mut lines = bus.subscribe::<String>("log/*").await?;
/// bus.publish("log/web", &"started".to_owned()).await?;
/// # bus.publish("log/web", &"stopped".to_owned()).await?;
/// while let Some(delivery) = lines.next().await? {
///     match delivery {
///         Delivery::Entry(line) if *line == "stopped" => break,
///         Delivery::Entry(line) => println!("{}: {}", line.topic(), *line),
///         Delivery::Gap(gap) => println!("{gap}"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Subscription<T> {
    bus: Bus,
    decode: fn(Codec, Bytes) -> Result<T>,
    feed: Feed,
}

/// Where the entries come from.
enum Feed {
    Engine(Box<EngineSubscription>),
    Local(Box<LocalSubscription>),
    Remote(RemoteStream),
    /// The subscription has ended.
    Ended,
}

// No field is pinned in place.
impl<T> Unpin for Subscription<T> {}

impl<T> Subscription<T> {
    pub(super) fn local(
        bus: &Bus,
        local: Box<LocalSubscription>,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Subscription<T> {
        Subscription { bus: bus.clone(), decode, feed: Feed::Local(local) }
    }

    pub(super) fn engine(
        bus: &Bus,
        engine: Box<EngineSubscription>,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Subscription<T> {
        Subscription { bus: bus.clone(), decode, feed: Feed::Engine(engine) }
    }

    pub(super) fn remote(
        bus: &Bus,
        events: RemoteStream,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Subscription<T> {
        Subscription { bus: bus.clone(), decode, feed: Feed::Remote(events) }
    }

    /// Returns the next item; `None` after the subscription was closed.
    ///
    /// Cancel safe: a dropped `next` loses no item. The other members of a group receive the entries that arrive before
    /// the next call.
    ///
    /// # Errors
    /// `ResourceExhausted` when the topic closes slow readers and this one was too slow: the subscription has ended.
    /// The error of the codec for an entry that cannot be decoded; the next call continues with the entry after it. For
    /// topics of another process, also errors after which it does not try again, such as `PermissionDenied`: the
    /// subscription has ended.
    pub async fn next(&mut self) -> Result<Option<Delivery<T>>> {
        let mut next = Next { subscription: self, is_pending: false };
        poll_fn(|cx| next.poll(cx)).await.transpose()
    }

    /// Returns the number of entries that this member has not acknowledged; 0 for topics of another process.
    pub fn unacknowledged(&self) -> usize {
        self.as_local().map_or(0, LocalSubscription::unacknowledged)
    }

    /// Returns the progress of a subscription to a pattern, for [`Subscribe::resume`](super::Subscribe::resume): behind
    /// the items that [`next`](Self::next) has returned. `None` for one topic, whose [positions](Message::position) say
    /// as much; after a start by time until its outcome was returned; and for topics of another process, which such a
    /// subscription resumes by itself.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.as_local()?.checkpoint()
    }

    /// Returns the checkpoint behind the outcome of the start: that of the first event of the service.
    #[doc(hidden)]
    pub fn next_checkpoint(&self) -> Option<&Checkpoint> {
        self.as_local()?.next_checkpoint()
    }

    /// Returns the position before the first entry, of a subscription to one topic of this process.
    #[doc(hidden)]
    pub fn begins_after(&self) -> Option<Position> {
        match &self.feed {
            Feed::Engine(engine) => Some(engine.position()),
            _ => self.as_local()?.position(),
        }
    }

    fn as_local(&self) -> Option<&LocalSubscription> {
        match &self.feed {
            Feed::Local(local) => Some(local),
            Feed::Engine(_) | Feed::Remote(_) | Feed::Ended => None,
        }
    }

    fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery<T>>>> {
        let (bus, decode) = (&self.bus, self.decode);
        match &mut self.feed {
            Feed::Engine(engine) => engine.poll_next(cx).map(|item| Some(delivery(item?, bus, decode))),
            Feed::Local(local) => local.poll_next(cx).map(|item| Some(delivery(item?, bus, decode))),
            Feed::Remote(events) => {
                let event = std::task::ready!(events.as_mut().poll_next(cx));
                Poll::Ready(match event {
                    Some(Ok(RemoteEvent::Entry(entry))) => {
                        Some(Message::decode_remote(*entry, bus, decode).map(Delivery::Entry))
                    }
                    Some(Ok(RemoteEvent::Gap(gap))) => Some(Ok(Delivery::Gap(gap))),
                    Some(Ok(RemoteEvent::Recovered)) => Some(Ok(Delivery::Recovered)),
                    Some(Err(status)) => {
                        self.feed = Feed::Ended;
                        Some(Err(status))
                    }
                    None => {
                        self.feed = Feed::Ended;
                        None
                    }
                })
            }
            Feed::Ended => Poll::Ready(None),
        }
    }
}

/// Decodes an item of a log of this process.
pub(super) fn delivery<T>(
    item: LocalItem,
    bus: &Bus,
    decode: fn(Codec, Bytes) -> Result<T>,
) -> Result<Delivery<T>> {
    match item {
        LocalItem::Recovered => Ok(Delivery::Recovered),
        LocalItem::Taken(Taken::Entry(taken)) => Message::decode(taken, bus, decode).map(Delivery::Entry),
        LocalItem::Taken(Taken::Gap(gap)) => Ok(Delivery::Gap(gap)),
        LocalItem::Taken(Taken::Closed(status)) => Err(status),
    }
}

/// A call of [`Subscription::next`].
struct Next<'a, T> {
    subscription: &'a mut Subscription<T>,
    is_pending: bool,
}

impl<T> Next<'_, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery<T>>>> {
        let polled = self.subscription.poll_delivery(cx);
        self.is_pending = polled.is_pending();
        polled
    }
}

impl<T> Drop for Next<'_, T> {
    fn drop(&mut self) {
        if self.is_pending
            && let Feed::Local(local) = &mut self.subscription.feed
            && local.is_group()
        {
            local.pass();
        }
    }
}

impl<T> Stream for Subscription<T> {
    type Item = Result<Delivery<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_delivery(cx)
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("bus", &self.bus).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Publication;

    #[tokio::test]
    async fn a_pattern_takes_one_batch_from_all_shards() {
        let bus = Bus::new();
        let mut all = bus.subscribe_encoded(">").await.unwrap();
        for (bytes, max) in [(40 << 10, 2), (0, 64)] {
            for topic in 0..640 {
                let topic = format!("t/{}", topic % 64);
                bus.publish_encoded(&topic, Publication::new(Codec::Raw, vec![0; bytes])).await.unwrap();
            }
            for _ in 0..640 {
                assert!(matches!(all.next().await, Ok(Some(Delivery::Entry(_)))));
                assert!(
                    all.as_local().unwrap().taken() < max,
                    "{bytes}: {}",
                    all.as_local().unwrap().taken()
                );
            }
        }
    }
}
