//! The bus as a plugin of servers: the service, and its path for event streams.

use crate::{BusServer, events};
use std::{io, sync::Arc, time::Duration};
use switchboard::{
    counters::CounterSource,
    plugin::{Plugin, PluginContext, PluginServer, Route},
    service::DynService,
};

/// Path of the event streams.
const PATH: &str = "/events";
/// The method whose rules apply to the path.
const METHOD: &str = "switchboard.bus.v1.Bus/Subscribe";

/// Adds the service, and `GET /events`: server-sent events and WebSockets with the entries of topics, for callers that
/// may call `Subscribe`.
///
/// Subscriptions end when the server drains, as with [`close`](BusServer::close): on all servers to which this value or
/// a clone of it was added. Give servers that stop one by one a value each, of the same bus.
impl Plugin for BusServer {
    fn name(&self) -> &'static str {
        "bus"
    }

    fn services(&self) -> Vec<DynService> {
        vec![DynService::new(self.clone())]
    }

    fn routes(&self) -> Vec<Route> {
        let server = self.clone();
        let respond = move |request| {
            let server = server.clone();
            async move { events::respond(&server, &request).await }
        };
        vec![Route::new("GET", PATH, METHOD, respond).websockets().token_in_query("token")]
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![Arc::new(self.bus().clone())]
    }

    fn start(&self, _: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        Ok(Arc::new(Subscriptions(self.clone())))
    }
}

/// The subscriptions of a running server.
struct Subscriptions(BusServer);

impl PluginServer for Subscriptions {
    fn drain(&self, _: Duration) {
        self.0.close();
    }
}
