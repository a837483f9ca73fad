//! Streams of a client connection: requests and credit, and readers that hold back the connection.

use super::{Inner, OUTBOX_HIGH};
use crate::client::calls::State;
use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_core::queue;
use switchboard_net::connection::credit_min;
use switchboard_wire::{Status, wire::ClientWire};

impl Inner {
    /// Sends the pending data of a stream: requests while there is credit and space, and credit for its reader.
    ///
    /// A stream without credit continues with the next CREDIT, one stopped by a full outbox with the next turn, and one
    /// without requests when `waker` is called.
    pub(super) fn pump(&mut self, low: u32, waker: &Waker) {
        let Some(id) = self.calls.with_low_bits(low) else { return };
        let Inner { wire, out, calls, due, window, .. } = self;
        let Some(State::Stream(stream)) = calls.get_mut(id).map(|slot| &mut slot.state) else { return };
        stream.due = false;
        stream.inbound.watch_consumer(waker);
        if stream.inbound.is_closed() {
            // The reader was dropped, so the remaining replies are not needed.
            wire.cancel(id, out);
            return self.end_stream(id, Err(Status::canceled("the caller dropped the stream")));
        }
        let least = credit_min(wire.advertises_windows(), *window);
        if let Some(bytes) = stream.inbound.take_credit(least) {
            wire.credit(id, bytes, out);
        }
        let Some(outbound) = stream.outbound.clone() else { return };
        let mut failed = None;
        let counts_credit = wire.send_window() != u32::MAX;
        while stream.credit > 0 && !wire.is_blocked(id) {
            if out.len() >= OUTBOX_HIGH {
                stream.note_due(id, due);
                break;
            }
            match stream.batch.poll_next(&outbound, &mut Context::from_waker(waker)) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(item))) => {
                    if counts_credit {
                        stream.credit -= queue::weight(&item.bytes) as i64;
                    }
                    if let Err(status) = wire.item(id, &item.bytes, item.compressed, out) {
                        failed = Some(status);
                        break;
                    }
                }
                Poll::Ready(None | Some(Err(_))) => {
                    wire.half_close(id, out);
                    stream.outbound = None;
                    break;
                }
            }
        }
        if let Some(status) = failed {
            wire.cancel(id, out);
            self.end_stream(id, Err(status));
        }
    }

    /// Returns true when the connection may be read: the reader that held it back has taken enough.
    pub(super) fn may_read(&mut self) -> bool {
        let Some(id) = self.read_paused_by else { return true };
        if let Some(State::Stream(stream)) = self.calls.get_mut(id).map(|slot| &mut slot.state)
            && stream.inbound.bytes() >= self.window as usize
        {
            return false;
        }
        self.read_paused_by = None;
        true
    }

    /// Ends the call whose stream has held back the connection for longer than `timeout`.
    #[cold]
    pub(super) fn end_stalled(&mut self, timeout: Duration) {
        let Some(id) = self.read_paused_by.take() else { return };
        let text = format!(
            "no reply was taken for {timeout:?} (stream_stall_timeout) while {} bytes waited for the reader \
             (stream_window_bytes); on {} that holds back all calls of the connection",
            self.window,
            self.wire.name()
        );
        self.wire.cancel(id, &mut self.out);
        self.end_stream(id, Err(Status::resource_exhausted(text)));
    }
}
