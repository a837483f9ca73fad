//! One connection of a client: many callers, one task.
//!
//! Callers encode into the outbox under a short lock and wake the task. The task writes the requests of all callers in
//! one system call, reads all replies under one lock, and wakes the callers. The lock is never held across a system
//! call, and there is no contention for it on pinned workers.

mod deadlines;
mod ending;
#[cfg(test)]
#[cfg(feature = "wires")]
mod late_replies;
mod numbers;
#[cfg(test)]
#[cfg(feature = "wires")]
mod outbox_limit;
mod packed;
mod ping_backoff;
mod replies;
mod state;
mod streams;
mod task;
mod wire;

pub(super) use ending::ConnectionEnd;
#[cfg(feature = "http")]
pub(super) use packed::NATIVE_ALONE;
pub(super) use ping_backoff::PingBackoff;
pub(super) use task::Task;

use super::{
    Channel, ClientMethod,
    calls::{ABANDONED_MAX, Calls, RawResponse, State, Stream},
    kind::ChannelKind,
    options::Options,
};
use bytes::Bytes;
use ending::Activity;
use numbers::NumberedMethod;
use state::ConnectionState;
use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use switchboard_core::{
    Pushes, Result,
    queue::{MessageBatch, Queue},
};
use switchboard_net::{
    connection::{CallWaker, Keepalive, ReadBuffer, Timer, Wakes},
    net::{Address, Io},
};
use switchboard_wire::{
    Code, Codec, Encoding, Metadata, Origin, Outbox, Outgoing, Retry, Status,
    native::Client,
    spec::ServerName,
    wire::{ClientCallId, ClientWire, Open},
};
use tokio::sync::Notify;
use wire::Wire;

/// While more bytes than this wait to be written, requests stay in the queue of their stream.
const OUTBOX_HIGH: usize = 256 << 10;
/// Source of the status of a call that was rejected because too many bytes wait to be written.
#[derive(Debug)]
struct OutboxFull;

impl fmt::Display for OutboxFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the outbox of the connection is full")
    }
}

impl std::error::Error for OutboxFull {}

pub(super) struct Connection {
    inner: Mutex<Inner>,
    wakes: Arc<Wakes>,
    /// Copy of the state, read without the lock: true while new calls may use the connection.
    usable: AtomicBool,
    /// Wakes calls that wait for space in the outbox; see [`room`](Self::room).
    room: Notify,
    owner: Weak<dyn ChannelKind>,
    /// Minimum size of a message that is compressed.
    compression_bytes_min: u32,
    /// Maximum size of a message that is accepted.
    message_bytes_max: u32,
    /// True when the server may refuse calls that were sent.
    may_refuse_sent_calls: bool,
}

/// Returns true when a call was not sent because the outbox of its connection was [full](Connection::room).
#[cold]
pub(super) fn is_full(status: &Status) -> bool {
    std::error::Error::source(status).is_some_and(<dyn std::error::Error>::is::<OutboxFull>)
}

struct Inner {
    wire: Wire,
    out: Outbox,
    /// Bytes that the task has taken from `out` and not written yet.
    unwritten: usize,
    outbox_bytes_max: usize,
    /// Number of calls that wait for space in the outbox.
    waiting: usize,
    calls: Calls,
    /// Methods by their number on this connection.
    methods: Vec<NumberedMethod>,
    /// Number of calls of methods by names in metadata, to find the least recently used number.
    named_calls: u64,
    task: Option<Waker>,
    /// True when the task was woken and has not run since.
    woken: bool,
    state: ConnectionState,
    /// Waker of the caller that waits for the settings of the server.
    settings_waker: Option<Waker>,
    /// Calls with a timeout that the task turns into a deadline: it reads the clock once for all of them.
    fresh: Vec<(ClientCallId, Duration)>,
    /// Low bits of the ids of streams that may have something to send: they got credit, or the outbox was full.
    due: Vec<u32>,
    /// Bytes that a server may send on a stream ahead of its reader.
    window: u32,
    /// The call whose slow reader stops the connection from reading.
    read_paused_by: Option<ClientCallId>,
    /// Queue for the pushes of the server.
    pushes: Option<Pushes>,
    ping_backoff: PingBackoff,
    /// This connection has lengthened the interval.
    is_backed_off: bool,
    earliest: Option<Instant>,
}

