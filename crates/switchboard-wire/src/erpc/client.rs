//! The client side of an erpc connection.

use super::{
    HEAD_BYTES_MAX, NAME_BYTES_MAX, QUERY_BYTES_MAX, error,
    frames::{Frame, Frames, Next},
    framing::Framing,
    message::{Message, SUCCESS, codec, kind},
    metadata,
    names::Names,
};
use crate::{
    Codec, Fatal, Input, Limits, Origin, Outbox, Outgoing, SchemaId, Status, foreign,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Encoding, Open, Push, no_streams},
};
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;

/// Bytes of unwritten output from which the client no longer responds to calls of the server.
const ANSWERS_MAX: usize = 512 << 10;
/// Largest body that servers in Go accept by default, in bytes.
const PEER_BYTES_MAX: u32 = (1 << 30) - HEAD_BYTES_MAX as u32;

/// Protocol settings of a client; the server must use the same framing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// The socket protocol.
    pub framing: Framing,
    /// Sends every message, and so receives every reply, through the gzip filter. The server must register it under the
    /// id `g`.
    pub gzip: bool,
    /// Form in which method names are sent.
    pub names: Names,
    /// Route group of the methods: `v1` for `/v1/page/test`.
    pub prefix: String,
}

/// State machine of a client connection.
///
/// The sequence of a message is the id of the call plus 1, as erpc begins with 1. eRPC has no cancel: the reply to an
/// abandoned call arrives, and until then its id is reserved.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    settings: Settings,
    frames: Frames,
    /// Names of methods by number.
    methods: Vec<Bytes>,
    /// Event that follows the metadata of a reply.
    next: Option<ClientEvent>,
}

impl Client {
    /// Creates the state machine of a newly opened connection.
    pub fn new(limits: Limits, settings: Settings) -> Client {
        let frames = Frames::new(settings.framing);
        Client { limits, settings, frames, methods: Vec::new(), next: None }
    }

    fn message(&mut self, frame: &Frame, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        let message = frame.framing.read(&frame.payload)?;
        match message.kind {
            kind::REPLY => Ok(Some(self.reply(message))),
            kind::CALL => {
                self.refuse(message.sequence, &message.name, out);
                Ok(None)
            }
            kind::PUSH => Ok(self.push(&message)),
            // The server expects no response to these.
            kind::AUTH_CALL | kind::AUTH_REPLY => Ok(None),
            other => Err(Fatal(format!("an erpc message of kind {other}; kinds are 1 to 5"))),
        }
    }

    fn reply(&mut self, message: Message<'_>) -> ClientEvent {
        let id = id_of(message.sequence);
        let read = metadata::read(&[&message.metadata], &self.limits);
        let metadata = match read.and_then(|metadata| error::read(&message.status, metadata)) {
            Ok(metadata) => metadata,
            Err(status) => return ClientEvent::End { id, end: Err(status) },
        };
        let item = match (message.codec, message.body) {
            (_, body) if body.len() > self.limits.message_bytes_max as usize => {
                return self.too_large(id, body.len());
            }
            // Go encodes nil as an empty body.
            (codec::JSON, body) if body.is_empty() => Bytes::from_static(b"null"),
            (codec::JSON | codec::NONE | codec::PROTO, body) => body,
            (other, _) => {
                let text = format!("a reply has codec {other} of erpc; json and proto are supported");
                return ClientEvent::End {
                    id,
                    end: Err(Status::internal(text).with_origin(Origin::Connection)),
                };
            }
        };
        let reply = ClientEvent::Reply { id, item, compressed: false };
        if metadata.is_empty() {
            return reply;
        }
        self.next = Some(reply);
        ClientEvent::Head { id, metadata }
    }

    /// Reads a push of the server; one that exceeds a limit is dropped.
    fn push(&self, message: &Message<'_>) -> Option<ClientEvent> {
        if message.body.len() > self.limits.message_bytes_max as usize {
            return None;
        }
        let (name, behind) = message.names();
        let metadata = metadata::read(&[&message.metadata, behind], &self.limits).ok()?;
        let path = String::from_utf8_lossy(name.strip_prefix(b"/").unwrap_or(name));
        let known =
            [Codec::Json, Codec::Proto].into_iter().find(|known| codec::id(*known) == Some(message.codec));
        let push = Push::new(path, message.body.clone()).with_metadata(metadata);
        Some(ClientEvent::Push(Box::new(push.with_codec(known.unwrap_or(Codec::Raw)))))
    }

