//! From a call that arrived to its answer: started, parked if need be, polled, ended and counted.

use super::{Connection, Window};
use crate::{
    Call, Cx, Kind, Metadata, Result, Retry, Status,
    access::Entry,
    call::{ReplyBody, ReplyParts, RequestBody},
    codec::Pieces,
    compression::{Message, Packing},
    context,
    driver::calls::{Parked, Stage},
    memory::{LARGE, Level},
    metrics::Ended,
    stream::Queue,
    trace::Trace,
};
use bytes::Bytes;
use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use switchboard_wire::{
    MethodId, Outgoing,
    wire::{CallId, Encoding, Head, ServerWire},
};

/// Ready calls of one method in a row that share a reading of the clock, which costs as much as their dispatch.
const WINDOW_MAX: u32 = 8;
/// Calls after which the counters of the peer are told, at the latest.
const TALLY_MAX: u64 = 1024;
/// A method whose handlers hold the turn for longer is named in a metric and a log line.
const SLOW_HANDLER: Duration = Duration::from_millis(10);

impl<W: ServerWire + ?Sized> Connection<W> {
    /// Begins a call: checks it, starts its handler, and parks what is not ready.
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

    /// The same for a first message that came compressed.
    #[cold]
    pub(super) fn open_compressed(&mut self, id: CallId, head: Head, first: Option<Bytes>, more: bool) {
        let info = self.shared.table.info(head.method);
        match first {
            Some(first) if info.kind == Kind::Unary && !more => {
                self.begin(id, head, RequestBody::One(first), None, true);
            }
            first => {
                let first = first.map(|bytes| Message { bytes, compressed: true });
                self.open_stream(id, head, first, more);
            }
        }
    }

    /// What is done with the messages of a call.
    fn packing(&self, head: &Head) -> Packing {
        if head.encoding == Encoding::Identity {
            return Packing::OFF;
        }
        let bytes_max = self.shared.table.message_bytes_max(head.method, self.limits.message_bytes_max);
        let described = std::ptr::from_ref(self.shared.table.info(head.method)).addr();
        self.shared.compression.packing(head.encoding, head.method, described, bytes_max)
    }

