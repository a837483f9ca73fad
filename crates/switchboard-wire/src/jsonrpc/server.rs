//! The server's side of a connection that carries nothing but JSON-RPC.

use super::{
    Batch, Body, ErrorObject, Request,
    answer::{self, before_item, behind, or_null},
    find, message,
    transport::{Lines, Next, Transport},
};
use crate::{
    Codec, Fatal, Input, Kind, Limits, Metadata, MethodTable, Outbox, Outgoing, Status,
    websocket::{Deflate, close},
    wire::{CallId, Encoding, Head, ServerEvent, ServerWire},
};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// The machine of a connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    /// What every call of the connection brings, as the headers of its handshake.
    metadata: Metadata,
    transport: Transport,
    /// Entries of the batch that is being begun.
    waiting: VecDeque<Bytes>,
    /// The number of that batch.
    batch: u32,
    /// Requests in flight.
    calls: HashMap<CallId, Pending>,
    /// Batches that have answers or wait for them.
    batches: HashMap<u32, Collected>,
    /// Bytes of answers in batches that wait only for handlers.
    held: usize,
    last_call: CallId,
    refusing: bool,
}

#[derive(Debug)]
struct Pending {
    /// As it was written.
    id: Bytes,
    batch: Option<u32>,
}

#[derive(Debug)]
struct Collected {
    answers: Batch,
    /// Answers that are still to come.
    open: usize,
    /// Every entry has been looked at.
    begun: bool,
}

impl Server {
    /// A connection on which JSON texts follow one another.
    pub fn lines(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server::new(limits, table, Metadata::new(), Transport::Lines(Lines::default()))
    }

    /// A WebSocket after its handshake, of which every call gets `metadata`, and in which both sides may have agreed
    /// to compress.
    pub fn websocket(
        limits: Limits,
        table: Arc<MethodTable>,
        metadata: Metadata,
        deflate: Option<Deflate>,
    ) -> Server {
        let max = table.largest_message(limits.message_bytes_max);
        Server::new(limits, table, metadata, Transport::websocket(max, deflate))
    }

    fn new(limits: Limits, table: Arc<MethodTable>, metadata: Metadata, transport: Transport) -> Server {
        Server {
            limits,
            table,
            metadata,
            transport,
            waiting: VecDeque::new(),
            batch: 0,
            calls: HashMap::new(),
            batches: HashMap::new(),
            held: 0,
            last_call: 0,
            refusing: false,
        }
    }

    /// Looks at a whole text; single requests may begin a call.
    fn text(&mut self, text: &Bytes, out: &mut Outbox) -> Option<ServerEvent> {
        match Body::read(text) {
            Err(error) => {
                self.refuse(None, None, &error, out);
                None
            }
            Ok(Body::One(entry)) => self.entry(&entry, None, out),
            Ok(Body::Batch(entries)) => {
                self.waiting = entries.into();
                self.batch = self.batch.wrapping_add(1);
                let answers = Batch::new(self.limits.message_bytes_max);
                self.batches.insert(self.batch, Collected { answers, open: 0, begun: false });
                None
            }
        }
    }

    /// Looks at one entry; answers it at once or begins a call.
    fn entry(&mut self, entry: &Bytes, batch: Option<u32>, out: &mut Outbox) -> Option<ServerEvent> {
        let request = match Request::read(entry) {
            Ok(request) => request,
            Err(invalid) => {
                self.refuse(batch, invalid.id.as_deref(), &invalid.error, out);
                return None;
            }
        };
        if request.method == "rpc.cancel" && request.id.is_none() {
            return self.cancel(request.params.as_ref(), out);
        }
        match self.begin(&request, batch) {
            Ok(event) => Some(event),
            Err(status) => {
                // Notifications are never answered.
                if let Some(id) = &request.id {
                    self.refuse(batch, Some(id), &ErrorObject::from(&status), out);
                }
                None
            }
        }
    }

    fn begin(&mut self, request: &Request, batch: Option<u32>) -> Result<ServerEvent, Status> {
        if self.refusing {
            let status = Status::unavailable("the server is going away");
            return Err(status.with_retry(crate::Retry::Safe));
        }
        let method = find(&self.table, &request.method)?;
        let info = self.table.info(method);
        if matches!(info.kind, Kind::Bidi | Kind::ClientStream) {
            return Err(Status::unimplemented(format!(
                "{} takes a stream, which JSON-RPC cannot carry; native, gRPC and Connect can",
                self.table.full_name(method)
            )));
        }
        let first = message(info, request.params.as_ref())?;
        let max = self.table.message_bytes_max(method, self.limits.message_bytes_max);
        if first.len() > max as usize {
            return Err(self.table.too_large(method, first.len() as u32, self.limits.message_bytes_max));
        }
        loop {
            self.last_call = self.last_call.wrapping_add(1);
            if !self.calls.contains_key(&self.last_call) {
                break;
            }
        }
        if let Some(id) = &request.id {
            if let Some(collected) = batch.and_then(|batch| self.batches.get_mut(&batch)) {
                collected.open += 1;
            }
            self.calls.insert(self.last_call, Pending { id: id.clone(), batch });
        }
        let head = Head {
            method,
            codec: Codec::Json,
            encoding: Encoding::Identity,
            timeout: None,
            metadata: self.metadata.clone(),
            oneway: request.id.is_none(),
        };
        let (id, first) = (self.last_call, Some(first));
        Ok(ServerEvent::Open { id, head, first, compressed: false, more: false })
    }

