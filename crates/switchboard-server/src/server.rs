//! The server: services behind listeners, with every protocol on each listener.

mod accept;
#[cfg(feature = "channelz")]
mod channelz;
mod guarding;
#[cfg(feature = "handover")]
mod handover;
mod lifecycle;
mod listening;
mod live;
mod mismatch;
mod options;
mod plugin;
mod registration;

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
    Error, Extensions, Limit, Limits, Service,
    access::Access,
    compression::Serving,
    flags::{Flag, Flags},
    limits::Source,
    metrics::{self, ServerStats},
};
use switchboard_driver::serving::{Live, Phase, ServerParts, ServerState};
use switchboard_guard::{
    dispatch::{Guarded, GuardedService},
    guard::{Guards, Unknown},
};
#[cfg(feature = "http")]
use switchboard_http::{
    Cors, HttpJson,
    http::{Hosts, HttpConfig, HttpState, Pages, Rest, WebSocketOptions},
};
#[cfg(feature = "tls")]
use switchboard_net::net::tls::Tls;
use switchboard_net::net::{Address, Listener};
use switchboard_wire::{MethodTable, WireId, WireSet};
#[cfg(feature = "tls")]
use tokio::sync::watch;

/// Builder of a server: services and listeners. Takes effect with [`serve`](Server::serve) or
/// [`start`](Server::start).
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

    /// Listens at `address`: `tcp://0.0.0.0:8080`, `tcp://[::]:0`, `unix:/run/app.sock`, `memory://name`,
    /// `tls://0.0.0.0:8443?cert=cert.pem&key=key.pem`.
    ///
    /// Options of the listener can follow a `?`, separated by `&`: limits by name, and for TLS `cert=FILE`,
    /// `key=FILE`, `client_ca=FILE`, `client=required|optional` and `tls=only|optional`, where `optional`
    /// serves connections without TLS too. See `Tls` for their meaning.
    pub fn listen(self, address: impl Into<String>) -> Server {
        self.listen_with(address, [])
    }

    /// Listens at `address` with its own limits.
    pub fn listen_with(mut self, address: impl Into<String>, limits: impl Into<Vec<(Limit, u64)>>) -> Server {
        self.listeners.push(Listening::new(address.into(), limits.into()));
        self
    }

    /// Accepts connections from `listener`, a transport of the application. `address` is its public address, with the
    /// options of [`listen`](Self::listen); nothing is bound at it. Connections at an address of `tcp://` or `tls://`
    /// may use TLS.
    pub fn listen_on(
        mut self,
        address: impl Into<String>,
        listener: impl switchboard_net::transport::Listener,
    ) -> Server {
        self.listeners.push(Listening::new(address.into(), Vec::new()).on(Box::new(listener)));
        self
    }

    /// Listens at `address`, `tcp://HOST:PORT` or `tls://HOST:PORT`, with TLS.
    #[cfg(feature = "tls")]
    pub fn listen_tls(mut self, address: impl Into<String>, tls: Tls) -> Server {
        self.listeners.push(Listening::new(address.into(), Vec::new()).tls(tls));
        self
    }

    /// Sets a limit for all listeners, in its [unit](Limit::unit).
    pub fn limit(mut self, limit: Limit, value: u64) -> Server {
        if let Err(error) = self.limits.set(limit, value, Source::Server) {
            self.config_errors.push(error);
        }
        self
    }

    /// Sets a limit of one method, `package.Service/Method`, above or below the one of the server and its
    /// listeners. The only limit per method is [`Limit::MessageBytesMax`], for request messages.
    pub fn method_limit(mut self, method: impl Into<String>, limit: Limit, value: u64) -> Server {
        let method = method.into();
        let mut checked = Limits::default();
        if limit != Limit::MessageBytesMax {
            let text = format!(
                "{} cannot be set for one method ({method}): only message_bytes_max can",
                limit.name()
            );
            self.config_errors.push(Error::config(text));
        } else if let Err(error) = checked.set(limit, value, Source::Server) {
            self.config_errors.push(error);
        }
        self.method_limits.push((method, checked.get(Limit::MessageBytesMax) as u32));
        self
    }

    /// Sets whether compressed messages are accepted on the native wire, and replies to them compressed;
    /// default true. Replies are compressed only for callers that request it. On HTTP, compression is always
    /// available to callers.
    pub fn compression(mut self, on: bool) -> Server {
        self.compression.on = on;
        self
    }

    /// Sets the minimum size of compressed replies on the native wire; default 512 bytes.
    pub fn compression_bytes_min(mut self, bytes: u32) -> Server {
        self.compression.bytes_min = bytes;
        self
    }

    /// Sets whether replies of one method, `package.Service/Method`, are compressed on the native wire for
    /// callers that request it. Turn it off for images and other compressed content. Compressed requests are
    /// always accepted.
    pub fn method_compression(mut self, method: impl Into<String>, on: bool) -> Server {
        self.method_compression.push((method.into(), on));
        self
    }

    /// Allows browsers to call from pages of other origins, in every HTTP protocol; off by default.
    #[cfg(feature = "http")]
    pub fn cors(mut self, cors: Cors) -> Server {
        if let Err(what) = cors.check() {
            self.config_errors.push(Error::config(format!("cors: {what}")));
        }
        self.cors = Some(cors);
        self
    }

    /// Adds a host name of the server for browsers, `app.example`. This protects from DNS rebinding, which
    /// makes a page of any domain same-origin with this server.
    ///
    /// With a name, HTTP requests for other names get 421, except requests for an address, `localhost` or a
    /// name below it, and requests over a pipe or a Unix socket. Without a name, the same is checked only for
    /// browser requests from this machine: add the public name if a reverse proxy on this machine passes it
    /// on.
    #[cfg(feature = "http")]
    pub fn host(mut self, name: impl AsRef<str>) -> Server {
        if let Err(what) = self.hosts.add(name.as_ref()) {
            self.config_errors.push(Error::config(format!("host: {what}")));
        }
        self
    }

    /// Sets the options of HTTP/JSON.
    #[cfg(feature = "http")]
    pub fn http_json(mut self, options: HttpJson) -> Server {
        self.http_json = options;
        self
    }

    /// Serves these bytes for GET and HEAD of `path`, for a web page that calls the services; see
    /// `examples/browser`.
    ///
    /// The path is compared literally and takes precedence over other handlers; other HTTP methods are not
    /// affected. The content is stored once. Pages are sent with a strict `Content-Security-Policy`: a page
    /// can load scripts, styles, images and fonts only from this server, must not contain them inline, can
    /// connect only to this server (including WebSockets on the same host and port), and cannot be framed.
    /// Browsers revalidate it each time. [`start`](Server::start) fails on an invalid path or type, and on
    /// two pages at one path.
    ///
    /// ```
    /// let html = "<!doctype html><title>up</title>";
    /// let server = switchboard::Server::new().page("/", "text/html; charset=utf-8", html);
    /// ```
    #[cfg(feature = "http")]
    pub fn page(
        mut self,
        path: impl Into<String>,
        content_type: &str,
        content: impl Into<bytes::Bytes>,
    ) -> Server {
        if let Err(what) = self.pages.add(&path.into(), content_type, content.into()) {
            self.config_errors.push(Error::config(format!("page: {what}")));
        }
        self
    }

    /// Allows web pages of these origins to open WebSockets: `https://app.example`, or `*` for all. Pages of
    /// the host and port that the request names are allowed if that is an address, `localhost` or a
    /// [`host`](Server::host) of the server. Callers other than browsers are not affected.
    #[cfg(feature = "http")]
    pub fn websocket_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.websockets.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Compresses WebSocket messages in both directions for callers that offer it (RFC 7692), as browsers
    /// always do.
    ///
    /// Off by default: it costs time, about 50 KiB for each connection on which a compressed message is
    /// arriving, and 300 KiB per thread. The sizes of messages also reveal something about their content if
    /// they contain secrets next to text that an attacker can choose. Neither side keeps its window between
    /// messages. Limits apply to the decompressed size; short messages are never compressed.
    #[cfg(feature = "http")]
    pub fn websocket_deflate(mut self) -> Server {
        self.websockets.deflate = true;
        self
    }

    /// Also serves `grpc.channelz.v1.Channelz`, unless a service of that name was added: it shows this
    /// server, its listeners, and every connection with its addresses and counters.
    ///
    /// Off by default, as in every gRPC implementation: a caller of this service sees the other callers.
    /// Connections count their calls and messages only if it is on.
    #[cfg(feature = "channelz")]
    pub fn channelz(mut self) -> Server {
        self.channelz = true;
        self
    }

    /// Replaces all limits, including their sources.
    pub fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
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

    async fn bind_and_serve(mut self) -> Result<Running, Error> {
        if let Some(error) = self.config_errors.pop() {
            return Err(error);
        }
        if self.listeners.is_empty() {
            return Err(Error::config("the server has no listener: add .listen(\"tcp://127.0.0.1:8080\")"));
        }
        #[cfg(feature = "http")]
        let admin = match self.admin.take() {
            None => None,
            Some(admin) => Some((admin.check()?, admin)),
        };
        let live = Live::new(&self.limits);
        let mut flags = Flags::default();
        for flag in self.flags.drain(..).chain(self.access.flags()).chain(live.flags()) {
            flags.add(flag)?;
        }
        let service_names: Vec<_> = self.services.iter().map(|service| service.info().name).collect();
        #[cfg(feature = "channelz")]
        let shown = channelz::Shown::default();
        #[cfg(feature = "channelz")]
        if self.channelz && self.services.iter().all(|service| service.info().name != shown.info().name) {
            self = self.add(shown.service());
        }
        let mut table = MethodTable::default();
        for service in &self.services {
            table.add(service.info()).map_err(Error::config)?;
        }
        if let Some((_, services)) = &self.fallback {
            table.accept_undeclared(services.clone()).map_err(Error::config)?;
        }
        for (method, bytes) in &self.method_limits {
            table
                .limit_messages(method, *bytes)
                .map_err(|why| Error::config(format!("method_limit: {why}")))?;
        }
        for (method, on) in self.method_compression {
            let known = table.find(&method);
            let known = known.ok_or_else(|| table.unknown(&method).message().to_owned());
            let known = known.map_err(|why| Error::config(format!("method_compression: {why}")))?;
            self.compression.plain.retain(|plain| *plain != known);
            if !on {
                self.compression.plain.push(known);
            }
        }
        self.guards.name(&mut table)?;
        #[cfg(feature = "http")]
        let rest = Rest::new(&table, self.http_json).map_err(Error::config)?;
        let listeners = self.listeners.into_iter().map(|listening| listening.resolve(&self.limits));
        let mut listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let wires = self.guards.wires.unwrap_or_else(WireSet::built_in).or(self.guards.added_wires);
        for listener in &mut listeners {
            listener.wires = listener.wires.and(wires);
        }
        let limited = listeners.iter().any(|listener| !listener.wires.has_all(WireSet::built_in()));
        let has_auth = !self.guards.auth.is_empty();
        if has_auth {
            table.guard_unknown().map_err(Error::config)?;
        }
        let guarding = self.guards.build(&table, limited)?;
        guarding.unlist(&mut table);
        let table = Arc::new(table);
        let others = self.fallback.map(|(service, _)| service);
        let unknown = table
            .guards_unknown()
            .then(|| Arc::new(Guarded::new(Unknown::new(&table, &guarding))) as Arc<dyn GuardedService>);
        let services = self.services.into_iter().chain(others).chain(unknown).enumerate();
        let services = services.map(|(at, service)| service.guarded(guarding.chain(at))).collect();
        #[cfg(feature = "channelz")]
        let counts_sockets = self.channelz;
        #[cfg(not(feature = "channelz"))]
        let counts_sockets = false;
        let shared = Arc::new(ServerState::new(ServerParts {
            table,
            services,
            guarding,
            wires,
            limits: self.limits,
            live,
            flags,
            access: self.access,
            compression: self.compression,
            strict_fields: self.strict_fields,
            extensions: self.extensions,
            counts_sockets,
        }));
        plugin::start(self.plugins, &shared, has_auth)?;
        #[cfg(not(feature = "http"))]
        let http = accept::Http;
        #[cfg(feature = "http")]
        let http = Arc::new(HttpState::new(
            shared.clone(),
            HttpConfig {
                rest,
                cors: self.cors.map(Arc::new),
                hosts: self.hosts,
                pages: self.pages,
                websockets: self.websockets,
            },
        ));
        #[cfg(feature = "channelz")]
        shown.show(&shared);
        #[cfg(feature = "handover")]
        let (mut inherited, mut offered) = match &self.handover {
            None => (handover::Inherited::default(), Vec::new()),
            Some(path) => (handover::Inherited::request(path).await?, Vec::new()),
        };
        let mut bound = Vec::new();
        for mut resolved in listeners {
            let custom = resolved.listener.take();
            let resolved = resolved;
            let failed = |error| Error::bind(format!("listen on {}: {error}", resolved.address), error);
            #[cfg(feature = "handover")]
            let listener = match (custom, inherited.take(&resolved.address)) {
                (Some(listener), _) => Listener::Custom(listener, resolved.address.clone()),
                (None, Some(socket)) => Listener::from_socket(socket).map_err(failed)?,
                (None, None) => Listener::bind(&resolved.address).await.map_err(failed)?,
            };
            #[cfg(feature = "handover")]
            if self.handover.is_some()
                && let Some(socket) = listener.socket().map_err(failed)?
            {
                offered.push((handover::key(&resolved.address), socket));
            }
            #[cfg(not(feature = "handover"))]
            let listener = match custom {
                Some(listener) => Listener::Custom(listener, resolved.address.clone()),
                None => Listener::bind(&resolved.address).await.map_err(failed)?,
            };
            let address = resolved.public(listener.address().map_err(failed)?);
            bound.push((listener, address, resolved));
        }
        #[cfg(feature = "tls")]
        let (stop, stopped) = watch::channel(());
        let (mut addresses, mut accepting) = (Vec::new(), Vec::new());
        #[cfg(feature = "tls")]
        let mut acceptors = Vec::new();
        for (listener, address, resolved) in bound {
            addresses.push(address);
            #[cfg(feature = "tls")]
            if let Some(acceptor) = &resolved.acceptor {
                switchboard_core::runtime::spawn(acceptor.clone().keep_fresh(stopped.clone()));
                acceptors.push(acceptor.clone());
            }
            accepting.push((listener, resolved));
        }
        // Set once; see the addresses below.
        #[cfg(feature = "tls")]
        let _ = shared.acceptors.set(acceptors);
        let listening = addresses.iter().map(|address| (metrics::next_id(), address.clone()));
        // This is the only place that sets it, before connections are accepted.
        let _ = shared.listening.set(listening.collect());
        let mut running = Running {
            shared,
            addresses,
            #[cfg(feature = "tls")]
            stop: Some(stop),
            acceptors: None,
            hooks: self.hooks,
            registrations: None,
            #[cfg(feature = "handover")]
            waiting: None,
            #[cfg(feature = "http")]
            admin: None,
            #[cfg(feature = "http")]
            http: http.clone(),
        };
        #[cfg(feature = "http")]
        if let Some((address, admin)) = admin {
            running.admin = Some(crate::admin::start(admin, &address, running.shared.clone()).await?);
        }
        // During a warm-up, probes report that the server is not ready.
        let is_ready = running.hooks().warm_up.is_empty();
        running.set_phase(if is_ready { Phase::Serving } else { Phase::Starting });
        for address in &running.addresses {
            tracing::info!(%address, "listening");
        }
        let mut acceptors = accept::Acceptors::new();
        for (listener, resolved) in accepting {
            acceptors.add(listener, running.shared.clone(), http.clone(), resolved);
        }
        running.acceptors = Some(acceptors);
        running.begin(&self.templates, &service_names, self.registration_notice).await?;
        #[cfg(feature = "handover")]
        if let (Some(path), Some(registrations)) = (self.handover, &running.registrations) {
            inherited.ready(registrations.names()).await;
            running.waiting = Some(handover::Waiting::at(&path, offered, registrations.taken())?);
        }
        Ok(running)
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
