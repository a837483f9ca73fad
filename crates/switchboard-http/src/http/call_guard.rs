//! Counts a call while it runs and when it ends, however it ends.

use super::connection_memory::{ConnectionMemory, MemoryCharge};
use crate::http::HttpState;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
    time::{Duration, Instant},
};
use switchboard_core::{
    Peer, Result, access::CallerWatch, clock, context, memory::Pressure, metrics::Tally, trace::Trace,
};
use switchboard_driver::serving::{CallRecord, Place, Watched, arrived_late, deadline_passed, going_away};
use switchboard_net::connection::Flight;
use switchboard_wire::{Code, Kind, MethodId, Status, UndeclaredName, WireId};
use tokio::time::Sleep;

/// Counts one call. If it is dropped before the call ends, the call counts as canceled, or as late if its deadline has
/// passed.
pub(super) struct CallGuard {
    /// Memory that the connection holds for the request.
    charge: MemoryCharge,
    shard: usize,
    wire: WireId,
    record: CallRecord,
    peer: Arc<Peer>,
    /// Place in the list of waiting calls.
    place: Option<Place>,
    ended: bool,
    /// Wakes the call at a deadline that the server set.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl CallGuard {
    /// Starts counting, under the deadline that the server allows; `request` bytes of the call have arrived.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the call arrived too late, `ResourceExhausted` when the server has too many calls.
    pub(super) fn new(
        connection_memory: &Arc<ConnectionMemory>,
        shard: usize,
        method: MethodId,
        deadline: Option<Instant>,
        peer: &Arc<Peer>,
        request: usize,
    ) -> Result<CallGuard> {
        let shared = connection_memory.shared();
        let (began, requested) = (clock::now(), deadline);
        let deadline = shared.guarding.deadlines.cap(method, began, deadline);
        let alarm = deadline.filter(|_| deadline != requested);
        let alarm = alarm.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
        if let Some(counts) = &peer.counts {
            counts.started(1, began);
        }
        let watched = shared.access.is_on().then(|| {
            let is_picked = shared.access.picks();
            Box::new(Watched::new(is_picked, None, began, began))
        });
        let mut call_guard = CallGuard {
            charge: connection_memory.charge(),
            shard,
            wire: peer.wire.unwrap_or(WireId::HTTP_JSON),
            record: CallRecord {
                method,
                undeclared_name: None,
                began,
                deadline,
                received: 0,
                sent: 0,
                trace: None,
                watched,
            },
            peer: peer.clone(),
            place: None,
            ended: false,
            alarm,
        };
        let refused = if deadline.is_some_and(|deadline| deadline <= began) {
            Some(arrived_late())
        } else {
            shared.over_calls_max().or_else(|| match shared.memory.restrictions(false).pressure {
                pressure @ (Pressure::Severe | Pressure::Exhausted) => {
                    shared.memory.refuses(pressure, method, request)
                }
                Pressure::Normal | Pressure::High => None,
            })
        };
        match refused {
            None => {
                call_guard.holds(request);
                Ok(call_guard)
            }
            Some(status) => {
                call_guard.end(status.code());
                Err(status)
            }
        }
    }

    /// Returns the memory that its connection holds.
    pub(super) fn connection_memory(&self) -> &ConnectionMemory {
        self.charge.connection_memory()
    }

    fn shared(&self) -> &HttpState {
        self.connection_memory().shared()
    }

    /// Sets the bytes that are held for the call.
    pub(super) fn holds(&mut self, bytes: usize) {
        self.charge.set(bytes);
    }

    /// Sets the bytes that are held for messages that it streams, in both directions.
    pub(super) fn streams(&mut self, requests: usize, replies: usize) {
        self.charge.notes(self.record.method, replies);
        self.charge.set(requests + replies);
    }

    /// Returns the status that refuses a reply of this length, if memory does not suffice for it.
    pub(super) fn drops(&self, bytes: usize) -> Option<Status> {
        self.charge.drops(self.record.method, bytes)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.record.deadline
    }

