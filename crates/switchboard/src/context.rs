//! What a call that is being served hands on to the calls that its handler makes: the deadline, and the trace.

use crate::trace::Trace;
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Instant,
};

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static TRACE: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
}

/// The deadline of the call whose handler is being polled on this thread.
pub(crate) fn deadline() -> Option<Instant> {
    DEADLINE.get()
}

/// The trace of that call.
#[inline]
pub(crate) fn trace() -> Option<Arc<Trace>> {
    TRACE.with_borrow(Clone::clone)
}

/// Polls a handler under its call's deadline, and in its trace if it has one.
#[inline]
pub(crate) fn scope<T>(deadline: Option<Instant>, trace: Option<&Arc<Trace>>, poll: impl FnOnce() -> T) -> T {
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
