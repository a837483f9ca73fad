//! JSON-RPC in the body of a POST. Every JSON-RPC response has status 200.

use super::{
    body::Reply,
    connection_memory::ConnectionMemory,
    convert::{self, MetadataLimits},
    metered_body::MeteredBody,
    response::respond,
    rest::Failure,
    timeout,
    unary_call::{self, Handler, UnaryCall, notify},
};
use crate::http::HttpState;
use ::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE},
};
use bytes::Bytes;
use std::{future::poll_fn, sync::Arc, task::Poll, time::Instant};
use switchboard_core::{Limit, Limits, Peer, Result};
use switchboard_guard::guard::admit_wire;
use switchboard_wire::{
    Codec, Kind, Metadata, MethodId, Status,
    jsonrpc::{self, BatchResponse, Body, ErrorObject},
};

/// Paths of JSON-RPC; the path of a method has two parts.
const PATHS: [&str; 2] = ["/", "/rpc"];
/// With this header, every path serves JSON-RPC.
const HEADER: &str = "x-jsonrpc-2.0";
/// Marks a request of an rpcx gateway, which may use any path.
const RPCX_SERVICE: &str = "x-rpcx-servicepath";
/// Metadata of rpcx callers, written as a query string.
const RPCX_META: &str = "x-rpcx-meta";
const KINDS: [&str; 3] = ["application/json", "application/json-rpc", "application/jsonrequest"];

/// JSON-RPC on one HTTP connection.
#[derive(Clone)]
pub(super) struct JsonRpc {
    shared: Arc<HttpState>,
    connection_memory: Arc<ConnectionMemory>,
    shard: usize,
    peer: Arc<Peer>,
    metadata: Arc<MetadataLimits>,
    message_bytes_max: u32,
}

/// Data that all calls of a request share.
struct Common {
    metadata: Metadata,
    deadline: Option<Instant>,
}

/// Returns whether a request is JSON-RPC.
pub(super) fn is_jsonrpc<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    if headers.get(HEADER).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")) {
        return true;
    }
    let path = request.uri().path();
    // A request to `/` that is not a POST is not JSON-RPC: the path may have a page for browsers.
    let posts = request.method() == Method::POST || path == PATHS[1];
    PATHS.contains(&path) && posts && !headers.contains_key(RPCX_SERVICE)
}

impl JsonRpc {
    pub(super) fn new(
        peer: &Peer,
        connection_memory: &Arc<ConnectionMemory>,
        limits: &Limits,
        shard: usize,
    ) -> JsonRpc {
        JsonRpc {
            shared: connection_memory.shared().clone(),
            connection_memory: connection_memory.clone(),
            shard,
            peer: Arc::new(peer.on_wire(Some(switchboard_wire::WireId::JSON_RPC))),
            metadata: Arc::new(MetadataLimits::new(limits)),
            message_bytes_max: limits.get(Limit::MessageBytesMax) as u32,
        }
    }

