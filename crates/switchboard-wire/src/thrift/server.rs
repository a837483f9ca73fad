//! The server's side of a connection.
//!
//! Clients of Thrift read replies in the order of their requests, so a reply that is ready early waits for those before
//! it. Only those behind THeader, which match replies by number, get them as they are ready. The number is nothing but
//! an echo: many clients send 0 with every call.

use super::{
    Encoded, Malformed,
    exception::{self, INVALID_MESSAGE_TYPE, INVALID_PROTOCOL, INVALID_TRANSFORM},
    frames::{Broken, Frames, Unit},
    header::{self, Header, Refused},
    message::{COMPACT, Form, Head, Kind, STRICT},
    names, transcode,
};
use crate::{
    Codec, Fatal, Input, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Status, method,
    wire::{CallId, Encoding, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// What a reply that waits costs beside its bytes.
const WAITING_BYTES: usize = 128;

/// The machine of a connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    frames: Frames,
    /// Methods by the names that callers used.
    methods: HashMap<Box<[u8]>, MethodId>,
    /// Requests from the oldest that is not answered, and those behind it.
    pending: VecDeque<Pending>,
    /// The number of the first of them.
    first: CallId,
    /// Bytes of replies that wait for earlier ones.
    held: usize,
    refusing: bool,
}

#[derive(Debug)]
struct Pending {
    name: Name,
    sequence: i32,
    form: Form,
    framed: bool,
    /// What the frame of the reply is to say.
    header: Option<Box<Header>>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The handler has it.
    Waiting,
    /// The reply waits for those before it.
    Done(Kind, Bytes),
    /// Nothing follows.
    Over,
}

/// The name in a reply: that of the request, without the service.
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
    /// A connection on which nothing was said.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            limits,
            table,
            frames: Frames::default(),
            methods: HashMap::new(),
            pending: VecDeque::new(),
            first: 0,
            held: 0,
            refusing: false,
        }
    }

    /// Largest struct of a request.
    fn body_max(&self) -> usize {
        self.table.largest_message(self.limits.message_bytes_max) as usize
    }

    /// Says why the connection ends, where the bytes name a call to answer.
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

    /// Looks at a whole message: begins a call or answers it.
    fn message(&mut self, unit: Unit, out: &mut Outbox) -> Result<ServerEvent, Fatal> {
        let Unit { message, header } = unit;
        let head = Head::read(&message).map_err(fatal)?;
        let Some(head) = head else { return Err(fatal(Malformed::cut_short())) };
        let body = message.slice(head.len..);
        let max = self.body_max();
        let headers = header.as_ref().map_or(0, |header| header.metadata.encoded_len());
        let begun = match head.kind {
            Kind::Call | Kind::Oneway if headers > self.limits.metadata_bytes_max as usize => {
                let max = self.limits.metadata_bytes_max;
                let text =
                    format!("{headers} bytes of headers are over the limit of {max} (metadata_bytes_max)");
                Err(Begun::Refused(None, Status::resource_exhausted(text)))
            }
            Kind::Call | Kind::Oneway => self.begin(&head, &body, max),
            Kind::Reply | Kind::Exception => Err(Begun::Wrong),
        };
        let (method, body) = match begun {
            Ok((method, body)) => (Some(method), Ok(body)),
            Err(Begun::Refused(method, status)) => (method, Err(exception::write(&status))),
            Err(Begun::Wrong) => {
                let text = "a server takes calls, no replies";
                (None, Err(exception::write_parts(text, INVALID_MESSAGE_TYPE)))
            }
        };
        let info = method.map(|method| self.table.info(method));
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
        let state = if oneway { State::Over } else { State::Waiting };
        let framed = self.framed();
        let id = self.first.wrapping_add(self.pending.len() as u32);
        self.pending.push_back(Pending { name, sequence, form, framed, header, state });
        match (method, body) {
            (Some(method), Ok(body)) => {
                let timeout = metadata.text(header::TIMEOUT).and_then(|text| text.parse().ok());
                let head = crate::wire::Head {
                    method,
                    codec: Codec::Thrift,
                    encoding: Encoding::Identity,
                    timeout: timeout.filter(|ms| *ms > 0).map(Duration::from_millis),
                    metadata,
                    oneway,
                };
                self.advance(out);
                Ok(ServerEvent::Open { id, head, first: Some(body), compressed: false, more: false })
            }
            (_, body) => {
                let body = body.err().unwrap_or_default();
                self.finish(id, Kind::Exception, Outgoing::Lent(&body), out);
                self.advance(out);
                Ok(ServerEvent::Handled)
            }
        }
    }

    /// Finds the method, and its arguments in the binary protocol.
    fn begin(&mut self, head: &Head<'_>, body: &Bytes, max: usize) -> Result<(MethodId, Bytes), Begun> {
        let method = self.find(head.name).map_err(|status| Begun::Refused(None, status))?;
        let refused = |status| Begun::Refused(Some(method), status);
        if self.refusing {
            let status = Status::unavailable("the server is going away");
            return Err(refused(status.with_retry(crate::Retry::Safe)));
        }
        let info = self.table.info(method);
        if info.kind != method::Kind::Unary {
            return Err(refused(Status::unimplemented(format!(
                "{} streams, which Thrift cannot carry; native, gRPC and Connect can",
                self.table.full_name(method)
            ))));
        }
        let body = match head.form.encoded() {
            Encoded::Binary => body.clone(),
            Encoded::Compact => transcode::to_binary(body, max)
                .map_err(|malformed| refused(Status::invalid_argument(malformed.to_string())))?
                .0
                .into(),
        };
        if body.len() > self.table.message_bytes_max(method, self.limits.message_bytes_max) as usize {
            let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
            return Err(refused(self.table.too_large(method, bytes, self.limits.message_bytes_max)));
        }
        Ok((method, body))
    }

    fn find(&mut self, name: &[u8]) -> Result<MethodId, Status> {
        if let Some(method) = self.methods.get(name) {
            return Ok(*method);
        }
        let method = names::find(&self.table, name)?;
        if self.methods.len() < usize::from(self.limits.methods_max) {
            self.methods.insert(name.into(), method);
        }
        Ok(method)
    }

    /// Ends a call; its reply goes out if it is its turn.
    fn finish(&mut self, id: CallId, kind: Kind, body: Outgoing<'_>, out: &mut Outbox) {
        let at = id.wrapping_sub(self.first) as usize;
        let Some(pending) = self.pending.get_mut(at) else { return };
        if !matches!(pending.state, State::Waiting) {
            return;
        }
        if at == 0 || pending.header.is_some() {
            pending.write(kind, body, out);
            pending.state = State::Over;
        } else {
            self.held += body.len() + WAITING_BYTES;
            pending.state = State::Done(kind, body.to_bytes());
        }
        self.advance(out);
    }

    /// Writes the replies whose turn it is.
    fn advance(&mut self, out: &mut Outbox) {
        while let Some(pending) = self.pending.front() {
            match &pending.state {
                State::Waiting => return,
                State::Over => {}
                State::Done(kind, body) => {
                    self.held -= body.len() + WAITING_BYTES;
                    pending.write(*kind, body.into(), out);
                }
            }
            self.pending.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        if self.pending.capacity() > 1024 {
            self.pending = VecDeque::new();
        }
    }
}

