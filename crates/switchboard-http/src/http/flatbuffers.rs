//! FlatBuffers in gRPC. `connectrpc` supports only protobuf and JSON, and passes the bytes of messages on unchanged.

use ::http::{HeaderValue, Request, header::CONTENT_TYPE};

/// Marks, in the extensions of a request, that its messages are FlatBuffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatBuffers;

/// Gives such a request a content type that `connectrpc` supports, marks it, and returns the original content type for
/// the response.
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
