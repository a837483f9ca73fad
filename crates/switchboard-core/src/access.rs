//! The access log and the slow-call log: `tracing` events, both off by default.
//!
//! A logged call takes its own clock reading. A call that the access log does not sample costs one increment
//! of a thread-local counter. While both logs are off, a call costs two loads of memory that is not written.

#[cfg(feature = "http")]
mod recent;

use crate::{Caller, Cx, Flag, Peer, limits::Unit, trace::Trace};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Duration,
};
use switchboard_wire::Code;

/// Settings of the access log and of the slow-call log.
#[derive(Debug)]
pub struct Access {
    /// Sampling rate: one call in this many goes to the access log; 0 turns the log off.
    pub every: Flag,
    /// Threshold of the slow-call log in milliseconds: slower calls are logged; 0 turns the log off.
    pub slow: Flag,
    /// Most recently logged calls.
    #[cfg(feature = "http")]
    pub recent: recent::Recent,
}

// `CALLER` is a hidden parameter, because the handler is in between: a reply does not carry the caller, and a context
// is gone when its call ends. It is set only for calls that are logged.
thread_local! {
    /// Calls of this thread since the last sampled one.
    static SINCE: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The caller of the call that this thread is polling, if the call is to be logged.
    static CALLER: RefCell<Watched> = const { RefCell::new(Watched::Off) };
}

/// State of the search for the caller of the call that is being polled.
enum Watched {
    /// The call is not logged.
    Off,
    /// The guards have not identified the caller yet.
    Unknown,
    Known(Option<Arc<Caller>>),
}

/// Notes the caller that the guards find while a call is polled on this thread, until it is dropped.
pub struct CallerWatch(Watched);

impl CallerWatch {
    /// Begins to watch if `wanted`. Watches nest: a handler may call a service of its own process.
    #[inline]
    pub fn begin(wanted: bool) -> Option<CallerWatch> {
        wanted.then(|| CallerWatch(CALLER.replace(Watched::Unknown)))
    }

    /// The caller, if the guards found one.
    pub fn end(self) -> Option<Arc<Caller>> {
        match CALLER.replace(Watched::Off) {
            Watched::Known(caller) => caller,
            Watched::Off | Watched::Unknown => None,
        }
    }
}

impl Drop for CallerWatch {
    fn drop(&mut self) {
        CALLER.replace(std::mem::replace(&mut self.0, Watched::Off));
    }
}

/// Records the caller of the call that is being polled, if the call is to be logged. Of nested calls only the
/// outermost is recorded.
#[inline]
pub fn note_caller(cx: &Cx) {
    // A handler may call a service of its own process during the same poll.
    if cx.peer().wire == Some(switchboard_wire::WireId::LOCAL) {
        return;
    }
    CALLER.with_borrow_mut(|watched| {
        if matches!(watched, Watched::Unknown) {
            *watched = Watched::Known(cx.shared_caller());
        }
    });
}

/// The duration that is compared with the slow-call threshold.
#[derive(Clone, Copy, Debug)]
// closed: a call is one message in each direction, or a stream
pub enum Busy {
    /// Total duration of a call with one message in each direction.
    Call(Duration),
    /// For a stream: the wait for its first reply message, or the longest uninterrupted run of its handler,
    /// whichever is longer.
    Stream(Duration),
}

/// The fields of a log entry.
pub struct Entry<'a> {
    pub method: String,
    pub peer: &'a Peer,
    /// The caller's name, if the caller is known.
    pub caller: Option<&'a str>,
    pub code: Code,
    pub received: u64,
    pub sent: u64,
    pub trace: Option<&'a Trace>,
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
                "calls that take longer are logged (switchboard::slow), streams by their first message; 0: none",
            ),
            #[cfg(feature = "http")]
            recent: recent::Recent::default(),
        }
    }
}

impl Access {
    /// Returns whether at least one of the two logs is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.every.value() | self.slow.value() != 0
    }

    /// Returns whether the access log samples this call. Call it once per call: each thread counts its own
    /// calls and samples the first.
    #[inline]
    pub fn picks(&self) -> bool {
        let every = self.every.value();
        if every == 0 {
            return false;
        }
        let since = SINCE.get().saturating_add(1);
        let is_picked = since >= every;
        SINCE.set(if is_picked { 0 } else { since });
        is_picked
    }

    /// Returns whether every call must be timed individually.
    #[inline]
    pub fn times_all(&self) -> bool {
        self.slow.value() != 0
    }

    pub fn flags(&self) -> [Flag; 2] {
        [self.every.clone(), self.slow.clone()]
    }

    /// Logs a call that ended, if it was sampled or slow; `entry` is called only in that case.
    #[cold]
    pub fn log<'a>(&self, is_picked: bool, took: Duration, busy: Busy, entry: impl FnOnce() -> Entry<'a>) {
        let slow = self.slow.value();
        let (Busy::Call(busy_for) | Busy::Stream(busy_for)) = busy;
        let is_slow = slow != 0 && busy_for >= Duration::from_millis(slow);
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
                    wire = entry.peer.wire(),
                    peer = entry.peer.address,
                    caller = entry.caller,
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
            match busy {
                Busy::Call(_) => {
                    event!(warn, "switchboard::slow", "a call took longer than {slow} ms (slow_call)");
                }
                Busy::Stream(busy) => {
                    let busy_us = busy.as_micros() as u64;
                    event!(
                        warn,
                        "switchboard::slow",
                        busy_us,
                        "the first message of a stream, or one turn of its handler, took longer than {slow} ms (slow_call)"
                    );
                }
            }
        }
        if is_picked {
            let every = self.every.value();
            event!(info, "switchboard::access", every, "call");
        }
        #[cfg(feature = "http")]
        self.recent.keep(entry, took, is_slow);
    }
}
