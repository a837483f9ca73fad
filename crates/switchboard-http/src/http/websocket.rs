//! WebSocket handshakes, and the protocol of the connection after them: by its sub-protocol the native wire (`swb.1`)
//! or JSON-RPC (`jsonrpc`, or no sub-protocol that the server supports); by those of a plugin its wire; without one, by
//! its path, rpcx.

mod pieces;

use super::{
    body::Reply,
    connection_memory::ConnectionMemory,
    convert::{self, MetadataLimits},
    hosts::Hosts,
    metered_body::MeteredBody,
    plugin_route::PluginRequest,
    response::{disabled, respond},
    rest::{Style, query},
    router::ResponseFuture,
    socket::Prefixed,
};
use crate::http::HttpState;
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{
        CONNECTION, HOST, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
        SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use bytes::{Bytes, BytesMut};
use connectrpc::EncodedStream;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pieces::PieceSender;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};
use switchboard_core::{Limit, metrics::ConnectionProtocol};
use switchboard_driver::driver::{Accepted, DynConnection, DynWire, NativeConnection};
use switchboard_net::{
    net::{JSONRPC_PROTOCOL, WEBSOCKET_PROTOCOL, WebSocketIo},
    plugin::{PluginConnection, RouteHead, WebSocketMessages, WebSocketRefusal},
};
use switchboard_wire::{
    Metadata, WireId, WireSet, jsonrpc, rpcx,
    spec::ServerSetup,
    websocket::{self, Deflate},
};
use tokio::sync::oneshot;

/// Bytes of a translated message beside its content, at most.
const FRAMING_BYTES: u64 = 64;

/// An accepted handshake, from the request to the end of the HTTP connection.
#[derive(Clone, Default)]
pub(super) struct Upgrades(Arc<Mutex<Option<Upgrade>>>);

pub(super) struct Upgrade {
    on: OnUpgrade,
    deflate: Option<Deflate>,
    content: Content,
}

/// Source of the messages of a WebSocket.
enum Content {
    /// Messages of a wire of a plugin, which translates them, with the metadata of the handshake.
    Messages(WireId, WebSocketMessages, Metadata),
    /// Messages of a wire, with the metadata of the handshake.
    Wire(Option<WireId>, Metadata),
    /// The pieces that a plugin sends.
    Pieces(EncodedStream, Arc<ConnectionMemory>),
}

/// Options of WebSockets on a server.
#[derive(Debug, Default)]
pub struct Options {
    /// Origins besides the server's own whose pages may connect, `*` for all.
    pub origins: Vec<String>,
    /// Messages may be compressed.
    pub deflate: bool,
}

/// Returns whether a request is a WebSocket handshake.
pub(super) fn is_upgrade<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11 && has_token(request.headers(), &UPGRADE, "websocket")
}

