//! The server: services behind listeners, with every protocol on each listener.

mod accept;
#[cfg(feature = "channelz")]
mod channelz;
#[cfg(feature = "handover")]
mod handover;
mod lifecycle;
mod listening;
mod live;
mod mismatch;
mod plugin;
mod registration;
mod setters;
mod start;

use lifecycle::Hooks;
pub use lifecycle::{AbortedCalls, AbortedConnections, StopOptions, Stopped};
use listening::Listening;
use registration::{RegistrationTemplate, Registrations};
use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};
use switchboard_core::{
    Error, Extensions, Layer, Limits, Service, access::Access, compression::Serving, counters::CounterSource,
    flags::Flag, metrics::ServerStats,
};
use switchboard_driver::serving::{ServerState, Sources};
use switchboard_guard::{
    dispatch::{Guarded, GuardedService},
    guard::Guards,
};
#[cfg(feature = "http")]
use switchboard_http::{
    Cors, HttpJson,
    http::{Hosts, HttpState, Pages, WebSocketOptions},
};
use switchboard_net::{net::Address, plugin::Plugin};
use switchboard_wire::WireId;
#[cfg(feature = "tls")]
use tokio::sync::watch;

/// Builder of a server: services and listeners. Takes effect with [`serve`](Server::serve) or
/// [`start`](Server::start). [`new`](Server::new) and [`minimal`](Server::minimal) create it; these functions set it:
///
/// - Services: `add`, `fallback`, `alias`, `expose`, `hide`, `plugin`.
/// - Listeners: `listen`, `listen_with`, `listen_on`, `listen_tls`.
/// - Limits: `limit`, `limits`, `method_limit`, `deadline_max`, `deadline_max_by_flag`, `method_deadline_max`.
/// - Wires and messages: `wires`, `wire`, `compression`, `compression_bytes_min`, `method_compression`,
///   `strict_fields`.
/// - HTTP and WebSockets: `cors`, `host`, `http_json`, `page`, `websocket_origins`, `websocket_deflate`.
/// - Calls: `layer`, `extension`, `result_cache`, `concurrency`, `fair`, `service_concurrency`, `method_concurrency`,
///   `rate`.
/// - Access: `auth`, `rule`, `allow_addresses`, `deny_addresses`, `on_connect`, `on_disconnect`.
/// - Observation: `access_log`, `slow_call`, `flag`, `counters`, `admin`, `channelz`.
/// - Start and stop: `warm_up`, `on_start`, `on_stop`, `notice`, `handover`, `register`, `registration_notice`.
///
/// ```no_run
/// # async fn run() -> Result<(), switchboard::Error> {
/// switchboard::Server::new().listen("tcp://0.0.0.0:8080").serve().await
/// # }
/// ```
#[must_use = "a server does nothing until `serve` or `start`"]
pub struct Server {
    services: Vec<Arc<dyn GuardedService>>,
    /// Service for undeclared methods: of these services, or of all services if the list is empty.
    fallback: Option<(Arc<dyn GuardedService>, Vec<String>)>,
    listeners: Vec<Listening>,
    limits: Limits,
    method_limits: Vec<(String, u32)>,
    #[cfg(feature = "http")]
    websockets: WebSocketOptions,
    compression: Serving,
    /// Refuse requests with fields that their types do not have.
    strict_fields: bool,
    /// Values that all calls share.
    extensions: Extensions,
    /// Methods whose replies are compressed or not, independently of the default.
    method_compression: Vec<(String, bool)>,
    config_errors: Vec<Error>,
    access: Access,
    flags: Vec<Flag>,
    hooks: Mutex<Hooks>,
    #[cfg(feature = "handover")]
    handover: Option<std::path::PathBuf>,
    #[cfg(feature = "http")]
    admin: Option<crate::admin::Admin>,
    guards: Guards,
    plugins: Vec<plugin::AddedPlugin>,
    sources: Sources,
    templates: Vec<RegistrationTemplate>,
    registration_notice: Duration,
    #[cfg(feature = "channelz")]
    channelz: bool,
    #[cfg(feature = "http")]
    cors: Option<Cors>,
    #[cfg(feature = "http")]
    hosts: Hosts,
    #[cfg(feature = "http")]
    http_json: HttpJson,
    #[cfg(feature = "http")]
    pages: Pages,
}

