//! Error objects: conversion between the codes of JSON-RPC and [`Status`].

use crate::{Code, Retry, Status, base64};

/// Reason why a request failed, in the form that its caller receives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ErrorObject {
    /// Error number.
    pub code: i32,
    /// Human-readable text.
    pub message: String,
    /// Additional data for programs, in JSON.
    pub data: Option<String>,
}

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;

/// Codes that have their own number; all others are internal errors.
const CODES: [(Code, i32); 9] = [
    (Code::Canceled, -32099),
    (Code::DeadlineExceeded, -32008),
    (Code::InvalidArgument, INVALID_PARAMS),
    (Code::NotFound, -32004),
    (Code::PermissionDenied, -32003),
    (Code::ResourceExhausted, -32029),
    (Code::Unauthenticated, -32001),
    (Code::Unavailable, -32014),
    (Code::Unimplemented, METHOD_NOT_FOUND),
];

/// Returns the number for a code.
pub fn error_code(code: Code) -> i32 {
    CODES.iter().find(|(known, _)| *known == code).map_or(INTERNAL_ERROR, |(_, number)| *number)
}

/// Returns the code for a number; unassigned numbers are [`Code::Unknown`].
pub fn code_of(number: i32) -> Code {
    match CODES.iter().find(|(_, known)| *known == number) {
        Some((code, _)) => *code,
        None => match number {
            PARSE_ERROR | INVALID_REQUEST => Code::InvalidArgument,
            INTERNAL_ERROR => Code::Internal,
            _ => Code::Unknown,
        },
    }
}

impl ErrorObject {
    pub(super) fn parse(why: &str) -> ErrorObject {
        ErrorObject { code: PARSE_ERROR, message: "Parse error".into(), data: Some(quoted(why)) }
    }

    pub(super) fn invalid(why: &str) -> ErrorObject {
        ErrorObject { code: INVALID_REQUEST, message: "Invalid Request".into(), data: Some(quoted(why)) }
    }

    /// Writes the object as JSON.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(
            format!("{{\"code\":{},\"message\":{}", self.code, quoted(&self.message)).as_bytes(),
        );
        if let Some(data) = &self.data {
            into.extend_from_slice(b",\"data\":");
            into.extend_from_slice(data.as_bytes());
        }
        into.push(b'}');
    }
}

impl From<&Status> for ErrorObject {
    fn from(status: &Status) -> ErrorObject {
        let mut data = format!("{{\"grpcCode\":{},\"details\":[", status.code().number());
        for (at, detail) in status.details().iter().enumerate() {
            let (name, value) = (quoted(&detail.type_name), base64::encode(&detail.value));
            data.push_str(if at == 0 { "" } else { "," });
            data.push_str(&format!("{{\"type\":{name},\"value\":\"{value}\"}}"));
        }
        data.push(']');
        match status.retry() {
            Retry::Safe => data.push_str(",\"retry\":\"safe\""),
            Retry::After(pause) => data.push_str(&format!(",\"retry\":{}", pause.as_millis())),
            // Follows from the code.
            Retry::IfIdempotent | Retry::No => {}
        }
        data.push('}');
        ErrorObject {
            code: error_code(status.code()),
            message: status.message().to_owned(),
            data: Some(data),
        }
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn codes_survive_the_round_trip_where_they_have_a_number() {
        for (code, number) in CODES {
            assert_eq!((error_code(code), code_of(number)), (number, code));
        }
        assert_eq!(error_code(Code::DataLoss), -32603);
        assert_eq!(code_of(-32603), Code::Internal);
        assert_eq!(code_of(17), Code::Unknown);
    }

    #[test]
    fn statuses_bring_their_details() {
        let status =
            Status::not_found("no \"post\"").with_detail("a.B", &b"\x08\x01"[..]).with_detail("c.D", "");
        let mut text = Vec::new();
        ErrorObject::from(&status).write(&mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            [
                r#"{"code":-32004,"message":"no \"post\"","data":{"grpcCode":5,"details":["#,
                r#"{"type":"a.B","value":"CAE="},{"type":"c.D","value":""}]}}"#,
            ]
            .concat()
        );
    }

    #[test]
    fn statuses_say_whether_a_retry_is_safe_and_callers_get_that() {
        for (status, part) in [
            (Status::unavailable("drains").with_retry(Retry::Safe), Some(",\"retry\":\"safe\"}")),
            (
                Status::resource_exhausted("full").with_retry(Retry::After(Duration::from_millis(1200))),
                Some(",\"retry\":1200}"),
            ),
            (Status::unavailable("lost").with_retry(Retry::IfIdempotent), None),
            (Status::not_found("nothing").with_retry(Retry::No), None),
        ] {
            let error = ErrorObject::from(&status);
            let data = error.data.clone().unwrap();
            assert!(part.map_or(!data.contains("retry"), |part| data.ends_with(part)), "{data}");
            let back = Status::from(error);
            assert_eq!((back.code(), back.retry()), (status.code(), status.retry()));
        }
    }
}
