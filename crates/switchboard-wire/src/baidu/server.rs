//! The server side of baidu_std.

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
    Fatal, Found, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Retry, Status,
    foreign,
    pending::{Entry, PendingCalls},
    proto,
    wire::{CallId, Codec, Encoding, Encodings, Head, MachineMemory, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Number of method names that a connection caches.
const CACHED_METHODS_MAX: usize = 16;

/// State machine of a server connection.
///
/// A caller may choose any 64 bits as the correlation id of a call; the driver identifies a call by its slot here.
#[derive(Debug)]
pub struct Server {
    framer: Framer,
    limits: Limits,
    table: Arc<MethodTable>,
    /// Encodings of compressed messages that the server accepts.
    encodings: Encodings,
    /// Cache of methods by the names that this peer used.
    cached: Vec<CachedMethod>,
    /// Index of the entry that was used last.
    last: usize,
    calls: PendingCalls<Pending>,
    /// Metadata that the credentials of the connection add to its calls.
    credentials: Metadata,
    /// Streams of the calls.
    streams: streams::Streams,
    refusing: bool,
}

#[derive(Debug)]
struct CachedMethod {
    service: Box<[u8]>,
    method: Box<[u8]>,
    index: Option<i32>,
    found: Found,
}

/// A call whose response is pending.
#[derive(Debug)]
struct Pending {
    correlation_id: u64,
    compress_type: i32,
    content_type: i32,
    /// Set if the caller uses checksums; true if they cover attachments too.
    checksum: Option<bool>,
    /// Metadata that precedes the message.
    head: Option<Box<Metadata>>,
    /// Stream that the caller opens with the call.
    stream: Option<Box<streams::Opened>>,
}

/// A request that passed all checks.
struct CheckedRequest {
    method: MethodId,
    undeclared_name: Option<crate::UndeclaredName>,
    kind: Kind,
    codec: Codec,
    encoding: Encoding,
    timeout: Option<Duration>,
    attachment: usize,
    /// The message is skipped: the call ends with an error after the guards.
    skipped: bool,
}

impl CheckedRequest {
    /// A request whose call ends with an error after the guards.
    fn refused(found: Found) -> CheckedRequest {
        let Found { method, undeclared_name } = found;
        let (kind, codec, encoding) = (Kind::Unary, Codec::Raw, Encoding::Identity);
        CheckedRequest {
            method,
            undeclared_name,
            kind,
            codec,
            encoding,
            timeout: None,
            attachment: 0,
            skipped: true,
        }
    }
}

impl Server {
    /// Creates the state machine of a newly accepted connection.
    pub fn new(limits: Limits, table: Arc<MethodTable>) -> Server {
        Server {
            framer: Framer::default(),
            limits,
            table,
            encodings: Encodings::NONE,
            cached: Vec::new(),
            last: 0,
            calls: PendingCalls::default(),
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

    /// Accepts messages in these encodings; the default is uncompressed messages only.
    #[must_use]
    pub fn with_encodings(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    /// Checks a request before its message has arrived.
    #[inline]
    fn check(
        &mut self,
        frame: Frame,
        meta: &Meta<'_>,
        request: &Request<'_>,
    ) -> Result<CheckedRequest, Status> {
        if self.refusing {
            return Err(Status::unavailable("the server is going away").with_retry(Retry::Safe));
        }
        let found = self.method(request)?;
        self.check_call(frame, meta, request, &found).or_else(|status| {
            self.table.refuse_call(&found, Kind::Unary, status).map(CheckedRequest::refused)
        })
    }

    /// Checks a request to a method that was found.
    #[inline]
    fn check_call(
        &self,
        frame: Frame,
        meta: &Meta<'_>,
        request: &Request<'_>,
        found: &Found,
    ) -> Result<CheckedRequest, Status> {
        let (method, undeclared_name) = (found.method, found.undeclared_name.clone());
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
                return Err(bad_request(format!(
                    "content type {other} is not supported; use 0 (protobuf), 1 or 2 (JSON)"
                )));
            }
        };
        let encoding = match (meta.compress_type, message_len) {
            // Some peers set a compress type for an empty message and do not compress it.
            (0, _) | (_, 0) => Encoding::Identity,
            (number, _) => {
                encoding(number).filter(|cached| self.encodings.has(*cached)).ok_or_else(|| {
                    bad_request(format!(
                        "compress type {number} is not accepted; accepted: {}",
                        self.encodings
                    ))
                })?
            }
        };
        let timeout = u64::try_from(request.timeout_ms).ok().filter(|timeout| *timeout > 0);
        // The timeout of a streaming call applies to its response only, which never waits for long.
        let timeout = timeout.map(Duration::from_millis).filter(|_| kind == Kind::Unary);
        let attachment = meta.attachment_size as usize;
        let skipped = false;
        Ok(CheckedRequest { method, undeclared_name, kind, codec, encoding, timeout, attachment, skipped })
    }

    /// Finds the called method.
    #[inline]
    fn method(&mut self, request: &Request<'_>) -> Result<Found, Status> {
        let is_it = |cached: &CachedMethod| {
            *cached.method == *request.method_name
                && *cached.service == *request.service_name
                && cached.index == request.method_index
        };
        if let Some(cached) = self.cached.get(self.last)
            && is_it(cached)
        {
            return Ok(cached.found.clone());
        }
        if let Some(at) = self.cached.iter().position(is_it) {
            self.last = at;
            return Ok(self.cached[at].found.clone());
        }
        let found = self.look_up(request)?;
        if found.is_refused() {
            return Ok(found);
        }
        // The oldest entry is evicted.
        if self.cached.len() == CACHED_METHODS_MAX {
            self.cached.remove(0);
        }
        self.last = self.cached.len();
        let (service, method) = (request.service_name.into(), request.method_name.into());
        self.cached.push(CachedMethod { service, method, index: request.method_index, found: found.clone() });
        Ok(found)
    }

    #[cold]
    fn look_up(&self, request: &Request<'_>) -> Result<Found, Status> {
        let name = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= NAME_BYTES_MAX);
            text.map(str::to_owned).ok_or_else(|| {
                bad_request(format!(
                    "a service or method name is not UTF-8 of at most {NAME_BYTES_MAX} bytes"
                ))
            })
        };
        let (service, method) = (name(request.service_name)?, name(request.method_name)?);
        let full = format!("{service}/{method}");
        if let Some(found) = self.table.find(&full) {
            return Ok(found.into());
        }
        let knows = |service: &str| {
            self.table.services().iter().any(|cached| {
                cached.name == service
                    || cached.name.rsplit_once('.').is_some_and(|(_, short)| short == service)
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
        found
            .map(Found::from)
            .or_else(|status| match knows(&service) {
                true => Err(status),
                false => self.table.undeclared(&full, Kind::Unary).ok_or_else(|| error::no_service(status)),
            })
            .or_else(|status| self.table.refuse(&full, Kind::Unary, status))
    }

    /// Releases the slot of a call that has its response.
    #[inline]
    fn finish(&mut self, id: CallId) -> Option<Pending> {
        let pending = self.calls.leave(id)?;
        if let Some(stream) = &pending.stream {
            self.streams.forget(stream);
        }
        Some(pending)
    }

    /// Reads a request.
    fn open(&mut self, frame: Frame, input: &mut Input) -> Result<Option<ServerEvent>, Fatal> {
        let bytes = frame.meta_of(input);
        let meta = self.framer.layout.request(bytes, frame.payload());
        let meta = meta.map_err(|_| Fatal("a meta that cannot be read".into()))?;
        let Some(request) = meta.request else { return Err(Fatal("a meta without a request".into())) };
        let pending = Pending::of(&meta);
        let credentials = meta.authentication_data.len();
        if credentials > 0 && credentials <= self.limits.metadata_bytes_max as usize {
            self.credentials = foreign::credentials(meta.authentication_data, fields::AUTHENTICATION_BIN);
        }
        let passed = match credentials > self.limits.metadata_bytes_max as usize {
            true => Err(foreign::metadata_too_large(credentials, &self.limits)),
            false => self.check(frame, &meta, &request),
        };
        if passed.as_ref().is_ok_and(|passed| !passed.skipped) && !frame.is_whole(input) {
            self.framer.wait(frame, input);
            return Ok(None);
        }
        let head = passed.and_then(|passed| {
            let mut metadata = fields::of_request(&meta, &self.limits)?;
            foreign::add_credentials(&mut metadata, &self.credentials);
            let CheckedRequest { method, undeclared_name, codec, encoding, timeout, .. } = passed;
            let replies = encoding;
            let head =
                Head { method, undeclared_name, codec, encoding, replies, timeout, metadata, oneway: false };
            Ok((head, passed.kind, passed.attachment, passed.skipped))
        });
        let sum = (meta.checksum_type == 1).then(|| <[u8; 4]>::try_from(meta.checksum_value).ok());
        let id = self.calls.enter(pending);
        let (mut head, kind, attachment) = match head {
            Ok((head, _, _, true)) => {
                self.framer.refuse(frame, input);
                let first = Some(Bytes::new());
                return Ok(Some(ServerEvent::Open { id, head, first, compressed: false, more: false }));
            }
            Ok((head, kind, attachment, false)) => (head, kind, attachment),
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
            let status =
                bad_request("the checksum of the request does not match: the request was damaged in transit");
            let found = Found { method: head.method, undeclared_name: head.undeclared_name.clone() };
            let Found { method, undeclared_name } = match self.table.refuse_call(&found, Kind::Unary, status)
            {
                Ok(refused) => refused,
                Err(status) => return Ok(Some(ServerEvent::Refused { id, status })),
            };
            (head.method, head.undeclared_name, head.encoding) =
                (method, undeclared_name, Encoding::Identity);
            let first = Some(Bytes::new());
            return Ok(Some(ServerEvent::Open { id, head, first, compressed: false, more: false }));
        }
        head.metadata.set_attachment(attachment);
        if kind != Kind::Unary {
            return Ok(Some(self.open_stream(id, kind, head, first)));
        }
        let compressed = head.encoding != Encoding::Identity;
        Ok(Some(ServerEvent::Open { id, head, first: Some(first), compressed, more: false }))
    }

    /// Computes the checksum of a frame of this call, if its caller sent one.
    fn sum(&self, id: CallId, payload: Payload<'_>) -> Option<[u8; 4]> {
        let with_attachment = self.calls.get(id)?.checksum?;
        let also = payload.attachment.filter(|_| with_attachment).map(Outgoing::from);
        Some(checksum::value(payload.message().chain(also)))
    }

    fn pending(&mut self, id: CallId) -> Option<&mut Pending> {
        self.calls.get_mut(id)
    }

    /// Writes the response of a call that succeeded.
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
    /// Returns true if the response carries nothing but success.
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

    /// Writes the response of a call that succeeded.
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

impl Entry for Pending {
    #[inline]
    fn bytes(&self) -> usize {
        self.stream.as_ref().map_or(0, |_| size_of::<streams::Opened>())
    }
}

/// Returns the encoding with this compress type.
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
        // Errors that end the connection are returned by `recv`.
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
            && !self.streams.owes_response();
        if !usual {
            return None;
        }
        let passed = self.check(frame, &meta, &request).ok()?;
        // A method that no service declares needs its name, which only a full head carries.
        let CheckedRequest { method, undeclared_name: None, codec, timeout, .. } = passed else {
            return None;
        };
        let id = self.calls.enter(Pending::of(&meta));
        let replies = Encoding::Identity;
        Some(Opened { id, method, codec, replies, timeout, len: frame.skip_head(input) })
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        self.send_owed_response(out);
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
                    let (layout, id) = (self.framer.layout, pending.correlation_id);
                    match &pending.stream {
                        None => error::put(layout, id, status, None, out),
                        Some(stream) => self.put_end(stream, out, |out| {
                            error::put(layout, id, status, Some(&stream.failure()), out);
                        }),
                    }
                }
            }
        }
    }

    fn credit(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        if let Some(stream) = self.pending(id).and_then(|pending| pending.stream.as_mut()) {
            stream.consume(bytes, out);
        }
    }

    /// The error number of a rejected call makes brpc clients use another server.
    fn refuse(&mut self) {
        self.refusing = true;
    }

    fn memory(&self) -> MachineMemory {
        let MachineMemory { calls, bytes } = self.calls.memory();
        MachineMemory { calls, bytes: bytes + self.streams.gathered() }
    }

    fn send_window(&self) -> u32 {
        WINDOW
    }

    fn receive_window(&self, configured: u32) -> u32 {
        configured.max(WINDOW)
    }

    fn advertises_windows(&self) -> bool {
        false
    }

    #[inline]
    fn unsent_response_bytes(&self) -> usize {
        self.streams.unsent_response_bytes()
    }

    #[inline]
    fn holds_ends(&self) -> bool {
        self.streams.hold_ends()
    }

    fn release_ends(&mut self, out: &mut Outbox) {
        self.streams.release(out);
    }
}
