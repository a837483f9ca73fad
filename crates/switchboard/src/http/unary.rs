//! One call with one message each way, for the dialects that are read here: from its message to its reply.

use super::{dispatch::late, ticket::Ticket};
use crate::{
    Call, Codec, Cx, Kind, Limit, Limits, Metadata, Peer, Result, Status,
    call::{ReplyBody, RequestBody},
    context,
    server::Shared,
};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};
use switchboard_wire::MethodId;

/// What calls of one HTTP connection are made with.
#[derive(Clone)]
pub(super) struct Unary {
    pub(super) shared: Arc<Shared>,
    shard: usize,
    peer: Arc<Peer>,
    pub(super) message_bytes_max: u32,
}

/// What every call of a request has.
pub(super) struct Common {
    pub(super) metadata: Metadata,
    pub(super) deadline: Option<Instant>,
}

/// A call that runs: its result and what goes with it.
pub(super) type Handler = Pin<Box<dyn Future<Output = Result<(Bytes, Metadata)>> + Send>>;

impl Unary {
    /// Calls that handlers see as those of `wire`.
    pub(super) fn new(
        wire: &'static str,
        peer: &Peer,
        shared: Arc<Shared>,
        limits: &Limits,
        shard: usize,
    ) -> Unary {
        Unary {
            shared,
            shard,
            peer: Arc::new(Peer { wire, ..peer.clone() }),
            message_bytes_max: limits.get(Limit::MessageBytesMax) as u32,
        }
    }

    /// Largest body of a request, whatever its method.
    pub(super) fn body_bytes_max(&self) -> usize {
        self.shared.table.largest_message(self.message_bytes_max) as usize
    }

    /// Checks a call and hands it over. `streamless` says why a method with a stream cannot be called.
    pub(super) fn begin(
        &self,
        method: MethodId,
        codec: Codec,
        message: Bytes,
        common: &Common,
        streamless: &str,
    ) -> Result<Handler> {
        let table = &self.shared.table;
        let info = table.info(method);
        if info.kind != Kind::Unary {
            return Err(Status::unimplemented(format!("{} {streamless}", table.full_name(method))));
        }
        if message.len() > table.message_bytes_max(method, self.message_bytes_max) as usize {
            return Err(table.too_large(method, message.len() as u32, self.message_bytes_max));
        }
        let mut ticket = Ticket::new(&self.shared, self.shard, method, common.deadline, &self.peer)?;
        ticket.received(message.len());
        let (service, index) = table.place(method);
        let service_info = table.services()[usize::from(service)];
        let deadline = ticket.deadline();
        let cx = Cx::new(&self.peer, service_info, info, deadline, common.metadata.clone());
        ticket.set_trace(cx.shared_trace());
        let call = Call::new(index, codec, RequestBody::One(message), cx);
        let mut handler = self.shared.services[usize::from(service)].call(call);
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
            let answer = reply.map(crate::Reply::joined).and_then(|reply| match reply.body {
                ReplyBody::One(message) => {
                    let mut metadata = reply.metadata;
                    metadata.extend(reply.trailers);
                    Ok((message, metadata))
                }
                ReplyBody::Compressed(_) | ReplyBody::Parts(_) | ReplyBody::Many(_) => {
                    Err(Status::internal("the handler answered with a stream where one message belongs"))
                }
            });
            if let Ok((message, _)) = &answer {
                ticket.sent(message.len());
            }
            ticket.end(answer.as_ref().map_or_else(Status::code, |_| crate::Code::Ok));
            answer
        };
        Ok(Box::pin(replied))
    }
}

/// Runs a handler whose outcome nobody waits for; its ticket counts it.
pub(super) fn notify(handler: Handler) {
    tokio::spawn(handler);
}
