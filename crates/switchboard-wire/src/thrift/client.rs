//! The client's side of a connection.
//!
//! The number of a call is its sequence number. Servers that answer in order and those that answer as they are ready
//! are the same to it.

use super::{
    Encoded, Framing, Malformed, exception,
    frames::{Broken, Frames, Unit},
    header::{self, Header},
    message::{Form, Head, Kind, STRICT},
    transcode,
};
use crate::{
    Codec, Fatal, Input, Limits, Metadata, Outbox, Outgoing, SchemaId, Status,
    wire::{CallId, ClientEvent, ClientWire, Encoding, Open, no_streams},
};
use bytes::Bytes;

/// What a frame of Thrift can hold; servers have limits of their own, of 16 MB mostly, and do not tell.
const MESSAGE_BYTES_MAX: u32 = i32::MAX as u32;

/// How a client speaks; the server has to be told the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// What separates messages.
    pub framing: Framing,
    /// How they are written.
    pub encoded: Encoded,
    /// Methods are called `Service:method`, for a `TMultiplexedProcessor`.
    pub multiplexed: bool,
    /// What goes inside THeader is compressed.
    pub zlib: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { framing: Framing::Framed, encoded: Encoded::Binary, multiplexed: false, zlib: false }
    }
}

/// The machine of a connection.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    settings: Settings,
    frames: Frames,
    /// By their numbers.
    methods: Vec<Box<str>>,
    /// What comes behind the metadata of a reply.
    next: Option<ClientEvent>,
}

impl Client {
    /// A connection that was just opened.
    pub fn new(limits: Limits, settings: Settings) -> Client {
        let frames = Frames::new(settings.framing != Framing::Unframed);
        Client { limits, settings, frames, methods: Vec::new(), next: None }
    }

    fn unit(&mut self, unit: Unit) -> Result<ClientEvent, Fatal> {
        let Unit { message, header } = unit;
        let Some(head) = Head::read(&message).map_err(fatal)? else {
            return Err(fatal(Malformed::cut_short()));
        };
        let id = head.sequence as CallId;
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
            // The reply is worth more than what came beside it.
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

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "thrift"
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let (service, method) = name.split_once('/').unwrap_or(("", name));
        let service = service.rsplit('.').next().unwrap_or(service);
        let name = if self.settings.multiplexed { format!("{service}:{method}") } else { method.to_owned() };
        let at = usize::from(number);
        if self.methods.len() <= at {
            self.methods.resize(at + 1, Box::default());
        }
        self.methods[at] = name.into();
    }

    fn open(
        &mut self,
        id: CallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        if open.more {
            return Err(no_streams(self.name()));
        }
        if open.codec != Codec::Thrift {
            let text = format!(
                "Thrift carries messages of .thrift files, written as thrift and not as {}",
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
            let text = format!("a request of {} bytes is more than Thrift can frame", body.len());
            return Err(Status::resource_exhausted(text));
        }
        let compact = match self.settings.encoded {
            Encoded::Binary => None,
            Encoded::Compact => {
                let refused =
                    |malformed| Status::internal(format!("a request that is no struct: {malformed}"));
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
                let mut metadata = open.metadata.clone();
                if let Some(timeout) = open.timeout {
                    // Rounded up, so that the server does not give up before its caller.
                    let ms = timeout.as_nanos().div_ceil(1_000_000);
                    metadata.remove(header::TIMEOUT);
                    metadata.insert(header::TIMEOUT, ms.to_string())?;
                }
                let bytes = metadata.encoded_len();
                if bytes > self.limits.metadata_bytes_max as usize {
                    let max = self.limits.metadata_bytes_max;
                    let text =
                        format!("{bytes} bytes of metadata are over the limit of {max} (metadata_bytes_max)");
                    return Err(Status::resource_exhausted(text));
                }
                let (encoded, zlib) = (self.settings.encoded, self.settings.zlib);
                let header = Header { sequence: id, flags: 0, encoded, zlib, metadata };
                let mut message = Vec::with_capacity(32 + name.len() + body.len());
                head.write(&mut message);
                message.extend_from_slice(&body);
                let mut frame = Vec::with_capacity(message.len() + 64);
                header.write(&message, &mut frame);
                out.put(&frame.into());
            }
        }
        Ok(())
    }

    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    fn methods_max(&self) -> u16 {
        self.limits.methods_max
    }

    fn takes(&self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity
    }

    fn message_bytes_max(&self) -> u32 {
        MESSAGE_BYTES_MAX
    }

    /// Framed messages in strict binary.
    fn next_reply(&mut self, input: &mut Input) -> Option<(CallId, usize)> {
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
        let (id, head_len) = (head.sequence as CallId, head.len);
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

fn fatal(malformed: Malformed) -> Fatal {
    Fatal(malformed.0.into_owned())
}
