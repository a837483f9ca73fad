//! The topics of a bus of this process, as an engine of other buses.

use super::{Bus, Delivery, Subscription};
use crate::{
    broker::{Accepted, Broker, BrokerFuture, Capabilities, LiveEvent, Mailbox, Page, ReadFrom, StoredEntry},
    log::{Gap, GapReason, Position, Publication, Topic},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::task::JoinHandle;

/// An engine whose topics are those of a [`Bus`] of this process: for tests, and for buses with limits or codecs of
/// their own on the same topics.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use switchboard_message::{Bus, Delivery, Embedded, TopicOptions};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// let kept = TopicOptions::new().history(1_000, Duration::MAX);
/// let topics = Bus::builder().topics(">", kept)?.build();
/// let one = Bus::builder().engine(Arc::new(Embedded::new(topics.clone()))).build();
/// let other = Bus::builder().engine(Arc::new(Embedded::new(topics))).build();
/// let mut quotes = other.subscribe::<f64>("quotes/acme").await?;
/// one.publish("quotes/acme", &12.5).await?;
/// assert!(matches!(quotes.next().await?, Some(Delivery::Entry(quote)) if *quote == 12.5));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Embedded {
    bus: Bus,
    followers: Mutex<HashMap<Topic, JoinHandle<()>>>,
}

impl Embedded {
    /// Creates an engine of the topics of a bus.
    pub fn new(bus: Bus) -> Embedded {
        Embedded { bus, followers: Mutex::default() }
    }

    fn followers(&self) -> MutexGuard<'_, HashMap<Topic, JoinHandle<()>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self, topic: &Topic) -> Option<Position> {
        self.bus.topic_stats(topic).map(|stats| stats.head)
    }

    async fn read_page(&self, topic: &Topic, from: ReadFrom, entries_max: usize) -> Result<Page> {
        // A subscription, so that the topic exists, and has a head.
        let subscription = self.bus.subscribe_encoded(topic);
        let subscription = match from {
            ReadFrom::After(position) => subscription.after(position),
            ReadFrom::Last(entries) => subscription.last(entries),
            ReadFrom::Since(age) => subscription.since(age),
        };
        let mut subscription = subscription.await?;
        let (mut missing, mut entries) = (None, Vec::new());
        let mut previous = match from {
            ReadFrom::After(position) => position.offset,
            _ => 0,
        };
        while entries.len() < entries_max {
            match super::history::poll_ready(&mut subscription).transpose()? {
                Some(Delivery::Entry(message)) => {
                    let position = message.position();
                    let publication = message.entry().publication(self.now());
                    entries.push(StoredEntry::new(position, previous, Some(publication)));
                    previous = position.offset;
                }
                Some(Delivery::Gap(gap)) if entries.is_empty() => {
                    previous = gap.range.end.saturating_sub(1);
                    missing = Some(merged(missing, gap));
                }
                Some(Delivery::Recovered) => {}
                Some(Delivery::Gap(_)) | None => break,
            }
        }
        let head = self.head(topic).unwrap_or_default();
        Ok(Page::new(head, missing, entries))
    }

    fn now(&self) -> u64 {
        self.bus.local().map_or(0, |local| local.now())
    }
}

/// Joins two gaps that follow each other.
fn merged(first: Option<Gap>, second: Gap) -> Gap {
    match first {
        None => second,
        Some(first) => {
            let missing =
                first.missing.zip(second.missing).map(|(first, second)| first.saturating_add(second));
            Gap { range: first.range.start..second.range.end, missing, ..first }
        }
    }
}

impl Broker for Embedded {
    fn name(&self) -> &str {
        "embedded"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            appends_batches: true,
            has_dense_offsets: true,
            has_history: true,
            has_history_per_topic: true,
            drops_duplicates: true,
            ..Capabilities::new(Accepted::Memory)
        }
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        Box::pin(async move { self.bus.publish_batch_encoded(topic, publications).await })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        _known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        Box::pin(async move {
            let subscription = self.bus.subscribe_encoded(topic).await?;
            let head = subscription.begins_after().unwrap_or_default();
            let following = tokio::spawn(follow(self.bus.clone(), subscription, head, to));
            if let Some(before) = self.followers().insert(topic.clone(), following) {
                before.abort();
            }
            Ok(head)
        })
    }

    fn unsubscribe(&self, topic: &Topic) {
        if let Some(follower) = self.followers().remove(topic) {
            follower.abort();
        }
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        Box::pin(self.read_page(topic, from, entries_max))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.followers().values().for_each(JoinHandle::abort);
    }
}

/// Delivers the entries of a topic; a gap shows by the next entry.
async fn follow(bus: Bus, mut subscription: Subscription<Bytes>, head: Position, to: Mailbox) {
    let mut previous = head.offset;
    loop {
        match subscription.next().await {
            Ok(Some(Delivery::Entry(message))) => {
                let position = message.position();
                let now = bus.local().map_or(0, |local| local.now());
                let publication = message.entry().publication(now);
                to.deliver(LiveEvent::Entry(StoredEntry::new(position, previous, Some(publication))));
                previous = position.offset;
            }
            Ok(Some(Delivery::Gap(gap))) if gap.reason == GapReason::Epoch => previous = 0,
            Ok(Some(Delivery::Gap(gap))) => previous = gap.range.end.saturating_sub(1),
            Ok(Some(Delivery::Recovered)) => {}
            Ok(None) => return to.deliver(LiveEvent::Interrupted(Status::unavailable("the bus has ended"))),
            Err(status) => return to.deliver(LiveEvent::Interrupted(status)),
        }
    }
}
