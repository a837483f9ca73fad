//! From a call as `connectrpc` has it to the handler, and back.

use super::{
    Standard,
    connection::message_limits,
    convert::{self, MetadataLimits},
    flatbuffers::FlatBuffers,
    holding::Holding,
    replies::{Only, Replies},
    requests::Requests,
    ticket::Ticket,
    trailers::Trailers,
};
use crate::{
    Call, Code, Codec, Cx, Idempotency, Kind, Limit, Limits, Metadata, Peer, Reply, Result, Status,
    call::{ReplyBody, ReplyMetadata, ReplyParts, RequestBody},
    context,
    server::Shared,
};
use bytes::Bytes;
use connectrpc::{
    CodecFormat, ConnectError, Dispatcher, MethodDescriptor, MethodKind, Payload, Protocol, RequestContext,
    Response,
    dispatcher::{RequestStream, StreamingResult, UnaryResult},
};
use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
};
use switchboard_wire::MethodId;

/// The services of a server as one connection reaches them.
#[derive(Clone)]
pub(super) struct Dispatch {
    shared: Arc<Shared>,
    standard: Arc<Standard>,
    shard: usize,
    holding: Arc<Holding>,
    metadata: MetadataLimits,
    message_bytes_max: u32,
    /// Methods that no service declares are learned as of this kind, if they are.
    learns: Option<Kind>,
    grpc: Arc<Peer>,
    grpc_web: Arc<Peer>,
    connect: Arc<Peer>,
    http_json: Arc<Peer>,
}

/// A call that has all but its messages.
struct Begun {
    service: u16,
    method: u16,
    oneway: bool,
    codec: Codec,
    cx: Cx,
    ticket: Ticket,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
}

impl Dispatch {
    pub(super) fn new(peer: &Peer, holding: &Arc<Holding>, limits: &Limits, shard: usize) -> Dispatch {
        let shared = holding.shared().clone();
        let speaks = |wire| Arc::new(Peer { wire, ..peer.clone() });
        Dispatch {
            standard: Standard::of(&shared).clone(),
            shared,
            shard,
            holding: holding.clone(),
            metadata: MetadataLimits::new(limits),
            message_bytes_max: limits.get(Limit::MessageBytesMax) as u32,
            learns: None,
            grpc: speaks("grpc"),
            grpc_web: speaks("grpc-web"),
            connect: speaks("connect"),
            http_json: speaks("http-json"),
        }
    }

    /// The same for callers whose methods are of this kind where no service declares them.
    pub(super) fn learning(&self, kind: Kind) -> Dispatch {
        Dispatch { learns: Some(kind), ..self.clone() }
    }

    /// The method at this path.
    fn find(&self, path: &str) -> Option<MethodId> {
        let found = self.shared.table.find_called(path);
        found.or_else(|| learn(&self.shared, path, self.learns?))
    }

    fn begin(
        &self,
        method: MethodId,
        context: &RequestContext,
        format: CodecFormat,
        request: usize,
    ) -> Result<Begun> {
        let table = &self.shared.table;
        let (service, index) = table.place(method);
        let (service_info, info) = (table.service(method), table.info(method));
        let peer = self.peer(context);
        let protocol = context.protocol().unwrap_or(Protocol::Connect);
        let mut ticket = Ticket::new(&self.holding, self.shard, method, context.deadline(), peer, request)?;
        let deadline = ticket.deadline();
        let metadata = convert::metadata(context.headers(), &self.metadata)
            .inspect_err(|status| ticket.end(status.code()))?;
        let cx = Cx::new(peer, service_info, info, deadline, metadata);
        ticket.set_trace(cx.shared_trace());
        Ok(Begun {
            service,
            method: index,
            oneway: info.oneway,
            codec: match context.extensions().get::<FlatBuffers>() {
                Some(_) => Codec::FlatBuffers,
                None if format == CodecFormat::Json => Codec::Json,
                None => Codec::Proto,
            },
            cx,
            ticket,
            trailers: context.extensions().get().cloned(),
            protocol,
        })
    }

    /// The peer as it speaks in this call.
    fn peer(&self, context: &RequestContext) -> &Arc<Peer> {
        match context.protocol() {
            Some(Protocol::Grpc) => &self.grpc,
            Some(Protocol::GrpcWeb) => &self.grpc_web,
            Some(_) => &self.connect,
            None => &self.http_json,
        }
    }

    /// The standard services, for a call that may go on.
    fn standard(&self, path: &str, context: &RequestContext) -> Result<&connectrpc::Router> {
        self.shared.guarding.standard(self.peer(context), path)?;
        Ok(self.standard.router())
    }

