//! HTTP/JSON for callers without gRPC or Connect, such as curl and browsers.
//!
//! Every method is available as a POST of JSON to `/package.Service/Method`, and at the paths that its rules define
//! ([`routes`]): those of `google.api.http` in `.proto` files, and of `http(...)` on traits. The message is assembled
//! as JSON from path, query and body ([`message`]) and is passed to [`Dispatch`] like the JSON of Connect: with the
//! same limits, counters and handlers. Requests of gRPC, gRPC-Web and Connect are returned unchanged. So is a plain
//! POST to a unary method, which Connect serves.
//!
//! Streams of replies are lines of JSON, `{"result":…}` and at most one `{"error":…}`, or server-sent events for
//! callers that accept them. Streams of requests are lines of JSON ([`lines`]). Errors are
//! `{"code":5,"message":"…","details":[…]}` with the HTTP status of the code.
//!
//! # Limits
//!
//! Paths and queries of 8 KiB each, 256 parameters, JSON 100 levels deep; `message_bytes_max` for bodies and lines;
//! deadlines by `Grpc-Timeout` or `Connect-Timeout-Ms`.

mod fields;
mod head;
mod json;
mod lines;
mod message;
mod openapi;
mod options;
mod percent;
mod plugins;
mod reply;
mod routed;
mod routes;
mod shape;
mod streamed;

use super::{body::Reply, cross_site, dispatch::Dispatch, metered_body::MeteredBody, router::ResponseFuture};
use crate::http::HttpState;
use ::http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use bytes::Bytes;
use connectrpc::Dispatcher;
use head::content_type;
pub(super) use head::{is_of_other_dialect, metadata_headers};
use http_body::Body as _;
pub use options::HttpJson;
pub(super) use percent::query;
pub(super) use reply::Failure;
pub(super) use reply::Style;
use routed::Routed;
pub(super) use routed::collect;
use routes::{Found, Routes};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use switchboard_guard::guard::{OPENAPI as OPENAPI_NAME, Visible};
use switchboard_wire::{Code, Idempotency, Kind, MethodId, MethodTable, Status};

/// Largest path and largest query, in bytes.
const PATH_BYTES_MAX: usize = 8 << 10;

/// Path of the OpenAPI description of the services.
const OPENAPI: &str = "/openapi.json";
/// Cached descriptions for callers that may not call every method.
const NARROWED_MAX: usize = 16;

/// HTTP/JSON state that all connections of a server share.
pub struct Rest {
    routes: Routes,
    /// Set if any method has a path of its own, or if replies are parsed for other reasons.
    schema: Option<fields::Schema>,
    options: HttpJson,
    /// The description of all services, created at the first request for it.
    openapi: OnceLock<Bytes>,
    /// Descriptions for callers that may not call every method, the newest last.
    narrowed: Mutex<Vec<(Visible, Bytes)>>,
}

impl Rest {
    /// Builds the paths of all methods.
    ///
    /// # Errors
    /// A rule that does not fit its method, and two rules for one path.
    pub fn new(table: &MethodTable, options: HttpJson) -> Result<Rest, String> {
        let has_paths = (0..table.len() as u16).any(|id| !table.info(MethodId(id)).http.is_empty());
        let schema = match has_paths || options.print_defaults {
            true => Some(fields::Schema::of(table.services())?),
            false => None,
        };
        let routes = schema.as_ref().map(|schema| Routes::of(table, schema)).transpose()?.unwrap_or_default();
        for route in &routes.routes {
            if route.rule.verb == "GET" && !reads(table, route.method) {
                let (path, method) = (route.rule.path, &route.name);
                tracing::warn!(
                    "GET {path} is refused without a header that pages of other sites cannot send: {method} is not \
                     declared NO_SIDE_EFFECTS (`read_only` in a trait)"
                );
            }
        }
        Ok(Rest { routes, schema, options, openapi: OnceLock::new(), narrowed: Mutex::default() })
    }

