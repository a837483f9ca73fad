//! One connection of a server: owned by one task, which alone touches its machine, calls and buffers.
//!
//! Cost of a unary call whose handler is ready at once: no system call of its own, no lock, no wake-up; one
//! allocation for the request and one for the reply, one copy each. What parks costs a hash insert and a wake-up.

use super::{
    Dispatch, Wakes,
    calls::{Calls, Parked, Stage},
};
use crate::{
    Call, Cx, Kind, Metadata, Peer, Reply, Result, Retry, Status,
    call::{ReplyBody, RequestBody},
    context,
    net::{self, Io},
    runtime,
    server::Shared,
    stream::{self, Queue},
};
use bytes::{Bytes, BytesMut};
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
    wire::{CallId, Head, Opened, ServerEvent, ServerWire},
};
use tokio::{io::AsyncReadExt, time::Sleep};

/// A turn ends after this long even if there is more to do, so that neighbours on the worker get theirs.
const TURN_MAX: Duration = Duration::from_millis(1);
/// The outbox is written in the middle of a turn once it holds this much.
const FLUSH_BYTES: usize = 64 << 10;
/// Parts of one vectored write.
const PARTS_MAX: usize = 64;
/// Ready calls of one method in a row that share a reading of the clock, which costs as much as their dispatch.
const WINDOW_MAX: u32 = 8;
/// A method whose handlers hold the turn for longer is named in a metric and a log line.
const SLOW_HANDLER: Duration = Duration::from_millis(10);
/// After so long without traffic a connection gives back what its calls used.
const CALM: Duration = Duration::from_secs(1);
/// After the last reply of a draining connection, how long the client gets to close it.
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

