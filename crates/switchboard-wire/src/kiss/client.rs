//! The client side of kiss-rpc.

use super::{
    Compression, HEARTBEAT, MESSAGE_BYTES_MAX, body,
    frame::{self, HEADER_LEN, Header, status},
};
use crate::{
    Code, Encoding, Fatal, Input, Limits, Origin, Outbox, Outgoing, SchemaId, Status,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Open, no_streams},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};

/// State machine of a client connection.
///
/// The sequence of a frame is the id of the call. kiss-rpc has no cancel: the reply to an abandoned call arrives, and
/// until then its id is reserved. It carries neither metadata, which is left out, nor deadlines, which only the client
/// enforces.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    functions: Arc<HashMap<String, u64>>,
    compression: Compression,
    heartbeats: bool,
    /// By method number: the method's name, and its function number if known.
    methods: Vec<(String, Option<u64>)>,
}

impl Client {
    /// Creates the state machine of a newly opened connection.
    pub fn new(limits: Limits) -> Client {
        Client {
            limits,
            functions: Arc::default(),
            compression: Compression::None,
            heartbeats: false,
            methods: Vec::new(),
        }
    }

    /// Sets the function numbers of methods (`package.Service/Method`). The method `kiss/NUMBER`, the name of a
    /// function that a server has no name for, needs none.
    #[must_use]
    pub fn functions(mut self, functions: Arc<HashMap<String, u64>>) -> Client {
        self.functions = functions;
        self
    }

    /// Compresses requests in this way, and requests the same for replies.
    #[must_use]
    pub fn compressing(mut self, compression: Compression) -> Client {
        self.compression = compression;
        self
    }

    /// Enables heartbeats. Servers from before the end of 2017 do not respond to them.
    #[must_use]
    pub fn heartbeats(mut self, on: bool) -> Client {
        self.heartbeats = on;
        self
    }

    fn function(&self, method: u16) -> Result<u64, Status> {
        let (name, function) =
            self.methods.get(usize::from(method)).map_or(("", None), |(name, function)| (name, *function));
        function.ok_or_else(|| {
            Status::failed_precondition(format!(
                "{name} has no number on kiss-rpc: add function={name}:NUMBER to the address"
            ))
        })
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "kiss"
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Reserved
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let at = usize::from(number);
        if self.methods.len() <= at {
            self.methods.resize_with(at + 1, Default::default);
        }
        let named = || name.strip_prefix("kiss/")?.parse().ok();
        self.methods[at] = (name.to_owned(), self.functions.get(name).copied().or_else(named));
    }

    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        if open.more {
            return Err(no_streams(self.name()));
        }
        let function = self.function(open.method)?;
        let codec = frame::codec_number(open.codec).ok_or_else(|| {
            let text =
                format!("codec {} is not supported on kiss-rpc; use flatbuffers, proto or json", open.codec);
            Status::unimplemented(text)
        })?;
        let whole;
        let first = match (first, open.rest) {
            (None, []) => Outgoing::EMPTY,
            (Some(first), []) => first,
            (first, rest) => {
                whole = first.unwrap_or(Outgoing::EMPTY).with(rest);
                Outgoing::Lent(&whole)
            }
        };
        let compression = match open.encoding {
            Encoding::Snappy if self.compression == Compression::None => Compression::Dynamic,
            _ => self.compression,
        };
        let header = Header {
            compressed: open.compressed,
            compression,
            codec,
            status: if open.oneway { status::ONEWAY } else { 0 },
            function,
            sequence: id as u32,
            len: 0,
        };
        if open.compressed { header.put_as_it_is(first, out) } else { header.put(first, out) }
    }

    fn ping(&mut self, out: &mut Outbox) {
        let header = Header {
            compressed: false,
            compression: Compression::None,
            codec: 0,
            status: 0,
            function: HEARTBEAT,
            sequence: 0,
            len: 0,
        };
        out.tail().extend_from_slice(&header.bytes());
    }

    fn responds_to_pings(&self) -> bool {
        self.heartbeats
    }

    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        matches!(encoding, Encoding::Identity | Encoding::Snappy)
    }

    fn message_bytes_max(&self) -> u32 {
        MESSAGE_BYTES_MAX as u32
    }

    fn recv(&mut self, input: &mut Input, _out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        let Some(header) = Header::of_whole_frame(input)? else { return Ok(None) };
        input.skip(HEADER_LEN);
        let body = input.take(usize::from(header.len));
        if header.function == HEARTBEAT {
            return Ok(Some(ClientEvent::Pong));
        }
        let id = header.sequence.into();
        let reply = reply(header, body, self.limits.message_bytes_max);
        Ok(Some(match reply {
            Ok(item) => ClientEvent::Reply { id, item, compressed: false },
            Err(status) => ClientEvent::End { id, end: Err(status) },
        }))
    }
}

fn reply(header: Header, body: Bytes, max: u32) -> Result<Bytes, Status> {
    if header.status & status::FAILED != 0 {
        let text = format!("function {} failed; kiss-rpc carries no reason", header.function);
        return Err(Status::new(Code::Unknown, text).with_origin(Origin::Peer));
    }
    if body.len() > max as usize {
        return Err(Status::resource_exhausted(format!(
            "a reply of {} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)",
            body.len()
        )));
    }
    body::unpack(header.compressed, body, max).map_err(|why| {
        let text = format!("a reply that cannot be decompressed: {why}");
        Status::internal(text).with_origin(Origin::Connection)
    })
}
