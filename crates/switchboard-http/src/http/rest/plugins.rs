//! The paths of plugins among those of HTTP/JSON.

use super::{
    super::{
        metered_body::MeteredBody,
        plugin_route::{PluginRequest, PluginRoute},
    },
    Caller, PATH_BYTES_MAX, Rest,
    routes::{self, Found},
};
use ::http::{Method, Request};

impl Rest {
    /// Adds the paths of plugins.
    ///
    /// # Errors
    /// A path that exists.
    pub fn add_plugin_routes(&mut self, routes: impl IntoIterator<Item = PluginRoute>) -> Result<(), String> {
        routes.into_iter().try_for_each(|route| self.routes.add_plugin(route))
    }

    /// Returns the paths of plugins.
    pub(in crate::http) fn plugin_routes(&self) -> &[PluginRoute] {
        &self.routes.plugins
    }
}

impl Caller {
    /// Returns the handshake of a WebSocket as a request to a path of a plugin, if its path is one that takes them.
    #[expect(clippy::result_large_err, reason = "a handshake of another dialect is no error")]
    pub(in crate::http) fn websocket(
        &self,
        request: Request<MeteredBody>,
    ) -> Result<PluginRequest, Request<MeteredBody>> {
        let rest = &self.shared.config.rest;
        if rest.plugin_routes().is_empty() {
            return Err(request);
        }
        let uri = request.uri().clone();
        if uri.path().len() > PATH_BYTES_MAX || uri.query().is_some_and(|query| query.len() > PATH_BYTES_MAX)
        {
            return Err(request);
        }
        let Found::Route(index, segments) = rest.routes.find(&Method::GET, uri.path()) else {
            return Err(request);
        };
        match rest.routes.plugin(index) {
            Some(index) if rest.plugin_routes()[index].takes_websockets => {
                Ok(self.plugin_request(request, index, &segments, true))
            }
            _ => Err(request),
        }
    }

    /// Returns a request to the path of a plugin with this index.
    pub(super) fn plugin_request(
        &self,
        request: Request<MeteredBody>,
        index: usize,
        segments: &[&str],
        is_websocket: bool,
    ) -> PluginRequest {
        let route = &self.shared.config.rest.plugin_routes()[index];
        let (head, body) = request.into_parts();
        let limit = self.shared.table.message_bytes_max(route.method, self.message_bytes_max);
        PluginRequest {
            shared: self.shared.clone(),
            dispatch: self.dispatch.clone(),
            route: index,
            variables: routes::texts(&route.template, segments),
            message_bytes_max: limit as usize,
            head,
            body,
            is_websocket,
        }
    }
}
