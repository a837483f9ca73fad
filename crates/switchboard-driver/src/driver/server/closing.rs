//! The end of a server connection: the drain, the last bytes, and the input that follows them.

use super::Connection;
use crate::serving::going_away;
use std::{
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use switchboard_core::clock::after;
use switchboard_wire::wire::ServerWire;

/// Maximum number of discarded reads per turn, so that other connections run.
const DISCARDS_MAX: usize = 16;
/// Time that a client has to receive the drain notice before its new calls are refused, and afterwards,
/// without calls in flight, to close the connection.
pub const LINGER: Duration = Duration::from_millis(500);

/// Phase of a server connection. It only moves forward, in the order of the variants, and may leave out any.
#[derive(Clone, Copy, Debug)]
pub(super) enum ConnectionState {
    /// Calls start.
    Open,
    /// The peer was notified to start no further calls; those in flight continue.
    Draining { since: Instant },
    /// The calls of a drained connection have ended, and its last bytes are written. Input is still handled: the peer
    /// may respond to them, and the connection waits for that if the wire has a response.
    Closing { since: Instant, awaits_peer: bool },
    /// The peer made an error, and its calls were dropped. The outbox is written, and what the peer still sends is read
    /// and discarded: if the socket is closed with unread input, the system may discard the last bytes that were
    /// written.
    /// `since` is the time at which nothing was left to write.
    Discarding { since: Option<Instant> },
    /// The peer sends nothing more, and its calls were dropped. The outbox is written; `since` as above.
    ReadClosed { since: Option<Instant> },
}

impl ConnectionState {
    /// Returns whether input of the peer is handled.
    #[inline]
    pub(super) fn reads(self) -> bool {
        match self {
            ConnectionState::Open | ConnectionState::Draining { .. } | ConnectionState::Closing { .. } => {
                true
            }
            ConnectionState::Discarding { .. } | ConnectionState::ReadClosed { .. } => false,
        }
    }

    /// Returns when the wait for the end began, if it has.
    pub(super) fn lingers_since(self) -> Option<Instant> {
        match self {
            ConnectionState::Open | ConnectionState::Draining { .. } => None,
            ConnectionState::Closing { since, .. } => Some(since),
            ConnectionState::Discarding { since } | ConnectionState::ReadClosed { since } => since,
        }
    }

    /// Begins the wait for the end, unless it has begun; returns when it did.
    fn linger(&mut self, now: Instant) -> Instant {
        match self {
            ConnectionState::Open | ConnectionState::Draining { .. } => {
                *self = ConnectionState::Closing { since: now, awaits_peer: false };
                now
            }
            ConnectionState::Closing { since, .. } => *since,
            ConnectionState::Discarding { since } | ConnectionState::ReadClosed { since } => {
                *since.get_or_insert(now)
            }
        }
    }
}

impl<W: ServerWire> Connection<W> {
    /// Drains the connection when the server drains or the connection is old, and ends its calls when the server does.
    #[inline]
    pub(super) fn follow_server(&mut self) {
        match self.state {
            ConnectionState::Open => {
                if self.shared.draining.load(Ordering::Relaxed) {
                    self.drain("the server is going away");
                } else if self.wakes.is_retired() {
                    self.drain("the connection is old (connection_age)");
                }
            }
            _ if self.calls.len() > 0 && self.shared.ending.load(Ordering::Relaxed) => self.end_all(),
            _ => {}
        }
    }

    /// Sends the peer a notice to start no further calls on this connection.
    #[cold]
    fn drain(&mut self, reason: &str) {
        self.state = ConnectionState::Draining { since: self.now };
        self.wire.drain(reason, &mut self.out);
        self.timer.wake_by(after(self.now, LINGER));
    }

    /// Ends all calls whose grace period is over, because the server stops.
    #[cold]
    fn end_all(&mut self) {
        for index in self.calls.all() {
            self.finish(index, Err(going_away()));
        }
    }

    /// Returns whether a drained connection may close: its calls have ended, and the peer had time to receive the
    /// notice.
    #[inline]
    pub(super) fn may_close(&self) -> bool {
        let is_time = match self.state {
            ConnectionState::Draining { since } => self.now > after(since, LINGER),
            ConnectionState::Closing { .. } => true,
            _ => false,
        };
        if !is_time || self.calls.len() > 0 || !self.out.is_empty() || self.wire.holds_ends() {
            return false;
        }
        // Requests that the peer does not end, and responses that it does not accept, do not hold up the end of the
        // server.
        let is_idle = self.wire.waiting_bytes() == 0 && !self.wire.has_partial_calls();
        is_idle || self.shared.ending.load(Ordering::Relaxed)
    }

    /// Queues the last bytes of a drained connection; returns whether the connection must wait before it
    /// ends.
    pub(super) fn closes(&mut self, cx: &mut Context<'_>) -> bool {
        if let ConnectionState::Draining { .. } = self.state {
            let awaits_peer = self.wire.close(&mut self.out);
            if awaits_peer || !self.out.is_empty() {
                self.state = ConnectionState::Closing { since: self.now, awaits_peer };
                return self.flush(cx, false).is_ok();
            }
        }
        self.lingers(cx)
    }

    /// Returns whether the connection must wait before it ends: for the peer's response to the last bytes of
    /// the machine, for those of the transport, or for input that the peer still sends after a protocol
    /// error.
    pub(super) fn lingers(&mut self, cx: &mut Context<'_>) -> bool {
        if self.now > after(self.state.linger(self.now), LINGER) {
            return false;
        }
        if let ConnectionState::Closing { awaits_peer: true, .. } = self.state {
            return true;
        }
        if Pin::new(&mut *self.io).poll_shutdown(cx).is_pending() {
            return true;
        }
        for _ in 0..DISCARDS_MAX {
            let ConnectionState::Discarding { since } = self.state else { return false };
            match self.input.poll_discard(&mut *self.io, cx) {
                Poll::Pending => return true,
                Poll::Ready(Ok(read)) if read > 0 => {}
                Poll::Ready(_) => self.state = ConnectionState::ReadClosed { since },
            }
        }
        cx.waker().wake_by_ref();
        true
    }

    /// Stops handling input and drops the calls in flight: their callers are gone.
    pub(super) fn close_read(&mut self) {
        self.state = ConnectionState::ReadClosed { since: self.state.lingers_since() };
        self.forget_all();
    }

    /// Like [`close_read`](Self::close_read), after an error of a peer that may still send.
    #[cold]
    pub(super) fn discard_input(&mut self) {
        self.state = ConnectionState::Discarding { since: self.state.lingers_since() };
        self.forget_all();
    }

    fn forget_all(&mut self) {
        for index in self.calls.all() {
            self.forget(index);
        }
    }
}
