//! The pause between two turns of a connection that always has more to do.

use super::Wakes;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// Lasts until the runtime has looked at its sockets.
///
/// A task that wakes itself, or that one of its calls wakes, may run again before that: a runtime looks when no task is
/// ready, or after so many of them, a few hundred here. One connection that uses up its turns would make all others
/// wait for as many turns.
#[derive(Default)]
pub(crate) struct Pause(Option<Arc<End>>);

struct End {
    reached: AtomicBool,
    wakes: Arc<Wakes>,
}

impl Pause {
    /// Begins a pause; its end wakes the task that `wakes` knows.
    pub(crate) fn begin(&mut self, wakes: &Arc<Wakes>) {
        let end = Arc::new(End { reached: AtomicBool::new(false), wakes: wakes.clone() });
        // Who yields to tokio is woken after it has looked at the sockets.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&Waker::from(end.clone())));
        self.0 = Some(end);
    }

    /// Whether the end is yet to come.
    #[inline]
    pub(crate) fn is_on(&mut self) -> bool {
        self.0.take_if(|end| end.reached.load(Ordering::Acquire));
        self.0.is_some()
    }
}

impl Wake for End {
    fn wake(self: Arc<Self>) {
        self.reached.store(true, Ordering::Release);
        self.wakes.wake();
    }
}
