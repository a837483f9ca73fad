//! One HTTP connection: the bytes that were sniffed, hyper, and its graceful end.

use super::{
    Standard,
    asked::Asked,
    body::{GRPC_MESSAGE, GRPC_STATUS, Reply},
    convert::MetadataLimits,
    dispatch::{self, Dispatch},
    envelopes::Envelopes,
    flatbuffers,
    holding::{Holding, Pause},
    jsonrpc::{self, JsonRpc},
    pings::Pings,
    received::Received,
    refusal, rest,
    rpcx::{self, Gateway},
    text::Text,
    thrift::{self, Thrift},
    trailers::Trailers,
    websocket::{self, Upgrades},
};
use crate::{
    Kind, Limit, Limits, Peer, driver::Accepted, metrics::Carrier, net::Io, runtime, server::Shared,
};
use ::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, VARY},
};
use bytes::{Buf, Bytes, BytesMut};
use connectrpc::{ConnectRpcBody, ConnectRpcService, DeadlinePolicy, Protocol};
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
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};
use tower_service::Service as _;

/// Most streams that an HTTP/2 peer may have open; peers queue what is above.
const STREAMS_MAX: u64 = 1000;
/// Streams that a peer may open and reset before they are looked at: the answer to rapid resets.
const RESETS_MAX: usize = 200;
/// Flow control of HTTP/2: bytes that may be under way to one stream and to the connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of replies that one HTTP/2 stream may have waiting for its peer.
const SEND_BUFFER: usize = 256 << 10;
/// The least buffer that hyper accepts for HTTP/1.1, and what it gets to read bodies beside a head.
const BUFFER_LEAST: usize = 8 << 10;
const READ_BUFFER: usize = 64 << 10;
/// What a gRPC envelope adds to its message.
pub(super) const ENVELOPE: usize = 5;

