//! One HTTP connection: the bytes read to detect the protocol, hyper, and graceful shutdown.

use super::{
    Standard,
    body::Reply,
    connection_memory::{ConnectionMemory, Pause},
    convert::MetadataLimits,
    cross_site,
    decoded_body::DecodedBody,
    dispatch::{self, CallStarted, Dispatch},
    envelopes::Envelopes,
    field_values, flatbuffers, hosts,
    jsonrpc::{self, JsonRpc},
    metered_body::MeteredBody,
    pings::Pings,
    refusal,
    rest::{self, Failure},
    rpcx::{self, Gateway},
    thrift::{self, Thrift},
    trailers::Trailers,
    turn::Turn,
    unchecked_request::UncheckedRequest,
    websocket::{self, Upgrades},
};
use crate::http::HttpState;
use ::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ACCEPT_ENCODING, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, ORIGIN, VARY, WWW_AUTHENTICATE},
};
use bytes::{Buf, Bytes, BytesMut};
use connectrpc::{ConnectRpcBody, ConnectRpcService, DeadlinePolicy, Dispatcher as _, Protocol};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use switchboard_core::{Limit, Limits, Peer, clock, layer::BoxFuture, metrics::ConnectionProtocol, runtime};
use switchboard_driver::{driver::Accepted, serving::Drain};
use switchboard_guard::guard::admit_wire;
use switchboard_net::{connection::Aging, http_fields::grpc_web_text::Text, net::Io};
use switchboard_wire::{Code, Kind, WireId, WireSet};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};
use tower_service::Service as _;

/// Most streams that an HTTP/2 peer may have open; peers queue the calls above this limit.
const STREAMS_MAX: u64 = 1000;
/// Streams that a peer may open and reset before the server accepts them: the defence against rapid resets.
const RESETS_MAX: usize = 200;
/// Flow control of HTTP/2: bytes that may be in flight to one stream and to the connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of replies that one HTTP/2 stream may buffer for its peer.
const SEND_BUFFER: usize = 256 << 10;
/// The smallest buffer that hyper accepts for HTTP/1.1; also what it gets for reading bodies besides a head.
const BUFFER_LEAST: usize = 8 << 10;
const READ_BUFFER: usize = 64 << 10;
/// Bytes that a gRPC envelope adds to its message.
pub(super) const ENVELOPE: usize = 5;

/// Serves one connection to its end. If the connection is upgraded to a WebSocket, that is the end of the WebSocket.
///
/// When the server drains, the peer is notified and running calls may complete.
///
/// The future is boxed, so that this crate has its code.
pub fn serve(accepted: Accepted, shared: Arc<HttpState>) -> BoxFuture<'static, ()> {
    Box::pin(run(accepted, shared))
}