/// Parameters of a call that is sent.
pub(super) struct Request<'a> {
    pub(super) method: &'static ClientMethod,
    pub(super) codec: Codec,
    pub(super) timeout: Option<Duration>,
    pub(super) metadata: &'a Metadata,
    pub(super) encoding: Encoding,
    /// True when its first message is compressed.
    pub(super) compressed: bool,
    /// Further parts of its first message, if it is not contiguous.
    pub(super) rest: &'a [Bytes],
}

impl Connection {
    /// Creates a connection over an opened transport; the caller must spawn the task.
    pub(super) fn new(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        owner: Weak<dyn ChannelKind>,
    ) -> (Arc<Connection>, Task) {
        let (limits, peer) = (options.limits.wire(), address.to_string());
        let keepalive = options.ping_backoff.interval(options.keepalive);
        let mut wire = match &options.wire_config {
            None => Wire::Native(Client::new(limits)),
            Some(wire_config) => {
                let authority = address.authority();
                let server = ServerName::new(&peer, &authority).secure(address.is_tls());
                Wire::Dyn(wire_config.setup.machine_for(&limits, server))
            }
        };
        let mut out = Outbox::new();
        wire.greet(&mut out);
        // True on wires that begin with a call.
        let silent = out.is_empty();
        let wakes = Arc::new(Wakes::default());
        let window = wire.receive_window(limits.stream_window_bytes);
        let calls = Calls::new(wire.call_ids());
        let may_refuse_sent_calls = wire.may_refuse_sent_calls();
        let inner = Inner {
            wire,
            out,
            unwritten: 0,
            outbox_bytes_max: options.limits.outbox_bytes_max(),
            waiting: 0,
            calls,
            methods: Vec::new(),
            named_calls: 0,
            task: None,
            woken: false,
            state: ConnectionState::Open,
            settings_waker: None,
            fresh: Vec::new(),
            due: Vec::new(),
            window,
            read_paused_by: None,
            pushes: options.pushes.clone(),
            ping_backoff: options.ping_backoff.clone(),
            is_backed_off: false,
            earliest: None,
        };
        let connection = Arc::new(Connection {
            inner: Mutex::new(inner),
            wakes,
            usable: AtomicBool::new(true),
            room: Notify::new(),
            owner,
            compression_bytes_min: options.compression.bytes_min,
            message_bytes_max: limits.message_bytes_max,
            may_refuse_sent_calls,
        });
        let now = switchboard_core::clock::now();
        let task = Task {
            connection: connection.clone(),
            io,
            peer,
            input: ReadBuffer::default(),
            writing: Outbox::new(),
            ready: Vec::new(),
            wake: Vec::new(),
            activity: Activity::default(),
            unused: silent.then(|| Box::pin(tokio::time::sleep(ending::UNUSED_MAX))),
            keepalive: Keepalive::new(keepalive, keepalive, now),
            held_since: None,
            stall_timeout: options.limits.stream_stall_timeout(),
            flushed_since: None,
            has_events: false,
            timer: Timer::default(),
        };
        (connection, task)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the channel for a retry of a call that failed with `status`, when this connection takes no more calls
    /// and the call has not begun.
    #[cold]
    pub(super) fn retry_channel(&self, status: &Status) -> Option<Channel> {
        let moved = status.code() == Code::Unavailable && status.retry() == Retry::Safe && !self.is_usable();
        if moved { self.owner.upgrade().map(Channel) } else { None }
    }

    /// Returns true when the requests of calls in flight are needed until their replies: the server may refuse a call
    /// that was sent.
    #[inline]
    pub(super) fn may_refuse_sent_calls(&self) -> bool {
        self.may_refuse_sent_calls
    }

    /// Returns the channel for another attempt of a call that was sent and that the server did not begin.
    #[cold]
    pub(super) fn second_channel(&self, status: &Status) -> Option<Channel> {
        let is_refused = self.may_refuse_sent_calls
            && status.code() == Code::Unavailable
            && status.retry() == Retry::Safe
            && status.origin() == Origin::Connection;
        if is_refused { self.channel() } else { None }
    }

    /// The channel that owns the connection.
    #[cold]
    pub(super) fn channel(&self) -> Option<Channel> {
        self.owner.upgrade().map(Channel)
    }

    /// Completes when the outbox has space for another call, or the connection takes no more calls. Each turn of the
    /// task wakes one waiting call; the call that is sent wakes the next turn.
    #[cold]
    pub(super) async fn room(&self) {
        struct Waiting<'a>(&'a Connection);

        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.lock().waiting -= 1;
                // Lets the next waiting call check again, also when this call was dropped just after it was woken.
                self.0.room.notify_one();
            }
        }

        self.lock().waiting += 1;
        let _waiting = Waiting(self);
        loop {
            let mut woken = pin!(self.room.notified());
            woken.as_mut().enable();
            {
                let inner = self.lock();
                if !inner.state.is_open() || inner.has_room() {
                    return;
                }
            }
            woken.await;
        }
    }

    /// Rejects further calls; the connection closes when those in flight have ended.
    pub(super) fn retire(&self) {
        let mut inner = self.lock();
        self.drain(&mut inner, || Status::unavailable("the channel was dropped"));
        inner.wake();
    }

    /// Sends a unary call; returns its id for [`poll_unary`](Self::poll_unary) and [`cancel`](Self::cancel).
    #[inline]
    pub(super) fn unary(
        &self,
        request: &Request<'_>,
        message: Outgoing<'_>,
        waker: &Waker,
    ) -> Result<ClientCallId> {
        let mut inner = self.lock();
        inner.open(request, Some(message), false, false, || State::Waiting(Some(waker.clone())))
    }

    /// Sends a unary call with a large message in several parts.
    #[cold]
    pub(super) fn unary_parts(
        &self,
        request: &Request<'_>,
        parts: &[Bytes],
        waker: &Waker,
    ) -> Result<ClientCallId> {
        let mut inner = self.lock();
        let (first, rest) =
            parts.split_first().map_or((None, parts), |(first, rest)| (Some(first.into()), rest));
        inner.open(&Request { rest, ..*request }, first, false, false, || State::Waiting(Some(waker.clone())))
    }

    /// Sends a one-way call.
    pub(super) fn oneway(&self, request: &Request<'_>, message: Outgoing<'_>) -> Result<()> {
        let mut inner = self.lock();
        let id = inner.open(request, Some(message), false, true, || State::Oneway)?;
        inner.calls.remove(id);
        Ok(())
    }

    /// Sends a call with streams; requests are taken from `outbound`, replies are pushed into `inbound`.
    pub(super) fn stream(
        &self,
        request: &Request<'_>,
        message: Option<Outgoing<'_>>,
        inbound: &Arc<Queue>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<ClientCallId> {
        let mut inner = self.lock();
        let credit = i64::from(inner.wire.send_window());
        let more = outbound.is_some();
        let state = || {
            State::Stream(Box::new(Stream {
                inbound: inbound.clone(),
                outbound,
                credit,
                due: false,
                batch: MessageBatch::default(),
            }))
        };
        let id = inner.open(request, message, more, false, state)?;
        drop(inner);
        // This waker makes the task process the queues of the call: now, for requests that already wait, and whenever
        // the reader takes a reply.
        let waker = Waker::from(CallWaker::new(id as u32, self.wakes.clone()));
        inbound.watch_consumer(&waker);
        waker.wake();
        Ok(id)
    }

    /// Returns the reply to a unary call that succeeded without metadata, if it has arrived; this frees its id.
    #[inline(always)]
    pub(super) fn take_plain_reply(&self, id: ClientCallId) -> Option<Bytes> {
        self.lock().calls.take_reply(id)
    }

    /// Returns the reply to a unary call, once it has arrived.
    #[inline]
    pub(super) fn poll_unary(&self, id: ClientCallId, cx: &Context<'_>) -> Poll<Result<RawResponse>> {
        let mut inner = self.lock();
        let Some(slot) = inner.calls.get_mut(id) else {
            return Poll::Ready(Err(Status::internal("a call in flight has no slot")));
        };
        let waker = match &mut slot.state {
            State::Waiting(waker) => waker.as_mut(),
            State::PartialReply(parts) if parts.end.is_none() => parts.waker.as_mut(),
            _ => None,
        };
        if let Some(waker) = waker {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        let removed = inner.calls.remove(id);
        let parts = match removed {
            Some(State::Replied(item)) => {
                let (head, trailers) = (Metadata::new(), Metadata::new());
                return Poll::Ready(Ok(RawResponse { item: item.into(), head, trailers, attempts: 1 }));
            }
            Some(State::PartialReply(parts)) => {
                self.replace_if_abandoned(&mut inner);
                *parts
            }
            _ => {
                return Poll::Ready(Err(Status::internal(
                    "a call of another kind was polled as a unary one",
                )));
            }
        };
        Poll::Ready(match (parts.end, parts.item) {
            (Some(Err(status)), _) => Err(status),
            (_, Some(item)) => {
                Ok(RawResponse { item, head: parts.head, trailers: parts.trailers, attempts: 1 })
            }
            (_, None) => Err(Status::internal("the server ended a unary call without a reply")),
        })
    }

    /// Cancels a call; does nothing when it has ended.
    pub(super) fn cancel(&self, id: ClientCallId) {
        let mut inner = self.lock();
        match inner.calls.remove(id) {
            None | Some(State::Replied(_)) => {}
            Some(State::PartialReply(parts)) if parts.end.is_some() => {}
            Some(_) => {
                let Inner { wire, out, .. } = &mut *inner;
                wire.cancel(id, out);
                self.replace_if_abandoned(&mut inner);
                inner.wake();
            }
        }
    }

    /// Rejects further calls when more than [`ABANDONED_MAX`] abandoned calls hold reserved ids: the next call opens
    /// another connection.
    fn replace_if_abandoned(&self, inner: &mut Inner) {
        if inner.calls.abandoned() > ABANDONED_MAX {
            let text = format!(
                "the server has not replied to {} canceled calls, {} has no cancel, and at most {ABANDONED_MAX} ids \
                 are reserved on a connection: it is replaced",
                inner.calls.abandoned(),
                inner.wire.name()
            );
            self.drain(inner, || Status::unavailable(text));
        }
    }
}

impl Inner {
    #[inline]
    fn open(
        &mut self,
        request: &Request<'_>,
        message: Option<Outgoing<'_>>,
        more: bool,
        oneway: bool,
        state: impl FnOnce() -> State,
    ) -> Result<ClientCallId> {
        if let Some(status) = self.state.rejection() {
            return Err(status.clone().with_retry(Retry::Safe));
        }
        self.wire.check(request.metadata)?;
        if request.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Status::deadline_exceeded("the deadline passed before the call was sent"));
        }
        if !self.has_room() {
            return Err(self.full());
        }
        if self.calls.len() >= self.wire.calls_max() as usize {
            let text = format!("{} calls are in flight on this connection (calls_max)", self.calls.len());
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        let method = match request.method.is_undeclared() {
            false => self.number_of(request.method)?,
            true => self.number_of_called(request.method, request.metadata)?,
        };
        let id = self.calls.insert(state());
        let (codec, timeout) = (request.codec, request.timeout);
        let Request { metadata, encoding, compressed, rest, .. } = *request;
        let open = Open { method, codec, timeout, metadata, oneway, more, encoding, compressed, rest };
        if let Err(status) = self.wire.open(id, open, message, &mut self.out) {
            self.calls.remove_unsent(id);
            return Err(status);
        }
        if let Some(timeout) = request.timeout {
            self.fresh.push((id, timeout));
        }
        self.wake();
        Ok(id)
    }

    /// Returns true when calls, or bytes of one-way calls, wait for a server that responds to pings.
    #[inline]
    fn awaits_server(&self) -> bool {
        let awaits = self.calls.len() > 0 || self.waiting > 0 || self.wire.queued_bytes() > 0;
        awaits && self.wire.responds_to_pings()
    }

    /// Returns true when fewer bytes wait to be written than allowed. One message may exceed the limit.
    #[inline]
    fn has_room(&self) -> bool {
        self.unwritten + self.out.len() + self.wire.queued_bytes() < self.outbox_bytes_max
    }

    #[cold]
    fn full(&self) -> Status {
        let bytes = self.unwritten + self.out.len() + self.wire.queued_bytes();
        let text = format!(
            "{bytes} bytes wait to be written to the server, over the limit of {} bytes (outbox_bytes_max): the server \
             does not read",
            self.outbox_bytes_max
        );
        Status::resource_exhausted(text).with_source(OutboxFull).with_retry(Retry::Safe)
    }

    /// Records how many bytes the task has yet to write, and wakes a call that waits for space.
    #[inline]
    fn note_unwritten(&mut self, bytes: usize, room: &Notify) {
        self.unwritten = bytes;
        if self.waiting > 0 && (!self.state.is_open() || self.has_room()) {
            room.notify_one();
        }
    }

    /// Wakes the task, once until it has run.
    #[inline]
    fn wake(&mut self) {
        if !std::mem::replace(&mut self.woken, true)
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }
}
