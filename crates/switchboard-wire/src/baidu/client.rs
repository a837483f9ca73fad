//! The client side of baidu_std.

mod streams;

use super::{
    Layout, PEER_BYTES_MAX, checksum, error, fields,
    frame::{self, Frame, Framer, Payload},
    layout::Sent,
    meta::{Meta, put_nonzero},
    stream::{Settings, WINDOW},
};
use crate::{
    Fatal, Input, Kind, Limits, Origin, Outbox, Outgoing, SchemaId, Status, gzip, proto, snappy,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Codec, Encoding, Open, no_streams},
};
use bytes::Bytes;
use flate2::read::ZlibDecoder;
use std::{
    collections::{HashMap, VecDeque},
    io::Read,
    sync::Arc,
    time::Duration,
};

/// Form in which service names are sent to the server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Names {
    /// `package.Service`, as brpc servers expect.
    #[default]
    Full,
    /// `Service`, as jprotobuf servers and old servers expect.
    Short,
}

/// State machine of a client connection.
///
/// The id of a call is its correlation id, and the id of its stream minus 1. A call without a stream cannot be
/// canceled: its response arrives, and until then no other call has its id. There is no ping.
#[derive(Debug)]
pub struct Client {
    framer: Framer,
    limits: Limits,
    names: Names,
    checksums: bool,
    /// Method indexes, for methods whose schema does not give one.
    indexes: Arc<HashMap<String, u16>>,
    /// Methods by number.
    methods: Vec<Method>,
    /// Streams of the calls that have one.
    streams: streams::Streams,
    /// Events that follow an event from the same frame.
    queued: VecDeque<ClientEvent>,
    /// Calls were sent in JSON. Each reply then declares its codec, since servers may reply in protobuf.
    json: bool,
}

/// A method that has a number.
#[derive(Clone, Debug, Default)]
struct Method {
    /// `package.Service/Method`.
    name: Box<str>,
    /// Encoded request fields that name the method.
    named: Bytes,
    /// Index of the method in its service, if known.
    index: Option<u16>,
    /// Streaming kind of the method, if it streams: its calls open a stream.
    streams: Option<Kind>,
}

impl Client {
    /// Creates the state machine of a newly opened connection.
    pub fn new(limits: Limits) -> Client {
        Client {
            framer: Framer::default(),
            limits,
            names: Names::Full,
            checksums: false,
            indexes: Arc::default(),
            methods: Vec::new(),
            streams: streams::Streams::default(),
            queued: VecDeque::new(),
            json: false,
        }
    }

