//! The server side of an erpc connection.

use super::{
    NAME_BYTES_MAX, QUERY_BYTES_MAX, error,
    frames::{Frame, Frames, Next, TooLarge},
    framing::Framing,
    message::{Message, SUCCESS, codec, kind},
    metadata, names,
};
use crate::{
    Codec, Fatal, Found, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Retry,
    Status, foreign,
    pending::{Entry, PendingCalls},
    wire::{CallId, Encoding, Head, MachineMemory, Push, PushLimits, ServerEvent, ServerWire},
};
use bytes::{Bytes, BytesMut};
use std::{borrow::Cow, collections::HashMap, sync::Arc};

/// Method that erpc's heartbeat plug-in calls.
const HEARTBEAT: &[u8] = b"/heartbeat";
/// Metadata key of a heartbeat: the seconds until the next heartbeat.
const RATE: &str = "hb_";
/// Metadata key of credentials that are not plain text.
const AUTH_BIN: &str = "erpc-auth-bin";

/// State machine of a server connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    frames: Frames,
    /// Cache of methods by the names that callers used.
    methods: HashMap<Box<[u8]>, Found>,
    calls: PendingCalls<Pending>,
    /// Metadata that AUTH_CALL adds to each call.
    credentials: Metadata,
    /// Sequence of the last push.
    pushed: i32,
    refusing: bool,
}

/// Fields that address a reply to its call.
#[derive(Clone, Copy, Debug)]
struct Address {
    framing: Framing,
    sequence: i32,
    gzip: bool,
}

/// State of a call that its reply needs.
#[derive(Debug)]
struct Pending {
    address: Address,
    codec: u8,
    /// Metadata that precedes the message.
    metadata: Metadata,
}