    /// Hands the call over; the future is the handler's.
    fn call(
        &self,
        begun: Begun,
        body: RequestBody,
        requests: Option<Requests>,
    ) -> impl Future<Output = Result<Answered>> + Send + 'static + use<> {
        let Begun { service, method, codec, cx, mut ticket, trailers, protocol, .. } = begun;
        if let RequestBody::One(message) = &body {
            ticket.received(message.len());
        }
        let mut handler = self.shared.services[usize::from(service)].call(Call::new(method, codec, body, cx));
        let mut requests = requests;
        async move {
            let deadline = ticket.deadline();
            let reply = poll_fn(|cx| {
                if let Some(over) = ticket.over(cx) {
                    return Poll::Ready(Err(over));
                }
                if let Some(requests) = &mut requests {
                    requests.poll(cx, &mut ticket);
                }
                let poll = context::scope(deadline, ticket.trace(), || handler.as_mut().poll(cx));
                if let Some(requests) = &requests {
                    ticket.holds(requests.held());
                }
                if poll.is_pending() {
                    ticket.park(cx.waker());
                }
                poll
            })
            .await;
            match reply {
                Ok(reply) => Ok(Answered { reply, requests, ticket, trailers, protocol }),
                Err(status) => {
                    ticket.end(status.code());
                    Err(status)
                }
            }
        }
    }

    fn unary(&self, begun: Result<Begun>, body: RequestBody, requests: Option<Requests>) -> UnaryResult {
        match begun {
            Err(status) => failed(&status),
            Ok(begun) if begun.oneway => {
                let late = begun.ticket.deadline();
                // Zero bytes are an empty protobuf message, but no JSON.
                let empty: &[u8] = if begun.codec == Codec::Json { b"{}" } else { b"" };
                let handler = self.call(begun, body, requests);
                crate::runtime::spawn(async move {
                    // Nobody waits for the outcome; the ticket has counted it.
                    let answered = match late {
                        None => handler.await,
                        Some(late) => match tokio::time::timeout_at(late.into(), handler).await {
                            Ok(answered) => answered,
                            Err(_) => return,
                        },
                    };
                    let _ = answered.map(Answered::one);
                });
                Box::pin(std::future::ready(Ok(Response::new(Bytes::from_static(empty).into()))))
            }
            Ok(mut begun) => {
                let reply = begun.cx.share_reply();
                let handler = self.call(begun, body, requests);
                Box::pin(async move {
                    match handler.await {
                        Ok(answered) => answered.one(),
                        Err(status) => {
                            let ReplyMetadata { head, trailers } = reply.take();
                            Err(convert::error(&status, &head, &trailers))
                        }
                    }
                })
            }
        }
    }

    fn streaming(
        &self,
        begun: Result<Begun>,
        body: RequestBody,
        requests: Option<Requests>,
    ) -> StreamingResult {
        match begun {
            Err(status) => failed(&status),
            Ok(begun) => {
                let handler = self.call(begun, body, requests);
                Box::pin(async move { handler.await.map_err(|status| refusal(&status))?.many().await })
            }
        }
    }
}

/// A reply and what its call needs to its end.
struct Answered {
    reply: Reply,
    requests: Option<Requests>,
    ticket: Ticket,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
}

impl Answered {
    fn one(mut self) -> Result<connectrpc::EncodedResponse, ConnectError> {
        let ReplyParts { metadata, trailers, body } = self.reply.into_parts();
        let ReplyBody::One(message) = body else {
            self.ticket.end(Code::Internal);
            return Err(refusal(&Status::internal(
                "the handler answered with a stream where one message belongs",
            )));
        };
        if let Some(status) = self.ticket.drops(message.len()) {
            self.ticket.end(status.code());
            return Err(refusal(&status));
        }
        self.ticket.sent(message.len());
        self.ticket.end(Code::Ok);
        let mut response = Response::new(message.into_whole().into());
        response.headers = convert::headers(&metadata);
        response.trailers = convert::headers(&trailers);
        Ok(response)
    }

    async fn many(mut self) -> Result<Response<connectrpc::EncodedStream>, ConnectError> {
        let ReplyParts { metadata, trailers, body } = self.reply.into_parts();
        let items = match body {
            ReplyBody::Many(items) => items.into_items(),
            // Of a method that no service declares, nobody knew before.
            ReplyBody::One(message) => Only::of(message.into_whole(), metadata, trailers),
            ReplyBody::Compressed(_) => {
                self.ticket.end(Code::Internal);
                return Err(refusal(&Status::internal(
                    "the handler answered with one message where a stream belongs",
                )));
            }
        };
        Replies::new(items, self.requests, self.ticket, self.trailers, self.protocol).start().await
    }
}

