//! Requests of gRPC, gRPC-Web and Connect: checks before the call, the call through `connectrpc`, and the response.

use super::{
    Standard,
    body::Reply,
    decoded_body::DecodedBody,
    dispatch::{self, CallStarted, Dispatch},
    envelopes::Envelopes,
    flatbuffers,
    metered_body::MeteredBody,
    refusal,
    response::respond,
    rest,
    router::{RequestRouter, ResponseFuture},
    trailers::Trailers,
    unchecked_request::UncheckedRequest,
};
use ::http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, VARY},
};
use connectrpc::{ConnectRpcBody, Dispatcher as _, Protocol};
use std::{convert::Infallible, sync::Arc, time::Duration};
use switchboard_net::http_fields::grpc_web_text::Text;
use switchboard_wire::{Code, Kind};
use tower_service::Service as _;

impl RequestRouter {
    /// Responds to a request of gRPC, gRPC-Web or Connect.
    pub(super) fn route_rpc(&self, mut request: Request<MeteredBody>) -> ResponseFuture {
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
pub(super) fn lower_content_type(headers: &mut HeaderMap) {
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