impl Default for Server {
    fn default() -> Self {
        Server::new()
    }
}

impl Server {
    /// Creates a server without services and listeners.
    pub fn new() -> Server {
        Server {
            services: Vec::new(),
            fallback: None,
            listeners: Vec::new(),
            limits: Limits::default(),
            method_limits: Vec::new(),
            #[cfg(feature = "http")]
            websockets: Default::default(),
            compression: Serving::default(),
            method_compression: Vec::new(),
            config_errors: Vec::new(),
            access: Access::default(),
            flags: Vec::new(),
            hooks: Mutex::default(),
            #[cfg(feature = "handover")]
            handover: None,
            #[cfg(feature = "http")]
            admin: None,
            guards: Guards::default(),
            plugins: Vec::new(),
            sources: Sources::default(),
            strict_fields: false,
            extensions: Extensions::default(),
            templates: Vec::new(),
            registration_notice: Duration::from_secs(1),
            #[cfg(feature = "channelz")]
            channelz: false,
            #[cfg(feature = "http")]
            cors: None,
            #[cfg(feature = "http")]
            hosts: Default::default(),
            #[cfg(feature = "http")]
            http_json: HttpJson::new(),
            #[cfg(feature = "http")]
            pages: Pages::default(),
        }
    }

    /// Creates a server without services and listeners that accepts only the native wire, gRPC and Connect;
    /// [`wire`](Self::wire) adds others.
    pub fn minimal() -> Server {
        let mut server = Server::new();
        server.guards.wires = Some([WireId::NATIVE, WireId::GRPC, WireId::CONNECT].into_iter().collect());
        server
    }

    /// Serves until Ctrl-C or SIGTERM, then [stops](Running::stop): calls have `drain_timeout` to end. A
    /// second signal closes all connections at once.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start).
    pub async fn serve(self) -> Result<(), Error> {
        let running = self.start().await?;
        tokio::select! {
            () = interrupted() => {}
            () = running.handed_over() => {}
        }
        tokio::select! {
            () = running.stop_logged() => {}
            () = interrupted() => tracing::warn!("stopped at once: a second signal came"),
        }
        Ok(())
    }

    /// Serves until `stop` resolves, then [stops](Running::stop).
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start).
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let running = self.start().await?;
        tokio::select! {
            () = stop => {}
            () = running.handed_over() => {}
        }
        running.stop_logged().await;
        Ok(())
    }

    /// Binds all addresses and starts to serve.
    ///
    /// Cancel safe: dropping the future closes the bound sockets.
    ///
    /// # Errors
    /// Fails without a listener or a service, on two services with one name, on HTTP paths that do not fit
    /// their methods or belong to two methods, on an invalid address, and on an address that cannot be bound.
    pub async fn start(self) -> Result<Running, Error> {
        self.start_boxed().await
    }

    /// Boxes the future, so that this crate has its code. The code of an async function is compiled by each crate that
    /// polls it, and this one reaches all connections and protocols.
    fn start_boxed(self) -> switchboard_core::layer::BoxFuture<'static, Result<Running, Error>> {
        Box::pin(self.bind_and_serve())
    }
}

/// Setters whose argument implements a trait of Switchboard. They are beside the type, and not with the others in
/// `setters`, so that the compiler names them `Server::add` where the argument does not.
impl Server {
    /// Adds a service, usually a generated `…Server`.
    #[expect(clippy::should_implement_trait, reason = "a server is not a sum")]
    pub fn add(mut self, service: impl Service) -> Server {
        self.services.push(Arc::new(Guarded::new(service)));
        self
    }

    /// Routes calls of services that were not added to this service, such as
    /// `Forward`: calls of `services`, or of any service if the list is empty. It
    /// receives messages as bytes, and the called name in [`Call::full_name`](switchboard_core::Call::full_name),
    /// [`Cx::service_name`](switchboard_core::Cx::service_name) and
    /// [`Cx::method_name`](switchboard_core::Cx::method_name).
    ///
    /// Names are not stored beyond their calls: callers cannot exhaust a table with them. Settings and
    /// counters by method apply to all these methods together, under the name `*`.
    pub fn fallback(
        mut self,
        service: impl Service,
        services: impl IntoIterator<Item = impl Into<String>>,
    ) -> Server {
        let services = services.into_iter().map(Into::into).collect();
        self.fallback = Some((Arc::new(Guarded::new(service)), services));
        self
    }

