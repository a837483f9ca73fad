//! Life of a call from its arrival to its response: start, park, poll, end, counters.

use super::{ClockBatch, Connection};
use crate::driver::calls::{Parked, Stage, Watched};
use bytes::Bytes;
use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use switchboard_core::{
    Call, Caller, Cx, Reply, Result,
    access::{Busy, CallerWatch, Entry},
    call::{ReplyBody, ReplyParts, RequestBody},
    compression::{Message, Packing},
    context,
    memory::{LARGE, Pressure},
    metrics::Ended,
    payload::Pieces,
    queue::Queue,
    trace::Trace,
};
use switchboard_wire::{
    Found, Kind, Metadata, MethodId, Outgoing, Retry, Status, UndeclaredName,
    wire::{CallId, Encoding, Head, ServerWire},
};

/// Maximum number of consecutive ready calls of one method that share a clock reading, which costs as much as
/// their dispatch.
const CLOCK_BATCH_MAX: u32 = 8;
/// Maximum number of calls before their counts are added to the counters of the peer.
const TALLY_MAX: u64 = 1024;
/// Memory charged for a parked call in addition to its metadata and messages: its entry, its context and a
/// small handler.
const PARKED_BYTES: usize = 512;
/// Time above which a handler that holds the turn is named in a metric and a log line.
const SLOW_HANDLER: Duration = Duration::from_millis(10);

/// Result of the first poll of a handler, or its slot if it is not ready.
type Outcome = Result<Result<Reply>, u32>;

/// A call whose handler has started, without the parts that the handler has.
struct StartedCall {
    id: CallId,
    service: u16,
    method: MethodId,
    undeclared_name: Option<UndeclaredName>,
    oneway: bool,
    began: Instant,
    /// Bytes of its request messages.
    received: u64,
    metadata_bytes: usize,
    deadline: Option<Instant>,
    trace: Option<Arc<Trace>>,
}

impl StartedCall {
    #[inline(always)]
    fn parked(self, inbound: Option<Arc<Queue>>, watched: Option<Box<Watched>>, credit: i64) -> Parked {
        Parked {
            id: self.id,
            method: self.method,
            undeclared_name: self.undeclared_name,
            oneway: self.oneway,
            began: self.began,
            received: self.received,
            sent: 0,
            entry: PARKED_BYTES + self.metadata_bytes,
            held: PARKED_BYTES + self.metadata_bytes + self.received as usize,
            deadline: self.deadline,
            trace: self.trace,
            inbound,
            stalled: false,
            credit,
            stage: Stage::Polled,
            watched,
        }
    }
}

impl<W: ServerWire> Connection<W> {
    /// Starts a call: checks it, polls its handler, and parks it if the handler is not ready.
    #[inline]
    pub(super) fn open(&mut self, id: CallId, head: Head, first: Option<Bytes>, more: bool) {
        let info = self.shared.table.info(head.method);
        match first {
            Some(first) if info.kind == Kind::Unary && !more => {
                self.begin(id, head, RequestBody::One(first), None, false);
            }
            first => self.open_stream(id, head, first.map(Message::from), more),
        }
    }

    /// Like `open`, for a compressed first message.
    #[cold]
    pub(super) fn open_compressed(&mut self, id: CallId, head: Head, first: Option<Bytes>, more: bool) {
        let info = self.shared.table.info(head.method);
        match first {
            Some(first) if info.kind == Kind::Unary && !more => {
                self.begin(id, head, RequestBody::One(first), None, true);
            }
            first => {
                let first = first.map(|bytes| Message { bytes, compressed: true, codec: None });
                self.open_stream(id, head, first, more);
            }
        }
    }

    /// Returns the compression settings for the messages of a call.
    fn packing(&self, head: &Head) -> Packing {
        if head.encoding == Encoding::Identity {
            return Packing::OFF;
        }
        let bytes_max = self.shared.table.message_bytes_max(head.method, self.limits.message_bytes_max);
        let described = std::ptr::from_ref(self.shared.table.info(head.method)).addr();
        self.shared.compression.packing(head.encoding, head.method, described, bytes_max)
    }

