//! HTTP paths of plugins.

use bytes::Bytes;
use futures_core::Stream;
use std::{fmt, future::Future, pin::Pin, sync::Arc};
use switchboard_core::{Cx, Result, layer::BoxFuture, queue::RawReceiver};

/// An HTTP path of a plugin. A request to it is a call of a method: guards, limits, counters, logs and the drain treat
/// it as they treat one in HTTP/JSON, and permission to call the method is permission to use the path.
///
/// The kind of the method says which bodies are read and sent in pieces: its requests, its replies, or both.
#[derive(Clone)]
#[non_exhaustive]
pub struct Route {
    /// The HTTP method, `GET`; such a path serves HEAD as well. The handler must not have side effects: pages of other
    /// sites can make browsers send it.
    pub verb: &'static str,
    /// The path in the notation of `google.api.http`: `/events`, `/files/{name=**}`.
    pub path: String,
    /// The method whose rules apply, `package.Service/Method`; a service of the server or of the plugin.
    pub method: String,
    /// Set if a GET may also be the handshake of a WebSocket, which then sends each piece of the body as a message of
    /// text, and receives none.
    pub takes_websockets: bool,
    /// Set if a POST may have no content type, or any: the path has callers that know no RPC. A request that says
    /// that it comes from a page of another site is refused even so, but some browsers do not say it: a handler with
    /// side effects must require a token, or be on an address that browsers do not reach.
    pub takes_any_type: bool,
    /// A parameter of the query that is the token of the caller, for browsers that cannot set headers. It becomes
    /// `authorization: Bearer …` if the request has no such header, and the handler does not see it.
    pub token_parameter: Option<String>,
    /// Responds to the requests.
    pub handler: Arc<dyn RouteHandler>,
}

impl Route {
    /// Creates a path that `handler` responds to; `verb` is in upper case.
    pub fn new(
        verb: &'static str,
        path: impl Into<String>,
        method: impl Into<String>,
        handler: impl RouteHandler,
    ) -> Route {
        Route {
            verb,
            path: path.into(),
            method: method.into(),
            takes_websockets: false,
            takes_any_type: false,
            token_parameter: None,
            handler: Arc::new(handler),
        }
    }

    /// Also accepts WebSockets; see [`takes_websockets`](Self::takes_websockets).
    #[must_use]
    pub fn websockets(mut self) -> Route {
        self.takes_websockets = true;
        self
    }

    /// Accepts POSTs with any content type; see [`takes_any_type`](Self::takes_any_type).
    #[must_use]
    pub fn any_type(mut self) -> Route {
        self.takes_any_type = true;
        self
    }

    /// Accepts tokens in this parameter of the query; see [`token_parameter`](Self::token_parameter).
    #[must_use]
    pub fn token_in_query(mut self, parameter: impl Into<String>) -> Route {
        self.token_parameter = Some(parameter.into());
        self
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("verb", &self.verb)
            .field("path", &self.path)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Responds to the requests of a [`Route`]: a function from [`RouteRequest`] to a future, or a type of its own.
pub trait RouteHandler: Send + Sync + 'static {
    /// Responds to a request that the guards have admitted. The future is dropped when the caller disconnects.
    ///
    /// # Errors
    /// A status, which is sent as JSON with the HTTP status of its code.
    fn respond(&self, request: RouteRequest) -> BoxFuture<'static, Result<RouteResponse>>;
}

impl<F, R> RouteHandler for F
where
    F: Fn(RouteRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Result<RouteResponse>> + Send + 'static,
{
    fn respond(&self, request: RouteRequest) -> BoxFuture<'static, Result<RouteResponse>> {
        Box::pin(self(request))
    }
}

/// The head of a request to a [`Route`]. `Debug` leaves out values, which may be secret.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RouteHead {
    /// The HTTP method.
    pub verb: String,
    /// The path, as it was sent.
    pub path: String,
    /// The variables of the path, decoded, in order.
    pub variables: Vec<String>,
    /// The parameters of the query, decoded, in order; at most 256, without the token.
    pub parameters: Vec<(String, String)>,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, Bytes)>,
    /// The request is the handshake of a WebSocket.
    pub is_websocket: bool,
}

impl RouteHead {
    /// Creates the head of a request; servers do so.
    pub fn new(verb: impl Into<String>, path: impl Into<String>) -> RouteHead {
        RouteHead { verb: verb.into(), path: path.into(), ..RouteHead::default() }
    }

    /// Returns the values of a header; `name` is in lower case.
    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Bytes> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the first value of a header that is text; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| known == name)?;
        std::str::from_utf8(value).ok()
    }

    /// Returns the values of a parameter of the query.
    pub fn parameters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for RouteHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |fields: &mut dyn Iterator<Item = &String>| fields.cloned().collect::<Vec<_>>();
        f.debug_struct("RouteHead")
            .field("verb", &self.verb)
            .field("path", &self.path)
            .field("parameters", &names(&mut self.parameters.iter().map(|(name, _)| name)))
            .field("headers", &names(&mut self.headers.iter().map(|(name, _)| name)))
            .field("is_websocket", &self.is_websocket)
            .finish_non_exhaustive()
    }
}

/// A request to a [`Route`].
#[non_exhaustive]
pub struct RouteRequest {
    /// Its head.
    pub head: RouteHead,
    /// The context of the call: the caller and its peer, the deadline, and values of layers.
    pub cx: Cx,
    body: RawReceiver,
}

impl RouteRequest {
    /// Creates a request; servers do so.
    pub fn new(head: RouteHead, cx: Cx, body: RawReceiver) -> RouteRequest {
        RouteRequest { head, cx, body }
    }

    /// Returns the next piece of the body, `None` at the end. The body is one piece, unless the requests of the method
    /// are a stream. Cancel safe.
    ///
    /// # Errors
    /// `Canceled` for a body that ends early, and `ResourceExhausted` for one that is too large.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        self.body.0.next().await
    }
}

impl fmt::Debug for RouteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteRequest").field("head", &self.head).finish_non_exhaustive()
    }
}

/// The response to a request to a [`Route`].
#[derive(Debug)]
#[non_exhaustive]
pub struct RouteResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers; names and values that HTTP does not allow are left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: RouteBody,
}

/// The body of a [`RouteResponse`].
#[non_exhaustive]
pub enum RouteBody {
    /// Pieces of bytes, sent as they come. The stream is polled only when its connection has room. An error ends the
    /// body, and the caller sees its end.
    Pieces(Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>),
    /// All bytes.
    Whole(Bytes),
}

impl RouteResponse {
    /// Creates a response without headers and body.
    pub fn new(status: u16) -> RouteResponse {
        RouteResponse { status, headers: Vec::new(), body: RouteBody::Whole(Bytes::new()) }
    }

    /// Creates a response of plain text.
    pub fn text(status: u16, text: impl Into<String>) -> RouteResponse {
        let response = RouteResponse::new(status).header("content-type", "text/plain; charset=utf-8");
        response.body(text.into())
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> RouteResponse {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> RouteResponse {
        self.body = RouteBody::Whole(body.into());
        self
    }

    /// Sets a body in pieces.
    #[must_use]
    pub fn pieces(mut self, pieces: impl Stream<Item = Result<Bytes>> + Send + 'static) -> RouteResponse {
        self.body = RouteBody::Pieces(Box::pin(pieces));
        self
    }
}

impl fmt::Debug for RouteBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteBody::Pieces(_) => f.write_str("Pieces"),
            RouteBody::Whole(body) => write!(f, "Whole({} bytes)", body.len()),
        }
    }
}
