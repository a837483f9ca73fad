//! gRPC over HTTP/2: content types, envelopes, and the fields of responses.

use crate::{
    Codec, Encoding, Encodings, Metadata, Retry, Status, base64, foreign as status,
    http::{fields::is_reserved, text},
};
use bytes::{Bytes, BytesMut};

/// Bytes before a message: a flag, and the length as a big-endian `u32`.
pub const ENVELOPE_BYTES: usize = 5;

const PREFIX: &[u8] = b"application/grpc";

/// Content types of requests, as far as this dialect has to know them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: every reader handles each
pub enum ContentType {
    /// One of gRPC, whose responses have the same one.
    Grpc(Form),
    /// gRPC with a codec that is not supported.
    OtherCodec,
    /// Not gRPC.
    Other,
}

/// Content types of gRPC, each with its codec.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Form {
    /// `application/grpc`, which means protobuf.
    Plain,
    /// `application/grpc+proto`.
    Proto,
    /// `application/grpc+json`.
    Json,
    /// `application/grpc+flatbuffers`.
    FlatBuffers,
}

impl ContentType {
    /// Parses a content type; its case and its parameters do not matter.
    pub fn parse(value: &[u8]) -> ContentType {
        let kind = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if kind.len() < PREFIX.len() || !kind[..PREFIX.len()].eq_ignore_ascii_case(PREFIX) {
            return ContentType::Other;
        }
        match &*kind[PREFIX.len()..].to_ascii_lowercase() {
            b"" => ContentType::Grpc(Form::Plain),
            b"+proto" => ContentType::Grpc(Form::Proto),
            b"+json" => ContentType::Grpc(Form::Json),
            b"+flatbuffers" => ContentType::Grpc(Form::FlatBuffers),
            [b'+', ..] => ContentType::OtherCodec,
            // gRPC-Web.
            _ => ContentType::Other,
        }
    }
}

impl Form {
    /// Returns the content type.
    pub fn name(self) -> &'static str {
        match self {
            Form::Plain => "application/grpc",
            Form::Proto => "application/grpc+proto",
            Form::Json => "application/grpc+json",
            Form::FlatBuffers => "application/grpc+flatbuffers",
        }
    }

    /// Returns the codec of the messages.
    pub fn codec(self) -> Codec {
        match self {
            Form::Plain | Form::Proto => Codec::Proto,
            Form::Json => Codec::Json,
            Form::FlatBuffers => Codec::FlatBuffers,
        }
    }
}

/// Parses an envelope: whether its message is compressed, and the length of the message.
///
/// # Errors
/// `Internal` for a flag other than 0 and 1.
#[inline]
pub fn parse_envelope(envelope: [u8; ENVELOPE_BYTES]) -> Result<(bool, u32), Status> {
    let [flag, length @ ..] = envelope;
    match flag {
        0 | 1 => Ok((flag == 1, u32::from_be_bytes(length))),
        _ => Err(Status::internal(format!("a message has flag {flag}; 0 and 1 are defined"))),
    }
}

/// Returns the envelope of a message.
#[inline]
pub fn envelope(compressed: bool, len: usize) -> [u8; ENVELOPE_BYTES] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [u8::from(compressed), a, b, c, d]
}

/// Names of encodings that may be listed in `grpc-accept-encoding`, which gRPC knows.
const LISTED: [Encoding; 4] = [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd, Encoding::Identity];

/// Returns the encodings of a server as `grpc-accept-encoding`.
pub fn accept_encoding(encodings: Encodings) -> String {
    let listed = LISTED.into_iter().filter(|encoding| encodings.has(*encoding));
    listed.map(Encoding::name).collect::<Vec<_>>().join(",")
}

/// Returns the encoding of replies to a caller that accepts `accepted`.
pub fn reply_encoding(accepted: Encodings, ours: Encodings) -> Encoding {
    let common = |encoding: &Encoding| accepted.has(*encoding) && ours.has(*encoding);
    LISTED.into_iter().find(common).unwrap_or(Encoding::Identity)
}

/// How a field is indexed in the table of HPACK.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: the representations of HPACK
pub enum FieldUse {
    /// Equal in most responses.
    Recurring,
    /// Different in each.
    Once,
    /// A secret.
    Secret,
}

/// Passes metadata on as fields; names that belong to HTTP or gRPC are left out.
pub fn metadata_fields(metadata: &Metadata, mut field: impl FnMut(&[u8], &[u8], FieldUse)) {
    for (name, value) in metadata.iter() {
        let bytes = name.as_bytes();
        if is_reserved(bytes) {
            continue;
        }
        let usage = match name {
            "authorization" | "cookie" | "set-cookie" => FieldUse::Secret,
            _ => FieldUse::Once,
        };
        if name.ends_with("-bin") {
            let text = base64::encode(value);
            field(bytes, text.trim_end_matches('=').as_bytes(), usage);
        } else {
            // HTTP allows no spaces at the ends of a value.
            field(bytes, value.trim_ascii(), usage);
        }
    }
}

/// Passes the fields of a status on.
pub fn status_fields(status: &Status, mut field: impl FnMut(&[u8], &[u8], FieldUse)) {
    field(status::CODE.as_bytes(), status.code().number().to_string().as_bytes(), FieldUse::Recurring);
    if !status.message().is_empty() {
        let mut text = BytesMut::new();
        text::percent_encode(status::truncated(status.message()), &mut text);
        field(b"grpc-message", &text, FieldUse::Once);
    }
    if let Some(details) = status::details(status) {
        let text = base64::encode(&details);
        field(status::DETAILS.as_bytes(), text.trim_end_matches('=').as_bytes(), FieldUse::Once);
    }
    if let Retry::After(pause) = status.retry() {
        let millis = pause.as_millis().clamp(1, u128::from(u32::MAX));
        field(status::PUSHBACK.as_bytes(), millis.to_string().as_bytes(), FieldUse::Once);
    }
    metadata_fields(status.metadata(), field);
}

