//! The phase of a client connection.

use super::{Connection, Inner};
use std::sync::atomic::Ordering;
use switchboard_wire::Status;

/// Phase of a client connection. It only moves forward, in the order of the variants.
pub(in crate::client) enum ConnectionState {
    /// New calls are sent.
    Open,
    /// New calls are rejected with this status: the server is going away, or this side needs another connection. Calls
    /// in flight continue, and the connection ends with the last of them.
    Draining(Status),
    /// The connection has ended for this reason, and with it all calls.
    Closed(Status),
}

impl ConnectionState {
    /// Returns why new calls are rejected, if they are.
    #[inline]
    pub(in crate::client) fn rejection(&self) -> Option<&Status> {
        match self {
            ConnectionState::Open => None,
            ConnectionState::Draining(status) | ConnectionState::Closed(status) => Some(status),
        }
    }

    /// Returns whether new calls are sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self, ConnectionState::Open)
    }

    /// Rejects new calls for this reason, unless they are already rejected.
    pub(super) fn drain(&mut self, reason: impl FnOnce() -> Status) {
        if self.is_open() {
            *self = ConnectionState::Draining(reason());
        }
    }

    /// Ends the connection; a reason that was given before stays.
    pub(super) fn close(&mut self, reason: &Status) {
        let reason = self.rejection().unwrap_or(reason).clone();
        *self = ConnectionState::Closed(reason);
    }
}

impl Connection {
    /// Returns whether new calls may use the connection.
    pub(in crate::client) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Rejects further calls for this reason, unless they are already rejected.
    pub(super) fn drain(&self, inner: &mut Inner, reason: impl FnOnce() -> Status) {
        inner.state.drain(reason);
        self.publish(inner);
    }

    /// Makes the state known to callers that select a connection without its lock.
    #[inline]
    pub(super) fn publish(&self, inner: &Inner) {
        if !inner.state.is_open() {
            self.usable.store(false, Ordering::Relaxed);
        }
    }
}