    /// Returns the description of the visible methods. It is created once for all callers that may call the same
    /// methods.
    fn openapi(&self, shared: &HttpState, visible: &Visible) -> Bytes {
        let make = || Bytes::from(openapi::document(&shared.table, self, &shared.guarding, visible));
        if visible.is_all() {
            return self.openapi.get_or_init(make).clone();
        }
        let lock = || self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, document)) = lock().iter().find(|(of, _)| of == visible) {
            return document.clone();
        }
        let document = make();
        let mut known = lock();
        if known.len() == NARROWED_MAX {
            known.remove(0);
        }
        known.push((visible.clone(), document.clone()));
        document
    }
}

/// Serves the HTTP/JSON requests of one connection.
pub(super) struct Caller {
    shared: Arc<HttpState>,
    dispatch: Arc<Dispatch>,
    message_bytes_max: u32,
}

impl Caller {
    pub(super) fn new(shared: Arc<HttpState>, dispatch: Arc<Dispatch>, message_bytes_max: u32) -> Caller {
        Caller { shared, dispatch, message_bytes_max }
    }

    /// Creates the response to a request that was refused before its method was looked up.
    pub(super) fn refused(&self, failure: Failure, uri: &Uri) -> ResponseFuture {
        let table = &self.shared.table;
        let is_unary = match table.guards_unknown() {
            // The response does not depend on whether the method exists.
            true => is_name(name(uri)),
            false => table.find(name(uri)).is_some_and(|method| table.info(method).kind == Kind::Unary),
        };
        ready(failure.response(if is_unary { Style::Connect } else { Style::Rest }))
    }

    /// Responds to the requests of this protocol and returns all others.
    #[expect(clippy::result_large_err, reason = "a request of another dialect is no error")]
    pub(super) fn call(&self, request: Request<MeteredBody>) -> Result<ResponseFuture, Request<MeteredBody>> {
        if is_of_other_dialect(&request) {
            return Err(request);
        }
        let (uri, verb) = (request.uri().clone(), request.method().clone());
        if uri.path().len() > PATH_BYTES_MAX || uri.query().unwrap_or_default().len() > PATH_BYTES_MAX {
            let text = format!("the path or the query is over the limit of {PATH_BYTES_MAX} bytes");
            let failure = Failure::new(&Status::invalid_argument(text)).with_http(StatusCode::URI_TOO_LONG);
            return Ok(ready(failure.response(Style::Rest)));
        }
        if uri.path() == OPENAPI
            && (verb == Method::GET || verb == Method::HEAD)
            && self.shared.config.rest.options.openapi
        {
            return Ok(self.describe(request));
        }
        // Methods take precedence over wildcards of rules.
        let is_method = self.dispatch.lookup(name(&uri)).is_some();
        if is_method && verb == Method::POST {
            return self.plain(request);
        }
        match self.shared.config.rest.routes.find(&verb, uri.path()) {
            Found::Route(index, segments) => {
                if let Some(plugin) = self.shared.config.rest.routes.plugin(index) {
                    let request = self.plugin_request(request, plugin, &segments, false);
                    return Ok(Box::pin(async move { Ok(request.respond().await) }));
                }
                let route = &self.shared.config.rest.routes.routes[index];
                let cors = self.shared.config.cors.as_deref();
                if !reads(&self.shared.table, route.method)
                    && let Some(refused) = cross_site::refuse_read(&request, cors, &route.name)
                {
                    return Ok(self.refused_path(request, Some(route.method), refused));
                }
                match route.texts(&segments) {
                    Ok(variables) => Ok(self.routed(request, route.method, Some(index), variables)),
                    Err(status) => Ok(self.refused_path(request, Some(route.method), Failure::new(&status))),
                }
            }
            Found::Verbs(_) if is_method => Err(request),
            Found::Verbs(verbs) => {
                let verbs = verbs.join(", ");
                let text = format!("{verb} {}: this path has {verbs}", uri.path());
                let failure =
                    Failure::new(&Status::unimplemented(text)).with_http(StatusCode::METHOD_NOT_ALLOWED);
                Ok(self.refused_path(request, None, failure.with_allow(&verbs)))
            }
            Found::Nothing => self.plain(request),
        }
    }

