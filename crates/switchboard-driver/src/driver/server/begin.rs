//! Start of a call: its checks, the first poll of its handler, and its place in the table if the handler is not ready.

use super::Connection;
use crate::{
    driver::calls::{Parked, Stage},
    serving::{CallRecord, Watched, arrived_late},
};
use bytes::Bytes;
use std::{
    sync::Arc,
    task::Context,
    time::{Duration, Instant},
};
use switchboard_core::{
    Call, Caller, Cx, Reply, Result,
    access::CallerWatch,
    call::{ReplyBody, ReplyParts, RequestBody},
    compression::{Message, Packing},
    context,
    memory::{LARGE, Pressure},
    metrics::Ended,
    queue::Queue,
    trace::Trace,
};
use switchboard_wire::{
    Found, Kind, Metadata, MethodId, Retry, Status, UndeclaredName,
    wire::{CallId, Encoding, Head, ServerWire},
};

/// Memory charged for a parked call in addition to its metadata and messages: its entry, its context and a
/// small handler.
const PARKED_BYTES: usize = 512;

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
        let record = CallRecord {
            method: self.method,
            undeclared_name: self.undeclared_name,
            began: self.began,
            deadline: self.deadline,
            received: self.received,
            sent: 0,
            trace: self.trace,
            watched,
        };
        Parked {
            id: self.id,
            record,
            oneway: self.oneway,
            entry: PARKED_BYTES + self.metadata_bytes,
            held: PARKED_BYTES + self.metadata_bytes + self.received as usize,
            inbound,
            stalled: false,
            credit,
            stage: Stage::Polled,
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
        if head.encoding == Encoding::Identity && head.replies == Encoding::Identity {
            return Packing::OFF;
        }
        let bytes_max = self.shared.table.message_bytes_max(head.method, self.limits.message_bytes_max);
        let described = std::ptr::from_ref(self.shared.table.info(head.method)).addr();
        self.shared.compression.packing(head.encoding, head.replies, head.method, described, bytes_max)
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
            None if self.memory.restrictions.pressure >= Pressure::Severe || self.memory.reads_once() => {
                let request = if let RequestBody::One(message) = body { message.len() } else { 0 };
                let pressure = if self.memory.reads_once() {
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
        let status = arrived_late();
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
        let waiting = self.wire.waiting_bytes();
        // Most wires never have any, and the limit is looked up.
        if waiting > 0 && waiting > self.settings.outbox_bytes_max() {
            let text =
                format!("{waiting} bytes of responses wait for the window of the caller (outbox_bytes_max)");
            return Some(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        self.shared.over_calls_max()
    }
}
