//! Calls whose request is collected first and whose reply is sent in one piece, in any codec.

use super::{
    call_guard::CallGuard,
    connection_memory::ConnectionMemory,
    metered_body::{Broken, MeteredBody},
};
use ::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};
use switchboard_core::{
    Call, Cx, Peer, Result,
    call::{ReplyBody, ReplyParts, RequestBody},
};
use switchboard_driver::serving::deadline_passed;
use switchboard_wire::{Code, Codec, Found, Metadata, Status};

/// A running call: its result and metadata. Dropping it cancels the call.
pub(super) type Handler = Pin<Box<dyn Future<Output = Result<(Bytes, Metadata)>> + Send>>;

/// Collects the body of a request.
///
/// # Errors
/// Status and text of the response, without a line break: 413 for more than `max` bytes, 429 if memory does not
/// suffice, 503 when the server stops, 400 for a body that ends early.
pub(super) async fn collect(body: MeteredBody, max: usize) -> Result<Bytes, (StatusCode, String)> {
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let why =
                format!("a request is over the limit of {max} bytes (message_bytes_max of the receiver)");
            Err((StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        Err(error) => match error.downcast_ref() {
            Some(Broken::Refused(status)) => {
                let code = match status.code() {
                    Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                    _ => StatusCode::TOO_MANY_REQUESTS,
                };
                Err((code, status.message().to_owned()))
            }
            _ => Err((StatusCode::BAD_REQUEST, format!("the body ended early: {error}"))),
        },
    }
}

/// A call of a unary method that is complete except for its handler.
pub(super) struct UnaryCall<'a> {
    pub(super) connection_memory: &'a Arc<ConnectionMemory>,
    pub(super) shard: usize,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) method: Found,
    pub(super) codec: Codec,
    pub(super) message: Bytes,
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Instant>,
}

impl UnaryCall<'_> {
    /// Starts the handler.
    ///
    /// # Errors
    /// A limit that the call exceeds, or a server that drains.
    pub(super) fn begin(self) -> Result<Handler> {
        let UnaryCall { connection_memory, shard, peer, method, codec, message, mut metadata, deadline } =
            self;
        let Found { method, undeclared_name } = method;
        metadata.set_undeclared_name(undeclared_name.clone());
        let shared = connection_memory.shared();
        let table = &shared.table;
        let mut call_guard = CallGuard::new(connection_memory, shard, method, deadline, peer, message.len())?;
        call_guard.received(message.len());
        call_guard.set_undeclared_name(undeclared_name);
        let (service, index) = table.service_and_index(method);
        let (service_info, info) = (table.service(method), table.info(method));
        let deadline = call_guard.deadline();
        let cx = Cx::new(peer, service_info, info, deadline, metadata);
        call_guard.set_trace(cx.shared_trace());
        let call = Call::new(index, codec, RequestBody::One(message), cx);
        let mut handler = shared.services[usize::from(service)].call(call);
        let allowed = call_guard.allowed();
        let replied = async move {
            let reply = poll_fn(|cx| {
                if let Some(over) = call_guard.over(cx) {
                    return Poll::Ready(Err(over));
                }
                let poll = call_guard.poll(|| handler.as_mut().poll(cx));
                if poll.is_pending() {
                    call_guard.park(cx.waker());
                }
                poll
            });
            let reply = match deadline {
                None => reply.await,
                Some(deadline) => tokio::time::timeout_at(deadline.into(), reply)
                    .await
                    .unwrap_or_else(|_| Err(deadline_passed(allowed))),
            };
            let result = reply.and_then(|reply| match reply.into_parts() {
                ReplyParts { mut metadata, trailers, body: ReplyBody::One(message) } => {
                    metadata.extend(trailers);
                    Ok((message.into_whole(), metadata))
                }
                _ => Err(Status::internal("the handler returned a stream for a method with a single reply")),
            });
            let result = result.and_then(|(message, metadata)| match call_guard.drops(message.len()) {
                Some(status) => Err(status),
                None => Ok((message, metadata)),
            });
            if let Ok((message, _)) = &result {
                call_guard.sent(message.len());
            }
            call_guard.end(result.as_ref().map_or_else(Status::code, |_| Code::Ok));
            result
        };
        Ok(Box::pin(replied))
    }
}

/// Runs the handler of a call without a reply; its call guard records the outcome.
pub(super) fn notify(handler: Handler) {
    tokio::spawn(handler);
}