impl<W: ServerWire> Connection<W> {
    /// Takes over a connection whose first bytes are in `input`.
    pub(crate) fn new(
        io: Box<dyn Io>,
        wire: W,
        input: BytesMut,
        peer: Peer,
        settings: Arc<crate::Limits>,
        shared: Arc<Shared>,
        wakes: Arc<Wakes>,
        shard: usize,
    ) -> Connection<W> {
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
        if self.draining.is_none() && self.shared.draining.load(Ordering::Relaxed) {
            self.draining = Some(self.now);
            self.wire.drain("the server is going away", &mut self.out);
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
            let flushed = match self.flush(cx, matches!(read, Read::Some)) {
                Err(_) => return Poll::Ready(()),
                Ok(flushed) => flushed,
            };
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

    /// Begins a call: checks it, starts its handler, and parks what is not ready.
    fn open(&mut self, id: CallId, head: Head, first: Option<Bytes>, more: bool) {
        let (service, method) = self.shared.table.place(head.method);
        let info = self.shared.table.info(head.method);
        let body = match (info.kind, first, more) {
            (Kind::ServerStream | Kind::ClientStream | Kind::Bidi, _, _) if head.oneway => {
                Err(Status::unimplemented(format!(
                    "{} streams, and only unary calls can be one-way",
                    self.shared.table.full_name(head.method)
                )))
            }
            (Kind::Unary | Kind::ServerStream, Some(first), false) => Ok((RequestBody::One(first), None)),
            (Kind::Unary | Kind::ServerStream, _, _) => Err(Status::unimplemented(format!(
                "{} takes one request message, sent with the call",
                self.shared.table.full_name(head.method)
            ))),
            (Kind::ClientStream | Kind::Bidi, first, more) => {
                let queue = Arc::new(Queue::new(0));
                if let Some(first) = first {
                    queue.push_now(first);
                }
                if !more {
                    queue.finish(Ok(Metadata::new()));
                }
                Ok((RequestBody::Many(queue.clone()), Some(queue)))
            }
        };
        let (body, inbound) = match body {
            Ok(body) => body,
            Err(status) => return self.wire.end(id, Err(&status), &mut self.out),
        };
        if let Some(status) = self.over_limit(id) {
            return self.wire.end(id, Err(&status), &mut self.out);
        }
        let began = self.now;
        let deadline = head.timeout.map(|timeout| began + timeout);
        let service_info = self.shared.table.services()[usize::from(service)];
        let cx = Cx::new(self.peer.clone(), service_info, info, deadline, head.metadata);
        let call = Call::new(method, head.codec, body, cx);
        let index = self.calls.reserve();
        let shared = &self.shared;
        let dispatch = self.dispatches[usize::from(service)]
            .get_or_insert_with(|| shared.services[usize::from(service)].dispatch());
        let waker = self.calls.waker(index);
        let started = context::scope(deadline, || dispatch.start(call, &mut Context::from_waker(waker)));
        if let Ok(Ok(Reply { body: ReplyBody::One(item), metadata, trailers })) = started {
            self.calls.release(index);
            self.count_ready(head.method);
            if !head.oneway {
                self.reply(id, &metadata, &item, &trailers);
            }
            return;
        }
        self.close_window();
        self.clock(began, head.method);
        let parked = Parked {
            id,
            method: head.method,
            oneway: head.oneway,
            began,
            deadline,
            inbound,
            credit: i64::from(self.wire.send_window()),
            stage: Stage::Polled,
        };
        match started {
            Ok(Err(status)) => {
                self.calls.release(index);
                self.end(&parked, Err(&status));
            }
            Ok(Ok(Reply { body: ReplyBody::One(_), .. })) => self.calls.release(index),
            Ok(Ok(Reply { body: ReplyBody::Many(items), .. })) => {
                let stage = Stage::Replies { items, head_sent: false };
                self.park(index, Parked { stage, ..parked });
                self.poll_call(index);
            }
            Err(slot) => self.park(index, Parked { stage: Stage::Handler { service, slot }, ..parked }),
        }
    }

    /// Whether one more call would be too many, or uses the number of another.
    fn over_limit(&mut self, id: CallId) -> Option<Status> {
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
        if parked >= self.shared.limits.server_calls_max() {
            let text = format!("{parked} calls are in flight on this server (server_calls_max)");
            return Some(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        None
    }

    fn park(&mut self, index: u32, parked: Parked) {
        if let Some(deadline) = parked.deadline {
            self.alarm = Some(self.alarm.map_or(deadline, |alarm| alarm.min(deadline)));
        }
        if let Some(queue) = &parked.inbound {
            queue.watch_consumer(self.calls.waker(index));
        }
        self.shared.parked.fetch_add(1, Ordering::Relaxed);
        self.calls.park(index, parked);
    }

    fn inbound(&mut self, id: CallId) -> Option<Arc<Queue>> {
        let index = self.calls.find(id)?;
        self.calls.get_mut(index)?.inbound.clone()
    }

    fn item(&mut self, id: CallId, item: Bytes) {
        let Some(index) = self.calls.find(id) else { return };
        let Some(parked) = self.calls.get_mut(index) else { return };
        let (method, Some(queue)) = (parked.method, parked.inbound.clone()) else { return };
        let general = self.limits.message_bytes_max;
        let message_max = self.shared.table.message_bytes_max(method, general) as usize;
        if item.len() > message_max {
            let status = self.shared.table.too_large(method, item.len() as u32, general);
            return self.finish(index, Err(status));
        }
        let ahead = queue.push_now(item);
        // One message may overdraw the window, further ones are the peer's fault.
        if ahead >= self.limits.stream_window_bytes as usize {
            let text = format!("{ahead} bytes sent ahead of the reader (stream_window_bytes)");
            self.finish(index, Err(Status::resource_exhausted(text)));
        }
    }

    /// Polls the calls that were woken.
    fn poll_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        for index in ready.drain(..) {
            self.poll_call(index);
        }
        self.ready = ready;
    }

    /// Polls a parked call as far as it goes.
    fn poll_call(&mut self, index: u32) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        let mut cx = Context::from_waker(waker);
        let deadline = parked.deadline;
        let began = self.now;
        match std::mem::replace(&mut parked.stage, Stage::Polled) {
            Stage::Polled => {}
            Stage::Handler { service, slot } => {
                let method = parked.method;
                let dispatch =
                    self.dispatches[usize::from(service)].as_mut().expect("a parked call has its dispatch");
                let polled = context::scope(deadline, || dispatch.poll(slot, &mut cx));
                self.clock(began, method);
                match polled {
                    Poll::Pending => {
                        if let Some(parked) = self.calls.get_mut(index) {
                            parked.stage = Stage::Handler { service, slot };
                        }
                        self.give_credit(index);
                    }
                    Poll::Ready(Ok(Reply { body: ReplyBody::Many(items), .. })) => {
                        if let Some(parked) = self.calls.get_mut(index) {
                            parked.stage = Stage::Replies { items, head_sent: false };
                        }
                        self.poll_call(index);
                    }
                    Poll::Ready(result) => self.finish(index, result),
                }
            }
            Stage::Replies { items, head_sent } => {
                self.poll_replies(index, items, head_sent, deadline);
                self.give_credit(index);
            }
        }
    }

    /// Sends replies of a stream while there is credit and room.
    fn poll_replies(
        &mut self,
        index: u32,
        mut items: Pin<Box<dyn crate::stream::Items>>,
        mut head_sent: bool,
        deadline: Option<Instant>,
    ) {
        while self.calls.get_mut(index).is_some_and(|parked| parked.credit > 0) {
            if self.out.len() > FLUSH_BYTES {
                // Once, however often the peer grants credit meanwhile.
                if !self.stalled.contains(&index) {
                    self.stalled.push(index);
                }
                break;
            }
            let began = self.now;
            let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
            let (id, method) = (parked.id, parked.method);
            let mut cx = Context::from_waker(waker);
            let polled = context::scope(deadline, || guarded_next(items.as_mut(), &mut cx));
            self.clock(began, method);
            let item = match polled {
                Poll::Pending => break,
                Poll::Ready(item) => item,
            };
            if !std::mem::replace(&mut head_sent, true) {
                let head = items.head();
                if !head.is_empty() {
                    self.wire.head(id, &head, &mut self.out);
                }
            }
            match item {
                Some(Ok(item)) => {
                    if let Some(parked) = self.calls.get_mut(index) {
                        parked.credit -= stream::weight(&item) as i64;
                    }
                    self.wire.item(id, &item, &mut self.out);
                }
                None => return self.end_stream(index, Ok(items.trailers())),
                Some(Err(mut status)) => {
                    status.metadata_mut().extend(items.trailers());
                    return self.end_stream(index, Err(status));
                }
            }
        }
        if let Some(parked) = self.calls.get_mut(index) {
            parked.stage = Stage::Replies { items, head_sent };
        }
    }

    fn end_stream(&mut self, index: u32, end: Result<Metadata>) {
        if let Some(parked) = self.take(index) {
            self.end(&parked, end.as_ref());
        }
    }

    /// Lets the peer send more of a stream whose reader took something.
    fn give_credit(&mut self, index: u32) {
        let Some((parked, waker)) = self.calls.poll_parts(index) else { return };
        let Some(queue) = &parked.inbound else { return };
        queue.watch_consumer(waker);
        if let Some(bytes) = queue.take_credit(self.limits.stream_window_bytes / 4) {
            self.wire.credit(parked.id, bytes, &mut self.out);
        }
    }

    fn resume_stalled(&mut self) {
        for index in std::mem::take(&mut self.stalled) {
            self.poll_call(index);
        }
    }

    /// Ends a parked call with what its handler answered.
    fn finish(&mut self, index: u32, result: Result<Reply>) {
        let Some(parked) = self.take(index) else { return };
        match result {
            Ok(Reply { body: ReplyBody::One(item), metadata, trailers }) => {
                self.shared.metrics.record(
                    self.shard,
                    parked.method,
                    crate::Code::Ok,
                    self.now - parked.began,
                );
                if !parked.oneway {
                    self.reply(parked.id, &metadata, &item, &trailers);
                }
            }
            Ok(Reply { body: ReplyBody::Many(_), .. }) => {}
            Err(status) => self.end(&parked, Err(&status)),
        }
    }

    /// Drops a parked call without an answer: its caller has gone.
    fn forget(&mut self, index: u32) {
        if let Some(parked) = self.take(index) {
            self.shared.metrics.record(
                self.shard,
                parked.method,
                crate::Code::Canceled,
                self.now - parked.began,
            );
        }
    }

    /// Takes a call off the table and drops its handler.
    fn take(&mut self, index: u32) -> Option<Parked> {
        let mut parked = self.calls.remove(index)?;
        self.shared.parked.fetch_sub(1, Ordering::Relaxed);
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
    fn reply(&mut self, id: CallId, metadata: &Metadata, item: &Bytes, trailers: &Metadata) {
        if !metadata.is_empty() {
            self.wire.head(id, metadata, &mut self.out);
        }
        if trailers.is_empty() {
            self.wire.reply(id, item, &mut self.out);
        } else {
            self.wire.item(id, item, &mut self.out);
            self.wire.end(id, Ok(trailers), &mut self.out);
        }
    }

    fn end(&mut self, call: &Parked, end: Result<&Metadata, &Status>) {
        let code = end.map_or_else(Status::code, |_| crate::Code::Ok);
        self.shared.metrics.record(self.shard, call.method, code, self.now - call.began);
        if !call.oneway {
            self.wire.end(call.id, end, &mut self.out);
        }
    }

    /// Counts a call that was ready at once.
    #[inline]
    fn count_ready(&mut self, method: MethodId) {
        match &mut self.window {
            Some((known, count)) if *known == method && *count < WINDOW_MAX => *count += 1,
            _ => {
                self.close_window();
                self.window = Some((method, 1));
            }
        }
    }

    /// Reads the clock for the calls of the window.
    #[inline]
    fn close_window(&mut self) {
        if let Some((method, count)) = self.window.take() {
            let began = self.now;
            self.clock(began, method);
            let took = (self.now - began) / count;
            self.shared.metrics.record_many(self.shard, method, u64::from(count), took);
        }
    }

    /// Reads the clock after handlers ran, and names the method that held the turn too long.
    #[inline]
    fn clock(&mut self, began: Instant, method: MethodId) {
        self.now = Instant::now();
        if self.now - began > SLOW_HANDLER {
            self.slow(self.now - began, method);
        }
    }

    #[cold]
    fn slow(&self, took: Duration, method: MethodId) {
        self.shared.metrics.slow(method);
        tracing::warn!(
            method = self.shared.table.full_name(method),
            took_ms = took.as_millis() as u64,
            "a handler held its connection's turn; let it await, or mark the method `spawn`"
        );
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

/// A panic in a streaming handler ends its call, not the connection.
pub(crate) fn guarded_next(
    items: Pin<&mut dyn crate::stream::Items>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes>>> {
    let next = std::panic::AssertUnwindSafe(|| items.poll_next(cx));
    std::panic::catch_unwind(next)
        .unwrap_or_else(|_| Poll::Ready(Some(Err(Status::internal("handler panicked")))))
}
