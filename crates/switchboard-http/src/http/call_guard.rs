//! Counts a call while it runs and when it ends, however it ends.

use super::{
    connection_memory::{ConnectionMemory, MemoryCharge},
    dispatch::late,
};
use crate::http::HttpState;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
    time::{Duration, Instant},
};
use switchboard_core::{
    Caller, Peer, Result,
    access::{Busy, CallerWatch, Entry},
    context,
    memory::Pressure,
    metrics::{Ended, Tally},
    trace::Trace,
};
use switchboard_driver::serving::going_away;
use switchboard_net::connection::Flight;
use switchboard_wire::{Code, Kind, MethodId, Retry, Status, WireId};
use tokio::time::Sleep;

/// Counts one call. If it is dropped before the call ends, the call counts as canceled, or as late if its deadline has
/// passed.
pub(super) struct CallGuard {
    /// Memory that the connection holds for the request.
    charge: MemoryCharge,
    shard: usize,
    wire: WireId,
    method: MethodId,
    began: Instant,
    deadline: Option<Instant>,
    peer: Arc<Peer>,
    trace: Option<Arc<Trace>>,
    /// The name of a method that no service declares.
    undeclared_name: Option<switchboard_wire::UndeclaredName>,
    /// Set for calls that may be logged.
    caller: Option<Arc<Caller>>,
    /// For a stream: time of the last request message before the first reply message.
    last_request: Instant,
    /// Time from `last_request` to the first reply message.
    waited: Option<Duration>,
    /// The longest poll of the handler of a stream.
    longest_turn: Duration,
    /// Bytes of messages so far.
    received: u64,
    sent: u64,
    /// Index in the list of waiting calls.
    place: Option<usize>,
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
        let (began, requested) = (switchboard_core::clock::now(), deadline);
        let deadline = shared.guarding.deadlines.cap(method, began, deadline);
        let alarm = deadline.filter(|_| deadline != requested);
        let alarm = alarm.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
        if let Some(counts) = &peer.counts {
            counts.started(1, began);
        }
        let mut call_guard = CallGuard {
            charge: connection_memory.charge(),
            shard,
            wire: peer.wire.unwrap_or(WireId::HTTP_JSON),
            method,
            began,
            deadline,
            peer: peer.clone(),
            trace: None,
            undeclared_name: None,
            caller: None,
            last_request: began,
            waited: None,
            longest_turn: Duration::ZERO,
            received: 0,
            sent: 0,
            place: None,
            ended: false,
            alarm,
        };
        let refused = if deadline.is_some_and(|deadline| deadline <= began) {
            Some(Status::deadline_exceeded("the deadline had passed when the call arrived"))
        } else {
            let parked = shared.parked.load(Ordering::Relaxed);
            (parked as u64 >= shared.live.server_calls_max.value())
                .then(|| {
                    let text = format!("{parked} calls are in flight on this server (server_calls_max)");
                    Status::resource_exhausted(text).with_retry(Retry::Safe)
                })
                .or_else(|| match shared.memory.restrictions(false).pressure {
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
        self.charge.notes(self.method, replies);
        self.charge.set(requests + replies);
    }

    /// Returns the status that refuses a reply of this length, if memory does not suffice for it.
    pub(super) fn drops(&self, bytes: usize) -> Option<Status> {
        self.charge.drops(self.method, bytes)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
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
            self.place = Some(self.shared().flights.enter(self.shard, flight, waker.clone()));
            self.shared().parked.fetch_add(1, Ordering::Relaxed);
            self.connection_memory().park();
            self.shared().metrics.park(self.shard, self.wire, self.method);
        }
    }

    pub(super) fn set_trace(&mut self, trace: Option<Arc<Trace>>) {
        self.trace = trace;
    }

    /// Sets the name of a method that no service declares.
    pub(super) fn set_undeclared_name(&mut self, undeclared_name: Option<switchboard_wire::UndeclaredName>) {
        self.undeclared_name = undeclared_name;
    }

    /// Polls the handler of the call: under its deadline, in its trace, and watched if it may be logged.
    pub(super) fn poll<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        let access = &self.shared().access;
        let is_watched = self.caller.is_none() && access.is_on();
        let began = (self.is_stream() && access.times_all()).then(switchboard_core::clock::now);
        let watch = CallerWatch::begin(is_watched);
        let polled = context::scope(self.deadline, self.trace.as_ref(), poll);
        if let Some(caller) = watch.and_then(CallerWatch::end) {
            self.caller = Some(caller);
        }
        if let Some(began) = began {
            self.longest_turn = self.longest_turn.max(switchboard_core::clock::since(began));
        }
        polled
    }

