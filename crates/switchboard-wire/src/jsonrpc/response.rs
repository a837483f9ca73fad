//! Response objects.

use super::ErrorObject;
use bytes::Bytes;

/// Id of a response to something without a readable id.
const NULL: &[u8] = b"null";

/// JSON before a result. An empty result is null.
pub(super) const RESULT: &[u8] = b"{\"jsonrpc\":\"2.0\",\"result\":";

pub(super) fn behind(id: &[u8]) -> Vec<u8> {
    [b",\"id\":", id, b"}"].concat()
}

pub(super) fn or_null(item: &Bytes) -> Bytes {
    if item.is_empty() { Bytes::from_static(NULL) } else { item.clone() }
}

/// Writes the response to a request that succeeded; `id` is unchanged from the request.
pub fn success(id: &[u8], result: &Bytes) -> Vec<u8> {
    [RESULT, &or_null(result), &behind(id)].concat()
}

/// Writes the response to a request that failed; a missing `id` is written as null.
pub fn failure(id: Option<&[u8]>, error: &ErrorObject) -> Vec<u8> {
    let mut text = b"{\"jsonrpc\":\"2.0\",\"error\":".to_vec();
    error.write(&mut text);
    text.extend_from_slice(&behind(id.unwrap_or(NULL)));
    text
}

/// Returns the JSON before an item of a stream; two braces follow the item.
pub(super) fn before_item(id: &[u8]) -> Vec<u8> {
    [&b"{\"jsonrpc\":\"2.0\",\"method\":\"rpc.stream\",\"params\":{\"id\":"[..], id, b",\"result\":"].concat()
}
