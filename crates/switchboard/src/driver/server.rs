//! One connection of a server: owned by one task, which alone touches its machine, calls and buffers.
//!
//! Cost of a unary call whose handler is ready at once: no system call of its own, no lock, no wake-up; the request
//! is a share of the read buffer, the reply is encoded once and copied once into the outbox. What parks costs a hash
//! insert and a wake-up.

mod answer;
mod holding;
mod streams;

pub(crate) use streams::guarded_next;

use super::{
    Dispatch, Wakes,
    calls::{Calls, Stage},
    pause::Pause,
};
use crate::{
    Metadata, Peer, Pusher, Status,
    compression::Message,
    guard::Batch,
    metrics::{Carrier, Tally, Wire},
    net::{self, Io},
    runtime,
    server::{Flight, SHOWN_MAX, Shared, going_away},
};
use bytes::BytesMut;
use holding::Holding;
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
    wire::{Encoding, Head, Opened, ServerEvent, ServerWire},
};
use tokio::{io::AsyncReadExt, sync::mpsc, time::Sleep};

/// A turn ends after this long even if there is more to do, so that neighbours on the worker get theirs.
const TURN_MAX: Duration = Duration::from_millis(1);
/// The outbox is written in the middle of a turn once it holds this much.
const FLUSH_BYTES: usize = 64 << 10;
/// Parts of one vectored write.
const PARTS_MAX: usize = 64;
/// After so long without traffic a connection gives back what its calls used.
const CALM: Duration = Duration::from_secs(1);
/// Reads of a turn that are thrown away, so that neighbours get theirs.
const DISCARDS_MAX: usize = 16;
/// How long a client has to hear that the server drains, before calls that it sends all the same are refused; and how
/// long it gets after that, with no call in flight, to close the connection.
const LINGER: Duration = Duration::from_millis(500);

/// The driver of one accepted connection; its future ends with the connection.
pub(crate) struct Connection<W: ?Sized> {
    io: Box<dyn Io>,
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    limits: Limits,
    /// The limits of the listener, of which `limits` is the part of the wire.
    settings: Arc<crate::Limits>,
    /// Where this worker counts.
    shard: usize,
    /// What its calls and bytes count for.
    counted: (Wire, Carrier),
    /// What the counters of the peer were not told yet.
    tally: Tally,
    input: BytesMut,
    sharing: net::Sharing,
    out: Outbox,
    dispatches: Vec<Option<Box<dyn Dispatch>>>,
    calls: Calls,
    wakes: Arc<Wakes>,
    /// Between turns that were over the budget.
    pause: Pause,
    ready: Vec<u32>,
    /// Streams whose replies wait for the outbox to shrink.
    stalled: Vec<u32>,
    /// What all of it comes to.
    holding: Holding,
    /// When the clock was last read.
    now: Instant,
    /// Calls that were ready at once since then, all of one method.
    window: Option<Window>,
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
    /// When the last words were said.
    closing: Option<Instant>,
    /// The peer is to answer them.
    awaits_close: bool,
    /// What the peer still sends is of no interest.
    discards: bool,
    /// The last, so that it may be of a [kind that is not known](Foreign).
    wire: W,
}

/// The wire of another framework. One driver runs them all: each of its own would be a tenth of the program.
pub(crate) type Foreign = dyn ServerWire + Unpin;

/// Calls of one method that were ready at once.
struct Window {
    method: MethodId,
    calls: u32,
    /// Bytes of their messages.
    received: u64,
    sent: u64,
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
        let Accepted { io, input, mut peer, settings, shared, wakes, shard } = accepted;
        peer.pusher = wire.pushes().map(|room| Pusher::new(&wakes, &settings, room));
        let now = crate::clock::now();
        let counted = match Wire::of(peer.wire) {
            Wire::BaiduStd => (Wire::BaiduStd, Carrier::BaiduStd),
            Wire::Erpc => (Wire::Erpc, Carrier::Erpc),
            Wire::Hulu => (Wire::Hulu, Carrier::Hulu),
            Wire::JsonRpc => (Wire::JsonRpc, Carrier::JsonRpc),
            Wire::Kiss => (Wire::Kiss, Carrier::Kiss),
            Wire::Rpcx => (Wire::Rpcx, Carrier::Rpcx),
            Wire::Sofa => (Wire::Sofa, Carrier::Sofa),
            Wire::Thrift => (Wire::Thrift, Carrier::Thrift),
            wire => (wire, Carrier::Native),
        };
        let mut limits = settings.wire();
        limits.stream_window_bytes = wire.receive_window(limits.stream_window_bytes);
        // What the sniffer read.
        shared.metrics.received(shard, counted.1, input.len());
        Connection {
            io,
            peer: Arc::new(peer),
            limits,
            shard,
            counted,
            tally: Tally::default(),
            input,
            sharing: net::Sharing::default(),
            out: Outbox::new(),
            dispatches: (0..shared.services.len()).map(|_| None).collect(),
            calls: Calls::new(wakes.clone()),
            pause: Pause::default(),
            wakes,
            ready: Vec::new(),
            stalled: Vec::new(),
            holding: Holding::new(&settings),
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
            closing: None,
            awaits_close: false,
            discards: false,
            settings,
            shared,
            wire,
        }
    }

    /// What goes over it counts for WebSockets.
    #[cfg(feature = "http")]
    pub(crate) fn inside_websocket(mut self) -> Connection<W> {
        self.counted = (Wire::WebSocket, Carrier::WebSocket);
        self
    }

    /// As one of any wire. Boxed, since most connections are native ones, and would have room for each of the others.
    pub(crate) fn foreign(self) -> Box<Connection<Foreign>>
    where
        W: Unpin + 'static,
    {
        Box::new(self)
    }
}

