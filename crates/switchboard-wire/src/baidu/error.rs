//! Conversion between [`Status`] and the error codes of brpc.
//!
//! A brpc client decides from the number alone whether it retries. The number therefore follows the
//! [retry](crate::Retry) property of the status before it follows the code:
//!
//! | status | `error_code` | brpc tries again |
//! | --- | --- | --- |
//! | certainly not started (`Retry::Safe`, `After`): `unavailable` | 2003 ELOGOFF | yes, and stops using this server |
//! | certainly not started: anything else | 2004 ELIMIT | yes |
//! | `unimplemented`: no such service | 1001 ENOSERVICE | no |
//! | `unimplemented`: anything else | 1002 ENOMETHOD | no |
//! | `invalid_argument` | 1003 EREQUEST | no |
//! | `unauthenticated` | 1004 ERPCAUTH | no |
//! | `deadline_exceeded` | 1008 ERPCTIMEDOUT | no |
//! | `canceled` | 2005 ECLOSE | no |
//! | everything else | 2001 EINTERNAL | no |
//!
//! A handler can choose another number with the metadata [`ERROR_CODE`] of its status. The exact code is sent as
//! `user_fields["grpc-status"]`, details as `grpc-status-details-bin`, and a retry delay as `grpc-retry-pushback-ms`.

use super::{
    Layout, fields,
    frame::{self, Payload},
    layout::Sent,
    meta::{Meta, put_user_field},
    stream::StreamMeta,
};
use crate::{
    Code, Limits, Metadata, Origin, Outbox, Retry, Status, base64,
    foreign::{CODE, DETAILS, PUSHBACK, details, read_details, truncated},
};
use bytes::Bytes;
use std::time::Duration;

/// Metadata key of a status for the error number of brpc, sent or received.
pub(super) const ERROR_CODE: &str = "baidu-error-code";
pub(super) const ENOSERVICE: i32 = 1001;
const EREQUEST: i32 = 1003;

/// Returns the error number for a status; never 0.
pub fn error_code(status: &Status) -> i32 {
    let own = status.metadata().text(ERROR_CODE).and_then(|text| text.parse().ok());
    match (own, status.retry(), status.code()) {
        (Some(own), _, _) if own != 0 => own,
        (_, Retry::Safe | Retry::After(_), Code::Unavailable) => 2003,
        (_, Retry::Safe | Retry::After(_), _) => 2004,
        (_, _, Code::Unimplemented) => 1002,
        (_, _, Code::InvalidArgument) => EREQUEST,
        (_, _, Code::Unauthenticated) => 1004,
        (_, _, Code::DeadlineExceeded) => 1008,
        (_, _, Code::Canceled) => 2005,
        _ => 2001,
    }
}

/// Converts an error number, `errno` values included, and the text that came with it. Unassigned numbers are
/// [`Code::Unknown`].
pub fn status_of(number: i32, text: &str) -> Status {
    let (code, retry) = match number {
        1001 | 1002 => (Code::Unimplemented, Retry::No),
        EREQUEST => (Code::InvalidArgument, Retry::No),
        1004 => (Code::Unauthenticated, Retry::No),
        1008 => (Code::DeadlineExceeded, Retry::No),
        2001 | 2002 => (Code::Internal, Retry::No),
        2003 => (Code::Unavailable, Retry::Safe),
        // EOVERCROWDED, ELIMIT.
        1011 | 2004 => (Code::ResourceExhausted, Retry::Safe),
        // ECLOSE, and errors of a brpc server's own calls that it forwards: EFAILEDSOCKET, EEOF, EREJECT, and ENODATA,
        // EPIPE, ECONNRESET, ETIMEDOUT, ECONNREFUSED, EHOSTDOWN.
        2005 | 1009 | 1014 | 1018 | 61 | 32 | 104 | 110..=112 => (Code::Unavailable, Retry::IfIdempotent),
        _ => (Code::Unknown, Retry::No),
    };
    let mut status = Status::new(code, text).with_retry(retry);
    let number = Bytes::from(number.to_string());
    status.metadata_mut().insert(ERROR_CODE, number).expect("digits are text");
    status
}

