//! The client side of a connection.
//!
//! The id of a call is its sequence number, so that replies may come in any order. Thrift has no cancel: the id of an
//! abandoned call stays reserved until its reply comes. The method name in a reply must be that of the call.

use super::{
    Encoded, Framing, Malformed, exception,
    frames::{Broken, Frames, Unit},
    header::{self, Header},
    message::{Form, Head, Kind, STRICT},
    transcode,
};
use crate::{
    Codec, Fatal, Input, Limits, Metadata, Origin, Outbox, Outgoing, SchemaId, Status,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Encoding, Open, no_streams},
};
use bytes::Bytes;
use std::{collections::HashMap, sync::Arc};

/// Largest message that fits in a Thrift frame. Servers have lower limits, usually 16 MB, and do not report them.
const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;

/// Protocol settings of a client; the server must use the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Separation of messages.
    pub framing: Framing,
    /// Encoding of messages.
    pub encoded: Encoded,
    /// Calls methods as `Service:method`, for a `TMultiplexedProcessor`.
    pub multiplexed: bool,
    /// Compresses the payload of THeader.
    pub zlib: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { framing: Framing::Framed, encoded: Encoded::Binary, multiplexed: false, zlib: false }
    }
}

/// State machine of a client connection.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    settings: Settings,
    frames: Frames,
    /// Names of methods by number.
    methods: Vec<Arc<str>>,
    /// Name of the method of each call whose reply is pending: its number may be assigned to another method by then.
    /// Bounded by the driver: calls in flight, and those with a reserved id.
    calls: HashMap<ClientCallId, Arc<str>>,
    /// Event that follows the metadata of a reply.
    next: Option<ClientEvent>,
}

impl Client {
    /// Creates the state machine of a newly opened connection.
    pub fn new(limits: Limits, settings: Settings) -> Client {
        let frames = Frames::new(settings.framing != Framing::Unframed);
        Client { limits, settings, frames, methods: Vec::new(), calls: HashMap::new(), next: None }
    }

    fn unit(&mut self, unit: Unit) -> Result<ClientEvent, Fatal> {
        let Unit { message, header } = unit;
        let Some(head) = Head::read(&message).map_err(fatal)? else {
            return Err(fatal(Malformed::cut_short()));
        };
        let id = id_of(head.sequence);
        let checked = self.check_method(id, head.name);
        self.calls.remove(&id);
        if let Err(status) = checked {
            return Ok(ClientEvent::End { id, end: Err(status) });
        }
        let body = message.slice(head.len..);
        let body = match head.form.encoded() {
            Encoded::Binary => Ok(body),
            Encoded::Compact => {
                let max = self.limits.message_bytes_max as usize;
                transcode::to_binary(&body, max).map(|(body, _)| Bytes::from(body))
            }
        };
        let mut metadata = header.map(|header| header.metadata).unwrap_or_default();
        if metadata.encoded_len() > self.limits.metadata_bytes_max as usize {
            // The reply is delivered without metadata that exceeds the limits.
            metadata = Metadata::new();
        }
        let event = match (head.kind, body) {
            (Kind::Reply, Ok(item)) => ClientEvent::Reply { id, item, compressed: false },
            (Kind::Exception, body) => {
                let status = body.and_then(|body| exception::read(&body)).unwrap_or_else(|malformed| {
                    Status::internal(format!("an exception that cannot be read: {malformed}"))
                });
                return Ok(ClientEvent::End { id, end: Err(status.with_metadata(metadata)) });
            }
            (Kind::Reply, Err(malformed)) => {
                let text = format!("a reply that cannot be read: {malformed}");
                ClientEvent::End { id, end: Err(Status::internal(text)) }
            }
            (Kind::Call | Kind::Oneway, _) => return Err(Fatal("the server sent a call".into())),
        };
        if metadata.is_empty() {
            return Ok(event);
        }
        self.next = Some(event);
        Ok(ClientEvent::Head { id, metadata })
    }
}

impl Client {
    /// Checks that the method named in a reply is that of its call. Servers behind a `TMultiplexedProcessor` leave the
    /// service out, and some leave the name empty.
    fn check_method(&self, id: ClientCallId, named: &[u8]) -> Result<(), Status> {
        let Some(called) = self.calls.get(&id).map(|name| &**name) else { return Ok(()) };
        let short = called.rsplit_once(':').map_or(called, |(_, method)| method);
        if named.is_empty() || named == called.as_bytes() || named == short.as_bytes() {
            return Ok(());
        }
        let text = format!(
            "the reply with the sequence number {id} names the method {:?}, but its call is of {called:?}",
            String::from_utf8_lossy(named)
        );
        Err(Status::internal(text).with_origin(Origin::Connection))
    }

