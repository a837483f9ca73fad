//! The envelopes of request messages: a flag and a length before each.
//!
//! `connectrpc` checks only the flag bits that it defines. A peer that sets another bit gives it a meaning, which would
//! be ignored silently; such a flag is refused here.

use ::http::{HeaderMap, header::CONTENT_TYPE};

/// Bytes before a message: the flag, and the length as a `u32`.
const HEAD: u8 = 5;

/// Bytes that a gRPC envelope adds to its message.
pub(super) const ENVELOPE: usize = 5;

/// Tracks the envelopes in the bytes of a body; stores none of the bytes.
#[derive(Debug, Default)]
pub(super) struct Envelopes {
    /// Envelopes of gRPC and gRPC-Web; otherwise those of a Connect stream.
    pub(super) is_grpc: bool,
    /// Bytes of the envelope head that have arrived.
    head: u8,
    /// Bytes of the message that are still missing, once the head is complete.
    left: u32,
}

impl Envelopes {
    /// Returns `None` for a body without envelopes.
    pub(super) fn of(headers: &HeaderMap) -> Option<Envelopes> {
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let is_grpc = kind.starts_with(b"application/grpc");
        let has_them = is_grpc || kind.starts_with(b"application/connect+");
        has_them.then(|| Envelopes { is_grpc, ..Envelopes::default() })
    }

    /// Returns whether the body may end here.
    pub(super) fn is_whole(&self) -> bool {
        self.head == 0
    }

    /// Processes the next bytes of the body.
    ///
    /// # Errors
    /// A flag that requests may not have: 0 is an uncompressed message, 1 a compressed one.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), u8> {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.head == HEAD {
                let skipped = bytes.len().min(self.left as usize);
                bytes = &bytes[skipped..];
                self.left -= skipped as u32;
                if self.left == 0 {
                    self.head = 0;
                }
                continue;
            }
            match self.head {
                0 if first > 1 => return Err(first),
                0 => self.left = 0,
                _ => self.left = self.left << 8 | u32::from(first),
            }
            self.head += 1;
            bytes = rest;
            if self.head == HEAD && self.left == 0 {
                self.head = 0;
            }
        }
        Ok(())
    }
}

/// The limits of `connectrpc` for request messages of at most `bytes` bytes.
pub(super) fn message_limits(bytes: usize) -> connectrpc::Limits {
    connectrpc::Limits::default()
        .with_max_message_size(bytes)
        .with_max_request_body_size(bytes.saturating_add(ENVELOPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_wherever_the_bytes_are_split() {
        let good = [&[0, 0, 0, 1, 1][..], &[9; 257], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 1, 7]].concat();
        let bad = [&good[..], &[2, 0, 0, 0, 0]].concat();
        for size in 1..=bad.len() {
            let mut envelopes = Envelopes::default();
            assert!(good.chunks(size).all(|part| envelopes.take(part).is_ok()), "{size}");
            assert!(envelopes.is_whole(), "{size}");
            assert_eq!((envelopes.head, envelopes.left), (0, 0), "{size}");
            let mut envelopes = Envelopes::default();
            let outcome: Result<(), u8> = bad.chunks(size).try_for_each(|part| envelopes.take(part));
            assert_eq!(outcome, Err(2), "{size}");
        }
    }
}
