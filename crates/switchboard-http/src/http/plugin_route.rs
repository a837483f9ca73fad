//! HTTP paths of plugins: a request is a call of the method whose rules apply, with a handler of its own behind the
//! same guards, layers and counters.

mod request;

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use futures_core::Stream;
pub(super) use request::PluginRequest;
use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};
use switchboard_core::{
    Call, Reply, Result, Service,
    call::{ReplyBody, ReplyParts},
    compression::Message,
    queue::Items,
};
use switchboard_driver::serving::ServerState;
use switchboard_guard::dispatch::{Guarded, GuardedService};
use switchboard_net::plugin::{Route, RouteBody, RouteHandler, RouteHead, RouteRequest};
use switchboard_wire::{Metadata, MethodId, ServiceInfo, Status, http_rule::Template};

/// An HTTP path of a plugin on a running server.
pub struct PluginRoute {
    pub(super) verb: &'static str,
    /// The path as the plugin wrote it, for messages.
    pub(super) path: String,
    pub(super) template: Template,
    /// The method whose rules apply.
    pub(super) method: MethodId,
    /// Its full name.
    pub(super) name: String,
    /// The handler behind the guards and layers of the method.
    service: Arc<dyn GuardedService>,
    pub(super) takes_websockets: bool,
    pub(super) takes_any_type: bool,
    token_parameter: Option<String>,
}

impl PluginRoute {
    /// Finds the method of a path; returns `None` if the server hides it.
    ///
    /// # Errors
    /// A malformed path, and a method that the server does not have.
    pub fn new(plugin: &str, route: Route, state: &ServerState) -> Result<Option<PluginRoute>, String> {
        let wrong = |why: &str| format!("plugin: {plugin}: {} {}: {why}", route.verb, route.path);
        if route.verb.is_empty() || !route.verb.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(wrong("an HTTP method is in upper case, such as GET"));
        }
        let template = Template::parse(&route.path).map_err(|why| wrong(&why))?;
        let table = &state.table;
        let mut methods = (0..table.len() as u16).map(MethodId);
        let found = methods.find(|id| table.full_name(*id) == route.method);
        let method = found.ok_or_else(|| wrong(table.unknown(&route.method).message()))?;
        if table.is_hidden(method) {
            return Ok(None);
        }
        let (service, _) = table.service_and_index(method);
        let info = table.service(method);
        let handler = Guarded::new(HandlerService { info, handler: route.handler });
        Ok(Some(PluginRoute {
            verb: route.verb,
            path: route.path,
            template,
            method,
            name: table.full_name(method),
            service: handler.guarded(state.guarding.chain(usize::from(service))),
            takes_websockets: route.takes_websockets,
            takes_any_type: route.takes_any_type,
            token_parameter: route.token_parameter,
        }))
    }
}

/// The request of a call, in its extensions.
pub(super) struct RouteCall {
    head: RouteHead,
    response: Arc<OnceLock<ResponseHead>>,
}

/// The head of the response of a handler.
#[derive(Clone)]
struct ResponseHead {
    status: StatusCode,
    headers: HeaderMap,
}

impl ResponseHead {
    /// # Errors
    /// `Internal` for a number that is no final HTTP status.
    fn new(status: u16, fields: Vec<(String, String)>) -> Result<ResponseHead> {
        let status = StatusCode::from_u16(status).ok().filter(|status| !status.is_informational());
        let status =
            status.ok_or_else(|| Status::internal("the handler of the path returned no HTTP status"))?;
        let mut headers = HeaderMap::with_capacity(fields.len());
        for (name, value) in fields {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.append(name, value);
            }
        }
        Ok(ResponseHead { status, headers })
    }
}

/// The handler of a path as a service with the methods of the one whose rules apply.
struct HandlerService {
    info: &'static ServiceInfo,
    handler: Arc<dyn RouteHandler>,
}

impl Service for HandlerService {
    fn info(&self) -> &'static ServiceInfo {
        self.info
    }

    async fn call(&self, mut call: Call) -> Result<Reply> {
        let Some(RouteCall { head, response }) = call.cx_mut().extensions_mut().remove() else {
            return Err(Status::internal(
                "the request of the path is missing: a layer has replaced the call",
            ));
        };
        let (body, cx) = call.into_many();
        let answer = self.handler.respond(RouteRequest::new(head, cx, body)).await?;
        // A call has one response.
        let _ = response.set(ResponseHead::new(answer.status, answer.headers)?);
        Ok(match answer.body {
            RouteBody::Whole(bytes) => whole(bytes),
            RouteBody::Pieces(pieces) => Reply::many(Box::pin(Pieces(pieces))),
            _ => return Err(Status::internal("the body of the response is of an unknown kind")),
        })
    }
}

fn whole(bytes: Bytes) -> Reply {
    let (metadata, trailers) = (Metadata::new(), Metadata::new());
    ReplyParts { metadata, trailers, body: ReplyBody::One(bytes.into()) }.into()
}

/// The pieces of a body, as the messages of a stream.
struct Pieces(Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>);

impl Items for Pieces {
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        self.0.as_mut().poll_next(cx).map_ok(Message::from)
    }

    fn queued_bytes(&self) -> usize {
        0
    }

    fn head(&self) -> Metadata {
        Metadata::new()
    }

    /// The handler has responded: the head need not wait for a piece.
    fn is_head_complete(&self) -> bool {
        true
    }

    fn trailers(&self) -> Metadata {
        Metadata::new()
    }
}
