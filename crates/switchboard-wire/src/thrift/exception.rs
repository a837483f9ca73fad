//! `TApplicationException` and [`Status`]: how calls end that have no result.
//!
//! | status | type | text |
//! | --- | --- | --- |
//! | `Unimplemented` | 1 unknown method | the message |
//! | `InvalidArgument` | 7 protocol error | the message |
//! | any other | 6 internal error | `code: message` |
//!
//! | type | status |
//! | --- | --- |
//! | 1 unknown method | `Unimplemented` |
//! | 2 message type, 3 method name, 4 sequence, 5 missing result, 8 transform, 9 protocol, 10 client type | `Internal` |
//! | 7 protocol error, 11 validation failed | `InvalidArgument` |
//! | 6 internal error | the code that the text begins with, else `Internal` |
//! | 0 and unknown ones | that of the text, else `Unknown` |
//!
//! Details, metadata and whether a retry is safe have no place in it. What services declare to throw does not come this
//! way: it is part of their results.

use super::{
    Malformed, Reader, Type,
    value::{put_field, put_stop},
};
use crate::{Code, Origin, Status};
use bytes::Bytes;

/// The types of `TApplicationException` that are written here.
pub(super) const UNKNOWN_METHOD: i32 = 1;
pub(super) const INVALID_MESSAGE_TYPE: i32 = 2;
pub(super) const INTERNAL_ERROR: i32 = 6;
pub(super) const PROTOCOL_ERROR: i32 = 7;
pub(super) const INVALID_TRANSFORM: i32 = 8;
pub(super) const INVALID_PROTOCOL: i32 = 9;

/// The struct in the binary protocol.
pub fn write(status: &Status) -> Vec<u8> {
    let (number, text) = match status.code() {
        Code::Unimplemented => (UNKNOWN_METHOD, status.message().to_owned()),
        Code::InvalidArgument => (PROTOCOL_ERROR, status.message().to_owned()),
        code => (INTERNAL_ERROR, format!("{}: {}", code.name(), status.message())),
    };
    write_parts(&text, number)
}

pub(super) fn write_parts(text: &str, number: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    put_field(&mut out, 1, &text.to_owned());
    put_field(&mut out, 2, &number);
    put_stop(&mut out);
    out
}

/// The status for a struct in the binary protocol.
///
/// # Errors
/// Bytes that are no struct.
pub fn read(body: &Bytes) -> Result<Status, Malformed> {
    let mut input = Reader::new(body);
    let (mut text, mut number) = (None, None);
    input.enter()?;
    while let Some((kind, id)) = input.field()? {
        match id {
            // Text that is not UTF-8 is still some.
            1 if kind == Type::STRING => input.known::<Bytes>(kind, &mut text)?,
            2 => input.known::<i32>(kind, &mut number)?,
            _ => input.skip(kind)?,
        }
    }
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let coded = |otherwise: Code| match text.split_once(": ") {
        Some((name, rest)) => {
            match Code::ALL.into_iter().find(|code| code.name() == name && *code != Code::Ok) {
                Some(code) => (code, rest.to_owned()),
                None => (otherwise, text.clone()),
            }
        }
        None => (otherwise, text.clone()),
    };
    let (code, text) = match number.unwrap_or(0) {
        UNKNOWN_METHOD => (Code::Unimplemented, text),
        2..=5 | 8..=10 => (Code::Internal, text),
        PROTOCOL_ERROR | 11 => (Code::InvalidArgument, text),
        INTERNAL_ERROR => coded(Code::Internal),
        _ => coded(Code::Unknown),
    };
    Ok(Status::new(code, text).with_origin(Origin::Peer))
}