    /// Begins a call with streams, or refuses one that is not what its method takes.
    fn open_stream(&mut self, id: CallId, head: Head, first: Option<Message>, more: bool) {
        let info = self.shared.table.info(head.method);
        let refused = match (info.kind, first) {
            // Nobody said how many messages the method takes; this caller has one.
            (Kind::Bidi, Some(first)) if !more && self.shared.table.is_learned(head.method) => {
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
        self.wire.end(id, Err(&Status::unimplemented(text)), &mut self.out);
    }

    fn begin(
        &mut self,
        id: CallId,
        head: Head,
        body: RequestBody,
        inbound: Option<(Arc<Queue>, usize)>,
        compressed: bool,
    ) {
        let (service, method) = self.shared.table.place(head.method);
        let info = self.shared.table.info(head.method);
        let refused = self.over_limit(id);
        let refused = match refused {
            None if self.holding.room.level >= Level::Hard || self.holding.trickles => {
                let request = if let RequestBody::One(message) = &body { message.len() } else { 0 };
                let level = if self.holding.trickles { Level::Full } else { self.holding.room.level };
                self.shared.memory.refuses(level, head.method, request)
            }
            refused => refused,
        };
        if let Some(status) = refused {
            return self.wire.end(id, Err(&status), &mut self.out);
        }
        let began = self.now;
        if let (Some(counts), RequestBody::One(_)) = (&self.peer.counts, &body) {
            counts.received(1, began);
        }
        if head.timeout == Some(Duration::ZERO) {
            return self.late(id, &head);
        }
        let received = match (&body, &inbound) {
            (RequestBody::One(message), _) => message.len() as u64,
            (RequestBody::Many(_), inbound) => inbound.as_ref().map_or(0, |(_, bytes)| *bytes as u64),
        };
        let deadline = head.timeout.map(|timeout| began + timeout);
        let deadline = self.shared.guarding.deadlines.cap(head.method, began, deadline);
        let service_info = self.shared.table.service(head.method);
        let packing = self.packing(&head);
        let mut cx = Cx::new(&self.peer, service_info, info, deadline, head.metadata);
        cx.set_packing(packing, compressed);
        cx.set_oneway(head.oneway);
        cx.set_arrived(began);
        let trace = cx.shared_trace();
        let call = Call::new(method, head.codec, body, cx);
        let index = self.calls.reserve();
        let shared = &self.shared;
        let dispatch = self.dispatches[usize::from(service)]
            .get_or_insert_with(|| shared.services[usize::from(service)].dispatch());
        let waker = self.calls.waker(index);
        let started = context::scope(deadline, trace.as_ref(), || {
            dispatch.start(call, &mut Context::from_waker(waker))
        });
        let drops = match &started {
            Ok(Ok(reply)) => match reply.body() {
                ReplyBody::One(item) if item.len() > LARGE => {
                    let drops = !head.oneway && !self.takes_reply(head.method, item.len());
                    drops.then(|| self.shared.memory.drops(item.len()))
                }
                _ => None,
            },
            _ => None,
        };
        if drops.is_none()
            && let Ok(Ok(reply)) = &started
            && let ReplyParts { body: ReplyBody::One(message), metadata, trailers } = reply.parts()
            && let Some(item) = message.one()
        {
            self.calls.release(index);
            if self.holding.room.level != Level::Calm && item.len() <= LARGE {
                self.shared.memory.note_small(head.method);
            }
            self.count_ready(head.method, received, item.len() as u64);
            if self.shared.access.is_on() {
                let is_picked = self.shared.access.picks();
                if is_picked || self.shared.access.times_all() {
                    self.log_ready(is_picked, head.method, received, item.len() as u64, trace.as_deref());
                }
            }
            if !head.oneway {
                self.reply(id, metadata, item, false, trailers);
            }
            return;
        }
        self.close_window();
        if let Some(counts) = &self.peer.counts {
            counts.started(1, began);
        }
        self.clock(began, head.method);
        let parked = Parked {
            id,
            method: head.method,
            oneway: head.oneway,
            began,
            received,
            sent: 0,
            held: received as usize,
            deadline,
            trace,
            inbound: inbound.map(|(queue, _)| queue),
            credit: match self.wire.send_window() {
                u32::MAX => i64::MAX,
                window => i64::from(window),
            },
            stage: Stage::Polled,
        };
        match started {
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

    /// Answers a call whose time was over before it could begin.
    #[cold]
    fn late(&mut self, id: CallId, head: &Head) {
        let status = Status::deadline_exceeded("the deadline had passed when the call arrived");
        let ended = Ended { calls: 1, code: status.code(), took: Duration::ZERO, received: 0, sent: 0 };
        self.count(head.method, &ended);
        if !head.oneway {
            self.wire.end(id, Err(&status), &mut self.out);
        }
    }

    /// Whether one more call would be too many, or uses the number of another.
    pub(super) fn over_limit(&mut self, id: CallId) -> Option<Status> {
        if let Some(index) = self.calls.find(id) {
            // An answer would be taken for that of the other: one end ends both.
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
        self.holding.change(0, parked.held);
        self.calls.park(index, parked);
    }

    /// Polls the calls that were woken.
    pub(super) fn poll_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        for index in ready.drain(..) {
            self.poll_call(index);
        }
        self.ready = ready;
    }

    /// Polls a parked call as far as it goes.
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
                let polled = context::scope(deadline, trace.as_ref(), || dispatch.poll(slot, &mut cx));
                self.clock(began, method);
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

    /// Ends a parked call with what its handler answered.
    pub(super) fn finish(&mut self, index: u32, result: Result<ReplyParts>) {
        let Some(parked) = self.take(index) else { return };
        match result {
            Ok(reply) => self.succeed_with(&parked, &reply),
            Err(status) => self.end(&parked, Err(&status)),
        }
    }

    /// Ends a call with its only message, as it is.
    fn succeed_with(&mut self, call: &Parked, reply: &ReplyParts) {
        let ReplyParts { metadata, trailers, body } = reply;
        match body {
            ReplyBody::One(message) => match message.pieces() {
                Pieces::One(item) => self.succeed(call, metadata, item, trailers, false),
                Pieces::Parts(parts) => self.succeed_in_parts(call, metadata, parts, trailers),
            },
            ReplyBody::Compressed(item) => self.succeed(call, metadata, item.into(), trailers, true),
            // Sent by whoever found it.
            ReplyBody::Many(_) => {}
        }
    }

    /// Ends a call with its only message, which is large.
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
        self.record(call, crate::Code::Ok, bytes as u64);
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
        self.record(call, crate::Code::Ok, item.len() as u64);
        if let Some(counts) = &self.peer.counts {
            counts.ended(1);
        }
        if call.oneway {
            return;
        }
        self.reply(call.id, metadata, item, compressed, trailers);
    }

    /// Drops a parked call without an answer: its caller has gone.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(parked) = self.take(index) {
            self.record(&parked, crate::Code::Canceled, 0);
            if let Some(counts) = &self.peer.counts {
                counts.lost();
            }
        }
    }

    /// Takes a call off the table and drops its handler.
    pub(super) fn take(&mut self, index: u32) -> Option<Parked> {
        let mut parked = self.calls.remove(index)?;
        self.shared.parked.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.unpark(self.shard, self.counted.0, parked.method);
        self.holding.change(parked.held, 0);
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
        let code = end.map_or_else(Status::code, |_| crate::Code::Ok);
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
        match &mut self.window {
            Some(window) if window.method == method && window.calls < WINDOW_MAX => {
                window.calls += 1;
                window.received += received;
                window.sent += sent;
            }
            _ => {
                self.close_window();
                self.window = Some(Window { method, calls: 1, received, sent });
            }
        }
    }

    /// Counts the end of a call that was not ready at once; `sent` are the bytes of its last message.
    fn record(&mut self, call: &Parked, code: crate::Code, sent: u64) {
        let took = self.now - call.began;
        let ended = Ended { calls: 1, code, took, received: call.received, sent: call.sent + sent };
        self.count(call.method, &ended);
        if self.shared.access.is_on() {
            self.log(self.shared.access.picks(), call.method, &ended, call.trace.as_deref());
        }
    }

    /// Logs a call that was ready at once, if it is to be; its end has a reading of the clock of its own then.
    #[cold]
    fn log_ready(
        &mut self,
        is_picked: bool,
        method: MethodId,
        received: u64,
        sent: u64,
        trace: Option<&Trace>,
    ) {
        let began = self.now;
        self.close_window();
        let took = self.now - began;
        let ended = Ended { calls: 1, code: crate::Code::Ok, took, received, sent };
        self.log(is_picked, method, &ended, trace);
    }

    #[cold]
    fn log(&self, is_picked: bool, method: MethodId, ended: &Ended, trace: Option<&Trace>) {
        self.shared.access.log(is_picked, ended.took, || Entry {
            method: self.shared.table.full_name(method),
            peer: &self.peer,
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
        tally.failed += if ended.code == crate::Code::Ok { 0 } else { ended.calls };
        tally.received += ended.received;
        tally.sent += ended.sent;
        if tally.calls >= TALLY_MAX {
            self.tell_peer();
        }
    }

    /// Reads the clock for the calls of the window.
    #[inline]
    pub(super) fn close_window(&mut self) {
        if let Some(Window { method, calls, received, sent }) = self.window.take() {
            let began = self.now;
            self.clock(began, method);
            let took = (self.now - began) / calls;
            let calls = u64::from(calls);
            if let Some(counts) = &self.peer.counts {
                counts.started(calls, began);
                counts.ended(calls);
            }
            self.count(method, &Ended { calls, code: crate::Code::Ok, took, received, sent });
        }
    }

    /// Reads the clock after handlers ran, and names the method that held the turn too long.
    #[inline]
    pub(super) fn clock(&mut self, began: Instant, method: MethodId) {
        self.now = crate::clock::now();
        if self.now - began > SLOW_HANDLER {
            self.slow(self.now - began, method);
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

impl<W: ?Sized> Connection<W> {
    /// Adds what was counted to the counters of the peer.
    #[cold]
    pub(super) fn tell_peer(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        if let Some(counts) = &self.peer.tally {
            counts.add(&tally);
        }
    }
}
