//! The publications that the engines have not read from the bus.
//!
//! A topic keeps a limited number of entries for a reader that is behind. A client sends thousands of publications in
//! one piece, faster than the tasks that read the bus run: without a bound, subscribers would miss the oldest. And the
//! bus keeps no order between topics. So a client waits until every engine with subscribers has read publications: its
//! own after [`OPEN_MAX`] of them, and before one to another topic; those of all clients before its subscriptions
//! change.

use super::{Shared, adapter::RespAdapter, feed::Command};
use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    task::{Context, Waker},
};
use switchboard_core::runtime;
use switchboard_fanout::{Handle, NotSent, SubscriberId};

/// Publications that engines may not have read: half of the entries that a topic keeps by default.
const OPEN_MAX: u64 = 512;

/// The publications of all clients, and the engines that read them.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Number of the newest publication. It is counted after it was appended.
    newest: AtomicU64,
    /// Number of a publication that all readers have read; they may have read later ones.
    read: AtomicU64,
    /// Number of readers: without any, no client waits.
    readers: AtomicUsize,
    /// Set if clients wait.
    has_waiting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    readers: Vec<Arc<Progress>>,
    /// Clients that wait, the one with the oldest publication first: a reader looks at those that continue alone.
    waiting: BinaryHeap<Waiting>,
}

/// A client that waits until the publication with this number is read.
#[derive(Debug)]
struct Waiting {
    number: u64,
    engine: Handle<RespAdapter>,
    client: SubscriberId,
}

impl Ord for Waiting {
    /// The greatest has the least number.
    fn cmp(&self, other: &Waiting) -> Ordering {
        other.number.cmp(&self.number)
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.number == other.number
    }
}

impl Eq for Waiting {}

/// The progress of a reader.
#[derive(Debug)]
struct Progress {
    /// Number of the newest publication that it has read.
    read: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// A task that reads the bus for an engine. Leaves the window when it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    progress: Arc<Progress>,
    shared: Arc<Shared>,
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the newest publication.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Acquire)
    }

    /// Counts a publication that the bus has accepted, and returns its number.
    pub(super) fn count(&self) -> u64 {
        self.newest.fetch_add(1, AcqRel).wrapping_add(1)
    }

    /// Returns whether so many publications are open that a client waits for its own, which has this number.
    pub(super) fn is_full(&self, number: u64) -> bool {
        let is_far = |read: u64| number.saturating_sub(read) >= OPEN_MAX;
        self.has_readers() && is_far(self.read.load(Acquire)) && is_far(self.refresh())
    }

    /// Returns whether all engines have read the publication with this number.
    pub(super) fn is_read(&self, number: u64) -> bool {
        !self.has_readers() || self.read.load(Acquire) >= number || self.refresh() >= number
    }

    fn has_readers(&self) -> bool {
        self.readers.load(Acquire) > 0
    }

    /// Reads the progress of all readers.
    fn refresh(&self) -> u64 {
        self.store_read(&self.lock())
    }

    fn store_read(&self, state: &State) -> u64 {
        let read = state.readers.iter().map(|reader| reader.read.load(Acquire)).min();
        let read = read.unwrap_or_else(|| self.newest.load(Acquire));
        self.read.fetch_max(read, AcqRel);
        read
    }

    /// Makes a client wait until a publication is read: its engine gets [`Command::Continue`] then.
    pub(super) fn wait(&self, number: u64, engine: &Handle<RespAdapter>, client: SubscriberId) {
        let mut state = self.lock();
        state.waiting.push(Waiting { number, engine: engine.clone(), client });
        self.has_waiting.store(true, Release);
        // A reader that has read everything does not look again by itself.
        for reader in state.readers.iter().filter(|reader| reader.read.load(Acquire) < number) {
            if let Some(waker) = reader.waker().take() {
                waker.wake();
            }
        }
        drop(state);
        self.release();
    }

    /// Continues the clients whose publications are read.
    fn release(&self) {
        let mut state = self.lock();
        let read = self.store_read(&state);
        let mut done = Vec::new();
        while let Some(first) = state.waiting.peek_mut().filter(|first| first.number <= read) {
            done.push(PeekMut::pop(first));
        }
        self.has_waiting.store(!state.waiting.is_empty(), Release);
        drop(state);
        for Waiting { engine, client, .. } in done {
            if let Err(NotSent::Full(command)) = engine.try_send(Command::Continue(client)) {
                runtime::spawn(async move {
                    // An engine that has ended has closed the client.
                    let _ = engine.send(command).await;
                });
            }
        }
    }

    /// Adds a reader; `shared` has this window. What was published before is none of its concern.
    pub(super) fn enter(shared: &Arc<Shared>) -> Reader {
        let window = &shared.window;
        let read = AtomicU64::new(window.newest.load(Acquire));
        let progress = Arc::new(Progress { read, waker: Mutex::default() });
        let mut state = window.lock();
        state.readers.push(progress.clone());
        window.readers.store(state.readers.len(), Release);
        drop(state);
        Reader { progress, shared: shared.clone() }
    }
}

impl Progress {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Returns the number of the newest publication, before the bus is polled.
    pub(super) fn newest(&self) -> u64 {
        self.shared.window.newest()
    }

    /// Records that the bus had no more entries when it was polled after the publication with this number.
    pub(super) fn has_read(&self, number: u64, cx: &Context<'_>) {
        let window = &self.shared.window;
        *self.progress.waker() = Some(cx.waker().clone());
        self.progress.read.store(number, Release);
        if window.has_waiting.load(Acquire) {
            window.release();
            // A client that waits for a later one may not have found the waker.
            if self.newest() != number {
                cx.waker().wake_by_ref();
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let window = &self.shared.window;
        let mut state = window.lock();
        state.readers.retain(|reader| !Arc::ptr_eq(reader, &self.progress));
        window.readers.store(state.readers.len(), Release);
        drop(state);
        window.release();
    }
}
