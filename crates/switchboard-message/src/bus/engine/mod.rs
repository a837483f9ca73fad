//! A bus with an engine: publications go to the broker, and each topic with a subscription in this process has a
//! mirror, a log of this process that follows the broker's.
//!
//! ```text
//! publish ─► Broker::append
//! Mailbox ─► MirrorTopic ─► log of the topic, at the broker's positions ─► subscriptions
//!               └─ a hole, or an interruption: subscribe again, Broker::read, gaps for entries that are gone
//! ```

mod mirror;
mod subscription;

pub(super) use subscription::{EngineStart, EngineSubscription};

use super::{local::Local, local_subscription::LocalItem};
use crate::{
    broker::{Broker, ReadFrom},
    log::{Position, Publication, Taken, Topic},
};
use mirror::MirrorTopic;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};
use switchboard_core::Result;
use switchboard_wire::{Code, Retry, Status};
use tokio::sync::Semaphore;

/// Reads and subscriptions that repair mirrors at a time: an engine that returns is not flooded by all topics.
const REPAIRS_MAX: usize = 32;

/// A broker, and the topics that this process follows.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) broker: Arc<dyn Broker>,
    topics: Mutex<HashMap<Topic, Arc<MirrorTopic>>>,
    repairs: Semaphore,
    /// The engine was reported as away: topics do not report this one by one.
    is_away: AtomicBool,
}

impl Engine {
    pub(super) fn new(broker: Arc<dyn Broker>) -> Engine {
        let (topics, repairs) = (Mutex::default(), Semaphore::new(REPAIRS_MAX));
        Engine { broker, topics, repairs, is_away: AtomicBool::new(false) }
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, Arc<MirrorTopic>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes to the broker.
    pub(super) async fn append(&self, topic: &Topic, publications: Vec<Publication>) -> Result<Position> {
        let is_repeatable = self.broker.capabilities().drops_duplicates
            && publications.iter().all(|publication| !publication.id.is_empty());
        let appended = self.broker.append(topic, publications).await;
        appended.inspect(|_| self.note_response()).map_err(|status| {
            match is_repeatable && status.code() == Code::Unavailable {
                true => status.with_retry(Retry::Safe),
                false => status,
            }
        })
    }

    /// Reads a page of kept entries; returns whether more may follow.
    pub(super) async fn read(
        &self,
        local: &Local,
        topic: &Topic,
        from: ReadFrom,
        entries_max: usize,
    ) -> Result<(Vec<LocalItem>, bool)> {
        let page = self.broker.read(topic, from, entries_max).await?;
        let last = page.entries.last().map(|entry| entry.position.offset).max(page.through);
        let has_more = last.is_some_and(|last| last < page.head.offset);
        let gap = page.missing.map(|gap| LocalItem::Taken(Taken::Gap(gap)));
        let entries = page.entries.into_iter().map(|entry| subscription::item(local, topic, entry));
        Ok((gap.into_iter().chain(entries).collect(), has_more))
    }

    /// Logs an error of a topic that is followed.
    fn report(&self, topic: &Topic, status: &Status) {
        let is_known = status.code() == Code::Unavailable && self.is_away.swap(true, Ordering::Relaxed);
        if !is_known {
            tracing::warn!(
                target: "switchboard::bus", %topic, engine = self.broker.name(),
                "a topic of the engine is not followed at present: {status}"
            );
        }
    }

    /// Notes that the engine responds.
    fn note_response(&self) {
        self.is_away.store(false, Ordering::Relaxed);
    }

    /// Returns the error for an operation that engines do not have.
    pub(super) fn unimplemented(&self, operation: &str) -> Status {
        let text = format!("{operation} is not supported by the engine {}", self.broker.name());
        Status::unimplemented(text)
    }
}

/// Interest of one subscription in a topic. The last one ends its mirror.
#[derive(Debug)]
struct Interest {
    local: Arc<Local>,
    topic: Arc<MirrorTopic>,
}

impl Interest {
    /// Registers a subscription of a topic.
    ///
    /// # Errors
    /// `ResourceExhausted` at the number of topics that the engine follows.
    fn new(local: &Arc<Local>, topic: &Topic) -> Result<Interest> {
        let Some(engine) = &local.engine else { return Err(Status::internal("the bus has no engine")) };
        let mut topics = engine.topics();
        let max = engine.broker.capabilities().topics_max;
        if topics.len() >= max && !topics.contains_key(topic) {
            let text = format!(
                "topic \"{topic}\" cannot be followed; the limit of the engine {} is topics_max={max}",
                engine.broker.name()
            );
            return Err(Status::resource_exhausted(text));
        }
        let weak: Weak<Local> = Arc::downgrade(local);
        let mirror = topics.entry(topic.clone()).or_insert_with(|| MirrorTopic::new(topic.clone(), weak));
        mirror.add_reader();
        Ok(Interest { local: local.clone(), topic: mirror.clone() })
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let Some(engine) = &self.local.engine else { return };
        let mut topics = engine.topics();
        if self.topic.remove_reader() {
            topics.remove(self.topic.topic());
            // Under the lock: a later subscription to the topic comes after it.
            engine.broker.unsubscribe(self.topic.topic());
        }
    }
}
