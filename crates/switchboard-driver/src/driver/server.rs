//! Driver of one server connection: one task owns it and is the only user of its machine, calls and buffers.
//!
//! Cost of a unary call whose handler is ready at once: no system call of its own, no lock, no wake-up; the
//! request is a slice of the read buffer, the reply is encoded once and copied once into the outbox. A parked
//! call costs a hash insert and a wake-up.

mod memory;
mod respond;
mod streams;
#[cfg(test)]
mod turns;

use super::calls::{Calls, Stage};
use crate::serving::{ServerState, going_away};
use bytes::BytesMut;
use memory::ConnectionMemory;
use std::{
    collections::VecDeque,
    future::Future,
    io::IoSlice,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use switchboard_core::{
    Peer, Pusher,
    clock::after,
    compression::Message,
    metrics::{ConnectionProtocol, Tally},
    runtime,
};
use switchboard_guard::{dispatch::Dispatch, guard::BatchScope};
use switchboard_net::{
    connection::{Flight, Pause, SHOWN_MAX, Wakes},
    net::{self, Io},
};
use switchboard_wire::{
    Input, Limits, Metadata, MethodId, Outbox, Status, WireId,
    wire::{Encoding, Head, Opened, ServerEvent, ServerWire},
};
use tokio::{io::AsyncReadExt, sync::mpsc, time::Sleep};

/// Number of input units between two checks of the turn's time.
const UNITS: u32 = 16;
/// Outbox size above which it is written in the middle of a turn.
const FLUSH_BYTES: usize = 64 << 10;
/// Maximum number of parts of one vectored write.
const PARTS_MAX: usize = 64;
/// Time without traffic after which a connection releases the memory of its calls.
const RELEASE_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of discarded reads per turn, so that other connections run.
const DISCARDS_MAX: usize = 16;
/// Time that a client has to receive the drain notice before its new calls are refused, and afterwards,
/// without calls in flight, to close the connection.
pub const LINGER: Duration = Duration::from_millis(500);

/// Driver of one accepted connection; the future ends with the connection.
pub(super) struct Connection<W> {
    io: Box<dyn Io>,
    shared: Arc<ServerState>,
    peer: Arc<Peer>,
    limits: Limits,
    /// Limits of the listener; `limits` is their part for the wire.
    settings: Arc<switchboard_core::Limits>,
    /// Index of this worker's counters.
    shard: usize,
    /// Wire and protocol that the counters attribute calls and bytes to.
    counted: (WireId, ConnectionProtocol),
    /// Counts that are not yet added to the counters of the peer.
    tally: Tally,
    input: BytesMut,
    sharing: net::Sharing,
    out: Outbox,
    dispatches: Vec<Option<Box<dyn Dispatch>>>,
    calls: Calls,
    wakes: Arc<Wakes>,
    /// Pause between two turns, if the last one used up its time.
    pause: Pause,
    /// Calls that were woken and not polled yet.
    ready: Vec<u32>,
    /// Streams whose replies wait until the outbox shrinks or the next turn starts; each is listed once.
    stalled: VecDeque<u32>,
    /// Memory that the connection holds.
    memory: ConnectionMemory,
    /// Time of the last clock reading.
    now: Instant,
    /// Time at which this turn ends.
    turn_end: Instant,
    /// Input units since the last clock reading, of those that do not read the clock.
    unclocked: u32,
    /// Calls of one method since the last clock reading that were ready at once.
    clock_batch: Option<ClockBatch>,
    last_read: Instant,
    /// Time of a keepalive PING without a response so far.
    pinged: Option<Instant>,
    /// The call table may have free entries; a timer is set to release their memory.
    roomy: bool,
    alarm: Option<Instant>,
    /// Time at which the machine may release the ends of streams that it holds.
    ends_due: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    draining: Option<Instant>,
    /// The input may contain whole units, because the outbox was over its high mark.
    held: bool,
    /// No more bytes are read: the peer closed its side, or the machine has finished.
    read_closed: bool,
    /// Time at which the last bytes of the connection were queued.
    closing: Option<Instant>,
    /// The peer must respond to them.
    awaits_close: bool,
    /// Further input is read and discarded.
    discards: bool,
    wire: W,
}

/// Calls of one method that were ready at once.
struct ClockBatch {
    method: MethodId,
    calls: u32,
    /// Bytes of their messages.
    received: u64,
    sent: u64,
}

/// Result of a read.
enum Read {
    /// Bytes were read and handled.
    Some,
    /// The read would block.
    Blocked,
    /// The outbox is over its high mark.
    Held,
    /// The peer closed its side or violated the protocol.
    Over,
}

/// State of an accepted connection after its protocol was detected.
pub struct Accepted {
    /// The transport of the connection.
    pub io: Box<dyn Io>,
    /// Bytes that were read to detect the protocol.
    pub input: BytesMut,
    /// The peer of the connection.
    pub peer: Peer,
    /// Limits of the listener.
    pub settings: Arc<switchboard_core::Limits>,
    /// State of the server.
    pub shared: Arc<ServerState>,
    /// Wakes the task of the connection.
    pub wakes: Arc<Wakes>,
    /// Index of its worker's counters.
    pub shard: usize,
}

impl<W: ServerWire> Connection<W> {
    /// Takes over a connection whose first bytes are in `input`.
    pub(super) fn new(accepted: Accepted, wire: W) -> Connection<W> {
        let Accepted { io, input, mut peer, settings, shared, wakes, shard } = accepted;
        peer.pusher = wire.pushes().map(|limits| Pusher::new(wakes.clone().into(), &settings, limits));
        let now = switchboard_core::clock::now();
        let counted = peer.wire.unwrap_or(WireId::NATIVE);
        let counted = (counted, ConnectionProtocol::of(counted));
        let mut limits = settings.wire();
        limits.stream_window_bytes = wire.receive_window(limits.stream_window_bytes);
        // The bytes that the sniffer read.
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
            stalled: VecDeque::new(),
            memory: ConnectionMemory::new(&settings),
            now,
            turn_end: now,
            unclocked: 0,
            clock_batch: None,
            last_read: now,
            pinged: None,
            roomy: false,
            alarm: Some(after(now, settings.idle_timeout())),
            ends_due: None,
            sleep: None,
            draining: None,
            held: false,
            read_closed: false,
            closing: None,
            awaits_close: false,
            discards: false,
            settings,
            shared,
            wire,
        }
    }

    /// Counts the traffic of this connection for WebSockets.
    #[cfg(feature = "http")]
    pub(super) fn inside_websocket(mut self) -> Connection<W> {
        self.counted = (WireId::WEBSOCKET, ConnectionProtocol::WEBSOCKET);
        self
    }
}

