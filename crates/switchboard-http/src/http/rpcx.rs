//! The HTTP gateway of rpcx: a call in the headers `X-RPCX-…` and the body of a request, at any path.
//!
//! | request | |
//! | --- | --- |
//! | `X-RPCX-ServicePath`, or else the path | the service |
//! | `X-RPCX-ServiceMethod`, `X-RPCX-SerializeType` | method and number of the codec; both are required |
//! | `X-RPCX-MessageID`, `X-RPCX-Version` | are returned unchanged |
//! | `X-RPCX-Oneway`, with any value | the caller expects no reply |
//! | `X-RPCX-Meta` | metadata as a query string; with the names of [`rpcx`] |
//! | `Authorization` | the credential |
//!
//! Replies have their metadata in `X-RPCX-Meta`. An error is a text in `X-RPCX-ErrorMessage` and
//! `X-RPCX-MessageStatusType: Error`, with status 200 for malformed requests, 401 for rejected credentials and 500 for
//! all others.

use super::{
    body::Reply,
    connection_memory::ConnectionMemory,
    jsonrpc::decoded,
    metered_body::MeteredBody,
    response::respond,
    unary_call::{self, Handler, UnaryCall, notify},
};
use crate::http::HttpState;
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, AUTHORIZATION},
};
use bytes::Bytes;
use std::{fmt::Write, sync::Arc};
use switchboard_core::{Limits, Peer, Result};
use switchboard_wire::{Code, Codec, Kind, Metadata, MethodId, Status, rpcx};

const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-rpcx-errormessage");
const MESSAGE_ID: HeaderName = HeaderName::from_static("x-rpcx-messageid");
const META: HeaderName = HeaderName::from_static("x-rpcx-meta");
const METHOD: HeaderName = HeaderName::from_static("x-rpcx-servicemethod");
const ONEWAY: HeaderName = HeaderName::from_static("x-rpcx-oneway");
const PATH: HeaderName = HeaderName::from_static("x-rpcx-servicepath");
const SERIALIZE_TYPE: HeaderName = HeaderName::from_static("x-rpcx-serializetype");
const STATUS_TYPE: HeaderName = HeaderName::from_static("x-rpcx-messagestatustype");
const VERSION: HeaderName = HeaderName::from_static("x-rpcx-version");

/// Returns whether a request is a call of the gateway.
pub(super) fn is_gateway<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    headers.contains_key(METHOD) || headers.contains_key(PATH)
}

/// The gateway on one HTTP connection.
#[derive(Clone)]
pub(super) struct Gateway {
    shared: Arc<HttpState>,
    connection_memory: Arc<ConnectionMemory>,
    shard: usize,
    peer: Arc<Peer>,
    limits: switchboard_wire::Limits,
}

impl Gateway {
    pub(super) fn new(
        peer: &Peer,
        connection_memory: &Arc<ConnectionMemory>,
        limits: &Limits,
        shard: usize,
    ) -> Gateway {
        let peer = Arc::new(peer.on_wire(switchboard_wire::WireId::RPCX));
        let (shared, connection_memory) = (connection_memory.shared().clone(), connection_memory.clone());
        Gateway { shared, connection_memory, shard, peer, limits: limits.wire() }
    }

    /// Responds to a request. Dropping the future cancels the call that it waits for.
    pub(super) async fn respond(self, request: Request<MeteredBody>) -> Response<Reply> {
        let (head, body) = request.into_parts();
        if ![Method::GET, Method::POST, Method::PUT].contains(&head.method) {
            let mut response =
                respond(StatusCode::METHOD_NOT_ALLOWED, "rpcx is called with POST, PUT or GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, PUT"));
            return response;
        }
        let path = text(&head.headers, &PATH).unwrap_or_else(|| head.uri.path().trim_start_matches('/'));
        let mut response = match self.call(&head.headers, path, body).await {
            Ok((message, metadata)) => {
                let mut response = respond(StatusCode::OK, message);
                response.headers_mut().insert(META, value(&query(&metadata)));
                response
            }
            Err((code, why)) => {
                let mut response = respond(code, Bytes::new());
                response.headers_mut().insert(STATUS_TYPE, HeaderValue::from_static("Error"));
                response.headers_mut().insert(ERROR_MESSAGE, value(&why));
                response
            }
        };
        response.headers_mut().insert(PATH, value(path));
        for name in [MESSAGE_ID, METHOD, SERIALIZE_TYPE, VERSION] {
            if let Some(value) = head.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }

