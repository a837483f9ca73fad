//! How a connection ends, and what becomes of its calls.

use super::{Connection, Task};
use crate::{Origin, Retry, Status};
use std::{
    future::Future,
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// A server that closes a connection on which nobody has said anything, and does so earlier, is not there.
const UNUSED: Duration = Duration::from_secs(1);
/// So long a connection stays open on which nobody has said anything: a server that knows wires by their first bytes
/// closes it, ours after 5 seconds unless it is told otherwise (`sniff_timeout`), and a call that is sent just then
/// would be lost.
pub(super) const UNUSED_MAX: Duration = Duration::from_secs(4);

/// How a connection ended.
pub(in crate::client) enum Ended {
    /// The server had said something before, or there was nothing for it to answer.
    Heard,
    /// The server had said nothing, not even its preface.
    Unheard(Status),
}

/// What went over a connection so far.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Talk {
    /// Nothing: wires of other frameworks begin with a call.
    #[default]
    Nothing,
    /// What we had to say.
    Said,
    /// Something of the server's.
    Heard,
}

impl Talk {
    #[inline]
    pub(super) fn said(&mut self, something: bool) {
        *self = (*self).max(if something { Talk::Said } else { Talk::Nothing });
    }

    /// How a connection ended of which this is known, and on which nothing was read since then. A server may close one
    /// that was never used: that is no failure, after which calls would have to wait.
    pub(super) fn ended(self, since: Instant, end: Status) -> Ended {
        match self {
            Talk::Heard => Ended::Heard,
            Talk::Nothing if crate::clock::now() - since > UNUSED => Ended::Heard,
            Talk::Nothing | Talk::Said => Ended::Unheard(end),
        }
    }
}

/// Ends every call in flight; new ones are refused.
pub(super) fn close(connection: &Connection, status: &Status) {
    connection.usable.store(false, Ordering::Relaxed);
    let mut wake = Vec::new();
    let mut inner = connection.lock();
    inner.closed.get_or_insert_with(|| status.clone());
    wake.extend(inner.settling.take());
    let ids: Vec<_> = inner.calls.iter_mut().map(|(id, _)| id).collect();
    for id in ids {
        inner.fail(id, status.clone(), &mut wake);
    }
    drop(inner);
    for waker in wake {
        waker.wake();
    }
}

impl Task {
    /// Ends a connection that waited for its first call for too long; the next call opens another.
    #[inline]
    pub(super) fn give_back(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        let unused = self.unused.as_mut()?;
        if self.talk > Talk::Nothing {
            self.unused = None;
            return None;
        }
        if unused.as_mut().poll(cx).is_pending() {
            return None;
        }
        let mut inner = self.connection.lock();
        if inner.calls.len() > 0 || !inner.out.is_empty() {
            return None;
        }
        // Under the lock: a caller that comes now is sent elsewhere.
        self.connection.usable.store(false, Ordering::Relaxed);
        let text = format!("the connection was not used for {UNUSED_MAX:?}");
        Some(inner.closed.get_or_insert_with(|| Status::unavailable(text)).clone())
    }

    pub(super) fn lost(&self, why: &str) -> Status {
        Status::unavailable(format!("the connection to {} is lost: {why}", self.peer))
            .with_origin(Origin::Path)
            .with_retry(Retry::IfIdempotent)
    }
}

impl Future for Task {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = self.get_mut();
        this.turn(cx).map(|end| {
            // TLS and WebSockets say that they end. One try: nobody waits for the answer.
            let _ = Pin::new(&mut *this.io).poll_shutdown(cx);
            close(&this.connection, &end);
            // Calls whose deadline passed in this very turn.
            for waker in this.wake.drain(..) {
                waker.wake();
            }
            this.talk.ended(this.last_read, end)
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // The runtime that drove the connection has ended, or a cut its task, or the connection has.
        close(&self.connection, &self.lost("its runtime has ended, or it was cut"));
    }
}

#[cfg(test)]
impl Connection {
    /// What is held for calls.
    pub(in super::super) fn left(&self) -> [(&'static str, usize); 4] {
        let inner = self.lock();
        let (calls, fresh, due) = (inner.calls.len(), inner.fresh.len(), inner.due.len());
        [("calls", calls), ("fresh calls", fresh), ("due streams", due), ("bytes to write", inner.out.len())]
    }
}
