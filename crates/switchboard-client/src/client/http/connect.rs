//! Connect: errors as JSON, the end of a stream as JSON, and calls by GET.

use super::codes;
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt::Write, time::Duration};
use switchboard_core::Result;
use switchboard_net::http_fields::{BASE64, MetadataLimits};
use switchboard_wire::{Code, Metadata, Origin, Status};

pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("connect-accept-encoding");
pub(super) const CONTENT_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");
pub(super) const VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
/// Prefix of trailers among the headers of a unary response.
const TRAILER: &str = "trailer-";
/// Largest timeout in milliseconds: ten digits.
const TIMEOUT_MAX: u128 = 9_999_999_999;
/// Maximum length of a URI for GET; longer requests use POST, because servers and proxies reject long URIs.
const GET_BYTES_MAX: usize = 8 << 10;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    code: serde_json::Value,
    message: Option<String>,
    details: Vec<FailureDetail>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FailureDetail {
    #[serde(rename = "type")]
    type_name: String,
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct End {
    error: Option<Failure>,
    metadata: BTreeMap<String, Vec<String>>,
}

/// Reads the status in the body of a failed unary response; `metadata` is that of its headers.
pub(super) fn failure(http: StatusCode, body: &[u8], metadata: Metadata) -> Status {
    let code = codes::of_status(http);
    match serde_json::from_slice::<Failure>(body) {
        Ok(failure) if failure.code.is_string() || failure.message.is_some() => failure.status(code),
        _ => codes::from_path(
            code,
            format!("the server responded with HTTP status {http} without an error in the body"),
        ),
    }
    .with_metadata(metadata)
}

/// Reads the end of a stream: its trailers, or its status.
pub(super) fn end(body: &[u8], limits: &MetadataLimits) -> Result<Metadata> {
    let end: End = serde_json::from_slice(body).map_err(|error| {
        codes::from_path(Code::Internal, format!("the end of the stream cannot be read: {error}"))
    })?;
    let mut headers = HeaderMap::new();
    for (name, values) in &end.metadata {
        for value in values {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
            {
                headers.append(name, value);
            }
        }
    }
    let metadata = codes::metadata(&headers, limits)?;
    match end.error {
        None => Ok(metadata),
        Some(failure) => {
            Err(codes::pushed_back(failure.status(Code::Unknown).with_metadata(metadata), &headers))
        }
    }
}

impl Failure {
    /// Converts the error; `fallback` is used when the error has no known code.
    fn status(self, fallback: Code) -> Status {
        let code = self.code.as_str().and_then(codes::named).unwrap_or(fallback);
        let mut status = Status::new(code, self.message.unwrap_or_default())
            .with_origin(Origin::Peer)
            .with_retry(codes::hint(code));
        for detail in self.details {
            if let Ok(value) = BASE64.decode(detail.value) {
                let name = detail.type_name.rsplit('/').next().unwrap_or_default().to_owned();
                status = status.with_detail(name, value);
            }
        }
        status
    }
}

/// Removes the trailers from the headers of a unary response.
pub(super) fn split_trailers(headers: &mut HeaderMap) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if !headers.keys().any(|name| name.as_str().starts_with(TRAILER)) {
        return trailers;
    }
    let mut rest = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter() {
        let bare = name.as_str().strip_prefix(TRAILER).map(|bare| HeaderName::from_bytes(bare.as_bytes()));
        match bare {
            Some(Ok(bare)) => trailers.append(bare, value.clone()),
            _ => rest.append(name.clone(), value.clone()),
        };
    }
    *headers = rest;
    trailers
}

/// Formats the remaining timeout, rounded up.
pub(super) fn timeout(left: Duration) -> HeaderValue {
    let millis = left.as_nanos().div_ceil(1_000_000).min(TIMEOUT_MAX) as u64;
    HeaderValue::from(millis)
}

