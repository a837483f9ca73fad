//! Counts a call of a plugin's peer while it runs and when it ends, however it ends.

use super::{CallRecord, Place, ServerState, Watched, arrived_late, deadline_passed, going_away};
use bytes::Bytes;
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Instant,
};
use switchboard_core::{
    Peer, Result, access::CallerWatch, clock, context, memory::Pressure, metrics::Tally, runtime,
    trace::Trace,
};
use switchboard_net::{connection::Flight, plugin::ServiceResponse};
use switchboard_wire::{Code, MethodId, Status, UndeclaredName, WireId};

/// Memory charged for a call in addition to its message: its context and a small handler.
const CALL_BYTES: usize = 512;

/// Counts one call. If it is dropped before the call ends, the call counts as canceled, or as late if its deadline has
/// passed.
pub(super) struct CountedCall {
    shared: Arc<ServerState>,
    peer: Arc<Peer>,
    shard: usize,
    wire: WireId,
    record: CallRecord,
    /// Bytes in the memory budget.
    charged: usize,
    /// Place in the list of waiting calls.
    place: Option<Place>,
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
        let watched =
            shared.access.is_on().then(|| Box::new(Watched::new(shared.access.picks(), None, began, began)));
        let mut counted = CountedCall {
            shared: shared.clone(),
            peer: peer.clone(),
            shard: runtime::worker_index().unwrap_or(0),
            wire: peer.wire.unwrap_or(WireId::LOCAL),
            record: CallRecord {
                method,
                undeclared_name: None,
                began,
                deadline,
                received: message.len() as u64,
                sent: 0,
                trace: None,
                watched,
            },
            charged,
            place: None,
            ended: false,
        };
        match counted.refusal(message.len()) {
            None => Ok(counted),
            Some(status) => {
                counted.count_end(status.code(), 0);
                Err(status)
            }
        }
    }

    /// Returns the error of a call that exceeds a limit of the server.
    fn refusal(&self, request: usize) -> Option<Status> {
        if self.is_late() {
            return Some(arrived_late());
        }
        self.shared.over_calls_max().or_else(|| match self.shared.memory.restrictions(false).pressure {
            pressure @ (Pressure::Severe | Pressure::Exhausted) => {
                self.shared.memory.refuses(pressure, self.record.method, request)
            }
            Pressure::Normal | Pressure::High => None,
        })
    }

    /// Sets the name of a method that no service declares, and the trace of the call.
    pub(super) fn set_names(&mut self, undeclared_name: Option<UndeclaredName>, trace: Option<Arc<Trace>>) {
        (self.record.undeclared_name, self.record.trace) = (undeclared_name, trace);
    }

    /// Returns the status of the call when its deadline passes.
    pub(super) fn late(&self) -> Status {
        deadline_passed(self.record.allowed())
    }

    /// Returns why a waiting call must end, if it must.
    pub(super) fn over(&self) -> Option<Status> {
        (self.place.is_some() && self.shared.ending.load(Ordering::Relaxed)).then(going_away)
    }

    /// Polls the handler of the call: under its deadline, in its trace, and watched if it may be logged.
    pub(super) fn poll<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        let is_watched = self.record.watched.as_ref().is_some_and(|watched| watched.caller.is_none());
        let watch = CallerWatch::begin(is_watched);
        let polled = context::scope(self.record.deadline, self.record.trace.as_ref(), poll);
        let caller = watch.and_then(CallerWatch::end);
        if let Some(watched) = self.record.watched.as_mut().filter(|_| caller.is_some()) {
            watched.caller = caller;
        }
        polled
    }

    /// Records that the handler waits, and that `waker` polls it again: from now on the call counts as in flight.
    pub(super) fn park(&mut self, waker: &Waker) {
        if let Some(place) = &mut self.place {
            self.shared.flights.set_waker(self.shard, place, waker);
        } else {
            let flight = Flight {
                method: self.record.method,
                wire: self.wire,
                peer: self.peer.clone(),
                began: self.record.began,
                deadline: self.record.deadline,
                stage: "handler",
            };
            self.place = Some(self.shared.flights.enter(self.shard, flight, waker));
            self.shared.park(self.shard, self.wire, self.record.method);
        }
        // The end of a drain wakes the calls that are listed then; this one was listed, or got its waker, later.
        if self.shared.ending.load(Ordering::Relaxed) {
            waker.wake_by_ref();
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
                self.count_end(Code::Ok, response.message.len() as u64);
            }
            Err(status) => self.count_end(status.code(), 0),
        }
    }

    fn count_end(&mut self, code: Code, sent: u64) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let now = clock::now();
        let ended = self.record.ended(code, sent, now);
        self.shared.metrics.record(self.shard, self.wire, self.record.method, &ended);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if let Some(tally) = &self.peer.tally {
            let failed = u64::from(code != Code::Ok);
            tally.add(&Tally { calls: 1, failed, received: ended.received, sent: ended.sent });
        }
        self.shared.log_end(&self.peer, &self.record, &ended, now);
    }

    fn is_late(&self) -> bool {
        self.record.deadline.is_some_and(|deadline| deadline <= clock::now())
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.shared.flights.leave(self.shard, place);
            self.shared.unpark(self.shard, self.wire, self.record.method);
        }
        self.shared.memory.change(self.charged, 0);
        self.count_end(if self.is_late() { Code::DeadlineExceeded } else { Code::Canceled }, 0);
    }
}
