//! The server side of an rpcx connection.

use super::{
    connect::Connect,
    error::{self, Written},
    frame::{self, Framer, HEADER_LEN, Head, Header, Next, Part, bit},
    metadata::{self, Block, Unreadable},
};
use crate::{
    Codec, Fatal, Found, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Retry,
    Status, foreign,
    pending::{Entry, PendingCalls},
    wire::{
        CallId, Encoding, Encodings, Head as CallHead, MachineMemory, Opened, Push, PushLimits, ServerEvent,
        ServerWire,
    },
};
use bytes::Bytes;
use std::{str, sync::Arc};

/// Number of methods that a connection caches by the bytes of path and method; others are looked up for each call.
const CACHED_METHODS_MAX: usize = 16;

/// State machine of a server connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    encodings: Encodings,
    connect: Connect,
    framer: Framer,
    cached: Vec<CachedMethod>,
    /// Index of the method of the last call in the cache.
    last: usize,
    calls: PendingCalls<Pending>,
    /// Sequence of the last push.
    pushed: u64,
    refusing: bool,
}

/// A method by the bytes of path and method.
#[derive(Clone, Debug)]
struct CachedMethod {
    names: Bytes,
    method: MethodId,
    undeclared_name: Option<crate::UndeclaredName>,
}

/// State of a call that its response needs.
#[derive(Debug)]
struct Pending {
    header: Header,
    names: Bytes,
    /// Metadata that precedes the message.
    metadata: Metadata,
}