impl Server {
    /// Creates the state machine of a newly accepted connection.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            frames: Frames::default(),
            methods: HashMap::new(),
            calls: PendingCalls::default(),
            credentials: Metadata::new(),
            pushed: 0,
            refusing: false,
        }
    }

    fn message(&mut self, frame: &Frame, out: &mut Outbox) -> Result<ServerEvent, Fatal> {
        let message = frame.framing.read(&frame.payload)?;
        let Message { sequence, .. } = message;
        let address = Address { framing: frame.framing, sequence, gzip: frame.gzip };
        match message.kind {
            kind::CALL | kind::PUSH => Ok(self.call(address, &message, out)),
            kind::AUTH_CALL => {
                let (status, metadata) = match self.authenticate(&message) {
                    Ok(()) => (SUCCESS.into(), BytesMut::new()),
                    Err(status) => error::write(&status),
                };
                address.answer(kind::AUTH_REPLY, &status, &metadata, codec::NONE, &Bytes::new(), out);
                Ok(ServerEvent::Handled)
            }
            // The server makes no calls that could have a reply.
            kind::REPLY | kind::AUTH_REPLY => Ok(ServerEvent::Handled),
            other => Err(Fatal(format!("an erpc message of kind {other}; kinds are 1 to 5"))),
        }
    }

    fn call(&mut self, address: Address, message: &Message<'_>, out: &mut Outbox) -> ServerEvent {
        let oneway = message.kind == kind::PUSH;
        match self.begin(message, oneway) {
            Ok(Some((head, first))) => {
                let id = match oneway {
                    true => self.calls.unanswered(),
                    false => {
                        let (codec, metadata) = (message.codec, Metadata::new());
                        self.calls.enter(Pending { address, codec, metadata })
                    }
                };
                ServerEvent::Open { id, head, first: Some(first), compressed: false, more: false }
            }
            // A heartbeat.
            Ok(None) if oneway => ServerEvent::Handled,
            Ok(None) => {
                address.answer(kind::REPLY, SUCCESS, &[], message.codec, &Bytes::new(), out);
                ServerEvent::Handled
            }
            Err(status) => {
                if !oneway {
                    address.fail(&status, out);
                }
                ServerEvent::Handled
            }
        }
    }

    /// Reads the head and the message of a call; `None` for a heartbeat.
    fn begin(&mut self, message: &Message<'_>, oneway: bool) -> Result<Option<(Head, Bytes)>, Status> {
        let (name, behind) = message.names();
        let mut metadata = metadata::read(&[&message.metadata, behind], &self.limits)?;
        if name == HEARTBEAT && self.find(name).map_or(true, |found| found.is_refused()) {
            let rate = metadata.text(RATE).unwrap_or("0");
            return match rate.parse::<u32>() {
                Ok(_) => Ok(None),
                Err(_) => Err(Status::invalid_argument(format!("invalid heartbeat rate: {rate}"))),
            };
        }
        if self.refusing {
            let status = Status::unavailable("the server is going away");
            return Err(status.with_retry(Retry::Safe));
        }
        let found = self.find(name)?;
        let (found, codec, first) = match self.check(message, found.method) {
            Ok((codec, first)) => (found, codec, first),
            Err(status) => {
                let refused = self.table.refuse_call(&found, Kind::Unary, status)?;
                (refused, Codec::Raw, message.body.clone())
            }
        };
        let Found { method, undeclared_name } = found;
        let timeout = metadata::take_timeout(&mut metadata);
        foreign::add_credentials(&mut metadata, &self.credentials);
        foreign::check_count(&metadata, &self.limits)?;
        foreign::check_size(&metadata, &self.limits)?;
        let encoding = Encoding::Identity;
        let replies = encoding;
        let head = Head { method, undeclared_name, codec, encoding, replies, timeout, metadata, oneway };
        Ok(Some((head, first)))
    }

    /// Checks kind, size and codec of a call; returns the codec and the bytes of its message.
    fn check(&self, message: &Message<'_>, method: MethodId) -> Result<(Codec, Bytes), Status> {
        if self.table.info(method).kind != Kind::Unary {
            let full = self.table.full_name(method);
            let text = format!("{full} has a stream, which erpc cannot carry; native, gRPC and Connect can");
            return Err(Status::unimplemented(text));
        }
        let general = self.limits.message_bytes_max;
        if message.body.len() > self.table.message_bytes_max(method, general) as usize {
            return Err(self.table.too_large(method, length(message.body.len()), general));
        }
        self.body(message, method)
    }

    /// Returns the codec and the bytes of the message.
    fn body(&self, message: &Message<'_>, method: MethodId) -> Result<(Codec, Bytes), Status> {
        // The handler of methods that no service declares decides how to read the messages.
        let is_protobuf =
            !self.table.service(method).descriptor.is_empty() || self.table.is_undeclared(method);
        match (message.codec, message.body.is_empty()) {
            (codec::PROTO, _) => Ok((Codec::Proto, message.body.clone())),
            // The caller encoded the message itself.
            (codec::NONE, _) if is_protobuf => Ok((Codec::Proto, message.body.clone())),
            (codec::JSON, false) => Ok((Codec::Json, message.body.clone())),
            // Go encodes nil as an empty body.
            (codec::JSON | codec::NONE, true) => Ok((Codec::Json, Bytes::from_static(b"{}"))),
            (other, _) => Err(Status::invalid_argument(format!(
                "unsupported codec id: {other}; {} (json) and {} (protobuf) are supported",
                codec::JSON,
                codec::PROTO
            ))),
        }
    }

    fn find(&mut self, name: &[u8]) -> Result<Found, Status> {
        if let Some(found) = self.methods.get(name) {
            return Ok(found.clone());
        }
        let text = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
        let Some(text) = text else {
            let text = format!("a method name is not UTF-8 of at most {NAME_BYTES_MAX} bytes");
            return Err(Status::invalid_argument(text));
        };
        let found = names::find(&self.table, text)?;
        if !found.is_refused() && self.methods.len() < usize::from(self.limits.methods_max) {
            self.methods.insert(name.into(), found.clone());
        }
        Ok(found)
    }

    /// Stores the credentials of the connection: a text, which may be a JSON string, or any bytes. They become metadata
    /// of its calls and have the size limit of metadata.
    fn authenticate(&mut self, message: &Message<'_>) -> Result<(), Status> {
        if message.body.len() > self.limits.metadata_bytes_max as usize {
            return Err(foreign::metadata_too_large(message.body.len(), &self.limits));
        }
        let text = match message.codec {
            codec::JSON => serde_json::from_slice(&message.body).ok(),
            codec::PLAIN => String::from_utf8(message.body.to_vec()).ok(),
            _ => None,
        };
        let data = text.as_ref().map_or(&message.body[..], |text: &String| text.as_bytes());
        self.credentials = foreign::credentials(data, AUTH_BIN);
        Ok(())
    }

    /// Rejects a message that is too large; its bytes are skipped.
    fn too_large(&mut self, large: TooLarge, out: &mut Outbox) {
        let TooLarge { framing, glance, bytes, gzip } = large;
        if glance.kind != kind::CALL {
            return;
        }
        let general = self.limits.message_bytes_max;
        let status = match self.find(&glance.name) {
            // Without its metadata, which was not read, the caller is not known.
            _ if self.table.guards_unknown() => {
                let max = self.table.largest_message(general);
                Status::resource_exhausted(format!(
                    "a request of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
                ))
            }
            Ok(found) => self.table.too_large(found.method, length(bytes), general),
            Err(status) => status,
        };
        Address { framing, sequence: glance.sequence, gzip }.fail(&status, out);
    }

    /// Ends a call with its reply.
    fn succeed(&mut self, id: CallId, item: Outgoing<'_>, trailers: &Metadata, out: &mut Outbox) {
        let Some(Pending { address, codec, metadata: head, .. }) = self.calls.leave(id) else { return };
        let mut written = BytesMut::new();
        metadata::put(&mut written, &head);
        metadata::put(&mut written, trailers);
        if written.len() > QUERY_BYTES_MAX {
            let len = written.len();
            let text = format!(
                "reply metadata of {len} bytes with its escapes is over the {QUERY_BYTES_MAX} bytes of erpc"
            );
            return address.fail(&Status::internal(text), out);
        }
        address.answer(kind::REPLY, SUCCESS, &written, codec, &item.to_bytes(), out);
    }
}

