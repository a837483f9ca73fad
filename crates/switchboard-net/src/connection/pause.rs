//! Pause between two turns of a connection that still has input or output.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Waits until the runtime has polled its sockets.
///
/// A task that wakes itself, or that one of its calls wakes, may run again before that: a runtime polls its
/// sockets when no task is ready, or after a number of tasks, a few hundred here. A connection that uses its
/// whole turn each time would make all others wait for that many turns.
#[derive(Default)]
pub struct Pause(Option<Arc<End>>);

struct End {
    reached: AtomicBool,
    /// Waker of the last poll: an upgraded connection moves from one task to another.
    task: Mutex<Waker>,
}

impl Pause {
    /// Starts a pause, which [`poll`](Self::poll) waits for.
    pub fn begin(&mut self, cx: &Context<'_>) {
        let end = Arc::new(End { reached: AtomicBool::new(false), task: Mutex::new(cx.waker().clone()) });
        // tokio wakes a task that yields after it has polled the sockets.
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&Waker::from(end.clone())));
        self.0 = Some(end);
    }

    /// Returns whether a pause has started whose end has not been polled.
    #[cfg(any(test, feature = "http"))]
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Returns ready if there is no pause or if it has ended; otherwise its end wakes the task.
    #[inline]
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.0.as_ref().is_some_and(|end| end.is_ahead(cx)) {
            return Poll::Pending;
        }
        self.0 = None;
        Poll::Ready(())
    }
}

impl End {
    fn is_ahead(&self, cx: &Context<'_>) -> bool {
        if self.reached.load(Ordering::Acquire) {
            return false;
        }
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
        // Either the end was reached before the lock was taken, or it will find this waker.
        !self.reached.load(Ordering::Acquire)
    }
}

impl Wake for End {
    fn wake(self: Arc<Self>) {
        self.reached.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_task_that_polled_last_is_woken() {
        let mut pause = Pause::default();
        pause.begin(&Context::from_waker(Waker::noop()));
        assert!(pause.has_begun());
        std::future::poll_fn(|cx| pause.poll(cx)).await;
        assert!(!pause.has_begun());
    }
}
