//! FlatBuffers in gRPC. `connectrpc` knows protobuf and JSON alone, and hands the bytes of messages on as they are.

use ::http::{HeaderValue, Request, header::CONTENT_TYPE};

/// In the extensions of a request whose messages are FlatBuffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatBuffers;

/// Gives such a request a type of content that `connectrpc` knows, and marks it; its own, which the answer is to have.
pub(super) fn take<B>(request: &mut Request<B>) -> Option<HeaderValue> {
    let kind = request.headers().get(CONTENT_TYPE)?;
    if kind != "application/grpc+flatbuffers" {
        return None;
    }
    let plain = HeaderValue::from_static("application/grpc+proto");
    let kind = request.headers_mut().insert(CONTENT_TYPE, plain);
    request.extensions_mut().insert(FlatBuffers);
    kind
}
