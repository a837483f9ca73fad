//! Known header fields of requests, each decoded once.

use super::{dialect::grpc::ContentType, text};
use crate::{Encoding, Encodings, MethodId, MethodTable, base64, metadata::Name};
use bytes::Bytes;
use std::time::Duration;

/// Fields that belong to HTTP or to a dialect, and not to the application. Sorted.
const RESERVED: [&[u8]; 21] = [
    b"accept",
    b"accept-encoding",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"date",
    b"expect",
    b"host",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"user-agent",
    b"vary",
    b"x-grpc-web",
    b"x-user-agent",
];

/// Returns true for the name of a field that is not metadata.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"grpc-")
        || name.starts_with(b"connect-")
        || name.starts_with(b"sec-websocket-")
        || name.starts_with(b":")
        || RESERVED.binary_search(&name).is_ok()
}

/// A request field as its receiver needs it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DecodedField {
    /// `:method`: true for POST, the one that calls have.
    Method(bool),
    /// `:path` of a declared method.
    Path(MethodId),
    /// `:path` of anything else.
    OtherPath(Bytes),
    /// `:scheme`.
    Scheme,
    /// `:authority`.
    Authority,
    /// `content-type`.
    ContentType(ContentType),
    /// `content-length`.
    ContentLength(u64),
    /// `grpc-timeout`.
    Timeout(Duration),
    /// `grpc-timeout` that is malformed.
    BadTimeout(Bytes),
    /// `grpc-encoding`.
    Encoding(Encoding),
    /// `grpc-encoding` with an unknown name.
    UnknownEncoding(Bytes),
    /// `grpc-accept-encoding`.
    AcceptEncoding(Encodings),
    /// A field without a meaning for a call.
    Ignored,
    /// Metadata, decoded if it is binary.
    Metadata(Name, Bytes),
    /// Binary metadata with several values in one field, which proxies join by commas. They are valid, and remain
    /// encoded: each decoded one would take more bytes than its comma.
    JoinedMetadata(Name, Bytes),
    /// Binary metadata that is not base64.
    NotBase64(Name),
    /// A field that makes the request malformed (RFC 9113, section 8.1.1), and the reason.
    Malformed(&'static str),
}

impl DecodedField {
    /// Decodes a field of HTTP/2.
    pub fn of_http2(name: &[u8], value: &[u8], table: &MethodTable) -> DecodedField {
        if let Some(pseudo) = name.strip_prefix(b":") {
            return of_pseudo(pseudo, value, table);
        }
        if let Some(reason) = malformed(name, value) {
            return DecodedField::Malformed(reason);
        }
        match name {
            b"content-type" => DecodedField::ContentType(ContentType::parse(value)),
            b"grpc-timeout" => match text::timeout(value) {
                Some(timeout) => DecodedField::Timeout(timeout),
                None => DecodedField::BadTimeout(shown(value)),
            },
            b"grpc-encoding" => match text::encoding(value) {
                Some(encoding) => DecodedField::Encoding(encoding),
                None => DecodedField::UnknownEncoding(shown(value)),
            },
            b"grpc-accept-encoding" => DecodedField::AcceptEncoding(text::encodings(value)),
            b"content-length" => match std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
                Some(length) => DecodedField::ContentLength(length),
                None => DecodedField::Malformed("content-length is not a number"),
            },
            name if is_reserved(name) => DecodedField::Ignored,
            name => metadata(name, value),
        }
    }
}

fn of_pseudo(name: &[u8], value: &[u8], table: &MethodTable) -> DecodedField {
    match name {
        b"method" => DecodedField::Method(value == b"POST"),
        b"scheme" => DecodedField::Scheme,
        b"authority" => DecodedField::Authority,
        b"path" if value.is_empty() => DecodedField::Malformed("an empty :path"),
        b"path" => {
            let text = std::str::from_utf8(value.strip_prefix(b"/").unwrap_or(value));
            match text.ok().and_then(|text| table.find_called(text)) {
                Some(method) => DecodedField::Path(method),
                None => DecodedField::OtherPath(Bytes::copy_from_slice(value)),
            }
        }
        _ => DecodedField::Malformed("an unknown pseudo-field"),
    }
}

