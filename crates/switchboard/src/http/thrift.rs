//! Thrift over HTTP: a message without a frame in the body of a POST to any path, and the reply in the answer, whose
//! status is 200 whatever became of the call.

use super::{
    body::Reply,
    connection::respond,
    convert::{self, MetadataLimits},
    holding::Holding,
    received::Received,
    timeout,
    whole::{self, Whole},
};
use crate::{Limits, Metadata, Peer, Result, server::Shared};
use ::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use bytes::Bytes;
use std::sync::Arc;
use switchboard_wire::{
    Input, Outbox,
    thrift::{NAME_MAX, Server},
    wire::{ServerEvent, ServerWire},
};

/// What comes around a struct.
const AROUND_MAX: usize = NAME_MAX + 64;

/// Both protocols say which they are; browsers ask before they send any of these to somebody else's server.
const KINDS: [&str; 3] =
    ["application/x-thrift", "application/vnd.apache.thrift.binary", "application/vnd.apache.thrift.compact"];

/// Thrift as one HTTP connection reaches it.
#[derive(Clone)]
pub(super) struct Thrift {
    shared: Arc<Shared>,
    holding: Arc<Holding>,
    shard: usize,
    peer: Arc<Peer>,
    metadata: Arc<MetadataLimits>,
    limits: switchboard_wire::Limits,
}

/// Whether a request is Thrift's to answer.
pub(super) fn is_thrift<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && kind(request.headers()).is_some()
}

/// Whether the headers say that the body is Thrift.
pub(crate) fn is_typed(headers: &HeaderMap) -> bool {
    kind(headers).is_some()
}

fn kind(headers: &HeaderMap) -> Option<&'static str> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next().unwrap_or_default().trim();
    KINDS.into_iter().find(|known| known.eq_ignore_ascii_case(kind))
}

impl Thrift {
    pub(super) fn new(peer: &Peer, holding: &Arc<Holding>, limits: &Limits, shard: usize) -> Thrift {
        Thrift {
            shared: holding.shared().clone(),
            holding: holding.clone(),
            shard,
            peer: Arc::new(Peer { wire: "thrift", ..peer.clone() }),
            metadata: Arc::new(MetadataLimits::new(limits)),
            limits: limits.wire(),
        }
    }

    /// Answers a request. Dropping the future cancels the call that it waits for.
    pub(super) async fn answer(self, request: Request<Received>) -> Response<Reply> {
        let (head, body) = request.into_parts();
        if head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return respond(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Thrift is taken without compression\n");
        }
        let max = self.shared.table.largest_message(self.limits.message_bytes_max) as usize + AROUND_MAX;
        let body = match whole::collect(body, max).await {
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
                    Ok(handler) if call.oneway => whole::notify(handler),
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
            // What can be answered was.
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
    ) -> Result<whole::Handler> {
        let metadata = convert::metadata(headers, &self.metadata)?;
        let deadline = timeout::read(headers)?.map(|timeout| crate::clock::now() + timeout);
        let (holding, shard, peer) = (&self.holding, self.shard, &self.peer);
        Whole { holding, shard, peer, method: call.method, codec: call.codec, message, metadata, deadline }
            .begin()
    }
}