impl<W: ServerWire> Connection<W> {
    /// Runs one turn: timers, woken calls, reads with their calls, and the write. Returns pending while the
    /// connection lives.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.pause.poll(cx));
        self.now = switchboard_core::clock::now();
        self.turn_end = after(self.now, self.settings.connection_turn_max());
        self.take_woken(cx.waker());
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
        if let Some(report) = self.wakes.take_report_request() {
            self.report_calls(&report);
        }
        let silent = self.alarm.is_some_and(|alarm| alarm <= self.now) && self.alarmed();
        self.poll_ready();
        self.read_on();
        self.send_pushes();
        // Bytes that the sniffer read come first.
        if !self.input.is_empty() && !self.read_closed && !self.is_full() {
            self.handle_input();
        }
        loop {
            let read = self.read(cx);
            let Ok(flushed) = self.flush(cx, matches!(read, Read::Some)) else { return Poll::Ready(()) };
            if flushed {
                self.resume_stalled();
                self.send_pushes();
            }
            let again = match read {
                Read::Some => true,
                Read::Held if flushed && !self.is_full() => true,
                Read::Over if self.out.is_empty() && self.calls.len() == 0 => {
                    if self.lingers(cx) {
                        break;
                    }
                    return Poll::Ready(());
                }
                _ => flushed && (!self.out.is_empty() || self.can_resume()),
            };
            if !again && self.ready.is_empty() {
                break;
            }
            if !again || self.is_over() {
                // Over the time budget: other connections run first.
                self.pause.begin(cx);
                break;
            }
        }
        // All input that arrived while this task did not run has been read by now.
        if silent && self.pinged.is_some() {
            return Poll::Ready(());
        }
        if self.draining.is_some_and(|began| {
            self.calls.len() == 0 && self.out.is_empty() && self.now > after(began, LINGER)
        }) && !self.wire.holds_ends()
            && !self.closes(cx)
        {
            return Poll::Ready(());
        }
        self.rest();
        self.settle();
        self.arm(cx)
    }

    /// Queues the last bytes of a drained connection; returns whether the connection must wait before it
    /// ends.
    fn closes(&mut self, cx: &mut Context<'_>) -> bool {
        if self.closing.is_none() && self.wire.close(&mut self.out) {
            self.closing = Some(self.now);
            self.awaits_close = true;
            return self.flush(cx, false).is_ok();
        }
        self.lingers(cx)
    }

    /// Returns whether the connection must wait before it ends: for the peer's response to the last bytes of
    /// the machine, for those of the transport, or for input that the peer still sends after a protocol
    /// error. If the socket is closed with unread input, the system may discard the last bytes that were
    /// written.
    fn lingers(&mut self, cx: &mut Context<'_>) -> bool {
        let began = *self.closing.get_or_insert(self.now);
        if self.now > after(began, LINGER) {
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

    /// Sends the peer a notice to start no further calls on this connection.
    #[cold]
    fn drain(&mut self, reason: &str) {
        self.draining = Some(self.now);
        self.wire.drain(reason, &mut self.out);
        let linger = after(self.now, LINGER);
        self.alarm = Some(self.alarm.map_or(linger, |alarm| alarm.min(linger)));
    }

    /// Ends all calls whose grace period is over, because the server stops.
    #[cold]
    fn end_all(&mut self) {
        for index in self.calls.all() {
            self.finish(index, Err(going_away()));
        }
    }

    /// Reports the parked calls.
    #[cold]
    fn report_calls(&self, report: &mpsc::Sender<Vec<Flight>>) {
        let shown = self.calls.iter().take(SHOWN_MAX).map(|parked| Flight {
            method: parked.method,
            wire: self.counted.0,
            peer: self.peer.clone(),
            began: parked.began,
            deadline: parked.deadline,
            stage: if let Stage::Replies { .. } = parked.stage { "replies" } else { "handler" },
        });
        // The channel has capacity for one report of each connection; its receiver may have gone.
        let _ = report.try_send(shown.collect());
    }

    /// Sends server push messages while the peer accepts them.
    #[inline]
    fn send_pushes(&mut self) {
        let Some(pusher) = &self.peer.pusher else { return };
        while pusher.any()
            && self.out.len() + self.memory.weight <= self.memory.limit
            && let Some(push) = pusher.next()
        {
            self.wire.push(&push, &mut self.out);
        }
    }

    /// Reads once and handles the bytes.
    fn read(&mut self, cx: &mut Context<'_>) -> Read {
        if self.read_closed {
            return Read::Over;
        }
        if self.is_full() {
            return self.pause_reads();
        }
        if self.held {
            self.handle_input();
            return if self.read_closed { Read::Over } else { Read::Some };
        }
        if self.lacks_room() {
            return self.close_for_memory();
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
                self.now = switchboard_core::clock::now();
                self.last_read = self.now;
                self.shared.metrics.received(self.shard, self.counted.1, n);
                self.pinged = None;
                runtime::traffic(self.now);
                self.handle_input();
                self.trickled();
                if self.read_closed { Read::Over } else { Read::Some }
            }
            Poll::Ready(_) => {
                self.close_read();
                Read::Over
            }
        }
    }

    /// Reads nothing until there is room. Detects within a second that the peer has closed its side, once the outbox is
    /// empty; the calls then end as at the end of the peer's bytes.
    #[cold]
    fn pause_reads(&mut self) -> Read {
        if self.calls.len() > 0 && self.out.is_empty() {
            if self.io.is_read_closed() {
                self.close_read();
                return Read::Over;
            }
            let again = after(self.now, RELEASE_AFTER);
            self.alarm = Some(self.alarm.map_or(again, |alarm| alarm.min(again)));
        }
        Read::Held
    }

    /// Returns whether the outbox is over its limit for one peer, or the connection holds too much while
    /// memory is short.
    #[inline]
    fn is_full(&self) -> bool {
        self.out.len() + self.wire.unsent_response_bytes() + self.memory.weight > self.memory.limit
    }

    /// Returns whether the turn has used up its time.
    #[inline]
    fn is_over(&self) -> bool {
        self.now >= self.turn_end
    }

    /// Returns whether the turn has used up its time, estimated by the number of input units handled in it.
    #[inline]
    fn has_spent(&mut self, handled: &mut u32) -> bool {
        *handled += 1;
        if *handled < UNITS {
            return false;
        }
        *handled = 0;
        if self.unclocked > 0 {
            self.tick();
        }
        self.is_over()
    }

    /// Reads the clock for input units that do not read it themselves.
    fn tick(&mut self) {
        self.unclocked = 0;
        match self.clock_batch {
            Some(_) => self.close_clock_batch(),
            None => self.now = switchboard_core::clock::now(),
        }
    }

    /// Takes the woken calls and queues them behind those that the last turn left.
    #[inline]
    fn take_woken(&mut self, task: &Waker) {
        if self.ready.is_empty() {
            return self.wakes.take(task, &mut self.ready);
        }
        let mut woken = Vec::new();
        self.wakes.take(task, &mut woken);
        self.ready.append(&mut woken);
    }

    /// Handles whole units of the input while the outbox has room and the turn lasts.
    fn handle_input(&mut self) {
        let mut input = Input::new(std::mem::take(&mut self.input)).sharing(self.sharing.allowed());
        self.held = false;
        self.out.adopt(net::lend);
        let batch = BatchScope::begin();
        let (mut handled, mut spent) = (0, false);
        loop {
            while !self.is_full()
                && !spent
                && let Some(Opened { id, method, codec, timeout, len }) = self.wire.next_call(&mut input)
            {
                let (encoding, metadata) = (Encoding::Identity, Metadata::new());
                let head =
                    Head { method, undeclared_name: None, codec, encoding, timeout, metadata, oneway: false };
                self.open(id, head, Some(input.take(len)), false);
                spent = self.has_spent(&mut handled);
            }
            if self.is_full() || spent {
                self.held = true;
                self.close_clock_batch();
                break;
            }
            match self.wire.recv(&mut input, &mut self.out) {
                Ok(Some(event)) => {
                    self.unclocked += 1;
                    self.event(event);
                    spent = self.has_spent(&mut handled);
                }
                Ok(None) => {
                    self.close_clock_batch();
                    break;
                }
                Err(fatal) => {
                    self.close_clock_batch();
                    self.shared.metrics.protocol_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(peer = %self.peer.address, wire = self.wire.name(), "closed: {fatal}");
                    self.wire.drain(&fatal.to_string(), &mut self.out);
                    self.discards = true;
                    self.close_read();
                    break;
                }
            }
        }
        drop(batch);
        self.input = input.into_buffer();
    }

    /// Stops reading from the peer and drops the calls in flight: their callers are gone.
    fn close_read(&mut self) {
        self.read_closed = true;
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
            ServerEvent::Item { id, item, compressed } => {
                self.item(id, Message { bytes: item, compressed, codec: None });
            }
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
            ServerEvent::Closed => self.close_read(),
        }
    }

    /// Handles due timers: ends overdue calls and pings a silent peer. Returns true if the connection is
    /// over, unless a read follows.
    fn alarmed(&mut self) -> bool {
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

    /// Writes the outbox; returns whether it is empty afterwards. While more input is available, only a large
    /// outbox is written, so that many replies share a system call.
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

    /// Releases buffers that the connection does not need while it waits.
    fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.sharing.take_back(std::mem::take(&mut self.input));
        }
        if let Some(tail) = self.out.release() {
            net::take_back(tail);
        }
    }

    /// Registers the task with the next timer.
    fn arm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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

impl<W: ServerWire + Unpin> Future for Connection<W> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().turn(cx)
    }
}

impl<W> Drop for Connection<W> {
    fn drop(&mut self) {
        self.flush_tally();
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
