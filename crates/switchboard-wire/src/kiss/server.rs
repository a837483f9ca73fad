//! The server side of kiss-rpc.

use super::{
    Compression, HEARTBEAT, body,
    frame::{self, HEADER_LEN, Header, status},
};
use crate::{
    Encoding, Encodings, Fatal, Found, Input, Kind, Limits, Metadata, MethodTable, Outbox, Outgoing, Retry,
    Status,
    pending::{Entry, PendingCalls},
    wire::{CallId, Head, MachineMemory, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};

/// State machine of a server connection.
///
/// A caller may choose any 32 bits as the sequence of a call; the driver identifies a call by its slot here.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    /// Encodings of compressed messages that the server accepts.
    encodings: Encodings,
    /// Cache of the declared functions that this peer called: at most all methods.
    cached: HashMap<u64, Found>,
    /// Headers of pending responses, by [`CallId`].
    calls: PendingCalls<Header>,
    refusing: bool,
}

impl Server {
    /// Creates the state machine of a newly accepted connection.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            encodings: Encodings::NONE,
            cached: HashMap::new(),
            calls: PendingCalls::default(),
            refusing: false,
        }
    }

    /// Accepts Snappy messages if `encodings` includes Snappy; the default is uncompressed messages only.
    #[must_use]
    pub fn with_encodings(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    /// Reads the head and the message of a request.
    fn request(&mut self, header: Header, body: Bytes) -> Result<(Head, Bytes), Status> {
        if self.refusing {
            return Err(Status::unavailable("the server is going away").with_retry(Retry::Safe));
        }
        let Found { method, undeclared_name } = self.method(header.function)?;
        if self.table.info(method).kind != Kind::Unary {
            return Err(Status::unimplemented(format!(
                "{} streams, which kiss-rpc cannot carry; native, gRPC and Connect can",
                self.table.full_name(method)
            )));
        }
        let codec = frame::codec(header.codec).ok_or_else(|| {
            Status::invalid_argument(format!(
                "serialization {} is not supported; use 0, 2, 3 or 4",
                header.codec
            ))
        })?;
        if header.compressed && !self.encodings.has(Encoding::Snappy) {
            let text = format!("encoding snappy is not accepted; accepted: {}", self.encodings);
            return Err(Status::invalid_argument(text));
        }
        let general = self.limits.message_bytes_max;
        let max = self.table.message_bytes_max(method, general);
        if body.len() > max as usize {
            return Err(self.table.too_large(method, body.len() as u32, general));
        }
        let first = body::unpack(header.compressed, body, max).map_err(|why| {
            Status::invalid_argument(format!("a request that cannot be decompressed: {why}"))
        })?;
        let (encoding, metadata) = (Encoding::Identity, Metadata::new());
        let oneway = header.status & status::ONEWAY != 0;
        let (replies, timeout) = (encoding, None);
        let head = Head { method, undeclared_name, codec, encoding, replies, timeout, metadata, oneway };
        Ok((head, first))
    }

    fn method(&mut self, function: u64) -> Result<Found, Status> {
        if let Some(cached) = self.cached.get(&function) {
            return Ok(cached.clone());
        }
        let name = format!("kiss/{function}");
        let declared = self.table.find(&name).map(Found::from);
        let found = declared.or_else(|| self.table.undeclared(&name, Kind::Unary)).map_or_else(
            || {
                let text = format!("function {function} has no method; add a method with the alias {name}");
                self.table.refuse(&name, Kind::Unary, Status::unimplemented(text))
            },
            Ok,
        )?;
        // Callers choose the numbers of methods that no service declares, so these are not cached.
        if found.undeclared_name.is_none() {
            self.cached.insert(function, found.clone());
        }
        Ok(found)
    }

    fn fail(mut header: Header, out: &mut Outbox) {
        header.status |= status::FAILED;
        header.compression = Compression::None;
        // An empty body always fits.
        let _ = header.put_as_it_is(Outgoing::EMPTY, out);
    }
}

impl Entry for Header {
    fn bytes(&self) -> usize {
        0
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "kiss"
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        let Some(header) = Header::of_whole_frame(input)? else { return Ok(None) };
        if header.function == HEARTBEAT {
            out.tail().extend_from_slice(&input.rest()[..HEADER_LEN]);
            // Peers send heartbeats without a body; the response has none either, so its body size is set to 0.
            let end = out.tail().len();
            out.tail()[end - 2..].fill(0);
            input.skip(HEADER_LEN + usize::from(header.len));
            return Ok(Some(ServerEvent::Handled));
        }
        input.skip(HEADER_LEN);
        let body = input.take(usize::from(header.len));
        let request = self.request(header, body);
        let id = if header.status & status::ONEWAY != 0 {
            self.calls.unanswered()
        } else {
            self.calls.enter(Header { status: header.status & status::NON_BLOCKING, ..header })
        };
        Ok(Some(match request {
            Ok((head, first)) => {
                ServerEvent::Open { id, head, first: Some(first), compressed: false, more: false }
            }
            Err(status) => ServerEvent::Refused { id, status },
        }))
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        let Some(header) = self.calls.leave(id) else { return };
        // A message that does not fit in a frame is a failure, whose reason the caller cannot receive.
        if header.put(item, out).is_err() {
            Server::fail(header, out);
        }
    }

    /// The protocol has no trailers, and no call names an encoding: this machine compresses messages itself.
    fn reply_with(&mut self, id: CallId, item: Outgoing<'_>, _: bool, _: &Metadata, out: &mut Outbox) {
        self.reply(id, item, out);
    }

    /// The protocol has no metadata.
    fn head(&mut self, _id: CallId, _metadata: &Metadata, _out: &mut Outbox) {}

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        match end {
            Ok(_) => self.reply(id, Outgoing::EMPTY, out),
            Err(_) => {
                if let Some(header) = self.calls.leave(id) {
                    Server::fail(header, out);
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
}
