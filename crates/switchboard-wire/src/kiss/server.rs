//! kiss-rpc as a server speaks it.

use super::{
    Compression, HEARTBEAT, body,
    frame::{self, HEADER_LEN, Header, status},
};
use crate::{
    Encoding, Encodings, Fatal, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing,
    Retry, Status,
    places::Places,
    wire::{CallId, Head, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};

/// The machine of a connection.
///
/// Its callers may choose any 32 bits as the number of a call; the driver knows calls by their place here.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    /// What compressed messages are taken.
    encodings: Encodings,
    /// The functions that this peer called, as far as they are there: at most all methods.
    known: HashMap<u64, MethodId>,
    /// The headers of answers, by [`CallId`].
    calls: Places<Header>,
    refusing: bool,
}

impl Server {
    /// A machine for a connection that was just accepted.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            encodings: Encodings::NONE,
            known: HashMap::new(),
            calls: Places::default(),
            refusing: false,
        }
    }

    /// Takes messages that are compressed so, if Snappy is among it; without it only plain ones are taken.
    #[must_use]
    pub fn taking(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    /// What a request is of, and its message.
    fn request(&mut self, header: Header, body: Bytes) -> Result<(Head, Bytes), Status> {
        if self.refusing {
            return Err(Status::unavailable("the server is going away").with_retry(Retry::Safe));
        }
        let method = self.method(header.function)?;
        if self.table.info(method).kind != Kind::Unary {
            return Err(Status::unimplemented(format!(
                "{} streams, which is not spoken over kiss-rpc; native, gRPC and Connect can",
                self.table.full_name(method)
            )));
        }
        let codec = frame::codec(header.codec).ok_or_else(|| {
            Status::invalid_argument(format!(
                "serialisation {} is not known here: 0, 2, 3 and 4 are",
                header.codec
            ))
        })?;
        if header.compressed && !self.encodings.has(Encoding::Snappy) {
            let text = format!("snappy is not taken here; taken: {}", self.encodings);
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
        Ok((Head { method, codec, encoding, timeout: None, metadata, oneway }, first))
    }

    fn method(&mut self, function: u64) -> Result<MethodId, Status> {
        if let Some(known) = self.known.get(&function) {
            return Ok(*known);
        }
        let name = format!("kiss/{function}");
        let found =
            self.table.find(&name).or_else(|| self.table.learn(&name, Kind::Unary)).ok_or_else(|| {
                Status::unimplemented(format!(
                    "function {function} is no method here: name it with the alias {name}"
                ))
            })?;
        self.known.insert(function, found);
        Ok(found)
    }

    fn fail(mut header: Header, out: &mut Outbox) {
        header.status |= status::FAILED;
        header.compression = Compression::None;
        // An empty body fits.
        let _ = header.put_as_it_is(Outgoing::EMPTY, out);
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
            // Nobody sends a body; an answer has none.
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
        // A message that fits into no frame is a failure; the caller gets to know no more than that.
        if header.put(item, out).is_err() {
            Server::fail(header, out);
        }
    }

    /// There is no place for trailers, and no call names an encoding: messages are compressed here.
    fn reply_with(&mut self, id: CallId, item: Outgoing<'_>, _: bool, _: &Metadata, out: &mut Outbox) {
        self.reply(id, item, out);
    }

    /// There is no place for metadata.
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
}
