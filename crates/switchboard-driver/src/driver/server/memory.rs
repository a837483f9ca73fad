//! Memory that a connection holds for its peer, as reported to the server's memory budget, and restrictions
//! while memory is short.

use super::{Connection, FLUSH_BYTES, Read};
use crate::driver::calls::Stage;
use std::time::Instant;
use switchboard_core::{
    Limits, Pusher,
    clock::after,
    memory::{LARGE, PAUSE, Pressure, ReportedBytes, Restrictions},
};
use switchboard_wire::{MethodId, wire::ServerWire};

/// Maximum message size while memory is severely short: the size that a read buffer holds anyway.
const MESSAGE_MAX: u32 = 64 << 10;

/// Weight of a connection that is not read because of one stream: above every limit, and small enough for
/// additions without overflow.
const READ_PAUSED: usize = usize::MAX / 2;

/// Memory that a connection holds, and its limits.
pub(super) struct ConnectionMemory {
    /// Bytes that the memory budget knows of.
    reported: ReportedBytes,
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
    reads: Reads,
    /// Time of the last read while paused.
    read_once_at: Option<Instant>,
}

/// Decision of the memory budget about reading from a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reads {
    Normal,
    /// The connection is not read, because memory is short and it holds too much.
    Paused,
    /// The connection is paused, but one read is due in this turn; it starts no call.
    PausedButOnce,
}

impl ConnectionMemory {
    pub(super) fn new(settings: &Limits) -> ConnectionMemory {
        ConnectionMemory {
            reported: ReportedBytes::default(),
            calls: 0,
            restrictions: Restrictions::NONE,
            limit: settings.outbox_bytes_max(),
            weight: 0,
            read_paused_by: None,
            stream_limit: FLUSH_BYTES,
            reads: Reads::Normal,
            read_once_at: None,
        }
    }

    /// Returns whether reads are paused because memory is short.
    #[inline]
    fn is_paused(&self) -> bool {
        self.reads != Reads::Normal
    }

    /// Returns whether this turn reads although reads are paused; then no call starts.
    #[inline]
    pub(super) fn reads_once(&self) -> bool {
        self.reads == Reads::PausedButOnce
    }

    fn weigh(&mut self) {
        self.weight = match self.restrictions.pressure {
            _ if self.read_paused_by.is_some() => READ_PAUSED,
            _ if self.reads_once() => 0,
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
        let restrictions = self.shared.memory.restrictions(self.memory.is_paused());
        if restrictions.pressure != Pressure::Normal || self.memory.restrictions.pressure != Pressure::Normal
        {
            self.apply(restrictions);
        }
    }

    #[cold]
    fn apply(&mut self, restrictions: Restrictions) {
        let outbox = self.settings.outbox_bytes_max();
        let refused = self.memory.restrictions.pressure >= Pressure::Severe;
        self.memory.restrictions = restrictions;
        self.memory.limit = if restrictions.pressure == Pressure::Exhausted {
            0
        } else {
            outbox.min(restrictions.read_limit)
        };
        self.memory.stream_limit = self.memory.limit.min(FLUSH_BYTES);
        self.read_once_if_due();
        self.memory.weigh();
        let refuses = restrictions.pressure >= Pressure::Severe;
        if refused != refuses {
            self.wire.take_at_most(if refuses { MESSAGE_MAX } else { u32::MAX });
            // The machine must check again a message that has arrived in part.
            self.held |= refuses && !self.input.is_empty();
        }
    }

    /// Lets this turn read once although the connection is paused, if that is due: for keepalives, cancellations and
    /// the end of the connection. Not while the peer has replies to read.
    fn read_once_if_due(&mut self) {
        if !self.memory.is_paused() {
            return;
        }
        let due = self.memory.read_once_at.is_none_or(|last| after(last, PAUSE) <= self.now);
        let reads = self.memory.restrictions.pressure != Pressure::Normal && self.out.is_empty() && due;
        if reads {
            self.memory.read_once_at = Some(self.now);
        }
        self.memory.reads = if reads { Reads::PausedButOnce } else { Reads::Paused };
    }

    /// Ends the exception for a paused connection after a read.
    #[inline]
    pub(super) fn end_read_once(&mut self) {
        if self.memory.reads_once() {
            self.memory.reads = Reads::Paused;
            self.memory.weigh();
        }
    }

    /// Reports to the memory budget how much the connection holds until its next turn.
    #[inline]
    pub(super) fn settle(&mut self) {
        let pushes = self.peer.pusher.as_ref().filter(|pusher| pusher.any()).map_or(0, Pusher::queued_bytes);
        let responses = self.wire.unsent_response_bytes() + self.wire.waiting_bytes();
        let machine = responses + self.wire.memory().bytes;
        let held =
            self.out.allocated_bytes() + machine + self.memory.calls + self.input.held_bytes() + pushes;
        if let Some(before) = self.memory.reported.set(held) {
            self.shared.memory.change(before, held);
            self.wakes.set_held(held);
            self.look();
        }
        if self.memory.restrictions.pressure != Pressure::Normal || self.memory.is_paused() {
            self.wait_for_memory();
        }
    }

    #[cold]
    fn wait_for_memory(&mut self) {
        self.end_read_once();
        let paused = self.memory.restrictions.pressure != Pressure::Normal && self.is_full();
        if self.memory.is_paused() != paused {
            self.memory.reads = if paused { Reads::Paused } else { Reads::Normal };
            self.shared.memory.pause(paused);
            self.wakes.set_paused(paused);
        }
        if paused || !self.stalled.is_empty() {
            self.timer.wake_by(after(self.now, PAUSE));
        }
    }

    /// Recomputes the memory of a call with streams.
    pub(super) fn weigh(&mut self, index: u32) {
        let Some(parked) = self.calls.get_mut(index) else { return };
        let requests = match &parked.inbound {
            Some(queue) => queue.bytes(),
            None => parked.record.received as usize,
        };
        let replies = match &parked.stage {
            Stage::Replies { items, .. } => items.queued_bytes(),
            Stage::Handler { .. } | Stage::Polled => 0,
        };
        let held = parked.entry + requests + replies;
        let before = std::mem::replace(&mut parked.held, held);
        if replies > LARGE {
            self.shared.memory.note(parked.record.method, replies);
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
        self.input.clear();
        self.discard_input();
        Read::Over
    }
}

impl<W> Connection<W> {
    /// Releases the whole charge at the end of the connection.
    pub(super) fn release(&mut self) {
        self.shared.memory.change(self.memory.reported.get(), 0);
        if self.memory.is_paused() {
            self.shared.memory.pause(false);
        }
    }
}
