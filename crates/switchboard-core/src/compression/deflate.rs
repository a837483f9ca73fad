//! The compression that HTTP and gRPC call `deflate`: the zlib format. gRPC libraries offer it besides gzip.

use bytes::Bytes;
use connectrpc::{CompressionProvider, ConnectError};
use flate2::{
    Compression,
    read::{ZlibDecoder, ZlibEncoder},
};
use std::io::Read;

/// Compresses as fast as zlib can, as `connectrpc` does for gzip.
pub(crate) struct Deflate;

impl CompressionProvider for Deflate {
    fn name(&self) -> &'static str {
        "deflate"
    }

    fn compress(&self, data: &[u8]) -> Result<Bytes, ConnectError> {
        let mut compressed = Vec::with_capacity(data.len() / 2 + 64);
        ZlibEncoder::new(data, Compression::fast())
            .read_to_end(&mut compressed)
            .map_err(|error| ConnectError::internal(format!("deflate: {error}")))?;
        Ok(compressed.into())
    }

    /// `connectrpc` reads at most the limit of the message from it.
    fn decompressor<'a>(&self, data: &'a [u8]) -> Result<Box<dyn Read + 'a>, ConnectError> {
        Ok(Box::new(ZlibDecoder::new(data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_data_is_restored_up_to_the_limit() {
        let data = vec![7; 100_000];
        let compressed = Deflate.compress(&data).unwrap();
        assert!(compressed.len() < 1000);
        assert_eq!(Deflate.decompress_with_limit(&compressed, 100_000).unwrap(), data);
        let error = Deflate.decompress_with_limit(&compressed, 99_999).unwrap_err();
        assert_eq!(error.code, connectrpc::ErrorCode::ResourceExhausted);
        for cut in [0, 1, 2, compressed.len() - 1] {
            assert!(Deflate.decompress_with_limit(&compressed[..cut], 100_000).is_err(), "{cut}");
        }
    }
}
