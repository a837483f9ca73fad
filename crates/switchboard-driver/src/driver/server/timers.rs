//! Timers of a server connection: deadlines, keepalive, and the release of memory.

use super::{Connection, LINGER, RELEASE_AFTER};
use std::{
    collections::VecDeque,
    future::Future,
    task::{Context, Poll},
    time::Duration,
};
use switchboard_core::clock::after;
use switchboard_wire::{Status, wire::ServerWire};

impl<W: ServerWire> Connection<W> {
    /// Handles due timers: ends overdue calls and pings a silent peer. Returns true if the connection is
    /// over, unless a read follows.
    pub(super) fn alarmed(&mut self) -> bool {
        let (overdue, next) = self.calls.overdue(self.now);
        for index in overdue {
            let Some(parked) = self.calls.get_mut(index) else { continue };
            let allowed = parked
                .deadline
                .map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(parked.began));
            let text = format!("the deadline of {} ms has passed on the server", allowed.as_millis());
            self.finish(index, Err(Status::deadline_exceeded(text)));
        }
        if self.ends_due.is_some_and(|due| due <= self.now) {
            self.ends_due = None;
            self.wire.release_ends(&mut self.out);
        }
        self.end_stalled();
        let idle = self.settings.idle_timeout();
        let mut silent = after(self.last_read, idle);
        if silent <= self.now && self.calls.len() > 0 && !self.wire.responds_to_pings() && !self.is_full() {
            silent = after(self.now, idle);
        }
        if silent <= self.now {
            let pinged = match self.pinged {
                Some(pinged) => pinged,
                None => {
                    if let Some(counts) = &self.peer.counts {
                        counts.pinged();
                    }
                    self.wire.ping(&mut self.out);
                    *self.pinged.insert(self.now)
                }
            };
            silent = after(pinged, self.settings.keepalive_timeout());
        }
        let is_over = silent <= self.now;
        if let Some(began) = self.draining {
            silent = silent.min(after(began, LINGER));
            if after(began, LINGER) <= self.now {
                self.wire.refuse();
                silent = after(self.now, LINGER);
            }
        }
        let mut alarm = next.map_or(silent, |next| next.min(silent));
        if self.roomy {
            if after(self.last_read, RELEASE_AFTER) <= self.now && self.calls.len() == 0 {
                self.shrink();
            } else {
                alarm = alarm.min(after(self.now, RELEASE_AFTER));
            }
        }
        self.alarm = Some(alarm);
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
            let release_at = after(self.now, RELEASE_AFTER);
            self.alarm = Some(self.alarm.map_or(release_at, |alarm| alarm.min(release_at)));
        }
        if self.draining.is_some() && self.calls.len() == 0 || self.closing.is_some() {
            let linger = after(self.now, LINGER);
            self.alarm = Some(self.alarm.map_or(linger, |alarm| alarm.min(linger)));
        }
        if let Some((_, since)) = self.memory.read_paused_by {
            let due = after(since, self.settings.stream_stall_timeout());
            self.alarm = Some(self.alarm.map_or(due, |alarm| alarm.min(due)));
        }
        if self.wire.holds_ends() {
            let due = *self.ends_due.get_or_insert(after(self.now, self.settings.stream_end_delay()));
            self.alarm = Some(self.alarm.map_or(due, |alarm| alarm.min(due)));
        }
        let Some(alarm) = self.alarm else { return Poll::Pending };
        let alarm = tokio::time::Instant::from_std(alarm);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(alarm)));
        if sleep.deadline() != alarm {
            sleep.as_mut().reset(alarm);
        }
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
