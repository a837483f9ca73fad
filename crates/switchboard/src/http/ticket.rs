//! What is counted of a call while it runs and when it ends, however it ends.

use crate::{Code, Result, Retry, Status, server::Shared};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};
use switchboard_wire::MethodId;

/// Counts one call. Dropped before its end it counts as canceled, or as late if its deadline has passed.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    shard: usize,
    method: MethodId,
    began: Instant,
    deadline: Option<Instant>,
    parked: bool,
    ended: bool,
}

impl Ticket {
    /// Begins to count.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the call came too late, `ResourceExhausted` when the server has too many.
    pub(super) fn new(
        shared: &Arc<Shared>,
        shard: usize,
        method: MethodId,
        deadline: Option<Instant>,
    ) -> Result<Ticket> {
        let began = Instant::now();
        let mut ticket =
            Ticket { shared: shared.clone(), shard, method, began, deadline, parked: false, ended: false };
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

    /// The call ended; only the first end counts.
    pub(super) fn end(&mut self, code: Code) {
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
        let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        self.end(if late { Code::DeadlineExceeded } else { Code::Canceled });
    }
}