impl Upgrades {
    /// Responds to a handshake.
    pub(super) fn respond(
        &self,
        mut request: Request<MeteredBody>,
        shared: &HttpState,
        limits: &MetadataLimits,
        enabled: WireSet,
    ) -> Response<Reply> {
        if let Err(refused) = check(request.method(), request.headers(), shared) {
            return refused;
        }
        let headers = request.headers();
        let metadata = match convert::metadata(headers, limits) {
            Ok(metadata) => metadata,
            Err(status) => return respond(StatusCode::BAD_REQUEST, format!("{}\n", status.message())),
        };
        let offers = |protocol| has_token(headers, &SEC_WEBSOCKET_PROTOCOL, protocol);
        let protocol = [WEBSOCKET_PROTOCOL, JSONRPC_PROTOCOL].into_iter().find(|protocol| offers(protocol));
        let messages = match protocol {
            Some(_) => None,
            None => match messages_of_plugin(&request, shared, enabled) {
                Some(Ok(messages)) => Some(messages),
                Some(Err(refusal)) => {
                    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
                    return respond(status, format!("{}\n", refusal.text));
                }
                None => None,
            },
        };
        let wire = match protocol {
            _ if messages.is_some() => messages.as_ref().map(|(wire, _)| *wire),
            Some(WEBSOCKET_PROTOCOL) => Some(WireId::NATIVE),
            None if request.uri().path() == rpcx::PATH => WireId::RPCX,
            None => of_plugin(request.uri().path(), shared, enabled).or(Some(WireId::JSON_RPC)),
            _ => Some(WireId::JSON_RPC),
        };
        if let Some(disabled) = disabled(enabled, wire) {
            return disabled;
        }
        let (mut response, deflate) = accept(headers, shared);
        let subprotocol = messages.as_ref().map(|(_, messages)| messages.subprotocol);
        let of_wire = || {
            let known = wire.map_or(&[][..], |wire| wire.spec().websocket_protocols);
            known.iter().copied().find(|protocol| offers(protocol))
        };
        let subprotocol = subprotocol.filter(|name| !name.is_empty()).or_else(of_wire);
        if let Some(protocol) = protocol.or(subprotocol) {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        let content = match messages {
            Some((wire, messages)) => Content::Messages(wire, messages, metadata),
            None => Content::Wire(wire, metadata),
        };
        self.set(Upgrade { on: hyper::upgrade::on(&mut request), deflate, content });
        response
    }

    /// Responds to a handshake at a path of a plugin, once its handler has responded.
    pub(super) fn respond_with_pieces(
        &self,
        mut request: PluginRequest,
        memory: Arc<ConnectionMemory>,
    ) -> ResponseFuture {
        if let Err(refused) = check(&request.head.method, &request.head.headers, memory.shared()) {
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let upgrades = self.clone();
        Box::pin(async move {
            let Some(on) = request.head.extensions.remove::<OnUpgrade>() else {
                return Ok(respond(StatusCode::BAD_REQUEST, "this connection cannot become a WebSocket\n"));
            };
            let (response, deflate) = accept(&request.head.headers, memory.shared());
            let pieces = match request.answer().await {
                Ok(answer) => answer.into_pieces(),
                Err(failure) => Err(failure.response(Style::Rest)),
            };
            Ok(match pieces {
                Ok(pieces) => {
                    upgrades.set(Upgrade { on, deflate, content: Content::Pieces(pieces, memory) });
                    response
                }
                Err(refused) => refused,
            })
        })
    }

    fn set(&self, upgrade: Upgrade) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    /// Takes the accepted handshake, if there is one.
    pub(super) fn take(&self) -> Option<Upgrade> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Upgrade {
    /// Runs the connection after the handshake to its end; `accepted` creates the connection state from its bytes.
    pub(super) async fn run(
        self,
        accepted: impl FnOnce(Box<dyn switchboard_net::net::Io>, BytesMut) -> Accepted,
    ) {
        let parts = match self.on.await {
            Ok(upgraded) => match upgraded.downcast::<TokioIo<Prefixed>>() {
                Ok(parts) => parts,
                Err(_) => {
                    return tracing::error!("the type of an upgraded connection differs from the served one");
                }
            },
            Err(error) => return tracing::debug!("closed during the upgrade: {error}"),
        };
        let Prefixed { first, io, .. } = parts.io.into_inner();
        let mut input = BytesMut::from(&parts.read_buf[..]);
        input.extend_from_slice(&first);
        let (mut pieces, mut messages) = (None, None);
        let (wire, metadata) = match self.content {
            Content::Messages(wire, content, metadata) => {
                messages = Some((wire, content));
                (Some(wire), metadata)
            }
            Content::Wire(wire, metadata) => (wire, metadata),
            Content::Pieces(content, memory) => {
                pieces = Some((content, memory));
                (Some(WireId::HTTP_JSON), Metadata::new())
            }
        };
        let accepted = |io, input| {
            let mut accepted = accepted(io, input);
            accepted.peer.wire = wire;
            accepted.shared.speaks(accepted.peer.connection, ConnectionProtocol::WEBSOCKET);
            accepted
        };
        if let Some(pieces) = pieces {
            return Box::pin(PieceSender::new(accepted(io, input), self.deflate, pieces)).await;
        }
        if let Some((wire, messages)) = messages {
            let accepted = accepted(io, BytesMut::new());
            let accepted = translated(accepted, input, self.deflate, messages);
            return hand_over(wire, accepted, metadata).await;
        }
        let pipe = |io, input| Box::new(WebSocketIo::server(io, input, self.deflate));
        match wire {
            Some(WireId::NATIVE) => {
                let accepted = accepted(pipe(io, input), BytesMut::new());
                NativeConnection::new(accepted).inside_websocket().await;
            }
            wire if wire == WireId::RPCX => {
                // Go clients send their messages as text messages.
                let pipe = Box::new(pipe(io, input).of_any_kind());
                let accepted = accepted(pipe, BytesMut::new());
                let Some(server) = wire.and_then(|wire| wire.spec().server) else { return };
                let (limits, table) = (accepted.settings.wire(), accepted.shared.table.clone());
                let encodings = accepted.shared.compression.encodings();
                let wire: DynWire = server(ServerSetup { limits, table, encodings });
                Box::pin(DynConnection::new(accepted, wire).inside_websocket()).await;
            }
            Some(wire) if wire != WireId::JSON_RPC => {
                hand_over(wire, accepted(pipe(io, input), BytesMut::new()), metadata).await;
            }
            _ => {
                let accepted = accepted(io, input);
                let (limits, table) = (accepted.settings.wire(), accepted.shared.table.clone());
                let wire = jsonrpc::Server::websocket(limits, table, metadata, self.deflate);
                let wire: DynWire = Box::new(wire);
                Box::pin(DynConnection::new(accepted, wire).inside_websocket()).await;
            }
        }
    }
}

/// Checks a handshake.
///
/// # Errors
/// The response that refuses it.
#[expect(clippy::result_large_err, reason = "a response is sent, not passed on")]
fn check(method: &Method, headers: &HeaderMap, shared: &HttpState) -> Result<(), Response<Reply>> {
    let text =
        |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(&SEC_WEBSOCKET_VERSION) != "13" {
        let mut response =
            respond(StatusCode::UPGRADE_REQUIRED, "only version 13 of WebSocket is supported\n");
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(response);
    }
    if method != Method::GET
        || !has_token(headers, &CONNECTION, "upgrade")
        || !websocket::is_key(text(&SEC_WEBSOCKET_KEY))
        || headers.get_all(SEC_WEBSOCKET_KEY).iter().count() > 1
    {
        return Err(respond(StatusCode::BAD_REQUEST, "this is not a WebSocket handshake (RFC 6455)\n"));
    }
    if !may_come(headers, &shared.config.websockets.origins, &shared.config.hosts) {
        return Err(respond(
            StatusCode::FORBIDDEN,
            "pages of this origin may open no WebSocket here (websocket_origins)\n",
        ));
    }
    Ok(())
}

/// Creates the response to a valid handshake, and negotiates compression.
fn accept(headers: &HeaderMap, shared: &HttpState) -> (Response<Reply>, Option<Deflate>) {
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
    let extensions = headers.get_all(SEC_WEBSOCKET_EXTENSIONS).iter().filter_map(|value| value.to_str().ok());
    let deflate = if shared.config.websockets.deflate { Deflate::answer(extensions) } else { None };
    let mut response = respond(StatusCode::SWITCHING_PROTOCOLS, "");
    let accept = websocket::accept_key(key);
    let into = response.headers_mut();
    into.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    into.insert(UPGRADE, HeaderValue::from_static("websocket"));
    into.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::try_from(accept).expect("base64 is a header value"));
    if let Some((_, answer)) = &deflate {
        let answer = HeaderValue::try_from(answer).expect("names and numbers are a header value");
        into.insert(SEC_WEBSOCKET_EXTENSIONS, answer);
    }
    (response, deflate.map(|(agreed, _)| agreed))
}

/// Returns the wire of a plugin at this path; at `/`, where JSON-RPC is by default, on listeners without it.
fn of_plugin(path: &str, shared: &HttpState, enabled: WireSet) -> Option<WireId> {
    let wires = shared.plugins.all().iter().flat_map(|plugin| plugin.wires.iter().map(|(wire, _)| *wire));
    let is_root = path == "/" && !enabled.has(WireId::JSON_RPC);
    wires
        .filter(|wire| enabled.has(*wire))
        .find(|wire| wire.spec().websocket_path.is_some_and(|own| own == path || is_root))
}

/// Returns the wire of a plugin that accepts one of the offered sub-protocols, or the path if none is offered, and the
/// translation of its messages.
fn messages_of_plugin<B>(
    request: &Request<B>,
    shared: &HttpState,
    enabled: WireSet,
) -> Option<Result<(WireId, WebSocketMessages), WebSocketRefusal>> {
    let (headers, path) = (request.headers(), request.uri().path());
    let offered: Vec<_> =
        headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok()).collect();
    let offered = offered.join(",");
    let mut head = None;
    shared.plugins.all().iter().find_map(|plugin| {
        let wires = plugin.wires.iter().map(|(wire, _)| *wire).filter(|wire| enabled.has(*wire));
        wires.into_iter().find_map(|wire| {
            let accepted = if offered.is_empty() {
                plugin.server.websocket_at(wire, head.get_or_insert_with(|| route_head(request)))?
            } else {
                let accepted = plugin.server.websocket(wire, path, &offered)?;
                accepted.map_err(|why| WebSocketRefusal::new(400, why))
            };
            Some(accepted.map(|messages| (wire, messages)))
        })
    })
}

/// Returns the head of a handshake, for plugins. A query that cannot be read is one parameter without a value.
fn route_head<B>(request: &Request<B>) -> RouteHead {
    let mut head = RouteHead::new(request.method().as_str(), request.uri().path());
    if let Some(text) = request.uri().query() {
        head.parameters = query(text).unwrap_or_else(|_| vec![(text.to_owned(), String::new())]);
    }
    let headers = request.headers().iter();
    head.headers = headers
        .map(|(name, value)| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())))
        .collect();
    head.is_websocket = true;
    head
}

