//! Converts a call of `connectrpc` for the handler, and the reply for `connectrpc`.

use super::{
    Standard,
    call_guard::CallGuard,
    connection_memory::ConnectionMemory,
    convert::{self, MetadataLimits},
    envelopes::message_limits,
    flatbuffers::FlatBuffers,
    health::Shown,
    plugin_route::RouteCall,
    replies::{Only, Replies},
    requests::Requests,
    trailers::Trailers,
};
use crate::http::HttpState;
use ::http::HeaderMap;
use bytes::Bytes;
use connectrpc::{
    CodecFormat, ConnectError, Dispatcher, MethodDescriptor, MethodKind, Payload, Protocol, RequestContext,
    Response,
    dispatcher::{RequestStream, StreamingResult, UnaryResult},
};
use std::{
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};
use switchboard_core::{
    Call, Cx, Limit, Limits, Peer, Reply, Result,
    call::{ReplyBody, ReplyMetadata, ReplyParts, RequestBody},
    erased::ErasedService,
    layer::BoxFuture,
};
use switchboard_guard::guard::Visible;
use switchboard_wire::{
    Code, Codec, Found, Idempotency, Kind, Metadata, MethodId, MethodTable, Status, WireId,
};

/// The services of a server as one connection calls them.
#[derive(Clone)]
pub(super) struct Dispatch {
    shared: Arc<HttpState>,
    standard: Arc<Standard>,
    shard: usize,
    connection_memory: Arc<ConnectionMemory>,
    metadata: MetadataLimits,
    message_bytes_max: u32,
    /// Kind as which undeclared methods are called, if there is a fallback for them.
    accepts_undeclared: Option<Kind>,
    grpc: Arc<Peer>,
    grpc_web: Arc<Peer>,
    connect: Arc<Peer>,
    http_json: Arc<Peer>,
}

/// A call that is complete except for its messages.
struct PreparedCall {
    service: u16,
    method: u16,
    oneway: bool,
    codec: Codec,
    cx: Cx,
    call_guard: CallGuard,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
}

/// Records, in the extensions of a request, that its call began and passes the guards.
#[derive(Clone, Default)]
pub(super) struct CallStarted(Arc<AtomicBool>);