    /// Reads and writes frames of this layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Client {
        self.framer.layout = layout;
        self
    }

    /// Sets the indexes of methods (`package.Service/Method`) in their services, from 0. Without it only methods of
    /// generated code have an index, taken from the `.proto` file. [`Layout::Hulu`] calls methods by index.
    #[must_use]
    pub fn indexes(mut self, indexes: Arc<HashMap<String, u16>>) -> Client {
        self.indexes = indexes;
        self
    }

    /// Sets the form of service names.
    #[must_use]
    pub fn naming(mut self, names: Names) -> Client {
        self.names = names;
        self
    }

    /// Sends a CRC32C with every request, which requests one with every response. Servers that do not support checksums
    /// respond without one.
    #[must_use]
    pub fn checksums(mut self, on: bool) -> Client {
        self.checksums = on;
        self
    }

    /// Encodes the request fields that name this method.
    fn named(&self, name: &str, index: Option<u16>) -> Bytes {
        let (service, method) = name.rsplit_once('/').unwrap_or(("", name));
        let service = match self.names {
            Names::Full => service,
            Names::Short => service.rsplit_once('.').map_or(service, |(_, short)| short),
        };
        self.framer.layout.named(service, method, index).freeze()
    }

    /// Reads a response whose frame is complete.
    fn response(&mut self, frame: Frame, input: &mut Input) -> Result<Option<ClientEvent>, Fatal> {
        let meta = self.framer.layout.response(frame.meta_of(input), frame.payload());
        let meta = meta.map_err(|_| unreadable())?;
        // The driver drops responses to calls that are not in flight.
        let id = meta.correlation_id;
        let max = self.limits.message_bytes_max;
        let payload = frame.payload();
        let refused = if meta.response.is_some_and(|response| response.error_code != 0) {
            Some(error::read(&meta, &self.limits))
        } else if payload > max as usize {
            Some(Status::resource_exhausted(format!(
                "a reply of {payload} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
            )))
        } else if frame.message_len(meta.attachment_size).is_none() {
            Some(broken(format!("a reply of {payload} bytes with an attachment of {}", meta.attachment_size)))
        } else {
            None
        };
        let metadata = match refused {
            Some(status) => Err(status),
            None => fields::read(meta.user_fields, &self.limits),
        };
        let mut metadata = match metadata {
            Err(status) => {
                self.framer.refuse(frame, input);
                return Ok(Some(ClientEvent::End { id, end: Err(status) }));
            }
            Ok(metadata) => metadata,
        };
        if !frame.is_whole(input) {
            self.framer.wait(frame, input);
            return Ok(None);
        }
        let codec = match meta.content_type {
            0 => Codec::Proto,
            1 | 2 => Codec::Json,
            other => {
                let text =
                    format!("a reply has content type {other}; 0 (protobuf), 1 and 2 (JSON) are supported");
                self.framer.refuse(frame, input);
                return Ok(Some(ClientEvent::End { id, end: Err(broken(text)) }));
            }
        };
        let (compress_type, attachment) = (meta.compress_type, meta.attachment_size as usize);
        let sum = (meta.checksum_type == 1)
            .then(|| (<[u8; 4]>::try_from(meta.checksum_value).ok(), meta.checksum_with_attachment));
        let (item, attachment) = frame.take(attachment, input);
        if let Some((sum, with_attachment)) = sum
            && sum
                != Some(checksum::value(
                    [&item].into_iter().chain(with_attachment.then_some(&attachment)).map(Outgoing::from),
                ))
        {
            let status = broken("the checksum of the reply does not match: the reply was damaged in transit");
            return Ok(Some(ClientEvent::End { id, end: Err(status) }));
        }
        let item = match decompressed(compress_type, item, max) {
            Ok(item) => item,
            Err(status) => return Ok(Some(ClientEvent::End { id, end: Err(status) })),
        };
        metadata.set_attachment(attachment);
        let reply = ClientEvent::Reply { id, item, compressed: false };
        if self.json || codec != Codec::Proto {
            self.queued.push_back(ClientEvent::ReplyCodec { id, codec });
        }
        if !metadata.is_empty() {
            self.queued.push_back(ClientEvent::Head { id, metadata });
        }
        self.queued.push_back(reply);
        Ok(self.queued.pop_front())
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        self.framer.layout.name()
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Wide
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        let at = usize::from(number);
        if self.methods.len() <= at {
            self.methods.resize(at + 1, Method::default());
        }
        let index = self.indexes.get(name).copied();
        let named = self.named(name, index);
        self.methods[at] = Method { name: name.into(), named, index, streams: None };
    }

    fn index(&mut self, number: u16, index: u16) {
        let Some(method) = self.methods.get(usize::from(number)).filter(|method| method.index.is_none())
        else {
            return;
        };
        let named = self.named(&method.name, Some(index));
        let method = &mut self.methods[usize::from(number)];
        (method.named, method.index) = (named, Some(index));
    }

    fn streams(&mut self, number: u16, kind: Kind) {
        if let Some(method) = self.methods.get_mut(usize::from(number)) {
            method.streams = Some(kind);
        }
    }

    #[inline]
    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        let Open { codec, metadata, rest, .. } = open;
        let layout = self.framer.layout;
        let (content_type, compress_type) = match (codec, open.compressed.then_some(open.encoding)) {
            (Codec::Proto, None | Some(Encoding::Identity)) => (0, 0),
            (codec, encoding) => (content_type(codec)?, compress_type(encoding)?),
        };
        let method = self.methods.get(usize::from(open.method));
        let streams = open.more || method.is_some_and(|method| method.streams.is_some());
        if layout != Layout::Standard {
            check_older(layout, method, codec, streams)?;
        }
        if streams && compress_type != 0 {
            return Err(Status::unimplemented("a call with a stream is not compressed on baidu_std"));
        }
        let payload = Payload { first, rest, attachment: metadata.attachment() };
        let bytes = payload.len();
        if bytes > PEER_BYTES_MAX as usize {
            return Err(Status::resource_exhausted(format!(
                "a request of {bytes} bytes is over the {PEER_BYTES_MAX} bytes that servers of baidu_std accept"
            )));
        }
        let (metadata_len, metadata_max) = (metadata.encoded_len(), self.limits.metadata_bytes_max);
        if metadata_len > metadata_max as usize {
            return Err(Status::resource_exhausted(format!(
                "request metadata of {metadata_len} bytes is over the limit of {metadata_max} bytes (metadata_bytes_max)"
            )));
        }
        let sum = self.checksums.then(|| checksum::value(payload.parts()));
        let named = method.map_or(&[][..], |method| &method.named);
        let sent = Sent { correlation_id: id, compress_type, ..payload.sizes() };
        frame::put(layout, out, None, &payload, |meta| {
            layout.put_request(meta, named, &sent, timeout_ms(open.timeout), metadata);
            if streams {
                Settings::of(streams::number(id)).put(meta);
            }
            put_nonzero(meta, 10, content_type);
            if let Some(sum) = sum {
                proto::put_number(meta, 11, 1);
                proto::put_bytes(meta, 12, &sum);
                proto::put_number(meta, 13, 1);
            }
        });
        if streams {
            let one_reply = method.is_some_and(|method| method.streams == Some(Kind::ClientStream));
            self.streams.begin(id, open.more, one_reply);
        }
        self.json |= codec == Codec::Json;
        Ok(())
    }

    fn item(
        &mut self,
        id: ClientCallId,
        item: &Bytes,
        _compressed: bool,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        if item.len() > PEER_BYTES_MAX as usize {
            let bytes = item.len();
            return Err(Status::resource_exhausted(format!(
                "a message of {bytes} bytes is over the {PEER_BYTES_MAX} bytes that servers of baidu_std accept"
            )));
        }
        self.streams.send(id, item, out)
    }

    fn half_close(&mut self, id: ClientCallId, out: &mut Outbox) {
        self.streams.half_close(id, out);
    }

    fn cancel(&mut self, id: ClientCallId, out: &mut Outbox) {
        self.streams.cancel(id, out);
    }

    fn credit(&mut self, id: ClientCallId, bytes: u32, out: &mut Outbox) {
        self.streams.consume(id, bytes, out);
    }

    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        compress_type(Some(encoding)).is_ok()
    }

    fn message_bytes_max(&self) -> u32 {
        PEER_BYTES_MAX
    }

    fn carries_attachments(&self) -> bool {
        self.framer.layout != Layout::Sofa
    }

    /// Zero before the server has sent the number of its end of the stream.
    fn send_window(&self) -> u32 {
        0
    }

    fn compresses_streams(&self) -> bool {
        false
    }

    fn receive_window(&self, configured: u32) -> u32 {
        configured.max(WINDOW)
    }

    fn advertises_windows(&self) -> bool {
        false
    }

    #[inline]
    fn next_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        if !self.queued.is_empty() {
            return None;
        }
        let frame = self.framer.next(input).ok().flatten()?;
        if frame.of_stream || !frame.is_whole(input) {
            return None;
        }
        let meta = self.framer.layout.response(frame.meta_of(input), frame.payload()).ok()?;
        let usual = meta.response.is_none_or(|response| response.error_code == 0)
            && (meta.attachment_size | meta.compress_type | meta.checksum_type) == 0
            && meta.user_fields.is_empty()
            && (meta.content_type == 0 && !self.json)
            && frame.payload() <= self.limits.message_bytes_max as usize;
        let id = Some(meta.correlation_id).filter(|id| usual && !self.streams.has(*id))?;
        Some((id, frame.skip_head(input)))
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        loop {
            if let Some(next) = self.queued.pop_front() {
                return Ok(Some(next));
            }
            let Some(frame) = self.framer.next(input)? else { return Ok(None) };
            let before = input.len();
            let event = if frame.of_stream {
                self.stream_frame(frame, input, out)?;
                None
            } else if self.streams.are_open() {
                self.any_response(frame, input)?
            } else {
                self.response(frame, input)?
            };
            if event.is_some() {
                return Ok(event);
            }
            if input.len() == before && self.queued.is_empty() {
                return Ok(None);
            }
        }
    }
}

