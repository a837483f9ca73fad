//! A subset of the HTTP interface of Centrifugo, for programs that publish.

mod methods;
mod request;

use crate::Hub;
use crate::api::{
    access::{Access, Secret},
    plugin,
};
use methods::perform;
use request::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use switchboard::plugin::{Plugin, Route, RouteHandler, RouteRequest, RouteResponse};
use switchboard::{Call, Kind, MethodInfo, Reply, Result, Service, ServiceInfo, Status};
use switchboard_core::{layer::BoxFuture, service::DynService};

/// Bytes of a body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Service whose rules apply to the paths.
const SERVICE: &str = "switchboard.push.CentrifugoApi";

/// Methods whose rules apply to the paths.
static INFO: ServiceInfo =
    ServiceInfo { name: SERVICE, methods: &[MethodInfo::new("Call", Kind::ClientStream)], descriptor: &[] };

/// A plugin with a subset of the HTTP interface of Centrifugo: `POST /api/METHOD` with JSON. Cheap to clone.
///
/// The methods are `publish`, `broadcast`, `subscribe`, `unsubscribe`, `disconnect`, `presence`, `presence_stats`,
/// `history`, `channels`, `info` and `batch`. The status is always 200, with `{"result":{…}}` or
/// `{"error":{"code":…,"message":"…"}}`; a wrong key has 401.
///
/// It refuses every request until [`key`](Self::key) or [`open`](Self::open) says who may use it. The rules of the
/// server for the method `switchboard.push.CentrifugoApi/Call` apply as well.
#[derive(Clone, Debug)]
pub struct CentrifugoApi {
    hub: Hub,
    access: Access,
    body_bytes_max: usize,
}

impl CentrifugoApi {
    /// Creates the interface of a hub, closed to every caller.
    pub fn new(hub: Hub) -> CentrifugoApi {
        CentrifugoApi { hub, access: Access::default(), body_bytes_max: BODY_BYTES_MAX }
    }

    /// Admits callers with this key, in `X-API-Key` or in `Authorization: apikey KEY`. Several keys may be added.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> CentrifugoApi {
        self.access = self.access.with_token(key.into());
        self
    }

    /// Admits every caller, for a listener that only trusted programs reach.
    #[must_use]
    pub fn open(mut self) -> CentrifugoApi {
        self.access = Access::Open;
        self
    }

    /// Limits the bytes of a body; default 1 MiB. A larger one gets 413.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: usize) -> CentrifugoApi {
        self.body_bytes_max = bytes;
        self
    }

    fn admits(&self, request: &RouteRequest) -> bool {
        let tokens: &[Secret] = match &self.access {
            Access::Closed => return false,
            Access::Open => return true,
            Access::Tokens(tokens) => tokens,
        };
        let head = &request.head;
        let older = head.header("authorization").and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("apikey").then(|| key.trim())
        });
        let sent = head.header("x-api-key").or(older);
        sent.is_some_and(|sent| tokens.iter().any(|token| token.is(sent)))
    }
}

impl Plugin for CentrifugoApi {
    fn name(&self) -> &'static str {
        "centrifugo-api"
    }

    fn services(&self) -> Vec<DynService> {
        vec![DynService::new(Paths)]
    }

    fn routes(&self) -> Vec<Route> {
        let api = Arc::new(self.clone());
        let routes = Method::ALL.iter().map(|method| {
            let handler = Handler { api: api.clone(), method: *method };
            let path = format!("/api/{}", method.name());
            Route::new("POST", path, format!("{SERVICE}/Call"), handler).any_type()
        });
        routes.collect()
    }
}

/// The service whose rules apply. Its methods are called by the paths alone.
struct Paths;

impl Service for Paths {
    fn info(&self) -> &'static ServiceInfo {
        &INFO
    }

    async fn call(&self, _: Call) -> Result<Reply> {
        Err(Status::unimplemented(format!("{SERVICE} has HTTP paths only, such as POST /api/publish")))
    }
}

/// Responds to the requests of a path.
struct Handler {
    api: Arc<CentrifugoApi>,
    method: Method,
}

impl RouteHandler for Handler {
    fn respond(&self, request: RouteRequest) -> BoxFuture<'static, Result<RouteResponse>> {
        Box::pin(respond(self.api.clone(), self.method, request))
    }
}

async fn respond(
    api: Arc<CentrifugoApi>,
    method: Method,
    mut request: RouteRequest,
) -> Result<RouteResponse> {
    if !api.admits(&request) {
        return Ok(RouteResponse::text(401, "Unauthorized\n"));
    }
    let Some(body) = plugin::read(&mut request, api.body_bytes_max).await? else {
        let text = format!("the body is larger than body_bytes_max={}\n", api.body_bytes_max);
        return Ok(RouteResponse::text(413, text));
    };
    let response = match serde_json::from_slice::<Value>(&body) {
        Ok(body) => perform(&api.hub, method, body).await,
        Err(_) if body.is_empty() => perform(&api.hub, method, json!({})).await,
        Err(error) => request::Failed::bad_request(format!("the body is no JSON: {error}")).response(),
    };
    let body = serde_json::to_vec(&response).unwrap_or_default();
    Ok(RouteResponse::new(200).header("content-type", "application/json").body(body))
}
