//! baidu_std as a server speaks it.

mod streams;

use super::{
    Layout, NAME_BYTES_MAX, checksum,
    error::{self, bad_request},
    fields,
    frame::{self, Frame, Framer, Payload},
    layout::Sent,
    meta::{Meta, Request, put_nonzero},
    stream::WINDOW,
};
use crate::{
    Fatal, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Retry, Status, foreign,
    places::Places,
    proto,
    wire::{CallId, Codec, Encoding, Encodings, Head, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Names of methods that a connection need not look up again.
const KNOWN_MAX: usize = 16;

/// The machine of a connection.
///
/// Its callers may choose any 64 bits as the number of a call; the driver knows calls by their place here.
#[derive(Debug)]
pub struct Server {
    framer: Framer,
    limits: Limits,
    table: Arc<MethodTable>,
    /// What compressed messages are taken.
    encodings: Encodings,
    /// Methods by the names that this peer used.
    known: Vec<Known>,
    /// Which of them it used last.
    last: usize,
    calls: Places<Pending>,
    /// What the credentials of the connection add to its calls.
    credentials: Metadata,
    /// Streams of the calls.
    streams: streams::Streams,
    refusing: bool,
}

#[derive(Debug)]
struct Known {
    service: Box<[u8]>,
    method: Box<[u8]>,
    index: Option<i32>,
    id: MethodId,
}

/// A call that is to be answered.
#[derive(Debug)]
struct Pending {
    correlation_id: u64,
    compress_type: i32,
    content_type: i32,
    /// The caller checks sums, and whether it does so for attachments.
    checksum: Option<bool>,
    /// What comes before the message.
    head: Option<Box<Metadata>>,
    /// The stream that its caller opens with it.
    stream: Option<Box<streams::Opened>>,
}

/// A request that passed.
struct Passed {
    method: MethodId,
    kind: Kind,
    codec: Codec,
    encoding: Encoding,
    timeout: Option<Duration>,
    attachment: usize,
}

impl Server {
    /// A machine for a connection that was just accepted.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            framer: Framer::default(),
            limits,
            table,
            encodings: Encodings::NONE,
            known: Vec::new(),
            last: 0,
            calls: Places::default(),
            credentials: Metadata::new(),
            streams: streams::Streams::default(),
            refusing: false,
        }
    }

    /// Reads and writes frames of this layout.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Server {
        self.framer.layout = layout;
        self
    }

    /// Takes messages that are compressed so; without it only plain ones are taken.
    #[must_use]
    pub fn taking(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    /// Looks at what a request says of itself, before its message is there.
    #[inline]
    fn check(&mut self, frame: Frame, meta: &Meta<'_>, request: &Request<'_>) -> Result<Passed, Status> {
        if self.refusing {
            return Err(Status::unavailable("the server is going away").with_retry(Retry::Safe));
        }
        let method = self.method(request)?;
        let kind = self.table.info(method).kind;
        if kind != Kind::Unary {
            self.check_stream(method, meta)?;
        }
        let general = self.limits.message_bytes_max;
        let Some(message_len) = frame.message_len(meta.attachment_size) else {
            return Err(bad_request(format!(
                "an attachment of {} bytes in a frame with {}",
                meta.attachment_size,
                frame.payload()
            )));
        };
        let payload = frame.payload();
        if payload > self.table.message_bytes_max(method, general) as usize {
            return Err(self.table.too_large(method, payload as u32, general));
        }
        let codec = match meta.content_type {
            0 => Codec::Proto,
            1 | 2 => Codec::Json,
            other => {
                return Err(bad_request(format!("content type {other} is not known here: 0, 1 and 2 are")));
            }
        };
        let encoding = match (meta.compress_type, message_len) {
            // Some compress nothing to nothing.
            (0, _) | (_, 0) => Encoding::Identity,
            (number, _) => encoding(number).filter(|known| self.encodings.has(*known)).ok_or_else(|| {
                bad_request(format!(
                    "messages of compress type {number} are not taken here; taken: {}",
                    self.encodings
                ))
            })?,
        };
        let timeout = u64::try_from(request.timeout_ms).ok().filter(|timeout| *timeout > 0);
        // That of a stream is for the response alone, which never waits for long.
        let timeout = timeout.map(Duration::from_millis).filter(|_| kind == Kind::Unary);
        Ok(Passed { method, kind, codec, encoding, timeout, attachment: meta.attachment_size as usize })
    }

    /// The method that is called.
    #[inline]
    fn method(&mut self, request: &Request<'_>) -> Result<MethodId, Status> {
        let is_it = |known: &Known| {
            *known.method == *request.method_name
                && *known.service == *request.service_name
                && known.index == request.method_index
        };
        if let Some(known) = self.known.get(self.last)
            && is_it(known)
        {
            return Ok(known.id);
        }
        if let Some(at) = self.known.iter().position(is_it) {
            self.last = at;
            return Ok(self.known[at].id);
        }
        let id = self.look_up(request)?;
        // The oldest makes room.
        if self.known.len() == KNOWN_MAX {
            self.known.remove(0);
        }
        self.last = self.known.len();
        let (service, method) = (request.service_name.into(), request.method_name.into());
        self.known.push(Known { service, method, index: request.method_index, id });
        Ok(id)
    }

    #[cold]
    fn look_up(&self, request: &Request<'_>) -> Result<MethodId, Status> {
        let name = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= NAME_BYTES_MAX);
            text.map(str::to_owned).ok_or_else(|| {
                bad_request(format!("a name that is no text of at most {NAME_BYTES_MAX} bytes"))
            })
        };
        let (service, method) = (name(request.service_name)?, name(request.method_name)?);
        let full = format!("{service}/{method}");
        if let Some(found) = self.table.find(&full) {
            return Ok(found);
        }
        let knows = |service: &str| {
            self.table.services().iter().any(|known| {
                known.name == service
                    || known.name.rsplit_once('.').is_some_and(|(_, short)| short == service)
            })
        };
        let named = match service.contains('.') {
            true => Err(self.table.unknown(&full)),
            false => self.table.find_short(&service, &method),
        };
        let found = match request.method_index {
            Some(index) if named.is_err() => {
                self.table.find_index(&service, index).or_else(|status| match method.is_empty() {
                    true => Err(status),
                    false => named,
                })
            }
            _ => named,
        };
        found.or_else(|status| match knows(&service) {
            true => Err(status),
            false => self.table.learn(&full, Kind::Unary).ok_or_else(|| error::no_service(status)),
        })
    }

    /// Gives a place back: its call is answered.
    #[inline]
    fn finish(&mut self, id: CallId) -> Option<Pending> {
        let pending = self.calls.leave(id)?;
        if let Some(stream) = &pending.stream {
            self.streams.forget(stream);
        }
        Some(pending)
    }

    /// Takes a request.
    fn open(&mut self, frame: Frame, input: &mut Input) -> Result<Option<ServerEvent>, Fatal> {
        let bytes = frame.meta_of(input);
        let meta = self.framer.layout.request(bytes, frame.payload());
        let meta = meta.map_err(|_| Fatal("a meta that cannot be read".into()))?;
        let Some(request) = meta.request else { return Err(Fatal("a meta without a request".into())) };
        let pending = Pending::of(&meta);
        if !meta.authentication_data.is_empty() {
            self.credentials = foreign::credentials(meta.authentication_data, fields::AUTHENTICATION_BIN);
        }
        let passed = self.check(frame, &meta, &request);
        if passed.is_ok() && !frame.is_whole(input) {
            frame.make_room(input);
            return Ok(None);
        }
        let head = passed.and_then(|passed| {
            let mut metadata = fields::of_request(&meta, &self.limits)?;
            foreign::add_credentials(&mut metadata, &self.credentials);
            let Passed { method, kind, codec, encoding, timeout, attachment } = passed;
            Ok((Head { method, codec, encoding, timeout, metadata, oneway: false }, kind, attachment))
        });
        let sum = (meta.checksum_type == 1).then(|| <[u8; 4]>::try_from(meta.checksum_value).ok());
        let id = self.calls.enter(pending);
        let (mut head, kind, attachment) = match head {
            Ok(head) => head,
            Err(status) => {
                self.framer.refuse(frame, input);
                return Ok(Some(ServerEvent::Refused { id, status }));
            }
        };
        let (first, attachment) = frame.take(attachment, input);
        let payload = Payload { attachment: Some(&attachment), ..Payload::one(&first) };
        if let Some(sum) = sum
            && sum != self.sum(id, payload)
        {
            let status = bad_request("the checksum of the request is another one: it was damaged on its way");
            return Ok(Some(ServerEvent::Refused { id, status }));
        }
        head.metadata.set_attachment(attachment);
        if kind != Kind::Unary {
            return Ok(Some(self.open_stream(id, kind, head, first)));
        }
        let compressed = head.encoding != Encoding::Identity;
        Ok(Some(ServerEvent::Open { id, head, first: Some(first), compressed, more: false }))
    }

    /// The checksum of a frame of this call, if its caller sent one.
    fn sum(&self, id: CallId, payload: Payload<'_>) -> Option<[u8; 4]> {
        let with_attachment = self.calls.get(id)?.checksum?;
        let also = payload.attachment.filter(|_| with_attachment).map(Outgoing::from);
        Some(checksum::value(payload.message().chain(also)))
    }

    fn pending(&mut self, id: CallId) -> Option<&mut Pending> {
        self.calls.get_mut(id)
    }

    /// Answers a call that succeeded.
    fn succeed(
        &mut self,
        id: CallId,
        item: Payload<'_>,
        compressed: bool,
        trailers: Option<&Metadata>,
        out: &mut Outbox,
    ) {
        let Some(pending) = self.calls.get(id) else { return };
        if pending.is_streaming() {
            for item in item.message() {
                self.send(id, &item.to_bytes(), out);
            }
            return self.close_stream(id, trailers, out);
        }
        let head = pending.head.as_deref();
        let attachment = trailers.and_then(Metadata::attachment).or(head.and_then(Metadata::attachment));
        let attachment = attachment.cloned();
        let payload = Payload { attachment: attachment.as_ref(), ..item };
        let sum = self.sum(id, payload);
        if let Some(pending) = self.finish(id) {
            pending.put(self.framer.layout, compressed, payload, sum, trailers, out);
        }
    }
}

