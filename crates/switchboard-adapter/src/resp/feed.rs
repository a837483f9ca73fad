//! The entries of the bus for an engine, and what other tasks send to it.

use super::{
    Shared,
    adapter::RespAdapter,
    window::{Reader, Window},
};
use crate::feed::{self, Feed, Source, WaitingBytes};
use bytes::Bytes;
use std::{sync::Arc, task::Context};
use switchboard_core::{Caller, Result};
use switchboard_fanout::{Handle, SubscriberId};
use switchboard_message::{Gap, Message, Pattern, Subscription};
use switchboard_wire::Metadata;
use tokio::sync::OwnedSemaphorePermit;

/// A message to an engine.
#[derive(Debug)]
pub(super) enum Command {
    /// An entry for the clients that subscribe to its topic, with its part of the entries that may wait.
    Entry(Message<Bytes>, OwnedSemaphorePermit),
    /// Entries that the bus dropped before they were read.
    Missed(Gap),
    /// The result of a check of credentials: the form that was accepted, and its caller.
    Authenticated(SubscriberId, Result<(Metadata, Arc<Caller>)>),
    /// The result of a call: JSON.
    Called(SubscriberId, Result<Bytes>),
    /// The result of a publication that has waited for room in its topic.
    Published(SubscriberId, Bytes, Result<()>),
    /// The engines have read the publications of a client.
    Continue(SubscriberId),
}

/// Sends all entries of the bus to an engine. It has begun when this function returns: no later entry is missed.
///
/// # Errors
/// That of the bus, such as its limit of subscriptions.
pub(super) fn entries(shared: &Arc<Shared>, engine: Handle<RespAdapter>) -> Result<Feed> {
    let source =
        Entries { reader: Window::enter(shared), shared: shared.clone(), waiting: WaitingBytes::new() };
    Feed::spawn("redis", engine, source)
}

/// All entries.
struct Entries {
    shared: Arc<Shared>,
    waiting: WaitingBytes,
    reader: Reader,
}

impl Source for Entries {
    type Command = Command;

    fn begin(&self) -> Result<Subscription<Bytes>> {
        feed::begin(self.shared.bus.subscribe_encoded(Pattern::prefix("")))
    }

    async fn entry(&self, entry: Message<Bytes>) -> Option<Command> {
        let permit = self.waiting.admit(&entry).await?;
        Some(Command::Entry(entry, permit))
    }

    fn missed(&self, gap: Gap) -> Command {
        Command::Missed(gap)
    }

    fn mark(&self) -> u64 {
        self.reader.newest()
    }

    fn caught_up(&self, mark: u64, cx: &Context<'_>) {
        self.reader.has_read(mark, cx);
    }
}
