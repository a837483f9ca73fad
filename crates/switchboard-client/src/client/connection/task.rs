//! The task that drives a connection: writes requests, reads replies, and wakes callers.

use super::{Connection, Inner, OUTBOX_HIGH, ending::Activity};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use switchboard_core::runtime;
use switchboard_net::{
    connection::{CallWaker, Keepalive, ReadBuffer, Silence, Timer, poll_write_all},
    net::Io,
};
use switchboard_wire::{Outbox, Status, wire::ClientWire};
use tokio::time::Sleep;

/// Maximum number of reads per turn, for fairness between the tasks of the worker.
const READS_MAX: usize = 1;

/// Drives a connection; the future completes when the connection ends.
pub(in super::super) struct Task {
    pub(super) connection: Arc<Connection>,
    pub(super) io: Box<dyn Io>,
    pub(super) peer: String,
    pub(super) input: ReadBuffer,
    pub(super) writing: Outbox,
    pub(super) ready: Vec<u32>,
    pub(super) wake: Vec<Waker>,
    pub(super) activity: Activity,
    /// Completes when the connection has been unused for too long.
    pub(super) unused: Option<Pin<Box<Sleep>>>,
    pub(super) keepalive: Keepalive,
    /// Time since which nothing is read, because the reader of one stream is too slow.
    pub(super) held_since: Option<Instant>,
    /// Maximum duration of such a stall.
    pub(super) stall_timeout: Duration,
    /// Time since which the connection stays open only for bytes of one-way calls that wait in the machine.
    pub(super) flushed_since: Option<Instant>,
    /// The machine has events without further input.
    pub(super) has_events: bool,
    pub(super) timer: Timer,
}

