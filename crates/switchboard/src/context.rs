//! The deadline of the call that is being served, for the calls that its handler makes.

use std::{cell::Cell, time::Instant};

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The deadline of the call whose handler is being polled on this thread.
pub(crate) fn deadline() -> Option<Instant> {
    DEADLINE.get()
}

/// Polls a handler under its call's deadline.
#[inline]
pub(crate) fn scope<T>(deadline: Option<Instant>, poll: impl FnOnce() -> T) -> T {
    let _restore = Restore(DEADLINE.replace(deadline));
    poll()
}

struct Restore(Option<Instant>);

impl Drop for Restore {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}
