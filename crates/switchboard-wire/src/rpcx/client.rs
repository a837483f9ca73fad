//! The client side of an rpcx connection.

use super::{
    connect::Connect,
    error,
    frame::{self, Framer, HEADER_LEN, Head, Header, Next, Part, bit},
    metadata::{self, Block, Unreadable},
};
use crate::{
    Codec, Fatal, Input, Limits, Origin, Outbox, Outgoing, SchemaId, Status, foreign,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Encoding, Open, Push, no_streams},
};
use bytes::Bytes;

/// First sequence of heartbeats, above all ids of calls.
const HEARTBEATS: u64 = 1 << 63;

/// State machine of a client connection.
///
/// The sequence of a frame is the id of the call, so that responses may come in any order. rpcx has no cancel: the
/// response to an abandoned call arrives, and until then no other call has its id.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    /// Services are called by the last part of their names.
    short_names: bool,
    connect: Connect,
    /// Output that waits for the response to CONNECT: a server in Go loses bytes that arrive together with CONNECT.
    early: Outbox,
    framer: Framer,
    /// Path and method of each number, encoded as in a frame.
    methods: Vec<Bytes>,
    /// Event that follows from the last frame.
    next: Option<ClientEvent>,
    heartbeats: u64,
}

impl Client {
    /// Creates the state machine of a newly opened connection.
    pub fn new(limits: Limits) -> Client {
        Client {
            limits,
            short_names: false,
            connect: Connect::Done,
            early: Outbox::new(),
            framer: Framer::default(),
            methods: Vec::new(),
            next: None,
            heartbeats: 0,
        }
    }

    /// Calls `package.Service` as `Service`, the name under which servers in Go register it.
    #[must_use]
    pub fn with_short_names(mut self, short: bool) -> Client {
        self.short_names = short;
        self
    }

    /// Begins the connection with a CONNECT request, as on the network that rpcx calls `http`.
    #[must_use]
    pub fn over_http(mut self, http: bool) -> Client {
        self.connect = if http { Connect::First } else { Connect::Done };
        self
    }

    /// Processes a complete frame.
    fn frame(&mut self, head: &Head, input: &mut Input) -> Result<Option<ClientEvent>, Fatal> {
        let Some(id) = response_id(head.header) else { return self.frame_without_call(head, input) };
        let metadata = match metadata::response(&input.rest()[head.metadata.clone()], &self.limits) {
            Ok(metadata) => metadata,
            Err(Unreadable::Refused(status)) => {
                input.skip(head.payload.end);
                return Ok(Some(ClientEvent::End { id, end: Err(status) }));
            }
            Err(Unreadable::Malformed) => return Err(cut_short()),
        };
        if head.header.bits & bit::STATUS != 0 {
            input.skip(head.payload.end);
            return Ok(Some(ClientEvent::End { id, end: Err(error::status(metadata)) }));
        }
        let compressed = match head.header.bits & bit::COMPRESSION {
            0 => false,
            bit::GZIP => true,
            other => {
                input.skip(head.payload.end);
                let text = format!("compression {} of a reply is not supported", other >> 2);
                let status = Status::internal(text).with_origin(Origin::Connection);
                return Ok(Some(ClientEvent::End { id, end: Err(status) }));
            }
        };
        input.skip(head.payload.start);
        let item = input.take(head.payload.len());
        let reply = ClientEvent::Reply { id, item, compressed };
        if metadata.is_empty() {
            return Ok(Some(reply));
        }
        self.next = Some(reply);
        Ok(Some(ClientEvent::Head { id, metadata }))
    }

    /// Processes a frame that is not a response to a call: a heartbeat response or a server push.
    fn frame_without_call(&self, head: &Head, input: &mut Input) -> Result<Option<ClientEvent>, Fatal> {
        let event = match head.header.bits {
            bits if bits & bit::HEARTBEAT != 0 => (bits & bit::RESPONSE != 0).then_some(ClientEvent::Pong),
            bit::ONEWAY => {
                let rest = input.rest();
                let name = |range: &std::ops::Range<usize>| String::from_utf8_lossy(&rest[range.clone()]);
                let path = format!("{}/{}", name(&head.path), name(&head.method));
                match metadata::response(&rest[head.metadata.clone()], &self.limits) {
                    Ok(metadata) => {
                        input.skip(head.payload.start);
                        let message = input.take(head.payload.len());
                        let codec = frame::codec_of(head.header.codec >> 4).unwrap_or(Codec::Raw);
                        let push = Push::new(path, message).with_metadata(metadata).with_codec(codec);
                        return Ok(Some(ClientEvent::Push(Box::new(push))));
                    }
                    // A push that exceeds a limit is dropped.
                    Err(Unreadable::Refused(_)) => None,
                    Err(Unreadable::Malformed) => return Err(cut_short()),
                }
            }
            _ => None,
        };
        input.skip(head.payload.end);
        Ok(event)
    }

    /// Handles a frame with a part that is too large: a response ends its call, anything else is dropped.
    fn too_large(&self, head: &Head, part: Part) -> Option<ClientEvent> {
        let id = response_id(head.header)?;
        let status = match part {
            Part::Metadata => foreign::metadata_too_large(head.metadata.len(), &self.limits),
            Part::Payload => {
                let (bytes, max) = (head.payload.len(), self.limits.message_bytes_max);
                let text =
                    format!("a reply of {bytes} bytes is over the limit of {max} bytes (message_bytes_max)");
                Status::resource_exhausted(text)
            }
        };
        Some(ClientEvent::End { id, end: Err(status) })
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "rpcx"
    }