async fn run(accepted: Accepted, shared: Arc<HttpState>) {
    let Accepted { io, input: first, peer, settings, shared: server, wakes, shard } = accepted;
    let is_http2 = first.starts_with(b"PRI ");
    let drain = shared.drain_http.subscribe();
    let old = settings.connection_age().map(|age| clock::after(clock::now(), age));
    let unread_max = if is_http2 { CONNECTION_WINDOW as usize } else { http1_buffer(&settings) };
    let connection_memory = ConnectionMemory::new(shared.clone(), wakes.clone(), unread_max);
    let front = RequestRouter::new(&peer, connection_memory.clone(), &settings, shard);
    let upgrades = front.upgrades.clone();
    let protocol = if is_http2 { ConnectionProtocol::HTTP2 } else { ConnectionProtocol::HTTP1 };
    let counts = (shared.clone(), shard, protocol);
    let pings = is_http2.then(|| Pings::new(settings.ping_interval_min()));
    let served = connection_memory.clone();
    let turn = Turn::new(settings.connection_turn_max());
    let io = TokioIo::new(Prefixed { first, io, counts, pings, connection_memory, pause: None, turn });
    let ended = if is_http2 {
        let connection = http2(&settings).serve_connection(io, front);
        let shut_down = |connection: Pin<&mut http2::Connection<_, _, _>>| connection.graceful_shutdown();
        until_end(connection, shut_down, drain, (old, &settings), &served, || false).await
    } else {
        let connection = http1(&settings).serve_connection(io, front).with_upgrades();
        let shut_down =
            |connection: Pin<&mut http1::UpgradeableConnection<_, _>>| connection.graceful_shutdown();
        // No request has begun: the buffer is empty or has an incomplete head.
        let is_unused = || !served.has_requests();
        until_end(connection, shut_down, drain, (old, &settings), &served, is_unused).await
    };
    if let Some(upgrade) = upgrades.take() {
        let aging = old.map(|end| Aging { end, grace: settings.drain_timeout(), wakes: wakes.clone() });
        let run =
            upgrade.run(|io, input| Accepted { io, input, peer, settings, shared: server, wakes, shard });
        return match aging {
            None => run.await,
            Some(aging) => Box::pin(aging.until_old(run)).await,
        };
    }
    if let Err(error) = ended {
        if error.is_parse() {
            shared.metrics.protocol_errors.fetch_add(1, Ordering::Relaxed);
        }
        tracing::debug!(peer = %peer.address, "http connection ended: {error}");
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // hyper counts the wait for the next request as part of reading its head.
        .header_read_timeout(limits.idle_timeout())
        .max_header_size(limits.get(Limit::MetadataBytesMax) as usize)
        .max_buf_size(http1_buffer(limits));
    builder
}

/// Most bytes that hyper reads ahead on HTTP/1.1.
fn http1_buffer(limits: &Limits) -> usize {
    (limits.get(Limit::MetadataBytesMax) as usize).max(BUFFER_LEAST) + READ_BUFFER
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // gRPC clients would report the date header as metadata.
        .auto_date_header(false)
        .keep_alive_interval(limits.idle_timeout())
        .keep_alive_timeout(limits.keepalive_timeout())
        .max_header_list_size(limits.get(Limit::MetadataBytesMax) as u32)
        .max_concurrent_streams(limits.get(Limit::CallsMax).min(STREAMS_MAX) as u32)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// Runs the connection. When the server drains, or the connection reaches its maximum age, starts a graceful shutdown.
/// A connection that is unused when the server drains is closed, and incomplete bodies are refused when the remaining
/// calls are aborted.
async fn until_end<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    shut_down: fn(Pin<&mut C>),
    mut drain: watch::Receiver<Drain>,
    (old, limits): (Option<Instant>, &Limits),
    connection_memory: &ConnectionMemory,
    is_unused: impl Fn() -> bool,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let is_old = {
        let mut drains = pin!(drain.wait_for(|drain| *drain != Drain::Open));
        let mut old = old.map(|old| Box::pin(tokio::time::sleep_until(old.into())));
        let first = std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Err(ended));
            }
            if old.as_mut().is_some_and(|old| old.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Ok(true));
            }
            drains.as_mut().poll(cx).map(|_| Ok(false))
        });
        match first.await {
            Ok(is_old) => is_old,
            Err(ended) => return ended,
        }
    };
    shut_down(connection.as_mut());
    if !is_old && is_unused() {
        return Ok(());
    }
    let mut ending = pin!(drain.wait_for(|drain| *drain == Drain::Ending));
    let mut has_ended = false;
    let last = std::future::poll_fn(|cx| {
        if !has_ended && ending.as_mut().poll(cx).is_ready() {
            has_ended = true;
            connection_memory.end_bodies();
        }
        connection.as_mut().poll(cx)
    });
    if is_old {
        // Calls that have not ended by then are aborted.
        return tokio::time::timeout(limits.drain_timeout(), last).await.unwrap_or(Ok(()));
    }
    last.await
}

