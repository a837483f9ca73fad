//! Calls without a connection: to a service of this process, or to the layers of a channel.

use super::{
    Begin,
    calls::RawResponse,
    streaming::{STREAM_BYTES_AHEAD, StartedStream},
};
use bytes::Bytes;
use std::{future::poll_fn, pin::Pin, sync::Arc, time::Instant};
use switchboard_core::{
    Call, Cx, Extensions, Peer, Reply, Result,
    call::{ReplyBody, ReplyParts, RequestBody},
    compression::Packing,
    context,
    layer::BoxFuture,
    queue::{Items, Queue, guarded_next, too_large},
    trace::Trace,
};
use switchboard_wire::{Kind, Metadata, MethodInfo, ServiceInfo, Status, WireId};

/// Properties of all direct calls of a channel.
pub(super) struct Direct {
    peer: Arc<Peer>,
    message_bytes_max: usize,
}

/// A call that its receiver may start.
pub(super) struct Prepared {
    pub(super) call: Call,
    pub(super) method: &'static MethodInfo,
    pub(super) scope: Scope,
}

/// Limits and context in which a call runs.
pub(super) struct Scope {
    deadline: Option<Instant>,
    trace: Option<Arc<Trace>>,
    message_bytes_max: usize,
}

/// A call that its receiver has started.
pub(super) struct Running {
    called: BoxFuture<'static, Result<Reply>>,
    scope: Scope,
}

impl Direct {
    pub(super) fn new(
        address: String,
        extensions: Option<Arc<Extensions>>,
        message_bytes_max: usize,
    ) -> Direct {
        let mut peer = Peer::without_connection(WireId::LOCAL, address);
        peer.extensions = extensions;
        Direct { peer: Arc::new(peer), message_bytes_max }
    }

    /// Values that all its calls share.
    pub(super) fn extensions(&self) -> Option<Arc<Extensions>> {
        self.peer.extensions.clone()
    }

    /// Creates the call for a receiver that has the methods of `service`; takes the metadata from `begin`.
    ///
    /// # Errors
    /// `ResourceExhausted` for a request that is too large, `Unimplemented` when the service does not have the method.
    pub(super) fn prepare(
        &self,
        begin: &mut Begin,
        body: RequestBody,
        service: &'static ServiceInfo,
    ) -> Result<Prepared> {
        let same_service = begin.method.service.name == service.name;
        let method = service.methods.get(usize::from(begin.method.index)).filter(|_| same_service);
        let Some(method) = method else {
            return Err(Status::unimplemented(format!(
                "method {} not found on this channel; it has the service {}",
                begin.method.path, service.name
            )));
        };
        let max = self.message_bytes_max;
        match &body {
            RequestBody::One(message) if message.len() > max => {
                let text = format!("a request to {}", begin.method.path);
                return Err(too_large(&text, message.len(), max));
            }
            RequestBody::One(_) => {}
            RequestBody::Many(requests) => requests.limit_items(max),
        }
        let deadline = begin.deadline(switchboard_core::clock::now());
        let metadata = std::mem::take(&mut begin.metadata);
        let cx = Cx::new(&self.peer, service, method, deadline, metadata);
        let scope = Scope { deadline, trace: cx.shared_trace(), message_bytes_max: max };
        Ok(Prepared { call: Call::new(begin.method.index, begin.codec, body, cx), method, scope })
    }
}

impl Scope {
    pub(super) fn run(self, called: BoxFuture<'static, Result<Reply>>) -> Running {
        Running { called, scope: self }
    }
}

impl Running {
    /// Waits for the reply, until the deadline at most. Deadlines need the timer of a tokio runtime.
    pub(super) async fn reply(self) -> Result<Reply> {
        let Running { mut called, scope: Scope { deadline, trace, message_bytes_max } } = self;
        let called = poll_fn(move |cx| context::scope(deadline, trace.as_ref(), || called.as_mut().poll(cx)));
        let reply = within(deadline, called).await?;
        match reply.body() {
            ReplyBody::One(message) if message.len() > message_bytes_max => {
                Err(too_large("a reply", message.len(), message_bytes_max))
            }
            _ => Ok(reply),
        }
    }

