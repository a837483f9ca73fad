//! The server side of a connection that carries only JSON-RPC.

use super::{
    BatchResponse, Body, ErrorObject, Request, find, message, request,
    response::{self, before_item, behind, or_null},
    transport::{Lines, Next, Transport},
};
use crate::{
    Codec, Fatal, Found, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Status,
    websocket::{Deflate, close},
    wire::{CallId, Encoding, Head, MachineMemory, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::BuildHasher,
    sync::Arc,
};

/// State machine of a server connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    /// Metadata that every call of the connection has, such as the headers of the handshake.
    metadata: Metadata,
    transport: Transport,
    /// Entries of the current batch that are not processed yet.
    waiting: VecDeque<Bytes>,
    /// Bytes of the text of which they are parts.
    waiting_bytes: usize,
    /// Number of the current batch.
    batch: u32,
    /// Requests in flight.
    calls: HashMap<CallId, Pending>,
    /// Bytes of the ids of the requests in flight.
    id_bytes: usize,
    /// Requests in flight by the hash of their ids. It is maintained from the first cancellation on, so that the cost
    /// of a cancellation does not grow with the number of requests.
    by_id: Option<BTreeSet<(u64, CallId)>>,
    /// Batches with collected or pending responses.
    batches: HashMap<u32, Collected>,
    /// Bytes of responses in batches that wait only for handlers.
    unsent_response_bytes: usize,
    last_call: CallId,
    refusing: bool,
}

#[derive(Debug)]
struct Pending {
    /// The id as it was written.
    id: Bytes,
    batch: Option<u32>,
}

#[derive(Debug)]
struct Collected {
    answers: BatchResponse,
    /// Number of pending responses.
    open: usize,
    /// Every entry has been processed.
    is_read: bool,
}

impl Server {
    /// Creates a connection on which JSON texts follow one another.
    pub fn lines(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server::new(limits, table, Metadata::new(), Transport::Lines(Lines::default()))
    }

