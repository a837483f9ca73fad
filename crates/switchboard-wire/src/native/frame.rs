//! Frames of the native wire: code for both roles.

use crate::{Encodings, Fatal, Input, Limits, Metadata, Outbox, Retry, SchemaId, Status, status::Code};
use bytes::{BufMut, BytesMut};
use std::time::Duration;

/// First bytes of a connection, in both directions.
pub const MAGIC: [u8; 4] = *b"\xF5SWB";
/// Protocol version of this implementation.
pub const VERSION: u8 = 1;
/// Magic, version and three bytes that are zero.
pub const PREFACE_LEN: usize = 8;
/// Bytes of a stream that may be sent before any setting or credit has arrived.
pub const DEFAULT_WINDOW: u32 = 64 << 10;
/// Number of methods that may be named before any setting has arrived.
const DEFAULT_METHODS_MAX: u32 = 1024;

pub(super) const HEADER_LEN: usize = 12;
/// Fixed part of a CALL body: timeout, codec, encoding, length of the metadata.
pub(super) const CALL_FIXED: usize = 8;
/// Fixed part of a non-empty END body: retry, zero, length of the metadata, retry delay, length of the text.
const END_FIXED: usize = 12;
/// Longest body of a frame without a message, in bytes: status texts and details are truncated to fit.
const CONTROL_MAX: u32 = 64 << 10;

/// Numbers of the frame kinds.
pub(super) mod kind {
    pub(crate) const SETTINGS: u8 = 0;
    pub(crate) const METHOD: u8 = 1;
    pub(crate) const CALL: u8 = 2;
    pub(crate) const HEAD: u8 = 3;
    pub(crate) const ITEM: u8 = 4;
    pub(crate) const REPLY: u8 = 5;
    pub(crate) const END: u8 = 6;
    pub(crate) const CANCEL: u8 = 7;
    pub(crate) const CREDIT: u8 = 8;
    pub(crate) const PING: u8 = 9;
    pub(crate) const GO_AWAY: u8 = 10;
}

/// Bits of the flags byte.
pub(super) mod flag {
    /// The sender of the frame sends no more messages of the call.
    pub(crate) const END: u8 = 1;
    /// On PING: the frame is the response.
    pub(crate) const ANSWER: u8 = 1;
    /// On METHOD: the body begins with the schema id.
    pub(crate) const SCHEMA: u8 = 1;
    /// A CALL carries the first message.
    pub(crate) const MESSAGE: u8 = 2;
    /// The message is compressed with the encoding of the call.
    pub(crate) const COMPRESSED: u8 = 4;
    /// The call has no reply.
    pub(crate) const ONEWAY: u8 = 8;
}

/// Numbers of the settings.
mod setting {
    pub(super) const MESSAGE_BYTES_MAX: u16 = 1;
    pub(super) const METADATA_BYTES_MAX: u16 = 2;
    pub(super) const CALLS_MAX: u16 = 3;
    pub(super) const STREAM_WINDOW_BYTES: u16 = 4;
    pub(super) const METHODS_MAX: u16 = 5;
    pub(super) const ENCODINGS: u16 = 6;
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    pub(super) len: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) aux: u16,
    pub(super) id: u32,
}

impl Header {
    #[inline(always)]
    pub(super) fn put(self, tail: &mut BytesMut) {
        tail.extend_from_slice(&self.bytes());
    }

    #[inline(always)]
    pub(super) fn bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0u8; HEADER_LEN];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4] = self.kind;
        bytes[5] = self.flags;
        bytes[6..8].copy_from_slice(&self.aux.to_le_bytes());
        bytes[8..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    #[inline(always)]
    fn parse(bytes: &[u8; HEADER_LEN]) -> Header {
        Header {
            len: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            kind: bytes[4],
            flags: bytes[5],
            aux: u16::from_le_bytes([bytes[6], bytes[7]]),
            id: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Settings of the peer; the defaults apply until its SETTINGS arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) seen: bool,
    pub(super) message_bytes_max: u32,
    pub(super) calls_max: u32,
    pub(super) window: u32,
    pub(super) methods_max: u32,
    pub(super) encodings: Encodings,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            seen: false,
            message_bytes_max: u32::MAX,
            calls_max: u32::MAX,
            window: DEFAULT_WINDOW,
            methods_max: DEFAULT_METHODS_MAX,
            encodings: Encodings::NONE,
        }
    }
}