impl<W: ServerWire + ?Sized> Connection<W> {
    /// One pass: timers, woken calls, reads with their calls, and the write. `None` while the connection lives.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pause.is_on() {
            return Poll::Pending;
        }
        self.now = crate::clock::now();
        let end = self.now + TURN_MAX;
        self.wakes.take(cx.waker(), &mut self.ready);
        self.look();
        self.out.adopt(net::lend);
        if self.draining.is_none() {
            if self.shared.draining.load(Ordering::Relaxed) {
                self.drain("the server is going away");
            } else if self.wakes.is_retired() {
                self.drain("the connection is old (connection_age)");
            }
        } else if self.calls.len() > 0 && self.shared.ending.load(Ordering::Relaxed) {
            self.end_all();
        }
        if let Some(tell) = self.wakes.asked() {
            self.show_calls(&tell);
        }
        let silent = self.alarm.is_some_and(|alarm| alarm <= self.now) && self.alarmed();
        self.poll_ready();
        self.send_pushes();
        // Bytes that the sniffer read come first.
        if !self.input.is_empty() && !self.deaf && !self.is_full() {
            self.handle_input();
        }
        loop {
            let read = self.read(cx);
            let Ok(flushed) = self.flush(cx, matches!(read, Read::Some)) else { return Poll::Ready(()) };
            if flushed {
                self.resume_stalled();
                self.send_pushes();
            }
            match read {
                Read::Some if self.now < end => continue,
                Read::Some => {
                    // Over the budget: the neighbours first.
                    self.pause.begin(&self.wakes);
                    break;
                }
                Read::Held if flushed && !self.is_full() => continue,
                Read::Over if self.out.is_empty() && self.calls.len() == 0 => {
                    if self.lingers(cx) {
                        break;
                    }
                    return Poll::Ready(());
                }
                _ if !self.out.is_empty() && flushed => continue,
                _ => break,
            }
        }
        // What came while nothing ran here, however long that was, has been read by now.
        if silent && self.pinged.is_some() {
            return Poll::Ready(());
        }
        if self
            .draining
            .is_some_and(|began| self.calls.len() == 0 && self.out.is_empty() && self.now > began + LINGER)
            && !self.closes(cx)
        {
            return Poll::Ready(());
        }
        self.rest();
        self.settle();
        self.arm(cx)
    }

    /// Says the last words of a drained connection; whether there is something to wait for before it ends.
    fn closes(&mut self, cx: &mut Context<'_>) -> bool {
        if self.closing.is_none() && self.wire.close(&mut self.out) {
            self.closing = Some(self.now);
            self.awaits_close = true;
            return self.flush(cx, false).is_ok();
        }
        self.lingers(cx)
    }

    /// Whether there is something to wait for before the connection ends: the peer's answer to the machine's last
    /// words, those of the transport, or what the peer still sends after a mistake. Bytes that nobody has read would
    /// make the system throw away the last ones that we wrote.
    fn lingers(&mut self, cx: &mut Context<'_>) -> bool {
        let began = *self.closing.get_or_insert(self.now);
        if self.now > began + LINGER {
            return false;
        }
        if self.awaits_close || Pin::new(&mut *self.io).poll_shutdown(cx).is_pending() {
            return true;
        }
        for _ in 0..DISCARDS_MAX {
            if !self.discards {
                return false;
            }
            self.input.clear();
            if self.input.capacity() == 0 {
                self.input = net::lend();
            }
            match pin!(self.io.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => {
                    self.input.clear();
                    return true;
                }
                Poll::Ready(Ok(n)) if n > 0 => {}
                Poll::Ready(_) => self.discards = false,
            }
        }
        cx.waker().wake_by_ref();
        true
    }

    /// Tells the peer to begin no further call here.
    #[cold]
    fn drain(&mut self, reason: &str) {
        self.draining = Some(self.now);
        self.wire.drain(reason, &mut self.out);
        let linger = self.now + LINGER;
        self.alarm = Some(self.alarm.map_or(linger, |alarm| alarm.min(linger)));
    }

    /// Ends the calls that had their time to end: the server stops.
    #[cold]
    fn end_all(&mut self) {
        for index in self.calls.all() {
            self.finish(index, Err(going_away()));
        }
    }

    /// Tells which calls wait.
    #[cold]
    fn show_calls(&self, tell: &mpsc::Sender<Vec<Flight>>) {
        let shown = self.calls.iter().take(SHOWN_MAX).map(|parked| Flight {
            method: parked.method,
            wire: self.counted.0,
            peer: self.peer.clone(),
            began: parked.began,
            deadline: parked.deadline,
            stage: if let Stage::Replies { .. } = parked.stage { "replies" } else { "handler" },
        });
        // There is room for one answer of each connection; nobody may be waiting any more.
        let _ = tell.try_send(shown.collect());
    }

    /// Sends what the peer did not ask for, as long as it takes it.
    #[inline]
    fn send_pushes(&mut self) {
        let Some(pusher) = &self.peer.pusher else { return };
        while pusher.any()
            && self.out.len() + self.holding.weight <= self.holding.limit
            && let Some(push) = pusher.next()
        {
            self.wire.push(&push, &mut self.out);
        }
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
        if self.lacks_room() {
            return self.cut_off();
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
                self.now = crate::clock::now();
                self.last_read = self.now;
                self.shared.metrics.received(self.shard, self.counted.1, n);
                self.pinged = None;
                runtime::traffic(self.now);
                self.handle_input();
                self.trickled();
                if self.deaf { Read::Over } else { Read::Some }
            }
            Poll::Ready(_) => {
                self.hang_up();
                Read::Over
            }
        }
    }

    /// Whether more waits to be written than one peer may have waiting, or it holds too much while room is scarce.
    #[inline]
    fn is_full(&self) -> bool {
        self.out.len() + self.wire.held() + self.holding.weight > self.holding.limit
    }

    /// Takes every whole unit from the input, as long as the peer takes the answers.
    fn handle_input(&mut self) {
        let mut input = Input::new(std::mem::take(&mut self.input)).sharing(self.sharing.allowed());
        self.held = false;
        self.out.adopt(net::lend);
        let batch = Batch::begin();
        loop {
            while !self.is_full()
                && let Some(Opened { id, method, codec, timeout, len }) = self.wire.next_call(&mut input)
            {
                let (encoding, metadata) = (Encoding::Identity, Metadata::new());
                let head = Head { method, codec, encoding, timeout, metadata, oneway: false };
                self.open(id, head, Some(input.take(len)), false);
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
                    self.discards = true;
                    self.hang_up();
                    break;
                }
            }
        }
        drop(batch);
        self.input = input.into_buffer();
    }

    /// Nothing more comes from the peer, and nobody waits for the calls in flight.
    fn hang_up(&mut self) {
        self.deaf = true;
        self.awaits_close = false;
        for index in self.calls.all() {
            self.forget(index);
        }
    }

    #[inline]
    fn event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Open { id, head, first, compressed: false, more } => {
                self.open(id, head, first, more);
            }
            ServerEvent::Open { id, head, first, compressed: true, more } => {
                self.open_compressed(id, head, first, more);
            }
            ServerEvent::Item { id, item, compressed } => self.item(id, Message { bytes: item, compressed }),
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
            ServerEvent::Pong | ServerEvent::Handled => {}
            ServerEvent::Closed => self.hang_up(),
        }
    }

    /// Timers are due: ends overdue calls, asks a silent peer for a sign of life. True when the connection is over,
    /// unless there is one to be read.
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
        if silent <= self.now && self.calls.len() > 0 && !self.wire.answers_pings() && !self.is_full() {
            silent = self.now + idle;
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
            silent = pinged + self.settings.keepalive_timeout();
        }
        let is_over = silent <= self.now;
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
        is_over
    }

    /// Gives back what the calls used; the next one begins anew.
    fn shrink(&mut self) {
        self.roomy = false;
        self.tell_peer();
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
            match net::poll_write_parts(&mut *self.io, cx, &slices[..filled]) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    self.shared.metrics.sent(self.shard, self.counted.1, written);
                    self.out.advance(written);
                }
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
        if self.draining.is_some() && self.calls.len() == 0 || self.closing.is_some() {
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

impl<W: ServerWire + Unpin + ?Sized> Future for Connection<W> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().turn(cx)
    }
}

impl<W: ?Sized> Drop for Connection<W> {
    fn drop(&mut self) {
        self.tell_peer();
        self.release();
        if let Some(pusher) = &self.peer.pusher {
            pusher.close();
        }
        let parked = self.calls.len();
        self.shared.parked.fetch_sub(parked, Ordering::Relaxed);
        for index in self.calls.all() {
            if let Some(parked) = self.calls.get_mut(index) {
                self.shared.metrics.unpark(self.shard, self.counted.0, parked.method);
            }
        }
    }
}
