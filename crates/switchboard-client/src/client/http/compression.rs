//! Compressed messages: accepted algorithms, compression and decompression.

use ::http::HeaderValue;
use bytes::Bytes;
use connectrpc::ErrorCode;
use switchboard_core::{Result, compression::REGISTRY};
use switchboard_wire::{Origin, Status};

/// Algorithms for replies that are offered when the channel enables compression.
pub(super) static ACCEPTED: HeaderValue = HeaderValue::from_static("gzip, zstd, deflate");

/// A compression algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Compression {
    Deflate,
    Gzip,
    Zstd,
}

impl Compression {
    pub(super) fn name(self) -> &'static str {
        match self {
            Compression::Deflate => "deflate",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }

    /// Returns the algorithm with this name; `None` for uncompressed messages.
    ///
    /// # Errors
    /// `Internal` for an algorithm that was not offered.
    pub(super) fn named(name: Option<&HeaderValue>) -> Result<Option<Compression>> {
        match name.map(HeaderValue::as_bytes) {
            None | Some(b"identity" | b"") => Ok(None),
            Some(b"deflate") => Ok(Some(Compression::Deflate)),
            Some(b"gzip") => Ok(Some(Compression::Gzip)),
            Some(b"zstd") => Ok(Some(Compression::Zstd)),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                let text =
                    format!("the reply is compressed with {other}; supported are deflate, gzip and zstd");
                Err(Status::internal(text).with_origin(Origin::Connection))
            }
        }
    }

    pub(super) fn compress(self, message: &[u8]) -> Result<Bytes> {
        REGISTRY
            .compress(self.name(), message)
            .map_err(|error| Status::internal(format!("the request could not be compressed: {error}")))
    }

    /// # Errors
    /// `ResourceExhausted` for more than `bytes_max` bytes, `Internal` for invalid data.
    pub(super) fn decompress(self, message: Bytes, bytes_max: usize) -> Result<Bytes> {
        REGISTRY.decompress_with_limit(self.name(), message, bytes_max).map_err(|error| match error.code {
            ErrorCode::ResourceExhausted => Status::resource_exhausted(format!(
                "a reply is over the limit of {bytes_max} bytes once decompressed (message_bytes_max of the receiver)"
            )),
            _ => Status::internal(format!("the reply could not be decompressed: {error}")).with_origin(Origin::Connection),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    #[test]
    fn messages_round_trip_and_bombs_are_rejected() {
        for compression in [Compression::Deflate, Compression::Gzip, Compression::Zstd] {
            let small = compression.compress(&[7; 10_000]).unwrap();
            assert!(small.len() < 1000);
            assert_eq!(compression.decompress(small.clone(), 10_000).unwrap(), [7; 10_000][..]);
            let bomb = compression.decompress(small, 9_999).unwrap_err();
            assert_eq!(bomb.code(), Code::ResourceExhausted);
            assert!(bomb.message().contains("message_bytes_max"), "{bomb}");
            let broken = compression.decompress(Bytes::from_static(b"plain"), 100).unwrap_err();
            assert_eq!(broken.code(), Code::Internal);
            let name = HeaderValue::from_static(compression.name());
            assert_eq!(Compression::named(Some(&name)).unwrap(), Some(compression));
        }
        assert_eq!(Compression::named(Some(&HeaderValue::from_static("identity"))).unwrap(), None);
        assert_eq!(
            Compression::named(Some(&HeaderValue::from_static("br"))).unwrap_err().code(),
            Code::Internal
        );
    }
}