    /// Returns the metadata of a call with its timeout, for a frame of the header transport.
    fn header_metadata(&self, open: &Open<'_>) -> Result<Metadata, Status> {
        let mut metadata = open.metadata.clone();
        if let Some(timeout) = open.timeout {
            // Rounded up, so that the deadline of the server is not before that of its caller.
            let ms = timeout.as_nanos().div_ceil(1_000_000);
            metadata.remove(header::TIMEOUT);
            metadata.insert(header::TIMEOUT, ms.to_string())?;
        }
        let (bytes, max) = (metadata.encoded_len(), self.limits.metadata_bytes_max);
        if bytes > max as usize {
            let text = format!("{bytes} bytes of metadata are over the limit of {max} (metadata_bytes_max)");
            return Err(Status::resource_exhausted(text));
        }
        Ok(metadata)
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "thrift"
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Reserved
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let (service, method) = name.split_once('/').unwrap_or(("", name));
        let service = service.rsplit('.').next().unwrap_or(service);
        let name = if self.settings.multiplexed { format!("{service}:{method}") } else { method.to_owned() };
        let at = usize::from(number);
        if self.methods.len() <= at {
            self.methods.resize(at + 1, Arc::from(""));
        }
        self.methods[at] = name.into();
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
        if open.codec != Codec::Thrift {
            let text = format!(
                "codec {} is not supported on Thrift; use thrift with messages of .thrift files",
                open.codec
            );
            return Err(Status::unimplemented(text));
        }
        let name = self.methods.get(usize::from(open.method)).map_or("", |name| name);
        let joined;
        let body = match (first, open.rest) {
            (Some(first), []) => first,
            (first, rest) => {
                joined = first.unwrap_or(Outgoing::EMPTY).with(rest).into();
                Outgoing::Shared(&joined)
            }
        };
        if body.len() > MESSAGE_BYTES_MAX as usize - 2 * super::AROUND_MAX {
            let text = format!("a request of {} bytes is too large for a Thrift frame", body.len());
            return Err(Status::resource_exhausted(text));
        }
        let compact = match self.settings.encoded {
            Encoded::Binary => None,
            Encoded::Compact => {
                let refused =
                    |malformed| Status::internal(format!("the request is not a Thrift struct: {malformed}"));
                Some(Bytes::from(transcode::to_compact(&body).map_err(refused)?.0))
            }
        };
        let body = compact.as_ref().map_or(body, Outgoing::from);
        let form = if compact.is_some() { Form::Compact } else { Form::Strict };
        let kind = if open.oneway { Kind::Oneway } else { Kind::Call };
        let head = Head { form, kind, name: name.as_bytes(), sequence: id as i32, len: 0 };
        match self.settings.framing {
            Framing::Unframed => head.put(false, body, out),
            Framing::Framed => head.put(true, body, out),
            Framing::Header => {
                let (metadata, sequence) = (self.header_metadata(&open)?, id as u32);
                let (encoded, zlib) = (self.settings.encoded, self.settings.zlib);
                let header = Header { sequence, flags: 0, encoded, zlib, metadata };
                let mut message = Vec::with_capacity(32 + name.len() + body.len());
                head.write(&mut message);
                message.extend_from_slice(&body);
                let mut frame = Vec::with_capacity(message.len() + 64);
                header.write(&message, &mut frame);
                out.put(&frame.into());
            }
        }
        if !open.oneway
            && let Some(name) = self.methods.get(usize::from(open.method))
        {
            self.calls.insert(id, name.clone());
        }
        Ok(())
    }

    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    fn methods_max(&self) -> u16 {
        self.limits.methods_max
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity
    }

    fn message_bytes_max(&self) -> u32 {
        MESSAGE_BYTES_MAX
    }

    /// Fast path for framed messages in strict binary.
    fn next_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        if self.frames.framed() != Some(true) || self.next.is_some() {
            return None;
        }
        let rest = input.rest();
        let len = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        let message = rest.get(4..4usize.checked_add(len)?).filter(|message| message.starts_with(&STRICT))?;
        let head = Head::read(message).ok()??;
        if head.kind != Kind::Reply || len - head.len > self.limits.message_bytes_max as usize {
            return None;
        }
        let (id, head_len) = (id_of(head.sequence), head.len);
        // `recv` reports a reply of another method.
        self.check_method(id, head.name).ok()?;
        self.calls.remove(&id);
        input.skip(4 + head_len);
        Some((id, len - head_len))
    }

    fn recv(&mut self, input: &mut Input, _out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        match self.frames.next(input, self.limits.message_bytes_max as usize, &self.limits) {
            Ok(None) => Ok(None),
            Ok(Some(unit)) => self.unit(unit).map(Some),
            Err(Broken::Malformed(malformed)) => Err(fatal(malformed)),
            Err(Broken::Header(_, refused)) => Err(Fatal(refused.to_string())),
            Err(Broken::TooLarge(len)) => {
                let max = self.limits.message_bytes_max;
                let text = format!("a reply of {len} bytes is over the limit of {max} (message_bytes_max)");
                Err(Fatal(text))
            }
        }
    }
}

fn id_of(sequence: i32) -> ClientCallId {
    (sequence as u32).into()
}

fn fatal(malformed: Malformed) -> Fatal {
    Fatal(malformed.0.into_owned())
}
