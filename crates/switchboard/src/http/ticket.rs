//! What is counted of a call while it runs and when it ends, however it ends.

use crate::{
    Code, Result, Retry, Status,
    server::{Shared, Socket},
};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::Context,
    time::Instant,
};
use switchboard_wire::MethodId;
use tokio::time::Sleep;

/// Counts one call. Dropped before its end it counts as canceled, or as late if its deadline has passed.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    shard: usize,
    method: MethodId,
    began: Instant,
    deadline: Option<Instant>,
    /// Of the connection, where somebody may ask.
    counts: Option<Arc<Socket>>,
    parked: bool,
    ended: bool,
    /// Wakes the call at a deadline that its caller did not set.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Ticket {
    /// Begins to count, under the deadline that the server allows.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the call came too late, `ResourceExhausted` when the server has too many.
    pub(super) fn new(
        shared: &Arc<Shared>,
        shard: usize,
        method: MethodId,
        deadline: Option<Instant>,
        counts: Option<&Arc<Socket>>,
    ) -> Result<Ticket> {
        let (began, asked) = (Instant::now(), deadline);
        let deadline = shared.guarding.deadlines.cap(method, began, deadline);
        let alarm = deadline.filter(|_| deadline != asked);
        let alarm = alarm.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into())));
        if let Some(counts) = counts {
            counts.started(1, began);
        }
        let mut ticket = Ticket {
            shared: shared.clone(),
            shard,
            method,
            began,
            deadline,
            counts: counts.cloned(),
            parked: false,
            ended: false,
            alarm,
        };
        let refused = if deadline.is_some_and(|deadline| deadline <= began) {
            Some(Status::deadline_exceeded("the deadline had passed when the call arrived"))
        } else {
            let parked = shared.parked.load(Ordering::Relaxed);
            (parked >= shared.limits.server_calls_max()).then(|| {
                let text = format!("{parked} calls are in flight on this server (server_calls_max)");
                Status::resource_exhausted(text).with_retry(Retry::Safe)
            })
        };
        match refused {
            None => Ok(ticket),
            Some(status) => {
                ticket.end(status.code());
                Err(status)
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The handler waits: from now on the call counts as one in flight.
    pub(super) fn park(&mut self) {
        if !self.parked {
            self.parked = true;
            self.shared.parked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the deadline has passed; if not, the call is woken when a cap of the server ends it.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_late() || self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready())
    }

    /// Whether the deadline has passed.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// A message of the request is here.
    pub(super) fn received(&self) {
        if let Some(counts) = &self.counts {
            counts.received(1, Instant::now());
        }
    }

    /// A message of the reply is on its way.
    pub(super) fn sent(&self) {
        if let Some(counts) = &self.counts {
            counts.sent(1, Instant::now());
        }
    }

    /// The call ended with a status that its caller gets; only the first end counts.
    pub(super) fn end(&mut self, code: Code) {
        if let Some(counts) = self.counts.as_ref().filter(|_| !self.ended) {
            counts.ended(1);
        }
        self.record(code);
    }

    fn record(&mut self, code: Code) {
        if !self.ended {
            self.ended = true;
            self.shared.metrics.record(self.shard, self.method, code, self.began.elapsed());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.parked {
            self.shared.parked.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(counts) = self.counts.as_ref().filter(|_| !self.ended) {
            // The caller of a late call is told so, one who has gone is not.
            if self.is_late() { counts.ended(1) } else { counts.lost() }
        }
        self.record(if self.is_late() { Code::DeadlineExceeded } else { Code::Canceled });
    }
}
