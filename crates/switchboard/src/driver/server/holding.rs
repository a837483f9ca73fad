//! What a connection holds for its peer, told to the server's account; and what it may do while room is scarce.

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

/// Smaller changes are not told.
const CHANGE: usize = 1 << 10;
/// Messages over this size are not taken in while room is scarce: what a read buffer holds anyway.
const MESSAGE_MAX: u32 = 64 << 10;

/// What a connection holds and may hold.
pub(super) struct Holding {
    /// What the account was told.
    told: usize,
    /// Of requests and queues of the calls that are parked.
    pub(super) calls: usize,
    pub(super) room: Room,
    /// Bytes that may wait to be written, together with `weight`; above it nothing is read.
    pub(super) limit: usize,
    /// What counts beside them: `calls`, while room is scarce.
    pub(super) weight: usize,
    /// Streams wait while more is in the outbox.
    pub(super) stream_limit: usize,
    /// Nothing is read, for want of room.
    pub(super) paused: bool,
    /// Large messages are not taken in.
    refuses_large: bool,
    /// When something was last read although it is paused.
    trickled: Option<Instant>,
    /// Something is to be read in this turn although it is paused; no call is begun.
    pub(super) trickles: bool,
}

impl Holding {
    pub(super) fn new(settings: &Limits) -> Holding {
        Holding {
            told: 0,
            calls: 0,
            room: Room::CALM,
            limit: settings.outbox_bytes_max(),
            weight: 0,
            stream_limit: FLUSH_BYTES,
            paused: false,
            refuses_large: false,
            trickled: None,
            trickles: false,
        }
    }

    fn weigh(&mut self) {
        self.weight = match self.room.level {
            _ if self.trickles => 0,
            Level::Calm => 0,
            Level::Tight | Level::Hard => self.calls,
            // Whoever holds next to nothing may still send what ends a call.
            Level::Full => usize::from(self.calls > LARGE),
        };
    }

    /// A call holds `now` instead of `before`.
    pub(super) fn change(&mut self, before: usize, now: usize) {
        self.calls = self.calls + now - before;
        self.weigh();
    }
}

impl<W: ServerWire + ?Sized> Connection<W> {
    /// Looks how much room there is for this turn.
    #[inline]
    pub(super) fn look(&mut self) {
        let room = self.shared.memory.room(self.holding.paused);
        if room.level != Level::Calm || self.holding.room.level != Level::Calm {
            self.apply(room);
        }
    }

    #[cold]
    fn apply(&mut self, room: Room) {
        let outbox = self.settings.outbox_bytes_max();
        self.holding.room = room;
        self.holding.limit = if room.level == Level::Full { 0 } else { outbox.min(room.line) };
        self.holding.stream_limit = self.holding.limit.min(FLUSH_BYTES);
        self.holding.trickles = self.trickle(room);
        self.holding.weigh();
        let refuses = room.level >= Level::Hard;
        if std::mem::replace(&mut self.holding.refuses_large, refuses) != refuses {
            self.wire.take_at_most(if refuses { MESSAGE_MAX } else { u32::MAX });
            // The machine is to look again at a message that has come in part.
            self.held |= refuses && !self.input.is_empty();
        }
    }

    /// Whether to read once although the connection is paused: for signs of life, cancellations, and its end. Not from
    /// a peer that has replies to read.
    fn trickle(&mut self, room: Room) -> bool {
        let due = self.holding.trickled.is_none_or(|last| last + PAUSE <= self.now);
        let trickles = room.level != Level::Calm && self.holding.paused && self.out.is_empty() && due;
        if trickles {
            self.holding.trickled = Some(self.now);
        }
        trickles
    }

    /// Something was read.
    #[inline]
    pub(super) fn trickled(&mut self) {
        if self.holding.trickles {
            self.holding.trickles = false;
            self.holding.weigh();
        }
    }

    /// Tells the account what the connection holds until its next turn.
    #[inline]
    pub(super) fn settle(&mut self) {
        let input = match self.input.len() {
            0 => 0,
            // Memory that nobody has written to is none yet.
            len => len.max(self.input.capacity().min(net::BUFFER_BYTES)),
        };
        let pushes = self.peer.pusher.as_ref().filter(|pusher| pusher.any()).map_or(0, Pusher::held);
        let held = self.out.held() + self.wire.held() + self.holding.calls + input + pushes;
        if held != self.holding.told && (held == 0 || held.abs_diff(self.holding.told) >= CHANGE) {
            self.shared.memory.change(self.holding.told, held);
            self.holding.told = held;
            self.wakes.set_held(held);
            self.look();
        }
        if self.holding.room.level != Level::Calm || self.holding.paused {
            self.wait_for_room();
        }
    }

    #[cold]
    fn wait_for_room(&mut self) {
        self.trickled();
        let paused = self.holding.room.level != Level::Calm && self.is_full();
        if std::mem::replace(&mut self.holding.paused, paused) != paused {
            self.shared.memory.pause(paused);
            self.wakes.set_paused(paused);
        }
        if paused || !self.stalled.is_empty() {
            let again = self.now + PAUSE;
            self.alarm = Some(self.alarm.map_or(again, |alarm| alarm.min(again)));
        }
    }

    /// Counts anew what a call with streams holds.
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
        let before = std::mem::replace(&mut parked.held, requests + replies);
        if replies > LARGE {
            self.shared.memory.note(parked.method, replies);
        }
        self.holding.change(before, requests + replies);
    }

    /// Whether there is room for a large reply.
    #[cold]
    pub(super) fn takes_reply(&self, method: MethodId, bytes: usize) -> bool {
        self.shared.memory.note(method, bytes);
        bytes <= self.holding.room.left.saturating_sub(self.out.len()).max(LARGE)
    }

    /// Whether the peer is in the middle of a large message for which there is no room at all, on a wire that cannot
    /// refuse it. To wait with it would be no way out: many such peers could hold all the room there is, and none would
    /// ever end.
    #[inline]
    pub(super) fn lacks_room(&self) -> bool {
        self.holding.room.level == Level::Full && self.input.len() > MESSAGE_MAX as usize
    }

    /// Ends a connection that lacks room.
    #[cold]
    pub(super) fn cut_off(&mut self) -> Read {
        let status = self.shared.memory.cuts();
        tracing::warn!(peer = %self.peer.address, "closed: {}", status.message());
        self.wire.drain(status.message(), &mut self.out);
        self.input = BytesMut::new();
        self.discards = true;
        self.hang_up();
        Read::Over
    }
}

impl<W: ?Sized> Connection<W> {
    /// The connection ends, and holds nothing any more.
    pub(super) fn release(&mut self) {
        self.shared.memory.change(self.holding.told, 0);
        if self.holding.paused {
            self.shared.memory.pause(false);
        }
    }
}
