//! Spinning: sleeping and waking cost more than the work, so a worker polls for a moment after traffic before it
//! sleeps.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    mem,
    task::{Poll, Waker},
    thread,
    time::{Duration, Instant},
};

/// Time for which a worker polls after the last traffic.
const SPIN: Duration = Duration::from_micros(50);

// Of the thread: sockets report traffic to the spinner of their worker, as in the library.
thread_local! {
    static LAST_TRAFFIC: Cell<Option<Instant>> = const { Cell::new(None) };
    static ASLEEP: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Records that bytes arrived on this worker.
pub(in crate::bench) fn traffic() {
    LAST_TRAFFIC.set(Some(Instant::now()));
    if let Some(waker) = ASLEEP.take() {
        waker.wake();
    }
}

/// Keeps this worker's runtime from sleeping until [`SPIN`] has passed without traffic; never returns.
pub(in crate::bench) async fn keep_awake() {
    loop {
        if LAST_TRAFFIC.get().is_some_and(|at| at.elapsed() < SPIN) {
            // Without this, spinning threads starve each other when there are more of them than cores.
            thread::yield_now();
            // A yielded task makes the runtime poll its sockets without blocking.
            tokio::task::yield_now().await;
        } else {
            until_traffic().await;
        }
    }
}

async fn until_traffic() {
    let mut parked = false;
    poll_fn(|cx| {
        if mem::replace(&mut parked, true) {
            return Poll::Ready(());
        }
        ASLEEP.set(Some(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}
