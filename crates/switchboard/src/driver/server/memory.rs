//! Memory that a connection holds for its peer, as reported to the server's memory budget, and restrictions
//! while memory is short.

use super::{Connection, FLUSH_BYTES, Read};
use crate::{
    Limits, Pusher,
    driver::calls::Stage,
    memory::{LARGE, Level, PAUSE, Room},
    net,
};
use bytes::BytesMut;
use std::time::Instant;
use switchboard_wire::{MethodId, wire::ServerWire};

/// Minimum change in bytes that is reported.
const CHANGE: usize = 1 << 10;
/// Maximum message size while memory is severely short: the size that a read buffer holds anyway.
const MESSAGE_MAX: u32 = 64 << 10;

/// Weight of a connection that is not read because of one stream: above every limit, and small enough for
/// additions without overflow.
const HELD_BACK: usize = usize::MAX / 2;

/// Memory that a connection holds, and its limits.
pub(super) struct ConnectionMemory {
    /// Bytes that were last reported to the memory budget.
    reported: usize,
    /// Bytes of requests and queues of the parked calls.
    pub(super) calls: usize,
    pub(super) room: Room,
    /// Maximum of outbox bytes plus `weight`; above it the connection is not read.
    pub(super) limit: usize,
    /// Bytes added to the outbox for the comparison with `limit`: `calls` while memory is short.
    pub(super) weight: usize,
    /// The call whose slow reader stops reading from the connection, and since when.
    pub(super) held_back: Option<(u32, Instant)>,
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
            room: Room::CALM,
            limit: settings.outbox_bytes_max(),
            weight: 0,
            held_back: None,
            stream_limit: FLUSH_BYTES,
            paused: false,
            refuses_large: false,
            trickled: None,
            trickles: false,
        }
    }

    fn weigh(&mut self) {
        self.weight = match self.room.level {
            _ if self.held_back.is_some() => HELD_BACK,
            _ if self.trickles => 0,
            Level::Calm => 0,
            Level::Tight | Level::Hard => self.calls,
            // A connection that holds little may still send bytes that end a call.
            Level::Full => usize::from(self.calls > LARGE),
        };
    }

    /// Stops reading until the reader of this call has caught up; `None` resumes reading.
    pub(super) fn hold_back(&mut self, call: Option<(u32, Instant)>) {
        self.held_back = call;
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
        let room = self.shared.memory.room(self.memory.paused);
        if room.level != Level::Calm || self.memory.room.level != Level::Calm {
            self.apply(room);
        }
    }

    #[cold]
    fn apply(&mut self, room: Room) {
        let outbox = self.settings.outbox_bytes_max();
        self.memory.room = room;
        self.memory.limit = if room.level == Level::Full { 0 } else { outbox.min(room.line) };
        self.memory.stream_limit = self.memory.limit.min(FLUSH_BYTES);
        self.memory.trickles = self.trickle(room);
        self.memory.weigh();
        let refuses = room.level >= Level::Hard;
        if std::mem::replace(&mut self.memory.refuses_large, refuses) != refuses {
            self.wire.take_at_most(if refuses { MESSAGE_MAX } else { u32::MAX });
            // The machine must check again a message that has arrived in part.
            self.held |= refuses && !self.input.is_empty();
        }
    }

    /// Returns whether to read once although the connection is paused: for keepalives, cancellations and the
    /// end of the connection. Not while the peer has replies to read.
    fn trickle(&mut self, room: Room) -> bool {
        let due = self.memory.trickled.is_none_or(|last| crate::clock::after(last, PAUSE) <= self.now);
        let trickles = room.level != Level::Calm && self.memory.paused && self.out.is_empty() && due;
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
        let pushes = self.peer.pusher.as_ref().filter(|pusher| pusher.any()).map_or(0, Pusher::held);
        let machine = self.wire.held() + self.wire.kept().bytes;
        let held = self.out.held() + machine + self.memory.calls + input + pushes;
        if held != self.memory.reported && (held == 0 || held.abs_diff(self.memory.reported) >= CHANGE) {
            self.shared.memory.change(self.memory.reported, held);
            self.memory.reported = held;
            self.wakes.set_held(held);
            self.look();
        }
        if self.memory.room.level != Level::Calm || self.memory.paused {
            self.wait_for_room();
        }
    }

    #[cold]
    fn wait_for_room(&mut self) {
        self.trickled();
        let paused = self.memory.room.level != Level::Calm && self.is_full();
        if std::mem::replace(&mut self.memory.paused, paused) != paused {
            self.shared.memory.pause(paused);
            self.wakes.set_paused(paused);
        }
        if paused || !self.stalled.is_empty() {
            let again = crate::clock::after(self.now, PAUSE);
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
            Stage::Replies { items, .. } => items.held(),
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
        bytes <= self.memory.room.left.saturating_sub(self.out.len()).max(LARGE)
    }

    /// Returns whether the peer is in the middle of a large message for which there is no memory, on a wire
    /// that cannot reject it. Waiting would not help: many such peers could hold all the memory, and none of
    /// them would finish.
    #[inline]
    pub(super) fn lacks_room(&self) -> bool {
        self.memory.room.level == Level::Full && self.input.len() > MESSAGE_MAX as usize
    }

    /// Closes a connection for which `lacks_room` returns true.
    #[cold]
    pub(super) fn close_for_memory(&mut self) -> Read {
        let status = self.shared.memory.cuts();
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