    /// Responds with the description of the services that the caller may see.
    fn describe(&self, request: Request<MeteredBody>) -> ResponseFuture {
        let (shared, dispatch) = (self.shared.clone(), self.dispatch.clone());
        let (head, _) = request.into_parts();
        Box::pin(async move {
            let headers = head::metadata_headers(&head.headers);
            let mut response = match dispatch.describe_page(&headers, OPENAPI_NAME).await {
                Ok(visible) => {
                    reply::whole(shared.config.rest.openapi(&shared, &visible), "application/json")
                }
                Err(status) => Failure::new(&status).response(Style::Rest),
            };
            if !shared.guarding.is_open() {
                // Caches must not serve it to other callers.
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            Ok(response)
        })
    }

    /// Handles a request without a rule: the path that every method has, or an unknown one.
    #[expect(clippy::result_large_err, reason = "a request of another dialect is no error")]
    fn plain(&self, mut request: Request<MeteredBody>) -> Result<ResponseFuture, Request<MeteredBody>> {
        let name = name(request.uri());
        let kind = content_type(request.headers());
        let is_json = kind == "application/json";
        let Some(method) = self.shared.table.find(name) else {
            if let Some(full) = self.with_package(request.uri()).filter(|_| request.method() == Method::POST)
            {
                *request.uri_mut() = full;
                return self.plain(request);
            }
            // Standard services, and calls of a method by its name, which Connect serves.
            let by_name = request.method() == Method::POST && is_name(name);
            if by_name && kind.starts_with("application/") && self.shared.table.accepts_undeclared() {
                return Err(request);
            }
            if by_name && is_json && self.dispatch.lookup(name).is_none() {
                let (dispatch, name) = (self.dispatch.clone(), name.to_owned());
                let (head, _) = request.into_parts();
                return Ok(Box::pin(async move {
                    let status = dispatch.unknown(&head.headers, &name).await;
                    let failure = Failure::new(&status);
                    let failure = match status.code() {
                        Code::Unimplemented => failure.with_http(StatusCode::NOT_FOUND),
                        _ => failure,
                    };
                    Ok(failure.response(Style::Connect))
                }));
            }
            if self.dispatch.lookup(name).is_some() || (by_name && kind.starts_with("application/")) {
                return Err(request);
            }
            return Ok(self.nothing(request));
        };
        if request.method() != Method::POST {
            return Err(request);
        }
        if kind == "application/x-protobuf" || kind == "application/protobuf" {
            let kind = HeaderValue::from_static("application/proto");
            request.headers_mut().insert(CONTENT_TYPE, kind);
            return Err(request);
        }
        let is_unary = self.shared.table.info(method).kind == Kind::Unary;
        let is_lines = kind == "application/x-ndjson" && !is_unary;
        // The default content types of curl and browsers; the refusal explains which one to use.
        let is_form = kind.starts_with("text/")
            || kind.starts_with("multipart/")
            || kind == "application/x-www-form-urlencoded";
        let is_connects = is_json && is_unary && !request.body().is_end_stream();
        if !is_connects && (is_json || is_lines || is_form || kind.is_empty()) {
            return Ok(self.routed(request, method, None, Vec::new()));
        }
        Err(request)
    }

    /// Returns the same address with the package of the service added; callers may omit the package if only one service
    /// has that name.
    fn with_package(&self, uri: &Uri) -> Option<Uri> {
        let (service, method) = name(uri).split_once('/')?;
        let table = &self.shared.table;
        let is_it = |full: &&str| full.rsplit_once('.').is_some_and(|(_, short)| short == service);
        let mut services = table.services().iter().map(|service| service.name).filter(is_it);
        let (Some(full), None) = (services.next(), services.next()) else { return None };
        let name = format!("{full}/{method}");
        table.find(&name)?;
        let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(format!("/{name}{query}").parse().ok()?);
        Uri::from_parts(parts).ok()
    }

    fn routed(
        &self,
        request: Request<MeteredBody>,
        method: MethodId,
        route: Option<usize>,
        variables: Vec<String>,
    ) -> ResponseFuture {
        let (head, body) = request.into_parts();
        let limit = self.shared.table.message_bytes_max(method, self.message_bytes_max);
        let routed = Routed {
            shared: self.shared.clone(),
            dispatch: self.dispatch.clone(),
            method,
            route,
            variables,
            message_bytes_max: limit as usize,
            head,
            body,
        };
        Box::pin(async move { Ok(routed.respond().await) })
    }

    /// Refuses a request to a path of a rule; callers without credentials get the response for an unknown path.
    fn refused_path(
        &self,
        request: Request<MeteredBody>,
        method: Option<MethodId>,
        failure: Failure,
    ) -> ResponseFuture {
        if !self.shared.table.guards_unknown() {
            return ready(failure.response(Style::Rest));
        }
        let dispatch = self.dispatch.clone();
        let (head, _) = request.into_parts();
        Box::pin(async move {
            let headers = head::metadata_headers(&head.headers);
            let checked = match method {
                Some(method) => dispatch.may_call(&headers, method).await,
                None => dispatch.may_miss(&headers, name(&head.uri)).await,
            };
            let failure = checked.map_or_else(|status| Failure::new(&status), |()| failure);
            Ok(failure.response(Style::Rest))
        })
    }

    /// Creates the response for an unknown path. It lists the paths that the caller may call.
    fn nothing(&self, request: Request<MeteredBody>) -> ResponseFuture {
        let (shared, dispatch) = (self.shared.clone(), self.dispatch.clone());
        let (head, _) = request.into_parts();
        Box::pin(async move {
            let headers = head::metadata_headers(&head.headers);
            if shared.table.guards_unknown()
                && head.uri.path() != "/"
                && let Err(status) = dispatch.may_miss(&headers, name(&head.uri)).await
            {
                let by_name = head.method == Method::POST && is_name(name(&head.uri));
                let style = if by_name { Style::Connect } else { Style::Rest };
                return Ok(Failure::new(&status).response(style));
            }
            let visible = dispatch.describe_page(&headers, name(&head.uri)).await;
            let path = format!("{} {}", head.method, head.uri.path());
            let mut text = match visible {
                Ok(visible) => format!("nothing is at {path}; available: {}", paths(&shared, &visible)),
                Err(status) if status.code() == Code::Unauthenticated => {
                    format!("nothing is at {path}, or it is not shown: {}", status.message())
                }
                Err(_) => format!("nothing is at {path}"),
            };
            if shared.table.accepts_undeclared() {
                text.push_str(
                    "; HTTP paths of services that are not declared here are unknown, call them by POST \
                     /package.Service/Method (a proxy learns paths from --reflect, --proto or --descriptor-set)",
                );
            }
            Ok(Failure::new(&Status::not_found(text)).response(Style::Rest))
        })
    }
}

/// Returns whether the method is declared to have no side effects.
fn reads(table: &MethodTable, method: MethodId) -> bool {
    table.info(method).idempotency == Idempotency::NoSideEffects
}

/// Lists the paths that a caller may call, as many as fit an error text.
fn paths(shared: &HttpState, visible: &Visible) -> String {
    /// Enough to recognise a misspelt path.
    const LISTED: usize = 20;
    let table = &shared.table;
    let routes = shared.config.rest.routes.routes.iter().filter(|route| visible.has(route.method));
    let rules = routes.map(|route| format!("{} {}", route.rule.verb, route.rule.path));
    let plugins = shared.config.rest.plugin_routes().iter().filter(|route| visible.has(route.method));
    let rules = rules.chain(plugins.map(|route| format!("{} {}", route.verb, route.path)));
    let ids = (0..table.len()).map(|at| MethodId(at as u16)).filter(|id| visible.has(*id));
    let methods = ids.map(|id| table.full_name(id)).filter(|name| table.find(name).is_some());
    let mut paths: Vec<_> =
        rules.chain(methods.map(|name| format!("POST /{name}"))).take(LISTED + 1).collect();
    let more = if paths.len() > LISTED { ", …" } else { "" };
    paths.truncate(LISTED);
    format!("{}{more}", paths.join(", "))
}

/// Returns the path as the full name of a method.
fn name(uri: &Uri) -> &str {
    uri.path().strip_prefix('/').unwrap_or_default()
}

/// Returns whether a path has the form of a method's full name.
fn is_name(name: &str) -> bool {
    name.split('/').count() == 2
}

fn ready(response: Response<Reply>) -> ResponseFuture {
    Box::pin(std::future::ready(Ok(response)))
}