/// The service that hyper calls for each request.
struct RequestRouter {
    connect: ConnectRpcService<Dispatch>,
    /// The service for gRPC and gRPC-Web, whose errors differ.
    grpc: ConnectRpcService<Dispatch>,
    /// The services for methods that no service declares, if there is a fallback for them.
    undeclared: Option<Box<UndeclaredServices>>,
    rest: rest::Caller,
    dispatch: Arc<Dispatch>,
    shared: Arc<HttpState>,
    jsonrpc: JsonRpc,
    rpcx: Gateway,
    thrift: Thrift,
    upgrades: Upgrades,
    /// Wires that the listener has enabled.
    wires: WireSet,
    source: hosts::Source,
    metadata: MetadataLimits,
    /// Longest time without data of a body on HTTP/1.1.
    silence_max: Duration,
    connection_memory: Arc<ConnectionMemory>,
}

/// The services for undeclared methods, whose kind the server knows only from the request.
struct UndeclaredServices {
    /// For unary calls: the content type of Connect says that one message goes each way.
    connect: ConnectRpcService<Dispatch>,
    /// For calls whose messages may stream.
    streams: ConnectRpcService<Dispatch>,
    grpc: ConnectRpcService<Dispatch>,
}

pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

/// The limits of `connectrpc` for request messages of at most `bytes` bytes.
pub(super) fn message_limits(bytes: usize) -> connectrpc::Limits {
    connectrpc::Limits::default()
        .with_max_message_size(bytes)
        .with_max_request_body_size(bytes.saturating_add(ENVELOPE))
}

