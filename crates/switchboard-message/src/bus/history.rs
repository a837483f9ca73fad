//! Entries that a topic keeps, in pages, without a subscription.

use super::{
    Bus, Delivery, Message, Side, Subscription,
    engine::Engine,
    local::Local,
    remote::{RemoteEvent, RemoteHistory, RemoteStart},
    subscription::delivery,
};
use crate::{
    broker::ReadFrom,
    log::{NameRef, Position, Topic},
};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Codec, Status};

/// Entries of a page, by default and at most.
const PAGE_ENTRIES: [usize; 2] = [100, 1_000];
/// Bytes of a page beside its last entry: such a page is within the default limit of a message.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// A page of a history to be read; see [`Bus::history`].
#[must_use = "a history is not read before it is awaited"]
pub struct ReadHistory<'a, T> {
    bus: &'a Bus,
    name: NameRef<'a>,
    decode: fn(Codec, Bytes) -> Result<T>,
    start: RemoteStart,
    limit: Option<usize>,
}

/// A page of a history.
#[derive(Debug)]
#[non_exhaustive]
pub struct HistoryPage<T> {
    /// The entries in their order, with the gaps before or between them.
    pub deliveries: Vec<Delivery<T>>,
    /// The page was limited: the topic may keep later entries. Read those [`after`](ReadHistory::after) the position of
    /// the last one.
    pub has_more: bool,
}

impl<'a, T> ReadHistory<'a, T> {
    pub(super) fn new(
        bus: &'a Bus,
        name: NameRef<'a>,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> ReadHistory<'a, T> {
        ReadHistory { bus, name, decode, start: RemoteStart::Head, limit: None }
    }

    /// Reads the entries after this position. The default is the newest ones.
    pub fn after(mut self, position: Position) -> Self {
        self.start = RemoteStart::After(position);
        self
    }

    /// Reads the entries that are not older than this.
    pub fn since(mut self, age: Duration) -> Self {
        self.start = RemoteStart::Since(age);
        self
    }

    /// Limits the entries of the page; default 100, at most 1,000. A page ends as well after 1 MiB.
    pub fn limit(mut self, entries: usize) -> Self {
        self.limit = Some(entries.max(1));
        self
    }

    async fn read(self) -> Result<HistoryPage<T>> {
        match &self.bus.side {
            Side::Local(local) => match local.engine_of(self.name.name) {
                Some(engine) => self.read_engine(local, engine).await,
                None => self.read_local().await,
            },
            Side::Remote(remote) => {
                let (topic, entries_max) = (self.name.name.to_owned(), self.limit);
                let request = RemoteHistory { topic, start: self.start, entries_max };
                let page = remote.bus.history(request).await?;
                let delivery = |event| match event {
                    RemoteEvent::Entry(entry) => {
                        Message::decode_remote(*entry, self.bus, self.decode).map(Delivery::Entry)
                    }
                    RemoteEvent::Gap(gap) => Ok(Delivery::Gap(gap)),
                    RemoteEvent::Recovered => Ok(Delivery::Recovered),
                };
                let deliveries = page.events.into_iter().map(delivery).collect::<Result<_>>()?;
                Ok(HistoryPage { deliveries, has_more: page.has_more })
            }
        }
    }

    async fn read_engine(self, local: &Local, engine: &Engine) -> Result<HistoryPage<T>> {
        let topic = Topic::new(self.name.name)?;
        let [default, max] = PAGE_ENTRIES;
        let limit = self.limit.map_or(default, |limit| limit.min(max));
        let from = match self.start {
            RemoteStart::After(position) => ReadFrom::After(position),
            RemoteStart::Since(age) => ReadFrom::Since(age),
            _ => ReadFrom::Last(limit),
        };
        let page = engine.read(local, &topic, from, limit).await?;
        let delivery = |item| delivery(item, self.bus, self.decode);
        let (items, has_more) = page;
        Ok(HistoryPage { deliveries: items.into_iter().map(delivery).collect::<Result<_>>()?, has_more })
    }

    async fn read_local(self) -> Result<HistoryPage<T>> {
        let topic = Topic::new(self.name.name)?;
        if self.bus.topic_stats(&topic).is_none() {
            let text = format!("topic \"{topic}\" not found: it has no entries and no subscriptions");
            return Err(Status::not_found(text));
        }
        let [default, max] = PAGE_ENTRIES;
        let limit = self.limit.map_or(default, |limit| limit.min(max));
        let subscribe = self.bus.subscribe_with(&topic, self.decode);
        let mut subscription = match self.start {
            RemoteStart::After(position) => subscribe.after(position),
            RemoteStart::Since(age) => subscribe.since(age),
            _ => subscribe.last(limit),
        }
        .await?;
        let mut page = HistoryPage { deliveries: Vec::new(), has_more: false };
        let (mut entries, mut gaps, mut bytes) = (0, 0, 0_usize);
        while let Some(delivery) = poll_ready(&mut subscription) {
            let delivery = delivery?;
            if usize::max(entries, gaps) >= limit || bytes >= PAGE_BYTES_MAX {
                page.has_more = matches!(delivery, Delivery::Entry(_) | Delivery::Gap(_));
                break;
            }
            match &delivery {
                Delivery::Entry(message) => {
                    entries += 1;
                    bytes = bytes.saturating_add(message.entry().bytes().len());
                    bytes = bytes.saturating_add(message.headers().encoded_len());
                }
                Delivery::Gap(_) => gaps += 1,
                Delivery::Recovered => continue,
            }
            page.deliveries.push(delivery);
        }
        Ok(page)
    }
}

/// Returns the next item, if there is one now: a subscription pends after the newest entry.
pub(crate) fn poll_ready<T>(subscription: &mut Subscription<T>) -> Option<Result<Delivery<T>>> {
    use futures_core::Stream;
    match Pin::new(subscription).poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => item,
        Poll::Pending => None,
    }
}

impl<'a, T: Send + 'a> IntoFuture for ReadHistory<'a, T> {
    type Output = Result<HistoryPage<T>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<HistoryPage<T>>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}

impl<T> fmt::Debug for ReadHistory<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHistory").field("topic", &self.name.name).finish_non_exhaustive()
    }
}
