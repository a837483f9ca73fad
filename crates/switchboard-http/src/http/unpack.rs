//! Compressed messages that are malformed, as gRPC reports them.
//!
//! For gRPC, data that cannot be decompressed is `INTERNAL` ("Status codes and their use in gRPC"). Connect's status is
//! `invalid_argument`, which `connectrpc` uses by default for all protocols.

use bytes::Bytes;
use connectrpc::{CompressionProvider, CompressionRegistry, ConnectError, ErrorCode};
use std::{io::Read, sync::Arc};

/// Wraps the compressions of `registry` so that they return the errors of gRPC.
pub(super) fn registry(registry: &CompressionRegistry) -> CompressionRegistry {
    let known = registry.supported_encodings().into_iter().filter_map(|name| registry.get(name));
    known.fold(CompressionRegistry::new(), |all, provider| all.register(Grpc(provider)))
}

struct Grpc(Arc<dyn CompressionProvider>);

impl CompressionProvider for Grpc {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn compress(&self, data: &[u8]) -> Result<Bytes, ConnectError> {
        self.0.compress(data)
    }

    fn decompressor<'a>(&self, data: &'a [u8]) -> Result<Box<dyn Read + 'a>, ConnectError> {
        self.0.decompressor(data).map_err(as_grpc)
    }

    fn decompress_with_limit(&self, data: &[u8], max_size: usize) -> Result<Bytes, ConnectError> {
        self.0.decompress_with_limit(data, max_size).map_err(as_grpc)
    }
}

fn as_grpc(mut error: ConnectError) -> ConnectError {
    if error.code == ErrorCode::InvalidArgument {
        error.code = ErrorCode::Internal;
    }
    error
}
