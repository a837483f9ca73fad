//! The server side of the native wire.

use super::frame::{self, CALL_FIXED, Framer, Header, Next, PeerSettings, flag, kind};
use crate::{
    Fatal, Found, Input, Kind, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Retry, SchemaId,
    Status,
    wire::{CallId, Codec, Encoding, Encodings, Head, MachineMemory, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Time after which the server may have memory for a rejected message.
const PAUSE: Duration = Duration::from_millis(250);

/// State machine of a server connection.
///
/// It stores the method numbers and the settings of the client; the driver tracks the calls in flight.
#[derive(Debug)]
pub struct Server {
    framer: Framer,
    limits: Limits,
    table: Arc<MethodTable>,
    /// Methods by the client's number.
    methods: Vec<Named>,
    /// Bytes of names that match no method.
    name_bytes: usize,
    peer: PeerSettings,
    /// Encodings of compressed messages that the server accepts.
    encodings: Encodings,
    /// Largest message for which memory is available, in bytes.
    room: u32,
    greeted: bool,
    draining: bool,
    refusing: bool,
}

/// Meaning of a method number.
#[derive(Clone, Debug)]
enum Named {
    /// A declared method.
    Method(MethodId),
    /// The number was never named.
    Nothing,
    /// A declared method, and the different schema that the caller was built from.
    OtherSchema(MethodId, SchemaId),
    /// An undeclared method that is accepted.
    Undeclared(MethodId, crate::UndeclaredName),
    /// A name that matches no method.
    Unknown(Box<str>),
}

impl Named {
    /// Bytes of the stored name.
    fn bytes(&self) -> usize {
        match self {
            Named::Undeclared(_, name) => name.len(),
            Named::Unknown(name) => name.len(),
            _ => 0,
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
            methods: Vec::new(),
            name_bytes: 0,
            peer: PeerSettings::default(),
            encodings: Encodings::NONE,
            room: u32::MAX,
            greeted: false,
            draining: false,
            refusing: false,
        }
    }

    /// Accepts messages in these encodings; call it before anything else. The default is uncompressed messages only.
    #[must_use]
    pub fn with_encodings(mut self, encodings: Encodings) -> Server {
        self.encodings = encodings;
        self
    }

    fn open(&mut self, header: Header, input: &mut Input) -> Result<ServerEvent, Fatal> {
        let id = header.id;
        let body_len = header.len as usize;
        let Some(fixed) = input.rest()[..body_len].first_chunk::<CALL_FIXED>().copied() else {
            return Err(Fatal(format!("CALL of {body_len} bytes is cut short")));
        };
        let metadata_len = usize::from(u16::from_le_bytes([fixed[6], fixed[7]]));
        if CALL_FIXED + metadata_len > body_len {
            return Err(Fatal("CALL is shorter than its metadata".into()));
        }
        let metadata = &input.rest()[CALL_FIXED..CALL_FIXED + metadata_len];
        let message_len = body_len - CALL_FIXED - metadata_len;
        let head = self.head_of(header, fixed, metadata, message_len as u32);
        let head = match head {
            Ok(head) => head,
            Err(status) => {
                input.skip(body_len);
                return Ok(ServerEvent::Refused { id, status });
            }
        };
        input.skip(CALL_FIXED + metadata_len);
        let is_refused = head.undeclared_name.as_ref().is_some_and(|name| name.refusal().is_some());
        if is_refused {
            // Signatures of callers cover the message. One that cannot be read is left out.
            let is_packed = header.has(flag::COMPRESSED);
            let is_readable = !is_packed || head.encoding != Encoding::Identity;
            let first = match is_readable && message_len <= self.largest_message() as usize {
                true => input.take(message_len),
                false => {
                    input.skip(message_len);
                    Bytes::new()
                }
            };
            let compressed = is_packed && !first.is_empty();
            return Ok(ServerEvent::Open { id, head, first: Some(first), compressed, more: false });
        }
        let first = header.has(flag::MESSAGE).then(|| input.take(message_len));
        if first.is_none() {
            input.skip(message_len);
        }
        let compressed = first.is_some() && header.has(flag::COMPRESSED);
        Ok(ServerEvent::Open { id, head, first, compressed, more: !header.has(flag::END) })
    }

    /// Writes the preface once. Frames other than replies can precede the first read: a server can drain, or ping a
    /// silent peer, before the machine has read a byte.
    #[cold]
    fn greet(&mut self, out: &mut Outbox) {
        if !std::mem::replace(&mut self.greeted, true) {
            frame::put_preface(&self.limits, self.largest_message(), self.encodings, out);
        }
    }

    /// Returns the largest message of any method, in bytes.
    fn largest_message(&self) -> u32 {
        self.table.largest_message(self.limits.message_bytes_max)
    }

    /// Creates the status for a message that is too large, now or in general; for a CALL it names the method.
    #[cold]
    fn too_large(&self, header: Header, bytes: u32) -> Status {
        let general = self.limits.message_bytes_max;
        match self.methods.get(usize::from(header.aux)) {
            _ if bytes > self.room && bytes <= self.largest_message() => {
                let retry = if header.kind == kind::CALL { Retry::After(PAUSE) } else { Retry::IfIdempotent };
                let text = format!(
                    "no memory for a message of {bytes} bytes now (memory_bytes_max of the receiver)"
                );
                Status::resource_exhausted(text).with_retry(retry)
            }
            // Without its head, which was not read, the caller is not known.
            _ if bytes > self.largest_message() && self.table.guards_unknown() => {
                frame::too_large("a request", bytes, self.largest_message())
            }
            Some(Named::Method(method) | Named::Undeclared(method, _)) if header.kind == kind::CALL => {
                self.table.too_large(*method, bytes, general)
            }
            _ => frame::too_large("a request", bytes, self.largest_message()),
        }
    }

    #[inline]
    fn head_of(
        &self,
        header: Header,
        fixed: [u8; CALL_FIXED],
        metadata: &[u8],
        message_len: u32,
    ) -> Result<Head, Status> {
        if self.refusing {
            return Err(Status::unavailable("the server is going away").with_retry(Retry::Safe));
        }
        // Metadata is read first: it has the credentials, without which the caller learns nothing of the method.
        let metadata = self.metadata(metadata)?;
        let (found, theirs) = self.method(header.aux)?;
        let (found, codec, encoding) = match self.check(header, fixed, &found, theirs, message_len) {
            Ok((codec, encoding)) => (found, codec, encoding),
            Err(status) => {
                let refused = self.table.refuse_call(&found, Kind::Bidi, status)?;
                (refused, Codec::Raw, Encoding::Identity)
            }
        };
        let timeout_ms = u32::from_le_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
        Ok(Head {
            method: found.method,
            undeclared_name: found.undeclared_name,
            codec,
            encoding,
            replies: encoding,
            timeout: (timeout_ms != 0).then(|| Duration::from_millis(u64::from(timeout_ms))),
            metadata,
            oneway: header.has(flag::ONEWAY),
        })
    }

    #[inline]
    fn metadata(&self, bytes: &[u8]) -> Result<Metadata, Status> {
        if bytes.is_empty() {
            return Ok(Metadata::new());
        }
        if bytes.len() > self.limits.metadata_bytes_max as usize {
            return Err(Status::resource_exhausted(format!(
                "request metadata of {} bytes is over the limit of {} bytes (metadata_bytes_max)",
                bytes.len(),
                self.limits.metadata_bytes_max
            )));
        }
        Ok(Metadata::decode(bytes, self.limits.metadata_entries_max as usize)?)
    }

    /// Returns the method with the client's number, and the schema of the client if it is another one.
    #[inline]
    fn method(&self, number: u16) -> Result<(Found, Option<SchemaId>), Status> {
        match self.methods.get(usize::from(number)) {
            Some(Named::Method(method)) => Ok((Found::from(*method), None)),
            Some(Named::Undeclared(method, name)) => {
                Ok((Found { method: *method, undeclared_name: Some(name.clone()) }, None))
            }
            Some(Named::OtherSchema(method, theirs)) => Ok((Found::from(*method), Some(*theirs))),
            Some(Named::Unknown(name)) => {
                Ok((self.table.refuse(name, Kind::Bidi, self.table.unknown(name))?, None))
            }
            Some(Named::Nothing) | None => {
                Err(Status::internal(format!("method number {number} has no name")))
            }
        }
    }

    /// Checks codec, schema, encoding and size of a call.
    #[inline]
    fn check(
        &self,
        header: Header,
        fixed: [u8; CALL_FIXED],
        found: &Found,
        theirs: Option<SchemaId>,
        message_len: u32,
    ) -> Result<(Codec, Encoding), Status> {
        let codec = Codec::from_number(fixed[4])
            .ok_or_else(|| Status::unimplemented(format!("codec number {} is not supported", fixed[4])))?;
        if theirs.is_some() {
            let info = self.table.info(found.method);
            info.check_schema(&self.table.full_name(found.method), codec, theirs)?;
        }
        let encoding = self.encoding(header, fixed[5])?;
        if message_len > self.table.message_bytes_max(found.method, self.limits.message_bytes_max) {
            return Err(self.too_large(header, message_len));
        }
        Ok((codec, encoding))
    }

    /// Returns the encoding of a call, which must be an accepted one.
    #[inline]
    fn encoding(&self, header: Header, number: u8) -> Result<Encoding, Status> {
        match Encoding::from_number(number) {
            Some(Encoding::Identity) if header.has(flag::COMPRESSED) && header.has(flag::MESSAGE) => {
                Err(Status::internal("a compressed message in a call without an encoding"))
            }
            Some(encoding) if self.encodings.has(encoding) => Ok(encoding),
            encoding => {
                let named = encoding.map_or_else(|| format!("number {number}"), |known| known.to_string());
                Err(Status::unimplemented(format!(
                    "encoding {named} is not accepted; accepted: {}",
                    self.encodings
                )))
            }
        }
    }

    /// Records the number that the client assigns to a method.
    fn name_method(&mut self, header: Header, body: &[u8]) -> Result<(), Fatal> {
        let number = header.aux;
        if number >= self.limits.methods_max {
            return Err(Fatal(format!(
                "method number {number} is over the limit of {} (methods_max)",
                self.limits.methods_max
            )));
        }
        let at = usize::from(number);
        if self.methods.len() <= at {
            self.methods.resize(at + 1, Named::Nothing);
        }
        let (theirs, name) = frame::parse_method(header, body)?;
        let name = String::from_utf8_lossy(frame_text(name));
        let named = match (self.table.find(&name), theirs) {
            (Some(method), Some(theirs))
                if self.table.info(method).schema.is_some_and(|ours| ours != theirs) =>
            {
                Named::OtherSchema(method, theirs)
            }
            (Some(method), _) => Named::Method(method),
            (None, _) => match self.table.undeclared(&name, Kind::Bidi) {
                Some(Found { method, undeclared_name: Some(name) }) => Named::Undeclared(method, name),
                _ => Named::Unknown(name.into()),
            },
        };
        self.name_bytes += named.bytes();
        self.name_bytes -= std::mem::replace(&mut self.methods[at], named).bytes();
        Ok(())
    }

    /// Processes frames without a message.
    fn control(&mut self, header: Header, input: &mut Input, out: &mut Outbox) -> Result<ServerEvent, Fatal> {
        let len = header.len as usize;
        let body = &input.rest()[..len];
        let event = match header.kind {
            kind::SETTINGS => {
                frame::parse_settings(body, &mut self.peer)?;
                ServerEvent::Handled
            }
            kind::METHOD => {
                let body = body.to_vec();
                self.name_method(header, &body)?;
                ServerEvent::Handled
            }
            kind::END => ServerEvent::HalfClose { id: header.id },
            kind::CANCEL => ServerEvent::Cancel { id: header.id },
            kind::CREDIT => ServerEvent::Credit { id: header.id, bytes: frame::parse_credit(body)? },
            kind::PING if header.has(flag::ANSWER) => ServerEvent::Pong,
            kind::PING => {
                frame::put_empty(kind::PING, flag::ANSWER, 0, header.id, out);
                ServerEvent::Handled
            }
            // Unknown kinds are reserved for later versions; GO_AWAY of a client announces that it sends no more.
            _ => ServerEvent::Handled,
        };
        input.skip(len);
        Ok(event)
    }
}

/// Truncates names that are too long for any method; the truncated name is unknown.
fn frame_text(name: &[u8]) -> &[u8] {
    &name[..name.len().min(1024)]
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "native"
    }

    #[inline(always)]
    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        let max = self.limits.message_bytes_max;
        let header =
            self.framer.next_of(kind::CALL, input, self.table.largest_message(max).min(self.room))?;
        let body = &input.rest()[..header.len as usize];
        let plain = body.first_chunk::<CALL_FIXED>().and_then(|fixed| {
            let Named::Method(method) = *self.methods.get(usize::from(header.aux))? else { return None };
            let codec = Codec::from_number(fixed[4])?;
            // `recv` handles encoding, metadata and all other flags.
            let usual = fixed[5..] == [0; 3] && header.flags == flag::END | flag::MESSAGE && !self.refusing;
            let timeout_ms = u32::from_le_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
            let fits = body.len() - CALL_FIXED <= self.table.message_bytes_max(method, max) as usize;
            (usual && fits).then_some((method, codec, timeout_ms))
        });
        let Some((method, codec, timeout_ms)) = plain else {
            input.unskip(frame::HEADER_LEN);
            return None;
        };
        input.skip(CALL_FIXED);
        let timeout = (timeout_ms != 0).then(|| Duration::from_millis(u64::from(timeout_ms)));
        let (replies, len) = (Encoding::Identity, header.len as usize - CALL_FIXED);
        Some(Opened { id: header.id, method, codec, replies, timeout, len })
    }

    #[inline]
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        if !self.greeted {
            self.greet(out);
        }
        let Server { framer, limits, table, methods, room, .. } = &mut *self;
        let message_max = |header: Header| {
            let max = match methods.get(usize::from(header.aux)) {
                _ if !table.has_limits() => limits.message_bytes_max,
                // The head is read before the limit of the method counts.
                _ if table.guards_unknown() => table.largest_message(limits.message_bytes_max),
                Some(Named::Method(method) | Named::Undeclared(method, _)) if header.kind == kind::CALL => {
                    table.message_bytes_max(*method, limits.message_bytes_max)
                }
                // The driver knows the method of the call of an ITEM.
                _ => table.largest_message(limits.message_bytes_max),
            };
            max.min(*room)
        };
        let header = match framer.next(input, limits, message_max)? {
            Next::Wait => return Ok(None),
            Next::Frame(header) => header,
            Next::TooLarge(header) => match header.kind {
                kind::CALL | kind::ITEM => {
                    // Metadata has not been separated from the message yet.
                    let fixed = if header.kind == kind::CALL { CALL_FIXED as u32 } else { 0 };
                    let status = self.too_large(header, header.len - fixed);
                    return Ok(Some(ServerEvent::Refused { id: header.id, status }));
                }
                kind::SETTINGS..=kind::GO_AWAY => {
                    return Err(Fatal(format!("a frame of kind {} with {} bytes", header.kind, header.len)));
                }
                _ => return Ok(Some(ServerEvent::Handled)),
            },
        };
        match header.kind {
            kind::CALL => self.open(header, input).map(Some),
            kind::ITEM => {
                let len = header.len as usize;
                if header.len > self.largest_message() {
                    input.skip(len);
                    let status = self.too_large(header, header.len);
                    return Ok(Some(ServerEvent::Refused { id: header.id, status }));
                }
                let compressed = header.has(flag::COMPRESSED);
                Ok(Some(ServerEvent::Item { id: header.id, item: input.take(len), compressed }))
            }
            _ => self.control(header, input, out).map(Some),
        }
    }

    #[inline]
    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        let header = Header { len: item.len() as u32, kind: kind::REPLY, flags: flag::END, aux: 0, id };
        out.put_with(&header.bytes(), item);
    }

    fn reply_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        let len = parts.iter().map(Bytes::len).sum::<usize>() as u32;
        Header { len, kind: kind::REPLY, flags: flag::END, aux: 0, id }.put(out.tail());
        parts.iter().for_each(|part| out.put(part));
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, out: &mut Outbox) {
        let tail = out.tail();
        Header { len: metadata.encoded_len() as u32, kind: kind::HEAD, flags: 0, aux: 0, id }.put(tail);
        metadata.encode(tail);
    }

    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        if !trailers.is_empty() {
            put_item(id, item, compressed, out);
            return self.end(id, Ok(trailers), out);
        }
        let flags = flag::END | if compressed { flag::COMPRESSED } else { 0 };
        Header { len: item.len() as u32, kind: kind::REPLY, flags, aux: 0, id }.put(out.tail());
        out.put(item);
    }

    fn item(&mut self, id: CallId, item: &Bytes, compressed: bool, out: &mut Outbox) {
        put_item(id, item.into(), compressed, out);
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        frame::put_end(id, end, out);
    }

    fn credit(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        frame::put_credit(id, bytes, out);
    }

    fn ping(&mut self, out: &mut Outbox) {
        self.greet(out);
        frame::put_empty(kind::PING, 0, 0, 0, out);
    }

    fn responds_to_pings(&self) -> bool {
        true
    }

    fn drain(&mut self, reason: &str, out: &mut Outbox) {
        self.greet(out);
        if !std::mem::replace(&mut self.draining, true) {
            frame::put_go_away(crate::Code::Unavailable, reason, out);
        }
    }

    fn refuse(&mut self) {
        self.refusing = true;
    }

    /// The driver tracks the calls; the machine keeps names that match no method, at most `methods_max`.
    #[inline]
    fn memory(&self) -> MachineMemory {
        MachineMemory { calls: 0, bytes: self.name_bytes }
    }

    fn take_at_most(&mut self, bytes: u32) {
        self.room = bytes;
    }

    fn send_window(&self) -> u32 {
        self.peer.window
    }
}

fn put_item(id: CallId, item: Outgoing<'_>, compressed: bool, out: &mut Outbox) {
    let flags = if compressed { flag::COMPRESSED } else { 0 };
    Header { len: item.len() as u32, kind: kind::ITEM, flags, aux: 0, id }.put(out.tail());
    out.put(item);
}
