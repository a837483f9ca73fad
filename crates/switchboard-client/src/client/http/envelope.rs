//! The five bytes before every message in a body: flags and a big-endian length.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use switchboard_core::Result;
use switchboard_wire::{Origin, Status};

/// Flag of a compressed message.
pub(super) const COMPRESSED: u8 = 1;
/// Connect: flag of the end of the stream, which is not a message.
pub(super) const END: u8 = 2;
/// gRPC-Web: flag of the trailers.
pub(super) const TRAILERS: u8 = 0x80;

const HEAD: usize = 5;
/// Minimum size limit of the end of a stream, which may be larger than the messages that the caller accepts.
const END_LEAST: usize = 64 << 10;
/// Maximum buffer allocated for a message before its bytes have arrived.
const AHEAD_MAX: usize = 1 << 20;

/// Returns the message with its five bytes, in one buffer.
///
/// # Errors
/// `ResourceExhausted` for a message longer than a `u32` can express.
pub(super) fn wrap(flags: u8, message: &[u8]) -> Result<Bytes> {
    let length = u32::try_from(message.len()).map_err(|_| {
        Status::resource_exhausted(format!("a message of {} bytes is over the 4 GiB of HTTP", message.len()))
    })?;
    let mut wrapped = BytesMut::with_capacity(HEAD + message.len());
    wrapped.put_u8(flags);
    wrapped.put_u32(length);
    wrapped.put_slice(message);
    Ok(wrapped.freeze())
}

/// An envelope found in a body.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Envelope {
    pub(super) flags: u8,
    pub(super) payload: Bytes,
}

/// Finds envelopes in the chunks of a body: a message within one chunk shares its memory, others are copied.
#[derive(Debug)]
pub(super) struct Envelopes {
    /// Rest of the last chunk.
    chunk: Bytes,
    /// An envelope that earlier chunks began.
    begun: BytesMut,
    bytes_max: usize,
}

impl Envelopes {
    /// Accepts messages of at most `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Envelopes {
        Envelopes { chunk: Bytes::new(), begun: BytesMut::new(), bytes_max }
    }

    /// Adds a chunk; the previous ones must have been read to their end.
    #[inline]
    pub(super) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the previous chunk was read to its end");
        self.chunk = chunk;
    }

    /// Returns the next whole envelope; `None` when more chunks are needed.
    ///
    /// # Errors
    /// `ResourceExhausted` for a message over the limit, before its bytes are read.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Envelope>> {
        if self.begun.is_empty() {
            let Some((flags, length)) = self.head(&self.chunk)? else {
                return Ok(self.keep(HEAD));
            };
            if self.chunk.len() < HEAD + length {
                return Ok(self.keep(HEAD + length));
            }
            self.chunk.advance(HEAD);
            return Ok(Some(Envelope { flags, payload: self.chunk.split_to(length) }));
        }
        self.fill(HEAD);
        let Some((flags, length)) = self.head(&self.begun)? else { return Ok(None) };
        self.fill(HEAD + length);
        if self.begun.len() < HEAD + length {
            return Ok(None);
        }
        let mut whole = std::mem::take(&mut self.begun).freeze();
        whole.advance(HEAD);
        Ok(Some(Envelope { flags, payload: whole }))
    }

    /// Returns true when the body may end here.
    pub(super) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.begun.is_empty()
    }

    /// Maximum payload of an envelope with these flags.
    pub(super) fn bytes_max(&self, flags: u8) -> usize {
        if flags & (END | TRAILERS) == 0 { self.bytes_max } else { self.bytes_max.max(END_LEAST) }
    }

    fn head(&self, bytes: &[u8]) -> Result<Option<(u8, usize)>> {
        let Some(([flags, length @ ..], _)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        let max = self.bytes_max(*flags);
        if length > max { Err(too_large(length, max)) } else { Ok(Some((*flags, length))) }
    }

    /// Keeps the rest of the chunk for an envelope of `wanted` bytes.
    fn keep(&mut self, wanted: usize) -> Option<Envelope> {
        if !self.chunk.is_empty() {
            self.begun.reserve(wanted.min(AHEAD_MAX));
            self.fill(wanted);
        }
        None
    }

    /// Moves bytes from the chunk until `begun` has `wanted` bytes.
    fn fill(&mut self, wanted: usize) {
        let count = wanted.saturating_sub(self.begun.len()).min(self.chunk.len());
        self.begun.extend_from_slice(&self.chunk[..count]);
        self.chunk.advance(count);
    }
}

/// Builds the status for a reply that is too large, with the setting that limits it.
pub(super) fn too_large(bytes: usize, max: usize) -> Status {
    let text = format!(
        "a reply of {bytes} bytes is over the limit of {max} bytes (message_bytes_max of the receiver)"
    );
    Status::resource_exhausted(text).with_origin(Origin::Local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_are_found_for_any_split_into_chunks() {
        let mut body = wrap(0, b"hello").unwrap().to_vec();
        body.extend_from_slice(&wrap(1, b"").unwrap());
        body.extend_from_slice(&wrap(0x80, b"grpc-status: 0\r\n").unwrap());
        for size in 1..=body.len() {
            let mut envelopes = Envelopes::new(5);
            let mut found = Vec::new();
            for chunk in body.chunks(size) {
                envelopes.push(Bytes::copy_from_slice(chunk));
                while let Some(Envelope { flags, payload }) = envelopes.next().unwrap() {
                    found.push((flags, payload.to_vec()));
                }
            }
            let all = [(0, &b"hello"[..]), (1, b""), (0x80, b"grpc-status: 0\r\n")];
            assert_eq!(found, all.map(|(flags, payload)| (flags, payload.to_vec())), "chunks of {size}");
            assert!(envelopes.is_empty());
        }
    }

    #[test]
    fn large_messages_are_rejected_by_their_header_and_ends_may_be_longer() {
        let mut envelopes = Envelopes::new(5);
        envelopes.push(Bytes::from_static(b"\0\0\0\0\x06"));
        let rejected = envelopes.next().unwrap_err();
        assert!(
            rejected.message().contains("6 bytes is over the limit of 5 bytes (message_bytes_max"),
            "{rejected}"
        );
        let mut envelopes = Envelopes::new(5);
        envelopes.push(Bytes::from_static(b"\x02\0\0\0\x06{}"));
        assert_eq!(envelopes.next().unwrap(), None);
        assert!(!envelopes.is_empty());
    }
}
