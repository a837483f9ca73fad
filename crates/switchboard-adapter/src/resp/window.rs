//! A bound on the publications that the engines have not read from the bus.
//!
//! A topic keeps a limited number of entries for a reader that is behind. A client sends thousands of publications in
//! one piece, faster than the tasks that read the bus run: without a bound, subscribers would miss the oldest. So a
//! client waits after [`OPEN_MAX`] publications until every engine with subscribers has read those before.

use super::{adapter::RespAdapter, feed::Command};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};
use switchboard_core::runtime;
use switchboard_fanout::{Handle, NotSent, SubscriberId};

/// Publications that engines may not have read: half of the entries that a topic keeps by default.
const OPEN_MAX: usize = 512;
/// Publications after which the engines are requested to report that they have read them.
const ROUND: usize = 128;

/// The publications of all clients, and the engines that read them.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Number of readers: without any, publications are not counted.
    readers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    readers: Vec<Arc<Progress>>,
    /// Number of the newest round.
    round: u64,
    /// Readers that have not read the publications before the round.
    behind: usize,
    /// Publications before the round, while a reader is behind, and since.
    before: usize,
    since: usize,
    /// Clients that wait.
    waiting: Vec<(Handle<RespAdapter>, SubscriberId)>,
}

/// The progress of a reader.
#[derive(Debug, Default)]
struct Progress {
    /// The round that it is requested to report.
    requested: AtomicU64,
    /// The round that it has reported.
    reported: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// A task that reads the bus for an engine. Leaves the window when it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    progress: Arc<Progress>,
    window: Arc<super::Shared>,
}

impl Window {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a publication. Returns false if the client has to wait: the engine gets [`Command::Continue`] then.
    pub(super) fn published(&self, engine: &Handle<RespAdapter>, client: SubscriberId) -> bool {
        if self.readers.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut state = self.lock();
        state.since += 1;
        if state.behind == 0 && state.since >= ROUND {
            state.begin();
        }
        let is_open = state.before + state.since < OPEN_MAX || state.readers.is_empty();
        if !is_open {
            state.waiting.push((engine.clone(), client));
        }
        is_open
    }

    /// Adds a reader; `shared` has this window.
    pub(super) fn enter(shared: &Arc<super::Shared>) -> Reader {
        let progress = Arc::new(Progress::default());
        let mut state = shared.window.lock();
        // What was published before is none of its concern.
        let round = state.round;
        progress.requested.store(round, Ordering::Relaxed);
        progress.reported.store(round, Ordering::Relaxed);
        state.readers.push(progress.clone());
        shared.window.readers.store(state.readers.len(), Ordering::Release);
        Reader { progress, window: shared.clone() }
    }
}

impl State {
    /// Begins a round: every reader reports as soon as it has read what is published now.
    fn begin(&mut self) {
        self.round += 1;
        self.behind = self.readers.len();
        self.before = std::mem::take(&mut self.since);
        for reader in &self.readers {
            reader.requested.store(self.round, Ordering::Release);
            if let Some(waker) = reader.waker().take() {
                waker.wake();
            }
        }
    }

    /// A reader has read the publications before the round. Returns the clients that continue.
    fn passed(&mut self) -> Vec<(Handle<RespAdapter>, SubscriberId)> {
        self.behind = self.behind.saturating_sub(1);
        if self.behind > 0 {
            return Vec::new();
        }
        self.before = 0;
        if self.since >= ROUND && !self.readers.is_empty() {
            self.begin();
        }
        if self.before + self.since < OPEN_MAX || self.readers.is_empty() {
            std::mem::take(&mut self.waiting)
        } else {
            Vec::new()
        }
    }
}

impl Progress {
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Returns the round that a report after the next poll of the bus is for.
    pub(super) fn requested(&self) -> u64 {
        self.progress.requested.load(Ordering::Acquire)
    }

    /// Reports that the bus had no more entries when it was polled after `round` was requested.
    pub(super) fn has_read(&self, round: u64, cx: &Context<'_>) {
        *self.progress.waker() = Some(cx.waker().clone());
        self.report(round);
        // A round that began meanwhile may not have found the waker.
        if self.requested() != round {
            cx.waker().wake_by_ref();
        }
    }

    fn report(&self, round: u64) {
        if self.progress.reported.load(Ordering::Relaxed) == round {
            return;
        }
        let mut state = self.window.window.lock();
        if self.progress.reported.swap(round, Ordering::Relaxed) != round && state.round == round {
            let continuing = state.passed();
            drop(state);
            resume(continuing);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let window = &self.window.window;
        let mut state = window.lock();
        state.readers.retain(|reader| !Arc::ptr_eq(reader, &self.progress));
        window.readers.store(state.readers.len(), Ordering::Release);
        let is_behind = state.behind > 0 && self.progress.reported.load(Ordering::Relaxed) != state.round;
        let mut continuing = if is_behind { state.passed() } else { Vec::new() };
        if state.readers.is_empty() {
            (state.before, state.since, state.behind) = (0, 0, 0);
            continuing.append(&mut state.waiting);
        }
        drop(state);
        resume(continuing);
    }
}

/// Makes the engines continue to read these clients.
fn resume(continuing: Vec<(Handle<RespAdapter>, SubscriberId)>) {
    for (engine, client) in continuing {
        if let Err(NotSent::Full(command)) = engine.try_send(Command::Continue(client)) {
            runtime::spawn(async move {
                // An engine that has ended has closed the client.
                let _ = engine.send(command).await;
            });
        }
    }
}
