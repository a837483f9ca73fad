//! Direct calls: to a service of this process without a connection, or to the layers of a channel.

use super::{Begin, Channel, layered::Layered};
use std::{future::poll_fn, pin::Pin, sync::Arc, time::Instant};
use switchboard_core::{
    Call, Cx, Extensions, Layer, Limit, Limits, Peer, Reply, Result, Service,
    call::{ReplyBody, ReplyParts, RequestBody},
    context,
    queue::{Items, Queue, guarded_next, too_large},
};
use switchboard_guard::dispatch::{Erased, ErasedService};
use switchboard_wire::{Metadata, Status};

pub(super) struct Local {
    end: End,
    peer: Arc<Peer>,
    message_bytes_max: usize,
}

/// Receiver of the calls.
enum End {
    Layers(Arc<Layered>),
    Service(Arc<dyn ErasedService>),
}

impl Local {
    pub(super) fn new(service: impl Service, limits: &Limits) -> Local {
        let end = End::Service(Arc::new(Erased::new(service)));
        let message_bytes_max = limits.get(Limit::MessageBytesMax) as usize;
        Local { end, peer: peer("local".to_owned(), None), message_bytes_max }
    }

    /// Wraps the channel in these layers, the first of them outermost. Only the channel itself limits the size of
    /// messages.
    pub(super) fn layered(
        channel: Channel,
        layers: Vec<Arc<dyn Layer>>,
        extensions: Option<Arc<Extensions>>,
    ) -> Local {
        let peer = peer(format!("{channel:?}"), extensions);
        let end = End::Layers(Arc::new(Layered { channel, layers }));
        Local { end, peer, message_bytes_max: usize::MAX }
    }

    /// The channel behind the layers, or `None` for a service.
    pub(super) fn behind(&self) -> Option<&Layered> {
        match &self.end {
            End::Layers(layered) => Some(layered),
            End::Service(_) => None,
        }
    }

    /// Values that all its calls share.
    pub(super) fn extensions(&self) -> Option<Arc<Extensions>> {
        self.peer.extensions.clone()
    }

    pub(super) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    pub(super) fn name(&self) -> &str {
        match &self.end {
            End::Layers(_) => &self.peer.address,
            End::Service(service) => service.info().name,
        }
    }

    /// Runs one call, until its deadline at most. Deadlines need the timer of a tokio runtime.
    pub(super) fn call(
        &self,
        begin: &mut Begin,
        body: RequestBody,
    ) -> impl Future<Output = Result<Reply>> + Send + 'static + use<> {
        let deadline = begin.deadline(switchboard_core::clock::now());
        let info = match &self.end {
            End::Layers(_) => begin.method.service,
            End::Service(service) => service.info(),
        };
        let same_service = begin.method.service.name == info.name;
        let method = info.methods.get(usize::from(begin.method.index)).filter(|_| same_service);
        let metadata = std::mem::take(&mut begin.metadata);
        let max = self.message_bytes_max;
        let mut trace = None;
        let called = match (method, &body) {
            (Some(_), RequestBody::One(message)) if message.len() > max => {
                Err(too_large(&format!("a request to {}", begin.method.path), message.len(), max))
            }
            (Some(method), requests) => {
                if let RequestBody::Many(requests) = requests {
                    requests.limit_items(max);
                }
                let cx = Cx::new(&self.peer, info, method, deadline, metadata);
                trace = cx.shared_trace();
                let call = Call::new(begin.method.index, begin.codec, body, cx);
                match &self.end {
                    End::Layers(layered) => Ok(layered.call(call, begin)),
                    End::Service(service) => method
                        .check_schema(begin.method.path, begin.codec, begin.method.schema())
                        .map(|()| service.call(call)),
                }
            }
            (None, _) => Err(Status::unimplemented(format!(
                "method {} not found on this channel; it has the service {}",
                begin.method.path, info.name
            ))),
        };
        async move {
            let mut called = called?;
            let called =
                poll_fn(move |cx| context::scope(deadline, trace.as_ref(), || called.as_mut().poll(cx)));
            let reply = within(deadline, called).await?;
            match reply.body() {
                ReplyBody::One(message) if message.len() > max => {
                    Err(too_large("a reply", message.len(), max))
                }
                _ => Ok(reply),
            }
        }
    }
}

fn peer(address: String, extensions: Option<Arc<Extensions>>) -> Arc<Peer> {
    let mut peer = Peer::without_connection(switchboard_wire::WireId::LOCAL, address);
    peer.extensions = extensions;
    Arc::new(peer)
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
pub(super) fn pump(
    reply: Reply,
    into: &Arc<Queue>,
    deadline: Option<Instant>,
    message_bytes_max: usize,
) -> Result<()> {
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
