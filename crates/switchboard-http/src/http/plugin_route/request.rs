//! One request to a path of a plugin, to its response.

use super::{PluginRoute, ResponseHead, RouteCall};
use crate::http::{
    HttpState,
    body::Reply,
    dispatch::{CallStarted, Dispatch, PluginReply},
    metered_body::MeteredBody,
    requests::Requests,
    rest::{Failure, Style, collect, metadata_headers, query},
    timeout,
};
use ::http::{
    HeaderMap, HeaderValue, Response,
    header::{AUTHORIZATION, CONTENT_LENGTH},
    request,
};
use bytes::Bytes;
use connectrpc::{ConnectError, EncodedBody, EncodedStream, RequestContext, dispatcher::RequestStream};
use futures_core::Stream;
use http_body::{Body, Frame};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::Instant,
};
use switchboard_core::{Result, call::RequestBody};
use switchboard_net::plugin::RouteHead;
use switchboard_wire::{Kind, Status};
use tokio::time::{Sleep, sleep_until};

/// A request to a path of a plugin.
pub(in crate::http) struct PluginRequest {
    pub(in crate::http) shared: Arc<HttpState>,
    pub(in crate::http) dispatch: Arc<Dispatch>,
    /// Index of the path among those of plugins.
    pub(in crate::http) route: usize,
    pub(in crate::http) variables: Result<Vec<String>>,
    pub(in crate::http) message_bytes_max: usize,
    pub(in crate::http) head: request::Parts,
    pub(in crate::http) body: MeteredBody,
    pub(in crate::http) is_websocket: bool,
}

/// The response of a handler.
pub(in crate::http) struct Answer {
    head: ResponseHead,
    body: PluginReply,
    deadline: Option<Instant>,
}

impl PluginRequest {
    /// Responds to the request.
    pub(in crate::http) async fn respond(self) -> Response<Reply> {
        self.answer().await.map_or_else(|failure| failure.response(Style::Rest), Answer::into_response)
    }

    /// Calls the handler.
    ///
    /// # Errors
    /// The errors of the guards and of the handler, and those of a malformed request. A caller without credentials gets
    /// the error for its credentials.
    pub(in crate::http) async fn answer(self) -> Result<Answer, Failure> {
        let started = CallStarted::of(&self.shared.table);
        let unchecked = started.clone().map(|started| {
            let method = self.route().method;
            (started, self.dispatch.clone(), method, self.headers())
        });
        let answer = match timeout::read(&self.head.headers) {
            Err(status) => Err(Failure::new(&status)),
            Ok(None) => self.call(None, started).await,
            Ok(Some(timeout)) => {
                let deadline = switchboard_core::clock::after(switchboard_core::clock::now(), timeout);
                match tokio::time::timeout(timeout, self.call(Some(deadline), started)).await {
                    Ok(answer) => answer,
                    Err(_) => Err(Failure::new(&Status::deadline_exceeded("the deadline has passed"))),
                }
            }
        };
        match (answer, unchecked) {
            (Err(failure), Some((started, dispatch, method, headers))) if !started.is_set() => {
                Err(match dispatch.may_call(&headers, method).await {
                    Ok(()) => failure,
                    Err(status) => Failure::new(&status),
                })
            }
            (answer, _) => answer,
        }
    }

    fn route(&self) -> &PluginRoute {
        &self.shared.config.rest.plugin_routes()[self.route]
    }

