//! One connection of a server: owned by one task, which alone touches its machine, calls and buffers.
//!
//! Cost of a unary call whose handler is ready at once: no system call of its own, no lock, no wake-up; the request
//! is a share of the read buffer, the reply is encoded once and copied once into the outbox. What parks costs a hash
//! insert and a wake-up.

mod answer;
mod streams;

pub(crate) use streams::guarded_next;

use super::{
    Dispatch, Wakes,
    calls::{Calls, Stage},
};
use crate::{
    Metadata, Peer, Status,
    net::{self, Io},
    runtime,
    server::Shared,
};
use bytes::BytesMut;
use std::{
    future::Future,
    io::IoSlice,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use switchboard_wire::{
    Input, Limits, MethodId, Outbox,
    wire::{Head, Opened, ServerEvent, ServerWire},
};
use tokio::{io::AsyncReadExt, time::Sleep};

/// A turn ends after this long even if there is more to do, so that neighbours on the worker get theirs.
const TURN_MAX: Duration = Duration::from_millis(1);
/// The outbox is written in the middle of a turn once it holds this much.
const FLUSH_BYTES: usize = 32 << 10;
/// Parts of one vectored write.
const PARTS_MAX: usize = 64;
/// After so long without traffic a connection gives back what its calls used.
const CALM: Duration = Duration::from_secs(1);
/// How long a client has to hear that the server drains, before calls that it sends all the same are refused; and how
/// long it gets after that, with no call in flight, to close the connection.
const LINGER: Duration = Duration::from_millis(500);

/// The driver of one accepted connection; its future ends with the connection.
pub(crate) struct Connection<W> {
    io: Box<dyn Io>,
    wire: W,
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    limits: Limits,
    /// The limits of the listener, of which `limits` is the part of the wire.
    settings: Arc<crate::Limits>,
    /// Where this worker counts.
    shard: usize,
    input: BytesMut,
    sharing: net::Sharing,
    out: Outbox,
    dispatches: Vec<Option<Box<dyn Dispatch>>>,
    calls: Calls,
    wakes: Arc<Wakes>,
    ready: Vec<u32>,
    /// Streams whose replies wait for the outbox to shrink.
    stalled: Vec<u32>,
    /// When the clock was last read.
    now: Instant,
    /// Calls that were ready at once since then, all of one method.
    window: Option<(MethodId, u32)>,
    last_read: Instant,
    /// When the peer was asked for a sign of life that has not come.
    pinged: Option<Instant>,
    /// Places of calls may be left; an alarm is set for giving them back.
    roomy: bool,
    alarm: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    draining: Option<Instant>,
    /// Whole units may be left in the input because the outbox was over its high mark.
    held: bool,
    /// No more bytes come in: the peer closed its side, or the machine is finished.
    deaf: bool,
}

enum Read {
    /// Something was read and handled.
    Some,
    /// Nothing is there.
    Blocked,
    /// The outbox is over its high mark.
    Held,
    /// The peer has closed its side, or broke the protocol.
    Over,
}

/// What the acceptor knows of a connection once its protocol is known.
pub(crate) struct Accepted {
    pub(crate) io: Box<dyn Io>,
    /// What was read to find out the protocol.
    pub(crate) input: BytesMut,
    pub(crate) peer: Peer,
    /// The limits of the listener.
    pub(crate) settings: Arc<crate::Limits>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wakes: Arc<Wakes>,
    /// Where its worker counts.
    pub(crate) shard: usize,
}

impl<W: ServerWire> Connection<W> {
    /// Takes over a connection whose first bytes are in `input`.
    pub(crate) fn new(accepted: Accepted, wire: W) -> Connection<W> {
        let Accepted { io, input, peer, settings, shared, wakes, shard } = accepted;
        let now = Instant::now();
        Connection {
            io,
            wire,
            peer: Arc::new(peer),
            limits: settings.wire(),
            shard,
            input,
            sharing: net::Sharing::default(),
            out: Outbox::new(),
            dispatches: (0..shared.services.len()).map(|_| None).collect(),
            calls: Calls::new(wakes.clone()),
            wakes,
            ready: Vec::new(),
            stalled: Vec::new(),
            now,
            window: None,
            last_read: now,
            pinged: None,
            roomy: false,
            alarm: Some(now + settings.idle_timeout()),
            sleep: None,
            draining: None,
            held: false,
            deaf: false,
            settings,
            shared,
        }
    }

    /// One pass: timers, woken calls, reads with their calls, and the write. `None` while the connection lives.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.now = Instant::now();
        let end = self.now + TURN_MAX;
        self.wakes.take(cx.waker(), &mut self.ready);
        self.out.adopt(net::lend);
        let reason = match self.draining {
            Some(_) => None,
            None if self.shared.draining.load(Ordering::Relaxed) => Some("the server is going away"),
            None => self.wakes.is_retired().then_some("the connection is old (connection_age)"),
        };
        if let Some(reason) = reason {
            self.draining = Some(self.now);
            self.wire.drain(reason, &mut self.out);
            let linger = self.now + LINGER;
            self.alarm = Some(self.alarm.map_or(linger, |alarm| alarm.min(linger)));
        }
        if self.alarm.is_some_and(|alarm| alarm <= self.now) && self.alarmed() {
            return Poll::Ready(());
        }
        self.poll_ready();
        // Bytes that the sniffer read come first.
        if !self.input.is_empty() && !self.deaf && !self.is_full() {
            self.handle_input();
        }
        loop {
            let read = self.read(cx);
            let Ok(flushed) = self.flush(cx, matches!(read, Read::Some)) else { return Poll::Ready(()) };
            if flushed {
                self.resume_stalled();
            }
            match read {
                Read::Some if self.now < end => continue,
                Read::Some => {
                    // Over the budget: the neighbours first.
                    cx.waker().wake_by_ref();
                    break;
                }
                Read::Held if flushed && !self.is_full() => continue,
                Read::Over if self.out.is_empty() && self.calls.len() == 0 => return Poll::Ready(()),
                _ if !self.out.is_empty() && flushed => continue,
                _ => break,
            }
        }
        if self
            .draining
            .is_some_and(|began| self.calls.len() == 0 && self.out.is_empty() && self.now > began + LINGER)
        {
            return Poll::Ready(());
        }
        self.rest();
        self.arm(cx)
    }

    /// Reads once and handles what came.
    fn read(&mut self, cx: &mut Context<'_>) -> Read {
        if self.deaf {
            return Read::Over;
        }
        if self.is_full() {
            return Read::Held;
        }
        if self.held {
            self.handle_input();
            return if self.deaf { Read::Over } else { Read::Some };
        }
        if self.input.capacity() == 0 {
            self.input = net::lend();
        } else if self.input.capacity() - self.input.len() < 4096 {
            self.input.reserve(net::BUFFER_BYTES);
        }
        let read = pin!(self.io.read_buf(&mut self.input)).poll(cx);
        match read {
            Poll::Pending => Read::Blocked,
            Poll::Ready(Ok(n)) if n > 0 => {
                self.now = Instant::now();
                self.last_read = self.now;
                self.pinged = None;
                runtime::traffic(self.now);
                self.handle_input();
                if self.deaf { Read::Over } else { Read::Some }
            }
            Poll::Ready(_) => {
                // The peer is gone: nobody waits for the calls in flight.
                self.deaf = true;
                for index in self.calls.all() {
                    self.forget(index);
                }
                Read::Over
            }
        }
    }

    /// Whether more waits to be written than one peer may have waiting.
    #[inline]
    fn is_full(&self) -> bool {
        self.out.len() > self.settings.outbox_bytes_max()
    }

    /// Takes every whole unit from the input, as long as the peer takes the answers.
    fn handle_input(&mut self) {
        let mut input = Input::new(std::mem::take(&mut self.input)).sharing(self.sharing.allowed());
        self.held = false;
        self.out.adopt(net::lend);
        loop {
            while !self.is_full()
                && let Some(Opened { id, method, codec, timeout, first }) = self.wire.next_call(&mut input)
            {
                let head = Head { method, codec, timeout, metadata: Metadata::new(), oneway: false };
                self.open(id, head, Some(first), false);
            }
            if self.is_full() {
                self.held = true;
                self.close_window();
                break;
            }
            match self.wire.recv(&mut input, &mut self.out) {
                Ok(Some(event)) => self.event(event),
                Ok(None) => {
                    self.close_window();
                    break;
                }
                Err(fatal) => {
                    self.close_window();
                    self.shared.metrics.protocol_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(peer = %self.peer.address, wire = self.wire.name(), "closed: {fatal}");
                    self.wire.drain(&fatal.to_string(), &mut self.out);
                    self.deaf = true;
                    for index in self.calls.all() {
                        self.forget(index);
                    }
                    break;
                }
            }
        }
        self.input = input.into_buffer();
    }

    #[inline]
    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Open { id, head, first, more } => self.open(id, head, first, more),
            ServerEvent::Item { id, item } => self.item(id, item),
            ServerEvent::HalfClose { id } => {
                if let Some(queue) = self.inbound(id) {
                    queue.finish(Ok(Metadata::new()));
                }
            }
            ServerEvent::Cancel { id } => {
                if let Some(index) = self.calls.find(id) {
                    self.forget(index);
                }
            }
            ServerEvent::Credit { id, bytes } => {
                let Some(index) = self.calls.find(id) else { return };
                let Some(parked) = self.calls.get_mut(index) else { return };
                parked.credit = parked.credit.saturating_add(i64::from(bytes));
                if let Stage::Replies { .. } = parked.stage {
                    self.poll_call(index);
                }
            }
            ServerEvent::Refused { id, status } => {
                if let Some(index) = self.calls.find(id) {
                    self.forget(index);
                }
                self.wire.end(id, Err(&status), &mut self.out);
            }
            ServerEvent::Pong => {}
        }
    }

    /// Timers are due: ends overdue calls, asks a silent peer for a sign of life. True when the connection is over.
    fn alarmed(&mut self) -> bool {
        let (overdue, next) = self.calls.overdue(self.now);
        for index in overdue {
            let Some(parked) = self.calls.get_mut(index) else { continue };
            let allowed = parked.deadline.map_or(Duration::ZERO, |deadline| deadline - parked.began);
            let text = format!("the deadline of {} ms has passed on the server", allowed.as_millis());
            self.finish(index, Err(Status::deadline_exceeded(text)));
        }
        let idle = self.settings.idle_timeout();
        let mut silent = self.last_read + idle;
        if silent <= self.now {
            let pinged = match self.pinged {
                Some(pinged) => pinged,
                None => {
                    self.wire.ping(&mut self.out);
                    *self.pinged.insert(self.now)
                }
            };
            silent = pinged + self.settings.keepalive_timeout();
            if silent <= self.now {
                return true;
            }
        }
        if let Some(began) = self.draining {
            silent = silent.min(began + LINGER);
            if began + LINGER <= self.now {
                self.wire.refuse();
                silent = self.now + LINGER;
            }
        }
        let mut alarm = next.map_or(silent, |next| next.min(silent));
        if self.roomy {
            if self.last_read + CALM <= self.now && self.calls.len() == 0 {
                self.shrink();
            } else {
                alarm = alarm.min(self.now + CALM);
            }
        }
        self.alarm = Some(alarm);
        false
    }

    /// Gives back what the calls used; the next one begins anew.
    fn shrink(&mut self) {
        self.roomy = false;
        self.calls.shrink();
        for dispatch in self.dispatches.iter_mut().flatten() {
            dispatch.shrink();
        }
        self.ready = Vec::new();
        self.stalled = Vec::new();
    }

    /// Writes the outbox; says whether everything went out. While more input is at hand only a large outbox is
    /// written, so that many replies share a system call.
    fn flush(&mut self, cx: &mut Context<'_>, more_input: bool) -> std::io::Result<bool> {
        if self.out.is_empty() {
            return Ok(true);
        }
        if more_input && self.out.len() < FLUSH_BYTES {
            return Ok(false);
        }
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let filled = self.out.fill(&mut slices);
            match Pin::new(&mut *self.io).poll_write_vectored(cx, &slices[..filled]) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.out.advance(written),
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Gives buffers back that the connection does not need while it waits.
    fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.sharing.take_back(std::mem::take(&mut self.input));
        }
        if let Some(tail) = self.out.release() {
            net::take_back(tail);
        }
    }

    /// Makes the next timer wake the task.
    fn arm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.roomy && self.calls.has_room() {
            self.roomy = true;
            let calm = self.now + CALM;
            self.alarm = Some(self.alarm.map_or(calm, |alarm| alarm.min(calm)));
        }
        if self.draining.is_some() && self.calls.len() == 0 {
            let linger = self.now + LINGER;
            self.alarm = Some(self.alarm.map_or(linger, |alarm| alarm.min(linger)));
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

impl<W: ServerWire + Unpin> Future for Connection<W> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().turn(cx)
    }
}

impl<W> Drop for Connection<W> {
    fn drop(&mut self) {
        let parked = self.calls.len();
        self.shared.parked.fetch_sub(parked, Ordering::Relaxed);
    }
}
