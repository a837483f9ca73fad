//! The message of a request for generated code: read as the codec says, and strictly where that was chosen.

use super::FieldNames;
use crate::{Cx, Result};
use bytes::Bytes;
use switchboard_wire::Codec;

/// Reads the message of a request: with `strict`, which is given the names of the fields, where the server or the call
/// refuses unknown fields, else with `read`.
///
/// # Errors
/// Theirs, and `InvalidArgument` if the call does not say what it wants.
#[inline]
pub fn read_request<T>(
    cx: &Cx,
    codec: Codec,
    bytes: Bytes,
    read: impl FnOnce(Codec, Bytes) -> Result<T>,
    strict: impl FnOnce(Codec, Bytes, FieldNames) -> Result<T>,
) -> Result<T> {
    let read = match cx.refuses_unknown_fields() {
        Ok(false) => read(codec, bytes),
        Ok(true) => strict(codec, bytes, FieldNames::of_request(cx)),
        Err(status) => Err(status),
    };
    match read {
        Ok(request) => Ok(request),
        Err(status) => Err(cx.failed(status)),
    }
}
