//! The server's side of a connection that speaks rpcx.

use super::{
    connect::Connect,
    error::{self, Written},
    frame::{self, Framer, HEADER_LEN, Head, Header, Next, Part, bit},
    metadata::{self, Block, Unreadable},
};
use crate::{
    Codec, Fatal, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Retry, Status,
    foreign,
    places::Places,
    wire::{CallId, Encoding, Encodings, Head as CallHead, Opened, Push, PushRoom, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{str, sync::Arc};

/// Methods that a connection remembers by what callers write; others are looked up anew with each call.
const KNOWN_MAX: usize = 16;

/// The machine of a connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    encodings: Encodings,
    connect: Connect,
    framer: Framer,
    known: Vec<Known>,
    /// The place in `known` of the last call.
    last: usize,
    calls: Places<Pending>,
    /// The number of the last message that nobody asked for.
    pushed: u64,
    refusing: bool,
}

/// A method by the bytes of path and method.
#[derive(Clone, Debug)]
struct Known {
    names: Bytes,
    method: MethodId,
}

/// What its answer needs of a call.
#[derive(Debug)]
struct Pending {
    header: Header,
    names: Bytes,
    /// What was said before the message.
    metadata: Metadata,
}

impl Server {
    /// A machine for a connection that was just accepted.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            encodings: Encodings::NONE,
            connect: Connect::default(),
            framer: Framer::default(),
            known: Vec::new(),
            last: 0,
            calls: Places::default(),
            pushed: 0,
            refusing: false,
        }
    }

    /// Takes messages that are compressed so; rpcx has a number for gzip alone.
    #[must_use]
    pub fn taking(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    /// Handles a frame that is all there, and takes it.
    fn frame(&mut self, head: &Head, input: &mut Input, out: &mut Outbox) -> Result<ServerEvent, Fatal> {
        let header = head.header;
        if header.has(bit::RESPONSE) {
            // Nothing was asked.
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
            Ok((known, call)) => {
                input.skip(head.payload.start);
                let first = Some(input.take(head.payload.len()));
                let compressed = call.encoding != Encoding::Identity;
                let id = match call.oneway {
                    true => self.calls.unanswered(),
                    false => self.calls.enter(Pending::of(header, known.names)),
                };
                Ok(ServerEvent::Open { id, head: call, first, compressed, more: false })
            }
            Err(status) => {
                self.refuse_call(head, input.rest(), &status, out);
                input.skip(head.payload.end);
                Ok(ServerEvent::Handled)
            }
        }
    }

    /// What a call says of itself, or why it is refused.
    ///
    /// # Errors
    /// Metadata that is not whole.
    fn begin(&mut self, head: &Head, frame: &[u8]) -> Result<Result<(Known, CallHead), Status>, Fatal> {
        let header = head.header;
        let request = match metadata::request(&frame[head.metadata.clone()], &self.limits) {
            Ok(request) => request,
            Err(Unreadable::Refused(status)) => return Ok(Err(status)),
            Err(Unreadable::Malformed) => {
                return Err(Fatal("a metadata block of rpcx is cut short".to_owned()));
            }
        };
        Ok(self.known(head, frame).and_then(|known| {
            if self.refusing {
                let status = Status::unavailable("the server is going away");
                return Err(status.with_retry(Retry::Safe));
            }
            let encoding = match header.bits & bit::COMPRESSION {
                0 => Encoding::Identity,
                bit::GZIP if self.encodings.has(Encoding::Gzip) => Encoding::Gzip,
                bits => {
                    let text = format!("compression {} is not taken here", bits >> 2);
                    return Err(Status::unimplemented(text));
                }
            };
            let head = CallHead {
                method: known.method,
                codec: codec(&self.table, header.codec >> 4, known.method)?,
                encoding,
                timeout: request.timeout,
                metadata: request.metadata,
                oneway: header.has(bit::ONEWAY),
            };
            Ok((known, head))
        }))
    }

    /// The method that path and method name.
    fn known(&mut self, head: &Head, frame: &[u8]) -> Result<Known, Status> {
        let names = &frame[head.names.clone()];
        if let Some(at) = self.known.iter().position(|known| known.names == names) {
            self.last = at;
            return Ok(self.known[at].clone());
        }
        let name =
            |range: &std::ops::Range<usize>| String::from_utf8_lossy(&frame[range.clone()]).into_owned();
        let (path, name) = (name(&head.path), name(&head.method));
        let method = find(&self.table, &path, &name)?;
        let kind = self.table.info(method).kind;
        if kind != Kind::Unary {
            let full = self.table.full_name(method);
            let text = format!("{full} has a stream, which rpcx cannot carry; native, gRPC and Connect can");
            return Err(Status::unimplemented(text));
        }
        let known = Known { names: Bytes::copy_from_slice(names), method };
        if self.known.len() < KNOWN_MAX {
            self.last = self.known.len();
            self.known.push(known.clone());
        }
        Ok(known)
    }

    /// Largest payload of a request; of a method that has no limit of its own, that of the connection.
    fn payload_max(table: &MethodTable, limits: &Limits, head: &Head, frame: &[u8]) -> u32 {
        let general = limits.message_bytes_max;
        if !table.has_limits() {
            return general;
        }
        let text = |range: &std::ops::Range<usize>| str::from_utf8(&frame[range.clone()]).unwrap_or_default();
        let found = find(table, text(&head.path), text(&head.method));
        found.map_or(general, |method| table.message_bytes_max(method, general))
    }

    /// Answers a frame of which a part is too large, before that has come.
    fn too_large(&mut self, head: &Head, part: Part, frame: &[u8], out: &mut Outbox) {
        let status = match part {
            Part::Metadata => foreign::metadata_too_large(head.metadata.len(), &self.limits),
            Part::Payload => match self.known(head, frame) {
                Err(status) => status,
                Ok(known) => {
                    let bytes = u32::try_from(head.payload.len()).unwrap_or(u32::MAX);
                    self.table.too_large(known.method, bytes, self.limits.message_bytes_max)
                }
            },
        };
        self.refuse_call(head, frame, &status, out);
    }

    /// Answers a request that begins no call.
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

fn put_error(header: Header, names: &[u8], status: &Status, out: &mut Outbox) {
    let header = Header { bits: bit::RESPONSE | bit::ERROR, ..header };
    let written = Written::of(status);
    let block = written.block(status);
    frame::put_head(header, names, block.len(), |into| block.put(into), 0, out);
}

/// The codec with this number of rpcx, for messages of the method.
///
/// # Errors
/// `Unimplemented` in the words of rpcx.
pub fn codec(table: &MethodTable, number: u8, method: MethodId) -> Result<Codec, Status> {
    match frame::codec_of(number) {
        // The caller has written the message itself.
        Some(Codec::Raw) if !table.service(method).descriptor.is_empty() => Ok(Codec::Proto),
        Some(codec) => Ok(codec),
        None => Err(error::no_codec(number)),
    }
}

/// The method of a service by its full name, or by its last part where that is clear.
///
/// # Errors
/// `Unimplemented` in the words of rpcx.
pub fn find(table: &MethodTable, path: &str, method: &str) -> Result<MethodId, Status> {
    let full = format!("{path}/{method}");
    if let Some(found) = table.find(&full) {
        return Ok(found);
    }
    let names = table.services().iter().map(|service| service.name);
    let mut meant =
        names.filter(|name| *name == path || name.rsplit_once('.').is_some_and(|(_, short)| short == path));
    match (meant.next(), meant.next()) {
        (None, _) => table.learn(&full, Kind::Unary).ok_or_else(|| error::no_service(path)),
        (Some(name), None) => table.find(&format!("{name}/{method}")).ok_or_else(|| error::no_method(method)),
        (Some(one), Some(other)) => {
            let text = format!("{path} may be {one} or {other}: say which in the service path");
            Err(Status::unimplemented(text))
        }
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "rpcx"
    }

    #[inline]
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        if self.refusing || self.framer.is_skipping() {
            return None;
        }
        let known = self.known.get(self.last)?;
        let rest = input.rest();
        let fixed = rest.first_chunk()?;
        let header = Header::parse(fixed);
        let names_end = HEADER_LEN + known.names.len();
        let end = HEADER_LEN + frame::length(rest, 12)?;
        if fixed[0] != super::MAGIC || header.bits != 0 || rest.get(HEADER_LEN..names_end)? != known.names {
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
        // Raw bytes mean something else to protobuf.
        let codec = frame::codec_of(header.codec >> 4).filter(|codec| *codec != Codec::Raw)?;
        let max = self.table.message_bytes_max(known.method, self.limits.message_bytes_max);
        if payload.len() > max as usize || block.len() > self.limits.metadata_bytes_max as usize {
            return None;
        }
        let Known { names, method } = known.clone();
        input.skip(payload.start);
        let id = self.calls.enter(Pending::of(header, names));
        Some(Opened { id, method, codec, timeout, len: payload.len() })
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
                self.too_large(&head, part, input.rest(), out);
                self.framer.step_over(&head, input);
                ServerEvent::Handled
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

    fn pushes(&self) -> Option<PushRoom> {
        Some(PushRoom { path: super::NAME_BYTES_MAX, metadata: u32::MAX as usize })
    }

    /// Looks as a one-way call of the server's does; its numbers are of its own.
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