impl Server {
    /// Creates the state machine of a newly accepted connection.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            encodings: Encodings::NONE,
            connect: Connect::default(),
            framer: Framer::default(),
            cached: Vec::new(),
            last: 0,
            calls: PendingCalls::default(),
            pushed: 0,
            refusing: false,
        }
    }

    /// Accepts messages in these encodings; rpcx has a number for gzip only.
    #[must_use]
    pub fn with_encodings(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    /// Processes a complete frame and takes it from the input.
    fn frame(&mut self, head: &Head, input: &mut Input, out: &mut Outbox) -> Result<ServerEvent, Fatal> {
        let header = head.header;
        if header.has(bit::RESPONSE) {
            // The server makes no calls that could have a response.
            input.skip(head.payload.end);
            return Ok(ServerEvent::Handled);
        }
        if header.has(bit::HEARTBEAT) {
            let tail = out.tail();
            let at = tail.len() + 2;
            tail.extend_from_slice(&input.rest()[..head.payload.end]);
            tail[at] |= bit::RESPONSE;
            input.skip(head.payload.end);
            return Ok(ServerEvent::Handled);
        }
        match self.begin(head, input.rest())? {
            Ok((cached, call)) => {
                input.skip(head.payload.start);
                let first = input.take(head.payload.len());
                Ok(self.open(head, cached, call, first))
            }
            Err(status) => {
                self.refuse_call(head, input.rest(), &status, out);
                input.skip(head.payload.end);
                Ok(ServerEvent::Handled)
            }
        }
    }

    /// Reads the head of a call, or the status with which it is rejected.
    ///
    /// # Errors
    /// Returns an error for malformed metadata.
    fn begin(
        &mut self,
        head: &Head,
        frame: &[u8],
    ) -> Result<Result<(CachedMethod, CallHead), Status>, Fatal> {
        let request = match metadata::request(&frame[head.metadata.clone()], &self.limits) {
            Ok(request) => request,
            Err(Unreadable::Refused(status)) => return Ok(Err(status)),
            Err(Unreadable::Malformed) => {
                return Err(Fatal("a metadata block of rpcx is cut short".to_owned()));
            }
        };
        Ok(self.call(head, frame, request))
    }

    /// Finds the method of a call and checks its message.
    fn call(
        &mut self,
        head: &Head,
        frame: &[u8],
        request: metadata::Request,
    ) -> Result<(CachedMethod, CallHead), Status> {
        let header = head.header;
        let mut cached = self.cached_method(head, frame)?;
        if self.refusing {
            let status = Status::unavailable("the server is going away");
            return Err(status.with_retry(Retry::Safe));
        }
        let (encoding, codec) = match self.check(head, cached.method) {
            Ok(checked) => checked,
            Err(status) => {
                let CachedMethod { names, method, undeclared_name } = cached;
                let found = Found { method, undeclared_name };
                let Found { method, undeclared_name } =
                    self.table.refuse_call(&found, Kind::Unary, status)?;
                cached = CachedMethod { names, method, undeclared_name };
                (Encoding::Identity, Codec::Raw)
            }
        };
        let head = CallHead {
            method: cached.method,
            undeclared_name: cached.undeclared_name.clone(),
            codec,
            encoding,
            replies: encoding,
            timeout: request.timeout,
            metadata: request.metadata,
            oneway: header.has(bit::ONEWAY),
        };
        Ok((cached, head))
    }

    /// Checks compression, codec and size of a call.
    fn check(&self, head: &Head, method: MethodId) -> Result<(Encoding, Codec), Status> {
        let encoding = match head.header.bits & bit::COMPRESSION {
            0 => Encoding::Identity,
            bit::GZIP if self.encodings.has(Encoding::Gzip) => Encoding::Gzip,
            bits => return Err(Status::unimplemented(format!("compression {} is not accepted", bits >> 2))),
        };
        let codec = codec(&self.table, head.header.codec >> 4, method)?;
        if head.payload.len() > self.table.message_bytes_max(method, self.limits.message_bytes_max) as usize {
            let bytes = u32::try_from(head.payload.len()).unwrap_or(u32::MAX);
            return Err(self.table.too_large(method, bytes, self.limits.message_bytes_max));
        }
        Ok((encoding, codec))
    }

    /// Finds the method with this path and method name.
    fn cached_method(&mut self, head: &Head, frame: &[u8]) -> Result<CachedMethod, Status> {
        let names = &frame[head.names.clone()];
        if let Some(at) = self.cached.iter().position(|cached| cached.names == names) {
            self.last = at;
            return Ok(self.cached[at].clone());
        }
        let name =
            |range: &std::ops::Range<usize>| String::from_utf8_lossy(&frame[range.clone()]).into_owned();
        let (path, name) = (name(&head.path), name(&head.method));
        let mut found = find(&self.table, &path, &name)?;
        if self.table.info(found.method).kind != Kind::Unary {
            let full = self.table.full_name(found.method);
            let text = format!("{full} has a stream, which rpcx cannot carry; native, gRPC and Connect can");
            found = self.table.refuse_call(&found, Kind::Unary, Status::unimplemented(text))?;
        }
        let is_refused = found.is_refused();
        let Found { method, undeclared_name } = found;
        let cached = CachedMethod { names: Bytes::copy_from_slice(names), method, undeclared_name };
        if !is_refused && self.cached.len() < CACHED_METHODS_MAX {
            self.last = self.cached.len();
            self.cached.push(cached.clone());
        }
        Ok(cached)
    }

    /// Returns the largest payload of a request: the limit of the method if it has one, otherwise that of the
    /// connection.
    fn payload_max(table: &MethodTable, limits: &Limits, head: &Head, frame: &[u8]) -> u32 {
        crate::work::add(head.names.len());
        let general = limits.message_bytes_max;
        if !table.has_limits() {
            return general;
        }
        let text = |range: &std::ops::Range<usize>| str::from_utf8(&frame[range.clone()]).unwrap_or_default();
        let found = find(table, text(&head.path), text(&head.method));
        found.map_or(general, |found| table.message_bytes_max(found.method, general))
    }

    /// Rejects a frame with a part that is too large, before that part has arrived.
    fn too_large(
        &mut self,
        head: &Head,
        part: Part,
        frame: &[u8],
        out: &mut Outbox,
    ) -> Result<ServerEvent, Fatal> {
        let status = match part {
            Part::Metadata => foreign::metadata_too_large(head.metadata.len(), &self.limits),
            // Callers without credentials get the same status for every method.
            Part::Payload if self.table.guards_unknown() => match self.begin(head, frame)? {
                Ok((cached, call)) => return Ok(self.open(head, cached, call, Bytes::new())),
                Err(status) => status,
            },
            Part::Payload => match self.cached_method(head, frame) {
                Err(status) => status,
                Ok(cached) => {
                    let bytes = u32::try_from(head.payload.len()).unwrap_or(u32::MAX);
                    self.table.too_large(cached.method, bytes, self.limits.message_bytes_max)
                }
            },
        };
        self.refuse_call(head, frame, &status, out);
        Ok(ServerEvent::Handled)
    }

    /// Starts a call with its message.
    fn open(&mut self, head: &Head, cached: CachedMethod, call: CallHead, first: Bytes) -> ServerEvent {
        let compressed = call.encoding != Encoding::Identity;
        let id = match call.oneway {
            true => self.calls.unanswered(),
            false => self.calls.enter(Pending::of(head.header, cached.names)),
        };
        ServerEvent::Open { id, head: call, first: Some(first), compressed, more: false }
    }

    /// Responds to a request that starts no call.
    fn refuse_call(&self, head: &Head, frame: &[u8], status: &Status, out: &mut Outbox) {
        if !head.header.has(bit::ONEWAY) && !head.header.has(bit::RESPONSE) {
            put_error(head.header, &frame[head.names.clone()], status, out);
        }
    }

    /// Ends a call with its message.
    fn succeed(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        let Some(pending) = self.calls.leave(id) else { return };
        let compression = if compressed { bit::GZIP } else { 0 };
        let header = Header { bits: bit::RESPONSE | compression, ..pending.header };
        let mut block = Block::default();
        block.list(&pending.metadata);
        block.list(trailers);
        frame::put_head(header, &pending.names, block.len(), |into| block.put(into), item.len(), out);
        out.put(item);
    }
}

