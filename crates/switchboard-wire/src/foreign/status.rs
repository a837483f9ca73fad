//! The parts of a [`Status`] that are sent beside its text: metadata entries with the names of gRPC.

use crate::{
    Detail, Status,
    proto::{self, Fields},
};
use bytes::{Bytes, BytesMut};

/// Metadata key for the number of the code.
pub(crate) const CODE: &str = "grpc-status";
/// Metadata key for the details, in a `google.rpc.Status`.
pub(crate) const DETAILS: &str = "grpc-status-details-bin";
/// Metadata key for the delay before a retry, in milliseconds.
pub(crate) const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// Longest text that is sent, in bytes; longer ones are truncated.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Largest details that are sent, in bytes; larger ones are left out.
const DETAILS_BYTES_MAX: usize = 16 << 10;
const TYPE_URL: &str = "type.googleapis.com/";

/// Returns the part of a status text that is sent.
pub(crate) fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Encodes the message `google.rpc.Status`, as gRPC sends it; `None` without details.
pub(crate) fn details(status: &Status) -> Option<BytesMut> {
    if status.details().is_empty() {
        return None;
    }
    let mut message = BytesMut::new();
    proto::put_number(&mut message, 1, u64::from(status.code().number()));
    proto::put_bytes(&mut message, 2, truncated(status.message()).as_bytes());
    for detail in status.details() {
        if message.len() + detail.value.len() > DETAILS_BYTES_MAX {
            break;
        }
        let mut any = BytesMut::new();
        proto::put_bytes(&mut any, 1, format!("{TYPE_URL}{}", detail.type_name).as_bytes());
        proto::put_bytes(&mut any, 2, &detail.value);
        proto::put_bytes(&mut message, 3, &any);
    }
    Some(message)
}

/// Reads the details of a `google.rpc.Status`; stops at a malformed one.
pub(crate) fn read_details(block: &Bytes) -> Vec<Detail> {
    let mut details = Vec::new();
    let mut message = Fields(block);
    while let Ok(Some((field, value))) = message.next() {
        if field != 3 {
            continue;
        }
        let (mut url, mut bytes) = (&b""[..], &b""[..]);
        let mut any = Fields(value.bytes());
        while let Ok(Some((field, value))) = any.next() {
            match field {
                1 => url = value.bytes(),
                2 => bytes = value.bytes(),
                _ => {}
            }
        }
        let url = String::from_utf8_lossy(url);
        let type_name = url.rsplit_once('/').map_or(&*url, |(_, name)| name).to_owned();
        details.push(Detail { type_name, value: Bytes::copy_from_slice(bytes) });
    }
    details
}
