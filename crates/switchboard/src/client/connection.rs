//! One connection of a client: many callers, one task.
//!
//! Callers encode into the outbox under a short lock and wake the task; the task writes what all of them left in
//! one system call, reads the replies of all of them under one lock, and wakes them. The lock is never held across
//! a system call, and on pinned workers nobody contends for it.

mod ending;
mod packed;
mod task;
mod wire;

pub(super) use ending::Ended;
pub(super) use task::Task;

use super::{
    Channel, ClientMethod, Way,
    calls::{Answer, Calls, State, Stream},
    options::Options,
};
use crate::{
    Code, Codec, Kind, Metadata, Pushes, Result, Retry, Status,
    compression::Message,
    driver::{CallWaker, Wakes},
    net::{self, Io},
    stream::{self, Batch, Queue},
};
use bytes::{Bytes, BytesMut};
use ending::Talk;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use switchboard_wire::{
    Encoding, Input, Outbox, Outgoing,
    native::Client,
    wire::{CallId, ClientEvent, ClientWire, Open},
};
use wire::Wire;

/// Requests wait in the stream's queue while more than this waits to be written.
const OUTBOX_HIGH: usize = 256 << 10;

pub(super) struct Connection {
    inner: Mutex<Inner>,
    wakes: Arc<Wakes>,
    /// Whether new calls may use it.
    usable: AtomicBool,
    way: Weak<Way>,
    /// Smaller messages are not compressed.
    compression_bytes_min: u32,
    /// Largest message that is taken.
    message_bytes_max: u32,
}

struct Inner {
    wire: Wire,
    out: Outbox,
    calls: Calls,
    /// By number: the method that has it on this connection.
    methods: Vec<&'static ClientMethod>,
    task: Option<Waker>,
    /// The task was woken and has not looked yet.
    woken: bool,
    /// No new calls: the server said so, or the connection has ended.
    closed: Option<Status>,
    /// Who waits for what the server says of itself.
    settling: Option<Waker>,
    /// Calls whose timeout the task has to turn into a deadline: it reads the clock once for all of them.
    fresh: Vec<(CallId, Duration)>,
    /// Streams that may have something to send: they got credit, or the outbox was full.
    due: Vec<CallId>,
    /// Bytes that a server may send of a stream ahead of its reader.
    window: u32,
    /// Who reads what nobody asked for.
    pushes: Option<Pushes>,
    earliest: Option<Instant>,
}

/// What a call says when it is sent.
pub(super) struct Request<'a> {
    pub(super) method: &'static ClientMethod,
    pub(super) codec: Codec,
    pub(super) timeout: Option<Duration>,
    pub(super) metadata: &'a Metadata,
    pub(super) encoding: Encoding,
    /// Whether its first message is compressed.
    pub(super) compressed: bool,
    /// What its first message goes on with, if it is not in one piece.
    pub(super) rest: &'a [Bytes],
}

