//! The server side of a connection.
//!
//! Clients of Thrift read replies in the order of their requests, so a reply that is ready early waits for those before
//! it. Clients with THeader match replies by number and get each reply when it is ready. Without THeader the number is
//! only repeated in the reply: many clients send 0 with every call.
//!
//! Only calls with a reply have an entry. One-way calls have none, and calls with THeader keep theirs until their
//! reply, independent of the calls before them.

use super::{
    Encoded, Malformed,
    exception::{self, INVALID_MESSAGE_TYPE, INVALID_PROTOCOL, INVALID_TRANSFORM},
    frames::{Broken, Frames, Unit},
    header::{self, Header, Refused},
    message::{COMPACT, Form, Head, Kind, STRICT},
    names, transcode,
};
use crate::{
    Codec, Fatal, Found, Input, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Status, method,
    pending::{Entry, PendingCalls},
    wire::{CallId, Encoding, MachineMemory, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Memory that a waiting reply is charged for beside its bytes.
const WAITING_BYTES: usize = 128;
/// Marks the ids of calls with THeader; the bit above it marks calls without a reply.
const HEADED: CallId = 1 << 30;
/// Mask for the ids of calls whose replies are ordered.
const ORDERED: CallId = HEADED - 1;

/// State machine of a server connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    frames: Frames,
    /// Cache of methods by the names that callers used.
    methods: HashMap<Box<[u8]>, Found>,
    /// Calls whose replies are ordered, beginning with the oldest pending one.
    ordered: VecDeque<Ordered>,
    /// Id of the first of them.
    first: CallId,
    /// Bytes that their entries refer to.
    ordered_bytes: usize,
    /// Calls with THeader, whose replies are sent when they are ready.
    headed: PendingCalls<Caller>,
    /// Bytes of replies that wait for earlier ones.
    unsent_response_bytes: usize,
    refusing: bool,
}

/// Fields that the reply to a call needs.
#[derive(Debug)]
struct Caller {
    name: Name,
    sequence: i32,
    form: Form,
    framed: bool,
    /// Header of the reply frame.
    header: Option<Box<Header>>,
}

/// A call whose reply is ordered.
#[derive(Debug)]
struct Ordered {
    caller: Caller,
    /// The reply, if it waits for earlier ones; `None` while the handler runs.
    reply: Option<(Kind, Bytes)>,
}

/// Method name in a reply: that of the request, without the service.
#[derive(Debug)]
enum Name {
    Known(&'static str),
    Other(Box<[u8]>),
}

impl Name {
    fn bytes(&self) -> &[u8] {
        match self {
            Name::Known(name) => name.as_bytes(),
            Name::Other(name) => name,
        }
    }
}

impl Server {
    /// Creates the state machine of a newly accepted connection.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            frames: Frames::default(),
            methods: HashMap::new(),
            ordered: VecDeque::new(),
            first: 0,
            ordered_bytes: 0,
            headed: PendingCalls::default(),
            unsent_response_bytes: 0,
            refusing: false,
        }
    }

    /// Returns the largest struct of a request, in bytes.
    fn body_max(&self) -> usize {
        self.table.largest_message(self.limits.message_bytes_max) as usize
    }

    /// Ends the connection, with an error response if the bytes name a call.
    fn broken(&self, broken: Broken, input: &Input, out: &mut Outbox) -> Fatal {
        let framed = self.framed();
        let (text, status, at) = match broken {
            Broken::Header(frame, Refused::Protocol(number)) => {
                return unreadable(&frame, INVALID_PROTOCOL, Refused::Protocol(number).to_string(), out);
            }
            Broken::Header(frame, Refused::Transform(number)) => {
                return unreadable(&frame, INVALID_TRANSFORM, Refused::Transform(number).to_string(), out);
            }
            Broken::Header(_, Refused::Malformed(malformed)) => return fatal(malformed),
            Broken::TooLarge(len) => {
                let max = self.body_max();
                let text = format!("a frame of {len} bytes is over the limit of {max} (message_bytes_max)");
                (text.clone(), Status::resource_exhausted(text), 4)
            }
            Broken::Malformed(malformed) if framed => return fatal(malformed),
            Broken::Malformed(malformed) => {
                (malformed.to_string(), Status::invalid_argument(malformed.to_string()), 0)
            }
        };
        let message = input.rest().get(at..).unwrap_or_default();
        let begins = framed || matches!(message.first(), Some(&0x80 | &COMPACT));
        if let Ok(Some(head)) = Head::read(message)
            && head.kind == Kind::Call
            && begins
        {
            let name = Name::Other(bare(head.name).into());
            let body = exception::write(&status);
            write(&name, head.sequence, head.form, framed, None, Kind::Exception, Outgoing::Lent(&body), out);
        }
        Fatal(text)
    }

    fn framed(&self) -> bool {
        self.frames.framed() == Some(true)
    }

    /// Processes a complete message: starts a call or rejects it.
    fn message(&mut self, unit: Unit, out: &mut Outbox) -> Result<ServerEvent, Fatal> {
        let Unit { message, header } = unit;
        let head = Head::read(&message).map_err(fatal)?;
        let Some(head) = head else { return Err(fatal(Malformed::cut_short())) };
        let body = message.slice(head.len..);
        let max = self.body_max();
        let headers = header.as_ref().map_or(0, |header| header.metadata.encoded_len());
        let started = match head.kind {
            Kind::Call | Kind::Oneway if headers > self.limits.metadata_bytes_max as usize => {
                let max = self.limits.metadata_bytes_max;
                let text =
                    format!("{headers} bytes of headers are over the limit of {max} (metadata_bytes_max)");
                Err(Rejection::Refused(None, Status::resource_exhausted(text)))
            }
            Kind::Call | Kind::Oneway => self.begin(&head, &body, max),
            Kind::Reply | Kind::Exception => Err(Rejection::NotARequest),
        };
        let (found, body) = match started {
            Ok((found, body)) => (Some(found), Ok(body)),
            Err(Rejection::Refused(method, status)) => {
                (method.map(Found::from), Err(exception::write(&status)))
            }
            Err(Rejection::NotARequest) => {
                let text = "a server accepts calls, not replies";
                (None, Err(exception::write_parts(text, INVALID_MESSAGE_TYPE)))
            }
        };
        let info = found.as_ref().map(|found| self.table.info(found.method));
        let name = match info {
            Some(info) if info.name.as_bytes() == bare(head.name) => Name::Known(info.name),
            _ => Name::Other(bare(head.name).into()),
        };
        let oneway = head.kind == Kind::Oneway || info.is_some_and(|info| info.oneway);
        let (sequence, form) = (head.sequence, head.form);
        let (metadata, header) = match header {
            None => (Metadata::new(), None),
            Some(mut header) => {
                let metadata = std::mem::take(&mut header.metadata);
                header.flags = 0;
                (metadata, Some(Box::new(header)))
            }
        };
        let caller = Caller { name, sequence, form, framed: self.framed(), header };
        let id = match oneway {
            true => self.headed.unanswered(),
            false => self.enter(caller),
        };
        match (found, body) {
            (Some(Found { method, undeclared_name }), Ok(body)) => {
                let timeout = metadata.text(header::TIMEOUT).and_then(|text| text.parse().ok());
                let head = crate::wire::Head {
                    method,
                    undeclared_name,
                    codec: Codec::Thrift,
                    encoding: Encoding::Identity,
                    replies: Encoding::Identity,
                    timeout: timeout.filter(|ms| *ms > 0).map(Duration::from_millis),
                    metadata,
                    oneway,
                };
                Ok(ServerEvent::Open { id, head, first: Some(body), compressed: false, more: false })
            }
            (_, body) => {
                let body = body.err().unwrap_or_default();
                self.finish(id, Kind::Exception, Outgoing::Lent(&body), out);
                Ok(ServerEvent::Handled)
            }
        }
    }

    /// Finds the method, and its arguments in the binary protocol.
    fn begin(&mut self, head: &Head<'_>, body: &Bytes, max: usize) -> Result<(Found, Bytes), Rejection> {
        let found = self.find(head.name).map_err(|status| Rejection::Refused(None, status))?;
        let method = found.method;
        if self.refusing {
            let status = Status::unavailable("the server is going away");
            return Err(Rejection::Refused(Some(method), status.with_retry(crate::Retry::Safe)));
        }
        match self.arguments(head, body, max, method) {
            Ok(body) => Ok((found, body)),
            Err(status) => match self.table.refuse_call(&found, method::Kind::Unary, status) {
                // An empty struct.
                Ok(refused) => Ok((refused, Bytes::from_static(&[0]))),
                Err(status) => Err(Rejection::Refused(Some(method), status)),
            },
        }
    }

    /// Returns the arguments of a call in the binary protocol.
    fn arguments(
        &self,
        head: &Head<'_>,
        body: &Bytes,
        max: usize,
        method: MethodId,
    ) -> Result<Bytes, Status> {
        if self.table.info(method).kind != method::Kind::Unary {
            return Err(Status::unimplemented(format!(
                "{} streams, which Thrift cannot carry; native, gRPC and Connect can",
                self.table.full_name(method)
            )));
        }
        let body: Bytes = match head.form.encoded() {
            Encoded::Binary => body.clone(),
            Encoded::Compact => transcode::to_binary(body, max)
                .map_err(|malformed| Status::invalid_argument(malformed.to_string()))?
                .0
                .into(),
        };
        let general = self.limits.message_bytes_max;
        if body.len() > self.table.message_bytes_max(method, general) as usize {
            let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
            return Err(self.table.too_large(method, bytes, general));
        }
        Ok(body)
    }

    fn find(&mut self, name: &[u8]) -> Result<Found, Status> {
        if let Some(found) = self.methods.get(name) {
            return Ok(found.clone());
        }
        let found = names::find(&self.table, name)?;
        if !found.is_refused() && self.methods.len() < usize::from(self.limits.methods_max) {
            self.methods.insert(name.into(), found.clone());
        }
        Ok(found)
    }

    /// Stores the fields that the reply needs, and returns the id of the call.
    fn enter(&mut self, caller: Caller) -> CallId {
        if caller.header.is_some() {
            return HEADED | self.headed.enter(caller);
        }
        let id = self.first.wrapping_add(self.ordered.len() as u32) & ORDERED;
        self.ordered_bytes += caller.bytes();
        self.ordered.push_back(Ordered { caller, reply: None });
        id
    }

    /// Ends a call; its reply is sent if all replies before it have been sent.
    fn finish(&mut self, id: CallId, kind: Kind, body: Outgoing<'_>, out: &mut Outbox) {
        match id & !ORDERED {
            0 => {}
            HEADED => {
                if let Some(caller) = self.headed.leave(id & ORDERED) {
                    caller.write(kind, body, out);
                }
                return;
            }
            _ => return,
        }
        let at = (id.wrapping_sub(self.first) & ORDERED) as usize;
        let Some(call) = self.ordered.get_mut(at).filter(|call| call.reply.is_none()) else { return };
        if at > 0 {
            self.unsent_response_bytes += waiting_bytes(&call.caller, body.len());
            call.reply = Some((kind, body.to_bytes()));
            return;
        }
        call.caller.write(kind, body, out);
        self.pop();
        while let Some(Ordered { caller, reply: Some((kind, body)) }) = self.ordered.front() {
            self.unsent_response_bytes -= waiting_bytes(caller, body.len());
            caller.write(*kind, body.into(), out);
            self.pop();
        }
        if self.ordered.is_empty() && self.ordered.capacity() > 1024 {
            self.ordered = VecDeque::new();
        }
    }

    /// Removes the entry of the oldest call.
    fn pop(&mut self) {
        if let Some(call) = self.ordered.pop_front() {
            self.ordered_bytes -= call.caller.bytes();
            self.first = self.first.wrapping_add(1) & ORDERED;
        }
    }
}

