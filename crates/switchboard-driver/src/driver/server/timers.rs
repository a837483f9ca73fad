//! Timers of a server connection: deadlines, keepalive, and the release of memory.

use super::{Connection, LINGER, RELEASE_AFTER, closing::ConnectionState};
use crate::serving::deadline_passed;
use std::{
    collections::VecDeque,
    task::{Context, Poll},
};
use switchboard_core::clock::after;
use switchboard_net::connection::Silence;
use switchboard_wire::wire::ServerWire;

impl<W: ServerWire> Connection<W> {
    /// Handles due timers: ends overdue calls and pings a silent peer. Returns true if the connection is
    /// over, unless a read follows.
    pub(super) fn alarmed(&mut self) -> bool {
        let (overdue, next) = self.calls.overdue(self.now);
        for index in overdue {
            let Some(parked) = self.calls.get_mut(index) else { continue };
            let allowed = parked.record.allowed();
            self.finish(index, Err(deadline_passed(allowed)));
        }
        if self.ends_due.is_some_and(|due| due <= self.now) {
            self.ends_due = None;
            self.wire.release_ends(&mut self.out);
        }
        self.end_stalled();
        let mut silent = self.keepalive.due();
        if silent <= self.now {
            if self.calls.len() > 0 && !self.wire.responds_to_pings() && !self.is_full() {
                silent = after(self.now, self.settings.idle_timeout());
            } else if self.keepalive.check(self.now) == Silence::Ping {
                if let Some(counts) = &self.peer.counts {
                    counts.pinged();
                }
                self.wire.ping(&mut self.out);
                silent = self.keepalive.due();
            }
        }
        let is_over = silent <= self.now;
        match self.state {
            ConnectionState::Draining { since } if after(since, LINGER) > self.now => {
                silent = silent.min(after(since, LINGER));
            }
            ConnectionState::Draining { .. } | ConnectionState::Closing { .. } => {
                self.wire.refuse();
                silent = after(self.now, LINGER);
            }
            _ => {}
        }
        self.timer.set(next.map_or(silent, |next| next.min(silent)));
        if self.roomy {
            if after(self.keepalive.last_read(), RELEASE_AFTER) <= self.now && self.calls.len() == 0 {
                self.shrink();
            } else {
                self.timer.wake_by(after(self.now, RELEASE_AFTER));
            }
        }
        is_over
    }

    /// Releases the memory of calls; the next call allocates again.
    fn shrink(&mut self) {
        self.roomy = false;
        self.flush_tally();
        self.calls.shrink();
        for dispatch in self.dispatches.iter_mut().flatten() {
            dispatch.shrink();
        }
        self.ready = Vec::new();
        self.stalled = VecDeque::new();
    }

    /// Registers the task with the next timer.
    pub(super) fn arm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.roomy && self.calls.has_room() {
            self.roomy = true;
            self.timer.wake_by(after(self.now, RELEASE_AFTER));
        }
        let is_drained = matches!(self.state, ConnectionState::Draining { .. }) && self.calls.len() == 0;
        if is_drained || self.state.lingers_since().is_some() {
            self.timer.wake_by(after(self.now, LINGER));
        }
        if let Some((_, since)) = self.memory.read_paused_by {
            self.timer.wake_by(after(since, self.settings.stream_stall_timeout()));
        }
        if self.wire.holds_ends() {
            let due = *self.ends_due.get_or_insert(after(self.now, self.settings.stream_end_delay()));
            self.timer.wake_by(due);
        }
        self.timer.register(cx);
        Poll::Pending
    }
}