impl Connection {
    /// Takes over an opened pipe; the task has to be spawned.
    pub(super) fn new(
        io: Box<dyn Io>,
        peer: String,
        options: &Options,
        way: Weak<Way>,
    ) -> (Arc<Connection>, Task) {
        let (limits, keepalive) = (options.limits.wire(), options.keepalive);
        let mut wire = match &options.foreign {
            None => Wire::Native(Client::new(limits)),
            Some(foreign) => Wire::Foreign(foreign.machine(&options.limits)),
        };
        let mut out = Outbox::new();
        wire.greet(&mut out);
        // Of those that begin with a call.
        let silent = out.is_empty();
        let wakes = Arc::new(Wakes::default());
        let window = wire.receive_window(limits.stream_window_bytes);
        let inner = Inner {
            wire,
            out,
            calls: Calls::default(),
            methods: Vec::new(),
            task: None,
            woken: false,
            closed: None,
            settling: None,
            fresh: Vec::new(),
            due: Vec::new(),
            window,
            pushes: options.pushes.clone(),
            earliest: None,
        };
        let connection = Arc::new(Connection {
            inner: Mutex::new(inner),
            wakes,
            usable: AtomicBool::new(true),
            way,
            compression_bytes_min: options.compression.bytes_min,
            message_bytes_max: limits.message_bytes_max,
        });
        let now = crate::clock::now();
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
            talk: Talk::default(),
            unused: silent.then(|| Box::pin(tokio::time::sleep(ending::UNUSED_MAX))),
            pinged: None,
            alarm: None,
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

    /// The channel that a call goes to once more when it failed with `status` because this connection takes none
    /// any more, and it surely did not begin.
    #[cold]
    pub(super) fn other_way(&self, status: &Status) -> Option<Channel> {
        let moved = status.code() == Code::Unavailable && status.retry() == Retry::Safe && !self.is_usable();
        if moved { self.way.upgrade().map(Channel) } else { None }
    }

    /// The channel that it is of.
    #[cold]
    pub(super) fn channel(&self) -> Option<Channel> {
        self.way.upgrade().map(Channel)
    }

    /// Takes no further call; the connection closes when those in flight have ended.
    pub(super) fn retire(&self) {
        self.usable.store(false, Ordering::Relaxed);
        let mut inner = self.lock();
        inner.closed.get_or_insert_with(|| Status::unavailable("the channel was dropped"));
        inner.wake();
    }

    /// Sends a unary call; its number is for [`poll_unary`](Self::poll_unary) and [`cancel`](Self::cancel).
    #[inline]
    pub(super) fn unary(
        &self,
        request: &Request<'_>,
        message: Outgoing<'_>,
        waker: &Waker,
    ) -> Result<CallId> {
        let mut inner = self.lock();
        inner.open(request, Some(message), false, false, || State::Waiting(Some(waker.clone())))
    }

    /// Sends a unary call, whose message is large and comes in several parts.
    #[cold]
    pub(super) fn unary_parts(
        &self,
        request: &Request<'_>,
        parts: &[Bytes],
        waker: &Waker,
    ) -> Result<CallId> {
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

    /// Sends a call with streams; requests are taken from `outbound`, replies put into `inbound`.
    pub(super) fn stream(
        &self,
        request: &Request<'_>,
        message: Option<Outgoing<'_>>,
        inbound: &Arc<Queue>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<CallId> {
        let mut inner = self.lock();
        let credit = i64::from(inner.wire.send_window());
        let more = outbound.is_some();
        let state = || {
            State::Stream(Box::new(Stream {
                inbound: inbound.clone(),
                outbound,
                credit,
                due: false,
                batch: Batch::default(),
            }))
        };
        let id = inner.open(request, message, more, false, state)?;
        drop(inner);
        // The task looks after the queues of the call when this waker fires: now, for requests that wait already,
        // and whenever the reader takes a reply.
        let waker = Waker::from(CallWaker::new(id, self.wakes.clone()));
        inbound.watch_consumer(&waker);
        waker.wake();
        Ok(id)
    }

    /// The reply to a unary call that succeeded without metadata, if it is there; its number is free then.
    #[inline(always)]
    pub(super) fn take_plain_reply(&self, id: CallId) -> Option<Bytes> {
        self.lock().calls.take_answered(id)
    }

    /// The answer to a unary call, once it is there.
    #[inline]
    pub(super) fn poll_unary(&self, id: CallId, cx: &Context<'_>) -> Poll<Result<Answer>> {
        let mut inner = self.lock();
        let Some(place) = inner.calls.get_mut(id) else {
            return Poll::Ready(Err(Status::internal("a call lost its place")));
        };
        let waker = match &mut place.state {
            State::Waiting(waker) => waker.as_mut(),
            State::Unusual(parts) if parts.end.is_none() => parts.waker.as_mut(),
            _ => None,
        };
        if let Some(waker) = waker {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        let parts = match inner.calls.remove(id) {
            Some(State::Answered(item)) => {
                let (head, trailers) = (Metadata::new(), Metadata::new());
                return Poll::Ready(Ok(Answer { item: item.into(), head, trailers, attempts: 1 }));
            }
            Some(State::Unusual(parts)) => *parts,
            _ => {
                return Poll::Ready(Err(Status::internal(
                    "a call of another kind was polled as a unary one",
                )));
            }
        };
        Poll::Ready(match (parts.end, parts.item) {
            (Some(Err(status)), _) => Err(status),
            (_, Some(item)) => Ok(Answer { item, head: parts.head, trailers: parts.trailers, attempts: 1 }),
            (_, None) => Err(Status::internal("the server ended a unary call without a reply")),
        })
    }

    /// Gives up on a call; nothing when it has ended.
    pub(super) fn cancel(&self, id: CallId) {
        let mut inner = self.lock();
        match inner.calls.remove(id) {
            None | Some(State::Answered(_)) => {}
            Some(State::Unusual(parts)) if parts.end.is_some() => {}
            Some(_) => {
                let Inner { wire, out, .. } = &mut *inner;
                wire.cancel(id, out);
                inner.wake();
            }
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
    ) -> Result<CallId> {
        if let Some(status) = &self.closed {
            return Err(status.clone().with_retry(Retry::Safe));
        }
        self.wire.check(request.metadata)?;
        if request.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Status::deadline_exceeded("the deadline passed before the call was sent"));
        }
        if self.calls.len() >= self.wire.calls_max() as usize {
            let text = format!("{} calls are in flight on this connection (calls_max)", self.calls.len());
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        let method = self.number_of(request.method)?;
        let id = self.calls.insert(state());
        let (codec, timeout) = (request.codec, request.timeout);
        let Request { metadata, encoding, compressed, rest, .. } = *request;
        let open = Open { method, codec, timeout, metadata, oneway, more, encoding, compressed, rest };
        if let Err(status) = self.wire.open(id, open, message, &mut self.out) {
            self.calls.remove(id);
            return Err(status);
        }
        if let Some(timeout) = request.timeout {
            self.fresh.push((id, timeout));
        }
        self.wake();
        Ok(id)
    }

    /// The number of the method on this connection; names it first if it has none.
    #[inline]
    fn number_of(&mut self, method: &'static ClientMethod) -> Result<u16> {
        if let Some(number) = self.methods.iter().position(|known| std::ptr::eq(*known, method)) {
            return Ok(number as u16);
        }
        let max = self.wire.methods_max();
        let number = u16::try_from(self.methods.len()).ok().filter(|number| *number < max);
        let number = number.ok_or_else(|| {
            Status::resource_exhausted(format!("more than {max} methods on one connection (methods_max)"))
        })?;
        self.methods.push(method);
        self.wire.method(number, method.path, method.schema(), &mut self.out);
        if method.kind() != Kind::Unary {
            self.wire.streams(number);
        }
        if let Some(place) = method.place() {
            self.wire.index(number, place);
        }
        Ok(number)
    }

    /// Wakes the task, once until it has looked.
    #[inline]
    fn wake(&mut self) {
        if !std::mem::replace(&mut self.woken, true)
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }

    /// Puts a reply where its caller looks for it.
    #[inline(always)]
    fn reply(&mut self, id: CallId, item: Bytes, wake: &mut Vec<Waker>) {
        let Some(place) = self.calls.get_mut(id) else { return };
        match &mut place.state {
            State::Waiting(waker) => {
                wake.extend(waker.take());
                place.state = State::Answered(item);
            }
            State::Stream(stream) => {
                stream.inbound.push_now(item);
                self.end_stream(id, Ok(Metadata::new()));
            }
            state => {
                // What comes after the end is the server's mistake, or was refused here.
                if let Some(parts) = state.unusual() {
                    parts.item = Some(item.into());
                    parts.end = Some(Ok(()));
                    wake.extend(parts.waker.take());
                }
            }
        }
    }

    /// Takes a reply of `len` bytes from `input`, in the usual case straight to its place: a message that goes through
    /// several hands waits in each until the last has written it.
    #[inline]
    fn next_reply(&mut self, id: CallId, len: usize, input: &mut Input, wake: &mut Vec<Waker>) {
        if let Some(place) = self.calls.get_mut(id)
            && let State::Waiting(waker) = &mut place.state
        {
            wake.extend(waker.take());
            place.state = State::Answered(input.take(len));
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
            ClientEvent::Head { id, metadata } => {
                match self.calls.get_mut(id).map(|place| &mut place.state) {
                    Some(State::Stream(stream)) => stream.inbound.set_head(metadata),
                    Some(state) => {
                        if let Some(parts) = state.unusual() {
                            parts.head = metadata;
                        }
                    }
                    None => {}
                }
            }
            ClientEvent::Item { id, item, compressed } => {
                match self.calls.get_mut(id).map(|place| &mut place.state) {
                    Some(State::Stream(stream)) => {
                        let ahead = stream.inbound.push_now(Message { bytes: item, compressed });
                        // One message may overdraw the window, further ones are the server's fault.
                        if ahead >= self.window as usize {
                            self.wire.cancel(id, &mut self.out);
                            let text =
                                format!("{ahead} bytes sent ahead of the reader (stream_window_bytes)");
                            self.end_stream(id, Err(Status::resource_exhausted(text)));
                        }
                    }
                    Some(state) => {
                        if let Some(parts) = state.unusual() {
                            if parts.item.is_some() {
                                self.wire.cancel(id, &mut self.out);
                                let text = "the server answers with a stream, and the call has one reply";
                                parts.end = Some(Err(Status::unimplemented(text)));
                                wake.extend(parts.waker.take());
                                return;
                            }
                            parts.item = Some(Message { bytes: item, compressed });
                        }
                    }
                    None => {}
                }
            }
            ClientEvent::End { id, end } => match self.calls.get_mut(id).map(|place| &mut place.state) {
                Some(State::Stream(_)) => self.end_stream(id, end),
                Some(state) => {
                    if let Some(parts) = state.unusual() {
                        wake.extend(parts.waker.take());
                        parts.end = Some(end.map(|trailers| parts.trailers = trailers));
                    }
                }
                None => {}
            },
            ClientEvent::Credit { id, bytes } => {
                if let Some(State::Stream(stream)) = self.calls.get_mut(id).map(|place| &mut place.state) {
                    stream.credit = stream.credit.saturating_add(i64::from(bytes));
                    stream.note_due(id, &mut self.due);
                }
            }
            ClientEvent::Settings { window_growth } => {
                wake.extend(self.settling.take());
                for (id, place) in self.calls.iter_mut() {
                    if let State::Stream(stream) = &mut place.state {
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

    fn end_stream(&mut self, id: CallId, end: Result<Metadata>) {
        if let Some(State::Stream(stream)) = self.calls.remove(id) {
            if let Some(outbound) = &stream.outbound {
                let text = "the call has ended";
                outbound.close(end.as_ref().err().cloned().unwrap_or_else(|| Status::canceled(text)));
            }
            stream.inbound.finish(end);
        }
    }

    /// Sends what a stream has to send: requests while there is credit and room, and credit for its reader.
    ///
    /// A stream that stops for want of credit goes on with the next CREDIT, one that stops before a full
    /// outbox with the next turn, and one that has nothing to send when `waker` says so.
    fn pump(&mut self, id: CallId, waker: &Waker) {
        let Inner { wire, out, calls, due, window, .. } = self;
        let Some(State::Stream(stream)) = calls.get_mut(id).map(|place| &mut place.state) else { return };
        stream.due = false;
        stream.inbound.watch_consumer(waker);
        if stream.inbound.is_closed() {
            // The reader was dropped: nobody wants the rest.
            wire.cancel(id, out);
            return self.end_stream(id, Err(Status::canceled("the caller dropped the stream")));
        }
        if let Some(bytes) = stream.inbound.take_credit(*window / 4) {
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
                    stream.credit -= stream::weight(&item.bytes) as i64;
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

    /// Gives new calls their deadlines.
    fn stamp(&mut self, now: Instant) {
        let Inner { fresh, calls, earliest, .. } = self;
        for (id, timeout) in fresh.drain(..) {
            let Some(place) = calls.get_mut(id) else { continue };
            // A time that no clock reaches is none.
            let Some(deadline) = now.checked_add(timeout) else { continue };
            place.deadline = Some(deadline);
            if earliest.is_none_or(|earliest| deadline < earliest) {
                *earliest = Some(deadline);
            }
        }
    }

    /// Ends the calls whose deadline has passed.
    fn expire(&mut self, now: Instant, wake: &mut Vec<Waker>) {
        let mut next = None::<Instant>;
        let mut overdue = Vec::new();
        for (id, place) in self.calls.iter_mut() {
            let Some(deadline) = place.deadline else { continue };
            if deadline <= now {
                overdue.push(id);
            } else if next.is_none_or(|next| deadline < next) {
                next = Some(deadline);
            }
        }
        self.earliest = next;
        for id in overdue {
            let text = "no answer within the call's deadline";
            self.fail(id, Status::deadline_exceeded(text), wake);
            self.wire.cancel(id, &mut self.out);
        }
    }

    /// Ends one call with a status that was made here.
    fn fail(&mut self, id: CallId, status: Status, wake: &mut Vec<Waker>) {
        match self.calls.get_mut(id).map(|place| &mut place.state) {
            Some(State::Stream(_)) => self.end_stream(id, Err(status)),
            Some(state) => {
                if let Some(parts) = state.unusual() {
                    wake.extend(parts.waker.take());
                    parts.end = Some(Err(status));
                }
            }
            None => {}
        }
    }
}