impl Pending {
    /// Whether its answer says nothing but that it succeeded.
    #[inline]
    fn is_plain(&self) -> bool {
        self.head.is_none() && self.checksum.is_none() && self.content_type == 0 && self.stream.is_none()
    }

    #[inline]
    fn of(meta: &Meta<'_>) -> Pending {
        Pending {
            correlation_id: meta.correlation_id,
            compress_type: meta.compress_type,
            content_type: meta.content_type,
            checksum: (meta.checksum_type == 1).then_some(meta.checksum_with_attachment),
            head: None,
            stream: meta.stream.map(|settings| Box::new(streams::Opened::refused(settings))),
        }
    }

    /// Writes the answer of a call that succeeded.
    fn put(
        &self,
        layout: Layout,
        compressed: bool,
        payload: Payload<'_>,
        sum: Option<[u8; 4]>,
        trailers: Option<&Metadata>,
        out: &mut Outbox,
    ) {
        let inside = self.stream.as_ref().map(|stream| stream.answer());
        let sent = Sent {
            correlation_id: self.correlation_id,
            compress_type: if compressed { self.compress_type as u64 } else { 0 },
            ..payload.sizes()
        };
        frame::put(layout, out, inside.as_ref(), &payload, |meta| {
            layout.put_response(meta, None, &sent);
            if layout != Layout::Standard {
                return;
            }
            if let Some(settings) = self.stream.as_ref().and_then(|stream| stream.settings()) {
                settings.put(meta);
            }
            put_nonzero(meta, 10, self.content_type as u64);
            if let Some(sum) = sum {
                proto::put_number(meta, 11, 1);
                proto::put_bytes(meta, 12, &sum);
                proto::put_number(meta, 13, u64::from(self.checksum == Some(true)));
            }
            [self.head.as_deref(), trailers]
                .into_iter()
                .flatten()
                .for_each(|metadata| fields::put(meta, metadata));
        });
    }
}