impl CallStarted {
    /// Returns the mark for a request, if callers without credentials must not learn which methods exist.
    pub(super) fn of(table: &MethodTable) -> Option<CallStarted> {
        table.guards_unknown().then(CallStarted::default)
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Dispatch {
    pub(super) fn new(
        peer: &Peer,
        connection_memory: &Arc<ConnectionMemory>,
        limits: &Limits,
        shard: usize,
    ) -> Dispatch {
        let shared = connection_memory.shared().clone();
        let speaks = |wire| Arc::new(peer.on_wire(Some(wire)));
        Dispatch {
            standard: Standard::of(&shared).clone(),
            shared,
            shard,
            connection_memory: connection_memory.clone(),
            metadata: MetadataLimits::new(limits),
            message_bytes_max: limits.get(Limit::MessageBytesMax) as u32,
            accepts_undeclared: None,
            grpc: speaks(WireId::GRPC),
            grpc_web: speaks(WireId::GRPC_WEB),
            connect: speaks(WireId::CONNECT),
            http_json: speaks(WireId::HTTP_JSON),
        }
    }

    /// Returns a copy that calls undeclared methods as methods of this kind.
    pub(super) fn with_undeclared(&self, kind: Kind) -> Dispatch {
        Dispatch { accepts_undeclared: Some(kind), ..self.clone() }
    }

    /// Finds the method at this path.
    fn find(&self, path: &str) -> Option<Found> {
        let found = self.shared.table.find_called(path).map(Found::from);
        found.or_else(|| undeclared(&self.shared, path, self.accepts_undeclared?))
    }

    fn begin(
        &self,
        found: Found,
        context: &RequestContext,
        format: CodecFormat,
        request: usize,
    ) -> Result<PreparedCall> {
        let table = &self.shared.table;
        let Found { method, undeclared_name } = found;
        let (service, index) = table.service_and_index(method);
        let (service_info, info) = (table.service(method), table.info(method));
        let peer = self.peer(context);
        let protocol = context.protocol().unwrap_or(Protocol::Connect);
        let mut call_guard =
            CallGuard::new(&self.connection_memory, self.shard, method, context.deadline(), peer, request)?;
        let deadline = call_guard.deadline();
        call_guard.set_undeclared_name(undeclared_name.clone());
        let mut metadata = convert::metadata(context.headers(), &self.metadata)
            .inspect_err(|status| call_guard.end(status.code()))?;
        metadata.set_undeclared_name(undeclared_name);
        let cx = Cx::new(peer, service_info, info, deadline, metadata);
        call_guard.set_trace(cx.shared_trace());
        if let Some(started) = context.extensions().get::<CallStarted>() {
            started.0.store(true, Ordering::Relaxed);
        }
        Ok(PreparedCall {
            service,
            method: index,
            oneway: info.oneway,
            codec: match context.extensions().get::<FlatBuffers>() {
                Some(_) => Codec::FlatBuffers,
                None if format == CodecFormat::Json => Codec::Json,
                None => Codec::Proto,
            },
            cx,
            call_guard,
            trailers: context.extensions().get().cloned(),
            protocol,
        })
    }

    /// Returns the peer with the protocol of this call.
    fn peer(&self, context: &RequestContext) -> &Arc<Peer> {
        match context.protocol() {
            Some(Protocol::Grpc) => &self.grpc,
            Some(Protocol::GrpcWeb) => &self.grpc_web,
            Some(_) => &self.connect,
            None => &self.http_json,
        }
    }

    /// Calls the standard services with the methods that the caller of `path` may see.
    async fn standard(
        &self,
        path: &str,
        mut context: RequestContext,
    ) -> Result<(Arc<connectrpc::Router>, RequestContext), ConnectError> {
        let peer = self.peer(&context).clone();
        let visible =
            self.describe(&peer, context.headers(), path).await.map_err(|status| refusal(&status))?;
        let router = match path.starts_with("grpc.reflection.") {
            true => self.standard.reflection(&self.shared, &visible),
            false => self.standard.router().clone(),
        };
        if !visible.is_all() {
            let names = self.shared.table.services().iter().map(|service| service.name);
            // The empty name means the whole server.
            let names = names.filter(|name| visible.has_service(&self.shared.table, name)).chain([""]);
            context.extensions_mut().insert(Shown(names.collect()));
        }
        Ok((router, context))
    }

    /// Finds the methods that the sender of these headers may see through the description `name`.
    ///
    /// # Errors
    /// The errors of [`Guarding::describe`](switchboard_guard::guard::Guarding), and of metadata that cannot be parsed.
    async fn describe(&self, peer: &Arc<Peer>, headers: &HeaderMap, name: &str) -> Result<Visible> {
        let metadata = convert::metadata(headers, &self.metadata)?;
        self.shared.guarding.describe(&self.shared.table, peer, metadata, name).await
    }

    /// Finds the methods that a caller of an HTTP/JSON page may see; see [`Dispatch::describe`].
    pub(super) async fn describe_page(&self, headers: &HeaderMap, name: &str) -> Result<Visible> {
        self.describe(&self.http_json, headers, name).await
    }

    /// Returns the status for an unknown method: that of a known one for callers that may not call it, otherwise one
    /// that lists the methods that the sender of these headers may call.
    pub(super) async fn unknown(&self, headers: &HeaderMap, name: &str) -> Status {
        let table = &self.shared.table;
        let checked = async {
            let metadata = convert::metadata(headers, &self.metadata)?;
            self.shared.guarding.may_miss(table, self.detected(headers), metadata, name).await
        };
        match checked.await {
            Ok(visible) => table.unknown_where(name, |id| visible.has(id)),
            Err(status) => status,
        }
    }

    /// Returns the peer with the protocol of these headers.
    fn detected(&self, headers: &HeaderMap) -> &Arc<Peer> {
        match Protocol::detect(headers).map(|detected| detected.protocol) {
            Some(Protocol::Grpc) => &self.grpc,
            Some(Protocol::GrpcWeb) => &self.grpc_web,
            Some(_) => &self.connect,
            None => &self.http_json,
        }
    }

    /// Checks whether the sender of a request that no guard has seen may find out whether this path has a method.
    ///
    /// # Errors
    /// The error with which a call would end.
    pub(super) async fn check_caller(
        &self,
        headers: &HeaderMap,
        method: Option<MethodId>,
        path: &str,
    ) -> Result<()> {
        let (table, peer) = (&self.shared.table, self.detected(headers));
        let metadata = convert::metadata(headers, &self.metadata)?;
        match method {
            Some(method) => self.shared.guarding.may_call(table, peer, metadata, method).await,
            None => self.shared.guarding.may_miss(table, peer, metadata, path).await.map(drop),
        }
    }

    /// Checks whether the sender of these headers may call an HTTP/JSON method, before its request is read.
    ///
    /// # Errors
    /// The error with which the call would end.
    pub(super) async fn may_call(&self, headers: &HeaderMap, method: MethodId) -> Result<()> {
        let metadata = convert::metadata(headers, &self.metadata)?;
        self.shared.guarding.may_call(&self.shared.table, &self.http_json, metadata, method).await
    }

    /// Checks whether the sender of these headers may find out that nothing is at an HTTP/JSON path.
    ///
    /// # Errors
    /// The error with which a call would end.
    pub(super) async fn may_miss(&self, headers: &HeaderMap, name: &str) -> Result<()> {
        let metadata = convert::metadata(headers, &self.metadata)?;
        let guarding = &self.shared.guarding;
        guarding.may_miss(&self.shared.table, &self.http_json, metadata, name).await.map(drop)
    }

    /// Starts the handler and returns its future.
    fn call(
        &self,
        call: PreparedCall,
        body: RequestBody,
        requests: Option<Requests>,
    ) -> impl Future<Output = Result<PendingReply>> + Send + 'static + use<> {
        let PreparedCall { service, method, codec, cx, mut call_guard, trailers, protocol, .. } = call;
        if let RequestBody::One(message) = &body {
            call_guard.received(message.len());
        }
        let handler = self.shared.services[usize::from(service)].call(Call::new(method, codec, body, cx));
        drive(handler, requests, call_guard, trailers, protocol)
    }

    /// Calls the handler of a plugin's HTTP path, as the method whose rules apply.
    ///
    /// # Errors
    /// The errors of the guards and of the handler.
    pub(super) async fn call_plugin(
        &self,
        service: &dyn ErasedService,
        method: MethodId,
        context: &RequestContext,
        route: RouteCall,
        (body, requests): (RequestBody, Option<Requests>),
    ) -> Result<PluginReply, ConnectError> {
        let bytes = if let RequestBody::One(message) = &body { message.len() } else { 0 };
        let call = self.begin(method.into(), context, CodecFormat::Json, bytes);
        let PreparedCall { method, mut cx, mut call_guard, trailers, protocol, .. } =
            call.map_err(|status| refusal(&status))?;
        call_guard.received(bytes);
        cx.extensions_mut().insert(route);
        let handler = service.call(Call::new(method, Codec::Raw, body, cx));
        let pending = drive(handler, requests, call_guard, trailers, protocol).await;
        let pending = pending.map_err(|status| refusal(&status))?;
        match pending.reply.is_many() {
            true => Ok(PluginReply::Pieces(pending.many().await?.body)),
            false => Ok(PluginReply::Whole(pending.one()?.body.into_contiguous())),
        }
    }

    fn unary(
        &self,
        call: Result<PreparedCall>,
        body: RequestBody,
        requests: Option<Requests>,
    ) -> UnaryResult {
        match call {
            Err(status) => failed(&status),
            Ok(call) if call.oneway => {
                let late = call.call_guard.deadline();
                // Zero bytes are a valid protobuf message but not valid JSON.
                let empty: &[u8] = if call.codec == Codec::Json { b"{}" } else { b"" };
                let handler = self.call(call, body, requests);
                switchboard_core::runtime::spawn(async move {
                    // A one-way call has no reply; the call guard has recorded the outcome.
                    let result = match late {
                        None => handler.await,
                        Some(late) => match tokio::time::timeout_at(late.into(), handler).await {
                            Ok(result) => result,
                            Err(_) => return,
                        },
                    };
                    let _ = result.map(PendingReply::one);
                });
                Box::pin(std::future::ready(Ok(Response::new(Bytes::from_static(empty).into()))))
            }
            Ok(mut call) => {
                let reply = call.cx.share_reply();
                let handler = self.call(call, body, requests);
                Box::pin(async move {
                    match handler.await {
                        Ok(result) => result.one(),
                        Err(status) => {
                            let ReplyMetadata { head, trailers, .. } = reply.take();
                            Err(convert::error(&status, &head, &trailers))
                        }
                    }
                })
            }
        }
    }

    fn streaming(
        &self,
        call: Result<PreparedCall>,
        body: RequestBody,
        requests: Option<Requests>,
    ) -> StreamingResult {
        match call {
            Err(status) => failed(&status),
            Ok(call) => {
                let handler = self.call(call, body, requests);
                Box::pin(async move { handler.await.map_err(|status| refusal(&status))?.many().await })
            }
        }
    }
}

/// Polls a handler until it has replied.
async fn drive(
    mut handler: BoxFuture<'static, Result<Reply>>,
    mut requests: Option<Requests>,
    mut call_guard: CallGuard,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
) -> Result<PendingReply> {
    let reply = poll_fn(|cx| {
        if let Some(over) = call_guard.over(cx) {
            return Poll::Ready(Err(over));
        }
        if let Some(requests) = &mut requests {
            requests.poll(cx, &mut call_guard);
        }
        let poll = call_guard.poll(|| handler.as_mut().poll(cx));
        if let Some(requests) = &requests {
            call_guard.holds(requests.queued_bytes());
        }
        if poll.is_pending() {
            call_guard.park(cx.waker());
        }
        poll
    })
    .await;
    match reply {
        Ok(reply) => Ok(PendingReply { reply, requests, call_guard, trailers, protocol }),
        Err(status) => {
            call_guard.end(status.code());
            Err(status)
        }
    }
}

/// The body of the response of a plugin's handler.
pub(super) enum PluginReply {
    Pieces(connectrpc::EncodedStream),
    Whole(Bytes),
}

/// A reply, and the state that its call needs until it ends.
struct PendingReply {
    reply: Reply,
    requests: Option<Requests>,
    call_guard: CallGuard,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
}

impl PendingReply {
    fn one(mut self) -> Result<connectrpc::EncodedResponse, ConnectError> {
        let ReplyParts { metadata, trailers, body } = self.reply.into_parts();
        let ReplyBody::One(message) = body else {
            self.call_guard.end(Code::Internal);
            return Err(refusal(&Status::internal(
                "the handler returned a stream for a method with a single reply",
            )));
        };
        if let Some(status) = self.call_guard.drops(message.len()) {
            self.call_guard.end(status.code());
            return Err(refusal(&status));
        }
        self.call_guard.sent(message.len());
        self.call_guard.end(Code::Ok);
        let mut response = Response::new(message.into_whole().into());
        response.headers = convert::headers(&metadata);
        response.trailers = convert::headers(&trailers);
        Ok(response)
    }

