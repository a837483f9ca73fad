//! Memory that a connection holds for its peer, as reported to the server's memory budget, and restrictions
//! while memory is short.

use super::{Connection, FLUSH_BYTES, Read};
use crate::driver::calls::Stage;
use bytes::BytesMut;
use std::time::Instant;
use switchboard_core::{
    Limits, Pusher,
    memory::{LARGE, PAUSE, Pressure, Restrictions},
};
use switchboard_net::net;
use switchboard_wire::{MethodId, wire::ServerWire};

/// Minimum change in bytes that is reported.
const CHANGE: usize = 1 << 10;
/// Maximum message size while memory is severely short: the size that a read buffer holds anyway.
const MESSAGE_MAX: u32 = 64 << 10;

/// Weight of a connection that is not read because of one stream: above every limit, and small enough for
/// additions without overflow.
const READ_PAUSED: usize = usize::MAX / 2;

/// Memory that a connection holds, and its limits.
pub(super) struct ConnectionMemory {
    /// Bytes that were last reported to the memory budget.
    reported: usize,
    /// Bytes of requests and queues of the parked calls.
    pub(super) calls: usize,
    pub(super) restrictions: Restrictions,
    /// Maximum of outbox bytes plus `weight`; above it the connection is not read.
    pub(super) limit: usize,
    /// Bytes added to the outbox for the comparison with `limit`: `calls` while memory is short.
    pub(super) weight: usize,
    /// The call whose slow reader stops reading from the connection, and since when.
    pub(super) read_paused_by: Option<(u32, Instant)>,
    /// Outbox size above which streams wait.
    pub(super) stream_limit: usize,
    /// The connection is not read, because memory is short.
    pub(super) paused: bool,
    /// Large messages are rejected.
    refuses_large: bool,
    /// Time of the last read while paused.
    trickled: Option<Instant>,
    /// One read is due in this turn although the connection is paused; it starts no call.
    pub(super) trickles: bool,
}

impl ConnectionMemory {
    pub(super) fn new(settings: &Limits) -> ConnectionMemory {
        ConnectionMemory {
            reported: 0,
            calls: 0,
            restrictions: Restrictions::NONE,
            limit: settings.outbox_bytes_max(),
            weight: 0,
            read_paused_by: None,
            stream_limit: FLUSH_BYTES,
            paused: false,
            refuses_large: false,
            trickled: None,
            trickles: false,
        }
    }

    fn weigh(&mut self) {
        self.weight = match self.restrictions.pressure {
            _ if self.read_paused_by.is_some() => READ_PAUSED,
            _ if self.trickles => 0,
            Pressure::Normal => 0,
            Pressure::High | Pressure::Severe => self.calls,
            // A connection that holds little may still send bytes that end a call.
            Pressure::Exhausted => usize::from(self.calls > LARGE),
        };
    }

    /// Stops reading until the reader of this call has caught up; `None` resumes reading.
    pub(super) fn pause_reading(&mut self, call: Option<(u32, Instant)>) {
        self.read_paused_by = call;
        self.weigh();
    }

    /// Replaces the charge of a call, `before`, by `now`.
    pub(super) fn change(&mut self, before: usize, now: usize) {
        self.calls = self.calls + now - before;
        self.weigh();
    }
}

impl<W: ServerWire> Connection<W> {
    /// Updates the limits of this turn from the memory budget.
    #[inline]
    pub(super) fn look(&mut self) {
        let restrictions = self.shared.memory.restrictions(self.memory.paused);
        if restrictions.pressure != Pressure::Normal || self.memory.restrictions.pressure != Pressure::Normal
        {
            self.apply(restrictions);
        }
    }

    #[cold]
    fn apply(&mut self, restrictions: Restrictions) {
        let outbox = self.settings.outbox_bytes_max();
        self.memory.restrictions = restrictions;
        self.memory.limit = if restrictions.pressure == Pressure::Exhausted {
            0
        } else {
            outbox.min(restrictions.read_limit)
        };
        self.memory.stream_limit = self.memory.limit.min(FLUSH_BYTES);
        self.memory.trickles = self.trickle(restrictions);
        self.memory.weigh();
        let refuses = restrictions.pressure >= Pressure::Severe;
        if std::mem::replace(&mut self.memory.refuses_large, refuses) != refuses {
            self.wire.take_at_most(if refuses { MESSAGE_MAX } else { u32::MAX });
            // The machine must check again a message that has arrived in part.
            self.held |= refuses && !self.input.is_empty();
        }
    }