    /// Creates a WebSocket connection after its handshake. Every call has `metadata`; `deflate` is the negotiated
    /// compression.
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
            waiting_bytes: 0,
            batch: 0,
            calls: HashMap::new(),
            id_bytes: 0,
            by_id: None,
            batches: HashMap::new(),
            unsent_response_bytes: 0,
            last_call: 0,
            refusing: false,
        }
    }

    /// Processes a complete text; a single request may start a call.
    fn text(&mut self, text: &Bytes, out: &mut Outbox) -> Option<ServerEvent> {
        match Body::read(text) {
            Err(error) => {
                self.refuse(None, None, &error, out);
                None
            }
            Ok(Body::One(entry)) => self.entry(&entry, None, out),
            Ok(Body::Batch(entries)) => {
                self.waiting = entries.into();
                self.waiting_bytes = text.len();
                self.batch = self.batch.wrapping_add(1);
                let answers = BatchResponse::new(self.limits.message_bytes_max);
                self.batches.insert(self.batch, Collected { answers, open: 0, is_read: false });
                None
            }
        }
    }

    /// Processes one entry: responds at once or starts a call.
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
                // Notifications have no response.
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
        let found = find(&self.table, &request.method)?;
        let (Found { method, undeclared_name }, first) = match self.message(request, found.method) {
            Ok(first) => (found, first),
            Err(status) => (self.table.refuse_call(&found, Kind::Unary, status)?, Bytes::from_static(b"{}")),
        };
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
            self.id_bytes += id.len();
            if let Some(by_id) = &mut self.by_id {
                by_id.insert((self.calls.hasher().hash_one(id), self.last_call));
            }
            self.calls.insert(self.last_call, Pending { id: id.clone(), batch });
        }
        let head = Head {
            method,
            undeclared_name,
            codec: Codec::Json,
            encoding: Encoding::Identity,
            replies: Encoding::Identity,
            timeout: None,
            metadata: self.metadata.clone(),
            oneway: request.id.is_none(),
        };
        let (id, first) = (self.last_call, Some(first));
        Ok(ServerEvent::Open { id, head, first, compressed: false, more: false })
    }

    /// Returns the message of a call.
    fn message(&self, request: &Request, method: MethodId) -> Result<Bytes, Status> {
        let info = self.table.info(method);
        if matches!(info.kind, Kind::Bidi | Kind::ClientStream) {
            return Err(Status::unimplemented(format!(
                "{} takes a stream, which JSON-RPC cannot carry; native, gRPC and Connect can",
                self.table.full_name(method)
            )));
        }
        let first = message(info, request.params.as_ref())?;
        let general = self.limits.message_bytes_max;
        if first.len() > self.table.message_bytes_max(method, general) as usize {
            return Err(self.table.too_large(method, first.len() as u32, general));
        }
        Ok(first)
    }

    /// Ends the call that the parameters identify; a notification that identifies none is ignored.
    fn cancel(&mut self, params: Option<&Bytes>, out: &mut Outbox) -> Option<ServerEvent> {
        let wanted = request::id_of(params?)?;
        let hash = |id: &[u8]| self.calls.hasher().hash_one(id);
        let by_id = self.by_id.get_or_insert_with(|| {
            self.calls.iter().map(|(call, pending)| (hash(&pending.id), *call)).collect()
        });
        // The first of several requests with this id. The hash is keyed: a peer cannot construct ids that collide.
        let wanted_hash = hash(wanted);
        let named = by_id.range((wanted_hash, CallId::MIN)..=(wanted_hash, CallId::MAX));
        let call = named.map(|(_, call)| *call).find(|call| self.calls[call].id == wanted)?;
        let pending = self.leave(call)?;
        let status = Status::canceled("canceled by its caller");
        self.respond(&pending, &Err(ErrorObject::from(&status)), out);
        Some(ServerEvent::Cancel { id: call })
    }

    /// Removes a call that ends and returns its entry.
    fn leave(&mut self, call: CallId) -> Option<Pending> {
        let pending = self.calls.remove(&call)?;
        self.id_bytes -= pending.id.len();
        if let Some(by_id) = &mut self.by_id {
            by_id.remove(&(self.calls.hasher().hash_one(&pending.id), call));
        }
        Some(pending)
    }

    /// Sends an error response for a request that started no call.
    fn refuse(&mut self, batch: Option<u32>, id: Option<&[u8]>, error: &ErrorObject, out: &mut Outbox) {
        match batch.and_then(|batch| self.batches.get_mut(&batch)) {
            Some(collected) => collected.answers.fail(id, error),
            None => self.transport.write(&response::failure(id, error), &Bytes::new(), b"", out),
        }
    }

    /// Sends the response of a call.
    fn respond(&mut self, pending: &Pending, result: &Result<Bytes, ErrorObject>, out: &mut Outbox) {
        let Some(batch) = pending.batch else {
            match result {
                Ok(item) => self.transport.write(response::RESULT, &or_null(item), &behind(&pending.id), out),
                Err(error) => self.refuse(None, Some(&pending.id), error, out),
            }
            return;
        };
        let Some(collected) = self.batches.get_mut(&batch) else { return };
        let before = collected.answers.len();
        collected.answers.push(&pending.id, result);
        collected.open -= 1;
        if collected.is_read {
            self.unsent_response_bytes += collected.answers.len() - before;
        }
        self.finish_batch(batch, out);
    }

    /// Records that every entry of the current batch was processed.
    fn batch_read(&mut self, out: &mut Outbox) {
        if let Some(collected) = self.batches.get_mut(&self.batch) {
            collected.is_read = true;
            self.unsent_response_bytes += collected.answers.len();
        }
        self.finish_batch(self.batch, out);
    }

    /// Sends the responses of a batch if it is complete.
    fn finish_batch(&mut self, batch: u32, out: &mut Outbox) {
        if self.batches.get(&batch).is_none_or(|collected| collected.open > 0 || !collected.is_read) {
            return;
        }
        let Some(Collected { answers, .. }) = self.batches.remove(&batch) else { return };
        self.unsent_response_bytes -= answers.len();
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
        // The driver checks the outbox and the time between events, so a flood of errors or a batch must produce
        // events.
        if let Some(entry) = self.waiting.pop_front() {
            let event = self.entry(&entry, Some(self.batch), out);
            if self.waiting.is_empty() {
                self.waiting = VecDeque::new();
                self.waiting_bytes = 0;
                self.batch_read(out);
            }
            return Ok(Some(event.unwrap_or(ServerEvent::Handled)));
        }
        match self.transport.next(input, out, max) {
            Ok(None) => Ok(None),
            Ok(Some(Next::Closed)) => Ok(Some(ServerEvent::Closed)),
            Ok(Some(Next::Pong)) => Ok(Some(ServerEvent::Pong)),
            Ok(Some(Next::Part)) => Ok(Some(ServerEvent::Handled)),
            Ok(Some(Next::Refused(error))) => {
                self.refuse(None, None, &error, out);
                Ok(Some(ServerEvent::Handled))
            }
            Ok(Some(Next::Text(text))) => Ok(Some(self.text(&text, out).unwrap_or(ServerEvent::Handled))),
            Err((fatal, error)) => {
                if let Some(error) = error {
                    self.refuse(None, None, &error, out);
                }
                Err(fatal)
            }
        }
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        if let Some(pending) = self.leave(id) {
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
        let Some(pending) = self.leave(id) else { return };
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

    fn unsent_response_bytes(&self) -> usize {
        self.unsent_response_bytes
    }

    fn memory(&self) -> MachineMemory {
        let calls = self.calls.len();
        let entries = calls * size_of::<(CallId, Pending)>() + self.id_bytes;
        let reading = self.batches.get(&self.batch).filter(|collected| !collected.is_read);
        let answers = reading.map_or(0, |collected| collected.answers.len());
        let batches = self.batches.len() * size_of::<Collected>();
        let arrived = self.waiting_bytes + self.transport.gathered();
        MachineMemory { calls, bytes: entries + answers + batches + arrived }
    }

    fn responds_to_pings(&self) -> bool {
        self.transport.responds_to_pings()
    }

    fn close(&mut self, out: &mut Outbox) -> bool {
        self.transport.close(close::GOING_AWAY, "the server is going away", out)
    }
}
