//! Response objects.

use super::ErrorObject;
use bytes::Bytes;

/// The id of an answer to something without a readable one.
const NULL: &[u8] = b"null";

/// What stands before and behind a result in JSON. An empty result is null.
pub(super) const RESULT: &[u8] = b"{\"jsonrpc\":\"2.0\",\"result\":";

pub(super) fn behind(id: &[u8]) -> Vec<u8> {
    [b",\"id\":", id, b"}"].concat()
}

pub(super) fn or_null(item: &Bytes) -> Bytes {
    if item.is_empty() { Bytes::from_static(NULL) } else { item.clone() }
}

/// The answer to a request that succeeded; `id` is as it came.
pub fn success(id: &[u8], result: &Bytes) -> Vec<u8> {
    [RESULT, &or_null(result), &behind(id)].concat()
}

/// The answer to a request that failed; without an `id` it is null.
pub fn failure(id: Option<&[u8]>, error: &ErrorObject) -> Vec<u8> {
    let mut text = b"{\"jsonrpc\":\"2.0\",\"error\":".to_vec();
    error.write(&mut text);
    text.extend_from_slice(&behind(id.unwrap_or(NULL)));
    text
}

/// What stands before an item of a stream; behind it come two braces.
pub(super) fn before_item(id: &[u8]) -> Vec<u8> {
    [&b"{\"jsonrpc\":\"2.0\",\"method\":\"rpc.stream\",\"params\":{\"id\":"[..], id, b",\"result\":"].concat()
}