/// The encoding with this number.
fn encoding(compress_type: i32) -> Option<Encoding> {
    match compress_type {
        1 => Some(Encoding::Snappy),
        2 => Some(Encoding::Gzip),
        3 => Some(Encoding::Deflate),
        _ => None,
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        self.framer.layout.name()
    }

    #[inline]
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        // What ends the connection is said by `recv`.
        let frame = self.framer.next(input).ok().flatten()?;
        if frame.of_stream || !frame.is_whole(input) || !self.credentials.is_empty() {
            return None;
        }
        let bytes = frame.meta_of(input);
        let meta = self.framer.layout.request(bytes, frame.payload()).ok()?;
        let request = meta.request?;
        let usual = fields::is_plain(&meta, &request)
            && (meta.attachment_size | meta.compress_type | meta.checksum_type) == 0
            && meta.authentication_data.is_empty()
            && meta.stream.is_none()
            && !self.streams.owe_answer();
        if !usual {
            return None;
        }
        let Passed { method, codec, timeout, .. } = self.check(frame, &meta, &request).ok()?;
        let id = self.calls.enter(Pending::of(&meta));
        Some(Opened { id, method, codec, timeout, len: frame.skip_head(input) })
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        self.answer_owed(out);
        match self.framer.next(input)? {
            None => Ok(None),
            Some(frame) if frame.of_stream => self.stream_frame(frame, input, out),
            Some(frame) => self.open(frame, input),
        }
    }

    #[inline]
    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        let plain = self.calls.get(id).is_some_and(Pending::is_plain);
        if !plain {
            return self.succeed(id, Payload::one(item), false, None, out);
        }
        let Some(Pending { correlation_id, .. }) = self.finish(id) else { return };
        let layout = self.framer.layout;
        frame::put(layout, out, None, &Payload::one(item), |meta| {
            layout.put_response(meta, None, &Sent { correlation_id, ..Sent::default() });
        });
    }

    fn reply_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        match self.pending(id).is_some_and(|pending| pending.is_streaming()) {
            true => self.reply(id, (&Bytes::from(parts.concat())).into(), out),
            false => self.succeed(id, Payload { rest: parts, ..Payload::default() }, false, None, out),
        }
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, _out: &mut Outbox) {
        if let Some(pending) = self.calls.get_mut(id) {
            pending.head = Some(Box::new(metadata.clone()));
        }
    }

    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        self.succeed(id, Payload::one(item), compressed, Some(trailers), out);
    }

    fn item(&mut self, id: CallId, item: &Bytes, _compressed: bool, out: &mut Outbox) {
        self.send(id, item, out);
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        match end {
            Ok(trailers) => self.succeed(id, Payload::default(), false, Some(trailers), out),
            Err(status) => {
                if let Some(pending) = self.finish(id) {
                    let inside = pending.stream.as_ref().map(|stream| stream.failure());
                    let layout = self.framer.layout;
                    error::put(layout, pending.correlation_id, status, inside.as_ref(), out);
                }
            }
        }
    }

    fn credit(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        if let Some(stream) = self.pending(id).and_then(|pending| pending.stream.as_mut()) {
            stream.consume(bytes, out);
        }
    }

    /// The number of a refusal makes brpc's clients go elsewhere.
    fn refuse(&mut self) {
        self.refusing = true;
    }

    fn send_window(&self) -> u32 {
        WINDOW
    }

    fn receive_window(&self, told: u32) -> u32 {
        told.max(WINDOW)
    }
}
