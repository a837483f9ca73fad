//! Calls whose request was collected first and whose reply is sent in one piece, whatever they are written in.

use super::{
    dispatch::late,
    holding::Holding,
    received::{Broken, Received},
    ticket::Ticket,
};
use crate::{
    Call, Code, Codec, Cx, Metadata, Peer, Result, Status,
    call::{ReplyBody, ReplyParts, RequestBody},
    context,
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
use switchboard_wire::MethodId;

/// A call that runs: its result and what goes with it. Dropping it cancels the call.
pub(super) type Handler = Pin<Box<dyn Future<Output = Result<(Bytes, Metadata)>> + Send>>;

/// The whole body of a request.
///
/// # Errors
/// How to answer instead, without the end of the line: 413 for more than `max` bytes, 429 where there is no room, 400
/// for a body that ends early.
pub(super) async fn collect(body: Received, max: usize) -> Result<Bytes, (StatusCode, String)> {
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let why = format!("the body has more than {max} bytes (message_bytes_max)");
            Err((StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        Err(error) => match error.downcast_ref() {
            Some(Broken::NoRoom(status)) => Err((StatusCode::TOO_MANY_REQUESTS, status.message().to_owned())),
            _ => Err((StatusCode::BAD_REQUEST, format!("the body ended early: {error}"))),
        },
    }
}

/// A call of a unary method that has all but its handler.
pub(super) struct Whole<'a> {
    pub(super) holding: &'a Arc<Holding>,
    pub(super) shard: usize,
    pub(super) peer: &'a Arc<Peer>,
    pub(super) method: MethodId,
    pub(super) codec: Codec,
    pub(super) message: Bytes,
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Instant>,
}

impl Whole<'_> {
    /// Hands the call over.
    ///
    /// # Errors
    /// What keeps it from beginning: limits, and a server that drains.
    pub(super) fn begin(self) -> Result<Handler> {
        let Whole { holding, shard, peer, method, codec, message, metadata, deadline } = self;
        let shared = holding.shared();
        let table = &shared.table;
        let mut ticket = Ticket::new(holding, shard, method, deadline, peer, message.len())?;
        ticket.received(message.len());
        let (service, index) = table.place(method);
        let (service_info, info) = (table.service(method), table.info(method));
        let deadline = ticket.deadline();
        let cx = Cx::new(peer, service_info, info, deadline, metadata);
        ticket.set_trace(cx.shared_trace());
        let call = Call::new(index, codec, RequestBody::One(message), cx);
        let mut handler = shared.services[usize::from(service)].call(call);
        let replied = async move {
            let reply = poll_fn(|cx| {
                if let Some(over) = ticket.over(cx) {
                    return Poll::Ready(Err(over));
                }
                let poll = context::scope(deadline, ticket.trace(), || handler.as_mut().poll(cx));
                if poll.is_pending() {
                    ticket.park(cx.waker());
                }
                poll
            });
            let reply = match deadline {
                None => reply.await,
                Some(deadline) => {
                    tokio::time::timeout_at(deadline.into(), reply).await.unwrap_or_else(|_| Err(late()))
                }
            };
            let answer = reply.and_then(|reply| match reply.into_parts() {
                ReplyParts { mut metadata, trailers, body: ReplyBody::One(message) } => {
                    metadata.extend(trailers);
                    Ok((message.into_whole(), metadata))
                }
                _ => Err(Status::internal("the handler answered with a stream where one message belongs")),
            });
            let answer = answer.and_then(|(message, metadata)| match ticket.drops(message.len()) {
                Some(status) => Err(status),
                None => Ok((message, metadata)),
            });
            if let Ok((message, _)) = &answer {
                ticket.sent(message.len());
            }
            ticket.end(answer.as_ref().map_or_else(Status::code, |_| Code::Ok));
            answer
        };
        Ok(Box::pin(replied))
    }
}

/// Runs a handler whose outcome nobody waits for; its ticket counts it.
pub(super) fn notify(handler: Handler) {
    tokio::spawn(handler);
}
