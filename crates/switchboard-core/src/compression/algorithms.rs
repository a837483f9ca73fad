//! Compression algorithms by encoding, with bounds on decompression.

use super::blocks;
use bytes::Bytes;
#[cfg(feature = "http")]
use connectrpc::{CompressionRegistry, ErrorCode};
#[cfg(feature = "http")]
use std::sync::LazyLock;
use switchboard_wire::Encoding;

/// Reason why a message cannot be decompressed.
pub(super) enum Unreadable {
    Broken(String),
    TooLarge,
}

/// Compresses a message; returns `None` if the message cannot be compressed.
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

/// Decompresses a message to at most `bytes_max` bytes.
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

/// Algorithms of HTTP; the providers reuse their working memory for the next message.
#[cfg(feature = "http")]
pub static REGISTRY: LazyLock<CompressionRegistry> = LazyLock::new(|| {
    CompressionRegistry::default().register(super::deflate::Deflate).register(super::zstd::Zstd::default())
});

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