/// The method at a path of which no service knows, where such calls are taken. Health is this server's own affair, and
/// so is reflection if it has services to tell of.
pub(super) fn learn(shared: &Arc<Shared>, path: &str, kind: Kind) -> Option<MethodId> {
    let table = &shared.table;
    if !table.takes_others() {
        return None;
    }
    let reflects = path.starts_with("grpc.reflection.") && table.services().is_empty();
    let is_own = !reflects && Standard::of(shared).router().lookup(path).is_some();
    if is_own { None } else { table.learn(path, kind) }
}

/// What a call gets whose time is over.
pub(super) fn late() -> Status {
    Status::deadline_exceeded("the deadline has passed on the server")
}

fn refusal(status: &Status) -> ConnectError {
    convert::error(status, &Metadata::new(), &Metadata::new())
}

fn failed<T: Send + 'static>(
    status: &Status,
) -> std::pin::Pin<Box<dyn Future<Output = Result<T, ConnectError>> + Send>> {
    Box::pin(std::future::ready(Err(refusal(status))))
}

impl Dispatcher for Dispatch {
    fn lookup(&self, path: &str) -> Option<MethodDescriptor> {
        let Some(method) = self.find(path) else {
            return self.standard.router().lookup(path);
        };
        let info = self.shared.table.info(method);
        let kind = match info.kind {
            Kind::Bidi => MethodKind::BidiStreaming,
            Kind::ClientStream => MethodKind::ClientStreaming,
            Kind::ServerStream => MethodKind::ServerStreaming,
            Kind::Unary => MethodKind::Unary,
        };
        let reads = info.kind == Kind::Unary && info.idempotency == Idempotency::NoSideEffects;
        let descriptor = MethodDescriptor::from_kind(kind).with_idempotent(reads);
        if !self.shared.table.has_limits() {
            return Some(descriptor);
        }
        let message = self.shared.table.message_bytes_max(method, self.message_bytes_max) as usize;
        Some(descriptor.with_limits(message_limits(message)))
    }

    fn call_unary(
        &self,
        path: &str,
        context: RequestContext,
        request: Payload,
        format: CodecFormat,
    ) -> UnaryResult {
        match self.find(path) {
            None => match self.standard(path, &context) {
                Ok(standard) => standard.call_unary(path, context, request, format),
                Err(status) => failed(&status),
            },
            Some(method) => match request.encoded() {
                Ok(message) => {
                    let begun = self.begin(method, &context, format, message.len());
                    self.unary(begun, RequestBody::One(message), None)
                }
                Err(error) => Box::pin(std::future::ready(Err(error))),
            },
        }
    }

    fn call_server_streaming(
        &self,
        path: &str,
        context: RequestContext,
        request: Bytes,
        format: CodecFormat,
    ) -> StreamingResult {
        match self.find(path) {
            None => match self.standard(path, &context) {
                Ok(standard) => standard.call_server_streaming(path, context, request, format),
                Err(status) => failed(&status),
            },
            Some(method) => {
                let begun = self.begin(method, &context, format, request.len());
                self.streaming(begun, RequestBody::One(request), None)
            }
        }
    }

    fn call_client_streaming(
        &self,
        path: &str,
        context: RequestContext,
        requests: RequestStream,
        format: CodecFormat,
    ) -> UnaryResult {
        match self.find(path) {
            None => match self.standard(path, &context) {
                Ok(standard) => standard.call_client_streaming(path, context, requests, format),
                Err(status) => failed(&status),
            },
            Some(method) => {
                let (requests, body) = Requests::new(requests);
                self.unary(self.begin(method, &context, format, 0), body, Some(requests))
            }
        }
    }

    fn call_bidi_streaming(
        &self,
        path: &str,
        context: RequestContext,
        requests: RequestStream,
        format: CodecFormat,
    ) -> StreamingResult {
        match self.find(path) {
            None => match self.standard(path, &context) {
                Ok(standard) => standard.call_bidi_streaming(path, context, requests, format),
                Err(status) => failed(&status),
            },
            Some(method) => {
                let (requests, body) = Requests::new(requests);
                self.streaming(self.begin(method, &context, format, 0), body, Some(requests))
            }
        }
    }
}
