//! Which of a connection's parked calls want to be polled, and how its task is woken.

use crate::server::Flight;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::{Wake, Waker},
};
use tokio::sync::mpsc;

/// The connection is to drain, whatever the server does.
const RETIRED: u8 = 1;
/// Somebody wants to see its calls.
const ASKED: u8 = 2;

/// Shared by a connection's task and the wakers of its calls.
#[derive(Default)]
pub(crate) struct Wakes {
    state: Mutex<State>,
    told: AtomicU8,
    /// Calls that wait; written by the connection alone.
    parked: AtomicUsize,
    /// What the connection holds; as above.
    held: AtomicUsize,
    /// It is not read, for want of room; as above.
    paused: AtomicBool,
}

#[derive(Default)]
struct State {
    ready: Vec<u32>,
    task: Option<Waker>,
    asked: Option<mpsc::Sender<Vec<Flight>>>,
}

impl Wakes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the waker of the connection's task and swaps the ready calls into `into`, which is empty.
    pub(crate) fn take(&self, task: &Waker, into: &mut Vec<u32>) {
        let mut state = self.lock();
        std::mem::swap(&mut state.ready, into);
        if !state.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }

    /// Tells the connection to drain, whatever the server does.
    pub(crate) fn retire(&self) {
        self.told.fetch_or(RETIRED, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the connection was told to drain.
    pub(crate) fn is_retired(&self) -> bool {
        self.told.load(Ordering::Relaxed) & RETIRED != 0
    }

    /// Asks the connection for the calls that wait; it answers in its next turn.
    #[cfg(feature = "http")]
    pub(crate) fn ask(&self, tell: mpsc::Sender<Vec<Flight>>) {
        // A question that was not answered yet is dropped, which its asker sees.
        self.lock().asked = Some(tell);
        self.told.fetch_or(ASKED, Ordering::Relaxed);
        self.wake();
    }

    /// Whom to tell about the calls that wait.
    #[inline]
    pub(crate) fn asked(&self) -> Option<mpsc::Sender<Vec<Flight>>> {
        if self.told.load(Ordering::Relaxed) & ASKED == 0 {
            return None;
        }
        self.told.fetch_and(!ASKED, Ordering::Relaxed);
        self.lock().asked.take()
    }

    /// How many calls wait.
    #[cfg(feature = "http")]
    pub(crate) fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_parked(&self, calls: usize) {
        self.parked.store(calls, Ordering::Relaxed);
    }

    /// Bytes that the connection holds for its peer.
    #[cfg(feature = "http")]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn set_held(&self, bytes: usize) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// Whether the connection is not read, for want of room.
    #[cfg(feature = "http")]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Wakes the connection's task for something that is not a call.
    pub(crate) fn wake(&self) {
        let task = self.lock().task.clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The waker of one slot; it outlives the calls that use the slot, so making one costs no allocation per call.
/// A late wake of a call that has ended polls its successor once for nothing.
pub(crate) struct CallWaker {
    index: u32,
    queued: AtomicBool,
    wakes: Arc<Wakes>,
}

impl CallWaker {
    pub(crate) fn new(index: u32, wakes: Arc<Wakes>) -> Arc<CallWaker> {
        Arc::new(CallWaker { index, queued: AtomicBool::new(false), wakes })
    }

    /// Lets the call be queued again; before it is polled, so that no wake is lost.
    pub(crate) fn rearm(&self) {
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
        // Only the first wake needs to reach the task: the others ride along. The waker stays for the next.
        let task = if state.ready.len() == 1 { state.task.clone() } else { None };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}
