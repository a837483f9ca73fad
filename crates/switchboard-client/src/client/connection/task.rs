//! The task that drives a connection: writes requests, reads replies, and wakes callers.

use super::{Connection, Inner, OUTBOX_HIGH, ending::Activity};
use bytes::BytesMut;
use std::{
    future::Future,
    io::IoSlice,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use switchboard_core::runtime;
use switchboard_net::{
    connection::CallWaker,
    net::{self, Io},
};
use switchboard_wire::{Input, Outbox, Status, wire::ClientWire};
use tokio::{io::AsyncReadExt, time::Sleep};

/// Maximum number of reads per turn, for fairness between the tasks of the worker.
const READS_MAX: usize = 1;
const PARTS_MAX: usize = 64;

/// Drives a connection; the future completes when the connection ends.
pub(in super::super) struct Task {
    pub(super) connection: Arc<Connection>,
    pub(super) io: Box<dyn Io>,
    pub(super) peer: String,
    pub(super) keepalive: Duration,
    pub(super) input: BytesMut,
    pub(super) sharing: net::Sharing,
    pub(super) writing: Outbox,
    pub(super) ready: Vec<u32>,
    pub(super) wake: Vec<Waker>,
    pub(super) last_read: Instant,
    pub(super) activity: Activity,
    /// Completes when the connection has been unused for too long.
    pub(super) unused: Option<Pin<Box<Sleep>>>,
    pub(super) pinged: Option<Instant>,
    /// Time since which nothing is read, because the reader of one stream is too slow.
    pub(super) held_since: Option<Instant>,
    /// Maximum duration of such a stall.
    pub(super) stall_timeout: Duration,
    pub(super) timer: Option<Instant>,
    pub(super) sleep: Option<Pin<Box<Sleep>>>,
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
                    let why = format!("no data received for {:?} (keepalive)", self.keepalive * 2);
                    return Poll::Ready(self.lost(&why));
                }
                Poll::Pending => {
                    self.release_buffers();
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
        if self.timer.is_some() || inner.earliest.is_some() || !inner.fresh.is_empty() {
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
        if inner.closed.is_some() && inner.calls.len() == 0 && inner.out.is_empty() && self.writing.is_empty()
        {
            return inner.closed.clone().map_or(Ok(silent), Err);
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

    /// Pings a silent server while calls wait; returns true when no data was received in time.
    fn is_silent(&mut self, inner: &mut Inner, now: Instant) -> bool {
        if (inner.calls.len() == 0 && inner.waiting == 0) || !inner.wire.responds_to_pings() {
            self.pinged = None;
            return false;
        }
        if switchboard_core::clock::after(
            self.last_read.max(self.pinged.unwrap_or(self.last_read)),
            self.keepalive,
        ) > now
        {
            return false;
        }
        if self.pinged.is_some_and(|pinged| pinged > self.last_read) {
            return true;
        }
        self.pinged = Some(now);
        inner.wire.ping(&mut inner.out);
        false
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> std::io::Result<()> {
        while !self.writing.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let filled = self.writing.fill(&mut slices);
            match net::poll_write_parts(&mut *self.io, cx, &slices[..filled]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.writing.advance(written),
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        Ok(())
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
        if self.input.capacity() == 0 {
            self.input = net::lend();
        } else if self.input.capacity() - self.input.len() < 4096 {
            self.input.reserve(net::BUFFER_BYTES);
        }
        let read = std::task::ready!(pin!(self.io.read_buf(&mut self.input)).poll(cx));
        match read {
            Ok(0) => {
                // A status that the server has sent before gives the reason.
                let reason = self.connection.lock().closed.clone();
                return Poll::Ready(Some(self.closed_by_server(reason)));
            }
            Err(error) => return Poll::Ready(Some(self.lost(&format!("read: {error}")))),
            Ok(_) => {}
        }
        self.last_read = switchboard_core::clock::now();
        self.activity = Activity::Received;
        runtime::traffic(self.last_read);
        self.handle_input()
    }

    /// Delivers replies to their callers.
    fn handle_input(&mut self) -> Poll<Option<Status>> {
        let mut input = Input::new(std::mem::take(&mut self.input)).sharing(self.sharing.allowed());
        let mut inner = self.connection.lock();
        let fatal = inner.receive(&mut input, &mut self.wake);
        if inner.read_paused_by.is_some() {
            self.held_since = Some(self.last_read);
        }
        if inner.closed.is_some() {
            self.connection.usable.store(false, Ordering::Relaxed);
        }
        drop(inner);
        self.input = input.into_buffer();
        for waker in self.wake.drain(..) {
            waker.wake();
        }
        Poll::Ready(fatal.map(|fatal| self.lost(&format!("the server broke the protocol: {fatal}"))))
    }

    /// Releases buffers that the connection does not need while it waits.
    fn release_buffers(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.sharing.take_back(std::mem::take(&mut self.input));
        }
    }

    /// Sets the timer that wakes the task; returns false when there is work at once.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let (earliest, waiting, left) = {
            let mut inner = self.connection.lock();
            inner.note_unwritten(self.writing.len(), &self.connection.room);
            // When the connection was closed, the remaining bytes are written by now.
            let over = inner.closed.is_some() && inner.calls.len() == 0;
            let left = inner.woken || over || !inner.out.is_empty() || !inner.due.is_empty();
            (
                inner.earliest,
                (inner.calls.len() > 0 || inner.waiting > 0) && inner.wire.responds_to_pings(),
                left,
            )
        };
        // While the socket accepts no more bytes, it wakes the task.
        if left && self.writing.is_empty() {
            return false;
        }
        let silent = waiting.then(|| {
            switchboard_core::clock::after(
                self.last_read.max(self.pinged.unwrap_or(self.last_read)),
                self.keepalive,
            )
        });
        let stalled = self.held_since.map(|since| switchboard_core::clock::after(since, self.stall_timeout));
        let wanted = [earliest, silent, stalled].into_iter().flatten().min();
        // A timer that fires early costs one empty poll; resetting it with every read would cost more.
        let Some(wanted) = wanted else { return true };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wanted.into())));
        if self.timer.is_none_or(|timer| wanted < timer || timer <= self.last_read) {
            self.timer = Some(wanted);
            sleep.as_mut().reset(wanted.into());
        }
        if sleep.as_mut().poll(cx).is_ready() {
            self.timer = Some(wanted);
            sleep.as_mut().reset(wanted.into());
            if sleep.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        true
    }
}
