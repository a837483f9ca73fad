//! Messages of other tasks to the topics of an engine.

use crate::{disconnect::Disconnect, hub::Closer};
use bytes::Bytes;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Wake,
};
use switchboard::{Result, runtime};
use switchboard_fanout::{Adapter, Handle, NotSent, SubscriberId};
use switchboard_message::Subscription;

/// A message to the topics of an engine, which the adapter passes to [`Feeds::command`](super::Feeds::command).
#[derive(Debug)]
pub struct FeedCommand(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    /// Topics have entries.
    Ready,
    /// The merge window of a feed has ended.
    Merged { feed: u32, generation: u32 },
    /// The subscription of a feed has begun.
    Begun { feed: u32, generation: u32, result: Result<Subscription<Bytes>> },
    /// The subscription of a subscriber that catches up has begun.
    CatchUp { feed: u32, generation: u32, id: SubscriberId, result: Result<Subscription<Bytes>> },
    /// A connection is to be closed.
    Close(SubscriberId, Disconnect),
}

/// The mailbox of an engine.
pub(super) trait Sender: Send + Sync + 'static {
    /// Returns the command if the mailbox is full.
    fn try_send(&self, command: FeedCommand) -> bool;
    fn send(&self, command: FeedCommand) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl<A: Adapter<Command: From<FeedCommand>>> Sender for Handle<A> {
    fn try_send(&self, command: FeedCommand) -> bool {
        !matches!(Handle::try_send(self, command.into()), Err(NotSent::Full(_)))
    }

    fn send(&self, command: FeedCommand) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let engine = self.clone();
        Box::pin(async move {
            // An engine that has ended has no subscribers.
            let _ = engine.send(command.into()).await;
        })
    }
}

/// Feeds that have entries.
pub(super) struct Ready {
    feeds: Mutex<Vec<u32>>,
    len: AtomicUsize,
    engine: Arc<dyn Sender>,
}

impl Ready {
    pub(super) fn new(engine: Arc<dyn Sender>) -> Ready {
        Ready { feeds: Mutex::default(), len: AtomicUsize::new(0), engine }
    }

    /// Adds a feed; the first one wakes the engine.
    pub(super) fn push(&self, index: u32) {
        let is_first = {
            let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
            feeds.push(index);
            self.len.store(feeds.len(), Ordering::Release);
            feeds.len() == 1
        };
        if is_first {
            // The engine looks here after every other command, too: a full mailbox does not delay it.
            self.engine.try_send(FeedCommand(Kind::Ready));
        }
    }

    /// Moves all to `into`.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        if self.len.load(Ordering::Acquire) > 0 {
            let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
            into.append(&mut feeds);
            self.len.store(0, Ordering::Release);
        }
    }
}

/// Wakes an engine for one feed.
pub(super) struct FeedWaker {
    index: u32,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl FeedWaker {
    pub(super) fn new(index: u32, ready: Arc<Ready>) -> FeedWaker {
        FeedWaker { index, is_queued: AtomicBool::new(false), ready }
    }

    /// Lets the feed be queued again; called before it is polled, so that no wake-up is lost.
    pub(super) fn rearm(&self) {
        self.is_queued.store(false, Ordering::Release);
    }
}

impl Wake for FeedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.index);
        }
    }
}

/// Closes a connection of an engine: the adapter gets [`Notice::Close`](super::Notice::Close).
pub struct EngineCloser {
    engine: Arc<dyn Sender>,
    id: SubscriberId,
}

impl EngineCloser {
    /// Creates the closer of a connection, for [`Hub::connect`](crate::Hub::connect).
    pub fn new<A: Adapter<Command: From<FeedCommand>>>(engine: &Handle<A>, id: SubscriberId) -> EngineCloser {
        EngineCloser { engine: Arc::new(engine.clone()), id }
    }
}

impl Closer for EngineCloser {
    fn close(&self, order: Disconnect) {
        let command = || FeedCommand(Kind::Close(self.id, order.clone()));
        if !self.engine.try_send(command()) {
            runtime::spawn(self.engine.send(command()));
        }
    }
}

impl fmt::Debug for EngineCloser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EngineCloser").field(&self.id).finish()
    }
}