    /// Starts a call with streams; rejects it if its messages do not match the kind of its method.
    fn open_stream(&mut self, id: CallId, head: Head, first: Option<Message>, more: bool) {
        let info = self.shared.table.info(head.method);
        let refused = match (info.kind, first) {
            // The kind of an undeclared method is unknown; this caller sent a single message.
            (Kind::Bidi, Some(first)) if !more && self.shared.table.is_undeclared(head.method) => {
                return self.begin(id, head, RequestBody::One(first.bytes), None, first.compressed);
            }
            (Kind::ServerStream | Kind::ClientStream | Kind::Bidi, _) if head.oneway => {
                "streams, and only unary calls can be one-way"
            }
            (Kind::ServerStream, Some(first)) if !more => {
                return self.begin(id, head, RequestBody::One(first.bytes), None, first.compressed);
            }
            (Kind::Unary | Kind::ServerStream, _) => "takes one request message, sent with the call",
            (Kind::ClientStream | Kind::Bidi, first) => {
                let queue = Arc::new(Queue::new(0).packing(self.packing(&head)));
                let mut bytes = 0;
                if let Some(first) = first {
                    bytes = first.bytes.len();
                    queue.push_now(first);
                    if let Some(counts) = &self.peer.counts {
                        counts.received(1, self.now);
                    }
                }
                if !more {
                    queue.finish(Ok(Metadata::new()));
                }
                return self.begin(id, head, RequestBody::Many(queue.clone()), Some((queue, bytes)), false);
            }
        };
        let text = format!("{} {refused}", self.shared.table.full_name(head.method));
        self.refuse_call(id, head, Status::unimplemented(text));
    }

    /// Ends a call that its method does not accept; callers without credentials get the status of the guards.
    #[cold]
    fn refuse_call(&mut self, id: CallId, mut head: Head, status: Status) {
        let found = Found { method: head.method, undeclared_name: head.undeclared_name.take() };
        match self.shared.table.refuse_call(&found, Kind::Unary, status) {
            Ok(Found { method, undeclared_name }) => {
                let head = Head { method, undeclared_name, encoding: Encoding::Identity, ..head };
                self.begin(id, head, RequestBody::One(Bytes::new()), None, false);
            }
            Err(status) => self.wire.end(id, Err(&status), &mut self.out),
        }
    }

    fn begin(
        &mut self,
        id: CallId,
        head: Head,
        body: RequestBody,
        inbound: Option<(Arc<Queue>, usize)>,
        compressed: bool,
    ) {
        if let Some(status) = self.refusal(id, head.method, &body) {
            self.unclocked += 1;
            return self.wire.end(id, Err(&status), &mut self.out);
        }
        if let (Some(counts), RequestBody::One(_)) = (&self.peer.counts, &body) {
            counts.received(1, self.now);
        }
        if head.timeout == Some(Duration::ZERO) {
            return self.late(id, &head);
        }
        let received = match (&body, &inbound) {
            (RequestBody::One(message), _) => message.len() as u64,
            (RequestBody::Many(_), inbound) => inbound.as_ref().map_or(0, |(_, bytes)| *bytes as u64),
        };
        let (started_call, call) = self.create_call(id, head, body, received, compressed);
        let StartedCall { service, method, .. } = started_call;
        let index = self.calls.reserve();
        let shared = &self.shared;
        let dispatch = self.dispatches[usize::from(service)]
            .get_or_insert_with(|| shared.services[usize::from(service)].dispatch());
        let waker = self.calls.waker(index);
        let is_logged = shared.access.is_on();
        let is_picked = is_logged && shared.access.picks();
        let is_timed = is_picked || (is_logged && shared.access.times_all());
        let watch = CallerWatch::begin(is_timed);
        let outcome = context::scope(started_call.deadline, started_call.trace.as_ref(), || {
            dispatch.start(call, &mut Context::from_waker(waker))
        });
        let caller = watch.and_then(CallerWatch::end);
        let drops = self.drops(&started_call, &outcome);
        if drops.is_none()
            && let Ok(Ok(reply)) = &outcome
            && let ReplyParts { body: ReplyBody::One(message), metadata, trailers } = reply.parts()
            && let Some(item) = message.one()
        {
            self.calls.release(index);
            if self.memory.restrictions.pressure != Pressure::Normal && item.len() <= LARGE {
                self.shared.memory.note_small(method);
            }
            self.count_ready(method, received, item.len() as u64);
            if is_timed {
                let names = (method, started_call.undeclared_name.as_deref());
                let (sent, trace) = (item.len() as u64, started_call.trace.as_deref());
                self.log_ready(is_picked, names, received, sent, trace, caller.as_deref());
            }
            if !started_call.oneway {
                self.reply(id, metadata, item, false, trailers);
            }
            return;
        }
        let watched = is_logged.then_some((is_picked, caller));
        self.park_started(index, started_call, inbound.map(|(queue, _)| queue), watched, (outcome, drops));
    }