    /// Returns whether to read once although the connection is paused: for keepalives, cancellations and the
    /// end of the connection. Not while the peer has replies to read.
    fn trickle(&mut self, restrictions: Restrictions) -> bool {
        let due =
            self.memory.trickled.is_none_or(|last| switchboard_core::clock::after(last, PAUSE) <= self.now);
        let trickles =
            restrictions.pressure != Pressure::Normal && self.memory.paused && self.out.is_empty() && due;
        if trickles {
            self.memory.trickled = Some(self.now);
        }
        trickles
    }

    /// Ends the exception for a paused connection after a read.
    #[inline]
    pub(super) fn trickled(&mut self) {
        if self.memory.trickles {
            self.memory.trickles = false;
            self.memory.weigh();
        }
    }

    /// Reports to the memory budget how much the connection holds until its next turn.
    #[inline]
    pub(super) fn settle(&mut self) {
        let input = match self.input.len() {
            0 => 0,
            // Pages that were never written use no memory.
            len => len.max(self.input.capacity().min(net::BUFFER_BYTES)),
        };
        let pushes = self.peer.pusher.as_ref().filter(|pusher| pusher.any()).map_or(0, Pusher::queued_bytes);
        let machine = self.wire.unsent_response_bytes() + self.wire.memory().bytes;
        let held = self.out.allocated_bytes() + machine + self.memory.calls + input + pushes;
        if held != self.memory.reported && (held == 0 || held.abs_diff(self.memory.reported) >= CHANGE) {
            self.shared.memory.change(self.memory.reported, held);
            self.memory.reported = held;
            self.wakes.set_held(held);
            self.look();
        }
        if self.memory.restrictions.pressure != Pressure::Normal || self.memory.paused {
            self.wait_for_memory();
        }
    }

    #[cold]
    fn wait_for_memory(&mut self) {
        self.trickled();
        let paused = self.memory.restrictions.pressure != Pressure::Normal && self.is_full();
        if std::mem::replace(&mut self.memory.paused, paused) != paused {
            self.shared.memory.pause(paused);
            self.wakes.set_paused(paused);
        }
        if paused || !self.stalled.is_empty() {
            let again = switchboard_core::clock::after(self.now, PAUSE);
            self.alarm = Some(self.alarm.map_or(again, |alarm| alarm.min(again)));
        }
    }

    /// Recomputes the memory of a call with streams.
    pub(super) fn weigh(&mut self, index: u32) {
        let Some(parked) = self.calls.get_mut(index) else { return };
        let requests = match &parked.inbound {
            Some(queue) => queue.bytes(),
            None => parked.received as usize,
        };
        let replies = match &parked.stage {
            Stage::Replies { items, .. } => items.queued_bytes(),
            Stage::Handler { .. } | Stage::Polled => 0,
        };
        let held = parked.entry + requests + replies;
        let before = std::mem::replace(&mut parked.held, held);
        if replies > LARGE {
            self.shared.memory.note(parked.method, replies);
        }
        self.memory.change(before, held);
    }

    /// Returns whether there is memory for a large reply.
    #[cold]
    pub(super) fn takes_reply(&self, method: MethodId, bytes: usize) -> bool {
        self.shared.memory.note(method, bytes);
        bytes <= self.memory.restrictions.reply_bytes_max.saturating_sub(self.out.len()).max(LARGE)
    }

    /// Returns whether the peer is in the middle of a large message for which there is no memory, on a wire
    /// that cannot reject it. Waiting would not help: many such peers could hold all the memory, and none of
    /// them would finish.
    #[inline]
    pub(super) fn lacks_room(&self) -> bool {
        self.memory.restrictions.pressure == Pressure::Exhausted && self.input.len() > MESSAGE_MAX as usize
    }

    /// Closes a connection for which `lacks_room` returns true.
    #[cold]
    pub(super) fn close_for_memory(&mut self) -> Read {
        let status = self.shared.memory.aborts();
        tracing::warn!(peer = %self.peer.address, "closed: {}", status.message());
        self.wire.drain(status.message(), &mut self.out);
        self.input = BytesMut::new();
        self.discards = true;
        self.close_read();
        Read::Over
    }
}

impl<W> Connection<W> {
    /// Releases the whole charge at the end of the connection.
    pub(super) fn release(&mut self) {
        self.shared.memory.change(self.memory.reported, 0);
        if self.memory.paused {
            self.shared.memory.pause(false);
        }
    }
}