impl RequestRouter {
    fn new(
        peer: &Peer,
        connection_memory: Arc<ConnectionMemory>,
        limits: &Limits,
        shard: usize,
    ) -> RequestRouter {
        let shared = connection_memory.shared().clone();
        let message = limits.get(Limit::MessageBytesMax) as usize;
        let standard = Standard::of(&shared).clone();
        let dispatch = Arc::new(Dispatch::new(peer, &connection_memory, limits, shard));
        let rest = rest::Caller::new(shared.clone(), dispatch.clone(), message as u32);
        let service = |dispatch| {
            ConnectRpcService::from_arc(dispatch)
                .with_compression(standard.compression())
                .with_deadline_policy(DeadlinePolicy::new().with_enforce_on_streams(true))
                .with_limits(message_limits(message))
        };
        let undeclared = shared.table.accepts_undeclared().then(|| {
            let streams = service(Arc::new(dispatch.with_undeclared(Kind::Bidi)));
            Box::new(UndeclaredServices {
                connect: service(Arc::new(dispatch.with_undeclared(Kind::Unary))),
                grpc: streams.clone().with_compression(standard.grpc_compression()),
                streams,
            })
        });
        let connect = service(dispatch.clone());
        RequestRouter {
            grpc: connect.clone().with_compression(standard.grpc_compression()),
            connect,
            undeclared,
            rest,
            dispatch,
            jsonrpc: JsonRpc::new(peer, &connection_memory, limits, shard),
            rpcx: Gateway::new(peer, &connection_memory, limits, shard),
            thrift: Thrift::new(peer, &connection_memory, limits, shard),
            upgrades: Upgrades::default(),
            wires: peer.wires,
            source: hosts::Source::of(peer),
            metadata: MetadataLimits::new(limits),
            silence_max: limits.idle_timeout(),
            connection_memory,
            shared,
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for RequestRouter {
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = MeteredResponse;

    fn call(&self, request: Request<Incoming>) -> MeteredResponse {
        self.connection_memory.begin_request();
        let request = request.map(|body| MeteredBody::new(body, &self.connection_memory));
        let response =
            match (self.shared.config.hosts.refuse(&request, self.source), &self.shared.config.cors) {
                (Some(failure), _) => self.refused(failure, &request),
                (None, None) => self.route(request),
                (None, Some(cors)) => cors.around(request, |request| self.route(request)),
            };
        MeteredResponse { response, connection_memory: Some(self.connection_memory.clone()) }
    }
}

/// A response whose body counts as held until it is sent.
struct MeteredResponse {
    response: ResponseFuture,
    /// Set until the response is ready.
    connection_memory: Option<Arc<ConnectionMemory>>,
}

impl Future for MeteredResponse {
    type Output = Result<Response<Reply>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(mut response) = ready!(self.response.as_mut().poll(cx));
        field_values::trim(response.headers_mut());
        if let Some(connection_memory) = self.connection_memory.take() {
            if response.status() == StatusCode::UNAUTHORIZED
                && !response.headers().contains_key(WWW_AUTHENTICATE)
            {
                for challenge in &connection_memory.shared().guarding.accepted.challenges {
                    response.headers_mut().append(WWW_AUTHENTICATE, challenge.clone());
                }
            }
            response.body_mut().count_for(connection_memory);
        }
        Poll::Ready(Ok(response))
    }
}

impl RequestRouter {
    /// Responds to a request that is refused before it is routed, in the protocol of its path.
    fn refused(&self, failure: Failure, request: &Request<MeteredBody>) -> ResponseFuture {
        if jsonrpc::is_jsonrpc(request) {
            return Box::pin(std::future::ready(Ok(jsonrpc::failed(failure))));
        }
        self.rest.refused(failure, request.uri())
    }

    fn route(&self, request: Request<MeteredBody>) -> ResponseFuture {
        if request.method() == Method::OPTIONS
            && request.headers().contains_key(ORIGIN)
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        {
            let text = "pages of other origins may not call this server: allow their origin (Server::cors)\n";
            return Box::pin(std::future::ready(Ok(respond(StatusCode::FORBIDDEN, text))));
        }
        // This check is first, so that it applies to every protocol.
        if let Some(failure) = cross_site::refuse(&request, self.shared.config.cors.as_deref()) {
            return self.refused(failure, &request);
        }
        if websocket::is_upgrade(&request) {
            let response = self.upgrades.respond(request, &self.shared, &self.metadata, self.wires);
            return Box::pin(std::future::ready(Ok(response)));
        }
        if let Some(page) = self.shared.config.pages.respond(&request) {
            return Box::pin(std::future::ready(Ok(page)));
        }
        match self.route_gateways(request) {
            Ok(response) => response,
            Err(request) => self.route_rpc(request),
        }
    }

    /// Responds to a request of rpcx, Thrift, JSON-RPC or HTTP/JSON, or returns it if it is none of these.
    #[expect(clippy::result_large_err, reason = "a request of another dialect is no error")]
    fn route_gateways(
        &self,
        mut request: Request<MeteredBody>,
    ) -> Result<ResponseFuture, Request<MeteredBody>> {
        if rpcx::is_gateway(&request) {
            if let Some(disabled) = disabled(self.wires, WireId::RPCX) {
                return Ok(Box::pin(std::future::ready(Ok(disabled))));
            }
            let response = self.rpcx.clone().respond(request);
            return Ok(Box::pin(async move { Ok(response.await) }));
        }
        if thrift::is_thrift(&request) {
            if let Some(disabled) = disabled(self.wires, WireId::THRIFT) {
                return Ok(Box::pin(std::future::ready(Ok(disabled))));
            }
            let response = self.thrift.clone().respond(request);
            return Ok(Box::pin(async move { Ok(response.await) }));
        }
        if jsonrpc::is_jsonrpc(&request) {
            let response = self.jsonrpc.clone().respond(request);
            return Ok(Box::pin(async move { Ok(response.await) }));
        }
        lower_content_type(request.headers_mut());
        self.rest.call(request)
    }

    /// Responds to a request of gRPC, gRPC-Web or Connect.
    fn route_rpc(&self, mut request: Request<MeteredBody>) -> ResponseFuture {
        if request.version() < Version::HTTP_2 && is_grpc(request.headers()) {
            return Box::pin(std::future::ready(Ok(grpc_needs_http2())));
        }
        // Clients may require the content type that they sent, with or without a subtype.
        let kind = request.headers().get(CONTENT_TYPE).filter(|kind| is_without_subtype(kind)).cloned();
        let text = Text::take(request.headers_mut());
        let kind = kind.filter(|_| text.request == text.reply).or_else(|| flatbuffers::take(&mut request));
        let path = request.uri().path();
        let path = path.strip_prefix('/').unwrap_or(path);
        let silence = (request.version() < Version::HTTP_2).then_some(self.silence_max);
        let table = &self.shared.table;
        let declared = table.find_called(path);
        let kind_from_request = match (&self.undeclared, declared) {
            (Some(_), None) => kind_of_request(&request),
            _ => None,
        };
        let undeclared = || dispatch::undeclared(&self.shared, path, kind_from_request?);
        let method = declared.or_else(|| undeclared().map(|found| found.method));
        let is_rest = request.method() != Method::POST && !rest::is_of_other_dialect(&request);
        let is_standard = declared.is_none() && Standard::of(&self.shared).router().lookup(path).is_some();
        // Callers without credentials get the same response whether the method exists or not.
        let unchecked = CallStarted::of(table).filter(|_| !is_standard).map(|started| UncheckedRequest {
            started,
            dispatch: self.dispatch.clone(),
            method: declared,
            path: path.to_owned(),
            headers: request.headers().clone(),
            is_rest,
        });
        if let Some(refused) =
            refusal::refuse(&self.shared, method, request.method(), path, request.headers())
        {
            let names = method.is_none() && !is_standard && !self.shared.guarding.is_open();
            let unknown = names.then(|| (self.dispatch.clone(), path.to_owned()));
            let finish = move |response| finished(response, None, text, kind);
            return Box::pin(refuse_call(request, refused, unchecked, unknown, silence, finish));
        }
        if let Some(unchecked) = &unchecked {
            request.extensions_mut().insert(unchecked.started.clone());
        }
        let call = RpcCall {
            kind: method.map(|method| table.info(method).kind),
            undeclared: kind_from_request.filter(|_| method.is_some()),
            unchecked,
            text,
            content_type: kind,
            silence,
        };
        self.call_rpc(request, call)
    }

    /// Calls the method of a request that was not refused, and completes the response.
    fn call_rpc(&self, mut request: Request<MeteredBody>, call: RpcCall) -> ResponseFuture {
        let RpcCall { kind, undeclared, unchecked, text, content_type, silence } = call;
        let replies_stream = matches!(kind, Some(Kind::Bidi | Kind::ServerStream));
        let trailers = replies_stream.then(Arc::<Trailers>::default);
        if let Some(trailers) = &trailers {
            request.extensions_mut().insert(trailers.clone());
        }
        let envelopes = Envelopes::of(request.headers());
        let is_grpc = envelopes.as_ref().is_some_and(|envelopes| envelopes.is_grpc);
        let uploads = matches!(kind, Some(Kind::Bidi | Kind::ClientStream));
        let (number, connection_memory) = (request.body().number(), self.connection_memory.clone());
        let sent_as = request.headers().get(CONTENT_TYPE).cloned();
        let request = request.map(|body| DecodedBody::new(body, text, silence).checked(envelopes, uploads));
        let service = match (&self.undeclared, undeclared) {
            (Some(services), Some(_)) if is_grpc => &services.grpc,
            (Some(services), Some(Kind::Unary)) => &services.connect,
            (Some(services), Some(_)) => &services.streams,
            _ if is_grpc => &self.grpc,
            _ => &self.connect,
        };
        let is_get = request.method() == Method::GET;
        let response = service.clone().call(request);
        Box::pin(async move {
            let Ok(mut response) = response.await;
            if let Some(status) = connection_memory.take_abort(number) {
                let headers = sent_as.map(|kind| (CONTENT_TYPE, kind)).into_iter().collect();
                response = refusal::response(&status, None, &headers);
            }
            if let Some(unchecked) = unchecked.filter(|unchecked| !unchecked.started.is_set())
                && let Some(denied) = unchecked.denied().await
            {
                return Ok(denied.response(|response| finished(response, None, text, content_type)));
            }
            if is_get {
                // Caches store responses to GET, and other callers may not support the coding of this one.
                response.headers_mut().append(VARY, ACCEPT_ENCODING.into());
            }
            Ok(finished(response, trailers, text, content_type))
        })
    }
}

/// A request of gRPC, gRPC-Web or Connect that was not refused.
struct RpcCall {
    /// The kind of its method, if there is one.
    kind: Option<Kind>,
    /// The kind that the request indicates, if no service declares its method and the fallback serves it.
    undeclared: Option<Kind>,
    unchecked: Option<UncheckedRequest>,
    text: Text,
    /// The content type that the caller requires.
    content_type: Option<HeaderValue>,
    /// Longest time without data of the body.
    silence: Option<Duration>,
}

/// Responds to a call that its method does not accept. `unknown` has the path of a method that is not found: the status
/// lists the methods that the caller may call.
async fn refuse_call(
    request: Request<MeteredBody>,
    refused: Response<ConnectRpcBody>,
    unchecked: Option<UncheckedRequest>,
    unknown: Option<(Arc<Dispatch>, String)>,
    silence: Option<Duration>,
    finish: impl FnOnce(Response<ConnectRpcBody>) -> Response<Reply>,
) -> Result<Response<Reply>, Infallible> {
    let denied = match unchecked {
        Some(unchecked) => unchecked.denied().await,
        None => None,
    };
    let reply = match (denied, unknown) {
        (Some(denied), _) => denied.response(finish),
        (None, Some((dispatch, path))) => {
            let status = dispatch.unknown(request.headers(), &path).await;
            let is_unknown = status.code() == Code::Unimplemented;
            let http = is_unknown.then_some(StatusCode::NOT_FOUND);
            finish(refusal::response(&status, http, request.headers()))
        }
        (None, None) => finish(refused),
    };
    if request.version() < Version::HTTP_2 {
        refusal::drain(DecodedBody::new(request.into_body(), Text::default(), silence)).await;
    }
    Ok(reply)
}

/// Returns the response to a request of a wire that the listener has not enabled, or that is not in this build, before
/// its body is read.
pub(super) fn disabled(enabled: WireSet, wire: Option<WireId>) -> Option<Response<Reply>> {
    let text = match wire {
        Some(wire) => admit_wire(enabled, Some(wire)).err()?.message().to_owned(),
        None => format!("the wire of this request is not in this program; enabled: {enabled} (wires)"),
    };
    Some(respond(StatusCode::NOT_IMPLEMENTED, text + "\n"))
}

/// Returns the kind of an undeclared method as the request indicates it; `None` if the request is not a call.
fn kind_of_request(request: &Request<MeteredBody>) -> Option<Kind> {
    let detected = Protocol::detect(request.headers()).filter(|_| request.method() == Method::POST)?;
    let is_whole = detected.protocol == Protocol::Connect && !detected.is_streaming;
    Some(if is_whole { Kind::Unary } else { Kind::Bidi })
}

/// Completes the response; `kind` is the content type that the caller requires if `connectrpc` uses another subtype.
fn finished(
    mut response: Response<ConnectRpcBody>,
    trailers: Option<Arc<Trailers>>,
    text: Text,
    kind: Option<HeaderValue>,
) -> Response<Reply> {
    text.mark(response.headers_mut());
    if let Some(kind) = kind
        && let Some(family) = kind.as_bytes().split(|byte| *byte == b'+').next()
        && response.headers().get(CONTENT_TYPE).is_some_and(|own| own.as_bytes().starts_with(family))
    {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    Reply::of(response, trailers, text.reply)
}

/// Content types are case-insensitive; `connectrpc` recognises them in lower case.
fn lower_content_type(headers: &mut HeaderMap) {
    if let Some(kind) = headers.get_mut(CONTENT_TYPE)
        && kind.as_bytes().iter().any(u8::is_ascii_uppercase)
        && let Ok(lower) = HeaderValue::from_bytes(&kind.as_bytes().to_ascii_lowercase())
    {
        *kind = lower;
    }
}

fn is_without_subtype(kind: &HeaderValue) -> bool {
    matches!(kind.as_bytes(), b"application/grpc" | b"application/grpc-web" | b"application/grpc-web-text")
}

/// Detects gRPC; gRPC-Web, which also works on HTTP/1.1, is excluded.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    kind.starts_with(b"application/grpc") && !kind.starts_with(b"application/grpc-web")
}

fn grpc_needs_http2() -> Response<Reply> {
    let text = "gRPC needs HTTP/2; gRPC-Web and Connect work over HTTP/1.1\n";
    respond(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text)
}

/// Creates a response with a complete body.
pub(super) fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::whole(body.into()));
    *response.status_mut() = status;
    response
}