    fn too_large(&self, id: ClientCallId, bytes: usize) -> ClientEvent {
        let max = self.limits.message_bytes_max;
        let text = format!("a reply of {bytes} bytes is over the limit of {max} bytes (message_bytes_max)");
        ClientEvent::End { id, end: Err(Status::resource_exhausted(text)) }
    }

    /// Rejects a call of the server, which would otherwise wait for the response.
    fn refuse(&self, sequence: i32, name: &[u8], out: &mut Outbox) {
        if out.len() > ANSWERS_MAX {
            return;
        }
        let name = String::from_utf8_lossy(name);
        let text = format!("unknown method {name}: a client of Switchboard has none");
        let (status, metadata) = error::write(&Status::unimplemented(text));
        let message = Message {
            sequence,
            kind: kind::REPLY,
            status: Cow::Borrowed(&status),
            metadata: Cow::Borrowed(&metadata),
            ..Message::default()
        };
        self.settings.framing.put(&message, false, out);
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "erpc"
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Reserved
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let name = self.settings.names.write(name, &self.settings.prefix);
        let place = usize::from(number);
        if self.methods.len() <= place {
            self.methods.resize(place + 1, Bytes::new());
        }
        self.methods[place] = name.into();
    }

    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let (Some(first), false) = (first, open.more) else { return Err(no_streams(self.name())) };
        let codec = codec::id(open.codec).ok_or_else(|| {
            Status::unimplemented(format!("codec {} is not supported on erpc; use json or proto", open.codec))
        })?;
        let name = self.methods.get(usize::from(open.method)).map_or(&[][..], |name| name);
        if name.len() > NAME_BYTES_MAX {
            let (len, name) = (name.len(), String::from_utf8_lossy(name));
            let text = format!("a name of {len} bytes is over the {NAME_BYTES_MAX} bytes of erpc: {name}");
            return Err(Status::invalid_argument(text));
        }
        foreign::check_size(open.metadata, &self.limits)?;
        let mut metadata = BytesMut::new();
        if let Some(timeout) = open.timeout {
            metadata::put_timeout(&mut metadata, timeout);
        }
        metadata::put(&mut metadata, open.metadata);
        if metadata.len() > QUERY_BYTES_MAX {
            let len = metadata.len();
            let text =
                format!("metadata of {len} bytes with its escapes is over the {QUERY_BYTES_MAX} of erpc");
            return Err(Status::resource_exhausted(text));
        }
        let joined = || first.with(open.rest).into();
        let message = Message {
            sequence: sequence_of(id),
            kind: if open.oneway { kind::PUSH } else { kind::CALL },
            name: Cow::Borrowed(name),
            status: Cow::Borrowed(SUCCESS),
            metadata: Cow::Borrowed(&metadata),
            codec,
            body: if open.rest.is_empty() { first.to_bytes() } else { joined() },
        };
        self.settings.framing.put(&message, self.settings.gzip, out);
        Ok(())
    }

    /// Servers do not report a limit.
    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    /// The filter applies to whole messages, not to single calls.
    fn accepts(&self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity
    }

    fn message_bytes_max(&self) -> u32 {
        PEER_BYTES_MAX
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        if let Some(event) = self.next.take() {
            return Ok(Some(event));
        }
        loop {
            let event = match self.frames.next(input, self.limits.message_bytes_max as usize)? {
                Next::Wait => return Ok(None),
                Next::Frame(frame) => self.message(&frame, out)?,
                Next::TooLarge(large) => match large.glance.kind {
                    kind::REPLY => Some(self.too_large(id_of(large.glance.sequence), large.bytes)),
                    kind::CALL => {
                        self.refuse(large.glance.sequence, &large.glance.name, out);
                        None
                    }
                    _ => None,
                },
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

fn sequence_of(id: ClientCallId) -> i32 {
    (id as u32).wrapping_add(1) as i32
}

fn id_of(sequence: i32) -> ClientCallId {
    (sequence as u32).wrapping_sub(1).into()
}
