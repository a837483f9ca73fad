//! The end of a server connection: the drain, the last bytes, and the input that follows them.

use super::Connection;
use crate::serving::going_away;
use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use switchboard_core::clock::after;
use switchboard_net::net;
use switchboard_wire::wire::ServerWire;
use tokio::io::AsyncReadExt;

/// Maximum number of discarded reads per turn, so that other connections run.
const DISCARDS_MAX: usize = 16;
/// Time that a client has to receive the drain notice before its new calls are refused, and afterwards,
/// without calls in flight, to close the connection.
pub const LINGER: Duration = Duration::from_millis(500);

impl<W: ServerWire> Connection<W> {
    /// Queues the last bytes of a drained connection; returns whether the connection must wait before it
    /// ends.
    pub(super) fn closes(&mut self, cx: &mut Context<'_>) -> bool {
        if self.closing.is_none() && self.wire.close(&mut self.out) {
            self.closing = Some(self.now);
            self.awaits_close = true;
            return self.flush(cx, false).is_ok();
        }
        self.lingers(cx)
    }

    /// Returns whether the connection must wait before it ends: for the peer's response to the last bytes of
    /// the machine, for those of the transport, or for input that the peer still sends after a protocol
    /// error. If the socket is closed with unread input, the system may discard the last bytes that were
    /// written.
    pub(super) fn lingers(&mut self, cx: &mut Context<'_>) -> bool {
        let began = *self.closing.get_or_insert(self.now);
        if self.now > after(began, LINGER) {
            return false;
        }
        if self.awaits_close || Pin::new(&mut *self.io).poll_shutdown(cx).is_pending() {
            return true;
        }
        for _ in 0..DISCARDS_MAX {
            if !self.discards {
                return false;
            }
            self.input.clear();
            if self.input.capacity() == 0 {
                self.input = net::lend();
            }
            match pin!(self.io.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => {
                    self.input.clear();
                    return true;
                }
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => self.discards = false,
            }
        }
        cx.waker().wake_by_ref();
        true
    }

    /// Sends the peer a notice to start no further calls on this connection.
    #[cold]
    pub(super) fn drain(&mut self, reason: &str) {
        self.draining = Some(self.now);
        self.wire.drain(reason, &mut self.out);
        let linger = after(self.now, LINGER);
        self.alarm = Some(self.alarm.map_or(linger, |alarm| alarm.min(linger)));
    }

    /// Ends all calls whose grace period is over, because the server stops.
    #[cold]
    pub(super) fn end_all(&mut self) {
        for index in self.calls.all() {
            self.finish(index, Err(going_away()));
        }
    }
}