fn read(bytes: &[u8]) -> Result<Meta<'_>, Fatal> {
    Meta::read(bytes).map_err(|_| unreadable())
}

fn unreadable() -> Fatal {
    Fatal("a meta that cannot be read".into())
}

/// Checks that a call can be expressed in one of the older layouts.
fn check_older(layout: Layout, method: Option<&Method>, codec: Codec, streams: bool) -> Result<(), Status> {
    let name = layout.name();
    if streams {
        return Err(no_streams(name));
    }
    if codec != Codec::Proto {
        return Err(Status::unimplemented(format!("codec {codec} is not supported on {name}; use proto")));
    }
    match method {
        Some(Method { name, index: None, .. }) if layout == Layout::Hulu => {
            Err(Status::failed_precondition(format!(
                "the index of {name} is unknown on hulu_pbrpc; add index={name}:INDEX to the address, counted from 0"
            )))
        }
        _ => Ok(()),
    }
}

/// Creates the status for a reply that cannot be used.
fn broken(text: impl Into<String>) -> Status {
    Status::internal(text).with_origin(Origin::Connection)
}

fn content_type(codec: Codec) -> Result<u64, Status> {
    match codec {
        Codec::Proto => Ok(0),
        Codec::Json => Ok(2),
        other => Err(Status::unimplemented(format!(
            "codec {other} is not supported on baidu_std; use proto or json"
        ))),
    }
}

