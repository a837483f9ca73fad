//! The service that hyper calls for each request: it finds the protocol of a request, and the code that responds to it.

use super::{
    HttpState, Standard,
    body::Reply,
    connection_memory::ConnectionMemory,
    convert::MetadataLimits,
    cross_site,
    dispatch::Dispatch,
    envelopes::message_limits,
    field_values, hosts,
    jsonrpc::{self, JsonRpc},
    metered_body::MeteredBody,
    response::{disabled, respond},
    rest::{self, Failure},
    rpc::lower_content_type,
    rpcx::{self, Gateway},
    thrift::{self, Thrift},
    websocket::{self, Upgrades},
};
use ::http::{
    Method, Request, Response, StatusCode,
    header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, WWW_AUTHENTICATE},
};
use connectrpc::{ConnectRpcService, DeadlinePolicy};
use hyper::body::Incoming;
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{Limit, Limits, Peer};
use switchboard_wire::{Kind, WireId, WireSet};

/// The service that hyper calls for each request.
pub(super) struct RequestRouter {
    pub(super) connect: ConnectRpcService<Dispatch>,
    /// The service for gRPC and gRPC-Web, whose errors differ.
    pub(super) grpc: ConnectRpcService<Dispatch>,
    /// The services for methods that no service declares, if there is a fallback for them.
    pub(super) undeclared: Option<Box<UndeclaredServices>>,
    rest: rest::Caller,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) shared: Arc<HttpState>,
    jsonrpc: JsonRpc,
    rpcx: Gateway,
    thrift: Thrift,
    pub(super) upgrades: Upgrades,
    /// Wires that the listener has enabled.
    wires: WireSet,
    source: hosts::Source,
    metadata: MetadataLimits,
    /// Longest time without data of a body on HTTP/1.1.
    pub(super) silence_max: Duration,
    pub(super) connection_memory: Arc<ConnectionMemory>,
}

/// The services for undeclared methods, whose kind the server knows only from the request.
pub(super) struct UndeclaredServices {
    /// For unary calls: the content type of Connect says that one message goes each way.
    pub(super) connect: ConnectRpcService<Dispatch>,
    /// For calls whose messages may stream.
    pub(super) streams: ConnectRpcService<Dispatch>,
    pub(super) grpc: ConnectRpcService<Dispatch>,
}

pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

impl RequestRouter {
    pub(super) fn new(
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
pub(super) struct MeteredResponse {
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
        if let Some(failure) = cross_site::refuse(&request, self.shared.config.cors.as_deref())
            && !self.takes_any_type(&request)
        {
            return self.refused(failure, &request);
        }
        if websocket::is_upgrade(&request) {
            let request = match self.rest.websocket(request) {
                Ok(request) => {
                    return self.upgrades.respond_with_pieces(request, self.connection_memory.clone());
                }
                Err(request) => request,
            };
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

    /// Returns whether the path of a plugin accepts a request that no browser marks as that of a page.
    fn takes_any_type<B>(&self, request: &Request<B>) -> bool {
        let routes = self.shared.config.rest.plugin_routes();
        let mut own = routes.iter().filter(|route| route.takes_any_type);
        own.any(|route| route.verb == request.method().as_str() && route.path == request.uri().path())
            && !cross_site::comes_from_page(request.headers())
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
}