    /// Returns the error of a call that exceeds a limit of the connection or does not fit into the memory budget.
    #[inline(always)]
    fn refusal(&mut self, id: CallId, method: MethodId, body: &RequestBody) -> Option<Status> {
        match self.over_limit(id) {
            None if self.memory.restrictions.pressure >= Pressure::Severe || self.memory.trickles => {
                let request = if let RequestBody::One(message) = body { message.len() } else { 0 };
                let pressure = if self.memory.trickles {
                    Pressure::Exhausted
                } else {
                    self.memory.restrictions.pressure
                };
                self.shared.memory.refuses(pressure, method, request)
            }
            refused => refused,
        }
    }

    /// Creates a call with its context from the head of a request.
    #[inline(always)]
    fn create_call(
        &mut self,
        id: CallId,
        head: Head,
        body: RequestBody,
        received: u64,
        compressed: bool,
    ) -> (StartedCall, Call) {
        let began = self.now;
        let (service, method) = self.shared.table.service_and_index(head.method);
        let info = self.shared.table.info(head.method);
        let deadline = head.timeout.map(|timeout| switchboard_core::clock::after(began, timeout));
        let deadline = self.shared.guarding.deadlines.cap(head.method, began, deadline);
        let service_info = self.shared.table.service(head.method);
        let metadata_bytes = if head.metadata.is_empty() { 0 } else { head.metadata.encoded_len() };
        let packing = self.packing(&head);
        let mut metadata = head.metadata;
        let metadata_bytes = metadata_bytes + head.undeclared_name.as_ref().map_or(0, |name| name.len());
        if head.undeclared_name.is_some() {
            metadata.set_undeclared_name(head.undeclared_name.clone());
        }
        let mut cx = Cx::new(&self.peer, service_info, info, deadline, metadata);
        cx.set_packing(packing, compressed);
        cx.set_oneway(head.oneway);
        cx.set_arrived(began);
        let started_call = StartedCall {
            id,
            service,
            method: head.method,
            undeclared_name: head.undeclared_name,
            oneway: head.oneway,
            began,
            received,
            metadata_bytes,
            deadline,
            trace: cx.shared_trace(),
        };
        (started_call, Call::new(method, head.codec, body, cx))
    }