/// Returns the reason why a field is not allowed in a request of HTTP/2 (RFC 9113, section 8.2).
fn malformed(name: &[u8], value: &[u8]) -> Option<&'static str> {
    let is_invalid = |byte: &u8| byte.is_ascii_uppercase() || *byte <= 0x20 || *byte >= 0x7f || *byte == b':';
    if name.is_empty() || name.iter().any(is_invalid) {
        return Some("a field name with upper-case or invalid characters");
    }
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        return Some("a field value with a line break or a zero");
    }
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Some("a field of the connection, which HTTP/2 does not have")
        }
        b"te" if value != b"trailers" => Some("te with another value than trailers"),
        _ => None,
    }
}

/// Decodes metadata. Fields that are not metadata, such as text beyond ASCII, are left out.
fn metadata(name: &[u8], value: &[u8]) -> DecodedField {
    if !name.ends_with(b"-bin") {
        return match Name::checked(name, value) {
            Some(name) => DecodedField::Metadata(name, Bytes::copy_from_slice(value)),
            None => DecodedField::Ignored,
        };
    }
    let Some(name) = Name::checked(name, &[]) else { return DecodedField::Ignored };
    if value.contains(&b',') {
        return match value.split(|byte| *byte == b',').all(|part| decode(part).is_some()) {
            true => DecodedField::JoinedMetadata(name, Bytes::copy_from_slice(value)),
            false => DecodedField::NotBase64(name),
        };
    }
    match decode(value) {
        Some(value) => DecodedField::Metadata(name, value),
        None => DecodedField::NotBase64(name),
    }
}

/// Decodes one binary value.
fn decode(value: &[u8]) -> Option<Bytes> {
    base64::decode(std::str::from_utf8(value.trim_ascii()).ok()?).map(Bytes::from)
}

/// Returns the values of [`DecodedField::JoinedMetadata`].
pub(super) fn joined_values(joined: &[u8]) -> impl Iterator<Item = Bytes> {
    joined.split(|byte| *byte == b',').filter_map(decode)
}

/// Returns the part of a value that is shown in an error.
fn shown(value: &[u8]) -> Bytes {
    const SHOWN_MAX: usize = 64;
    Bytes::copy_from_slice(&value[..value.len().min(SHOWN_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> DecodedField {
        DecodedField::of_http2(name.as_bytes(), value.as_bytes(), &MethodTable::default())
    }

    #[test]
    fn reserved_names_are_sorted_for_the_search() {
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn fields_of_http_and_of_the_dialects_are_no_metadata() {
        for name in ["user-agent", "grpc-previous-rpc-attempts", "host", "accept", "te"] {
            assert_eq!(read(name, "trailers"), DecodedField::Ignored, "{name}");
        }
        assert!(matches!(read("x-a", "b"), DecodedField::Metadata(..)));
        assert_eq!(read("x-a", "ü"), DecodedField::Ignored);
    }

    #[test]
    fn binary_values_are_split_at_commas_and_may_be_padded() {
        let DecodedField::JoinedMetadata(_, values) = read("x-bin", "AA==, AP8") else {
            panic!("not joined")
        };
        assert!(joined_values(&values).eq([&[0][..], &[0, 255]]));
        let DecodedField::Metadata(_, value) = read("x-bin", "AQ") else { panic!("not one") };
        assert_eq!(value, [1][..]);
        assert!(matches!(read("x-bin", "!"), DecodedField::NotBase64(_)));
    }

    #[test]
    fn malformed_fields_are_detected() {
        for (name, value) in [
            (":status", "200"),
            (":path", ""),
            ("Upper", "a"),
            ("a b", "a"),
            ("", "a"),
            ("a", "line\nbreak"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("content-length", "x"),
        ] {
            assert!(matches!(read(name, value), DecodedField::Malformed(_)), "{name}: {value}");
        }
    }
}
