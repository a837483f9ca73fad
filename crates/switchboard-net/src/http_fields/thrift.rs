//! Content types of Thrift in the body of a POST.

use ::http::{HeaderMap, header::CONTENT_TYPE};

/// Content types of both protocols; browsers send a preflight before they send any of these to a server of another
/// origin.
pub const KINDS: [&str; 3] =
    ["application/x-thrift", "application/vnd.apache.thrift.binary", "application/vnd.apache.thrift.compact"];

/// Returns whether the content type is Thrift's.
pub fn is_typed(headers: &HeaderMap) -> bool {
    kind(headers).is_some()
}

/// Returns the content type of Thrift that the headers name.
pub fn kind(headers: &HeaderMap) -> Option<&'static str> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    KINDS.into_iter().find(|known| known.eq_ignore_ascii_case(kind))
}
