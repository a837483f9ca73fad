//! Conversion between a status and the error form of erpc; the table is in [`erpc`](super).

use super::{QUERY_BYTES_MAX, metadata, query};
use crate::{
    Code, Metadata, Origin, Retry, Status,
    foreign::{CODE, DETAILS, PUSHBACK, details, read_details, truncated},
};
use bytes::BytesMut;
use std::time::Duration;

/// Metadata key of a status for the number of erpc, sent or received.
const NUMBER: &str = "erpc-code";
/// Metadata key of a status for the second text.
const CAUSE: &str = "erpc-cause";
/// First number for codes without a number of erpc.
const OTHERS: i32 = 1000;

/// Returns the number for a code.
fn number_of(code: Code) -> i32 {
    match code {
        Code::InvalidArgument => 400,
        Code::Unauthenticated => 401,
        Code::Unimplemented => 404,
        Code::DeadlineExceeded => 408,
        Code::Internal | Code::Unknown => 500,
        Code::Unavailable => 502,
        other => OTHERS + i32::from(other.number()),
    }
}

/// Returns the code for a number that erpc defines; other numbers belong to the application.
fn code_of(number: i32) -> Option<Code> {
    match number {
        400 => Some(Code::InvalidArgument),
        401 => Some(Code::Unauthenticated),
        404 | 405 => Some(Code::Unimplemented),
        408 => Some(Code::DeadlineExceeded),
        500 => Some(Code::Internal),
        // Errors of calls that the server makes itself: no connection, or a lost one.
        100 | 102 | 104 | 105 | 502 => Some(Code::Unavailable),
        _ => None,
    }
}

/// Encodes the query strings of status and metadata.
pub(super) fn write(status: &Status) -> (BytesMut, BytesMut) {
    let (mut written, mut beside) = (BytesMut::new(), BytesMut::new());
    let own = status.metadata().text(NUMBER).and_then(|text| text.parse().ok()).filter(|number| *number != 0);
    let number = own.unwrap_or_else(|| number_of(status.code()));
    let message = truncated(status.message());
    query::put(&mut written, b"code", number.to_string().as_bytes());
    match own.is_none() && number > OTHERS {
        true => query::put(&mut written, b"msg", format!("{}: {message}", status.code()).as_bytes()),
        false => query::put(&mut written, b"msg", message.as_bytes()),
    }
    if let Some(cause) = status.metadata().text(CAUSE) {
        query::put(&mut written, b"cause", truncated(cause).as_bytes());
    }
    query::put(&mut beside, CODE.as_bytes(), status.code().number().to_string().as_bytes());
    let alone = beside.clone();
    let pause = match status.retry() {
        Retry::Safe => Some(Duration::ZERO),
        Retry::After(pause) => Some(pause),
        Retry::IfIdempotent | Retry::No => None,
    };
    if let Some(pause) = pause {
        query::put(&mut beside, PUSHBACK.as_bytes(), pause.as_millis().to_string().as_bytes());
    }
    if let Some(details) = details(status) {
        query::put(&mut beside, DETAILS.as_bytes(), &details);
    }
    let mut rest = status.metadata().clone();
    [NUMBER, CAUSE].iter().for_each(|own| rest.remove(own));
    metadata::put(&mut beside, &rest);
    // Escapes make bytes three times as long.
    if beside.len() > QUERY_BYTES_MAX { (written, alone) } else { (written, beside) }
}

/// Reads a status; returns the metadata if it is a success.
pub(super) fn read(written: &[u8], mut metadata: Metadata) -> Result<Metadata, Status> {
    let (mut number, mut message, mut cause) = (0, String::new(), String::new());
    for (name, value) in query::pairs(written) {
        let text = String::from_utf8_lossy(&value).into_owned();
        match &name[..] {
            b"code" => number = text.parse().unwrap_or(-1),
            b"msg" => message = text,
            b"cause" => cause = text,
            _ => {}
        }
    }
    if number == 0 {
        return Ok(metadata);
    }
    if message.is_empty() {
        message.clone_from(&cause);
    }
    let exact = metadata.text(CODE).and_then(|text| text.parse().ok()).map(Code::from_number);
    let code = exact.or(code_of(number)).unwrap_or(Code::Unknown);
    if exact.is_some()
        && let Some(rest) = message.strip_prefix(code.name()).and_then(|rest| rest.strip_prefix(": "))
        && number == number_of(code)
    {
        message = rest.to_owned();
    }
    let pause = metadata.text(PUSHBACK).and_then(|text| text.parse().ok()).map(Duration::from_millis);
    let retry = match (pause, code) {
        (Some(Duration::ZERO), _) => Retry::Safe,
        (Some(pause), _) => Retry::After(pause),
        (None, Code::Unavailable) => Retry::IfIdempotent,
        (None, _) => Retry::No,
    };
    let mut status = Status::new(code, message).with_retry(retry);
    let details = metadata.value(DETAILS).map(read_details).unwrap_or_default();
    for detail in details {
        status = status.with_detail(detail.type_name, detail.value);
    }
    [CODE, PUSHBACK, DETAILS].iter().for_each(|own| metadata.remove(own));
    if number != number_of(code) {
        metadata.remove(NUMBER);
        metadata.insert(NUMBER, number.to_string())?;
    }
    if !cause.is_empty() && cause != status.message() {
        // A cause that is not plain text cannot be stored in metadata.
        let _ = metadata.insert(CAUSE, cause);
    }
    Err(status.with_metadata(metadata).with_origin(Origin::Peer))
}
