//! Frames: a header of fixed size, and a body.

use super::{BODY_BYTES_MAX, Compression, MAGIC, body};
use crate::{Codec, Fatal, Input, Outbox, Outgoing, Status};

/// Bytes of the header, including the magic.
pub(super) const HEADER_LEN: usize = 23;

/// Bits of `status`.
pub(super) mod status {
    pub(in super::super) const FAILED: u8 = 0x01;
    pub(in super::super) const NON_BLOCKING: u8 = 0x20;
    pub(in super::super) const ONEWAY: u8 = 0x80;
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Header {
    /// The body is compressed.
    pub(super) compressed: bool,
    /// Compression that the response should have.
    pub(super) compression: Compression,
    /// Codec of the body, in the numbering of kiss-rpc.
    pub(super) codec: u8,
    pub(super) status: u8,
    pub(super) function: u64,
    pub(super) sequence: u32,
    /// Bytes of the body.
    pub(super) len: u16,
}

impl Header {
    /// Reads the header of the next frame, if the frame is complete.
    ///
    /// # Errors
    /// Returns an error for bytes that do not begin a frame.
    pub(super) fn of_whole_frame(input: &Input) -> Result<Option<Header>, Fatal> {
        let known = input.len().min(MAGIC.len());
        if input.rest()[..known] != MAGIC[..known] {
            return Err(no_frame(&input.rest()[..known]));
        }
        let Some(bytes) = input.rest().first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let header = Header::read(bytes);
        Ok((input.len() >= HEADER_LEN + usize::from(header.len)).then_some(header))
    }

    fn read(bytes: &[u8; HEADER_LEN]) -> Header {
        let [_, _, _, _, high, low, status, _, _, rest @ ..] = bytes;
        let [function @ .., s0, s1, s2, s3, len0, len1] = rest;
        Header {
            compressed: high >> 4 != 0,
            compression: Compression::from_number(high & 0x0F),
            codec: low & 0x0F,
            status: *status,
            function: u64::from_be_bytes(*function),
            sequence: u32::from_be_bytes([*s0, *s1, *s2, *s3]),
            len: u16::from_be_bytes([*len0, *len1]),
        }
    }

    /// Writes a frame with this body, compressed if the header requests it.
    ///
    /// # Errors
    /// `ResourceExhausted` for a body that is too large for a frame. Nothing is written then.
    pub(super) fn put(mut self, plain: Outgoing<'_>, out: &mut Outbox) -> Result<(), Status> {
        let packed = body::pack(self.compression, &plain);
        self.compressed = packed.is_some();
        self.put_as_it_is(packed.as_ref().map_or(plain, Outgoing::from), out)
    }

    /// Writes a frame with a body that needs no compression.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    pub(super) fn put_as_it_is(mut self, body: Outgoing<'_>, out: &mut Outbox) -> Result<(), Status> {
        if body.len() > BODY_BYTES_MAX {
            return Err(Status::resource_exhausted(format!(
                "a message of {} bytes is over the {BODY_BYTES_MAX} bytes that a frame of kiss-rpc has room for",
                body.len()
            )));
        }
        self.len = body.len() as u16;
        out.put_with(&self.bytes(), body);
        Ok(())
    }

    /// Encodes the header.
    pub(super) fn bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = if self.compressed { 0xF0 } else { 0 } | self.compression.number();
        bytes[5] = self.codec;
        bytes[6] = self.status;
        bytes[9..17].copy_from_slice(&self.function.to_be_bytes());
        bytes[17..21].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[21..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

const _: () = assert!(BODY_BYTES_MAX <= u16::MAX as usize);

/// Returns the codec with this number. Real peers write 4, the number of Cap'n Proto, for FlatBuffers.
pub(super) fn codec(number: u8) -> Option<Codec> {
    match number {
        0 => Some(Codec::Json),
        2 => Some(Codec::Proto),
        3 | 4 => Some(Codec::FlatBuffers),
        _ => None,
    }
}

/// Returns the number of a codec; for FlatBuffers the one that real peers write.
pub(super) fn codec_number(codec: Codec) -> Option<u8> {
    match codec {
        Codec::Json => Some(0),
        Codec::Proto => Some(2),
        Codec::FlatBuffers => Some(4),
        _ => None,
    }
}

#[cold]
fn no_frame(first: &[u8]) -> Fatal {
    let hint = match first {
        [0xFF, 0xFF, 16, ..] => ", a header of a peer with 32 bits",
        _ => "",
    };
    Fatal(format!("{first:02x?}{hint} where a frame of kiss-rpc begins"))
}
