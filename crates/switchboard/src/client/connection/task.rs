//! What drives a connection: writes what callers left, reads, and wakes them.

use super::{Connection, Inner, OUTBOX_HIGH, ending::Talk};
use crate::{
    Status,
    driver::CallWaker,
    net::{self, Io},
    runtime,
};
use bytes::BytesMut;
use std::{
    future::Future,
    io::IoSlice,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use switchboard_wire::{Input, Outbox, wire::ClientWire};
use tokio::{io::AsyncReadExt, time::Sleep};

/// Reads of one turn, so that neighbours on the worker get theirs.
const READS_MAX: usize = 1;
const PARTS_MAX: usize = 64;

/// What drives a connection; its future ends with the connection.
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
    pub(super) talk: Talk,
    /// Ends once the connection has waited long enough for something to be said.
    pub(super) unused: Option<Pin<Box<Sleep>>>,
    pub(super) pinged: Option<Instant>,
    pub(super) alarm: Option<Instant>,
    pub(super) sleep: Option<Pin<Box<Sleep>>>,
}

impl Task {
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if let Some(end) = self.give_back(cx) {
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
                // After a time in which nothing ran here, a sign may have come that only this read could see.
                Poll::Pending if silent => {
                    let why = format!("no sign of life for {:?} (keepalive)", self.keepalive * 2);
                    return Poll::Ready(self.lost(&why));
                }
                Poll::Pending => {
                    self.rest();
                    if self.arm(cx) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Under the lock: notes the waker, looks after deadlines and streams, and takes what callers left to write. True
    /// when the server was silent for too long, unless there is something to be read.
    fn prepare(&mut self, cx: &Context<'_>) -> Result<bool, Status> {
        let connection = self.connection.clone();
        connection.wakes.take(cx.waker(), &mut self.ready);
        let mut inner = connection.lock();
        inner.woken = false;
        let mut silent = false;
        if !inner.task.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            inner.task = Some(cx.waker().clone());
        }
        if self.alarm.is_some() || inner.earliest.is_some() || !inner.fresh.is_empty() {
            let now = crate::clock::now();
            inner.stamp(now);
            if inner.earliest.is_some_and(|earliest| earliest <= now) {
                inner.expire(now, &mut self.wake);
            }
            silent = self.is_silent(&mut inner, now);
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
            self.talk.said(!self.writing.is_empty());
        }
        drop(inner);
        for waker in self.wake.drain(..) {
            waker.wake();
        }
        Ok(silent)
    }

    /// Asks a silent server for a sign of life while calls wait; true when none was read in time.
    fn is_silent(&mut self, inner: &mut Inner, now: Instant) -> bool {
        if inner.calls.len() == 0 || !inner.wire.answers_pings() {
            self.pinged = None;
            return false;
        }
        if self.last_read.max(self.pinged.unwrap_or(self.last_read)) + self.keepalive > now {
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

    /// Reads once and hands replies to their callers; a status when the connection is over.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Status>> {
        if self.input.capacity() == 0 {
            self.input = net::lend();
        } else if self.input.capacity() - self.input.len() < 4096 {
            self.input.reserve(net::BUFFER_BYTES);
        }
        let read = std::task::ready!(pin!(self.io.read_buf(&mut self.input)).poll(cx));
        match read {
            Ok(0) => {
                // What the server said before may tell why.
                let said = self.connection.lock().closed.as_ref().map(|said| format!(": {}", said.message()));
                let why = format!("the server closed it{}", said.unwrap_or_default());
                return Poll::Ready(Some(self.lost(&why)));
            }
            Err(error) => return Poll::Ready(Some(self.lost(&format!("read: {error}")))),
            Ok(_) => {}
        }
        self.last_read = crate::clock::now();
        self.talk = Talk::Heard;
        runtime::traffic(self.last_read);
        let mut input = Input::new(std::mem::take(&mut self.input)).sharing(self.sharing.allowed());
        let mut inner = self.connection.lock();
        let fatal = loop {
            while let Some((id, len)) = inner.wire.next_reply(&mut input) {
                inner.next_reply(id, len, &mut input, &mut self.wake);
            }
            let Inner { wire, out, .. } = &mut *inner;
            match wire.recv(&mut input, out) {
                Ok(Some(event)) => inner.event(event, &mut self.wake),
                Ok(None) => break None,
                Err(fatal) => break Some(fatal),
            }
        };
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

    /// Gives buffers back that the connection does not need while it waits.
    fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.sharing.take_back(std::mem::take(&mut self.input));
        }
    }

    /// Makes the next timer wake the task; false when there is something to do at once.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let (earliest, waiting, left) = {
            let inner = self.connection.lock();
            // What was left to write when the connection was given up is written by now.
            let over = inner.closed.is_some() && inner.calls.len() == 0;
            let left = inner.woken || over || !inner.out.is_empty() || !inner.due.is_empty();
            (inner.earliest, inner.calls.len() > 0 && inner.wire.answers_pings(), left)
        };
        // While the socket takes no more, it is the one to wake the task.
        if left && self.writing.is_empty() {
            return false;
        }
        let silent =
            waiting.then(|| self.last_read.max(self.pinged.unwrap_or(self.last_read)) + self.keepalive);
        let wanted = match (earliest, silent) {
            (Some(earliest), Some(silent)) => Some(earliest.min(silent)),
            (earliest, silent) => earliest.or(silent),
        };
        // An alarm that rings too early costs one empty turn; moving it with every read would cost more.
        let Some(wanted) = wanted else { return true };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wanted.into())));
        if self.alarm.is_none_or(|alarm| wanted < alarm || alarm <= self.last_read) {
            self.alarm = Some(wanted);
            sleep.as_mut().reset(wanted.into());
        }
        if sleep.as_mut().poll(cx).is_ready() {
            self.alarm = Some(wanted);
            sleep.as_mut().reset(wanted.into());
            if sleep.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        true
    }
}