    /// Returns the headers that become metadata, with the token of the query.
    fn headers(&self) -> HeaderMap {
        let mut headers = metadata_headers(&self.head.headers);
        let Some(parameter) = self.route().token_parameter.as_deref() else { return headers };
        if !headers.contains_key(AUTHORIZATION)
            && let Ok(parameters) = query(self.head.uri.query().unwrap_or_default())
            && let Some((_, token)) = parameters.into_iter().find(|(name, _)| name == parameter)
            && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {token}"))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }

    async fn call(self, deadline: Option<Instant>, started: Option<CallStarted>) -> Result<Answer, Failure> {
        let headers = self.headers();
        let PluginRequest { shared, dispatch, route, variables, message_bytes_max, head, body, is_websocket } =
            self;
        let route = &shared.config.rest.plugin_routes()[route];
        let failure = |status: Status| Failure::new(&status);
        let mut parameters = query(head.uri.query().unwrap_or_default()).map_err(failure)?;
        parameters.retain(|(name, _)| Some(name) != route.token_parameter.as_ref());
        let mut request = RouteHead::new(head.method.as_str(), head.uri.path());
        request.variables = variables.map_err(failure)?;
        request.parameters = parameters;
        request.headers = (head.headers.iter())
            .map(|(name, value)| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())))
            .collect();
        request.is_websocket = is_websocket;
        let body = match shared.table.info(route.method).kind {
            // The body of a GET has no meaning, and that of a handshake does not exist.
            _ if route.verb == "GET" => (RequestBody::One(Bytes::new()), None),
            Kind::Unary | Kind::ServerStream => {
                (RequestBody::One(collect(body, message_bytes_max).await?), None)
            }
            Kind::Bidi | Kind::ClientStream => {
                let (requests, body) = Requests::new(Box::pin(BodyPieces(body)) as RequestStream);
                (body, Some(requests))
            }
        };
        let mut context = RequestContext::new(headers).with_deadline(deadline);
        if let Some(started) = started {
            context.extensions_mut().insert(started);
        }
        let response = Arc::<OnceLock<ResponseHead>>::default();
        let call = RouteCall { head: request, response: response.clone() };
        let body = dispatch.call_plugin(&*route.service, route.method, &context, call, body).await?;
        let head = response.get().cloned();
        let missing = || failure(Status::internal("a layer has replied instead of the handler of the path"));
        Ok(Answer { head: head.ok_or_else(missing)?, body, deadline })
    }
}

impl Answer {
    /// Returns the pieces of a successful response to the handshake of a WebSocket.
    ///
    /// # Errors
    /// The response that refuses the handshake.
    #[expect(clippy::result_large_err, reason = "a response is sent, not passed on")]
    pub(in crate::http) fn into_pieces(self) -> Result<EncodedStream, Response<Reply>> {
        match self {
            Answer { head, body: PluginReply::Pieces(pieces), .. } if head.status.is_success() => Ok(pieces),
            refused => Err(refused.into_response()),
        }
    }

    fn into_response(self) -> Response<Reply> {
        let Answer { head, body, deadline } = self;
        let mut response = Response::new(match body {
            PluginReply::Whole(bytes) => Reply::whole(bytes),
            PluginReply::Pieces(pieces) => {
                let late = deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
                Reply::own(ReplyPieces { pieces: Some(pieces), late })
            }
        });
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        // The length follows from the body.
        response.headers_mut().remove(CONTENT_LENGTH);
        response
    }
}

/// The pieces of the body of a request, as the messages of a stream.
struct BodyPieces(MeteredBody);

impl Stream for BodyPieces {
    type Item = Result<Bytes, ConnectError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    let text = format!("the body ended early: {error}");
                    return Poll::Ready(Some(Err(ConnectError::canceled(text))));
                }
            };
            // Trailers are not part of the body.
            if let Ok(piece) = frame.into_data() {
                self.0.keeps(0);
                return Poll::Ready(Some(Ok(piece)));
            }
        }
    }
}

/// The body of a response in pieces.
struct ReplyPieces {
    pieces: Option<EncodedStream>,
    late: Option<Pin<Box<Sleep>>>,
}

impl Body for ReplyPieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(pieces) = &mut this.pieces else { return Poll::Ready(None) };
        let is_late = this.late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready());
        let piece = if is_late { None } else { ready!(pieces.as_mut().poll_next(cx)) };
        match piece.transpose() {
            Ok(Some(piece)) => Poll::Ready(Some(Ok(Frame::data(EncodedBody::into_contiguous(piece))))),
            ended => {
                if let Err(error) = ended {
                    tracing::debug!("the body of a plugin's response ended early: {error}");
                }
                this.pieces = None;
                Poll::Ready(None)
            }
        }
    }
}