    /// Sends CONNECT on the network `http`, otherwise a heartbeat: servers that detect wires by their first bytes do
    /// not wait without limit.
    fn greet(&mut self, out: &mut Outbox) {
        if self.connect.is_done() {
            self.ping(out);
        } else {
            self.connect.request(out);
        }
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Wide
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let (service, method) = name.split_once('/').unwrap_or((name, ""));
        let path = service.rsplit_once('.').filter(|_| self.short_names).map_or(service, |(_, short)| short);
        let place = usize::from(number);
        if self.methods.len() <= place {
            self.methods.resize(place + 1, Bytes::new());
        }
        self.methods[place] = frame::names(path, method);
    }

    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let (Some(first), false) = (first, open.more) else { return Err(no_streams(self.name())) };
        let Some(codec) = frame::codec_number(open.codec) else {
            let codec = open.codec;
            return Err(Status::unimplemented(format!(
                "codec {codec} is not supported on rpcx; use json, msgpack, proto, raw or thrift_struct"
            )));
        };
        let mut block = Block::default();
        if let Some(timeout) = open.timeout {
            block.timeout(timeout);
        }
        block.list(open.metadata);
        if block.len() > self.limits.metadata_bytes_max as usize {
            return Err(foreign::metadata_too_large(block.len(), &self.limits));
        }
        let Some(names) = self.methods.get(usize::from(open.method)) else {
            return Err(Status::internal(format!("method number {} has no name", open.method)));
        };
        let oneway = if open.oneway { bit::ONEWAY } else { 0 };
        // Only a compressed message has the bit: an empty message with it would be an error.
        let compression = if open.compressed && open.encoding == Encoding::Gzip { bit::GZIP } else { 0 };
        let header = Header { version: 0, bits: oneway | compression, codec: codec << 4, sequence: id };
        let out = if self.connect.is_done() { out } else { &mut self.early };
        let payload_len = first.len() + open.rest.iter().map(Bytes::len).sum::<usize>();
        frame::put_head(header, names, block.len(), |into| block.put(into), payload_len, out);
        out.put(first);
        open.rest.iter().for_each(|part| out.put(part));
        Ok(())
    }

    /// Sends a heartbeat, which the server sends back.
    fn ping(&mut self, out: &mut Outbox) {
        let out = if self.connect.is_done() { out } else { &mut self.early };
        self.heartbeats = self.heartbeats.wrapping_add(1) % HEARTBEATS;
        let sequence = HEARTBEATS + self.heartbeats;
        let header = Header { version: 0, bits: bit::HEARTBEAT, codec: frame::codec::MSGPACK << 4, sequence };
        let names = frame::names("", "");
        // A MessagePack number, as clients in Go send: other servers may parse it.
        let mut payload = [0xCF; 9];
        payload[1..].copy_from_slice(&self.heartbeats.to_be_bytes());
        frame::put_head(header, &names, 0, |_| {}, payload.len(), out);
        out.tail().extend_from_slice(&payload);
    }

    fn responds_to_pings(&self) -> bool {
        true
    }

    fn queued_bytes(&self) -> usize {
        self.early.len()
    }

    /// Servers do not report a limit.
    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    /// Servers do not report a limit.
    fn message_bytes_max(&self) -> u32 {
        // The length of a frame is a u32.
        u32::MAX - (64 << 10)
    }

    /// Every server in Go supports gzip.
    fn accepts(&self, encoding: Encoding) -> bool {
        matches!(encoding, Encoding::Gzip | Encoding::Identity)
    }

    #[inline]
    fn next_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        if self.framer.is_within() || self.next.is_some() || !self.connect.is_done() {
            return None;
        }
        let rest = input.rest();
        let fixed = rest.first_chunk()?;
        let header = Header::parse(fixed);
        if fixed[0] != super::MAGIC || header.bits != bit::RESPONSE {
            return None;
        }
        let end = HEADER_LEN + frame::length(rest, 12)?;
        let path = frame::length(rest, HEADER_LEN)?;
        let method = frame::length(rest, HEADER_LEN + 4 + path)?;
        let at = HEADER_LEN + 8 + path + method;
        let start = at + 8;
        if path.max(method) > super::NAME_BYTES_MAX || frame::length(rest, at)? != 0 || rest.len() < end {
            return None;
        }
        let payload = frame::length(rest, at + 4)?;
        let id = Some(header.sequence).filter(|id| *id < HEARTBEATS)?;
        if start + payload != end || payload > self.limits.message_bytes_max as usize {
            return None;
        }
        input.skip(start);
        Some((id, payload))
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        if !self.connect.is_done() {
            if !self.connect.receive(input)? {
                return Ok(None);
            }
            out.put(&Bytes::from(self.early.take_all()));
            self.early = Outbox::new();
        }
        if let Some(event) = self.next.take() {
            return Ok(Some(event));
        }
        loop {
            let max = self.limits.message_bytes_max;
            let event = match self.framer.next(input, &self.limits, |_, _| max)? {
                Next::Wait => return Ok(None),
                Next::Frame(head) => self.frame(&head, input)?,
                Next::TooLarge(head, part) => {
                    let event = self.too_large(&head, part);
                    self.framer.step_over(&head, input);
                    event
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

/// Returns the id of the call to which a frame responds; `None` for heartbeats and server push.
fn response_id(header: Header) -> Option<ClientCallId> {
    if !header.has(bit::RESPONSE) || header.has(bit::HEARTBEAT) {
        return None;
    }
    Some(header.sequence).filter(|id| *id < HEARTBEATS)
}

fn cut_short() -> Fatal {
    Fatal("a metadata block of rpcx is cut short".to_owned())
}
