//! Wake-ups of a connection: the parked calls that must be polled, and the waker of its task.

use super::Flight;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};
use tokio::sync::mpsc;

/// The connection must drain, independently of the server.
const RETIRED: u8 = 1;
/// A report of the parked calls was requested.
const REPORT_CALLS: u8 = 2;

/// State shared by a connection's task and the wakers of its calls.
#[derive(Default)]
pub struct Wakes {
    state: Mutex<State>,
    flags: AtomicU8,
    /// Number of parked calls; written only by the connection.
    parked: AtomicUsize,
    /// Number of waiting calls on HTTP, where the connection has no table of them.
    #[cfg(feature = "http")]
    streams: AtomicUsize,
    /// Bytes that the connection holds; written only by the connection.
    held: AtomicUsize,
    /// Set while reading is paused because memory is short; written only by the connection.
    paused: AtomicBool,
}

#[derive(Default)]
struct State {
    ready: Vec<u32>,
    task: Option<Waker>,
    report_to: Option<mpsc::Sender<Vec<Flight>>>,
}

impl Wakes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the waker of the connection's task, and swaps the ready calls into `into`, which must be empty.
    pub fn take(&self, task: &Waker, into: &mut Vec<u32>) {
        let mut state = self.lock();
        std::mem::swap(&mut state.ready, into);
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }

    /// Makes the connection drain, independently of the server.
    pub(crate) fn retire(&self) {
        self.flags.fetch_or(RETIRED, Ordering::Relaxed);
        self.wake();
    }

    /// Returns whether the connection must drain.
    pub fn is_retired(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & RETIRED != 0
    }

    /// Requests a report of the parked calls; the connection sends it in its next turn.
    #[cfg(feature = "http")]
    pub fn request_report(&self, report: mpsc::Sender<Vec<Flight>>) {
        // A pending request is replaced: dropping its sender notifies its receiver.
        self.lock().report_to = Some(report);
        self.flags.fetch_or(REPORT_CALLS, Ordering::Relaxed);
        self.wake();
    }

    /// Takes the sender for a requested report of the parked calls.
    #[inline]
    pub fn take_report_request(&self) -> Option<mpsc::Sender<Vec<Flight>>> {
        if self.flags.load(Ordering::Relaxed) & REPORT_CALLS == 0 {
            return None;
        }
        self.flags.fetch_and(!REPORT_CALLS, Ordering::Relaxed);
        self.lock().report_to.take()
    }

    /// Returns the number of parked calls.
    #[cfg(feature = "http")]
    pub fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    /// Returns the number of waiting calls of the connection, on any wire.
    #[cfg(feature = "http")]
    pub fn waiting(&self) -> usize {
        self.parked() + self.streams.load(Ordering::Relaxed)
    }

    #[cfg(feature = "http")]
    pub fn park_stream(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "http")]
    pub fn unpark_stream(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn set_parked(&self, calls: usize) {
        self.parked.store(calls, Ordering::Relaxed);
    }

    /// Returns the bytes that the connection holds for its peer.
    #[cfg(feature = "http")]
    pub fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub fn set_held(&self, bytes: usize) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether reading is paused because memory is short.
    #[cfg(feature = "http")]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Wakes the connection's task for a reason other than a call.
    pub fn wake(&self) {
        let task = self.lock().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// As the waker of anything else that concerns the connection, such as a queued push.
impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        Wakes::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Wakes::wake(self);
    }
}

/// Waker of one slot. It outlives the calls that use the slot, so that a call allocates no waker. A late wake
/// of a call that has ended causes one empty poll of the next call.
pub struct CallWaker {
    index: u32,
    queued: AtomicBool,
    wakes: Arc<Wakes>,
}

impl CallWaker {
    pub fn new(index: u32, wakes: Arc<Wakes>) -> Arc<CallWaker> {
        Arc::new(CallWaker { index, queued: AtomicBool::new(false), wakes })
    }

    /// Allows the call to be queued again. Called before the poll, so that no wake is lost.
    pub fn rearm(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.wakes.lock();
        state.ready.push(self.index);
        // Only the first wake must reach the task; the task then polls all queued calls. The waker is kept
        // for later wakes.
        let task = if state.ready.len() == 1 { state.task.clone() } else { None };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}
