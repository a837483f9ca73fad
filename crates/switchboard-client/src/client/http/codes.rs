//! Mapping of HTTP statuses and headers to codes of calls.

use ::http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use std::time::Duration;
use switchboard_core::Result;
use switchboard_net::http_fields::{self, MetadataLimits};
use switchboard_wire::{Code, Metadata, Origin, Retry, Status};

/// Returns the code for an HTTP status without an RPC status: from a proxy, or from a server that is not an RPC server.
pub(super) fn of_status(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The status for a response that does not belong to the dialect.
pub(super) fn unexpected_response(
    status: StatusCode,
    headers: &HeaderMap,
    wanted: &str,
    peer: &str,
) -> Status {
    let kind =
        headers.get(CONTENT_TYPE).map_or("none".into(), |kind| String::from_utf8_lossy(kind.as_bytes()));
    let (code, text) = if status == StatusCode::OK {
        (Code::Unknown, format!("{peer} responded with content type {kind}, expected {wanted}"))
    } else {
        (of_status(status), format!("{peer} responded with HTTP status {status}, content type {kind}"))
    };
    let failure = from_path(code, text);
    // RFC 9110, 10.2.3. Dates are not supported: they are rare, and depend on synchronized clocks.
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    match seconds {
        Some(seconds) if matches!(status.as_u16(), 429 | 503) => {
            failure.with_retry(Retry::After(Duration::from_secs(u64::from(seconds))))
        }
        _ => failure,
    }
}

/// Milliseconds after which a caller may retry, in gRPC's spelling (gRFC A6); a negative or invalid number means never.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// The corresponding detail of servers that follow Google's error model.
const RETRY_INFO: &str = "google.rpc.RetryInfo";

/// Adds the server's retry advice, from the trailers or a detail, to the status. It applies only to codes with which
/// the server rejects calls: with others the call may have begun.
pub(super) fn pushed_back(status: Status, trailers: &HeaderMap) -> Status {
    if let Some(value) = trailers.get(PUSHBACK) {
        let pause = value.to_str().ok().and_then(|millis| millis.trim().parse::<u32>().ok());
        return match pause {
            None => status.with_retry(Retry::No),
            Some(pause)
                if matches!(status.code(), Code::Aborted | Code::ResourceExhausted | Code::Unavailable) =>
            {
                status.with_retry(Retry::After(Duration::from_millis(u64::from(pause))))
            }
            Some(_) => status,
        };
    }
    let refused = matches!(status.code(), Code::ResourceExhausted | Code::Unavailable);
    let info = status.details().iter().find(|detail| detail.type_name == RETRY_INFO).filter(|_| refused);
    match info.and_then(|detail| super::grpc::retry_delay(&detail.value)) {
        Some(pause) => status.with_retry(Retry::After(pause)),
        None => status,
    }
}

/// A status caused between caller and service.
pub(super) fn from_path(code: Code, text: String) -> Status {
    Status::new(code, text).with_origin(Origin::Connection).with_retry(hint(code))
}

/// Reads the metadata among the headers of a response.
///
/// # Errors
/// `Internal` for binary values that are not base64, `ResourceExhausted` for too many entries.
pub(super) fn metadata(headers: &HeaderMap, limits: &MetadataLimits) -> Result<Metadata> {
    http_fields::metadata(headers, limits).map_err(|status| match status.code() {
        Code::InvalidArgument => {
            from_path(Code::Internal, format!("the server sent invalid metadata: {}", status.message()))
        }
        _ => status,
    })
}

/// Default retry advice for a code, where the wire carries none.
pub(super) fn hint(code: Code) -> Retry {
    if code == Code::Unavailable { Retry::IfIdempotent } else { Retry::No }
}

/// Returns the code with this name in Connect's errors.
pub(super) fn named(name: &str) -> Option<Code> {
    Code::ALL.into_iter().find(|code| *code != Code::Ok && code.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_responses_name_status_and_content_type() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "text/html".parse().unwrap());
        let status = unexpected_response(StatusCode::BAD_GATEWAY, &headers, "application/grpc", "tcp://a:1");
        assert_eq!((status.code(), status.origin()), (Code::Unavailable, Origin::Connection));
        assert_eq!(
            status.message(),
            "tcp://a:1 responded with HTTP status 502 Bad Gateway, content type text/html"
        );
        let status = unexpected_response(StatusCode::OK, &HeaderMap::new(), "application/grpc", "tcp://a:1");
        assert_eq!(status.code(), Code::Unknown);
        assert!(status.message().ends_with("content type none, expected application/grpc"), "{status}");
    }

    #[test]
    fn servers_set_the_retry_delay() {
        let headers = |pushback: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(PUSHBACK, pushback.parse().unwrap());
            headers
        };
        let after = |millis| Retry::After(Duration::from_millis(millis));
        for (code, pushback, retry) in [
            (Code::ResourceExhausted, "40", after(40)),
            (Code::Unavailable, "0", after(0)),
            (Code::Unavailable, "-1", Retry::No),
            (Code::Unavailable, "soon", Retry::No),
            (Code::Internal, "40", Retry::No),
        ] {
            let status = Status::new(code, "").with_retry(hint(code));
            assert_eq!(pushed_back(status, &headers(pushback)).retry(), retry, "{code} {pushback}");
        }
        // RetryInfo{retry_delay: Duration{seconds: 2, nanos: 500_000_000}}.
        let info = &b"\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01"[..];
        let refused = |code| Status::new(code, "").with_retry(hint(code)).with_detail(RETRY_INFO, info);
        let none = HeaderMap::new();
        assert_eq!(pushed_back(refused(Code::ResourceExhausted), &none).retry(), after(2500));
        assert_eq!(pushed_back(refused(Code::NotFound), &none).retry(), Retry::No);
        assert_eq!(pushed_back(refused(Code::Unavailable), &headers("7")).retry(), after(7));
        let mut busy = HeaderMap::new();
        busy.insert(RETRY_AFTER, "3".parse().unwrap());
        let status =
            unexpected_response(StatusCode::TOO_MANY_REQUESTS, &busy, "application/grpc", "tcp://a:1");
        assert_eq!((status.code(), status.retry()), (Code::Unavailable, after(3000)));
    }

    #[test]
    fn connect_names_every_code() {
        for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
            assert_eq!(named(code.name()), Some(code));
        }
        assert_eq!(named("ok"), None);
        assert_eq!(named("deadline_exceeded"), Some(Code::DeadlineExceeded));
    }
}
