//! One call, from a request with a known method to the response.

use super::{
    super::{
        Standard,
        body::Reply,
        dispatch::{CallStarted, Dispatch},
        metered_body::{Broken, MeteredBody},
        timeout,
        trailers::Trailers,
    },
    Rest,
    head::{coding, metadata_headers},
    lines, message,
    reply::{self, Failure, Style, Wanted},
    routes,
    shape::Shape,
    streamed::Lines,
};
use crate::http::HttpState;
use ::http::{
    HeaderMap, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, TE},
    request,
};
use bytes::Bytes;
use connectrpc::{
    CodecFormat, CompressionRegistry, ConnectError, Dispatcher, ErrorCode, Payload, RequestContext,
};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{sync::Arc, time::Instant};
use switchboard_wire::{Kind, MethodId, Status};

/// A request whose method is known.
pub(super) struct Routed {
    pub(super) shared: Arc<HttpState>,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) method: MethodId,
    /// Index of the route; none for `/package.Service/Method`.
    pub(super) route: Option<usize>,
    pub(super) variables: Vec<String>,
    pub(super) message_bytes_max: usize,
    pub(super) head: request::Parts,
    pub(super) body: MeteredBody,
}

impl Routed {
    /// Calls the method and converts its reply to a response.
    pub(super) async fn respond(self) -> Response<Reply> {
        let (method, is_by_name) = (self.method, self.route.is_none());
        let kind = self.shared.table.info(method).kind;
        let style = if is_by_name && kind == Kind::Unary { Style::Connect } else { Style::Rest };
        let started = CallStarted::of(&self.shared.table);
        let unchecked = started
            .clone()
            .map(|started| (started, self.dispatch.clone(), metadata_headers(&self.head.headers)));
        let result = match timeout::read(&self.head.headers) {
            Err(status) => Err(Failure::new(&status)),
            Ok(None) => self.run(None, style, started).await,
            Ok(Some(timeout)) => {
                let deadline = switchboard_core::clock::after(switchboard_core::clock::now(), timeout);
                match tokio::time::timeout(timeout, self.run(Some(deadline), style, started)).await {
                    Ok(result) => result,
                    Err(_) => Err(Failure::new(&Status::deadline_exceeded("the deadline has passed"))),
                }
            }
        };
        let failure = match result {
            Ok(response) => return response,
            Err(failure) => failure,
        };
        let Some((started, dispatch, headers)) = unchecked else { return failure.response(style) };
        // The guards have not seen the call: callers without credentials learn nothing of the method.
        let denied = match started.is_set() {
            true => None,
            false => dispatch.may_call(&headers, method).await.err(),
        };
        let failure = denied.map_or(failure, |status| Failure::new(&status));
        // An unknown method has no kind: its refusals have this style.
        let style = if is_by_name && failure.is_denial() { Style::Connect } else { style };
        failure.response(style)
    }