impl Pending {
    fn of(header: Header, names: Bytes) -> Pending {
        Pending { header, names, metadata: Metadata::new() }
    }
}

impl Entry for Pending {
    #[inline]
    fn bytes(&self) -> usize {
        self.names.len()
    }
}

fn put_error(header: Header, names: &[u8], status: &Status, out: &mut Outbox) {
    let header = Header { bits: bit::RESPONSE | bit::ERROR, ..header };
    let written = Written::of(status);
    let block = written.block(status);
    frame::put_head(header, names, block.len(), |into| block.put(into), 0, out);
}

/// Returns the codec with this number of rpcx, for messages of the method.
///
/// # Errors
/// `Unimplemented` with the error text of rpcx.
pub fn codec(table: &MethodTable, number: u8, method: MethodId) -> Result<Codec, Status> {
    match frame::codec_of(number) {
        // The caller encoded the message itself.
        Some(Codec::Raw) if !table.service(method).descriptor.is_empty() => Ok(Codec::Proto),
        Some(codec) => Ok(codec),
        None => Err(error::no_codec(number)),
    }
}

/// Finds a method by the full name of its service, or by the last part of the name if that is unambiguous.
///
/// # Errors
/// `Unimplemented` with the error text of rpcx.
pub fn find(table: &MethodTable, path: &str, method: &str) -> Result<Found, Status> {
    let full = format!("{path}/{method}");
    look_up(table, path, method, &full).or_else(|status| table.refuse(&full, Kind::Unary, status))
}

