//! Header values without spaces at their ends.
//!
//! RFC 9113 forbids a space or tab at either end of a value, and peers reset the stream. Texts of handlers and of other
//! peers reach headers in many places, so the rule is applied where responses are sent.

use super::body::GRPC_MESSAGE;
use ::http::{HeaderMap, HeaderValue};

/// Rewrites the values that begin or end with a space or tab: percent-encoded in `grpc-message`, which its readers
/// decode, and removed in all others, as HTTP does.
pub(super) fn trim(headers: &mut HeaderMap) {
    for (name, value) in headers.iter_mut() {
        if is_clean(value.as_bytes()) {
            continue;
        }
        let trimmed = match *name == GRPC_MESSAGE {
            true => HeaderValue::from_bytes(&escaped(value.as_bytes())),
            false => HeaderValue::from_bytes(value.as_bytes().trim_ascii()),
        };
        if let Ok(trimmed) = trimmed {
            *value = trimmed;
        }
    }
}

/// Returns whether neither end is a space or tab.
pub(super) fn is_clean(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first()) && !is_blank(value.last())
}

/// Returns the text with its outer spaces and tabs percent-encoded.
pub(super) fn escaped(text: &[u8]) -> Vec<u8> {
    let inner = text.trim_ascii();
    let before = text.len() - text.trim_ascii_start().len();
    let mut written = Vec::with_capacity(text.len() + 8);
    for (at, byte) in text.iter().enumerate() {
        let is_outer = at < before || at >= before + inner.len();
        match (is_outer, byte) {
            (true, b' ') => written.extend(b"%20"),
            (true, b'\t') => written.extend(b"%09"),
            _ => written.push(*byte),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_spaces_are_encoded_in_messages_and_removed_elsewhere() {
        for (value, message, other) in [
            ("a b", "a b", "a b"),
            ("a ", "a%20", "a"),
            ("  a b\t ", "%20%20a b%09%20", "a b"),
            (" ", "%20", ""),
            ("", "", ""),
        ] {
            let value = HeaderValue::from_static(value);
            let mut headers = HeaderMap::new();
            headers.append(GRPC_MESSAGE, value.clone());
            headers.append("x-a", value.clone());
            headers.append("x-a", value);
            trim(&mut headers);
            assert_eq!(headers[GRPC_MESSAGE], message);
            assert_eq!(headers.get_all("x-a").iter().collect::<Vec<_>>(), [other, other]);
        }
    }
}
