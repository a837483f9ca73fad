//! JSON-RPC by POST: one request, one answer. [`texts`](super::texts) speaks it in a WebSocket.

use super::{
    codes,
    compression::Compression,
    head::OutgoingRequest,
    link::InFlight,
    replies::check_type,
    settings::Terms,
    unary::{REFUSAL_LEAST, post, whole, with_head},
};
use crate::{
    Code, Metadata, Result, Status,
    client::{ClientMethod, calls},
};
use ::http::header::CONTENT_ENCODING;
use bytes::Bytes;
use switchboard_wire::jsonrpc;

/// What stands around a result: names, an id of ours.
pub(super) const AROUND: usize = 1 << 10;

/// Sends one call and waits for its answer; dropped before, the server is told.
///
/// # Errors
/// Why the call failed, with the metadata of the answer.
pub(super) async fn call(
    terms: Terms,
    link: &InFlight,
    call: OutgoingRequest<'_>,
    message: &Bytes,
) -> Result<calls::Answer> {
    let link = link.link();
    let wanted = call.content_type(&terms)?;
    let request = jsonrpc::request(Some(1), &name(call.method), params(message)?);
    let (headers, mut body) = post(&terms, link, call, request.into()).await?;
    check_type(&headers, wanted, link.peer())?;
    let head = codes::metadata(&headers, &terms.metadata)?;
    let bytes_max = terms.message_bytes_max.saturating_add(AROUND).max(REFUSAL_LEAST);
    let mut text = whole(&mut body, link, bytes_max).await?;
    if let Some(compression) = Compression::named(headers.get(CONTENT_ENCODING))? {
        text = compression.decompress(text, bytes_max)?;
    }
    match jsonrpc::Answer::read(&text) {
        Ok(jsonrpc::Answer::End { result: Ok(item), .. }) => {
            Ok(calls::Answer { item: item.into(), head, trailers: Metadata::new(), attempts: 1 })
        }
        Ok(jsonrpc::Answer::End { result: Err(status), .. }) => Err(with_head(status, head)),
        Ok(_) => {
            Err(codes::from_path(Code::Internal, "the server answered a call with a notification".into()))
        }
        Err(why) => Err(codes::from_path(Code::Internal, why)),
    }
}

/// What the method is called in JSON-RPC.
pub(super) fn name(method: &ClientMethod) -> String {
    method.path.replacen('/', ".", 1)
}

/// The message as parameters.
///
/// # Errors
/// `InvalidArgument` for one that is no object or array.
pub(super) fn params(message: &Bytes) -> Result<&[u8]> {
    match message.first() {
        None => Ok(b"{}"),
        Some(b'{' | b'[') => Ok(message),
        Some(_) => Err(Status::invalid_argument("JSON-RPC takes parameters that are an object or an array")),
    }
}