    async fn call(
        &self,
        headers: &HeaderMap,
        path: &str,
        body: MeteredBody,
    ) -> Result<(Bytes, Metadata), Refusal> {
        let malformed = |why: &str| (StatusCode::OK, why.to_owned());
        if path.is_empty() {
            return Err(malformed("empty servicepath"));
        }
        let method = text(headers, &METHOD).filter(|method| !method.is_empty());
        let method = method.ok_or_else(|| malformed("empty servicemethod"))?;
        let number = text(headers, &SERIALIZE_TYPE).filter(|number| !number.is_empty());
        let number = number.ok_or_else(|| malformed("empty serialized type"))?;
        let number = number.parse().map_err(|_| malformed("the serialized type is not a number"))?;
        let max = self.shared.table.largest_message(self.limits.message_bytes_max) as usize;
        let message = unary_call::collect(body, max).await?;
        let begun = self.begin(headers, path, method, number, message);
        let handler = begun.map_err(|status| refused(&status))?;
        if headers.contains_key(ONEWAY) {
            notify(handler);
            return Ok((Bytes::new(), Metadata::new()));
        }
        handler.await.map_err(|status| refused(&status))
    }

    /// Checks a call and starts its handler.
    fn begin(
        &self,
        headers: &HeaderMap,
        path: &str,
        method: &str,
        number: u8,
        message: Bytes,
    ) -> Result<Handler> {
        let mut pairs = Vec::new();
        for pair in text(headers, &META).unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.push((decoded(name), decoded(value)));
        }
        if let Some(credential) = text(headers, &AUTHORIZATION) {
            pairs.push(("__AUTH".to_owned(), credential.to_owned()));
        }
        let (metadata, timeout) = rpcx::request_metadata(&pairs, &self.limits)?;
        let table = &self.shared.table;
        let found = rpcx::find(table, path, method)?;
        let (found, codec) = match self.check(number, message.len(), found.method) {
            Ok(codec) => (found, codec),
            // Callers without credentials get the same status for every method.
            Err(status) => (table.refuse_call(&found, Kind::Unary, status)?, Codec::Raw),
        };
        UnaryCall {
            connection_memory: &self.connection_memory,
            shard: self.shard,
            peer: &self.peer,
            method: found,
            codec,
            message,
            metadata,
            deadline: timeout
                .map(|timeout| switchboard_core::clock::after(switchboard_core::clock::now(), timeout)),
        }
        .begin()
    }

    /// Checks kind, size and codec of a call.
    fn check(&self, number: u8, bytes: usize, method: MethodId) -> Result<Codec> {
        let table = &self.shared.table;
        if table.info(method).kind != Kind::Unary {
            let text = format!("{} has a stream, which rpcx cannot carry", table.full_name(method));
            return Err(Status::unimplemented(text));
        }
        if bytes > table.message_bytes_max(method, self.limits.message_bytes_max) as usize {
            return Err(table.too_large(method, bytes as u32, self.limits.message_bytes_max));
        }
        rpcx::codec(table, number, method)
    }
}

/// Status and text of a response without a message.
type Refusal = (StatusCode, String);

fn refused(status: &Status) -> Refusal {
    let code = match status.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (code, rpcx::error_text(status))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Converts text to a header value of one line.
fn value(text: &str) -> HeaderValue {
    let bytes: Vec<u8> =
        text.bytes().map(|byte| if byte < 0x20 || byte == 0x7F { b' ' } else { byte }).collect();
    HeaderValue::from_maybe_shared(Bytes::from(bytes)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Encodes metadata as a query string.
fn query(metadata: &Metadata) -> String {
    let mut text = String::new();
    for (name, value) in metadata.iter() {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        for byte in value {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                    text.push(char::from(*byte));
                }
                b' ' => text.push('+'),
                // Writing into a string does not fail.
                _ => write!(text, "%{byte:02X}").unwrap_or_default(),
            }
        }
    }
    text
}
