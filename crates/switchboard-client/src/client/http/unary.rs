//! A call with one reply.

use super::{
    codes,
    compression::Compression,
    connect,
    envelope::too_large,
    head::OutgoingRequest,
    json_rpc,
    link::{Body, HttpResponse, InFlight, Link},
    replies::{Replies, check_type},
    settings::{Dialect, Terms},
    thrift,
    upload::{self, Upload},
};
use crate::client::calls;
use ::http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use bytes::{Bytes, BytesMut};
use switchboard_core::Result;
use switchboard_wire::{Code, Metadata, Status, jsonrpc};

/// Minimum size limit of an error body, which may be larger than the messages that the caller accepts.
pub(super) const ERROR_BODY_BYTES_MIN: usize = 64 << 10;

/// Sends one call and waits for its reply; dropping the future cancels the call at the server.
///
/// # Errors
/// The status of the call, with the metadata of the head before that of the trailers.
pub(super) async fn call(
    terms: Terms,
    link: &InFlight,
    call: OutgoingRequest<'_>,
    message: &Bytes,
) -> Result<calls::RawResponse> {
    // Boxed, because these dialects are rare.
    match terms.dialect {
        Dialect::JsonRpc => return Box::pin(json_rpc::call(terms, link, call, message)).await,
        Dialect::Thrift => return Box::pin(thrift::call(terms, link, call, message)).await,
        Dialect::Connect | Dialect::Grpc | Dialect::GrpcWeb => {}
    }
    let link = link.link();
    let wanted = call.content_type(&terms)?;
    if call.is_bare(&terms) {
        return bare(terms, link, call, wanted, message).await;
    }
    let body = Upload::One(upload::wrap(message, &terms)?);
    let exchange = link.begin(call.head(&terms, link)?, body).await?;
    let response = exchange.response().await.map_err(|broken| link.status(&broken))?;
    let (head, mut replies) = Replies::new(terms, wanted, link, response)?;
    match only(&mut replies).await {
        Ok(item) => Ok(calls::RawResponse { item: item.into(), head, trailers: replies.end(), attempts: 1 }),
        Err(status) => Err(with_head(status, head)),
    }
}

/// Returns the only message.
async fn only(replies: &mut Replies<'_>) -> Result<Bytes> {
    let none =
        || codes::from_path(Code::Unimplemented, "the server ended a unary call without a reply".into());
    let item = replies.next().await?.ok_or_else(none)?;
    match replies.next().await? {
        None => Ok(item),
        Some(_) => {
            let text = "the server sent more than one reply to a unary call".to_owned();
            Err(codes::from_path(Code::Unimplemented, text))
        }
    }
}

pub(super) fn with_head(mut status: Status, head: Metadata) -> Status {
    if !head.is_empty() {
        let trailers = std::mem::replace(status.metadata_mut(), head);
        status.metadata_mut().extend(trailers);
    }
    status
}

/// Makes a unary call of Connect: the message is the body, and an error is JSON.
async fn bare(
    terms: Terms,
    link: &Link,
    call: OutgoingRequest<'_>,
    wanted: &'static str,
    message: &Bytes,
) -> Result<calls::RawResponse> {
    let exchange = match call.get(&terms, link, message)? {
        Some(head) => link.begin(head, Upload::Nothing).await?,
        None => {
            let body = match terms.compression {
                Some(compression) => compression.compress(message)?,
                None => message.clone(),
            };
            link.begin(call.head(&terms, link)?, Upload::One(body)).await?
        }
    };
    let response = exchange.response().await.map_err(|broken| link.status(&broken))?;
    let HttpResponse { status, mut headers, mut body } = response;
    let raw = connect::split_trailers(&mut headers);
    if status == StatusCode::OK {
        check_type(&headers, wanted, link.peer())?;
    } else if !headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
    {
        return Err(codes::unexpected_response(status, &headers, wanted, link.peer()));
    }
    let head = codes::metadata(&headers, &terms.metadata)?;
    let trailers = codes::metadata(&raw, &terms.metadata)?;
    let compression = Compression::named(headers.get(CONTENT_ENCODING))?;
    let bytes_max = match status {
        StatusCode::OK => terms.message_bytes_max,
        _ => terms.message_bytes_max.max(ERROR_BODY_BYTES_MIN),
    };
    let mut item = read_body(&mut body, link, bytes_max).await?;
    if let Some(compression) = compression.filter(|_| !item.is_empty()) {
        item = compression.decompress(item, bytes_max)?;
    }
    if status == StatusCode::OK {
        Ok(calls::RawResponse { item: item.into(), head, trailers, attempts: 1 })
    } else {
        let failure = connect::failure(status, &item, trailers);
        Err(with_head(codes::pushed_back(failure, &raw), head))
    }
}

/// Sends a request of a dialect that uses POST, and waits for a response with HTTP status 200.
///
/// # Errors
/// The status for every other response.
pub(super) async fn post(
    terms: &Terms,
    link: &Link,
    call: OutgoingRequest<'_>,
    request: Bytes,
) -> Result<(HeaderMap, Body)> {
    let exchange = link.begin(call.head(terms, link)?, Upload::One(request)).await?;
    let response = exchange.response().await.map_err(|broken| link.status(&broken))?;
    let HttpResponse { status, headers, mut body } = response;
    match status {
        StatusCode::OK => Ok((headers, body)),
        StatusCode::PAYLOAD_TOO_LARGE => {
            let text = read_body(&mut body, link, ERROR_BODY_BYTES_MIN).await?;
            // JSON-RPC has its own error object.
            if let Ok(jsonrpc::Response::End { result: Err(status), .. }) = jsonrpc::Response::read(&text) {
                return Err(status);
            }
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            Err(codes::from_path(Code::ResourceExhausted, text))
        }
        _ => Err(codes::unexpected_response(status, &headers, call.content_type(terms)?, link.peer())),
    }
}

/// Reads a body into one buffer; a body of a single chunk is not copied.
pub(super) async fn read_body(body: &mut Body, link: &Link, bytes_max: usize) -> Result<Bytes> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(chunk) = body.chunk().await {
        let chunk = chunk.map_err(|broken| link.status(&broken))?;
        let bytes = first.len() + all.len() + chunk.len();
        if bytes > bytes_max {
            return Err(too_large(bytes, bytes_max));
        }
        if first.is_empty() && all.is_empty() {
            first = chunk;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&chunk);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}
