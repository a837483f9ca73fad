//! The text mode of gRPC-Web: the same bytes in base64, for browsers that cannot read binary bodies incrementally.
//!
//! Requests are decoded in groups of four characters, because each part that a caller flushed may end in padding.
//! Replies are encoded and padded frame by frame, so that each frame can be read when it arrives.

use ::http::{
    HeaderMap, HeaderValue,
    header::{ACCEPT, CONTENT_TYPE},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use std::error::Error;

const BINARY: &str = "application/grpc-web";
const TEXT: &str = "application/grpc-web-text";

/// Which directions of a call are text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Text {
    pub request: bool,
    pub reply: bool,
}

impl Text {
    /// Detects the text mode, and gives the request the content type of its decoded body.
    pub fn take(headers: &mut HeaderMap) -> Text {
        let is_text = |value: &HeaderValue| value.as_bytes().starts_with(TEXT.as_bytes());
        let Some(kind) = headers.get(CONTENT_TYPE) else { return Text::default() };
        if !kind.as_bytes().starts_with(BINARY.as_bytes()) {
            return Text::default();
        }
        if !is_text(kind) {
            return Text { request: false, reply: headers.get(ACCEPT).is_some_and(is_text) };
        }
        if let Ok(binary) =
            HeaderValue::from_bytes(&[BINARY.as_bytes(), &kind.as_bytes()[TEXT.len()..]].concat())
        {
            headers.insert(CONTENT_TYPE, binary);
        }
        Text { request: true, reply: true }
    }

    /// Gives the reply the content type of its encoded body.
    pub fn mark(self, headers: &mut HeaderMap) {
        let Some(kind) = headers.get(CONTENT_TYPE).filter(|_| self.reply) else { return };
        let Some(rest) = kind.as_bytes().strip_prefix(BINARY.as_bytes()) else { return };
        if let Ok(text) = HeaderValue::from_bytes(&[TEXT.as_bytes(), rest].concat()) {
            headers.insert(CONTENT_TYPE, text);
        }
    }
}

/// Encodes a frame in base64.
pub fn encode(data: &[u8]) -> Bytes {
    STANDARD.encode(data).into()
}

/// The reason why text cannot be decoded.
pub type Unreadable = Box<dyn Error + Send + Sync>;

/// Decodes the complete groups of `rest` and `data`; an incomplete group stays in `rest`.
pub fn decode(rest: &mut BytesMut, data: &[u8]) -> Result<Bytes, Unreadable> {
    rest.extend_from_slice(data);
    let whole = rest.split_to(rest.len() / 4 * 4);
    let mut decoded = Vec::with_capacity(whole.len() / 4 * 3);
    let mut left = &whole[..];
    while !left.is_empty() {
        // Padding ends a part: everything up to its group can be decoded at once.
        let end = left.iter().position(|byte| *byte == b'=').map_or(left.len(), |at| at / 4 * 4 + 4);
        let (part, after) = left.split_at(end);
        STANDARD
            .decode_vec(part, &mut decoded)
            .map_err(|error| format!("the body is not base64: {error}"))?;
        left = after;
    }
    Ok(decoded.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded_however_they_are_split() {
        let text = [STANDARD.encode(b"a"), STANDARD.encode(b"bcd"), STANDARD.encode(b"ef")].concat();
        for size in 1..=text.len() {
            let (mut rest, mut all) = (BytesMut::new(), Vec::new());
            for part in text.as_bytes().chunks(size) {
                all.extend_from_slice(&decode(&mut rest, part).unwrap());
            }
            assert_eq!((&all[..], rest.len()), (&b"abcdef"[..], 0), "{size}");
        }
    }

    #[test]
    fn text_that_is_not_base64_is_refused() {
        for text in ["!!!!", "a===", "====", "ab=c"] {
            assert!(decode(&mut BytesMut::new(), text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn types_of_content_are_exchanged() {
        for (sent, accept, binary, text) in [
            ("application/grpc-web-text", "", "application/grpc-web", (true, true)),
            ("application/grpc-web-text+proto", "", "application/grpc-web+proto", (true, true)),
            (
                "application/grpc-web+proto",
                "application/grpc-web-text",
                "application/grpc-web+proto",
                (false, true),
            ),
            ("application/grpc-web", "", "application/grpc-web", (false, false)),
            ("application/grpc", "application/grpc-web-text", "application/grpc", (false, false)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(sent));
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let taken = Text::take(&mut headers);
            assert_eq!((taken.request, taken.reply), text, "{sent}");
            assert_eq!(headers[CONTENT_TYPE], binary);
            taken.mark(&mut headers);
            let back = headers[CONTENT_TYPE].to_str().unwrap();
            assert_eq!(back.contains("-text"), taken.reply, "{sent}: {back}");
        }
    }
}
