//! Feeds that have entries: the bus wakes the engine with their index, and there is no queue between both.

use super::adapter::{Command, MqttAdapter};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};
use switchboard_fanout::Handle;

/// Feeds that have entries.
pub(super) struct Ready {
    feeds: Mutex<Vec<u32>>,
    len: AtomicUsize,
    engine: Handle<MqttAdapter>,
}

impl Ready {
    pub(super) fn new(engine: Handle<MqttAdapter>) -> Arc<Ready> {
        Arc::new(Ready { feeds: Mutex::default(), len: AtomicUsize::new(0), engine })
    }

    /// Adds a feed; the first one wakes the engine.
    fn push(&self, index: u32) {
        let is_first = {
            let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
            feeds.push(index);
            self.len.store(feeds.len(), Ordering::Release);
            feeds.len() == 1
        };
        if is_first {
            // The engine looks here after every other command, too: a full mailbox does not delay it.
            let _ = self.engine.try_send(Command::Ready);
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

/// Waker of a feed.
pub(super) struct FeedWaker {
    index: u32,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl FeedWaker {
    pub(super) fn new(index: u32, ready: &Arc<Ready>) -> Arc<FeedWaker> {
        Arc::new(FeedWaker { index, is_queued: AtomicBool::new(false), ready: ready.clone() })
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }

    /// Has the next wake queue the feed again.
    pub(super) fn clear(&self) {
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