/// Returns a WebSocket whose messages a plugin translates. Messages have the limit of the listener and room for their
/// framing.
fn translated(
    mut accepted: Accepted,
    input: BytesMut,
    deflate: Option<Deflate>,
    messages: WebSocketMessages,
) -> Accepted {
    let listener = accepted.settings.get(Limit::MessageBytesMax).saturating_add(FRAMING_BYTES);
    let limit = messages.message_bytes_max.map_or(listener, |own| own.min(listener));
    let memory = accepted.shared.memory.clone();
    accepted.io = Box::new(WebSocketIo::translated(accepted.io, input, deflate, messages, limit, memory));
    accepted
}

/// Hands a WebSocket over to the plugin of its wire, and waits for its end: until then the server counts it.
async fn hand_over(wire: WireId, accepted: Accepted, metadata: Metadata) {
    let Accepted { io, input, peer, settings, shared, shard, .. } = accepted;
    let Some(plugin) = shared.plugins.of(wire) else { return };
    let (guard, ended) = oneshot::channel::<Infallible>();
    let connection = PluginConnection::new(io, input, wire, peer, settings);
    plugin.server.connect(connection.worker(shard).websocket(metadata).guard(guard));
    let _ = ended.await;
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// Returns whether the page may connect. Only browsers send an origin, and they let every page open a connection to
/// every server. The host that the request names proves nothing by itself, since any domain can resolve to this
/// address: it must be one of the server's own names.
fn may_come(headers: &HeaderMap, origins: &[String], hosts: &Hosts) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let Ok(origin) = origin.to_str() else { return false };
    let own = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let is_own = |authority: &str| own.is_some_and(|own| own.eq_ignore_ascii_case(authority));
    authority.is_some_and(|authority| is_own(authority) && hosts.has(authority))
        || origins.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_from_the_same_host_or_a_listed_origin() {
        let listed = ["https://app.example".to_owned()];
        let mut named = Hosts::default();
        named.add("here").expect("a name");
        let origin = |host: &'static str, origin: &'static str| {
            HeaderMap::from_iter(
                [(HOST, host), (ORIGIN, origin)].map(|(name, value)| (name, HeaderValue::from_static(value))),
            )
        };
        let rebound = origin("here:1", "http://here:1");
        assert!(!may_come(&rebound, &[], &Hosts::default()), "a name that is not configured");
        for host in ["localhost:1", "127.0.0.1:1", "[::1]:1"] {
            let own = origin(host, format!("http://{host}").leak());
            assert!(may_come(&own, &[], &Hosts::default()), "{host}");
        }
        for (origin, origins, may) in [
            (None, &[][..], true),
            (Some("http://here:1"), &[], true),
            (Some("https://HERE:1"), &[], true),
            (Some("http://here:2"), &[], false),
            (Some("http://here:1.evil.example"), &[], false),
            (Some("null"), &[], false),
            (Some("https://app.example"), &listed, true),
            (Some("http://app.example"), &listed, false),
            (Some("null"), &["*".to_owned()], true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("here:1"));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            assert_eq!(may_come(&headers, origins, &named), may, "{origin:?} {origins:?}");
        }
    }
}