fn compress_type(encoding: Option<Encoding>) -> Result<u64, Status> {
    match encoding {
        None | Some(Encoding::Identity) => Ok(0),
        Some(Encoding::Snappy) => Ok(1),
        Some(Encoding::Gzip) => Ok(2),
        Some(Encoding::Deflate) => Ok(3),
        Some(other) => Err(Status::unimplemented(format!(
            "encoding {other} is not supported on baidu_std; use snappy, gzip or deflate"
        ))),
    }
}

/// Decompresses a reply. The server chooses its compression, which may differ from that of the call.
fn decompressed(compress_type: i32, item: Bytes, bytes_max: u32) -> Result<Bytes, Status> {
    let inflate = |from: &mut dyn Read| {
        let mut plain = Vec::new();
        from.take(u64::from(bytes_max) + 1)
            .read_to_end(&mut plain)
            .map(|_| plain)
            .map_err(|why| why.to_string())
    };
    let plain = match compress_type {
        0 => return Ok(item),
        _ if item.is_empty() => return Ok(item),
        1 => snappy::decompress(&item, bytes_max),
        2 => gzip::decompress(&item, bytes_max as usize),
        3 => inflate(&mut ZlibDecoder::new(&item[..])),
        other => return Err(broken(format!("a reply has compress type {other}, which is not supported"))),
    };
    let plain = plain.map_err(|why| broken(format!("a reply that cannot be decompressed: {why}")))?;
    if plain.len() > bytes_max as usize {
        return Err(Status::resource_exhausted(format!(
            "a reply is, decompressed, over the limit of {bytes_max} bytes (message_bytes_max of the receiver)"
        )));
    }
    Ok(plain.into())
}

/// Whole milliseconds, rounded up; 0 on the wire means no deadline, so an expired one becomes 1.
fn timeout_ms(timeout: Option<Duration>) -> u64 {
    let ms = |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128);
    timeout.map_or(0, |timeout| ms(timeout) as u64)
}
