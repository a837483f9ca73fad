//! HTTP/JSON for callers that know neither gRPC nor Connect: curl, browsers, whatever speaks HTTP.
//!
//! Every method is there as a POST of JSON to `/package.Service/Method`, and at the paths that its rules give it
//! ([`routes`]): those of `google.api.http` in `.proto` files, and of `http(...)` at traits. The message is put
//! together as JSON from path, query and body ([`message`]) and goes the way that Connect's JSON goes, through
//! [`Dispatch`]: same limits, counters, handlers. What belongs to gRPC, gRPC-Web and Connect is handed back untouched,
//! and so is a plain POST to a unary method, which Connect answers.
//!
//! Streams of replies are lines of JSON, `{"result":…}` and at most one `{"error":…}`, or server-sent events for
//! those who accept them; streams of requests are lines of JSON ([`lines`]). Errors are
//! `{"code":5,"message":"…","details":[…]}` with the HTTP status that belongs to the code.
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
mod reply;
mod routed;
mod routes;
mod shape;
mod streamed;

use super::{body::Reply, connection::Answer, dispatch::Dispatch, received::Received};
use crate::{Kind, Status, server::Shared};
use ::http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use bytes::Bytes;
use connectrpc::Dispatcher;
use head::{content_type, is_of_other_dialect};
use http_body::Body as _;
pub use options::HttpJson;
use reply::{Failure, Style};
use routed::Routed;
use routes::{Found, Routes};
use std::sync::{Arc, OnceLock};
use switchboard_wire::{MethodId, MethodTable};

/// Largest path and largest query, in bytes.
const PATH_BYTES_MAX: usize = 8 << 10;

/// Where the description of the services is.
const OPENAPI: &str = "/openapi.json";

/// The code of the page about all this, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/http-json.md")]
struct Page;

/// What all connections of a server share.
pub(crate) struct Rest {
    routes: Routes,
    /// There if any method has a path of its own, or replies are read for other reasons.
    schema: Option<fields::Schema>,
    options: HttpJson,
    /// The description of all services, made when it is first asked for.
    openapi: OnceLock<Bytes>,
}

impl Rest {
    /// The paths of all methods.
    ///
    /// # Errors
    /// A rule that does not fit its method, and two rules for one path.
    pub(crate) fn new(table: &MethodTable, options: HttpJson) -> Result<Rest, String> {
        let has_paths = (0..table.len() as u16).any(|id| !table.info(MethodId(id)).http.is_empty());
        let schema = match has_paths || options.print_defaults {
            true => Some(fields::Schema::of(table.services())?),
            false => None,
        };
        let routes = schema.as_ref().map(|schema| Routes::of(table, schema)).transpose()?.unwrap_or_default();
        Ok(Rest { routes, schema, options, openapi: OnceLock::new() })
    }
}

/// Answers the requests of one connection.
pub(super) struct Caller {
    shared: Arc<Shared>,
    dispatch: Arc<Dispatch>,
    message_bytes_max: u32,
}

impl Caller {
    pub(super) fn new(shared: Arc<Shared>, dispatch: Arc<Dispatch>, message_bytes_max: u32) -> Caller {
        Caller { shared, dispatch, message_bytes_max }
    }

    /// Answers what is for this dialect and gives the rest back.
    #[expect(clippy::result_large_err, reason = "a request of another dialect is no error")]
    pub(super) fn call(&self, request: Request<Received>) -> Result<Answer, Request<Received>> {
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
            && let Some(document) = self.openapi()
        {
            return Ok(ready(reply::whole(document, "application/json")));
        }
        // Wildcards of rules do not hide methods.
        let is_method = self.dispatch.lookup(name(&uri)).is_some();
        if is_method && verb == Method::POST {
            return self.plain(request);
        }
        match self.shared.rest.routes.find(&verb, uri.path()) {
            Found::Route(index, segments) => {
                let route = &self.shared.rest.routes.routes[index];
                match route.texts(&segments) {
                    Ok(variables) => Ok(self.routed(request, route.method, Some(index), variables)),
                    Err(status) => Ok(ready(Failure::new(&status).response(Style::Rest))),
                }
            }
            Found::Verbs(_) if is_method => Err(request),
            Found::Verbs(verbs) => {
                let verbs = verbs.join(", ");
                let text = format!("{verb} {}: this path has {verbs}", uri.path());
                let failure =
                    Failure::new(&Status::unimplemented(text)).with_http(StatusCode::METHOD_NOT_ALLOWED);
                Ok(ready(failure.with_allow(&verbs).response(Style::Rest)))
            }
            Found::Nothing => self.plain(request),
        }
    }