/// Serves one connection to its end, which may be that of the WebSocket that it became.
///
/// When the server drains, the peer is told and calls that run may end.
pub(crate) async fn serve(accepted: Accepted) {
    let Accepted { io, input: first, peer, settings, shared, wakes, shard } = accepted;
    let is_http2 = first.starts_with(b"PRI ");
    let drain = shared.drain_http.subscribe();
    let unread_max = if is_http2 { CONNECTION_WINDOW as usize } else { http1_buffer(&settings) };
    let holding = Holding::new(shared.clone(), wakes.clone(), unread_max);
    let front = Front::new(&peer, holding.clone(), &settings, shard);
    let upgrades = front.upgrades.clone();
    let carrier = if is_http2 { Carrier::Http2 } else { Carrier::Http1 };
    let counts = (shared.clone(), shard, carrier);
    let pings = is_http2.then(|| Pings::new(settings.ping_interval_min()));
    let io = TokioIo::new(Prefixed { first, io, counts, pings, holding, pause: None });
    let ended = if is_http2 {
        let connection = http2(&settings).serve_connection(io, front);
        let tell = |connection: Pin<&mut http2::Connection<_, _, _>>| connection.graceful_shutdown();
        until_end(connection, tell, drain, &settings).await
    } else {
        let connection = http1(&settings).serve_connection(io, front).with_upgrades();
        let tell = |connection: Pin<&mut http1::UpgradeableConnection<_, _>>| connection.graceful_shutdown();
        until_end(connection, tell, drain, &settings).await
    };
    if let Some(upgrade) = upgrades.take() {
        return upgrade.run(|io, input| Accepted { io, input, peer, settings, shared, wakes, shard }).await;
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

/// The most that hyper reads ahead on HTTP/1.1.
fn http1_buffer(limits: &Limits) -> usize {
    (limits.get(Limit::MetadataBytesMax) as usize).max(BUFFER_LEAST) + READ_BUFFER
}

fn http2(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // gRPC clients would show it as metadata.
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

/// Runs the connection; once the server drains, or the connection is old, tells it to finish what it has.
async fn until_end<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    tell: fn(Pin<&mut C>),
    mut drain: watch::Receiver<bool>,
    limits: &Limits,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let is_old = {
        let mut drains = pin!(drain.wait_for(|drains| *drains));
        let mut old = limits.connection_age().map(|age| Box::pin(tokio::time::sleep(age)));
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
    tell(connection.as_mut());
    if is_old {
        // What has not ended by then is cut.
        return tokio::time::timeout(limits.drain_timeout(), connection).await.unwrap_or(Ok(()));
    }
    connection.await
}

/// What hyper calls for each request.
struct Front {
    connect: ConnectRpcService<Dispatch>,
    /// The same for gRPC and gRPC-Web, whose errors differ.
    grpc: ConnectRpcService<Dispatch>,
    /// Both for methods that no service declares, where they are taken.
    others: Option<Box<Others>>,
    rest: rest::Caller,
    shared: Arc<Shared>,
    jsonrpc: JsonRpc,
    rpcx: Gateway,
    thrift: Thrift,
    upgrades: Upgrades,
    metadata: MetadataLimits,
    /// For how long nothing may come of a body on HTTP/1.1.
    silence_max: Duration,
    holding: Arc<Holding>,
}

/// Those for methods of which a server knows no more than what its caller tells.
struct Others {
    /// One message goes either way, which the content type of Connect says.
    connect: ConnectRpcService<Dispatch>,
    /// Messages may stream.
    streams: ConnectRpcService<Dispatch>,
    grpc: ConnectRpcService<Dispatch>,
}

pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

/// The limits of `connectrpc` for request messages of so many bytes.
pub(super) fn message_limits(bytes: usize) -> connectrpc::Limits {
    connectrpc::Limits::default()
        .with_max_message_size(bytes)
        .with_max_request_body_size(bytes.saturating_add(ENVELOPE))
}

impl Front {
    fn new(peer: &Peer, holding: Arc<Holding>, limits: &Limits, shard: usize) -> Front {
        let shared = holding.shared().clone();
        let message = limits.get(Limit::MessageBytesMax) as usize;
        let standard = Standard::of(&shared).clone();
        let dispatch = Arc::new(Dispatch::new(peer, &holding, limits, shard));
        let rest = rest::Caller::new(shared.clone(), dispatch.clone(), message as u32);
        let service = |dispatch| {
            ConnectRpcService::from_arc(dispatch)
                .with_compression(standard.compression())
                .with_deadline_policy(DeadlinePolicy::new().with_enforce_on_streams(true))
                .with_limits(message_limits(message))
        };
        let others = shared.table.takes_others().then(|| {
            let streams = service(Arc::new(dispatch.learning(Kind::Bidi)));
            Box::new(Others {
                connect: service(Arc::new(dispatch.learning(Kind::Unary))),
                grpc: streams.clone().with_compression(standard.grpc_compression()),
                streams,
            })
        });
        let connect = service(dispatch);
        Front {
            grpc: connect.clone().with_compression(standard.grpc_compression()),
            connect,
            others,
            rest,
            jsonrpc: JsonRpc::new(peer, &holding, limits, shard),
            rpcx: Gateway::new(peer, &holding, limits, shard),
            thrift: Thrift::new(peer, &holding, limits, shard),
            upgrades: Upgrades::default(),
            metadata: MetadataLimits::new(limits),
            silence_max: limits.idle_timeout(),
            holding,
            shared,
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = Counted;

    fn call(&self, request: Request<Incoming>) -> Counted {
        let request = request.map(|body| Received::new(body, &self.holding));
        let answer = match &self.shared.cors {
            None => self.answer(request),
            Some(cors) => cors.around(request, |request| self.answer(request)),
        };
        Counted { answer, holding: Some(self.holding.clone()) }
    }
}

/// An answer whose body counts as held until it is sent.
struct Counted {
    answer: Answer,
    /// Until it is ready.
    holding: Option<Arc<Holding>>,
}

impl Future for Counted {
    type Output = Result<Response<Reply>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(mut response) = ready!(self.answer.as_mut().poll(cx));
        if let Some(holding) = self.holding.take() {
            response.body_mut().count_for(holding);
        }
        Poll::Ready(Ok(response))
    }
}

impl Front {
    fn answer(&self, mut request: Request<Received>) -> Answer {
        if websocket::is_upgrade(&request) {
            let answer = self.upgrades.answer(request, &self.shared.websockets, &self.metadata);
            return Box::pin(std::future::ready(Ok(answer)));
        }
        if let Some(page) = self.shared.pages.answer(&request) {
            return Box::pin(std::future::ready(Ok(page)));
        }
        if rpcx::is_gateway(&request) {
            let answer = self.rpcx.clone().answer(request);
            return Box::pin(async move { Ok(answer.await) });
        }
        if thrift::is_thrift(&request) {
            let answer = self.thrift.clone().answer(request);
            return Box::pin(async move { Ok(answer.await) });
        }
        if jsonrpc::is_jsonrpc(&request) {
            let answer = self.jsonrpc.clone().answer(request);
            return Box::pin(async move { Ok(answer.await) });
        }
        lower_content_type(request.headers_mut());
        let mut request = match self.rest.call(request) {
            Ok(answer) => return answer,
            Err(request) => request,
        };
        if request.version() < Version::HTTP_2 && is_grpc(request.headers()) {
            return Box::pin(std::future::ready(Ok(grpc_needs_http2())));
        }
        // Clients may insist on the type of content that they sent, with or without a subtype.
        let kind = request.headers().get(CONTENT_TYPE).filter(|kind| is_without_subtype(kind)).cloned();
        let text = Text::take(request.headers_mut());
        let kind = kind.filter(|_| text.request == text.reply).or_else(|| flatbuffers::take(&mut request));
        let path = request.uri().path();
        let path = path.strip_prefix('/').unwrap_or(path);
        let silence = (request.version() < Version::HTTP_2).then_some(self.silence_max);
        let table = &self.shared.table;
        let declared = table.find_called(path);
        let kind_told = match (&self.others, declared) {
            (Some(_), None) => kind_told(&request),
            _ => None,
        };
        let method = declared.or_else(|| dispatch::learn(&self.shared, path, kind_told?));
        if let Some(refused) =
            refusal::refuse(&self.shared, method, request.method(), path, request.headers())
        {
            let reply = finished(refused, None, text, kind);
            return Box::pin(async move {
                if request.version() < Version::HTTP_2 {
                    refusal::drain(Asked::new(request.into_body(), Text::default(), silence)).await;
                }
                Ok(reply)
            });
        }
        let replies_stream =
            method.is_some_and(|method| matches!(table.info(method).kind, Kind::Bidi | Kind::ServerStream));
        let trailers = replies_stream.then(Arc::<Trailers>::default);
        if let Some(trailers) = &trailers {
            request.extensions_mut().insert(trailers.clone());
        }
        let envelopes = Envelopes::of(request.headers());
        let is_grpc = envelopes.as_ref().is_some_and(|envelopes| envelopes.is_grpc);
        let uploads =
            method.is_some_and(|method| matches!(table.info(method).kind, Kind::Bidi | Kind::ClientStream));
        let (number, holding) = (request.body().number(), self.holding.clone());
        let sent_as = request.headers().get(CONTENT_TYPE).cloned();
        let asked = request.map(|body| Asked::new(body, text, silence).checked(envelopes, uploads));
        let service = match (&self.others, method.filter(|_| declared.is_none())) {
            (Some(others), Some(_)) if is_grpc => &others.grpc,
            (Some(others), Some(_)) if kind_told == Some(Kind::Unary) => &others.connect,
            (Some(others), Some(_)) => &others.streams,
            _ if is_grpc => &self.grpc,
            _ => &self.connect,
        };
        let is_get = asked.method() == Method::GET;
        let answer = service.clone().call(asked);
        Box::pin(async move {
            let Ok(mut response) = answer.await;
            if let Some(status) = holding.was_cut(number) {
                let headers = sent_as.map(|kind| (CONTENT_TYPE, kind)).into_iter().collect();
                response = refusal::answer(&status, None, &headers);
            }
            if is_get {
                // Caches keep what is asked with GET, and other callers may not read the coding of this one.
                response.headers_mut().append(VARY, ACCEPT_ENCODING.into());
            }
            Ok(finished(response, trailers, text, kind))
        })
    }
}

/// What a request of which nobody knows the method tells of its kind; none if it is no call.
fn kind_told(request: &Request<Received>) -> Option<Kind> {
    let detected = Protocol::detect(request.headers()).filter(|_| request.method() == Method::POST)?;
    let is_whole = detected.protocol == Protocol::Connect && !detected.is_streaming;
    Some(if is_whole { Kind::Unary } else { Kind::Bidi })
}

/// The response as it goes out; `kind` is the type of content that the caller asked for, if `connectrpc` answers with
/// another subtype.
fn finished(
    mut response: Response<ConnectRpcBody>,
    trailers: Option<Arc<Trailers>>,
    text: Text,
    kind: Option<HeaderValue>,
) -> Response<Reply> {
    // connectrpc sends the status in the head and again in the trailers; clients that believe the head lose the
    // metadata of the trailers.
    if is_grpc(response.headers()) {
        response.headers_mut().remove(GRPC_STATUS);
        response.headers_mut().remove(GRPC_MESSAGE);
    }
    text.mark(response.headers_mut());
    if let Some(kind) = kind
        && let Some(family) = kind.as_bytes().split(|byte| *byte == b'+').next()
        && response.headers().get(CONTENT_TYPE).is_some_and(|own| own.as_bytes().starts_with(family))
    {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    Reply::of(response, trailers, text.reply)
}

/// Types of content are the same in any case; `connectrpc` knows them in lower case.
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

/// gRPC proper; gRPC-Web lives on HTTP/1.1 as well.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    kind.starts_with(b"application/grpc") && !kind.starts_with(b"application/grpc-web")
}

fn grpc_needs_http2() -> Response<Reply> {
    let text = "gRPC needs HTTP/2; gRPC-Web and Connect work over HTTP/1.1\n";
    respond(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text)
}

/// A whole response.
pub(super) fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::whole(body.into()));
    *response.status_mut() = status;
    response
}

/// A stream of bytes that first gives back what was read of it to find out its protocol.
pub(super) struct Prefixed {
    pub(super) first: BytesMut,
    pub(super) io: Box<dyn Io>,
    /// Where its bytes are counted.
    counts: (Arc<Shared>, usize, Carrier),
    /// Of HTTP/2.
    pings: Option<Box<Pings>>,
    holding: Arc<Holding>,
    /// While it is not read for want of room.
    pause: Pause,
}

impl Prefixed {
    fn count_sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let (shared, shard, carrier) = &self.counts;
        if let Poll::Ready(Ok(bytes)) = &written {
            shared.metrics.sent(*shard, *carrier, *bytes);
        }
        written
    }

    fn took(&mut self, bytes: &[u8], now: Instant) {
        let (shared, shard, carrier) = &self.counts;
        shared.metrics.received(*shard, *carrier, bytes.len());
        let of_bodies = match &mut self.pings {
            Some(pings) => pings.received(bytes, now),
            // Heads are among them, which count no more once a body ends.
            None => bytes.len(),
        };
        self.holding.came(of_bodies);
    }

    /// Writes what has to go before the connection ends for its pings, and then its end.
    fn poll_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(pings) = &mut self.pings else { return Poll::Ready(Ok(0)) };
        let rest = pings.before_end(bytes.len());
        if rest == 0 {
            return pings.poll_end(&mut self.io, cx).map(Err);
        }
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, &bytes[..rest]))?;
        pings.sent(&bytes[..written]);
        // Nobody may have more to write: the end itself is written when this is polled again.
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
            // No more is read, so that there is an end to what is answered.
            return self.poll_last(cx, &[]).map_ok(drop);
        }
        let this = &mut *self;
        ready!(this.holding.poll_read(cx, &mut this.pause))?;
        let before = into.filled().len();
        if self.first.is_empty() {
            ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
            if into.filled().len() > before {
                let now = crate::clock::now();
                runtime::traffic(now);
                self.took(&into.filled()[before..], now);
            }
        } else {
            let count = self.first.len().min(into.remaining());
            into.put_slice(&self.first[..count]);
            self.first.advance(count);
            self.took(&into.filled()[before..], crate::clock::now());
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
