//! Refuses invalid requests before their bodies are read, in the protocol of the caller.
//!
//! `connectrpc` treats a timeout that it cannot parse as none, and its responses for an unknown method or compression
//! do not list the available ones.

use super::{Standard, convert, decoded_body::DecodedBody};
use crate::http::HttpState;
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use bytes::Bytes;
use connectrpc::{ConnectRpcBody, Dispatcher, Protocol};
use http_body::Body;
use std::{future::poll_fn, pin::Pin, time::Duration};
use switchboard_wire::{Kind, Metadata, MethodId, Status};

const CONNECT_CONTENT_ENCODING: HeaderName = HeaderName::from_static("connect-content-encoding");
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Content types for methods with that stream; JSON without envelopes is handled by HTTP/JSON before this check.
const STREAMED: &str = "application/connect+json, application/connect+proto, application/grpc, application/grpc+json, \
    application/grpc+proto, application/grpc-web, application/grpc-web+json, application/grpc-web+proto";

/// Most bytes of a refused request that are read; `DRAIN_TIME` limits the time.
const DRAIN_MAX: usize = 1 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Most digits of a timeout, by the specifications of gRPC and Connect.
const GRPC_DIGITS_MAX: usize = 8;
const CONNECT_DIGITS_MAX: usize = 10;

/// Returns the response that refuses this request to the method `found`, if there is one; `None` if the request is
/// valid.
pub(super) fn refuse(
    shared: &HttpState,
    found: Option<MethodId>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Option<Response<ConnectRpcBody>> {
    let standard = Standard::of(shared);
    let protocol = match Protocol::detect(headers) {
        Some(detected) => detected.protocol,
        // Unknown codecs and content types get their own responses.
        None if headers.contains_key(CONTENT_TYPE) => return None,
        None => Protocol::Connect,
    };
    if found.is_none() && standard.router().lookup(path).is_none() {
        let status = shared.table.unknown(path);
        return Some(response(&status, Some(StatusCode::NOT_FOUND), headers));
    }
    if method != Method::POST && method != Method::GET {
        return None;
    }
    if let Some(found) = found
        && shared.table.info(found).kind != Kind::Unary
        && method == Method::POST
        && Protocol::detect(headers)
            .is_some_and(|detected| detected.protocol == Protocol::Connect && !detected.is_streaming)
    {
        let name = shared.table.full_name(found);
        let text = format!("{name} streams: send one of the content types {STREAMED}");
        let mut response =
            response(&Status::unimplemented(text), Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), headers);
        response.headers_mut().insert(ACCEPT_POST, HeaderValue::from_static(STREAMED));
        return Some(response);
    }
    if let Err(status) = check_timeout(protocol, headers) {
        return Some(response(&status, None, headers));
    }
    let (names, encoding) = (standard.encodings(), encoding(protocol, headers)?);
    if names.split(',').any(|name| name.trim() == encoding) || encoding == "identity" {
        return None;
    }
    let text = format!("compression {encoding:?} is not supported: use one of {names}");
    let mut response = response(&Status::unimplemented(text), None, headers);
    if let Ok(names) = HeaderValue::from_str(names) {
        response.headers_mut().insert(protocol.accept_encoding_header(), names);
    }
    Some(response)
}

/// Reads the rest of a refused request.
///
/// A caller on HTTP/1.1 that still writes when its response arrives sees a broken connection instead of the response.
pub(super) async fn drain(mut body: DecodedBody) {
    let drained = async {
        let mut left = DRAIN_MAX;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // The connection ends if the caller sends more, or takes longer.
    let _ = tokio::time::timeout(DRAIN_TIME, drained).await;
}

/// Converts a status to the response to a request with these headers; `http` is the HTTP status for unary calls of
/// Connect.
pub(super) fn response(
    status: &Status,
    connect_unary: Option<StatusCode>,
    headers: &HeaderMap,
) -> Response<ConnectRpcBody> {
    let error = convert::error(status, &Metadata::new(), &Metadata::new());
    match connect_unary {
        Some(code) => error.with_http_status(code),
        None => error,
    }
    .into_http_response(headers)
}

/// # Errors
/// A timeout that cannot be parsed; grpc-go responds with `Internal`, Connect requires `InvalidArgument`.
fn check_timeout(protocol: Protocol, headers: &HeaderMap) -> Result<(), Status> {
    let name = protocol.timeout_header();
    let Some(value) = headers.get(name) else { return Ok(()) };
    let (digits, max) = match (protocol, value.as_bytes()) {
        (Protocol::Connect, digits) => (Some(digits), CONNECT_DIGITS_MAX),
        (_, [digits @ .., b'H' | b'M' | b'S' | b'm' | b'u' | b'n']) => (Some(digits), GRPC_DIGITS_MAX),
        _ => (None, GRPC_DIGITS_MAX),
    };
    let good = |digits: &[u8]| (1..=max).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if digits.is_some_and(good) {
        return Ok(());
    }
    Err(match protocol {
        Protocol::Connect => {
            let text = format!("malformed {name} {value:?}: 1 to {max} digits, in milliseconds");
            Status::invalid_argument(text)
        }
        _ => {
            Status::internal(format!("malformed {name} {value:?}: 1 to {max} digits and one of H M S m u n"))
        }
    })
}

/// Returns the compression of the request's messages, if the request names one.
fn encoding(protocol: Protocol, headers: &HeaderMap) -> Option<&str> {
    let streams = Protocol::detect(headers).is_some_and(|detected| detected.is_streaming);
    let name = match protocol {
        Protocol::Connect if streams => CONNECT_CONTENT_ENCODING,
        Protocol::Connect => CONTENT_ENCODING,
        _ => GRPC_ENCODING,
    };
    headers.get(name)?.to_str().ok().filter(|encoding| !encoding.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    fn check(protocol: Protocol, value: &'static str) -> Option<Code> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(protocol.timeout_header()), HeaderValue::from_static(value));
        check_timeout(protocol, &headers).err().map(|status| status.code())
    }

    #[test]
    fn timeouts_are_digits_and_a_unit() {
        for good in ["0n", "1S", "99999999H", "20m", "1u", "5M"] {
            assert_eq!(check(Protocol::Grpc, good), None, "{good}");
        }
        for bad in ["", "S", "1", "123456789n", "1s", "-1S", "+1S", "1.5S", " 1S", "1SS"] {
            assert_eq!(check(Protocol::Grpc, bad), Some(Code::Internal), "{bad}");
            assert_eq!(check(Protocol::GrpcWeb, bad), Some(Code::Internal), "{bad}");
        }
        for good in ["0", "9999999999"] {
            assert_eq!(check(Protocol::Connect, good), None, "{good}");
        }
        for bad in ["", "10000000000", "+1", "1m", "0x1"] {
            assert_eq!(check(Protocol::Connect, bad), Some(Code::InvalidArgument), "{bad}");
        }
    }
}