/// Number of received bytes of a frame from which memory for the whole frame is reserved.
const ROOM_FROM: usize = 32 << 10;

/// Splits the input into frames; skips rejected frames without buffering them.
#[derive(Debug, Default)]
pub(super) struct Framer {
    preface_seen: bool,
    skip: u32,
}

pub(super) enum Next {
    /// More bytes are needed.
    Wait,
    /// The header was taken; the complete body is at the front of the input.
    Frame(Header),
    /// The frame exceeds the limit of its kind; its body is skipped.
    TooLarge(Header),
}

impl Framer {
    /// Takes the next frame; `message_max` returns the largest message of a frame.
    ///
    /// # Errors
    /// Returns an error for another magic or version in the preface.
    #[inline]
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        limits: &Limits,
        message_max: impl FnOnce(Header) -> u32,
    ) -> Result<Next, Fatal> {
        if !self.preface_seen && !self.preface(input)? {
            return Ok(Next::Wait);
        }
        if self.skip > 0 {
            let step = input.len().min(self.skip as usize);
            input.skip(step);
            self.skip -= step as u32;
            if self.skip > 0 {
                return Ok(Next::Wait);
            }
        }
        let Some(header) = input.rest().first_chunk() else { return Ok(Next::Wait) };
        let header = Header::parse(header);
        let max = match header.kind {
            kind::CALL | kind::ITEM | kind::REPLY => {
                message_max(header).saturating_add(limits.metadata_bytes_max + CALL_FIXED as u32)
            }
            kind::HEAD => limits.metadata_bytes_max,
            _ => CONTROL_MAX.max(limits.metadata_bytes_max),
        };
        if header.len > max {
            input.skip(HEADER_LEN);
            self.skip = header.len;
            return Ok(Next::TooLarge(header));
        }
        if input.len() < HEADER_LEN + header.len as usize {
            // Memory for the rest is reserved at once, so that nothing is copied as the frame grows, but only when a
            // large part of a buffer has arrived: a header alone does not make the receiver allocate. The system does
            // not back memory before the first write to it.
            let missing = HEADER_LEN + header.len as usize - input.len();
            let step = if input.len() < ROOM_FROM { missing.min(ROOM_FROM) } else { missing };
            input.buffer().reserve(step);
            return Ok(Next::Wait);
        }
        input.skip(HEADER_LEN);
        Ok(Next::Frame(header))
    }

    /// Takes the header of a complete frame of this kind if it is next and within `max`; anything else is left to
    /// [`next`](Self::next). Usual frames come in runs, and this is their fast path.
    #[inline(always)]
    pub(super) fn next_of(&mut self, kind: u8, input: &mut Input, max: u32) -> Option<Header> {
        let header = Header::parse(input.rest().first_chunk()?);
        let whole = input.len() >= HEADER_LEN + header.len as usize;
        if header.kind != kind || !whole || header.len > max || self.skip > 0 || !self.preface_seen {
            return None;
        }
        input.skip(HEADER_LEN);
        Some(header)
    }

    fn preface(&mut self, input: &mut Input) -> Result<bool, Fatal> {
        let rest = input.rest();
        let known = rest.len().min(MAGIC.len());
        if rest[..known] != MAGIC[..known] {
            let hint = match rest {
                [0x15 | 0x16, 3, ..] => ", but TLS: call it with tls://",
                [b'H', b'T', b'T', b'P', ..] => ", but HTTP",
                _ => "",
            };
            return Err(Fatal(format!(
                "the first bytes are {:02x?}, not the native preface{hint}",
                &rest[..known]
            )));
        }
        if rest.len() < PREFACE_LEN {
            return Ok(false);
        }
        let version = rest[4];
        if version != VERSION {
            return Err(Fatal(format!(
                "the peer speaks version {version} of the native wire, this side {VERSION}"
            )));
        }
        input.skip(PREFACE_LEN);
        self.preface_seen = true;
        Ok(true)
    }
}

/// Writes a GO_AWAY frame with the start of `reason`.
pub(super) fn put_go_away(code: Code, reason: &str, out: &mut Outbox) {
    let reason = truncated(reason, 1024);
    let len = reason.len() as u32;
    let tail = out.tail();
    Header { len, kind: kind::GO_AWAY, flags: 0, aux: code.number(), id: 0 }.put(tail);
    tail.extend_from_slice(reason.as_bytes());
}

