//! Metadata as header fields of HTTP, and encodings of bodies that servers and clients share.

pub mod grpc_web_text;
pub mod thrift;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use switchboard_core::{Limit, Limits, Result};
use switchboard_wire::{Metadata, Status};

/// Writes no padding and reads with and without it, as gRPC and Connect specify.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Headers that belong to HTTP or to a protocol, not to the application.
const RESERVED: [&str; 21] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "x-grpc-web",
    "x-user-agent",
];

fn is_reserved(name: &str) -> bool {
    name.starts_with("grpc-")
        || name.starts_with("connect-")
        || name.starts_with("sec-websocket-")
        || name.starts_with(':')
        || RESERVED.binary_search(&name).is_ok()
}

/// Returns the metadata that the caller added to its request.
///
/// Headers that are not metadata, such as text beyond ASCII, are left out.
///
/// # Errors
/// `InvalidArgument` for binary values that are not base64, `ResourceExhausted` for too many entries.
pub fn metadata(headers: &HeaderMap, limits: &MetadataLimits) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    for (name, value) in headers {
        let name = name.as_str();
        if is_reserved(name) {
            continue;
        }
        if name.ends_with("-bin") {
            // Proxies join repeated headers with commas.
            for part in value.as_bytes().split(|byte| *byte == b',') {
                let value = BASE64.decode(part.trim_ascii()).map_err(|error| {
                    Status::invalid_argument(format!("metadata {name} is not base64: {error}"))
                })?;
                metadata.insert(name, value)?;
            }
        } else if metadata.insert(name, Bytes::copy_from_slice(value.as_bytes())).is_err() {
            tracing::debug!("left out header {name}: it is not valid metadata");
        }
        limits.check(&metadata)?;
    }
    Ok(metadata)
}

/// Limits of [`metadata`] that HTTP itself does not enforce.
#[derive(Clone, Copy, Debug)]
pub struct MetadataLimits {
    entries_max: usize,
}

impl MetadataLimits {
    pub fn new(limits: &Limits) -> MetadataLimits {
        MetadataLimits { entries_max: limits.get(Limit::MetadataEntriesMax) as usize }
    }

    /// # Errors
    /// `ResourceExhausted` for too many entries.
    pub fn check(&self, metadata: &Metadata) -> Result<()> {
        if metadata.len() <= self.entries_max {
            return Ok(());
        }
        let text = format!("more than {} metadata entries (limit metadata_entries_max)", self.entries_max);
        Err(Status::resource_exhausted(text))
    }
}

/// Converts metadata to headers; names that belong to HTTP or gRPC are left out.
pub fn headers(metadata: &Metadata) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(metadata.len());
    append(&mut headers, metadata);
    headers
}

/// Adds metadata as [`headers`] writes it.
pub fn append(headers: &mut HeaderMap, metadata: &Metadata) {
    for (name, value) in metadata.iter() {
        let written = match name.ends_with("-bin") {
            true => HeaderValue::try_from(BASE64.encode(value)),
            // HTTP allows no spaces at the ends of a value.
            false => HeaderValue::from_bytes(value.trim_ascii()),
        };
        match (HeaderName::from_bytes(name.as_bytes()), written) {
            (Ok(header), Ok(value)) if !is_reserved(name) => {
                headers.append(header, value);
            }
            _ => tracing::debug!("left out metadata {name}: the name is reserved by HTTP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<Metadata> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        metadata(&map, &MetadataLimits { entries_max: 3 })
    }

    #[test]
    fn reserved_names_are_sorted_for_the_search() {
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn headers_of_http_and_of_the_dialects_are_no_metadata() {
        let read = read(&[
            ("te", "trailers"),
            ("grpc-timeout", "1S"),
            ("connect-protocol-version", "1"),
            ("x-a", "b"),
        ]);
        assert_eq!(format!("{:?}", read.unwrap()), r#"{"x-a": b"b"}"#);
    }

    #[test]
    fn binary_values_are_split_at_commas_and_may_be_padded() {
        let read = read(&[("x-bin", "AA==, AP8"), ("x-bin", "AQ")]).unwrap();
        let values: Vec<_> = read.iter().map(|(_, value)| value.to_vec()).collect();
        assert_eq!(values, [vec![0], vec![0, 255], vec![1]]);
        let back = headers(&read);
        let back: Vec<_> = back.get_all("x-bin").iter().collect();
        assert_eq!(back, ["AA", "AP8", "AQ"]);
    }

    #[test]
    fn wrong_base64_and_too_many_entries_are_refused() {
        assert_eq!(read(&[("x-bin", "!")]).unwrap_err().code(), Code::InvalidArgument);
        let many = read(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]).unwrap_err();
        assert!(many.message().contains("metadata_entries_max"), "{many}");
    }

    #[test]
    fn own_names_cannot_break_the_frame_of_a_reply() {
        let mut metadata = Metadata::new();
        for name in ["content-type", "grpc-status", "content-length", "x-a"] {
            metadata.insert(name, "1").unwrap();
        }
        assert_eq!(headers(&metadata).len(), 1);
    }
}