    /// Records that the handler waits, and that `waker` polls it again: from now on the call counts as in flight.
    pub(super) fn park(&mut self, waker: &Waker) {
        if let Some(mut place) = self.place.take() {
            self.shared().flights.set_waker(self.shard, &mut place, waker);
            self.place = Some(place);
        } else {
            let flight = Flight {
                method: self.record.method,
                wire: self.wire,
                peer: self.peer.clone(),
                began: self.record.began,
                deadline: self.record.deadline,
                stage: "handler",
            };
            self.place = Some(self.shared().flights.enter(self.shard, flight, waker));
            self.shared().park(self.shard, self.wire, self.record.method);
            self.connection_memory().park();
        }
        // The end of a drain wakes the calls that are listed then; this one was listed, or got its waker, later.
        if self.shared().ending.load(Ordering::Relaxed) {
            waker.wake_by_ref();
        }
    }

    pub(super) fn set_trace(&mut self, trace: Option<Arc<Trace>>) {
        self.record.trace = trace;
    }

    /// Sets the name of a method that no service declares.
    pub(super) fn set_undeclared_name(&mut self, undeclared_name: Option<UndeclaredName>) {
        self.record.undeclared_name = undeclared_name;
    }

    /// Polls the handler of the call: under its deadline, in its trace, and watched if it may be logged.
    pub(super) fn poll<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        let is_watched = self.record.watched.as_ref().is_some_and(|watched| watched.caller.is_none());
        let began = (self.record.watched.is_some() && self.is_stream()).then(clock::now);
        let watch = CallerWatch::begin(is_watched);
        let polled = context::scope(self.record.deadline, self.record.trace.as_ref(), poll);
        let caller = watch.and_then(CallerWatch::end);
        if let Some(watched) = &mut self.record.watched {
            if caller.is_some() {
                watched.caller = caller;
            }
            if let Some(began) = began {
                watched.turned(clock::since(began));
            }
        }
        polled
    }

    fn is_stream(&self) -> bool {
        self.shared().table.info(self.record.method).kind != Kind::Unary
    }

    /// Returns why the call must end, if it must: a handler that is ready after the deadline is late as well.
    pub(super) fn over(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if self.poll_late(cx) {
            return Some(deadline_passed(self.record.allowed()));
        }
        (self.place.is_some() && self.shared().ending.load(Ordering::Relaxed)).then(going_away)
    }

    /// Returns the time that its caller or a limit of the server gave the call.
    pub(super) fn allowed(&self) -> Duration {
        self.record.allowed()
    }

    /// Returns whether the deadline has passed; if not, the call is woken when a limit of the server ends it.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_late() || self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready())
    }

    /// Returns whether the deadline has passed.
    fn is_late(&self) -> bool {
        self.record.deadline.is_some_and(|deadline| deadline <= clock::now())
    }

    /// Counts a message of the request.
    pub(super) fn received(&mut self, bytes: usize) {
        self.record.received += bytes as u64;
        if let Some(watched) = &mut self.record.watched {
            watched.requested(clock::now());
        }
        if let Some(counts) = &self.peer.counts {
            counts.received(1, clock::now());
        }
    }

    /// Counts a message of the reply.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.record.sent += bytes as u64;
        if let Some(watched) = &mut self.record.watched {
            watched.replied(clock::now());
        }
        if let Some(counts) = &self.peer.counts {
            counts.sent(1, clock::now());
        }
    }

    /// Records the status with which the call ended; only the first one counts.
    pub(super) fn end(&mut self, code: Code) {
        if let Some(counts) = self.peer.counts.as_ref().filter(|_| !self.ended) {
            counts.ended(1);
        }
        self.count_end(code);
    }

    fn count_end(&mut self, code: Code) {
        if self.ended {
            return;
        }
        self.ended = true;
        let now = clock::now();
        let ended = self.record.ended(code, 0, now);
        self.shared().metrics.record(self.shard, self.wire, self.record.method, &ended);
        if let Some(counts) = &self.peer.tally {
            let failed = u64::from(code != Code::Ok);
            counts.add(&Tally { calls: 1, failed, received: ended.received, sent: ended.sent });
        }
        self.shared().log_end(&self.peer, &self.record, &ended, now);
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.shared().flights.leave(self.shard, place);
            self.shared().unpark(self.shard, self.wire, self.record.method);
            self.connection_memory().unpark();
        }
        if let Some(counts) = self.peer.counts.as_ref().filter(|_| !self.ended) {
            // The caller of a late call receives a status; a caller that disconnected does not.
            if self.is_late() { counts.ended(1) } else { counts.lost() }
        }
        self.count_end(if self.is_late() { Code::DeadlineExceeded } else { Code::Canceled });
    }
}