    /// Returns the error that replaces a large reply for which the connection has no memory.
    #[inline(always)]
    fn drops(&mut self, call: &StartedCall, outcome: &Outcome) -> Option<Status> {
        match outcome {
            Ok(Ok(reply)) => match reply.body() {
                ReplyBody::One(item) if item.len() > LARGE => {
                    let drops = !call.oneway && !self.takes_reply(call.method, item.len());
                    drops.then(|| self.shared.memory.drops(item.len()))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Parks a call whose handler is not ready or replies with a stream, and ends the others. `watched` has the fields
    /// of the call logs.
    #[inline(always)]
    fn park_started(
        &mut self,
        index: u32,
        call: StartedCall,
        inbound: Option<Arc<Queue>>,
        watched: Option<(bool, Option<Arc<Caller>>)>,
        (outcome, drops): (Outcome, Option<Status>),
    ) {
        self.close_clock_batch();
        if let Some(counts) = &self.peer.counts {
            counts.started(1, call.began);
        }
        self.clock(call.began, call.method);
        let watched = watched
            .map(|(is_picked, caller)| Box::new(Watched::new(is_picked, caller, call.began, self.now)));
        let service = call.service;
        let credit = match self.wire.send_window() {
            u32::MAX => i64::MAX,
            window => i64::from(window),
        };
        let parked = call.parked(inbound, watched, credit);
        match outcome {
            Ok(Err(status)) => {
                self.calls.release(index);
                self.end(&parked, Err(&status));
            }
            Ok(Ok(reply)) => match reply.into_parts() {
                ReplyParts { body: ReplyBody::Many(items), .. } => {
                    let stage = Stage::Replies { items: items.into_items(), head_sent: false };
                    self.park(index, Parked { stage, ..parked });
                    self.poll_call(index);
                }
                reply => {
                    self.calls.release(index);
                    match drops {
                        Some(status) => self.end(&parked, Err(&status)),
                        None => self.succeed_with(&parked, &reply),
                    }
                }
            },
            Err(slot) => self.park(index, Parked { stage: Stage::Handler { service, slot }, ..parked }),
        }
    }

    /// Ends a call whose deadline passed before it could start.
    #[cold]
    fn late(&mut self, id: CallId, head: &Head) {
        let status = Status::deadline_exceeded("the deadline had passed when the call arrived");
        let ended = Ended { calls: 1, code: status.code(), took: Duration::ZERO, received: 0, sent: 0 };
        self.count(head.method, &ended);
        if !head.oneway {
            self.wire.end(id, Err(&status), &mut self.out);
        }
    }

    /// Returns the error if the call exceeds a limit on calls in flight or reuses the number of another call.
    pub(super) fn over_limit(&mut self, id: CallId) -> Option<Status> {
        if let Some(index) = self.calls.find(id) {
            // The peer could not distinguish the two responses: one end ends both calls.
            self.forget(index);
            return Some(Status::internal(format!("call number {id} is in use on this connection")));
        }
        if self.calls.len() >= self.limits.calls_max as usize {
            let text = format!("{} calls are in flight on this connection (calls_max)", self.calls.len());
            return Some(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        let parked = self.shared.parked.load(Ordering::Relaxed);
        if parked as u64 >= self.shared.live.server_calls_max.value() {
            let text = format!("{parked} calls are in flight on this server (server_calls_max)");
            return Some(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        None
    }

    pub(super) fn park(&mut self, index: u32, parked: Parked) {
        if let Some(deadline) = parked.deadline {
            self.alarm = Some(self.alarm.map_or(deadline, |alarm| alarm.min(deadline)));
        }
        if let Some(queue) = &parked.inbound {
            queue.watch_consumer(self.calls.waker(index));
        }
        self.shared.parked.fetch_add(1, Ordering::Relaxed);
        self.shared.metrics.park(self.shard, self.counted.0, parked.method);
        self.memory.change(0, parked.held);
        self.calls.park(index, parked);
    }

    /// Polls woken calls; calls that remain when the turn is over are polled in the next turn.
    pub(super) fn poll_ready(&mut self) {
        let mut polled = 0;
        while let Some(index) = self.ready.get(polled).copied()
            && (polled == 0 || !self.is_over())
        {
            polled += 1;
            self.poll_call(index);
        }
        self.ready.drain(..polled);
    }

    /// Polls a parked call as far as possible.
    pub(super) fn poll_call(&mut self, index: u32) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        let mut cx = Context::from_waker(waker);
        let deadline = parked.deadline;
        let trace = parked.trace.clone();
        let began = self.now;
        match std::mem::replace(&mut parked.stage, Stage::Polled) {
            Stage::Polled => {}
            Stage::Handler { service, slot } => {
                let method = parked.method;
                let dispatch =
                    self.dispatches[usize::from(service)].as_mut().expect("a parked call has its dispatch");
                let is_watched = parked.watched.as_ref().is_some_and(|watched| watched.caller.is_none());
                let watch = CallerWatch::begin(is_watched);
                let polled = context::scope(deadline, trace.as_ref(), || dispatch.poll(slot, &mut cx));
                let caller = watch.and_then(CallerWatch::end);
                self.clock(began, method);
                self.turned(index, began);
                if caller.is_some()
                    && let Some(watched) = self.watched(index)
                {
                    watched.caller = caller;
                }
                match polled {
                    Poll::Pending => {
                        if let Some(parked) = self.calls.get_mut(index) {
                            parked.stage = Stage::Handler { service, slot };
                            if parked.inbound.is_some() {
                                self.weigh(index);
                            }
                        }
                        self.give_credit(index);
                    }
                    Poll::Ready(Err(status)) => self.finish(index, Err(status)),
                    Poll::Ready(Ok(reply)) => match reply.into_parts() {
                        ReplyParts { body: ReplyBody::Many(items), .. } => {
                            if let Some(parked) = self.calls.get_mut(index) {
                                let items = items.into_items();
                                parked.stage = Stage::Replies { items, head_sent: false };
                            }
                            self.poll_call(index);
                        }
                        reply => self.finish(index, Ok(reply)),
                    },
                }
            }
            Stage::Replies { items, head_sent } => {
                self.poll_replies(index, items, head_sent, deadline);
                self.weigh(index);
                self.give_credit(index);
            }
        }
    }

    /// Ends a parked call with the result of its handler.
    pub(super) fn finish(&mut self, index: u32, result: Result<ReplyParts>) {
        let Some(parked) = self.take(index) else { return };
        match result {
            Ok(reply) => self.succeed_with(&parked, &reply),
            Err(status) => self.end(&parked, Err(&status)),
        }
    }

    /// Ends a call with its only message.
    fn succeed_with(&mut self, call: &Parked, reply: &ReplyParts) {
        let ReplyParts { metadata, trailers, body } = reply;
        match body {
            ReplyBody::One(message) => match message.pieces() {
                Pieces::One(item) => self.succeed(call, metadata, item, trailers, false),
                Pieces::Parts(parts) => self.succeed_in_parts(call, metadata, parts, trailers),
            },
            ReplyBody::Compressed(item) => self.succeed(call, metadata, item.into(), trailers, true),
            // The caller of this function has sent the stream.
            ReplyBody::Many(_) => {}
        }
    }

    /// Ends a call with its only message, which is large and in parts.
    #[cold]
    fn succeed_in_parts(&mut self, call: &Parked, metadata: &Metadata, parts: &[Bytes], trailers: &Metadata) {
        if call.oneway || !trailers.is_empty() {
            let whole = Bytes::from(parts.concat());
            return self.succeed(call, metadata, (&whole).into(), trailers, false);
        }
        let bytes = parts.iter().map(Bytes::len).sum::<usize>();
        if !self.takes_reply(call.method, bytes) {
            return self.end(call, Err(&self.shared.memory.drops(bytes)));
        }
        self.record(call, switchboard_wire::Code::Ok, bytes as u64);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
            counts.sent(1, self.now);
        }
        if !metadata.is_empty() {
            self.wire.head(call.id, metadata, &mut self.out);
        }
        self.wire.reply_parts(call.id, parts, &mut self.out);
    }

    /// Ends a call with its only message.
    fn succeed(
        &mut self,
        call: &Parked,
        metadata: &Metadata,
        item: Outgoing<'_>,
        trailers: &Metadata,
        compressed: bool,
    ) {
        if item.len() > LARGE && !call.oneway && !self.takes_reply(call.method, item.len()) {
            return self.end(call, Err(&self.shared.memory.drops(item.len())));
        }
        self.record(call, switchboard_wire::Code::Ok, item.len() as u64);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if call.oneway {
            return;
        }
        self.reply(call.id, metadata, item, compressed, trailers);
    }

    /// Drops a parked call without a response: its caller is gone.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(parked) = self.take(index) {
            self.record(&parked, switchboard_wire::Code::Canceled, 0);
            if let Some(counts) = &self.peer.counts {
                counts.lost();
            }
        }
    }

    /// Removes a call from the table and drops its handler.
    pub(super) fn take(&mut self, index: u32) -> Option<Parked> {
        let mut parked = self.calls.remove(index)?;
        self.shared.parked.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.unpark(self.shard, self.counted.0, parked.method);
        self.memory.change(parked.held, 0);
        match std::mem::replace(&mut parked.stage, Stage::Polled) {
            Stage::Handler { service, slot } => {
                if let Some(dispatch) = &mut self.dispatches[usize::from(service)] {
                    dispatch.cancel(slot);
                }
            }
            Stage::Replies { items, .. } => drop(items),
            Stage::Polled => {}
        }
        if let Some(queue) = &parked.inbound {
            queue.finish(Err(Status::canceled("the call has ended")));
        }
        Some(parked)
    }

    #[inline]
    pub(super) fn reply(
        &mut self,
        id: CallId,
        metadata: &Metadata,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
    ) {
        if let Some(counts) = &self.peer.counts {
            counts.sent(1, self.now);
        }
        if !metadata.is_empty() {
            self.wire.head(id, metadata, &mut self.out);
        }
        if trailers.is_empty() && !compressed {
            self.wire.reply(id, item, &mut self.out);
        } else {
            self.wire.reply_with(id, item, compressed, trailers, &mut self.out);
        }
    }

    pub(super) fn end(&mut self, call: &Parked, end: Result<&Metadata, &Status>) {
        let code = end.map_or_else(Status::code, |_| switchboard_wire::Code::Ok);
        self.record(call, code, 0);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if !call.oneway {
            self.wire.end(call.id, end, &mut self.out);
        }
    }

    /// Counts a call that was ready at once.
    #[inline]
    pub(super) fn count_ready(&mut self, method: MethodId, received: u64, sent: u64) {
        match &mut self.clock_batch {
            Some(batch) if batch.method == method && batch.calls < CLOCK_BATCH_MAX => {
                batch.calls += 1;
                batch.received += received;
                batch.sent += sent;
            }
            _ => {
                self.close_clock_batch();
                self.clock_batch = Some(ClockBatch { method, calls: 1, received, sent });
            }
        }
    }

    /// Counts the end of a call that was not ready at once; `sent` is the size of its last message in bytes.
    fn record(&mut self, call: &Parked, code: switchboard_wire::Code, sent: u64) {
        let took = self.now.saturating_duration_since(call.began);
        let ended = Ended { calls: 1, code, took, received: call.received, sent: call.sent + sent };
        self.count(call.method, &ended);
        if self.shared.access.is_on() {
            let watched = call.watched.as_deref();
            let busy = match self.shared.table.info(call.method).kind {
                Kind::Unary => Busy::Call(took),
                Kind::Bidi | Kind::ClientStream | Kind::ServerStream => {
                    Busy::Stream(watched.map_or(Duration::ZERO, |watched| watched.slowest(self.now)))
                }
            };
            let names = (call.method, call.undeclared_name.as_deref());
            let is_picked = watched.is_some_and(|watched| watched.is_picked);
            let caller = watched.and_then(|watched| watched.caller.as_deref());
            self.log(is_picked, names, &ended, busy, call.trace.as_deref(), caller);
        }
    }

    /// Records how long the handler of a parked call ran.
    pub(super) fn turned(&mut self, index: u32, began: Instant) {
        let ran = self.now.saturating_duration_since(began);
        if let Some(watched) = self.watched(index) {
            watched.turned(ran);
        }
    }

    /// Returns the log fields of a parked call, if a call log was on when it started.
    fn watched(&mut self, index: u32) -> Option<&mut Watched> {
        self.calls.get_mut(index)?.watched.as_deref_mut()
    }

    /// Logs a call that was ready at once, if it was sampled; such a call reads the clock at its end.
    #[cold]
    fn log_ready(
        &mut self,
        is_picked: bool,
        names: (MethodId, Option<&str>),
        received: u64,
        sent: u64,
        trace: Option<&Trace>,
        caller: Option<&Caller>,
    ) {
        let began = self.now;
        self.close_clock_batch();
        let took = self.now.saturating_duration_since(began);
        let ended = Ended { calls: 1, code: switchboard_wire::Code::Ok, took, received, sent };
        self.log(is_picked, names, &ended, Busy::Call(took), trace, caller);
    }

    #[cold]
    fn log(
        &self,
        is_picked: bool,
        (method, undeclared_name): (MethodId, Option<&str>),
        ended: &Ended,
        busy: Busy,
        trace: Option<&Trace>,
        caller: Option<&Caller>,
    ) {
        self.shared.access.log(is_picked, ended.took, busy, || Entry {
            method: undeclared_name.map_or_else(|| self.shared.table.full_name(method), str::to_owned),
            peer: &self.peer,
            caller: caller.map(|caller| &caller.name[..]),
            code: ended.code,
            received: ended.received,
            sent: ended.sent,
            trace,
        });
    }

    #[inline]
    fn count(&mut self, method: MethodId, ended: &Ended) {
        self.shared.metrics.record(self.shard, self.counted.0, method, ended);
        let tally = &mut self.tally;
        tally.calls += ended.calls;
        tally.failed += if ended.code == switchboard_wire::Code::Ok { 0 } else { ended.calls };
        tally.received += ended.received;
        tally.sent += ended.sent;
        if tally.calls >= TALLY_MAX {
            self.flush_tally();
        }
    }

    /// Reads the clock for the calls of the clock batch and counts them.
    #[inline]
    pub(super) fn close_clock_batch(&mut self) {
        if let Some(ClockBatch { method, calls, received, sent }) = self.clock_batch.take() {
            let began = self.now;
            self.clock(began, method);
            let took = self.now.saturating_duration_since(began) / calls;
            let calls = u64::from(calls);
            if let Some(counts) = &self.peer.counts {
                counts.started(calls, began);
                counts.ended(calls);
            }
            self.count(method, &Ended { calls, code: switchboard_wire::Code::Ok, took, received, sent });
        }
    }

    /// Reads the clock after handlers ran, and reports a method that held the turn too long.
    #[inline]
    pub(super) fn clock(&mut self, began: Instant, method: MethodId) {
        self.now = switchboard_core::clock::now();
        let took = self.now.saturating_duration_since(began);
        if took > SLOW_HANDLER {
            self.slow(took, method);
        }
    }

    #[cold]
    pub(super) fn slow(&self, took: Duration, method: MethodId) {
        self.shared.metrics.slow(method);
        tracing::warn!(
            method = self.shared.table.full_name(method),
            took_ms = took.as_millis() as u64,
            "a handler held its connection's turn; let it await, or mark the method `spawn`"
        );
    }
}

impl<W> Connection<W> {
    /// Adds the tally to the counters of the peer.
    #[cold]
    pub(super) fn flush_tally(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        if let Some(counts) = &self.peer.tally {
            counts.add(&tally);
        }
    }
}
