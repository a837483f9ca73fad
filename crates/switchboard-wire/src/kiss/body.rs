//! Bodies: plain, or raw Snappy.

use super::MESSAGE_BYTES_MAX;
use crate::snappy;
use bytes::Bytes;

/// Shorter bodies are not worth it where the choice is free, in bytes.
const WORTH_FROM: usize = 200;

/// When the bodies of a call are compressed, both ways.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
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
    /// What a peer asks for; numbers that nobody assigned ask for nothing.
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

/// The body compressed, where that is asked for.
pub(super) fn pack(compression: Compression, plain: &[u8]) -> Option<Bytes> {
    let packs = match compression {
        Compression::None => false,
        Compression::Dynamic => plain.len() >= WORTH_FROM,
        Compression::Forced => true,
    };
    // What is longer than a length can say fits into no frame either.
    if packs { snap::raw::Encoder::new().compress_vec(plain).ok().map(Bytes::from) } else { None }
}

/// The message in a body, of at most `bytes_max`.
///
/// # Errors
/// What is wrong with the body, or that it would become larger.
pub(super) fn unpack(compressed: bool, body: Bytes, bytes_max: u32) -> Result<Bytes, String> {
    if !compressed {
        return Ok(body);
    }
    Ok(snappy::decompress(&body, bytes_max.min(MESSAGE_BYTES_MAX as u32))?.into())
}