/// Memory charged for a waiting reply, in bytes.
fn waiting_bytes(caller: &Caller, body: usize) -> usize {
    WAITING_BYTES + caller.bytes() + body
}

/// Reason why a message starts no call.
enum Rejection {
    Refused(Option<MethodId>, Status),
    /// The body is not a valid request.
    NotARequest,
}

impl Caller {
    fn write(&self, kind: Kind, body: Outgoing<'_>, out: &mut Outbox) {
        let Caller { name, sequence, form, framed, header } = self;
        write(name, *sequence, *form, *framed, header.as_deref(), kind, body, out);
    }
}

impl Entry for Caller {
    #[inline]
    fn bytes(&self) -> usize {
        let name = if let Name::Other(name) = &self.name { name.len() } else { 0 };
        name + self.header.as_ref().map_or(0, |_| size_of::<Header>())
    }
}

/// Writes a message with this struct of the binary protocol.
#[expect(clippy::too_many_arguments, reason = "a message has this many parts")]
fn write(
    name: &Name,
    sequence: i32,
    form: Form,
    framed: bool,
    header: Option<&Header>,
    kind: Kind,
    body: Outgoing<'_>,
    out: &mut Outbox,
) {
    let mut kind = kind;
    let compact = match form.encoded() {
        Encoded::Binary => None,
        Encoded::Compact => Some(match transcode::to_compact(&body) {
            Ok((compact, _)) => Bytes::from(compact),
            Err(malformed) => {
                kind = Kind::Exception;
                let text = format!("the result is not a Thrift struct: {malformed}");
                let body = exception::write(&Status::internal(text));
                transcode::to_compact(&body).map(|(compact, _)| compact).unwrap_or_default().into()
            }
        }),
    };
    let body = compact.as_ref().map_or(body, Outgoing::from);
    let head = Head { form, kind, name: name.bytes(), sequence, len: 0 };
    let Some(header) = header else { return head.put(framed, body, out) };
    let mut message = Vec::with_capacity(32 + name.bytes().len() + body.len());
    head.write(&mut message);
    message.extend_from_slice(&body);
    let mut frame = Vec::with_capacity(message.len() + 64);
    header.write(&message, &mut frame);
    out.put(&frame.into());
}