fn look_up(table: &MethodTable, path: &str, method: &str, full: &str) -> Result<Found, Status> {
    if let Some(found) = table.find(full) {
        return Ok(found.into());
    }
    let names = table.services().iter().map(|service| service.name);
    let mut meant =
        names.filter(|name| *name == path || name.rsplit_once('.').is_some_and(|(_, short)| short == path));
    match (meant.next(), meant.next()) {
        (None, _) => table.undeclared(full, Kind::Unary).ok_or_else(|| error::no_service(path)),
        (Some(name), None) => {
            let found = table.find(&format!("{name}/{method}"));
            found.map(Found::from).ok_or_else(|| error::no_method(method))
        }
        (Some(one), Some(other)) => Err(table.ambiguous(path, one, other)),
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "rpcx"
    }

    #[inline]
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        if self.refusing || self.framer.is_within() {
            return None;
        }
        let cached = self.cached.get(self.last)?;
        let rest = input.rest();
        let fixed = rest.first_chunk()?;
        let header = Header::parse(fixed);
        let names_end = HEADER_LEN + cached.names.len();
        let end = HEADER_LEN + frame::length(rest, 12)?;
        if fixed[0] != super::MAGIC || header.bits != 0 || rest.get(HEADER_LEN..names_end)? != cached.names {
            return None;
        }
        let block = names_end + 4..names_end + 4 + frame::length(rest, names_end)?;
        let payload = block.end + 4..block.end + 4 + frame::length(rest, block.end)?;
        if payload.end != end || rest.len() < end {
            return None;
        }
        let timeout = match &rest[block.clone()] {
            [] => None,
            block => Some(metadata::only_timeout(block)?),
        };
        // Raw bytes have another meaning for protobuf services.
        let codec = frame::codec_of(header.codec >> 4).filter(|codec| *codec != Codec::Raw)?;
        let max = self.table.message_bytes_max(cached.method, self.limits.message_bytes_max);
        if payload.len() > max as usize || block.len() > self.limits.metadata_bytes_max as usize {
            return None;
        }
        // A method that no service declares needs its name, which only a full head carries.
        let CachedMethod { names, method, undeclared_name: None } = cached.clone() else { return None };
        input.skip(payload.start);
        let id = self.calls.enter(Pending::of(header, names));
        let replies = Encoding::Identity;
        Some(Opened { id, method, codec, replies, timeout, len: payload.len() })
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        if !self.connect.is_done() && !self.connect.serve(input, out)? {
            return Ok(None);
        }
        let (table, limits) = (&self.table, self.limits);
        let payload_max = |head: &Head, frame: &[u8]| Server::payload_max(table, &limits, head, frame);
        Ok(Some(match self.framer.next(input, &limits, payload_max)? {
            Next::Wait => return Ok(None),
            Next::Frame(head) => self.frame(&head, input, out)?,
            Next::TooLarge(head, part) => {
                let event = self.too_large(&head, part, input.rest(), out)?;
                self.framer.step_over(&head, input);
                event
            }
        }))
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        self.succeed(id, item, false, &Metadata::new(), out);
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, _out: &mut Outbox) {
        if let Some(pending) = self.calls.get_mut(id) {
            pending.metadata = metadata.clone();
        }
    }

    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        self.succeed(id, item, compressed, trailers, out);
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        match end {
            Ok(trailers) => self.succeed(id, Outgoing::EMPTY, false, trailers, out),
            Err(status) => {
                if let Some(pending) = self.calls.leave(id) {
                    put_error(pending.header, &pending.names, status, out);
                }
            }
        }
    }

    fn refuse(&mut self) {
        self.refusing = true;
    }

    fn memory(&self) -> MachineMemory {
        self.calls.memory()
    }

    fn pushes(&self) -> Option<PushLimits> {
        Some(PushLimits { path: super::NAME_BYTES_MAX, metadata: u32::MAX as usize })
    }

    /// Sent like a one-way call of the server, with its own sequence numbers.
    fn push(&mut self, push: &Push, out: &mut Outbox) {
        self.pushed += 1;
        let (bits, codec) = (bit::ONEWAY, frame::codec_number(push.codec).unwrap_or(frame::codec::RAW) << 4);
        let header = Header { version: 0, bits, codec, sequence: self.pushed };
        let (path, method) = push.names();
        let mut block = Block::default();
        block.list(&push.metadata);
        let names = frame::names(path, method);
        frame::put_head(header, &names, block.len(), |into| block.put(into), push.message.len(), out);
        out.put(&push.message);
    }
}
