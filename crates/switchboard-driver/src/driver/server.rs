//! Driver of one server connection: one task owns it and is the only user of its machine, calls and buffers.
//!
//! Cost of a unary call whose handler is ready at once: no system call of its own, no lock, no wake-up; the
//! request is a slice of the read buffer, the reply is encoded once and copied once into the outbox. A parked
//! call costs a hash insert and a wake-up.

mod begin;
mod closing;
mod counting;
mod input;
mod memory;
mod parked;
mod respond;
mod streams;
mod timers;
#[cfg(test)]
mod turns;

use super::calls::{Calls, Stage};
use crate::serving::ServerState;
use bytes::BytesMut;
use closing::ConnectionState;
pub use closing::LINGER;
use memory::ConnectionMemory;
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use switchboard_core::{
    Peer, Pusher,
    clock::after,
    metrics::{ConnectionProtocol, Tally},
};
use switchboard_guard::dispatch::Dispatch;
use switchboard_net::{
    connection::{Flight, Keepalive, Pause, ReadBuffer, SHOWN_MAX, Timer, Wakes, poll_write_all},
    net::{self, Io},
};
use switchboard_wire::{Limits, MethodId, Outbox, WireId, wire::ServerWire};
use tokio::sync::mpsc;

/// Outbox size above which it is written in the middle of a turn.
const FLUSH_BYTES: usize = 64 << 10;
/// Time without traffic after which a connection releases the memory of its calls.
const RELEASE_AFTER: Duration = Duration::from_secs(1);

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
    input: ReadBuffer,
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
    /// Time at which the connection was accepted.
    began: Instant,
    /// Time at which this turn ends.
    turn_end: Instant,
    /// Input units since the last clock reading, of those that do not read the clock.
    unclocked: u32,
    /// Calls of one method since the last clock reading that were ready at once.
    clock_batch: Option<ClockBatch>,
    keepalive: Keepalive,
    timer: Timer,
    /// The call table may have free entries; the timer is set to release their memory.
    roomy: bool,
    /// Time at which the machine may release the ends of streams that it holds.
    ends_due: Option<Instant>,
    /// The input may contain whole units, because the outbox was over its high mark.
    held: bool,
    state: ConnectionState,
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
        let keepalive = Keepalive::new(settings.idle_timeout(), settings.keepalive_timeout(), now);
        let mut timer = Timer::default();
        timer.set(keepalive.due());
        // The bytes that the sniffer read.
        shared.metrics.received(shard, counted.1, input.len());
        Connection {
            io,
            peer: Arc::new(peer),
            limits,
            shard,
            counted,
            tally: Tally::default(),
            input: ReadBuffer::new(input),
            out: Outbox::new(),
            dispatches: (0..shared.services.len()).map(|_| None).collect(),
            calls: Calls::new(wakes.clone()),
            pause: Pause::default(),
            wakes,
            ready: Vec::new(),
            stalled: VecDeque::new(),
            memory: ConnectionMemory::new(&settings),
            now,
            began: now,
            turn_end: now,
            unclocked: 0,
            clock_batch: None,
            keepalive,
            timer,
            roomy: false,
            ends_due: None,
            held: false,
            state: ConnectionState::Open,
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

    /// Counts the traffic of this connection for HTTP/2.
    #[cfg(feature = "http")]
    pub(super) fn over_http2(mut self) -> Connection<W> {
        self.counted.1 = ConnectionProtocol::HTTP2;
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
        self.wire.at(self.now.saturating_duration_since(self.began).as_millis() as u64);
        self.take_woken(cx.waker());
        self.look();
        self.out.adopt(net::lend);
        self.follow_server();
        if let Some(report) = self.wakes.take_report_request() {
            self.report_calls(&report);
        }
        let silent = self.timer.is_due(self.now) && self.alarmed();
        self.poll_ready();
        self.read_on();
        self.send_pushes();
        // Bytes that the sniffer read come first.
        if !self.input.is_empty() && self.state.reads() && !self.is_full() {
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
        if silent && self.keepalive.is_pinged() {
            return Poll::Ready(());
        }
        if self.may_close() && !self.closes(cx) {
            return Poll::Ready(());
        }
        self.rest();
        self.settle();
        self.arm(cx)
    }

    /// Reports the parked calls.
    #[cold]
    fn report_calls(&self, report: &mpsc::Sender<Vec<Flight>>) {
        let shown = self.calls.iter().take(SHOWN_MAX).map(|parked| Flight {
            method: parked.record.method,
            wire: self.counted.0,
            peer: self.peer.clone(),
            began: parked.record.began,
            deadline: parked.record.deadline,
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

    /// Writes the outbox; returns whether it is empty afterwards. While more input is available, only a large
    /// outbox is written, so that many replies share a system call.
    fn flush(&mut self, cx: &mut Context<'_>, more_input: bool) -> std::io::Result<bool> {
        if self.out.is_empty() {
            return Ok(true);
        }
        if more_input && self.out.len() < FLUSH_BYTES {
            return Ok(false);
        }
        let (shared, shard, protocol) = (&self.shared, self.shard, self.counted.1);
        let sent = |bytes| shared.metrics.sent(shard, protocol, bytes);
        match poll_write_all(&mut *self.io, cx, &mut self.out, sent) {
            Poll::Pending => Ok(false),
            Poll::Ready(written) => written.map(|()| true),
        }
    }

    /// Releases buffers that the connection does not need while it waits.
    fn rest(&mut self) {
        self.input.release();
        if let Some(tail) = self.out.release() {
            net::take_back(tail);
        }
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
        for parked in self.calls.iter() {
            self.shared.unpark(self.shard, self.counted.0, parked.record.method);
        }
    }
}
