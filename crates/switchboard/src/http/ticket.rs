//! What is counted of a call while it runs and when it ends, however it ends.

use super::{
    dispatch::late,
    holding::{Holding, Weight},
};
use crate::{
    Code, Peer, Result, Retry, Status,
    access::Entry,
    memory::Level,
    metrics::{Ended, Tally, Wire},
    server::{Flight, Shared, going_away},
    trace::Trace,
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
    time::Instant,
};
use switchboard_wire::MethodId;
use tokio::time::Sleep;

/// Counts one call. Dropped before its end it counts as canceled, or as late if its deadline has passed.
pub(super) struct Ticket {
    /// What its connection holds of its request.
    weight: Weight,
    shard: usize,
    wire: Wire,
    method: MethodId,
    began: Instant,
    deadline: Option<Instant>,
    peer: Arc<Peer>,
    trace: Option<Arc<Trace>>,
    /// Bytes of messages so far.
    received: u64,
    sent: u64,
    /// Where it is listed as one that waits.
    place: Option<usize>,
    ended: bool,
    /// Wakes the call at a deadline that its caller did not set.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Ticket {
    /// Begins to count, under the deadline that the server allows; `request` bytes of it have come.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the call came too late, `ResourceExhausted` when the server has too many.
    pub(super) fn new(
        holding: &Arc<Holding>,
        shard: usize,
        method: MethodId,
        deadline: Option<Instant>,
        peer: &Arc<Peer>,
        request: usize,
    ) -> Result<Ticket> {
        let shared = holding.shared();
        let (began, asked) = (crate::clock::now(), deadline);
        let deadline = shared.guarding.deadlines.cap(method, began, deadline);
        let alarm = deadline.filter(|_| deadline != asked);
        let alarm = alarm.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
        if let Some(counts) = &peer.counts {
            counts.started(1, began);
        }
        let mut ticket = Ticket {
            weight: holding.weight(),
            shard,
            wire: Wire::of(peer.wire),
            method,
            began,
            deadline,
            peer: peer.clone(),
            trace: None,
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
                .or_else(|| match shared.memory.room(false).level {
                    level @ (Level::Hard | Level::Full) => shared.memory.refuses(level, method, request),
                    Level::Calm | Level::Tight => None,
                })
        };
        match refused {
            None => {
                ticket.holds(request);
                Ok(ticket)
            }
            Some(status) => {
                ticket.end(status.code());
                Err(status)
            }
        }
    }

    /// What its connection holds.
    pub(super) fn holding(&self) -> &Holding {
        self.weight.holding()
    }

    fn shared(&self) -> &Shared {
        self.holding().shared()
    }

    /// So many bytes are held for the call.
    pub(super) fn holds(&mut self, bytes: usize) {
        self.weight.set(bytes);
    }

    /// So many bytes are held of what it streams, and of what comes for it.
    pub(super) fn streams(&mut self, requests: usize, replies: usize) {
        self.weight.notes(self.method, replies);
        self.weight.set(requests + replies);
    }

    /// Why there is no room for a reply of this length, if there is none.
    pub(super) fn drops(&self, bytes: usize) -> Option<Status> {
        self.weight.drops(self.method, bytes)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The handler waits: from now on the call counts as one in flight.
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
            self.shared().metrics.park(self.shard, self.wire, self.method);
        }
    }

    /// The trace that it is part of.
    pub(super) fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    pub(super) fn set_trace(&mut self, trace: Option<Arc<Trace>>) {
        self.trace = trace;
    }

    /// Why the call may not go on, if it may not: a handler that is ready now is too late as well.
    pub(super) fn over(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if self.poll_late(cx) {
            return Some(late());
        }
        (self.place.is_some() && self.shared().ending.load(Ordering::Relaxed)).then(going_away)
    }

    /// Whether the deadline has passed; if not, the call is woken when a cap of the server ends it.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_late() || self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready())
    }

    /// Whether the deadline has passed.
    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= crate::clock::now())
    }

    /// A message of the request is here.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        if let Some(counts) = &self.peer.counts {
            counts.received(1, crate::clock::now());
        }
    }

    /// A message of the reply is on its way.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        if let Some(counts) = &self.peer.counts {
            counts.sent(1, crate::clock::now());
        }
    }

    /// The call ended with a status that its caller gets; only the first end counts.
    pub(super) fn end(&mut self, code: Code) {
        if let Some(counts) = self.peer.counts.as_ref().filter(|_| !self.ended) {
            counts.ended(1);
        }
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        if !self.ended {
            self.ended = true;
            let took = crate::clock::since(self.began);
            let ended = Ended { calls: 1, code, took, received: self.received, sent: self.sent };
            self.shared().metrics.record(self.shard, self.wire, self.method, &ended);
            if let Some(counts) = &self.peer.tally {
                let failed = u64::from(code != Code::Ok);
                counts.add(&Tally { calls: 1, failed, received: self.received, sent: self.sent });
            }
            if self.shared().access.is_on() {
                let is_picked = self.shared().access.picks();
                self.shared().access.log(is_picked, took, || Entry {
                    method: self.shared().table.full_name(self.method),
                    peer: &self.peer,
                    code,
                    received: self.received,
                    sent: self.sent,
                    trace: self.trace.as_deref(),
                });
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.shared().flights.leave(self.shard, place);
            self.shared().parked.fetch_sub(1, Ordering::Relaxed);
            self.shared().metrics.unpark(self.shard, self.wire, self.method);
        }
        if let Some(counts) = self.peer.counts.as_ref().filter(|_| !self.ended) {
            // The caller of a late call is told so, one who has gone is not.
            if self.is_late() { counts.ended(1) } else { counts.lost() }
        }
        self.record(if self.is_late() { Code::DeadlineExceeded } else { Code::Canceled });
    }
}