/// Why a message begins no call.
enum Begun {
    Refused(Option<MethodId>, Status),
    /// It is no request.
    Wrong,
}

impl Pending {
    fn write(&self, kind: Kind, body: Outgoing<'_>, out: &mut Outbox) {
        let Pending { name, sequence, form, framed, header, .. } = self;
        write(name, *sequence, *form, *framed, header.as_deref(), kind, body, out);
    }
}

/// Writes a message with this struct of the binary protocol.
#[expect(clippy::too_many_arguments, reason = "one message, and all that is around it")]
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
                let text = format!("the result is no struct of Thrift: {malformed}");
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

/// Answers a frame of which nothing but the number is known, and ends the connection.
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

/// The name of the method behind that of the service.
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

    /// Framed messages in strict binary to methods that were called before.
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        if !self.framed() || self.refusing || self.table.has_limits() {
            return None;
        }
        let rest = input.rest();
        let len = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let message = rest.get(4..4usize.checked_add(len)?).filter(|message| message.starts_with(&STRICT))?;
        let head = Head::read(message).ok()??;
        let method = *self.methods.get(head.name)?;
        let info = self.table.info(method);
        let plain = head.kind == Kind::Call && info.kind == method::Kind::Unary && !info.oneway;
        if !plain || bare(head.name) != info.name.as_bytes() || len - head.len > self.body_max() {
            return None;
        }
        let (sequence, form, head_len) = (head.sequence, head.form, head.len);
        let id = self.first.wrapping_add(self.pending.len() as u32);
        let (name, state) = (Name::Known(info.name), State::Waiting);
        self.pending.push_back(Pending { name, sequence, form, framed: true, header: None, state });
        input.skip(4 + head_len);
        Some(Opened { id, method, codec: Codec::Thrift, timeout: None, len: len - head_len })
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
        let at = id.wrapping_sub(self.first) as usize;
        if let Some(header) = self.pending.get_mut(at).and_then(|pending| pending.header.as_mut()) {
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
            // An empty struct, should a method have ended without a word.
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

    fn held(&self) -> usize {
        self.held
    }
}
