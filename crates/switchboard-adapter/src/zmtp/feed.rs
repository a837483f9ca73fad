//! The entries of the bus for an engine, and its jobs for PULL peers.

use super::{Pipeline, adapter::ZmtpAdapter, interests::TaskId};
use crate::feed::{self, Feed, Source, WaitingBytes};
use bytes::Bytes;
use std::sync::Arc;
use switchboard_core::{Caller, Result};
use switchboard_fanout::{Handle, SubscriberId};
use switchboard_message::{Bus, Gap, Message, Pattern, Subscription, Topic};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A message to an engine.
#[derive(Debug)]
pub(super) enum Command {
    /// An entry for the subscribers that match its topic, with the task that has read it, and its part of the entries
    /// that may wait.
    Entry(TaskId, Message<Bytes>, OwnedSemaphorePermit),
    /// An entry for one of the PULL peers.
    Job(Message<Bytes>),
    /// Entries that the bus dropped before they were read.
    Missed(Gap),
    /// The frames of a response to a call of a peer.
    Response(SubscriberId, Vec<Bytes>),
    /// The last message of a peer has found room: the peer is read again.
    Resume(SubscriberId),
    /// A message of the application to a peer of its ROUTER, with the room that it takes.
    Route(SubscriberId, Vec<Bytes>, OwnedSemaphorePermit),
    /// The result of a check of the credentials of a peer: its caller.
    Verdict(SubscriberId, Result<Arc<Caller>>),
}

/// Sends the entries of some topics of the bus to an engine, as the task `id`. It has begun when this function returns:
/// no later entry is missed.
///
/// # Errors
/// That of the bus, such as its limit of subscriptions.
pub(super) fn entries(
    bus: &Bus,
    topics: Topics,
    id: TaskId,
    waiting: WaitingBytes,
    engine: Handle<ZmtpAdapter>,
) -> Result<Feed> {
    Feed::spawn("zmtp", engine, Entries { bus: bus.clone(), topics, id, waiting })
}

/// Sends the entries of a group to an engine, each as soon as there is a permit for it.
///
/// # Errors
/// That of the bus.
pub(super) fn jobs(
    bus: &Bus,
    pipeline: &Pipeline,
    engine: Handle<ZmtpAdapter>,
    permits: Arc<Semaphore>,
) -> Result<Feed> {
    Feed::spawn("zmtp", engine, Jobs { bus: bus.clone(), pipeline: pipeline.clone(), permits })
}

/// Topics of a task.
#[derive(Clone, Debug)]
pub(super) enum Topics {
    One(Topic),
    Pattern(Pattern),
}

/// The entries of some topics.
struct Entries {
    bus: Bus,
    topics: Topics,
    id: TaskId,
    waiting: WaitingBytes,
}

impl Source for Entries {
    type Command = Command;

    fn begin(&self) -> Result<Subscription<Bytes>> {
        feed::begin(match &self.topics {
            Topics::One(topic) => self.bus.subscribe_encoded(topic),
            Topics::Pattern(pattern) => self.bus.subscribe_encoded(pattern.clone()),
        })
    }

    async fn entry(&self, entry: Message<Bytes>) -> Option<Command> {
        let permit = self.waiting.admit(&entry).await?;
        Some(Command::Entry(self.id, entry, permit))
    }

    fn missed(&self, gap: Gap) -> Command {
        Command::Missed(gap)
    }
}

/// Feed of the jobs of a group.
struct Jobs {
    bus: Bus,
    pipeline: Pipeline,
    /// The adapter adds a permit when a peer has a job.
    permits: Arc<Semaphore>,
}

impl Source for Jobs {
    type Command = Command;

    fn begin(&self) -> Result<Subscription<Bytes>> {
        feed::begin(self.pipeline.member(&self.bus))
    }

    async fn ready(&self) -> Option<()> {
        self.permits.acquire().await.ok()?.forget();
        Some(())
    }

    fn unused(&self) {
        self.permits.add_permits(1);
    }

    async fn entry(&self, entry: Message<Bytes>) -> Option<Command> {
        Some(Command::Job(entry))
    }

    fn missed(&self, gap: Gap) -> Command {
        Command::Missed(gap)
    }
}