    /// Wraps every call in a layer, inside the layers that were added before.
    pub fn layer(mut self, layer: impl Layer) -> Server {
        self.guards.layers.push(Arc::new(layer));
        self
    }

    /// Adds a plugin: services, HTTP paths, and wires whose whole connections it serves.
    ///
    /// Calls of its services and requests to its paths are calls like all others. The server applies its rules for
    /// connections before it hands one over: addresses, TLS, allowed wires, hooks, `connections_max`.
    /// [`start`](Server::start) fails on a wire that another plugin has, on one whose calls the server handles itself,
    /// and on a path that exists or whose method the server does not have.
    pub fn plugin(mut self, plugin: impl Plugin) -> Server {
        self.add_plugin(Box::new(plugin));
        self
    }

    /// Shows the counters of a part of the application in the metrics and on admin pages, under a name that no other
    /// source has; see [`counters`](switchboard_core::counters). Plugins add theirs themselves.
    ///
    /// [`start`](Server::start) fails on a name that another source has, and on a kind that cannot be a part of the
    /// names of metrics.
    pub fn counters(mut self, name: impl Into<String>, source: impl CounterSource) -> Server {
        let name = name.into();
        if let Err(why) = self.sources.add(name.clone(), Arc::new(source)) {
            self.config_errors.push(Error::config(format!("counters {name:?}: {why}")));
        }
        self
    }
}

/// A running server. Dropping it stops accepting and closes every connection at once; prefer
/// [`drain`](Running::drain).
#[must_use = "dropping a running server ends it"]
pub struct Running {
    shared: Arc<ServerState>,
    addresses: Vec<Address>,
    /// Dropping it ends the reloading of certificates.
    #[cfg(feature = "tls")]
    stop: Option<watch::Sender<()>>,
    /// Set once connections are accepted, until the server stops.
    acceptors: Option<accept::Acceptors>,
    hooks: Mutex<Hooks>,
    /// Dropping it ends the offer of the sockets to a successor.
    #[cfg(feature = "handover")]
    waiting: Option<handover::Waiting>,
    #[cfg(feature = "http")]
    admin: Option<(Address, tokio::task::AbortHandle)>,
    #[cfg(feature = "http")]
    http: Arc<HttpState>,
    registrations: Option<Registrations>,
}

/// Result of a drain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// Number of connections that were closed with calls in flight.
    pub aborted: usize,
}

impl Running {
    /// Returns the addresses of the listeners, with the ports that the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the first address as text, for clients in tests.
    pub fn url(&self) -> String {
        self.addresses[0].to_string()
    }

    /// Returns the limits of the server; listeners may override them.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Returns the current counters.
    pub fn stats(&self) -> ServerStats {
        self.shared.stats()
    }

    /// Reloads the certificates of every listener whose files have changed. Listeners whose files cannot be
    /// used keep their current certificates. Open connections are not affected.
    ///
    /// # Errors
    /// Returns the first file that cannot be used, and why.
    #[cfg(feature = "tls")]
    pub fn reload_tls(&self) -> Result<(), Error> {
        let outcomes: Vec<_> = self.shared.acceptors().iter().map(|acceptor| acceptor.reload()).collect();
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }
}

impl Running {
    /// Closes everything at once, as a crash would; for tests.
    pub fn kill(self) {
        if let Some(registrations) = &self.registrations {
            registrations.kill();
        }
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(feature = "http")]
        if let Some((_, admin)) = &self.admin {
            admin.abort();
        }
        self.shared.abort_all();
    }
}

/// Resolves on Ctrl-C or, on Unix, SIGTERM.
async fn interrupted() {
    let terminate = tokio::signal::unix::SignalKind::terminate();
    let Ok(mut terminate) = tokio::signal::unix::signal(terminate) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
