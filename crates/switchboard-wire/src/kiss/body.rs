//! Bodies: plain, or raw Snappy.

use super::MESSAGE_BYTES_MAX;
use crate::snappy;
use bytes::Bytes;

/// Smallest body that [`Compression::Dynamic`] compresses, in bytes.
const WORTH_FROM: usize = 200;

/// Compression of the bodies of a call, in both directions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Compression {
    /// Never.
    #[default]
    None,
    /// From 200 bytes on.
    Dynamic,
    /// Always.
    Forced,
}

impl Compression {
    /// Returns the compression that a peer requests; unassigned numbers request none.
    pub(super) fn from_number(number: u8) -> Compression {
        match number {
            1 => Compression::Dynamic,
            2 => Compression::Forced,
            _ => Compression::None,
        }
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Dynamic => 1,
            Compression::Forced => 2,
        }
    }
}

/// Returns the compressed body, if `compression` applies.
pub(super) fn pack(compression: Compression, plain: &[u8]) -> Option<Bytes> {
    let packs = match compression {
        Compression::None => false,
        Compression::Dynamic => plain.len() >= WORTH_FROM,
        Compression::Forced => true,
    };
    // A message that is too long for Snappy does not fit in a frame either.
    if packs { snap::raw::Encoder::new().compress_vec(plain).ok().map(Bytes::from) } else { None }
}

/// Returns the message of a body, which may have at most `bytes_max` bytes.
///
/// # Errors
/// Returns the reason if the body is invalid or would exceed the limit.
pub(super) fn unpack(compressed: bool, body: Bytes, bytes_max: u32) -> Result<Bytes, String> {
    if !compressed {
        return Ok(body);
    }
    Ok(snappy::decompress(&body, bytes_max.min(MESSAGE_BYTES_MAX as u32))?.into())
}
