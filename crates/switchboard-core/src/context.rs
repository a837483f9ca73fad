//! Context that a running handler passes to the calls it makes: the deadline and the trace.

use crate::trace::Trace;
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Instant,
};

// Hidden parameters, because the application is in between: a handler calls a client without passing on its context,
// and the call still gets the deadline and the trace.
thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static TRACE: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// Returns the deadline of the call whose handler this thread is polling.
pub fn deadline() -> Option<Instant> {
    DEADLINE.get()
}

/// Returns the trace of the call whose handler this thread is polling.
#[inline]
pub fn trace() -> Option<Arc<Trace>> {
    TRACE.with_borrow(Clone::clone)
}

/// Polls a handler with its call's deadline as the current deadline, and with its trace if the call has one.
#[inline]
pub fn scope<T>(deadline: Option<Instant>, trace: Option<&Arc<Trace>>, poll: impl FnOnce() -> T) -> T {
    let _restore = Restore(DEADLINE.replace(deadline));
    match trace {
        None => poll(),
        Some(trace) => traced(trace, poll),
    }
}

#[cold]
fn traced<T>(trace: &Arc<Trace>, poll: impl FnOnce() -> T) -> T {
    let _restore = RestoreTrace(TRACE.replace(Some(trace.clone())));
    let _entered = trace.recorded().enter();
    poll()
}

struct Restore(Option<Instant>);

impl Drop for Restore {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

struct RestoreTrace(Option<Arc<Trace>>);

impl Drop for RestoreTrace {
    fn drop(&mut self) {
        TRACE.replace(self.0.take());
    }
}
