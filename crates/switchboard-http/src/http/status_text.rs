//! Names the limit and its setting where `connectrpc` refuses a message for its size.
//!
//! `connectrpc` refuses the message before a handler is called, and only its text gives the reason. This module
//! searches the response for the text as it is sent, in every protocol: none of them encodes these words differently.

use super::envelopes::ENVELOPE;

/// The texts of `connectrpc`, each before the limit that it names.
const TEXTS: [(&str, Size); 3] = [
    ("decompressed size exceeds limit ", Size::Decompressed),
    ("message size ", Size::Known),
    ("request body size exceeds limit ", Size::Body),
];

/// The flag of the envelope in which gRPC-Web sends its trailers.
const GRPC_WEB_TRAILERS: u8 = 0x80;

/// The trailer with the complete gRPC status, including its text.
pub(super) const GRPC_STATUS_DETAILS: &str = "grpc-status-details-bin";

/// The size that a text is about.
#[derive(Clone, Copy)]
enum Size {
    Body,
    Decompressed,
    Known,
}

/// Returns `answer` with the text of this crate instead of that of `connectrpc`, if it contains the latter.
pub(super) fn reword(answer: &[u8]) -> Option<Vec<u8>> {
    TEXTS.iter().find_map(|(text, size)| {
        let start = answer.windows(text.len()).position(|window| window == text.as_bytes())?;
        let (first, mut rest) = number(&answer[start + text.len()..])?;
        let ours = match size {
            Size::Body => {
                let limit = first.saturating_sub(ENVELOPE as u64);
                format!("a request is over the limit of {limit} bytes (message_bytes_max of the receiver)")
            }
            Size::Decompressed => {
                format!(
                    "a request is, decompressed, over the limit of {first} bytes \
                     (message_bytes_max of the receiver)"
                )
            }
            Size::Known => {
                let (limit, after) = number(rest.strip_prefix(b" exceeds limit ")?)?;
                rest = after;
                format!(
                    "a request of {first} bytes is over the limit of {limit} bytes \
                     (message_bytes_max of the receiver)"
                )
            }
        };
        Some([&answer[..start], ours.as_bytes(), rest].concat())
    })
}

/// Replaces the text in one frame, whose envelope encloses the response; see [`reword`].
pub(super) fn reword_frame(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_first_chunk::<5>()?;
    let mut payload = reword(payload)?;
    if head[0] == GRPC_WEB_TRAILERS {
        // A refusal has no details; `connectrpc` repeats the text there.
        payload = payload
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| !line.starts_with(GRPC_STATUS_DETAILS.as_bytes()))
            .collect::<Vec<_>>()
            .concat();
    }
    Some([&head[..1], &(payload.len() as u32).to_be_bytes(), &payload].concat())
}

/// Parses a decimal number at the start, and returns the rest.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_about_sizes_name_the_setting() {
        for (theirs, ours) in [
            ("message size 12 exceeds limit 10", "a request of 12 bytes is over the limit of 10 bytes"),
            ("decompressed size exceeds limit 10", "a request is, decompressed, over the limit of 10 bytes"),
            ("request body size exceeds limit 15", "a request is over the limit of 10 bytes"),
        ] {
            let json = format!("{{\"message\":\"{theirs}\"}}");
            let expected = format!("{{\"message\":\"{ours} (message_bytes_max of the receiver)\"}}");
            assert_eq!(reword(json.as_bytes()).unwrap(), expected.as_bytes());
            let lines = format!("grpc-message: {theirs}\r\ngrpc-status-details-bin: CA\r\nx: y\r\n");
            let frame = [&[0x80, 0, 0, 0, lines.len() as u8][..], lines.as_bytes()].concat();
            let reworded = reword_frame(&frame).unwrap();
            assert_eq!(usize::from(reworded[4]), reworded.len() - 5);
            let lines = format!("grpc-message: {ours} (message_bytes_max of the receiver)\r\nx: y\r\n");
            assert_eq!(&reworded[5..], lines.as_bytes());
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in ["", "message size is fine", "message size 12", "message size 12 exceeds limit x"] {
            assert_eq!(reword(text.as_bytes()), None, "{text}");
        }
    }
}
