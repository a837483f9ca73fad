//! Conversion between `TApplicationException` and [`Status`], for calls that end without a result.
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
//! | 2 message type, 3 method name, 4 sequence, 5 missing result | `Internal` |
//! | 8 transform, 9 protocol, 10 client type | `Internal` |
//! | 7 protocol error, 11 validation failed | `InvalidArgument` |
//! | 6 internal error | the code that the text begins with, else `Internal` |
//! | 0 and unknown types | the code that the text begins with, else `Unknown` |
//!
//! The exception has no fields for details, metadata and the retry property. Exceptions that services declare are part
//! of their results and are not converted here.

use super::{
    Malformed, Reader, Type,
    value::{put_field, put_stop},
};
use crate::{Code, Origin, Status};
use bytes::Bytes;

/// Types of `TApplicationException` that this implementation writes.
pub(super) const UNKNOWN_METHOD: i32 = 1;
pub(super) const INVALID_MESSAGE_TYPE: i32 = 2;
pub(super) const INTERNAL_ERROR: i32 = 6;
pub(super) const PROTOCOL_ERROR: i32 = 7;
pub(super) const INVALID_TRANSFORM: i32 = 8;
pub(super) const INVALID_PROTOCOL: i32 = 9;

/// Writes the struct in the binary protocol.
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

/// Reads the status from a struct in the binary protocol.
///
/// # Errors
/// Returns an error for bytes that are not a struct.
pub fn read(body: &Bytes) -> Result<Status, Malformed> {
    let mut input = Reader::new(body);
    let (mut text, mut number) = (None, None);
    input.enter()?;
    while let Some((kind, id)) = input.field()? {
        match id {
            // Text that is not UTF-8 is accepted and converted.
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