impl Task {
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if let Some(end) = self.close_unused(cx) {
            return Poll::Ready(end);
        }
        let mut reads = 0;
        loop {
            let silent = match self.prepare(cx) {
                Ok(silent) => silent,
                Err(end) => return Poll::Ready(end),
            };
            if let Err(error) = self.flush(cx) {
                return Poll::Ready(self.lost(&format!("write: {error}")));
            }
            match self.read(cx) {
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                Poll::Ready(None) => {
                    reads += 1;
                    if reads == READS_MAX {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                // After a long pause of this task, data may have arrived that only this read could see.
                Poll::Pending if silent => {
                    let why = format!("no data received for {:?} (keepalive)", self.keepalive.silence_max());
                    return Poll::Ready(self.lost(&why));
                }
                Poll::Pending => {
                    self.input.release();
                    if self.arm(cx) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Under the lock: stores the waker, handles deadlines and streams, and takes the bytes to write. Returns true when
    /// the keepalive time has passed without data, unless there is data to read.
    fn prepare(&mut self, cx: &Context<'_>) -> Result<bool, Status> {
        let connection = self.connection.clone();
        connection.wakes.take(cx.waker(), &mut self.ready);
        let mut inner = connection.lock();
        inner.woken = false;
        let mut silent = false;
        if !inner.task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            inner.task = Some(cx.waker().clone());
        }
        if self.timer.is_set() || inner.earliest.is_some() || !inner.fresh.is_empty() {
            let now = switchboard_core::clock::now();
            inner.stamp(now);
            if inner.earliest.is_some_and(|earliest| earliest <= now) {
                inner.expire(now, &mut self.wake);
            }
            silent = self.is_silent(&mut inner, now);
            if self
                .held_since
                .is_some_and(|since| switchboard_core::clock::after(since, self.stall_timeout) <= now)
            {
                inner.end_stalled(self.stall_timeout);
            }
        }
        if inner.out.len() < OUTBOX_HIGH {
            self.ready.append(&mut inner.due);
        }
        for id in self.ready.drain(..) {
            let waker = Waker::from(CallWaker::new(id, connection.wakes.clone()));
            inner.pump(id, &waker);
        }
        self.has_events = inner.wire.has_events();
        if let Some(status) = inner.state.rejection()
            && inner.calls.len() == 0
            && inner.out.is_empty()
            && self.writing.is_empty()
            && self.is_flushed(&inner)
        {
            return Err(status.clone());
        }
        if self.writing.is_empty() {
            std::mem::swap(&mut inner.out, &mut self.writing);
            self.activity.note_sent(!self.writing.is_empty());
        }
        inner.note_unwritten(self.writing.len(), &connection.room);
        drop(inner);
        for waker in self.wake.drain(..) {
            waker.wake();
        }
        Ok(silent)
    }

    /// Returns true if no bytes of one-way calls wait in the machine, or if they have waited for too long.
    fn is_flushed(&mut self, inner: &Inner) -> bool {
        if inner.wire.queued_bytes() == 0 {
            return true;
        }
        let now = switchboard_core::clock::now();
        let since = *self.flushed_since.get_or_insert(now);
        switchboard_core::clock::after(since, self.stall_timeout) <= now
    }

    /// Pings a silent server while calls wait; returns true when no data was received in time.
    fn is_silent(&mut self, inner: &mut Inner, now: Instant) -> bool {
        if !inner.awaits_server() {
            self.keepalive.forget_ping();
            return false;
        }
        match self.keepalive.check(now) {
            Silence::Short => false,
            Silence::Ping => {
                inner.wire.ping(&mut inner.out);
                false
            }
            Silence::Lost => true,
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        match poll_write_all(&mut *self.io, cx, &mut self.writing, |_| ()) {
            Poll::Pending => Ok(()),
            Poll::Ready(written) => written,
        }
    }

    /// Reads once and delivers replies to their callers; returns a status when the connection has ended.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        if self.held_since.is_some() {
            if !self.connection.lock().may_read() {
                return Poll::Pending;
            }
            // Handles the input that was read before the stall.
            self.held_since = None;
            return self.handle_input();
        }
        if self.has_events {
            return self.handle_input();
        }
        match std::task::ready!(self.input.poll_read(&mut *self.io, cx)) {
            Ok(0) => {
                // A status that the server has sent before gives the reason.
                let reason = self.connection.lock().state.rejection().cloned();
                return Poll::Ready(Some(self.closed_by_server(reason)));
            }
            Err(error) => return Poll::Ready(Some(self.lost(&format!("read: {error}")))),
            Ok(_) => {}
        }
        let now = switchboard_core::clock::now();
        self.keepalive.received(now);
        self.activity = Activity::Received;
        runtime::traffic(now);
        self.handle_input()
    }

    /// Delivers replies to their callers.
    fn handle_input(&mut self) -> Poll<Option<Status>> {
        self.has_events = false;
        let mut input = self.input.take();
        let mut inner = self.connection.lock();
        let fatal = inner.receive(&mut input, &mut self.wake);
        if inner.read_paused_by.is_some() {
            self.held_since = Some(self.keepalive.last_read());
        }
        self.connection.publish(&inner);
        drop(inner);
        self.input.put_back(input);
        for waker in self.wake.drain(..) {
            waker.wake();
        }
        Poll::Ready(fatal.map(|fatal| self.lost(&format!("the server broke the protocol: {fatal}"))))
    }

    /// Sets the timer that wakes the task; returns false when there is work at once.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let (earliest, waiting, left) = {
            let mut inner = self.connection.lock();
            inner.note_unwritten(self.writing.len(), &self.connection.room);
            // When the connection was closed, the remaining bytes are written by now.
            let over = !inner.state.is_open() && inner.calls.len() == 0 && inner.wire.queued_bytes() == 0;
            let left = inner.woken || over || !inner.out.is_empty() || !inner.due.is_empty();
            (inner.earliest, inner.awaits_server(), left)
        };
        // While the socket accepts no more bytes, it wakes the task.
        if left && self.writing.is_empty() {
            return false;
        }
        let silent = waiting.then(|| self.keepalive.due());
        let stalled = self.held_since.map(|since| switchboard_core::clock::after(since, self.stall_timeout));
        let flushed =
            self.flushed_since.map(|since| switchboard_core::clock::after(since, self.stall_timeout));
        let wanted = [earliest, silent, stalled, flushed].into_iter().flatten().min();
        if let Some(wanted) = wanted {
            self.timer.register_by(wanted, self.keepalive.last_read(), cx);
        }
        true
    }
}
