//! One connection of a client: many callers, one task.
//!
//! Callers encode into the outbox under a short lock and wake the task. The task writes the requests of all callers in
//! one system call, reads all replies under one lock, and wakes the callers. The lock is never held across a system
//! call, and there is no contention for it on pinned workers.

mod ending;
#[cfg(test)]
#[cfg(feature = "wires")]
mod late_replies;
mod numbers;
#[cfg(test)]
#[cfg(feature = "wires")]
mod outbox_limit;
mod packed;
mod task;
mod wire;

pub(super) use ending::ConnectionEnd;
pub(super) use task::Task;

use super::{
    Channel, ClientMethod,
    calls::{ABANDONED_MAX, Calls, RawResponse, State, Stream},
    kind::ChannelKind,
    options::Options,
};
use bytes::{Bytes, BytesMut};
use ending::Activity;
use numbers::NumberedMethod;
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use switchboard_core::{
    Pushes, Result,
    compression::Message,
    queue::{self, MessageBatch, Queue},
};
use switchboard_net::{
    connection::{CallWaker, Wakes},
    net::{self, Io},
};
use switchboard_wire::{
    Code, Codec, Encoding, Fatal, Input, Metadata, Outbox, Outgoing, Retry, Status,
    native::Client,
    wire::{ClientCallId, ClientEvent, ClientWire, Open},
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
    /// True while new calls may use the connection.
    usable: AtomicBool,
    /// Wakes calls that wait for space in the outbox; see [`room`](Self::room).
    room: Notify,
    owner: Weak<dyn ChannelKind>,
    /// Minimum size of a message that is compressed.
    compression_bytes_min: u32,
    /// Maximum size of a message that is accepted.
    message_bytes_max: u32,
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
    /// The reason why new calls are rejected: the server said so, or the connection has ended.
    closed: Option<Status>,
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
        peer: String,
        options: &Options,
        owner: Weak<dyn ChannelKind>,
    ) -> (Arc<Connection>, Task) {
        let (limits, keepalive) = (options.limits.wire(), options.keepalive);
        let mut wire = match &options.wire_config {
            None => Wire::Native(Client::new(limits)),
            Some(wire_config) => Wire::Dyn(wire_config.setup.machine(&limits)),
        };
        let mut out = Outbox::new();
        wire.greet(&mut out);
        // True on wires that begin with a call.
        let silent = out.is_empty();
        let wakes = Arc::new(Wakes::default());
        let window = wire.receive_window(limits.stream_window_bytes);
        let calls = Calls::new(wire.call_ids());
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
            closed: None,
            settings_waker: None,
            fresh: Vec::new(),
            due: Vec::new(),
            window,
            read_paused_by: None,
            pushes: options.pushes.clone(),
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
        });
        let now = switchboard_core::clock::now();
        let task = Task {
            connection: connection.clone(),
            io,
            peer,
            keepalive,
            input: BytesMut::new(),
            sharing: net::Sharing::default(),
            writing: Outbox::new(),
            ready: Vec::new(),
            wake: Vec::new(),
            last_read: now,
            activity: Activity::default(),
            unused: silent.then(|| Box::pin(tokio::time::sleep(ending::UNUSED_MAX))),
            pinged: None,
            held_since: None,
            stall_timeout: options.limits.stream_stall_timeout(),
            timer: None,
            sleep: None,
        };
        (connection, task)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Returns the channel for a retry of a call that failed with `status`, when this connection takes no more calls
    /// and the call has not begun.
    #[cold]
    pub(super) fn retry_channel(&self, status: &Status) -> Option<Channel> {
        let moved = status.code() == Code::Unavailable && status.retry() == Retry::Safe && !self.is_usable();
        if moved { self.owner.upgrade().map(Channel) } else { None }
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
                if inner.closed.is_some() || inner.has_room() {
                    return;
                }
            }
            woken.await;
        }
    }

    /// Rejects further calls; the connection closes when those in flight have ended.
    pub(super) fn retire(&self) {
        self.usable.store(false, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.closed.get_or_insert_with(|| Status::unavailable("the channel was dropped"));
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
            self.usable.store(false, Ordering::Relaxed);
            inner.closed.get_or_insert_with(|| {
                Status::unavailable(format!(
                    "the server has not replied to {} canceled calls, {} has no cancel, and at most \
                     {ABANDONED_MAX} ids are reserved on a connection: it is replaced",
                    inner.calls.abandoned(),
                    inner.wire.name()
                ))
            });
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
        if let Some(status) = &self.closed {
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
        if self.waiting > 0 && (self.closed.is_some() || self.has_room()) {
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

    /// Handles all input; returns the error after which the connection cannot continue, if any. Wakers go into `wake`.
    #[inline]
    fn receive(&mut self, input: &mut Input, wake: &mut Vec<Waker>) -> Option<Fatal> {
        loop {
            while let Some((id, len)) = self.wire.next_reply(input) {
                self.next_reply(id, len, input, wake);
            }
            match self.wire.recv(input, &mut self.out) {
                Ok(Some(event)) => {
                    self.event(event, wake);
                    if self.read_paused_by.is_some() {
                        return None;
                    }
                }
                Ok(None) => return None,
                Err(fatal) => return Some(fatal),
            }
        }
    }

    /// Stores a reply for its caller.
    #[inline(always)]
    fn reply(&mut self, id: ClientCallId, item: Bytes, wake: &mut Vec<Waker>) {
        let Some(slot) = self.calls.get_mut(id) else { return self.calls.reply_late(id) };
        match &mut slot.state {
            State::Waiting(waker) => {
                wake.extend(waker.take());
                slot.state = State::Replied(item);
            }
            State::Stream(stream) => {
                stream.inbound.push_now(item);
                self.end_stream(id, Ok(Metadata::new()));
            }
            state => {
                // A message after the end violates the protocol, or the call was rejected here.
                if let Some(parts) = state.partial_reply() {
                    parts.item = Some(Message { bytes: item, compressed: false, codec: parts.codec });
                    parts.end = Some(Ok(()));
                    wake.extend(parts.waker.take());
                } else {
                    self.calls.reply_late(id);
                }
            }
        }
    }

    /// Takes a reply of `len` bytes from `input`; a plain one goes straight to its slot, because each further move of
    /// the message would wait until the previous one is written.
    #[inline]
    fn next_reply(&mut self, id: ClientCallId, len: usize, input: &mut Input, wake: &mut Vec<Waker>) {
        if let Some(slot) = self.calls.get_mut(id)
            && let State::Waiting(waker) = &mut slot.state
        {
            wake.extend(waker.take());
            slot.state = State::Replied(input.take(len));
            return;
        }
        self.reply(id, input.take(len), wake);
    }

    /// Handles one event; wakers go into `wake`.
    #[inline]
    fn event(&mut self, event: ClientEvent, wake: &mut Vec<Waker>) {
        match event {
            ClientEvent::Reply { id, item, compressed: false } => self.reply(id, item, wake),
            ClientEvent::Reply { id, item, compressed: true } => self.compressed_reply(id, item, wake),
            ClientEvent::Head { id, metadata } => match self.calls.get_mut(id).map(|slot| &mut slot.state) {
                Some(State::Stream(stream)) => stream.inbound.set_head(metadata),
                Some(state) => {
                    if let Some(parts) = state.partial_reply() {
                        parts.head = metadata;
                    }
                }
                None => {}
            },
            ClientEvent::Item { id, item, compressed } => {
                match self.calls.get_mut(id).map(|slot| &mut slot.state) {
                    Some(State::Stream(stream)) => {
                        let ahead = stream.inbound.push_now(Message { bytes: item, compressed, codec: None });
                        // One message may exceed the window.
                        let is_ahead = ahead >= self.window as usize;
                        if is_ahead && !self.wire.advertises_windows() {
                            self.read_paused_by = Some(id);
                        } else if is_ahead {
                            self.wire.cancel(id, &mut self.out);
                            let text =
                                format!("{ahead} bytes sent ahead of the reader (stream_window_bytes)");
                            self.end_stream(id, Err(Status::resource_exhausted(text)));
                        }
                    }
                    Some(state) => {
                        if let Some(parts) = state.partial_reply() {
                            if parts.item.is_some() {
                                self.wire.cancel(id, &mut self.out);
                                let text = "the server replied with a stream to a call with one reply";
                                parts.end = Some(Err(Status::unimplemented(text)));
                                parts.awaiting_reply = true;
                                wake.extend(parts.waker.take());
                                return;
                            }
                            parts.item = Some(Message { bytes: item, compressed, codec: None });
                        }
                    }
                    None => {}
                }
            }
            ClientEvent::ReplyCodec { id, codec } => {
                if let Some(parts) = self.calls.get_mut(id).and_then(|slot| slot.state.partial_reply()) {
                    parts.codec = Some(codec);
                }
            }
            ClientEvent::End { id, end } => match self.calls.get_mut(id).map(|slot| &mut slot.state) {
                Some(State::Stream(_)) => self.end_stream(id, end),
                Some(state) => {
                    if let Some(parts) = state.partial_reply() {
                        wake.extend(parts.waker.take());
                        parts.end = Some(end.map(|trailers| parts.trailers = trailers));
                    } else {
                        self.calls.reply_late(id);
                    }
                }
                None => self.calls.reply_late(id),
            },
            ClientEvent::Credit { id, bytes } => {
                if let Some(State::Stream(stream)) = self.calls.get_mut(id).map(|slot| &mut slot.state) {
                    stream.credit = stream.credit.saturating_add(i64::from(bytes));
                    stream.note_due(id, &mut self.due);
                }
            }
            ClientEvent::Settings { window_growth } => {
                wake.extend(self.settings_waker.take());
                for (id, slot) in self.calls.iter_mut() {
                    if let State::Stream(stream) = &mut slot.state {
                        stream.credit = stream.credit.saturating_add(i64::from(window_growth));
                        stream.note_due(id, &mut self.due);
                    }
                }
            }
            ClientEvent::GoAway { status } => self.closed = Some(status),
            ClientEvent::Push(push) => {
                if let Some(pushes) = &self.pushes {
                    pushes.put(*push);
                }
            }
            ClientEvent::Pong => {}
        }
    }

    fn end_stream(&mut self, id: ClientCallId, end: Result<Metadata>) {
        if let Some(State::Stream(stream)) = self.calls.remove(id) {
            if let Some(outbound) = &stream.outbound {
                let text = "the call has ended";
                outbound.close(end.as_ref().err().cloned().unwrap_or_else(|| Status::canceled(text)));
            }
            stream.inbound.finish(end);
        }
    }

    /// Sends the pending data of a stream: requests while there is credit and space, and credit for its reader.
    ///
    /// A stream without credit continues with the next CREDIT, one stopped by a full outbox with the next turn, and one
    /// without requests when `waker` is called.
    fn pump(&mut self, low: u32, waker: &Waker) {
        let Some(id) = self.calls.with_low_bits(low) else { return };
        let Inner { wire, out, calls, due, window, .. } = self;
        let Some(State::Stream(stream)) = calls.get_mut(id).map(|slot| &mut slot.state) else { return };
        stream.due = false;
        stream.inbound.watch_consumer(waker);
        if stream.inbound.is_closed() {
            // The reader was dropped, so the remaining replies are not needed.
            wire.cancel(id, out);
            return self.end_stream(id, Err(Status::canceled("the caller dropped the stream")));
        }
        // A server with its own window may have a small one, and waits for credit for every byte.
        let least = if wire.advertises_windows() { *window / 4 } else { 1 };
        if let Some(bytes) = stream.inbound.take_credit(least) {
            wire.credit(id, bytes, out);
        }
        let Some(outbound) = stream.outbound.clone() else { return };
        let mut failed = None;
        while stream.credit > 0 {
            if out.len() >= OUTBOX_HIGH {
                stream.note_due(id, due);
                break;
            }
            match stream.batch.poll_next(&outbound, &mut Context::from_waker(waker)) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(item))) => {
                    stream.credit -= queue::weight(&item.bytes) as i64;
                    if let Err(status) = wire.item(id, &item.bytes, item.compressed, out) {
                        failed = Some(status);
                        break;
                    }
                }
                Poll::Ready(None | Some(Err(_))) => {
                    wire.half_close(id, out);
                    stream.outbound = None;
                    break;
                }
            }
        }
        if let Some(status) = failed {
            wire.cancel(id, out);
            self.end_stream(id, Err(status));
        }
    }

    /// Returns true when the connection may be read: the reader that held it back has taken enough.
    fn may_read(&mut self) -> bool {
        let Some(id) = self.read_paused_by else { return true };
        if let Some(State::Stream(stream)) = self.calls.get_mut(id).map(|slot| &mut slot.state)
            && stream.inbound.bytes() >= self.window as usize
        {
            return false;
        }
        self.read_paused_by = None;
        true
    }

    /// Ends the call whose stream has held back the connection for longer than `timeout`.
    #[cold]
    fn end_stalled(&mut self, timeout: Duration) {
        let Some(id) = self.read_paused_by.take() else { return };
        let text = format!(
            "no reply was taken for {timeout:?} (stream_stall_timeout) while {} bytes waited for the reader \
             (stream_window_bytes); on {} that holds back all calls of the connection",
            self.window,
            self.wire.name()
        );
        self.wire.cancel(id, &mut self.out);
        self.end_stream(id, Err(Status::resource_exhausted(text)));
    }

    /// Sets the deadlines of new calls.
    fn stamp(&mut self, now: Instant) {
        let Inner { fresh, calls, earliest, .. } = self;
        for (id, timeout) in fresh.drain(..) {
            let Some(slot) = calls.get_mut(id) else { continue };
            // A timeout beyond the range of the clock means no deadline.
            let Some(deadline) = now.checked_add(timeout) else { continue };
            slot.deadline = Some(deadline);
            if earliest.is_none_or(|earliest| deadline < earliest) {
                *earliest = Some(deadline);
            }
        }
    }

    /// Ends the calls whose deadline has passed.
    fn expire(&mut self, now: Instant, wake: &mut Vec<Waker>) {
        let mut next = None::<Instant>;
        let mut overdue = Vec::new();
        for (id, slot) in self.calls.iter_mut() {
            let Some(deadline) = slot.deadline else { continue };
            if deadline <= now {
                overdue.push(id);
                slot.deadline = None;
            } else if next.is_none_or(|next| deadline < next) {
                next = Some(deadline);
            }
        }
        self.earliest = next;
        for id in overdue {
            let text = "no response within the call's deadline";
            self.fail(id, Status::deadline_exceeded(text), wake);
            self.wire.cancel(id, &mut self.out);
        }
    }

    /// Ends one call with a status created here.
    fn fail(&mut self, id: ClientCallId, status: Status, wake: &mut Vec<Waker>) {
        match self.calls.get_mut(id).map(|slot| &mut slot.state) {
            Some(State::Stream(_)) => self.end_stream(id, Err(status)),
            Some(state) => {
                if let Some(parts) = state.partial_reply() {
                    wake.extend(parts.waker.take());
                    parts.end = Some(Err(status));
                    parts.awaiting_reply = true;
                }
            }
            None => {}
        }
    }
}
