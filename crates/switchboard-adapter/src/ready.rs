//! Feeds that have entries: the bus wakes the engine with their index, and there is no queue between both.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};

/// Feeds that have entries.
pub(crate) struct Ready {
    feeds: Mutex<Vec<u32>>,
    len: AtomicUsize,
    /// Wakes the engine.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Ready {
    /// `wake` sends the engine a command. It may be lost in a full mailbox: the engine looks here after every other
    /// command, too.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Ready> {
        Arc::new(Ready { feeds: Mutex::default(), len: AtomicUsize::new(0), wake: Box::new(wake) })
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
            (self.wake)();
        }
    }

    /// Moves all to `into`.
    pub(crate) fn take(&self, into: &mut Vec<u32>) {
        if self.len.load(Ordering::Acquire) > 0 {
            let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
            into.append(&mut feeds);
            self.len.store(0, Ordering::Release);
        }
    }
}

/// Waker of a feed.
pub(crate) struct FeedWaker {
    index: u32,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl FeedWaker {
    pub(crate) fn new(index: u32, ready: &Arc<Ready>) -> Arc<FeedWaker> {
        Arc::new(FeedWaker { index, is_queued: AtomicBool::new(false), ready: ready.clone() })
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }

    /// Has the next wake queue the feed again.
    pub(crate) fn clear(&self) {
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