/// Responds to a frame of which only the number is readable, and ends the connection.
fn unreadable(frame: &[u8], number: i32, text: String, out: &mut Outbox) -> Fatal {
    if let Some(sequence) = frame.get(4..8).and_then(|bytes| bytes.first_chunk()) {
        let sequence = u32::from_be_bytes(*sequence);
        let encoded = Encoded::Binary;
        let header = Header { sequence, flags: 0, encoded, zlib: false, metadata: Metadata::new() };
        let body = exception::write_parts(&text, number);
        let (name, form) = (Name::Known(""), Form::Strict);
        write(&name, sequence as i32, form, true, Some(&header), Kind::Exception, Outgoing::Lent(&body), out);
    }
    Fatal(text)
}

/// Returns the method name without the service.
fn bare(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|byte| *byte == b':') {
        Some(at) => &name[at + 1..],
        None => name,
    }
}

fn fatal(malformed: Malformed) -> Fatal {
    Fatal(malformed.0.into_owned())
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "thrift"
    }

    /// Fast path for framed messages in strict binary to methods that were called before.
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        if !self.framed() || self.refusing || self.table.has_limits() {
            return None;
        }
        let rest = input.rest();
        let len = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let message = rest.get(4..4usize.checked_add(len)?).filter(|message| message.starts_with(&STRICT))?;
        let head = Head::read(message).ok()??;
        let Found { method, undeclared_name: None } = *self.methods.get(head.name)? else { return None };
        let info = self.table.info(method);
        let plain = head.kind == Kind::Call && info.kind == method::Kind::Unary && !info.oneway;
        if !plain || bare(head.name) != info.name.as_bytes() || len - head.len > self.body_max() {
            return None;
        }
        let (sequence, form, head_len) = (head.sequence, head.form, head.len);
        let name = Name::Known(info.name);
        let id = self.enter(Caller { name, sequence, form, framed: true, header: None });
        input.skip(4 + head_len);
        let (codec, replies) = (Codec::Thrift, Encoding::Identity);
        Some(Opened { id, method, codec, replies, timeout: None, len: len - head_len })
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        match self.frames.next(input, self.body_max(), &self.limits) {
            Ok(None) => Ok(None),
            Ok(Some(unit)) => self.message(unit, out).map(Some),
            Err(broken) => Err(self.broken(broken, input, out)),
        }
    }

    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        self.finish(id, Kind::Reply, item, out);
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, _out: &mut Outbox) {
        if id & !ORDERED == HEADED
            && let Some(header) = self.headed.get_mut(id & ORDERED).and_then(|caller| caller.header.as_mut())
        {
            header.metadata.extend(metadata.clone());
        }
    }

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

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        match end {
            // An empty struct, for a method that ended without a reply.
            Ok(_) => self.finish(id, Kind::Reply, Outgoing::Lent(&[0]), out),
            Err(status) => {
                self.head(id, status.metadata(), out);
                self.finish(id, Kind::Exception, Outgoing::Lent(&exception::write(status)), out);
            }
        }
    }

    fn refuse(&mut self) {
        self.refusing = true;
    }

    fn unsent_response_bytes(&self) -> usize {
        self.unsent_response_bytes
    }

    fn memory(&self) -> MachineMemory {
        let ordered = self.ordered.len() * size_of::<Ordered>() + self.ordered_bytes;
        let MachineMemory { calls, bytes } = self.headed.memory();
        MachineMemory { calls: calls + self.ordered.len(), bytes: bytes + ordered }
    }
}
