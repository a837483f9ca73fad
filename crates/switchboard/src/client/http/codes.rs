//! Codes that HTTP and its proxies know, as codes of calls.

use crate::{
    Code, Metadata, Origin, Result, Retry, Status,
    http::convert::{self, MetadataLimits},
};
use ::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};

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
    from_path(code, text)
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
    fn connect_names_every_code() {
        for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
            assert_eq!(named(code.name()), Some(code));
        }
        assert_eq!(named("ok"), None);
        assert_eq!(named("deadline_exceeded"), Some(Code::DeadlineExceeded));
    }
}