    /// Ends the call that the parameters name; what names none is ignored, as with every notification.
    fn cancel(&mut self, params: Option<&Bytes>, out: &mut Outbox) -> Option<ServerEvent> {
        let params: HashMap<String, &RawValue> = serde_json::from_slice(params?).ok()?;
        let wanted = params.get("id")?.get().as_bytes();
        // The first of several with one id, or the order of a hash map would decide.
        let named = self.calls.iter().filter(|(_, pending)| pending.id == wanted);
        let call = named.map(|(call, _)| *call).min()?;
        let pending = self.calls.remove(&call)?;
        let status = Status::canceled("canceled by its caller");
        self.respond(&pending, &Err(ErrorObject::from(&status)), out);
        Some(ServerEvent::Cancel { id: call })
    }

    /// Answers something that began no call.
    fn refuse(&mut self, batch: Option<u32>, id: Option<&[u8]>, error: &ErrorObject, out: &mut Outbox) {
        match batch.and_then(|batch| self.batches.get_mut(&batch)) {
            Some(collected) => collected.answers.fail(id, error),
            None => self.transport.write(&answer::failure(id, error), &Bytes::new(), b"", out),
        }
    }

    /// Answers a call.
    fn respond(&mut self, pending: &Pending, result: &Result<Bytes, ErrorObject>, out: &mut Outbox) {
        let Some(batch) = pending.batch else {
            match result {
                Ok(item) => self.transport.write(answer::RESULT, &or_null(item), &behind(&pending.id), out),
                Err(error) => self.refuse(None, Some(&pending.id), error, out),
            }
            return;
        };
        let Some(collected) = self.batches.get_mut(&batch) else { return };
        let before = collected.answers.len();
        collected.answers.push(&pending.id, result);
        collected.open -= 1;
        if collected.begun {
            self.held += collected.answers.len() - before;
        }
        self.finish_batch(batch, out);
    }

    /// Every entry of a batch was looked at.
    fn batch_begun(&mut self, out: &mut Outbox) {
        if let Some(collected) = self.batches.get_mut(&self.batch) {
            collected.begun = true;
            self.held += collected.answers.len();
        }
        self.finish_batch(self.batch, out);
    }

    /// Sends the answers of a batch if all are there.
    fn finish_batch(&mut self, batch: u32, out: &mut Outbox) {
        if self.batches.get(&batch).is_none_or(|collected| collected.open > 0 || !collected.begun) {
            return;
        }
        let Some(Collected { answers, .. }) = self.batches.remove(&batch) else { return };
        self.held -= answers.len();
        if let Some(text) = answers.finish() {
            self.transport.write(b"", &text, b"", out);
        }
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "jsonrpc"
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        let max = self.table.largest_message(self.limits.message_bytes_max) as usize;
        loop {
            if let Some(entry) = self.waiting.pop_front() {
                let event = self.entry(&entry, Some(self.batch), out);
                if self.waiting.is_empty() {
                    self.waiting = VecDeque::new();
                    self.batch_begun(out);
                }
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            match self.transport.next(input, out, max) {
                Ok(None) => return Ok(None),
                Ok(Some(Next::Closed)) => return Ok(Some(ServerEvent::Closed)),
                Ok(Some(Next::Pong)) => return Ok(Some(ServerEvent::Pong)),
                Ok(Some(Next::Refused(error))) => {
                    self.refuse(None, None, &error, out);
                    // The driver looks at the outbox between events: a flood of mistakes must not fill it.
                    return Ok(Some(ServerEvent::Handled));
                }
                Ok(Some(Next::Text(text))) => {
                    if let Some(event) = self.text(&text, out) {
                        return Ok(Some(event));
                    }
                    if self.waiting.is_empty() {
                        return Ok(Some(ServerEvent::Handled));
                    }
                }
                Err((fatal, error)) => {
                    if let Some(error) = error {
                        self.refuse(None, None, &error, out);
                    }
                    return Err(fatal);
                }
            }
        }
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        if let Some(pending) = self.calls.remove(&id) {
            self.respond(&pending, &Ok(item.to_bytes()), out);
        }
    }

    fn head(&mut self, _id: CallId, _metadata: &Metadata, _out: &mut Outbox) {}

    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        _compressed: bool,
        _trailers: &Metadata,
        out: &mut Outbox,
    ) {
        self.reply(id, item, out);
    }

    fn item(&mut self, id: CallId, item: &Bytes, _compressed: bool, out: &mut Outbox) {
        if let Some(pending) = self.calls.get(&id) {
            let before = before_item(&pending.id);
            self.transport.write(&before, &or_null(item), b"}}", out);
        }
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        let Some(pending) = self.calls.remove(&id) else { return };
        let result = match end {
            Ok(_) => Ok(Bytes::new()),
            Err(status) => Err(ErrorObject::from(status)),
        };
        self.respond(&pending, &result, out);
    }

    fn ping(&mut self, out: &mut Outbox) {
        self.transport.ping(out);
    }

    fn refuse(&mut self) {
        self.refusing = true;
    }

    fn held(&self) -> usize {
        self.held
    }

    fn answers_pings(&self) -> bool {
        self.transport.answers_pings()
    }

    fn close(&mut self, out: &mut Outbox) -> bool {
        self.transport.close(close::GOING_AWAY, "the server is going away", out)
    }
}