impl Entry for Pending {
    fn bytes(&self) -> usize {
        0
    }
}

impl Address {
    fn answer(self, kind: u8, status: &[u8], metadata: &[u8], codec: u8, body: &Bytes, out: &mut Outbox) {
        let message = Message {
            sequence: self.sequence,
            kind,
            name: Cow::Borrowed(b""),
            status: Cow::Borrowed(status),
            metadata: Cow::Borrowed(metadata),
            codec,
            body: body.clone(),
        };
        self.framing.put(&message, self.gzip, out);
    }

    fn fail(self, status: &Status, out: &mut Outbox) {
        let (status, metadata) = error::write(status);
        self.answer(kind::REPLY, &status, &metadata, codec::NONE, &Bytes::new(), out);
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "erpc"
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        let body_max = self.table.largest_message(self.limits.message_bytes_max) as usize;
        match self.frames.next(input, body_max)? {
            Next::Wait => Ok(None),
            Next::Frame(frame) => self.message(&frame, out).map(Some),
            Next::TooLarge(large) => {
                self.too_large(large, out);
                Ok(Some(ServerEvent::Handled))
            }
        }
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        self.succeed(id, item, &Metadata::new(), out);
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, _out: &mut Outbox) {
        if let Some(pending) = self.calls.get_mut(id) {
            pending.metadata = metadata.clone();
        }
    }

    /// `compressed` is never set: the filter applies to whole messages.
    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        _compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        self.succeed(id, item, trailers, out);
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        match end {
            Ok(trailers) => self.succeed(id, Outgoing::EMPTY, trailers, out),
            Err(status) => {
                if let Some(pending) = self.calls.leave(id) {
                    pending.address.fail(status, out);
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
        // A slash goes before the path, and each byte of metadata may become three when it is escaped.
        Some(PushLimits { path: NAME_BYTES_MAX - 1, metadata: QUERY_BYTES_MAX / 3 })
    }

    /// Sent like a push of a client, with its own sequence numbers. Filters apply only to replies of filtered calls.
    fn push(&mut self, push: &Push, out: &mut Outbox) {
        // The framing was detected from the call to which the push belongs.
        let Some(framing) = self.frames.framing() else { return };
        self.pushed = self.pushed % i32::MAX + 1;
        let mut metadata = BytesMut::new();
        metadata::put(&mut metadata, &push.metadata);
        let message = Message {
            sequence: self.pushed,
            kind: kind::PUSH,
            name: names::of_push(&push.path).into_bytes().into(),
            status: Cow::Borrowed(SUCCESS),
            metadata: Cow::Borrowed(&metadata),
            codec: codec::id(push.codec).unwrap_or(codec::NONE),
            body: push.message.clone(),
        };
        framing.put(&message, false, out);
    }
}
