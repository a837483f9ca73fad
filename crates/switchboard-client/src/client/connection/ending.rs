//! The end of a connection, and of its calls.

use super::{Connection, Task};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use switchboard_wire::{Code, Origin, Retry, Status};

/// A server that closes an unused connection within this time after it was opened counts as unreachable.
const UNUSED: Duration = Duration::from_secs(1);
/// Maximum time that a connection without any traffic stays open. A server that detects wires by their first bytes
/// closes it, Switchboard after 5 seconds by default (`sniff_timeout`), and a call sent at that moment would be lost.
pub(super) const UNUSED_MAX: Duration = Duration::from_secs(4);

/// Result of a connection.
pub(in crate::client) enum ConnectionEnd {
    /// The server had sent something before, or there was no request that it could respond to.
    Responded,
    /// The server had sent nothing, not even its preface.
    Silent(Status),
}

/// Traffic on a connection so far.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Activity {
    /// None: wires of other frameworks begin with a call.
    #[default]
    Nothing,
    /// The client has sent something.
    Sent,
    /// The server has sent something.
    Received,
}

impl Activity {
    #[inline]
    pub(super) fn note_sent(&mut self, something: bool) {
        *self = (*self).max(if something { Activity::Sent } else { Activity::Nothing });
    }

    /// Returns the result of a connection with this activity, on which nothing was read since `since`. A server may
    /// close a connection that was never used: this is not a failure, so calls need no back-off.
    pub(super) fn ended(self, since: Instant, end: Status) -> ConnectionEnd {
        match self {
            Activity::Received => ConnectionEnd::Responded,
            Activity::Nothing if switchboard_core::clock::since(since) > UNUSED => ConnectionEnd::Responded,
            Activity::Nothing | Activity::Sent => ConnectionEnd::Silent(end),
        }
    }
}

/// Ends every call in flight; new ones are rejected.
pub(super) fn close(connection: &Connection, status: &Status) {
    let mut wake = Vec::new();
    let mut inner = connection.lock();
    inner.state.close(status);
    connection.publish(&inner);
    wake.extend(inner.settings_waker.take());
    let ids: Vec<_> = inner.calls.iter_mut().map(|(id, _)| id).collect();
    for id in ids {
        inner.fail(id, status.clone(), &mut wake);
    }
    drop(inner);
    connection.room.notify_waiters();
    for waker in wake {
        waker.wake();
    }
}

impl Task {
    /// Ends a connection that has waited too long for its first call; the next call opens another.
    #[inline]
    pub(super) fn close_unused(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        let unused = self.unused.as_mut()?;
        if self.activity > Activity::Nothing {
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
        // Under the lock: a caller that comes now uses another connection.
        let text = format!("the connection was not used for {UNUSED_MAX:?}");
        self.connection.drain(&mut inner, || Status::unavailable(text));
        inner.state.rejection().cloned()
    }

    pub(super) fn lost(&self, why: &str) -> Status {
        Status::unavailable(format!("the connection to {} is lost: {why}", self.peer))
            .with_origin(Origin::Connection)
            .with_retry(Retry::IfIdempotent)
    }

    /// Creates the status of a connection that the server closed, for the `reason` that it has sent. A server that
    /// rejects the connection as such sends a code of its own: no call has reached it.
    pub(super) fn closed_by_server(&self, reason: Option<Status>) -> Status {
        let Some(reason) = reason else { return self.lost("the server closed it") };
        let status = self.lost(&format!("the server closed it: {}", reason.message()));
        match reason.code() {
            Code::Unavailable => status,
            code => Status::new(code, status.message()).with_origin(Origin::Peer).with_retry(reason.retry()),
        }
    }
}

impl Future for Task {
    type Output = ConnectionEnd;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let this = self.get_mut();
        this.turn(cx).map(|end| {
            // Sends the close messages of TLS and WebSockets. One attempt, because no result is needed.
            let _ = Pin::new(&mut *this.io).poll_shutdown(cx);
            close(&this.connection, &end);
            // Wakes the calls whose deadline passed in this turn.
            for waker in this.wake.drain(..) {
                waker.wake();
            }
            this.activity.ended(this.keepalive.last_read(), end)
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // The runtime that drove the connection has ended, or the task was aborted, or the connection has ended.
        close(&self.connection, &self.lost("its runtime has ended, or it was aborted"));
    }
}

#[cfg(any(test, feature = "simulation"))]
impl Connection {
    /// Resources held for calls.
    pub(in super::super) fn left(&self) -> [(&'static str, usize); 4] {
        let inner = self.lock();
        let (calls, fresh, due) = (inner.calls.len(), inner.fresh.len(), inner.due.len());
        [("calls", calls), ("fresh calls", fresh), ("due streams", due), ("bytes to write", inner.out.len())]
    }
}