    /// Waits for the reply of a unary call.
    pub(super) async fn response(self) -> Result<RawResponse> {
        match self.reply().await?.into_parts() {
            ReplyParts { metadata: head, trailers, body: ReplyBody::One(item) } => {
                Ok(RawResponse { item: item.into_whole().into(), head, trailers, attempts: 1 })
            }
            _ => Err(Status::internal("a stream of replies to a call with one reply")),
        }
    }

    /// Moves the replies of a call with streams into a queue.
    pub(super) async fn stream(self, kind: Kind) -> Result<StartedStream> {
        let inbound = Arc::new(Queue::new(STREAM_BYTES_AHEAD));
        if kind == Kind::ClientStream {
            // The handler replies after the requests, which the caller has yet to send.
            let into = inbound.clone();
            switchboard_core::runtime::spawn(async move {
                match self.response().await {
                    Ok(response) => {
                        into.set_head(response.head);
                        into.push_now(response.item);
                        into.finish(Ok(response.trailers));
                    }
                    Err(status) => into.finish(Err(status)),
                }
            });
        } else {
            let (deadline, max) = (self.scope.deadline, self.scope.message_bytes_max);
            pump(self.reply().await?, &inbound, deadline, max)?;
        }
        Ok(StartedStream { inbound, packing: Packing::OFF, follow: None })
    }
}

/// The requests of a call with streams: its only one, or those of a queue.
pub(super) fn requests(message: Option<Bytes>, outbound: Option<Arc<Queue>>) -> RequestBody {
    match (message, outbound) {
        (Some(message), _) => RequestBody::One(message),
        (None, Some(outbound)) => RequestBody::Many(outbound),
        (None, None) => RequestBody::Many(Arc::new(Queue::new(STREAM_BYTES_AHEAD))),
    }
}

async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = Result<T>>) -> Result<T> {
    match deadline {
        None => work.await,
        Some(deadline) => tokio::time::timeout_at(deadline.into(), work)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("no response within the call's deadline"))),
    }
}

/// Moves the replies of a handler into the queue of their reader; in a task, because both may wait for each other.
fn pump(reply: Reply, into: &Arc<Queue>, deadline: Option<Instant>, message_bytes_max: usize) -> Result<()> {
    let ReplyParts { metadata, trailers, body } = reply.into_parts();
    let mut items: Pin<Box<dyn Items>> = match body {
        ReplyBody::One(item) => {
            into.set_head(metadata);
            into.push_now(item.into_whole());
            into.finish(Ok(trailers));
            return Ok(());
        }
        // Only messages for a wire are compressed; calls within the process request none.
        ReplyBody::Compressed(_) => {
            return Err(Status::internal("a local call got a reply compressed for a wire"));
        }
        ReplyBody::Many(items) => items.into_items(),
    };
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(Status::failed_precondition(
            "streams of local channels need a tokio runtime on this thread",
        ));
    }
    let (into, trace) = (into.clone(), context::trace());
    switchboard_core::runtime::spawn(async move {
        let mut head_sent = false;
        let pumped = within(deadline, async {
            loop {
                let next = |cx: &mut std::task::Context<'_>| {
                    let next = context::scope(deadline, trace.as_ref(), || guarded_next(items.as_mut(), cx));
                    if next.is_pending()
                        && !head_sent
                        && let Some(head) = items.early_head()
                    {
                        head_sent = true;
                        into.set_head(head);
                    }
                    next
                };
                let item = poll_fn(next).await;
                if !std::mem::replace(&mut head_sent, true) {
                    into.set_head(items.head());
                }
                let Some(item) = item else { return Ok(items.late_head_and_trailers()) };
                let mut item = Some(item.map_err(|mut status| {
                    status.metadata_mut().extend(items.late_head_and_trailers());
                    status
                })?);
                if let Some(item) = item.as_ref().filter(|item| item.bytes.len() > message_bytes_max) {
                    return Err(too_large("a reply", item.bytes.len(), message_bytes_max));
                }
                poll_fn(|cx| into.poll_push(cx, &mut item)).await?;
            }
        });
        let end: Result<Metadata> = pumped.await;
        into.finish(end);
    });
    Ok(())
}
