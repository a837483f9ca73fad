//! The life of a call on any wire, as far as limits, counters and call logs see it.
//!
//! The connections of the driver, and the calls of HTTP and of plugins, keep a [`CallRecord`] for each call that does
//! not end at once. They poll the handlers themselves.

use super::ServerState;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use switchboard_core::{
    Caller, Peer,
    access::{Busy, Entry},
    metrics::Ended,
    trace::Trace,
};
use switchboard_wire::{Code, Kind, MethodId, Retry, Status, UndeclaredName, WireId};

/// The facts of a call that its deadline, its counters and its log entries need.
pub struct CallRecord {
    /// Method of the call.
    pub method: MethodId,
    /// Name of a method that no service declares.
    pub undeclared_name: Option<UndeclaredName>,
    /// Time of arrival.
    pub began: Instant,
    /// Time by which the call must have ended.
    pub deadline: Option<Instant>,
    /// Bytes of request messages so far.
    pub received: u64,
    /// Bytes of reply messages so far.
    pub sent: u64,
    /// The trace that the call belongs to.
    pub trace: Option<Arc<Trace>>,
    /// Present for calls that start while one of the call logs is on.
    pub watched: Option<Box<Watched>>,
}

impl CallRecord {
    /// Returns the time that the caller or a limit of the server gave the call.
    pub fn allowed(&self) -> Duration {
        self.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(self.began))
    }

    /// Returns the counts of a call that ends now with `code`, after a last message of `sent` bytes.
    pub fn ended(&self, code: Code, sent: u64, now: Instant) -> Ended {
        let took = now.saturating_duration_since(self.began);
        Ended { calls: 1, code, took, received: self.received, sent: self.sent + sent }
    }
}

/// Fields of the call logs that are not counters.
pub struct Watched {
    /// The access log has sampled the call.
    pub is_picked: bool,
    /// The caller, once the guards have identified it.
    pub caller: Option<Arc<Caller>>,
    /// Arrival of the last request message before the first reply message.
    requested_at: Instant,
    /// Time from `requested_at` to the first reply message.
    waited: Option<Duration>,
    /// Longest turn of the handler.
    longest_turn: Duration,
}

impl Watched {
    /// Begins to watch a call that arrived at `began` and whose handler ran until `now`.
    pub fn new(is_picked: bool, caller: Option<Arc<Caller>>, began: Instant, now: Instant) -> Watched {
        let longest_turn = now.saturating_duration_since(began);
        Watched { is_picked, caller, requested_at: began, waited: None, longest_turn }
    }

    /// Records a request message.
    pub fn requested(&mut self, now: Instant) {
        if self.waited.is_none() {
            self.requested_at = now;
        }
    }

    /// Records a reply message.
    pub fn replied(&mut self, now: Instant) {
        self.waited.get_or_insert_with(|| now.saturating_duration_since(self.requested_at));
    }

    /// Records how long the handler ran.
    pub fn turned(&mut self, ran: Duration) {
        self.longest_turn = self.longest_turn.max(ran);
    }

    /// Returns the duration of a stream that is compared with the slow-call threshold.
    fn slowest(&self, now: Instant) -> Duration {
        let waited = self.waited.unwrap_or_else(|| now.saturating_duration_since(self.requested_at));
        waited.max(self.longest_turn)
    }
}

impl ServerState {
    /// Returns the error of a further call if `server_calls_max` calls wait in handlers.
    #[inline]
    pub fn over_calls_max(&self) -> Option<Status> {
        let parked = self.parked.load(Ordering::Relaxed);
        if (parked as u64) < self.live.server_calls_max.value() {
            return None;
        }
        let text = format!("{parked} calls are in flight on this server (server_calls_max)");
        Some(Status::resource_exhausted(text).with_retry(Retry::Safe))
    }

    /// Counts a call whose handler waits.
    #[inline]
    pub fn park(&self, shard: usize, wire: WireId, method: MethodId) {
        self.parked.fetch_add(1, Ordering::Relaxed);
        self.metrics.park(shard, wire, method);
    }

    /// Counts the end of a call whose handler waited.
    #[inline]
    pub fn unpark(&self, shard: usize, wire: WireId, method: MethodId) {
        self.parked.fetch_sub(1, Ordering::Relaxed);
        self.metrics.unpark(shard, wire, method);
    }

    /// Passes the end of a call to the call logs, if they are on.
    #[inline]
    pub fn log_end(&self, peer: &Peer, call: &CallRecord, ended: &Ended, now: Instant) {
        if self.access.is_on() {
            self.log_watched(peer, call, ended, now);
        }
    }

    #[cold]
    fn log_watched(&self, peer: &Peer, call: &CallRecord, ended: &Ended, now: Instant) {
        let watched = call.watched.as_deref();
        let busy = match self.table.info(call.method).kind {
            Kind::Unary => Busy::Call(ended.took),
            Kind::Bidi | Kind::ClientStream | Kind::ServerStream => {
                Busy::Stream(watched.map_or(Duration::ZERO, |watched| watched.slowest(now)))
            }
        };
        let names = (call.method, call.undeclared_name.as_deref());
        let is_picked = watched.is_some_and(|watched| watched.is_picked);
        let caller = watched.and_then(|watched| watched.caller.as_deref());
        self.log(peer, names, ended, busy, (is_picked, caller), call.trace.as_deref());
    }

    /// Passes the end of a call to the call logs: whether the access log has sampled it, and its caller, are `watched`.
    #[cold]
    pub fn log(
        &self,
        peer: &Peer,
        (method, undeclared_name): (MethodId, Option<&str>),
        ended: &Ended,
        busy: Busy,
        (is_picked, caller): (bool, Option<&Caller>),
        trace: Option<&Trace>,
    ) {
        self.access.log(is_picked, ended.took, busy, || Entry {
            method: undeclared_name.map_or_else(|| self.table.full_name(method), str::to_owned),
            peer,
            caller: caller.map(|caller| &caller.name[..]),
            code: ended.code,
            received: ended.received,
            sent: ended.sent,
            trace,
        });
    }
}

/// Returns the error of a call whose deadline has passed; `allowed` is the time that its caller or a limit of the
/// server gave it.
pub fn deadline_passed(allowed: Duration) -> Status {
    Status::deadline_exceeded(format!("the deadline of {} ms has passed on the server", allowed.as_millis()))
}

/// Returns the error of a call whose deadline had passed before it could start.
pub fn arrived_late() -> Status {
    Status::deadline_exceeded("the deadline had passed when the call arrived")
}