    fn is_stream(&self) -> bool {
        self.shared().table.info(self.method).kind != Kind::Unary
    }

    /// Returns why the call must end, if it must: a handler that is ready after the deadline is late as well.
    pub(super) fn over(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if self.poll_late(cx) {
            return Some(late(self.allowed()));
        }
        (self.place.is_some() && self.shared().ending.load(Ordering::Relaxed)).then(going_away)
    }

    /// Returns the time that its caller or a limit of the server gave the call.
    pub(super) fn allowed(&self) -> Duration {
        self.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(self.began))
    }

    /// Returns whether the deadline has passed; if not, the call is woken when a limit of the server ends it.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_late() || self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready())
    }

    /// Returns whether the deadline has passed.
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= switchboard_core::clock::now())
    }

    /// Counts a message of the request.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        if self.waited.is_none() && self.is_stream() && self.shared().access.times_all() {
            self.last_request = switchboard_core::clock::now();
        }
        if let Some(counts) = &self.peer.counts {
            counts.received(1, switchboard_core::clock::now());
        }
    }

    /// Counts a message of the reply.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        if self.waited.is_none() && self.is_stream() && self.shared().access.times_all() {
            self.waited = Some(switchboard_core::clock::since(self.last_request));
        }
        if let Some(counts) = &self.peer.counts {
            counts.sent(1, switchboard_core::clock::now());
        }
    }

    /// Records the status with which the call ended; only the first one counts.
    pub(super) fn end(&mut self, code: Code) {
        if let Some(counts) = self.peer.counts.as_ref().filter(|_| !self.ended) {
            counts.ended(1);
        }
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        if !self.ended {
            self.ended = true;
            let took = switchboard_core::clock::since(self.began);
            let ended = Ended { calls: 1, code, took, received: self.received, sent: self.sent };
            self.shared().metrics.record(self.shard, self.wire, self.method, &ended);
            if let Some(counts) = &self.peer.tally {
                let failed = u64::from(code != Code::Ok);
                counts.add(&Tally { calls: 1, failed, received: self.received, sent: self.sent });
            }
            if self.shared().access.is_on() {
                let is_picked = self.shared().access.picks();
                let busy = match self.is_stream() {
                    false => Busy::Call(took),
                    true => {
                        let waited =
                            self.waited.unwrap_or_else(|| switchboard_core::clock::since(self.last_request));
                        Busy::Stream(waited.max(self.longest_turn))
                    }
                };
                self.shared().access.log(is_picked, took, busy, || Entry {
                    method: match &self.undeclared_name {
                        Some(name) => name.to_string(),
                        None => self.shared().table.full_name(self.method),
                    },
                    peer: &self.peer,
                    caller: self.caller.as_deref().map(|caller| &caller.name[..]),
                    code,
                    received: self.received,
                    sent: self.sent,
                    trace: self.trace.as_deref(),
                });
            }
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared().flights.leave(self.shard, place);
            self.shared().parked.fetch_sub(1, Ordering::Relaxed);
            self.connection_memory().unpark();
            self.shared().metrics.unpark(self.shard, self.wire, self.method);
        }
        if let Some(counts) = self.peer.counts.as_ref().filter(|_| !self.ended) {
            // The caller of a late call receives a status; a caller that disconnected does not.
            if self.is_late() { counts.ended(1) } else { counts.lost() }
        }
        self.record(if self.is_late() { Code::DeadlineExceeded } else { Code::Canceled });
    }
}