/// Returns the path and query of a call by GET, or `None` when it would be too long.
pub(super) fn query(path: &str, codec: &str, compression: Option<&str>, message: &[u8]) -> Option<String> {
    if message.len() > GET_BYTES_MAX / 4 * 3 {
        return None;
    }
    // The order is fixed, so that caches recognize equal calls.
    let text = codec == "json" && compression.is_none();
    let mut query = format!("{path}?connect=v1{}", if text { "" } else { "&base64=1" });
    if let Some(compression) = compression {
        query.push_str("&compression=");
        query.push_str(compression);
    }
    write!(query, "&encoding={codec}&message=").expect("writing to a string cannot fail");
    if text {
        for byte in message {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    query.push(*byte as char);
                }
                _ => write!(query, "%{byte:02X}").expect("writing to a string cannot fail"),
            }
        }
    } else {
        URL_SAFE_NO_PAD.encode_string(message, &mut query);
    }
    (query.len() <= GET_BYTES_MAX).then_some(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_core::Limits;
    use switchboard_wire::Retry;

    #[test]
    fn failures_are_read_or_inferred_from_http() {
        let body =
            br#"{"code":"not_found","message":"no","details":[{"type":"a.B","value":"CAE","debug":{}}]}"#;
        let status = failure(StatusCode::INTERNAL_SERVER_ERROR, body, Metadata::new());
        assert_eq!((status.code(), status.message(), status.origin()), (Code::NotFound, "no", Origin::Peer));
        assert_eq!(
            (&*status.details()[0].type_name, &status.details()[0].value[..]),
            ("a.B", &b"\x08\x01"[..])
        );
        let status =
            failure(StatusCode::SERVICE_UNAVAILABLE, br#"{"code":"?","message":"m"}"#, Metadata::new());
        assert_eq!((status.code(), status.retry()), (Code::Unavailable, Retry::IfIdempotent));
        for body in [&b"<html>"[..], b"{}", b"[]", b"null", br#"{"code":5}"#] {
            assert_eq!(failure(StatusCode::NOT_FOUND, body, Metadata::new()).code(), Code::Unimplemented);
        }
    }

    #[test]
    fn streams_end_with_metadata_or_an_error() {
        let limits = MetadataLimits::new(&Limits::default());
        assert!(end(b"{}", &limits).unwrap().is_empty());
        let metadata = end(br#"{"metadata":{"x-end":["a","b"],"x-bin":["AA"]}}"#, &limits).unwrap();
        assert_eq!(format!("{metadata:?}"), r#"{"x-bin": b"\0", "x-end": b"a", "x-end": b"b"}"#);
        let status = end(br#"{"error":{"code":"aborted"},"metadata":{"x":["1"]}}"#, &limits).unwrap_err();
        assert_eq!(
            (status.code(), status.message(), status.metadata().text("x")),
            (Code::Aborted, "", Some("1"))
        );
        assert_eq!(end(b"{", &limits).unwrap_err().code(), Code::Internal);
    }

    #[test]
    fn trailers_are_recognized_by_their_prefix() {
        let mut headers = HeaderMap::new();
        headers.append("x", HeaderValue::from_static("1"));
        assert!(split_trailers(&mut headers).is_empty());
        headers.append("trailer-x", HeaderValue::from_static("2"));
        assert_eq!(split_trailers(&mut headers)["x"], "2");
        assert_eq!((headers.len(), &headers["x"]), (1, &HeaderValue::from_static("1")));
    }

    #[test]
    fn requests_by_get_are_text_or_base64_and_not_too_long() {
        let json = query("/a.B/C", "json", None, br#"{"a":1}"#).unwrap();
        assert_eq!(json, "/a.B/C?connect=v1&encoding=json&message=%7B%22a%22%3A1%7D");
        let proto = query("/a.B/C", "proto", Some("gzip"), &[0xFB, 0xFF]).unwrap();
        assert_eq!(proto, "/a.B/C?connect=v1&base64=1&compression=gzip&encoding=proto&message=-_8");
        assert_eq!(query("/a.B/C", "proto", None, &[0; GET_BYTES_MAX]), None);
        assert_eq!(query("/a.B/C", "json", None, &[b' '; GET_BYTES_MAX / 2]), None);
    }

    #[test]
    fn timeouts_are_milliseconds_rounded_up() {
        assert_eq!(timeout(Duration::from_micros(1)), "1");
        assert_eq!(timeout(Duration::MAX), "9999999999");
    }
}
