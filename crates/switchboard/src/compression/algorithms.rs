//! The algorithms behind the encodings, and how far each may inflate a message.

use super::blocks;
use bytes::Bytes;
#[cfg(feature = "http")]
use connectrpc::{CompressionRegistry, ErrorCode};
#[cfg(feature = "http")]
use std::sync::LazyLock;
use switchboard_wire::Encoding;

/// Why a message cannot be decompressed.
pub(super) enum Unreadable {
    Broken(String),
    TooLarge,
}

/// None for what cannot be compressed.
pub(super) fn compress(encoding: Encoding, message: &[u8]) -> Option<Bytes> {
    match encoding {
        Encoding::Lz4 => blocks::lz4(message),
        Encoding::Snappy => blocks::snappy(message),
        #[cfg(feature = "http")]
        _ => REGISTRY.compress(encoding.name(), message).ok(),
        #[cfg(not(feature = "http"))]
        _ => None,
    }
}

/// A message of at most `bytes_max`.
pub(super) fn decompress(encoding: Encoding, message: Bytes, bytes_max: u32) -> Result<Bytes, Unreadable> {
    if message.is_empty() {
        return Err(Unreadable::Broken("it is empty".into()));
    }
    match encoding {
        Encoding::Lz4 => blocks::from_lz4(&message, bytes_max),
        Encoding::Snappy => blocks::from_snappy(&message, bytes_max),
        _ => stream(encoding, message, bytes_max),
    }
}

/// The compressions of HTTP; the providers keep what they work with for the next message.
#[cfg(feature = "http")]
pub(crate) static REGISTRY: LazyLock<CompressionRegistry> =
    LazyLock::new(|| CompressionRegistry::default().register(crate::http::deflate::Deflate));

#[cfg(feature = "http")]
fn stream(encoding: Encoding, message: Bytes, bytes_max: u32) -> Result<Bytes, Unreadable> {
    REGISTRY.decompress_with_limit(encoding.name(), message, bytes_max as usize).map_err(|error| match error
        .code
    {
        ErrorCode::ResourceExhausted => Unreadable::TooLarge,
        _ => Unreadable::Broken(error.message.unwrap_or_default()),
    })
}

#[cfg(not(feature = "http"))]
fn stream(_: Encoding, _: Bytes, _: u32) -> Result<Bytes, Unreadable> {
    Err(Unreadable::Broken("the feature http is off".into()))
}
