//! A server: services behind listeners, every caller on each of them.

mod accept;

use crate::{
    Error, Limit, Limits, Service,
    driver::{Erased, ErasedService, Wakes},
    limits::Source,
    metrics::{Metrics, ServerStats},
    net::{Address, Listener},
    runtime,
};
use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use switchboard_wire::MethodTable;
use tokio::sync::watch;

/// Services and where they listen; nothing happens before [`serve`](Server::serve) or [`start`](Server::start).
///
/// ```no_run
/// # async fn run() -> Result<(), switchboard::Error> {
/// switchboard::Server::new().listen("tcp://0.0.0.0:8080").serve().await
/// # }
/// ```
#[must_use = "a server does nothing until `serve` or `start`"]
pub struct Server {
    services: Vec<Arc<dyn ErasedService>>,
    listeners: Vec<(String, Vec<(Limit, u64)>)>,
    limits: Limits,
    method_limits: Vec<(String, u32)>,
    websocket_origins: Vec<String>,
    mistakes: Vec<Error>,
    #[cfg(feature = "http")]
    cors: Option<crate::Cors>,
    #[cfg(feature = "http")]
    http_json: crate::HttpJson,
}

impl Default for Server {
    fn default() -> Self {
        Server::new()
    }
}

impl Server {
    /// A server without services and listeners.
    pub fn new() -> Server {
        Server {
            services: Vec::new(),
            listeners: Vec::new(),
            limits: Limits::default(),
            method_limits: Vec::new(),
            websocket_origins: Vec::new(),
            mistakes: Vec::new(),
            #[cfg(feature = "http")]
            cors: None,
            #[cfg(feature = "http")]
            http_json: crate::HttpJson::new(),
        }
    }

    /// Adds a service, usually a generated `…Server`.
    #[expect(clippy::should_implement_trait, reason = "a server is not a sum")]
    pub fn add(mut self, service: impl Service) -> Server {
        self.services.push(Arc::new(Erased(Arc::new(service))));
        self
    }

    /// Listens at `address`: `tcp://0.0.0.0:8080`, `tcp://[::]:0`, `unix:/run/app.sock`, `memory://name`.
    pub fn listen(self, address: impl Into<String>) -> Server {
        self.listen_with(address, [])
    }

    /// Listens at `address` with limits of its own.
    pub fn listen_with(mut self, address: impl Into<String>, limits: impl Into<Vec<(Limit, u64)>>) -> Server {
        self.listeners.push((address.into(), limits.into()));
        self
    }

    /// Sets a limit for all listeners, in its [unit](Limit::unit).
    pub fn limit(mut self, limit: Limit, value: u64) -> Server {
        if let Err(error) = self.limits.set(limit, value, Source::Server) {
            self.mistakes.push(error);
        }
        self
    }

    /// Sets a limit for one method, `package.Service/Method`, above or below that of the server and its listeners.
    /// Methods have one limit of their own: [`Limit::MessageBytesMax`], for request messages.
    pub fn method_limit(mut self, method: impl Into<String>, limit: Limit, value: u64) -> Server {
        let method = method.into();
        let mut checked = Limits::default();
        if limit != Limit::MessageBytesMax {
            let text = format!(
                "{} cannot be set for one method ({method}): only message_bytes_max can",
                limit.name()
            );
            self.mistakes.push(Error::config(text));
        } else if let Err(error) = checked.set(limit, value, Source::Server) {
            self.mistakes.push(error);
        }
        self.method_limits.push((method, checked.get(Limit::MessageBytesMax) as u32));
        self
    }

    /// Lets pages of other origins call from browsers, in every dialect of HTTP; off unless set.
    #[cfg(feature = "http")]
    pub fn cors(mut self, cors: crate::Cors) -> Server {
        if let Err(what) = cors.check() {
            self.mistakes.push(Error::config(format!("cors: {what}")));
        }
        self.cors = Some(cors);
        self
    }

    /// Changes how HTTP/JSON is spoken.
    #[cfg(feature = "http")]
    pub fn http_json(mut self, options: crate::HttpJson) -> Server {
        self.http_json = options;
        self
    }