pub(super) fn put_preface(limits: &Limits, message_bytes_max: u32, encodings: Encodings, out: &mut Outbox) {
    let tail = out.tail();
    tail.extend_from_slice(&MAGIC);
    tail.extend_from_slice(&[VERSION, 0, 0, 0]);
    let settings = [
        (setting::MESSAGE_BYTES_MAX, message_bytes_max),
        (setting::METADATA_BYTES_MAX, limits.metadata_bytes_max),
        (setting::CALLS_MAX, limits.calls_max),
        (setting::STREAM_WINDOW_BYTES, limits.stream_window_bytes.max(DEFAULT_WINDOW)),
        (setting::METHODS_MAX, u32::from(limits.methods_max)),
        (setting::ENCODINGS, encodings.0),
    ];
    // A missing setting means that no encodings are accepted.
    let settings = if encodings == Encodings::NONE { &settings[..5] } else { &settings[..] };
    let len = 6 * settings.len() as u32;
    Header { len, kind: kind::SETTINGS, flags: 0, aux: 0, id: 0 }.put(tail);
    for (number, value) in settings {
        tail.put_u16_le(*number);
        tail.put_u32_le(*value);
    }
}

/// Reads SETTINGS, which may occur once; unknown numbers are ignored.
pub(super) fn parse_settings(body: &[u8], settings: &mut PeerSettings) -> Result<(), Fatal> {
    if std::mem::replace(&mut settings.seen, true) {
        return Err(Fatal("a second SETTINGS frame".into()));
    }
    let entries = body.chunks_exact(6);
    if !entries.remainder().is_empty() {
        return Err(Fatal(format!("SETTINGS of {} bytes, not a multiple of 6", body.len())));
    }
    for entry in entries {
        let value = u32::from_le_bytes([entry[2], entry[3], entry[4], entry[5]]);
        match u16::from_le_bytes([entry[0], entry[1]]) {
            setting::MESSAGE_BYTES_MAX => settings.message_bytes_max = value,
            setting::CALLS_MAX => settings.calls_max = value,
            setting::METHODS_MAX => settings.methods_max = value,
            setting::ENCODINGS => settings.encodings = Encodings(value),
            setting::STREAM_WINDOW_BYTES if value < DEFAULT_WINDOW => {
                return Err(Fatal(format!(
                    "a stream window of {value} bytes, below the least of {DEFAULT_WINDOW}"
                )));
            }
            setting::STREAM_WINDOW_BYTES => settings.window = value,
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn put_empty(kind: u8, flags: u8, aux: u16, id: u32, out: &mut Outbox) {
    Header { len: 0, kind, flags, aux, id }.put(out.tail());
}

/// Writes METHOD, which assigns `number` to `name`, with messages of `schema`.
pub(super) fn put_method(number: u16, name: &str, schema: Option<SchemaId>, out: &mut Outbox) {
    let tail = out.tail();
    let (flags, extra) = if schema.is_some() { (flag::SCHEMA, 8) } else { (0, 0) };
    Header { len: extra + name.len() as u32, kind: kind::METHOD, flags, aux: number, id: 0 }.put(tail);
    if let Some(schema) = schema {
        tail.put_u64_le(schema.number());
    }
    tail.extend_from_slice(name.as_bytes());
}

/// Reads METHOD: the schema and the name.
pub(super) fn parse_method(header: Header, body: &[u8]) -> Result<(Option<SchemaId>, &[u8]), Fatal> {
    if !header.has(flag::SCHEMA) {
        return Ok((None, body));
    }
    match body.split_first_chunk() {
        Some((schema, name)) => Ok((SchemaId::new(u64::from_le_bytes(*schema)), name)),
        None => Err(Fatal(format!("METHOD of {} bytes is shorter than its schema id", body.len()))),
    }
}

pub(super) fn put_credit(id: u32, bytes: u32, out: &mut Outbox) {
    let tail = out.tail();
    Header { len: 4, kind: kind::CREDIT, flags: 0, aux: 0, id }.put(tail);
    tail.put_u32_le(bytes);
}

pub(super) fn parse_credit(body: &[u8]) -> Result<u32, Fatal> {
    match body.try_into() {
        Ok(bytes) => Ok(u32::from_le_bytes(bytes)),
        Err(_) => Err(Fatal(format!("CREDIT of {} bytes, not 4", body.len()))),
    }
}

/// Writes END of a server: trailers, or a status with text, details and metadata.
pub(super) fn put_end(id: u32, end: Result<&Metadata, &Status>, out: &mut Outbox) {
    let (code, metadata) = match end {
        Ok(trailers) => (Code::Ok, trailers),
        Err(status) => (status.code(), status.metadata()),
    };
    if end.is_ok() && metadata.is_empty() {
        return put_empty(kind::END, flag::END, code.number(), id, out);
    }
    let (message, details, retry) = match end {
        Ok(_) => ("", &[][..], Retry::No),
        Err(status) => (status.message(), status.details(), status.retry()),
    };
    let message = truncated(message, CONTROL_MAX as usize / 4);
    let mut block = BytesMut::new();
    if metadata.encoded_len() <= usize::from(u16::MAX) / 2 {
        metadata.encode(&mut block);
    }
    let metadata_len = block.len();
    block.extend_from_slice(message.as_bytes());
    for detail in details {
        let len = 6 + detail.type_name.len() + detail.value.len();
        if END_FIXED + block.len() + len > CONTROL_MAX as usize {
            break;
        }
        block.put_u16_le(detail.type_name.len() as u16);
        block.put_u32_le(detail.value.len() as u32);
        block.put_slice(detail.type_name.as_bytes());
        block.put_slice(&detail.value);
    }
    let (retry, pause_ms) = match retry {
        Retry::No => (0, 0),
        Retry::Safe => (1, 0),
        Retry::IfIdempotent => (2, 0),
        Retry::After(pause) => (3, u32::try_from(pause.as_millis()).unwrap_or(u32::MAX)),
    };
    let tail = out.tail();
    let len = (END_FIXED + block.len()) as u32;
    Header { len, kind: kind::END, flags: flag::END, aux: code.number(), id }.put(tail);
    tail.put_u8(retry);
    tail.put_u8(0);
    tail.put_u16_le(metadata_len as u16);
    tail.put_u32_le(pause_ms);
    tail.put_u32_le(message.len() as u32);
    tail.extend_from_slice(&block);
}

/// Reads END at a client.
pub(super) fn parse_end(code: u16, body: &[u8], limits: &Limits) -> Result<Result<Metadata, Status>, Fatal> {
    let code = Code::from_number(code);
    let Some((fixed, rest)) = body.split_first_chunk::<END_FIXED>() else {
        return match (body.is_empty(), code) {
            (true, Code::Ok) => Ok(Ok(Metadata::new())),
            (true, code) => Ok(Err(Status::new(code, ""))),
            _ => Err(Fatal(format!("END of {} bytes is cut short", body.len()))),
        };
    };
    let short = || Fatal("END is shorter than its lengths say".into());
    let metadata_len = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
    let pause_ms = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let message_len = u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize;
    let block = rest.get(..metadata_len).ok_or_else(short)?;
    let message = rest[metadata_len..].get(..message_len).ok_or_else(short)?;
    let mut details = &rest[metadata_len + message_len..];
    let metadata = match Metadata::decode(block, limits.metadata_entries_max as usize) {
        Ok(metadata) => metadata,
        // The error concerns one call; the other calls on the connection continue.
        Err(error) => return Ok(Err(error.into())),
    };
    if code == Code::Ok {
        return Ok(Ok(metadata));
    }
    let retry = match fixed[0] {
        1 => Retry::Safe,
        2 => Retry::IfIdempotent,
        3 => Retry::After(Duration::from_millis(u64::from(pause_ms))),
        _ => Retry::No,
    };
    let mut status =
        Status::new(code, String::from_utf8_lossy(message)).with_metadata(metadata).with_retry(retry);
    while let Some((lens, rest)) = details.split_first_chunk::<6>() {
        let type_len = usize::from(u16::from_le_bytes([lens[0], lens[1]]));
        let value_len = u32::from_le_bytes([lens[2], lens[3], lens[4], lens[5]]) as usize;
        let value = rest.get(type_len..).and_then(|rest| rest.get(..value_len)).ok_or_else(short)?;
        let type_name = String::from_utf8_lossy(&rest[..type_len]).into_owned();
        status = status.with_detail(type_name, bytes::Bytes::copy_from_slice(value));
        details = &rest[type_len + value_len..];
    }
    if details.is_empty() { Ok(Err(status)) } else { Err(short()) }
}

/// Returns the longest prefix of `text` that has at most `max` bytes.
pub(super) fn truncated(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Creates the status for a message that is too large, with its size and the setting that limits it.
pub(super) fn too_large(what: &str, bytes: u32, max: u32) -> Status {
    Status::resource_exhausted(format!(
        "{what} of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
    ))
}
