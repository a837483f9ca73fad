//! Converts statuses to and from `connectrpc` errors.

use super::status_text::reword;
use ::http::{HeaderName, HeaderValue};
use base64::Engine;
use connectrpc::{ConnectError, ErrorCode, ErrorDetail};
pub(super) use switchboard_net::http_fields::{BASE64, MetadataLimits, headers, metadata};
use switchboard_wire::{Code, Metadata, Retry, Status};

/// Milliseconds after which a caller may retry, as gRPC defines it (gRFC A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Marks the head of an error whose text comes from a handler, even if it reads like one of `connectrpc`'s. It is
/// removed before the response is sent.
pub(super) const OWN_TEXT: HeaderName = HeaderName::from_static("switchboard-own-text");

/// Converts a status to an error. `head` is sent before it; the status's own metadata and `trailers` are sent with it.
pub(super) fn error(status: &Status, head: &Metadata, trailers: &Metadata) -> ConnectError {
    let mut error = ConnectError::new(code(status.code()), status.message());
    for detail in status.details() {
        error = error.with_detail(ErrorDetail {
            type_url: detail.type_name.clone(),
            value: Some(BASE64.encode(&detail.value)),
            debug: None,
        });
    }
    let mut first = headers(head);
    if reword(status.message().as_bytes()).is_some() {
        first.insert(OWN_TEXT, HeaderValue::from_static("1"));
    }
    if !first.is_empty() {
        error.set_response_headers(first);
    }
    let pause = match status.retry() {
        Retry::After(pause) => Some(pause.as_millis().max(1).min(u128::from(u32::MAX)) as u32),
        _ => None,
    };
    if !status.metadata().is_empty() || !trailers.is_empty() || pause.is_some() {
        let mut with_it = headers(status.metadata());
        if let Some(pause) = pause {
            with_it.insert(PUSHBACK, pause.into());
        }
        for (name, value) in &headers(trailers) {
            with_it.append(name, value.clone());
        }
        error.set_trailers(with_it);
    }
    error
}

/// Converts the error of reading a request to a status.
pub(super) fn status(error: &ConnectError) -> Status {
    let code = Code::from_number(error.code.grpc_code() as u16);
    let text = error.message.clone().unwrap_or_default();
    let text = match reword(text.as_bytes()).map(String::from_utf8) {
        Some(Ok(ours)) => ours,
        _ => text,
    };
    Status::new(code, text).with_origin(switchboard_wire::Origin::Peer)
}

fn code(code: Code) -> ErrorCode {
    ErrorCode::from_grpc_code(u32::from(code.number())).unwrap_or(ErrorCode::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_go_with_the_status() {
        let pause = Retry::After(std::time::Duration::from_millis(40));
        let refused = Status::resource_exhausted("full").with_retry(pause);
        let error = error(&refused, &Metadata::new(), &Metadata::new());
        assert_eq!(error.trailers()[PUSHBACK], "40");
    }
}