/// A stream of bytes that first returns the bytes that were read to detect its protocol.
pub(super) struct Prefixed {
    pub(super) first: BytesMut,
    pub(super) io: Box<dyn Io>,
    /// The counters of its bytes.
    counts: (Arc<HttpState>, usize, ConnectionProtocol),
    /// Ping limits of HTTP/2.
    pings: Option<Box<Pings>>,
    connection_memory: Arc<ConnectionMemory>,
    /// Set while the connection is not read for lack of memory.
    pause: Pause,
    /// Ends when other connections of the worker have had their share.
    turn: Turn,
}

impl Prefixed {
    fn count_sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let (shared, shard, protocol) = &self.counts;
        if let Poll::Ready(Ok(bytes)) = &written {
            shared.metrics.sent(*shard, *protocol, *bytes);
        }
        written
    }

    fn took(&mut self, bytes: &[u8], now: Instant) {
        let (shared, shard, protocol) = &self.counts;
        shared.metrics.received(*shard, *protocol, bytes.len());
        let of_bodies = match &mut self.pings {
            Some(pings) => pings.received(bytes, now),
            // Heads are included; they stop counting when a body ends.
            None => bytes.len(),
        };
        self.connection_memory.came(of_bodies);
    }

    /// Writes the rest of a frame before the connection ends for too many pings, and then GOAWAY.
    fn poll_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(pings) = &mut self.pings else { return Poll::Ready(Ok(0)) };
        let rest = pings.before_end(bytes.len());
        if rest == 0 {
            return pings.poll_end(&mut self.io, cx).map(Err);
        }
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, &bytes[..rest]))?;
        pings.sent(&bytes[..written]);
        // There may be no further write: GOAWAY is written when this is polled again.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(written))
    }

    fn is_last(&self) -> bool {
        self.pings.as_ref().is_some_and(|pings| pings.are_too_many())
    }
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_last() {
            // Reading stops, so that the number of pending responses is finite.
            return self.poll_last(cx, &[]).map_ok(drop);
        }
        let this = &mut *self;
        ready!(this.turn.poll(cx));
        ready!(this.connection_memory.poll_read(cx, &mut this.pause))?;
        let before = into.filled().len();
        if self.first.is_empty() {
            let read = Pin::new(&mut self.io).poll_read(cx, into);
            if read.is_pending() {
                self.turn.rest();
            }
            ready!(read)?;
            if into.filled().len() > before {
                let now = switchboard_core::clock::now();
                runtime::traffic(now);
                self.turn.read(now);
                self.took(&into.filled()[before..], now);
            }
        } else {
            let count = self.first.len().min(into.remaining());
            into.put_slice(&self.first[..count]);
            self.first.advance(count);
            self.took(&into.filled()[before..], switchboard_core::clock::now());
            if self.first.is_empty() {
                self.first = BytesMut::new();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_last() {
            return self.poll_last(cx, bytes);
        }
        ready!(self.turn.poll(cx));
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let (Some(pings), Poll::Ready(Ok(written))) = (&mut self.pings, &written) {
            pings.sent(&bytes[..*written]);
        }
        self.count_sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_last() {
            let first = bytes.iter().find(|slice| !slice.is_empty());
            return self.poll_last(cx, first.map_or(&[], |slice| slice));
        }
        ready!(self.turn.poll(cx));
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        if let (Some(pings), Poll::Ready(Ok(written))) = (&mut self.pings, &written) {
            let mut left = *written;
            for slice in bytes {
                let part = left.min(slice.len());
                pings.sent(&slice[..part]);
                left -= part;
            }
        }
        self.count_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