/// Creates the status for an invalid request.
pub(super) fn bad_request(text: impl Into<String>) -> Status {
    Status::invalid_argument(text)
}

/// Writes the response of a failed call, a frame without message and attachment, inside a stream frame if the call has
/// a stream.
pub(super) fn put(
    layout: Layout,
    correlation_id: u64,
    status: &Status,
    inside: Option<&StreamMeta>,
    out: &mut Outbox,
) {
    frame::put(layout, out, inside, &Payload::default(), |meta| {
        let sent = Sent { correlation_id, ..Sent::default() };
        layout.put_response(meta, Some((error_code(status), truncated(status.message()))), &sent);
        if layout != Layout::Standard {
            return;
        }
        put_user_field(meta, CODE, status.code().number().to_string().as_bytes());
        if let Retry::After(pause) = status.retry() {
            put_user_field(meta, PUSHBACK, pause.as_millis().to_string().as_bytes());
        }
        if let Some(details) = details(status) {
            put_user_field(meta, DETAILS, base64::encode(&details).as_bytes());
        }
        fields::put(meta, status.metadata());
    });
}

/// Reads the status of a response with an error.
pub(super) fn read(meta: &Meta<'_>, limits: &Limits) -> Status {
    let response = meta.response.unwrap_or_default();
    let text = String::from_utf8_lossy(response.error_text);
    let mut status = status_of(response.error_code, &text);
    let mut metadata = match fields::read(meta.user_fields, limits) {
        Ok(metadata) => metadata,
        Err(refused) => return refused,
    };
    if let Some(code) = metadata.text(CODE).and_then(|text| text.parse().ok()) {
        let code = Code::from_number(code);
        let retry = match status.retry() {
            Retry::No if code == Code::Unavailable => Retry::IfIdempotent,
            retry => retry,
        };
        let own = std::mem::take(status.metadata_mut());
        status = Status::new(code, text).with_retry(retry);
        // The default number for this status adds no information.
        if error_code(&status) != response.error_code {
            status = status.with_metadata(own);
        }
    }
    if let Some(pause) = metadata.text(PUSHBACK).and_then(|text| text.parse().ok()) {
        status = status.with_retry(Retry::After(Duration::from_millis(pause)));
    }
    if let Some(block) = metadata.value(DETAILS).cloned() {
        for detail in read_details(&block) {
            status = status.with_detail(detail.type_name, detail.value);
        }
    }
    for own in [CODE, PUSHBACK, DETAILS, ERROR_CODE] {
        metadata.remove(own);
    }
    status.metadata_mut().extend(metadata);
    status.with_origin(Origin::Peer)
}

/// Adds the number for an unknown service to a status.
pub(super) fn no_service(mut status: Status) -> Status {
    let mut number = Metadata::new();
    number.insert(ERROR_CODE, ENOSERVICE.to_string()).expect("digits are text");
    status.metadata_mut().extend(number);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_whether_brpc_may_try_again() {
        let safe = |status: Status| status.with_retry(Retry::Safe);
        for (status, number) in [
            (Status::unavailable(""), 2001),
            (safe(Status::unavailable("")), 2003),
            (safe(Status::resource_exhausted("")), 2004),
            (Status::resource_exhausted(""), 2001),
            (Status::unimplemented(""), 1002),
            (no_service(Status::unimplemented("")), 1001),
            (Status::invalid_argument(""), 1003),
            (Status::unauthenticated(""), 1004),
            (Status::deadline_exceeded(""), 1008),
            (Status::canceled(""), 2005),
            (Status::not_found(""), 2001),
            (status_of(-7, "own"), -7),
        ] {
            assert_eq!(error_code(&status), number, "{status}");
        }
        // Numbers that brpc's retry policy retries are retryable here too.
        for number in [1009, 1011, 1014, 2003, 2004, 32, 61, 104, 110, 111, 112] {
            assert_ne!(status_of(number, "").retry(), Retry::No, "{number}");
        }
        for number in [1001, 1002, 1003, 1004, 1008, 2001, -1, 77_777] {
            assert_eq!(status_of(number, "").retry(), Retry::No, "{number}");
        }
        assert_eq!(status_of(77_777, "").code(), Code::Unknown);
    }
}