    /// Responds to a request. Dropping the future cancels the calls that it waits for.
    pub(super) async fn respond(self, request: Request<MeteredBody>) -> Response<Reply> {
        if let Err(status) = admit_wire(self.peer.wires, self.peer.wire) {
            // The body is not read, so the id of the request is unknown.
            return found(jsonrpc::failure(None, &ErrorObject::from(&status)).into(), &Metadata::new());
        }
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            let why = "JSON-RPC is sent with POST".to_owned();
            let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, why);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        if let Err(refused) = check_kind(&head.headers) {
            return *refused;
        }
        let max = self.shared.table.largest_message(self.message_bytes_max) as usize;
        let text = match unary_call::collect(body, max).await {
            Ok(text) => text,
            Err((status, why)) => return refused(status, why),
        };
        let common = self.common(&head.headers);
        match Body::read(&text) {
            Err(error) => found(jsonrpc::failure(None, &error).into(), &Metadata::new()),
            Ok(Body::One(entry)) => self.one(&entry, common).await,
            Ok(Body::Batch(entries)) => self.batch(&entries, &common).await,
        }
    }

    fn common(&self, headers: &HeaderMap) -> Result<Common> {
        let mut metadata = convert::metadata(headers, &self.metadata)?;
        if let Some(pairs) = headers.get(RPCX_META).and_then(|value| value.to_str().ok()) {
            for (name, value) in pairs.split('&').filter_map(|pair| pair.split_once('=')) {
                metadata.insert(&decoded(name).to_ascii_lowercase(), decoded(value))?;
            }
            self.metadata.check(&metadata)?;
        }
        let deadline = timeout::read(headers)?
            .map(|timeout| switchboard_core::clock::after(switchboard_core::clock::now(), timeout));
        Ok(Common { metadata, deadline })
    }

    async fn one(&self, entry: &Bytes, common: Result<Common>) -> Response<Reply> {
        let (id, handler) = self.begin(entry, &common);
        let Some(id) = id else {
            return match handler {
                Err(Some(error)) => found(jsonrpc::failure(None, &error).into(), &Metadata::new()),
                Err(None) => nothing(),
                Ok(handler) => {
                    notify(handler);
                    nothing()
                }
            };
        };
        let (text, metadata) = match handler {
            Err(None) => return nothing(),
            Err(Some(error)) => (jsonrpc::failure(Some(&id), &error), Metadata::new()),
            Ok(handler) => match handler.await {
                Ok((result, metadata)) => (jsonrpc::success(&id, &result), metadata),
                Err(status) => {
                    let metadata = status.metadata().clone();
                    (jsonrpc::failure(Some(&id), &ErrorObject::from(&status)), metadata)
                }
            },
        };
        found(text.into(), &metadata)
    }

    async fn batch(&self, entries: &[Bytes], common: &Result<Common>) -> Response<Reply> {
        let mut responses = BatchResponse::new(self.message_bytes_max);
        let mut running = Vec::new();
        for entry in entries {
            match self.begin(entry, common) {
                (_, Err(None)) => {}
                (id, Err(Some(error))) => responses.fail(id.as_deref(), &error),
                (None, Ok(handler)) => notify(handler),
                (Some(id), Ok(handler)) => running.push((id, handler)),
            }
        }
        // All calls run at once; each wake polls all of them, at most a hundred.
        poll_fn(|cx| {
            running.retain_mut(|(id, handler)| match handler.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    let result =
                        result.map(|(result, _)| result).map_err(|status| ErrorObject::from(&status));
                    responses.push(id, &result);
                    false
                }
            });
            if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        match responses.finish() {
            Some(text) => found(text, &Metadata::new()),
            None => nothing(),
        }
    }

    /// Returns the id of an entry and its handler or its error; `None` for a notification that fails.
    fn begin(
        &self,
        entry: &Bytes,
        common: &Result<Common>,
    ) -> (Option<Bytes>, Result<Handler, Option<ErrorObject>>) {
        let request = match jsonrpc::Request::read(entry) {
            Ok(request) => request,
            Err(invalid) => return (invalid.id, Err(Some(invalid.error))),
        };
        let handler = match common {
            Ok(common) => self.call(&request, common),
            Err(status) => Err(status.clone()),
        };
        let has_reply = request.id.is_some();
        (request.id, handler.map_err(|status| has_reply.then(|| ErrorObject::from(&status))))
    }

    /// Checks a call and starts its handler.
    fn call(&self, request: &jsonrpc::Request, common: &Common) -> Result<Handler> {
        let table = &self.shared.table;
        let found = jsonrpc::find(table, &request.method)?;
        let (found, message) = match self.message(request, found.method) {
            Ok(message) => (found, message),
            // Callers without credentials get the same status for every method.
            Err(status) => (table.refuse_call(&found, Kind::Unary, status)?, Bytes::from_static(b"{}")),
        };
        let Common { metadata, deadline } = common;
        UnaryCall {
            connection_memory: &self.connection_memory,
            shard: self.shard,
            peer: &self.peer,
            method: found,
            codec: Codec::Json,
            message,
            metadata: metadata.clone(),
            deadline: *deadline,
        }
        .begin()
    }

    /// Returns the message of a call.
    fn message(&self, request: &jsonrpc::Request, method: MethodId) -> Result<Bytes> {
        let table = &self.shared.table;
        let info = table.info(method);
        if info.kind != Kind::Unary {
            return Err(Status::unimplemented(format!(
                "{} streams, which JSON-RPC over HTTP cannot carry; replies stream over WebSocket and TCP",
                table.full_name(method)
            )));
        }
        let message = jsonrpc::message(info, request.params.as_ref())?;
        if message.len() > table.message_bytes_max(method, self.message_bytes_max) as usize {
            return Err(table.too_large(method, message.len() as u32, self.message_bytes_max));
        }
        Ok(message)
    }
}

fn check_kind(headers: &HeaderMap) -> Result<(), Box<Response<Reply>>> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // Browsers send a preflight before they send these types or this header to a server of another origin.
    if !headers.contains_key(HEADER) && !KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind)) {
        let why = "JSON-RPC is sent as application/json".to_owned();
        return Err(Box::new(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let why = "JSON-RPC requests must not be compressed".to_owned();
        return Err(Box::new(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    Ok(())
}

/// Decodes a part of a query string; invalid escapes stay as they are.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        rest = match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                &after[2..]
            }
            _ => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Creates the error response to a request that is refused before it is routed.
pub(super) fn failed(failure: Failure) -> Response<Reply> {
    let (status, http) = failure.into_parts();
    with_http(http, &status)
}

/// Creates the error response, with an HTTP status, for a request that is refused before its entries are read.
fn refused(http: StatusCode, why: String) -> Response<Reply> {
    let status = match http {
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Status::resource_exhausted(why),
        StatusCode::SERVICE_UNAVAILABLE => Status::unavailable(why),
        _ => Status::invalid_argument(why),
    };
    with_http(http, &status)
}

fn with_http(http: StatusCode, status: &Status) -> Response<Reply> {
    let text = jsonrpc::failure(None, &ErrorObject::from(status));
    let mut response = found(text.into(), &Metadata::new());
    *response.status_mut() = http;
    response
}

fn found(text: Bytes, metadata: &Metadata) -> Response<Reply> {
    let mut response = respond(StatusCode::OK, text);
    response.headers_mut().extend(convert::headers(metadata));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Creates the response to a request that has only notifications.
fn nothing() -> Response<Reply> {
    respond(StatusCode::NO_CONTENT, Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_strings_are_read() {
        assert_eq!(decoded("a%20b+c%zz%4"), "a b c%zz%4");
    }
}
