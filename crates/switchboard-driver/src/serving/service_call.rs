//! Counts a call of a plugin's peer while it runs and when it ends, however it ends.

use super::{ServerState, going_away};
use bytes::Bytes;
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::{Duration, Instant},
};
use switchboard_core::{
    Caller, Peer, Result,
    access::{Busy, CallerWatch, Entry},
    clock, context,
    memory::Pressure,
    metrics::{Ended, Tally},
    runtime,
    trace::Trace,
};
use switchboard_net::{connection::Flight, plugin::ServiceResponse};
use switchboard_wire::{Code, MethodId, Retry, Status, UndeclaredName, WireId};

/// Memory charged for a call in addition to its message: its context and a small handler.
const CALL_BYTES: usize = 512;

/// Counts one call. If it is dropped before the call ends, the call counts as canceled, or as late if its deadline has
/// passed.
pub(super) struct CountedCall {
    shared: Arc<ServerState>,
    peer: Arc<Peer>,
    shard: usize,
    wire: WireId,
    method: MethodId,
    began: Instant,
    deadline: Option<Instant>,
    /// The name of a method that no service declares.
    undeclared_name: Option<UndeclaredName>,
    trace: Option<Arc<Trace>>,
    /// Set for calls that may be logged.
    caller: Option<Arc<Caller>>,
    received: u64,
    /// Bytes in the memory budget.
    charged: usize,
    /// Index in the list of waiting calls.
    place: Option<usize>,
    ended: bool,
}

impl CountedCall {
    /// Starts counting.
    ///
    /// # Errors
    /// `DeadlineExceeded` if the call is too late, `ResourceExhausted` when the server has too many calls or too little
    /// memory.
    pub(super) fn new(
        shared: &Arc<ServerState>,
        peer: &Arc<Peer>,
        method: MethodId,
        began: Instant,
        deadline: Option<Instant>,
        message: &Bytes,
    ) -> Result<CountedCall> {
        if let Some(counts) = &peer.counts {
            counts.started(1, began);
            counts.received(1, began);
        }
        let charged = CALL_BYTES.saturating_add(message.len());
        shared.memory.change(0, charged);
        let mut counted = CountedCall {
            shared: shared.clone(),
            peer: peer.clone(),
            shard: runtime::worker_index().unwrap_or(0),
            wire: peer.wire.unwrap_or(WireId::LOCAL),
            method,
            began,
            deadline,
            undeclared_name: None,
            trace: None,
            caller: None,
            received: message.len() as u64,
            charged,
            place: None,
            ended: false,
        };
        match counted.refusal(message.len()) {
            None => Ok(counted),
            Some(status) => {
                counted.record(status.code(), 0);
                Err(status)
            }
        }
    }

    /// Returns the error of a call that exceeds a limit of the server.
    fn refusal(&self, request: usize) -> Option<Status> {
        if self.is_late() {
            return Some(Status::deadline_exceeded("the deadline had passed when the call arrived"));
        }
        let parked = self.shared.parked.load(Ordering::Relaxed);
        if parked as u64 >= self.shared.live.server_calls_max.value() {
            let text = format!("{parked} calls are in flight on this server (server_calls_max)");
            return Some(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        match self.shared.memory.restrictions(false).pressure {
            pressure @ (Pressure::Severe | Pressure::Exhausted) => {
                self.shared.memory.refuses(pressure, self.method, request)
            }
            Pressure::Normal | Pressure::High => None,
        }
    }

    /// Sets the name of a method that no service declares, and the trace of the call.
    pub(super) fn set_names(&mut self, undeclared_name: Option<UndeclaredName>, trace: Option<Arc<Trace>>) {
        (self.undeclared_name, self.trace) = (undeclared_name, trace);
    }

    /// Returns the time that its caller or a limit of the server gave the call.
    pub(super) fn allowed(&self) -> Duration {
        self.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(self.began))
    }

    /// Returns why a waiting call must end, if it must.
    pub(super) fn over(&self) -> Option<Status> {
        (self.place.is_some() && self.shared.ending.load(Ordering::Relaxed)).then(going_away)
    }

    /// Polls the handler of the call: under its deadline, in its trace, and watched if it may be logged.
    pub(super) fn poll<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        let watch = CallerWatch::begin(self.caller.is_none() && self.shared.access.is_on());
        let polled = context::scope(self.deadline, self.trace.as_ref(), poll);
        if let Some(caller) = watch.and_then(CallerWatch::end) {
            self.caller = Some(caller);
        }
        polled
    }

    /// Records that the handler waits: from now on the call counts as in flight.
    pub(super) fn park(&mut self, waker: &Waker) {
        if self.place.is_none() {
            let flight = Flight {
                method: self.method,
                wire: self.wire,
                peer: self.peer.clone(),
                began: self.began,
                deadline: self.deadline,
                stage: "handler",
            };
            self.place = Some(self.shared.flights.enter(self.shard, flight, waker.clone()));
            self.shared.parked.fetch_add(1, Ordering::Relaxed);
            self.shared.metrics.park(self.shard, self.wire, self.method);
        }
    }

    /// Returns the status that replaces a response of this length, if memory does not suffice for it.
    pub(super) fn refuses(&self, response: usize) -> Option<Status> {
        let max = self.shared.memory.restrictions(false).reply_bytes_max;
        (response > max).then(|| self.shared.memory.drops(response))
    }

    /// Counts the end of the call.
    pub(super) fn end(&mut self, result: &Result<ServiceResponse>) {
        match result {
            Ok(response) => {
                if let Some(counts) = &self.peer.counts {
                    counts.sent(1, clock::now());
                }
                self.record(Code::Ok, response.message.len() as u64);
            }
            Err(status) => self.record(status.code(), 0),
        }
    }

    fn record(&mut self, code: Code, sent: u64) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let took = clock::since(self.began);
        let ended = Ended { calls: 1, code, took, received: self.received, sent };
        self.shared.metrics.record(self.shard, self.wire, self.method, &ended);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if let Some(tally) = &self.peer.tally {
            let failed = u64::from(code != Code::Ok);
            tally.add(&Tally { calls: 1, failed, received: self.received, sent });
        }
        if self.shared.access.is_on() {
            let is_picked = self.shared.access.picks();
            self.shared.access.log(is_picked, took, Busy::Call(took), || Entry {
                method: match &self.undeclared_name {
                    Some(name) => name.to_string(),
                    None => self.shared.table.full_name(self.method),
                },
                peer: &self.peer,
                caller: self.caller.as_deref().map(|caller| &caller.name[..]),
                code,
                received: self.received,
                sent,
                trace: self.trace.as_deref(),
            });
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= clock::now())
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared.flights.leave(self.shard, place);
            self.shared.parked.fetch_sub(1, Ordering::Relaxed);
            self.shared.metrics.unpark(self.shard, self.wire, self.method);
        }
        self.shared.memory.change(self.charged, 0);
        self.record(if self.is_late() { Code::DeadlineExceeded } else { Code::Canceled }, 0);
    }
}
