//! JSON-RPC by POST: one request and one response. [`texts`](super::texts) implements it in a WebSocket.

use super::{
    codes,
    compression::Compression,
    head::OutgoingRequest,
    link::InFlight,
    replies::check_type,
    settings::Terms,
    unary::{ERROR_BODY_BYTES_MIN, post, read_body, with_head},
};
use crate::client::{ClientMethod, calls};
use ::http::header::CONTENT_ENCODING;
use bytes::Bytes;
use switchboard_core::Result;
use switchboard_wire::{Code, Metadata, Status, jsonrpc};

/// Maximum number of bytes around a result: names, an id of this client.
pub(super) const AROUND: usize = 1 << 10;

/// Sends one call and waits for its reply; dropping the future cancels the call at the server.
///
/// # Errors
/// The status of the call, with the metadata of the response.
pub(super) async fn call(
    terms: Terms,
    link: &InFlight,
    call: OutgoingRequest<'_>,
    message: &Bytes,
) -> Result<calls::RawResponse> {
    let link = link.link();
    let wanted = call.content_type(&terms)?;
    let request = jsonrpc::request(Some(1), &name(call.method, call.metadata), params(message)?);
    let (headers, mut body) = post(&terms, link, call, request.into()).await?;
    check_type(&headers, wanted, link.peer())?;
    let head = codes::metadata(&headers, &terms.metadata)?;
    let bytes_max = terms.message_bytes_max.saturating_add(AROUND).max(ERROR_BODY_BYTES_MIN);
    let mut text = read_body(&mut body, link, bytes_max).await?;
    if let Some(compression) = Compression::named(headers.get(CONTENT_ENCODING))? {
        text = compression.decompress(text, bytes_max)?;
    }
    match jsonrpc::Response::read(&text) {
        Ok(jsonrpc::Response::End { result: Ok(item), .. }) => {
            Ok(calls::RawResponse { item: item.into(), head, trailers: Metadata::new(), attempts: 1 })
        }
        Ok(jsonrpc::Response::End { result: Err(status), .. }) => Err(with_head(status, head)),
        Ok(_) => {
            Err(codes::from_path(Code::Internal, "the server replied to a call with a notification".into()))
        }
        Err(why) => Err(codes::from_path(Code::Internal, why)),
    }
}

/// The name of the method in JSON-RPC.
pub(super) fn name(method: &ClientMethod, metadata: &Metadata) -> String {
    method.path_of(metadata).replacen('/', ".", 1)
}

/// Returns the message as parameters.
///
/// # Errors
/// `InvalidArgument` for a message that is not an object or array.
pub(super) fn params(message: &Bytes) -> Result<&[u8]> {
    match message.first() {
        None => Ok(b"{}"),
        Some(b'{' | b'[') => Ok(message),
        Some(_) => Err(Status::invalid_argument("JSON-RPC needs an object or an array as parameters")),
    }
}
