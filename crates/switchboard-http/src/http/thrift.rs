//! Thrift over HTTP: an unframed message in the body of a POST to any path, and the reply in the response, whose status
//! is 200 even if the call failed.

use super::{
    body::Reply,
    connection_memory::ConnectionMemory,
    convert::{self, MetadataLimits},
    metered_body::MeteredBody,
    response::respond,
    timeout,
    unary_call::{self, UnaryCall},
};
use crate::http::HttpState;
use ::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use bytes::Bytes;
use std::sync::Arc;
use switchboard_core::{Limits, Peer, Result};
use switchboard_net::http_fields::thrift::{KINDS, kind};
use switchboard_wire::{
    Found, Input, Metadata, Outbox,
    thrift::{NAME_MAX, Server},
    wire::{ServerEvent, ServerWire},
};

/// Largest encoding of a message around its struct.
const AROUND_MAX: usize = NAME_MAX + 64;

/// Thrift on one HTTP connection.
#[derive(Clone)]
pub(super) struct Thrift {
    shared: Arc<HttpState>,
    connection_memory: Arc<ConnectionMemory>,
    shard: usize,
    peer: Arc<Peer>,
    metadata: Arc<MetadataLimits>,
    limits: switchboard_wire::Limits,
}

/// Returns whether a request is Thrift.
pub(super) fn is_thrift<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && kind(request.headers()).is_some()
}

impl Thrift {
    pub(super) fn new(
        peer: &Peer,
        connection_memory: &Arc<ConnectionMemory>,
        limits: &Limits,
        shard: usize,
    ) -> Thrift {
        Thrift {
            shared: connection_memory.shared().clone(),
            connection_memory: connection_memory.clone(),
            shard,
            peer: Arc::new(peer.on_wire(switchboard_wire::WireId::THRIFT)),
            metadata: Arc::new(MetadataLimits::new(limits)),
            limits: limits.wire(),
        }
    }

    /// Responds to a request. Dropping the future cancels the call that it waits for.
    pub(super) async fn respond(self, request: Request<MeteredBody>) -> Response<Reply> {
        let (head, body) = request.into_parts();
        if head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return respond(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Thrift requests must not be compressed\n");
        }
        let max = self.shared.table.largest_message(self.limits.message_bytes_max) as usize + AROUND_MAX;
        let body = match unary_call::collect(body, max).await {
            Ok(body) => body,
            Err((status, why)) => return respond(status, why + "\n"),
        };
        let mut machine = Server::new(self.limits, self.shared.table.clone());
        let (mut input, mut out) = (Input::default(), Outbox::new());
        input.extend(&body);
        let event = machine.recv(&mut input, &mut out);
        let mut reply_metadata = Metadata::new();
        match event {
            Ok(Some(ServerEvent::Open { id, head: call, first, .. })) => {
                match self.call(&head.headers, &call, first.unwrap_or_default()) {
                    Err(status) => machine.end(id, Err(&status), &mut out),
                    Ok(handler) if call.oneway => unary_call::notify(handler),
                    Ok(handler) => match handler.await {
                        Ok((message, metadata)) => {
                            reply_metadata = metadata;
                            machine.reply(id, (&message).into(), &mut out);
                        }
                        Err(mut status) => {
                            reply_metadata = std::mem::take(status.metadata_mut());
                            machine.end(id, Err(&status), &mut out);
                        }
                    },
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                return respond(StatusCode::BAD_REQUEST, "the body ends in the middle of a message\n");
            }
            // The messages before the error have their replies.
            Err(fatal) if out.is_empty() => return respond(StatusCode::BAD_REQUEST, format!("{fatal}\n")),
            Err(_) => {}
        }
        let mut response = respond(StatusCode::OK, Bytes::from(out.take_all()));
        response.headers_mut().extend(convert::headers(&reply_metadata));
        let kind = kind(&head.headers).unwrap_or(KINDS[0]);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    fn call(
        &self,
        headers: &HeaderMap,
        call: &switchboard_wire::wire::Head,
        message: Bytes,
    ) -> Result<unary_call::Handler> {
        let metadata = convert::metadata(headers, &self.metadata)?;
        let deadline = timeout::read(headers)?
            .map(|timeout| switchboard_core::clock::after(switchboard_core::clock::now(), timeout));
        let (connection_memory, shard, peer) = (&self.connection_memory, self.shard, &self.peer);
        let method = Found { method: call.method, undeclared_name: call.undeclared_name.clone() };
        UnaryCall { connection_memory, shard, peer, method, codec: call.codec, message, metadata, deadline }
            .begin()
    }
}
