//! Codes that HTTP and its proxies know, as codes of calls.

use crate::{
    Code, Metadata, Origin, Result, Retry, Status,
    http::convert::{self, MetadataLimits},
};
use ::http::{
    HeaderMap, HeaderName, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use std::time::Duration;

/// The code for an HTTP status that came without one: from a proxy, or from a server that speaks no RPC.
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

/// The status for an answer that is none of the dialect.
pub(super) fn foreign(status: StatusCode, headers: &HeaderMap, wanted: &str, peer: &str) -> Status {
    let kind =
        headers.get(CONTENT_TYPE).map_or("none".into(), |kind| String::from_utf8_lossy(kind.as_bytes()));
    let (code, text) = if status == StatusCode::OK {
        (Code::Unknown, format!("{peer} answered with content type {kind} where {wanted} belongs"))
    } else {
        (of_status(status), format!("{peer} answered with HTTP status {status}, content type {kind}"))
    };
    let failure = from_path(code, text);
    // RFC 9110, 10.2.3; dates are rare, and nobody's clock is right.
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    match seconds {
        Some(seconds) if matches!(status.as_u16(), 429 | 503) => {
            failure.with_retry(Retry::After(Duration::from_secs(u64::from(seconds))))
        }
        _ => failure,
    }
}

/// Milliseconds after which a caller may try again, as gRPC spells it (gRFC A6); negative, or no number, for never.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// The detail that says the same, of servers that follow Google's error model.
const RETRY_INFO: &str = "google.rpc.RetryInfo";

/// The status with what its server says about trying again, in the trailers or in a detail. Believed where the server
/// refused: elsewhere the call may have begun.
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

/// A status that what lies between caller and service has caused.
pub(super) fn from_path(code: Code, text: String) -> Status {
    Status::new(code, text).with_origin(Origin::Path).with_retry(hint(code))
}

/// The metadata among the headers of an answer.
///
/// # Errors
/// `Internal` for binary values that are not base64, `ResourceExhausted` for too many entries.
pub(super) fn metadata(headers: &HeaderMap, limits: &MetadataLimits) -> Result<Metadata> {
    convert::metadata(headers, limits).map_err(|status| match status.code() {
        Code::InvalidArgument => {
            from_path(Code::Internal, format!("the server sent wrong metadata: {}", status.message()))
        }
        _ => status,
    })
}

/// Whether a second try may help, where the wire does not say so.
pub(super) fn hint(code: Code) -> Retry {
    if code == Code::Unavailable { Retry::IfIdempotent } else { Retry::No }
}

/// The code with this name in Connect's errors.
pub(super) fn named(name: &str) -> Option<Code> {
    Code::ALL.into_iter().find(|code| *code != Code::Ok && code.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_proxies_name_what_came() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "text/html".parse().unwrap());
        let status = foreign(StatusCode::BAD_GATEWAY, &headers, "application/grpc", "tcp://a:1");
        assert_eq!((status.code(), status.origin()), (Code::Unavailable, Origin::Path));
        assert_eq!(
            status.message(),
            "tcp://a:1 answered with HTTP status 502 Bad Gateway, content type text/html"
        );
        let status = foreign(StatusCode::OK, &HeaderMap::new(), "application/grpc", "tcp://a:1");
        assert_eq!(status.code(), Code::Unknown);
        assert!(status.message().ends_with("content type none where application/grpc belongs"), "{status}");
    }

    #[test]
    fn servers_say_when_to_come_back() {
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
        let status = foreign(StatusCode::TOO_MANY_REQUESTS, &busy, "application/grpc", "tcp://a:1");
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