    /// Lets web pages of these origins open WebSockets, `https://app.example`, or of all with `*`; pages that came
    /// from the same host and port may always. Callers that are no browsers are not concerned.
    pub fn websocket_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.websocket_origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Replaces all limits, sources included.
    pub fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
    }

    /// Serves until Ctrl-C or SIGTERM, then drains.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn serve(self) -> Result<(), Error> {
        self.serve_until(interrupted()).await
    }

    /// Serves until `stop` is ready, then drains.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let running = self.start().await?;
        stop.await;
        let limit = running.shared.limits.drain_timeout();
        running.drain(limit).await;
        Ok(())
    }

    /// Binds all addresses and begins to serve.
    ///
    /// Cancel safe: when dropped, what was bound is closed again.
    ///
    /// # Errors
    /// No listener or service, two services of one name, HTTP paths that do not fit their methods or belong to two, a
    /// wrong address, an address that cannot be bound.
    pub async fn start(mut self) -> Result<Running, Error> {
        if let Some(mistake) = self.mistakes.pop() {
            return Err(mistake);
        }
        if self.listeners.is_empty() {
            return Err(Error::config("the server listens nowhere: add .listen(\"tcp://127.0.0.1:8080\")"));
        }
        let mut table = MethodTable::default();
        for service in &self.services {
            table.add(service.info()).map_err(Error::config)?;
        }
        for (method, bytes) in &self.method_limits {
            table
                .limit_messages(method, *bytes)
                .map_err(|why| Error::config(format!("method_limit: {why}")))?;
        }
        #[cfg(feature = "http")]
        let rest = crate::http::Rest::new(&table, self.http_json).map_err(Error::config)?;
        let table = Arc::new(table);
        let shared = Arc::new(Shared {
            metrics: Metrics::new(table.clone(), runtime::worker_count()),
            table,
            services: self.services,
            limits: self.limits,
            parked: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            open: Mutex::default(),
            #[cfg(feature = "http")]
            websocket_origins: self.websocket_origins,
            #[cfg(feature = "http")]
            drain_http: watch::Sender::new(false),
            #[cfg(feature = "http")]
            http: std::sync::OnceLock::new(),
            #[cfg(feature = "http")]
            rest,
            #[cfg(feature = "http")]
            cors: self.cors.map(Arc::new),
        });
        let mut bound = Vec::new();
        for (text, own) in self.listeners {
            let address: Address =
                text.parse().map_err(|status: crate::Status| Error::config(status.message()))?;
            let mut limits = shared.limits.clone();
            for (limit, value) in own {
                limits.set(limit, value, Source::Listener)?;
            }
            let listener = Listener::bind(&address).await;
            let listener =
                listener.map_err(|error| Error::bind(format!("listen on {address}: {error}"), error))?;
            let address = listener
                .address()
                .map_err(|error| Error::bind(format!("listen on {address}: {error}"), error))?;
            bound.push((listener, address, limits));
        }
        let (stop, stopped) = watch::channel(());
        let mut addresses = Vec::new();
        for (listener, address, limits) in bound {
            addresses.push(address);
            tokio::spawn(accept::run(listener, shared.clone(), limits, stopped.clone()));
        }
        Ok(Running { shared, addresses, stop: Some(stop) })
    }
}

/// A server that serves. Dropping it stops accepting and cuts every connection; [`drain`](Running::drain) is kinder.
#[must_use = "dropping a running server ends it"]
pub struct Running {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    /// The acceptors end when it is dropped.
    stop: Option<watch::Sender<()>>,
}

/// What was left when a drain ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections that had to be cut.
    pub cut: usize,
}

impl Running {
    /// Where the server listens, with the ports that the system chose.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The first address as text, for clients in tests.
    pub fn url(&self) -> String {
        self.addresses[0].to_string()
    }

    /// The limits of the server, before those of single listeners.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// What was counted so far.
    pub fn stats(&self) -> ServerStats {
        let metrics = &self.shared.metrics;
        ServerStats {
            accepted: metrics.accepted.load(Ordering::Relaxed),
            connections: self.shared.open().len() as u64,
            calls_in_flight: self.shared.parked.load(Ordering::Relaxed) as u64,
            unknown_protocol: metrics.unknown_protocol.load(Ordering::Relaxed),
            protocol_errors: metrics.protocol_errors.load(Ordering::Relaxed),
            methods: metrics.methods(),
        }
    }

    /// Stops accepting, tells every peer, lets calls end, and cuts what is left after `limit`. Always ends.
    ///
    /// Cancel safe: dropped before its end, it cuts every connection.
    pub async fn drain(mut self, limit: Duration) -> Drained {
        let end = Instant::now() + limit;
        self.stop = None;
        let shared = &self.shared;
        shared.draining.store(true, Ordering::Relaxed);
        #[cfg(feature = "http")]
        shared.drain_http.send_replace(true);
        for connection in shared.open().values() {
            connection.wakes.wake();
        }
        loop {
            let cut = shared.open().len();
            if cut == 0 {
                return Drained { cut };
            }
            if Instant::now() >= end {
                return Drained { cut };
            }
            tokio::time::sleep(Duration::from_millis(5).min(end.saturating_duration_since(Instant::now())))
                .await;
        }
    }
}

impl Running {
    /// Cuts everything at once, as a crash would; for tests.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.cut_all();
    }
}

/// What all connections of a server share.
pub(crate) struct Shared {
    pub(crate) table: Arc<MethodTable>,
    pub(crate) services: Vec<Arc<dyn ErasedService>>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    /// Calls that wait in handlers, on all connections. Calls that are ready at once are never counted here, so
    /// the hot path shares no counter.
    pub(crate) parked: AtomicUsize,
    pub(crate) draining: AtomicBool,
    open: Mutex<HashMap<u64, Open>>,
    /// Of pages that may open WebSockets.
    #[cfg(feature = "http")]
    pub(crate) websocket_origins: Vec<String>,
    #[cfg(feature = "http")]
    pub(crate) drain_http: watch::Sender<bool>,
    /// What HTTP connections share; made by the first.
    #[cfg(feature = "http")]
    pub(crate) http: std::sync::OnceLock<Arc<crate::http::Standard>>,
    #[cfg(feature = "http")]
    pub(crate) rest: crate::http::Rest,
    #[cfg(feature = "http")]
    pub(crate) cors: Option<Arc<crate::Cors>>,
}

/// An open connection.
pub(crate) struct Open {
    wakes: Arc<Wakes>,
    cut: Option<tokio::task::AbortHandle>,
}

impl Shared {
    pub(crate) fn open(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_all(&self) {
        for (_, connection) in self.open().drain() {
            if let Some(cut) = connection.cut {
                cut.abort();
            }
        }
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
