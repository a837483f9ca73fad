//! The access log and the slow-call log: events of `tracing`, off unless asked for.
//!
//! A call that is logged has its own reading of the clock. A call that the access log does not pick costs a count in
//! memory of its thread, and while both logs are off two loads of memory that nobody writes.

#[cfg(feature = "http")]
mod recent;

use crate::{Code, Flag, Peer, limits::Unit, trace::Trace};
use std::{cell::Cell, time::Duration};

/// Whether calls are logged.
#[derive(Debug)]
pub(crate) struct Access {
    /// One call in so many goes to the access log; 0 for none.
    pub(crate) every: Flag,
    /// Calls that take longer, in milliseconds, go to the slow log; 0 for none.
    pub(crate) slow: Flag,
    /// What was logged last.
    #[cfg(feature = "http")]
    pub(crate) recent: recent::Recent,
}

thread_local! {
    /// Calls of this thread since the last that was picked.
    static SINCE: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// What is logged of a call.
pub(crate) struct Entry<'a> {
    pub(crate) method: String,
    pub(crate) peer: &'a Peer,
    pub(crate) code: Code,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) trace: Option<&'a Trace>,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            every: Flag::new(
                "access_log",
                Unit::Count,
                0,
                0..=1_000_000,
                "one call in so many is logged (switchboard::access); 0: none",
            ),
            slow: Flag::new(
                "slow_call",
                Unit::Milliseconds,
                0,
                0..=86_400_000,
                "calls that take longer are logged (switchboard::slow); 0: none",
            ),
            #[cfg(feature = "http")]
            recent: recent::Recent::default(),
        }
    }
}

impl Access {
    /// Whether any call may have to be logged.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.every.value() | self.slow.value() != 0
    }

    /// Whether this call is one in so many, to be asked once a call; each thread counts its own, from its first on.
    #[inline]
    pub(crate) fn picks(&self) -> bool {
        let every = self.every.value();
        if every == 0 {
            return false;
        }
        let since = SINCE.get().saturating_add(1);
        let is_picked = since >= every;
        SINCE.set(if is_picked { 0 } else { since });
        is_picked
    }

    /// Whether every call has to be timed by itself.
    #[inline]
    pub(crate) fn times_all(&self) -> bool {
        self.slow.value() != 0
    }

    pub(crate) fn flags(&self) -> [Flag; 2] {
        [self.every.clone(), self.slow.clone()]
    }

    /// Logs a call that ended, if it was picked or slow; `entry` is asked for then only.
    #[cold]
    pub(crate) fn log<'a>(&self, is_picked: bool, took: Duration, entry: impl FnOnce() -> Entry<'a>) {
        let slow = self.slow.value();
        let is_slow = slow != 0 && took >= Duration::from_millis(slow);
        if !is_slow && !is_picked {
            return;
        }
        let entry = entry();
        let took_us = took.as_micros() as u64;
        let trace = entry.trace.map(Trace::id);
        let trace = trace.as_deref();
        macro_rules! event {
            ($level:ident, $target:literal, $($field:tt)*) => {
                tracing::$level!(
                    target: $target,
                    method = entry.method,
                    wire = entry.peer.wire,
                    peer = entry.peer.address,
                    code = entry.code.name(),
                    took_us,
                    received = entry.received,
                    sent = entry.sent,
                    trace,
                    $($field)*
                )
            };
        }
        if is_slow {
            event!(warn, "switchboard::slow", "a call took longer than {slow} ms (slow_call)");
        }
        if is_picked {
            let every = self.every.value();
            event!(info, "switchboard::access", every, "call");
        }
        #[cfg(feature = "http")]
        self.recent.keep(entry, took, is_slow);
    }
}
