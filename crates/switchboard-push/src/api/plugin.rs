//! The plugin with the paths.

use super::{
    Nodes,
    access::Access,
    goim::{self, BAD_REQUEST, List, Target},
    imcloud,
};
use crate::{Hub, addresses::Addresses};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use switchboard::plugin::{Plugin, Route, RouteHandler, RouteHead, RouteRequest, RouteResponse};
use switchboard::{Call, Kind, MethodInfo, Reply, Result, Service, ServiceInfo, Status};
use switchboard_core::{layer::BoxFuture, service::DynService};

/// Bytes of a message that a push may have, as far as the hub admits them.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Service whose rules apply to the paths.
const SERVICE: &str = "switchboard.push.GoimApi";

/// Methods whose rules apply to the paths: permission to call one is permission to use its paths.
static INFO: ServiceInfo = ServiceInfo {
    name: SERVICE,
    methods: &[MethodInfo::new("Push", Kind::ClientStream), MethodInfo::new("List", Kind::Unary)],
    descriptor: &[],
};

/// A plugin with the HTTP interfaces of goim and of im-cloud, for programs that push and for devices that look for a
/// node. Cheap to clone.
///
/// - `POST /goim/push/{keys,mids,room,all}`, `GET /goim/online/{top,room,total}` and
///   `GET /goim/nodes/{weighted,instances}` respond with `{"code":0,"message":"","data":…}`.
/// - `POST /im/push/{keys,mids,room,all}`, `GET /im/online/{top,room,total}` and `GET /im/nodes/instances` respond with
///   `{"msg":"","data":…,"code":0}`.
/// - `GET /health` responds with `ok`.
///
/// It refuses every request until [`token`](Self::token) or [`open`](Self::open) says who may push. Add it to a
/// server of its own, on an address that devices do not reach, or require a token. The rules of the server for the
/// methods `switchboard.push.GoimApi/Push` and `List` apply as well. `/health` and the lists of nodes need no token.
#[derive(Clone, Debug)]
pub struct GoimApi {
    hub: Hub,
    access: Access,
    nodes: Arc<Nodes>,
    body_bytes_max: usize,
    addresses: Option<Addresses>,
}

impl GoimApi {
    /// Creates the interfaces of a hub, closed to every caller.
    pub fn new(hub: Hub) -> GoimApi {
        let (access, nodes) = (Access::default(), Arc::new(Nodes::new("")));
        GoimApi { hub, access, nodes, body_bytes_max: BODY_BYTES_MAX, addresses: None }
    }

    /// Admits callers with this token, in `authorization: Bearer …` or in the parameter `token` of the query. Several
    /// tokens may be added. An empty token admits no caller.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> GoimApi {
        self.access = self.access.with_token(token.into());
        self
    }

    /// Admits every caller, as goim does; for a listener that only trusted programs reach.
    #[must_use]
    pub fn open(mut self) -> GoimApi {
        self.access = Access::Open;
        self
    }

    /// Sets the nodes that devices may connect to.
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> GoimApi {
        self.nodes = Arc::new(nodes);
        self
    }

    /// Limits the bytes of a request's body; default 1 MiB. A larger one gets 413.
    #[must_use]
    pub fn body_bytes_max(mut self, bytes: usize) -> GoimApi {
        self.body_bytes_max = bytes;
        self
    }

    pub(crate) fn with_addresses(mut self, addresses: Addresses) -> GoimApi {
        self.addresses = Some(addresses);
        self
    }

    fn ip_count(&self) -> u64 {
        self.addresses.as_ref().map_or(0, |addresses| addresses.count() as u64)
    }
}

/// The form of the responses of a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    Goim,
    ImCloud,
}

/// Effect of a path.
#[derive(Clone, Copy, Debug)]
enum Action {
    Health,
    List(List),
    Push(Target),
}