    /// The description of all services, unless it is turned off.
    fn openapi(&self) -> Option<Bytes> {
        let Shared { rest, table, .. } = &*self.shared;
        let made = || rest.openapi.get_or_init(|| openapi::document(table, rest).into()).clone();
        rest.options.openapi.then(made)
    }

    /// What has no rule: the path that every method has, or one that nothing has.
    #[expect(clippy::result_large_err, reason = "a request of another dialect is no error")]
    fn plain(&self, mut request: Request<Received>) -> Result<Answer, Request<Received>> {
        let name = name(request.uri());
        let kind = content_type(request.headers());
        let is_json = kind == "application/json";
        let Some(method) = self.shared.table.find(name) else {
            if let Some(full) = self.with_package(request.uri()).filter(|_| request.method() == Method::POST)
            {
                *request.uri_mut() = full;
                return self.plain(request);
            }
            // Standard services, and callers by name, who get the answer of Connect.
            let by_name = request.method() == Method::POST && name.split('/').count() == 2;
            if by_name && kind.starts_with("application/") && self.shared.table.takes_others() {
                return Err(request);
            }
            if by_name && is_json && self.dispatch.lookup(name).is_none() {
                let failure = Failure::new(&self.shared.table.unknown(name));
                return Ok(ready(failure.with_http(StatusCode::NOT_FOUND).response(Style::Connect)));
            }
            if self.dispatch.lookup(name).is_some() || (by_name && kind.starts_with("application/")) {
                return Err(request);
            }
            return Ok(ready(self.nothing(request.method(), request.uri())));
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
        // What curl and browsers send when nobody told them otherwise; it is refused with words.
        let is_form = kind.starts_with("text/")
            || kind.starts_with("multipart/")
            || kind == "application/x-www-form-urlencoded";
        let is_connects = is_json && is_unary && !request.body().is_end_stream();
        if !is_connects && (is_json || is_lines || is_form || kind.is_empty()) {
            return Ok(self.routed(request, method, None, Vec::new()));
        }
        Err(request)
    }

    /// The same address with the package of its service, which callers may leave out if only one is called so.
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
        request: Request<Received>,
        method: MethodId,
        route: Option<usize>,
        variables: Vec<String>,
    ) -> Answer {
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
        Box::pin(async move { Ok(routed.answer().await) })
    }

    /// Nothing has this path: says what has one.
    fn nothing(&self, verb: &Method, uri: &Uri) -> Response<Reply> {
        /// Enough to see the mistake in a path.
        const LISTED: usize = 20;
        let routes = self.shared.rest.routes.routes.iter();
        let rules = routes.map(|route| format!("{} {}", route.rule.verb, route.rule.path));
        let methods = self.shared.table.services().iter().flat_map(|service| {
            service.methods.iter().map(|method| format!("POST /{}/{}", service.name, method.name))
        });
        let mut paths: Vec<_> = rules.chain(methods).take(LISTED + 1).collect();
        let more = if paths.len() > LISTED { ", …" } else { "" };
        paths.truncate(LISTED);
        let text = format!("nothing is at {verb} {}; there is {}{more}", uri.path(), paths.join(", "));
        Failure::new(&Status::not_found(text)).response(Style::Rest)
    }
}

/// What the path is as the full name of a method.
fn name(uri: &Uri) -> &str {
    uri.path().strip_prefix('/').unwrap_or_default()
}

fn ready(response: Response<Reply>) -> Answer {
    Box::pin(std::future::ready(Ok(response)))
}