/// Envelopes of a body, split at any position.
#[derive(Debug, Default)]
pub struct Assembly {
    envelope: [u8; ENVELOPE_BYTES],
    /// Bytes of the envelope that have arrived.
    have: usize,
    /// The message whose envelope is complete.
    message: Option<Partial>,
}

/// A message that has arrived in part.
#[derive(Debug)]
struct Partial {
    compressed: bool,
    len: usize,
    bytes: BytesMut,
}

/// Size up to which memory for a message grows with its bytes; then its whole size is reserved.
const RESERVE_FROM: usize = 32 << 10;

impl Assembly {
    /// Adds bytes of an envelope, and returns how many it took. Once it is complete, [`next`](Self::next) returns the
    /// length of its message.
    pub fn add_envelope(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(ENVELOPE_BYTES - self.have);
        self.envelope[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        taken
    }

    /// Returns the envelope if it is complete and its message has not begun.
    pub fn complete_envelope(&self) -> Option<[u8; ENVELOPE_BYTES]> {
        (self.have == ENVELOPE_BYTES && self.message.is_none()).then_some(self.envelope)
    }

    /// Begins the message of the complete envelope.
    pub fn begin(&mut self, compressed: bool, len: u32) {
        self.message = Some(Partial { compressed, len: len as usize, bytes: BytesMut::new() });
    }

    /// Returns the bytes that the message still needs; `None` if no message has begun.
    pub fn missing(&self) -> Option<usize> {
        self.message.as_ref().map(|message| message.len - message.bytes.len())
    }

    /// Returns true if no byte of the message has been stored.
    pub fn is_fresh(&self) -> bool {
        self.message.as_ref().is_some_and(|message| message.bytes.is_empty())
    }

    /// Stores bytes of the message.
    pub fn collect(&mut self, bytes: &[u8]) {
        let Some(message) = &mut self.message else { return };
        let stored = message.bytes.len() + bytes.len();
        if stored > message.bytes.capacity() {
            let room = if stored >= RESERVE_FROM { message.len } else { message.len.min(RESERVE_FROM) };
            message.bytes.reserve(room - message.bytes.len());
        }
        message.bytes.extend_from_slice(bytes);
    }

    /// Ends the message, whose bytes are `whole` or those that were stored; returns it and whether it is compressed.
    pub fn finish(&mut self, whole: Option<Bytes>) -> Option<(Bytes, bool)> {
        self.have = 0;
        let message = self.message.take()?;
        Some((whole.unwrap_or_else(|| message.bytes.freeze()), message.compressed))
    }

    /// Returns true if the body may end here.
    pub fn is_between_messages(&self) -> bool {
        self.have == 0
    }

    /// Bytes of the partly received message.
    pub fn memory_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.bytes.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn content_types_select_the_codec() {
        for (text, expected) in [
            ("application/grpc", ContentType::Grpc(Form::Plain)),
            ("Application/GRPC+Proto; charset=utf-8", ContentType::Grpc(Form::Proto)),
            ("application/grpc+json", ContentType::Grpc(Form::Json)),
            ("application/grpc+flatbuffers", ContentType::Grpc(Form::FlatBuffers)),
            ("application/grpc+thrift", ContentType::OtherCodec),
            ("application/grpc-web", ContentType::Other),
            ("application/json", ContentType::Other),
            ("", ContentType::Other),
        ] {
            assert_eq!(ContentType::parse(text.as_bytes()), expected, "{text}");
        }
        for form in [Form::Plain, Form::Proto, Form::Json, Form::FlatBuffers] {
            assert_eq!(ContentType::parse(form.name().as_bytes()), ContentType::Grpc(form));
        }
    }

    #[test]
    fn statuses_have_the_fields_of_grpc() {
        let mut metadata = Metadata::new();
        for (name, value) in [("x-a", " b "), ("grpc-status", "0"), ("content-type", "x")] {
            metadata.insert(name, value).unwrap();
        }
        metadata.insert("x-bin", &[0u8, 255][..]).unwrap();
        let status = Status::not_found("no ü").with_detail("a.B", &b"x"[..]).with_metadata(metadata);
        let status = status.with_retry(Retry::After(std::time::Duration::from_millis(40)));
        let mut fields = Vec::new();
        status_fields(&status, |name, value, _| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        });
        let details = fields.remove(2);
        assert_eq!(
            fields,
            [
                "grpc-status: 5",
                "grpc-message: no %C3%BC",
                "grpc-retry-pushback-ms: 40",
                "x-a: b",
                "x-bin: AP8"
            ]
        );
        let details = base64::decode(details.strip_prefix("grpc-status-details-bin: ").unwrap()).unwrap();
        assert_eq!(status::read_details(&details.into())[0].type_name, "a.B");
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(parse_envelope(envelope(true, 7)).unwrap(), (true, 7));
        assert_eq!(parse_envelope([2, 0, 0, 0, 0]).unwrap_err().code(), Code::Internal);
    }

    #[test]
    fn encodings_are_those_that_both_sides_have() {
        let both = Encodings(1 << Encoding::Gzip as u32 | 1 << Encoding::Zstd as u32);
        assert_eq!(accept_encoding(both), "gzip,zstd,identity");
        assert_eq!(reply_encoding(Encodings::ALL, both), Encoding::Gzip);
        assert_eq!(reply_encoding(Encodings(1 << Encoding::Zstd as u32), both), Encoding::Zstd);
        assert_eq!(reply_encoding(Encodings::NONE, both), Encoding::Identity);
    }
}