const PATHS: &[(&str, &str, Family, Action)] = &[
    ("POST", "/goim/push/all", Family::Goim, Action::Push(Target::All)),
    ("POST", "/goim/push/keys", Family::Goim, Action::Push(Target::Keys)),
    ("POST", "/goim/push/mids", Family::Goim, Action::Push(Target::Mids)),
    ("POST", "/goim/push/room", Family::Goim, Action::Push(Target::Room)),
    ("GET", "/goim/nodes/instances", Family::Goim, Action::List(List::Instances)),
    ("GET", "/goim/nodes/weighted", Family::Goim, Action::List(List::Weighted)),
    ("GET", "/goim/online/room", Family::Goim, Action::List(List::Room)),
    ("GET", "/goim/online/top", Family::Goim, Action::List(List::Top)),
    ("GET", "/goim/online/total", Family::Goim, Action::List(List::Total)),
    ("POST", "/im/push/all", Family::ImCloud, Action::Push(Target::All)),
    ("POST", "/im/push/keys", Family::ImCloud, Action::Push(Target::Keys)),
    ("POST", "/im/push/mids", Family::ImCloud, Action::Push(Target::Mids)),
    ("POST", "/im/push/room", Family::ImCloud, Action::Push(Target::Room)),
    ("GET", "/im/nodes/instances", Family::ImCloud, Action::List(List::Instances)),
    ("GET", "/im/online/room", Family::ImCloud, Action::List(List::Room)),
    ("GET", "/im/online/top", Family::ImCloud, Action::List(List::Top)),
    ("GET", "/im/online/total", Family::ImCloud, Action::List(List::Total)),
    ("GET", "/health", Family::ImCloud, Action::Health),
];

impl Plugin for GoimApi {
    fn name(&self) -> &'static str {
        "goim-api"
    }

    fn services(&self) -> Vec<DynService> {
        vec![DynService::new(Paths)]
    }

    fn routes(&self) -> Vec<Route> {
        let api = Arc::new(self.clone());
        let routes = PATHS.iter().map(|(verb, path, family, action)| {
            let method = if matches!(action, Action::Push(_)) { "Push" } else { "List" };
            let handler = Handler { api: api.clone(), family: *family, action: *action };
            Route::new(verb, *path, format!("{SERVICE}/{method}"), handler).any_type()
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
        Err(Status::unimplemented(format!("{SERVICE} has HTTP paths only, such as POST /goim/push/room")))
    }
}

/// Responds to the requests of a path.
struct Handler {
    api: Arc<GoimApi>,
    family: Family,
    action: Action,
}

impl RouteHandler for Handler {
    fn respond(&self, request: RouteRequest) -> BoxFuture<'static, Result<RouteResponse>> {
        Box::pin(respond(self.api.clone(), self.family, self.action, request))
    }
}

async fn respond(
    api: Arc<GoimApi>,
    family: Family,
    action: Action,
    mut request: RouteRequest,
) -> Result<RouteResponse> {
    let is_public = matches!(action, Action::Health | Action::List(List::Instances | List::Weighted));
    if !is_public && !api.access.admits(&request.head) {
        return Ok(refused(family, 401, "the interface needs a token: send authorization: Bearer …"));
    }
    let Some(body) = read(&mut request, api.body_bytes_max).await? else {
        let text = format!("the body is larger than body_bytes_max={}", api.body_bytes_max);
        return Ok(refused(family, 413, &text));
    };
    let head: &RouteHead = &request.head;
    let GoimApi { hub, nodes, .. } = &*api;
    Ok(match (family, action) {
        (_, Action::Health) => imcloud::health(),
        (Family::Goim, Action::Push(target)) => goim::push(hub, target, head, body).await,
        (Family::ImCloud, Action::Push(target)) => imcloud::push(hub, target, head, &body).await,
        (Family::Goim, Action::List(list)) => goim::online(hub, nodes, api.ip_count(), list, head),
        (Family::ImCloud, Action::List(list)) => {
            imcloud::online(hub, nodes, api.ip_count(), list, head, &body)
        }
    })
}

/// Reads the body; `None` if it has more than `max` bytes.
pub(crate) async fn read(request: &mut RouteRequest, max: usize) -> Result<Option<Bytes>> {
    let mut whole = BytesMut::new();
    let mut first: Option<Bytes> = None;
    while let Some(piece) = request.next_piece().await? {
        let before = first.as_ref().map_or(whole.len(), Bytes::len);
        if before.saturating_add(piece.len()) > max {
            return Ok(None);
        }
        match first.take() {
            None if whole.is_empty() => first = Some(piece),
            only => {
                whole.extend_from_slice(&only.unwrap_or_default());
                whole.extend_from_slice(&piece);
            }
        }
    }
    Ok(Some(first.unwrap_or_else(|| whole.freeze())))
}

/// Returns a response that goim and im-cloud do not have, in the form of the family.
fn refused(family: Family, status: u16, text: &str) -> RouteResponse {
    match family {
        Family::Goim => goim::with_status(status, "application/json; charset=utf-8", BAD_REQUEST, text),
        Family::ImCloud => {
            let text = serde_json::to_string(text).unwrap_or_default();
            let body = format!("{{\"msg\":{text},\"data\":[],\"code\":1}}");
            RouteResponse::new(status).header("content-type", "application/json").body(body)
        }
    }
}