    async fn many(mut self) -> Result<Response<connectrpc::EncodedStream>, ConnectError> {
        let ReplyParts { metadata, trailers, body } = self.reply.into_parts();
        let items = match body {
            ReplyBody::Many(items) => items.into_items(),
            // The kind of an undeclared method is not known before its reply.
            ReplyBody::One(message) => Only::of(message.into_whole(), metadata, trailers),
            ReplyBody::Compressed(_) => {
                self.call_guard.end(Code::Internal);
                return Err(refusal(&Status::internal(
                    "the handler returned one message for a method with streamed replies",
                )));
            }
        };
        Replies::new(items, self.requests, self.call_guard, self.trailers, self.protocol).start().await
    }
}

/// Returns the fallback method for an undeclared path, if there is a fallback. Health never goes to the fallback, and
/// reflection does not if the server has services to describe.
pub(super) fn undeclared(shared: &Arc<HttpState>, path: &str, kind: Kind) -> Option<Found> {
    let table = &shared.table;
    if !table.accepts_undeclared() {
        return None;
    }
    let reflects = path.starts_with("grpc.reflection.") && table.services().is_empty();
    let is_own = !reflects && Standard::of(shared).router().lookup(path).is_some();
    if is_own { None } else { table.undeclared(path, kind) }
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
        let Some(Found { method, .. }) = self.find(path) else {
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
            None => {
                let (this, path) = (self.clone(), path.to_owned());
                Box::pin(async move {
                    let (standard, context) = this.standard(&path, context).await?;
                    standard.call_unary(&path, context, request, format).await
                })
            }
            Some(method) => match request.encoded() {
                Ok(message) => {
                    let call = self.begin(method, &context, format, message.len());
                    self.unary(call, RequestBody::One(message), None)
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
            None => {
                let (this, path) = (self.clone(), path.to_owned());
                Box::pin(async move {
                    let (standard, context) = this.standard(&path, context).await?;
                    standard.call_server_streaming(&path, context, request, format).await
                })
            }
            Some(method) => {
                let call = self.begin(method, &context, format, request.len());
                self.streaming(call, RequestBody::One(request), None)
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
            None => {
                let (this, path) = (self.clone(), path.to_owned());
                Box::pin(async move {
                    let (standard, context) = this.standard(&path, context).await?;
                    standard.call_client_streaming(&path, context, requests, format).await
                })
            }
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
            None => {
                let (this, path) = (self.clone(), path.to_owned());
                Box::pin(async move {
                    let (standard, context) = this.standard(&path, context).await?;
                    standard.call_bidi_streaming(&path, context, requests, format).await
                })
            }
            Some(method) => {
                let (requests, body) = Requests::new(requests);
                self.streaming(self.begin(method, &context, format, 0), body, Some(requests))
            }
        }
    }
}