    async fn run(
        self,
        deadline: Option<Instant>,
        style: Style,
        started: Option<CallStarted>,
    ) -> Result<Response<Reply>, Failure> {
        let Routed { shared, dispatch, method, route, variables, message_bytes_max, head, body } = self;
        let shape = Shape::of(&shared, route, method).filter(|_| style == Style::Rest);
        let route = route.map(|index| &shared.config.rest.routes.routes[index]);
        let table = &shared.table;
        let (name, kind) = (table.full_name(method), table.info(method).kind);
        let codings = Standard::of(&shared).codings();
        let takes_body = route.is_none_or(|route| !matches!(route.body, routes::Body::None));
        let coding = if takes_body && !body.is_end_stream() {
            coding(&head.headers, route.is_some_and(|route| route.is_raw), codings)?
        } else {
            None
        };
        if let (Some(coding), Kind::Bidi | Kind::ClientStream) = (coding, kind) {
            let text = format!("content-encoding {coding}: send the lines uncompressed");
            let failure = Failure::new(&Status::invalid_argument(text));
            return Err(failure.with_http(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let wanted = wanted(codings, &head.headers, (style, shape, route));
        let trailers = Arc::<Trailers>::default();
        let mut context = RequestContext::new(metadata_headers(&head.headers)).with_deadline(deadline);
        context.extensions_mut().insert(trailers.clone());
        if let Some(started) = started {
            context.extensions_mut().insert(started);
        }
        let trailers = wanted.trailers.then_some(trailers);
        let json = CodecFormat::Json;
        match kind {
            Kind::Unary | Kind::ServerStream => {
                let mut body =
                    if takes_body { collect(body, message_bytes_max).await? } else { Bytes::new() };
                if let Some(coding) = coding {
                    let unpacked = codings.decompress_with_limit(coding, body, message_bytes_max);
                    body = unpacked.map_err(too_large)?;
                }
                let message = match request_message(&shared.config.rest, route, variables, &head, body) {
                    Ok(message) => message,
                    // The text names fields, which only callers of the method may see.
                    Err(status) => {
                        let may = dispatch.may_call(&metadata_headers(&head.headers), method).await;
                        return Err(Failure::new(&may.err().unwrap_or(status)));
                    }
                };
                if kind == Kind::Unary {
                    let payload = Payload::new(message, json);
                    let reply = dispatch.call_unary(&name, context, payload, json).await?;
                    return reply::one(reply, &wanted);
                }
                let reply = dispatch.call_server_streaming(&name, context, message, json).await?;
                Ok(Lines::response(reply, wanted.shape, &head.headers, deadline, trailers))
            }
            Kind::ClientStream => {
                let requests = lines::requests(body, message_bytes_max);
                let reply = dispatch.call_client_streaming(&name, context, requests, json).await?;
                reply::one(reply, &wanted)
            }
            Kind::Bidi => {
                let requests = lines::requests(body, message_bytes_max);
                let reply = dispatch.call_bidi_streaming(&name, context, requests, json).await?;
                Ok(Lines::response(reply, wanted.shape, &head.headers, deadline, trailers))
            }
        }
    }
}

/// Creates the request message from the body, the path and the query.
fn request_message(
    rest: &Rest,
    route: Option<&routes::Route>,
    variables: Vec<String>,
    head: &request::Parts,
    body: Bytes,
) -> Result<Bytes, Status> {
    let (Some(route), Some(schema)) = (route, &rest.schema) else { return message::plain(body) };
    let parts = message::Parts {
        variables,
        query: head.uri.query(),
        content_type: head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()),
        body,
    };
    message::assemble(schema, route, parts, rest.options.ignore_unknown_parameters)
}

/// Returns the form of the reply that the caller of this request accepts.
fn wanted<'a>(
    codings: &'a CompressionRegistry,
    headers: &HeaderMap,
    (style, shape, route): (Style, Option<Shape>, Option<&routes::Route>),
) -> Wanted<'a> {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|accepted| accepted.to_str().ok());
    Wanted {
        style,
        shape,
        is_raw: route.is_some_and(|route| route.reply.is_raw),
        trailers: headers.get(TE).is_some_and(|te| te.as_bytes().starts_with(b"trailers")),
        coding: codings.negotiate_encoding(accepted, None),
        codings,
    }
}

/// Returns the failure for a body that could not be decompressed.
fn too_large(error: ConnectError) -> Failure {
    let is_large = error.code == ErrorCode::ResourceExhausted;
    let failure = Failure::from(error);
    if is_large { failure.with_http(StatusCode::PAYLOAD_TOO_LARGE) } else { failure }
}

/// Reads a whole body.
///
/// # Errors
/// A body over `max` bytes, one that ends early, and one for which memory does not suffice.
pub(in crate::http) async fn collect(body: MeteredBody, max: usize) -> Result<Bytes, Failure> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text =
                format!("a request is over the limit of {max} bytes (message_bytes_max of the receiver)");
            Err(Failure::new(&Status::resource_exhausted(text)).with_http(StatusCode::PAYLOAD_TOO_LARGE))
        }
        Err(error) => Err(Failure::new(&match error.downcast_ref() {
            Some(Broken::Refused(status)) => status.clone(),
            _ => Status::canceled(format!("the body ended early: {error}")),
        })),
    }
}
