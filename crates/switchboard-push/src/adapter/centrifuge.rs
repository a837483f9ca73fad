//! Clients of Centrifuge, in WebSockets.
//!
//! ```text
//! connect ─► Hub::verify ─► Hub::connect ─► topics of the key, the user and all, rooms of the token ─► reply
//! subscribe ─► Device::join ─► Feeds::subscribe ─► reply with the position and the outcome, then publications
//! topics ─► one broadcast buffer for each topic and format ─► sockets
//! ```

mod adapter;
mod answers;
mod commands;
mod encoder;
mod ending;
mod errors;
mod login;
mod orders;
mod peer;
mod settings;
mod stats;
mod subscriptions;
mod websocket;

pub(crate) use answers::{history, presence, presence_stats};
pub(crate) use encoder::{TAGS, channel, client_id, epoch, room};
pub(crate) use errors::Failure;
pub use stats::CentrifugeStats;

use crate::Hub;
use adapter::CentrifugeAdapter;
use settings::{Context, Settings};
use stats::Counters;
use std::{fmt, io, sync::Arc, time::Duration};
use switchboard::plugin::{Plugin, PluginContext, PluginServer};
use switchboard_core::counters::CounterSource;
use switchboard_fanout::{Engines, Options};
use switchboard_wire::{
    centrifuge::Limits,
    spec::{Verdict, WireSpec},
};
use websocket::CentrifugeServer;

/// Centrifuge in WebSockets.
pub static CENTRIFUGE: WireSpec = WireSpec {
    title: "Centrifuge, devices of a push gateway",
    // In WebSockets alone.
    sniff: Some(|_| Verdict::No),
    ..WireSpec::named("centrifuge")
};

/// A plugin that serves the client libraries of Centrifugo as devices of a hub, at `/connection/websocket`. Cheap to
/// clone.
///
/// JSON is the format, unless the client offers the sub-protocol `centrifuge-protobuf`, or the query has
/// `format=protobuf` or `cf_protocol=protobuf`. The channel `ns:name` is the room `ns/name` of the hub. The hub's
/// verifiers check the token of *connect*; they find the headers of the WebSocket, such as `cookie`, in the metadata.
#[derive(Clone)]
pub struct Centrifuge {
    hub: Hub,
    settings: Settings,
    options: Options,
    counters: Arc<Counters>,
}

impl Centrifuge {
    /// Creates a plugin for the devices of a hub.
    pub fn new(hub: Hub) -> Centrifuge {
        let (options, counters) = (Options::default(), Arc::default());
        Centrifuge { hub, settings: Settings::default(), options, counters }
    }

    /// Sets the limits on what clients send.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Centrifuge {
        self.settings.limits = limits;
        self
    }

    /// Sets the limits of each engine, such as the bytes that wait for slow clients.
    #[must_use]
    pub fn options(mut self, options: Options) -> Centrifuge {
        self.options = options;
        self
    }

    /// Sets the most commands in one message of a WebSocket; default 64.
    #[must_use]
    pub fn commands_per_message_max(mut self, commands: usize) -> Centrifuge {
        self.settings.commands_per_message_max = commands;
        self
    }

    /// Sets the number of errors after which a client is disconnected with the code 3509; default 100.
    #[must_use]
    pub fn errors_max(mut self, errors: u32) -> Centrifuge {
        self.settings.errors_max = errors;
        self
    }

    /// Sets the time for the pong of a client, after which it is disconnected with the code 3012; default 8 s. The time
    /// between two pings is that of the hub's [`Heartbeat`](crate::Heartbeat).
    #[must_use]
    pub fn pong_timeout(mut self, timeout: Duration) -> Centrifuge {
        self.settings.pong_timeout = timeout;
        self
    }

    /// Refuses *rpc* with the error 104. By default it is a call of a method of the server, for which the rules of the
    /// server apply.
    #[must_use]
    pub fn without_calls(mut self) -> Centrifuge {
        self.settings.has_calls = false;
        self
    }

    /// Returns the counters of all servers with this plugin.
    pub fn stats(&self) -> CentrifugeStats {
        self.counters.stats()
    }
}

impl Plugin for Centrifuge {
    fn name(&self) -> &'static str {
        "centrifuge"
    }

    fn wires(&self) -> Vec<&'static WireSpec> {
        vec![&CENTRIFUGE]
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![self.counters.clone()]
    }

    fn start(&self, context: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        let shared = Arc::new(Context {
            hub: self.hub.clone(),
            settings: self.settings,
            counters: self.counters.clone(),
            services: context.services.clone(),
        });
        let (settings, counters) = (self.settings, self.counters.clone());
        let make = move |engine| CentrifugeAdapter::new(shared.clone(), engine);
        let engines = Engines::new(self.options, Some(context.memory), make);
        Ok(Arc::new(CentrifugeServer::new(engines, settings, counters)))
    }
}

impl fmt::Debug for Centrifuge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Centrifuge").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
