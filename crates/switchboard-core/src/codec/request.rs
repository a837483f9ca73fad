//! Messages of requests for generated code: read as the codec says, and strictly where that was chosen.

use super::FieldNames;
use crate::{Cx, Receiver, Result, queue::RawReceiver};
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
    if cx.refuses_unknown_fields()? {
        return strict(codec, bytes, FieldNames::of_request(cx));
    }
    read(codec, bytes)
}

/// Decodes a stream of messages as [`read_request`] decodes one.
///
/// # Errors
/// `InvalidArgument` if the call does not say what it wants.
pub fn receive_request<T>(
    cx: &Cx,
    codec: Codec,
    raw: RawReceiver,
    read: fn(Codec, Bytes) -> Result<T>,
    strict: fn(Codec, Bytes, FieldNames) -> Result<T>,
) -> Result<Receiver<T>> {
    let mut receiver = Receiver::of_request(raw, codec, read);
    if cx.refuses_unknown_fields()? {
        receiver.decode_strictly(strict, FieldNames::of_request(cx));
    }
    Ok(receiver)
}
