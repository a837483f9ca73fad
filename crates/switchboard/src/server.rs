//! A server: services behind listeners, every caller on each of them.

mod accept;
mod announce;
#[cfg(feature = "channelz")]
mod channelz;
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only the admin listener asks for all"))]
mod flights;
mod guarding;
#[cfg(feature = "handover")]
mod handover;
mod lifecycle;
mod listening;
mod live;
mod mismatch;
mod options;
mod sockets;

#[cfg(feature = "tls")]
use crate::net::tls::{Acceptor, Tls};
use crate::{
    Error, Limit, Limits, Service, Status,
    access::Access,
    compression::Serving,
    driver::{Erased, ErasedService, Wakes},
    flags::{Flag, Flags},
    guard::{Guarding, Guards, Wires},
    limits::Source,
    memory::Account,
    metrics::{Carrier, Metrics, ServerStats},
    net::{Address, Listener},
    runtime,
};
use announce::{Announced, Announcement};
#[cfg(feature = "http")]
use flights::Flights;
pub(crate) use flights::{Flight, SHOWN_MAX};
use lifecycle::Hooks;
pub(crate) use lifecycle::Phase;
pub use lifecycle::{CutCalls, CutConnections, Stopped};
use listening::Listening;
pub(crate) use live::Live;
#[cfg(feature = "http")]
pub(crate) use sockets::Counts;
pub(crate) use sockets::Socket;
use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Duration,
    time::Instant,
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
    /// Who gets calls of other methods: of these services, of all when there are none.
    fallback: Option<(Arc<dyn ErasedService>, Vec<String>)>,
    listeners: Vec<Listening>,
    limits: Limits,
    method_limits: Vec<(String, u32)>,
    #[cfg(feature = "http")]
    websockets: crate::http::websocket::Options,
    compression: Serving,
    /// Methods whose replies are to be compressed, or not.
    method_compression: Vec<(String, bool)>,
    mistakes: Vec<Error>,
    access: Access,
    flags: Vec<Flag>,
    hooks: Mutex<Hooks>,
    #[cfg(feature = "handover")]
    handover: Option<std::path::PathBuf>,
    #[cfg(feature = "http")]
    admin: Option<crate::admin::Admin>,
    guards: Guards,
    announcements: Vec<Announcement>,
    announce_notice: Duration,
    #[cfg(feature = "channelz")]
    channelz: bool,
    #[cfg(feature = "http")]
    cors: Option<crate::Cors>,
    #[cfg(feature = "http")]
    http_json: crate::HttpJson,
    #[cfg(feature = "http")]
    pages: crate::http::Pages,
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
            fallback: None,
            listeners: Vec::new(),
            limits: Limits::default(),
            method_limits: Vec::new(),
            #[cfg(feature = "http")]
            websockets: Default::default(),
            compression: Serving::default(),
            method_compression: Vec::new(),
            mistakes: Vec::new(),
            access: Access::default(),
            flags: Vec::new(),
            hooks: Mutex::default(),
            #[cfg(feature = "handover")]
            handover: None,
            #[cfg(feature = "http")]
            admin: None,
            guards: Guards::default(),
            announcements: Vec::new(),
            announce_notice: Duration::from_secs(1),
            #[cfg(feature = "channelz")]
            channelz: false,
            #[cfg(feature = "http")]
            cors: None,
            #[cfg(feature = "http")]
            http_json: crate::HttpJson::new(),
            #[cfg(feature = "http")]
            pages: crate::http::Pages::default(),
        }
    }

    /// Adds a service, usually a generated `…Server`.
    #[expect(clippy::should_implement_trait, reason = "a server is not a sum")]
    pub fn add(mut self, service: impl Service) -> Server {
        self.services.push(Arc::new(Erased::new(service)));
        self
    }

    /// Gives calls of services that were not added to this one, such as [`Forward`](crate::proxy::Forward): those of
    /// `services`, or of any when there are none. It sees the name that was called in
    /// [`Cx::service`](crate::Cx::service) and [`Cx::method`](crate::Cx::method), and messages as their bytes.
    ///
    /// Names are learned as they are called, 1024 of them, and kept until the process ends: whoever may call can use
    /// them up, and further ones are then unknown. What is set or counted by method holds for all of them together,
    /// under the name `*`.
    pub fn fallback(
        mut self,
        service: impl Service,
        services: impl IntoIterator<Item = impl Into<String>>,
    ) -> Server {
        let services = services.into_iter().map(Into::into).collect();
        self.fallback = Some((Arc::new(Erased::new(service)), services));
        self
    }

    /// Listens at `address`: `tcp://0.0.0.0:8080`, `tcp://[::]:0`, `unix:/run/app.sock`, `memory://name`,
    /// `tls://0.0.0.0:8443?cert=cert.pem&key=key.pem`.
    ///
    /// Options of the listener may follow a `?`, separated by `&`: limits by name, and for TLS `cert=FILE`,
    /// `key=FILE`, `client_ca=FILE`, `client=required|optional` and `tls=only|optional`, where `optional` serves
    /// connections without TLS too. What they mean is told at [`Tls`].
    pub fn listen(self, address: impl Into<String>) -> Server {
        self.listen_with(address, [])
    }

    /// Listens at `address` with limits of its own.
    pub fn listen_with(mut self, address: impl Into<String>, limits: impl Into<Vec<(Limit, u64)>>) -> Server {
        self.listeners.push(Listening::new(address.into(), limits.into()));
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

    /// Whether compressed messages are taken on the native wire, and answered in kind; they are, unless this says
    /// otherwise. Nothing is compressed for callers that do not ask for it. On HTTP every caller may.
    pub fn compression(mut self, on: bool) -> Server {
        self.compression.on = on;
        self
    }

    /// Replies of fewer bytes are not compressed on the native wire; 512 unless set.
    pub fn compression_bytes_min(mut self, bytes: u32) -> Server {
        self.compression.bytes_min = bytes;
        self
    }

    /// Whether replies of one method, `package.Service/Method`, are compressed on the native wire for callers that ask
    /// for it: not worth it where they are pictures, say, or compressed already. Requests are taken in any case.
    pub fn method_compression(mut self, method: impl Into<String>, on: bool) -> Server {
        self.method_compression.push((method.into(), on));
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

    /// Answers GET and HEAD of `path` with these bytes, for a web page that calls the services; see `examples/browser`.
    ///
    /// The path is compared as it is and comes before all else that would answer it; other methods are not concerned.
    /// The content is held once, however many ask. Pages are sent with a strict `Content-Security-Policy`: a page loads
    /// scripts, styles, images and fonts from this server alone, has none of them inside itself, connects to nothing
    /// else (WebSockets of the same host and port included), and is shown in no frame. Browsers ask for it again each
    /// time. A path or type that cannot be, or two pages at one path, are an error of [`start`](Server::start).
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
            self.mistakes.push(Error::config(format!("page: {what}")));
        }
        self
    }

    /// Lets web pages of these origins open WebSockets, `https://app.example`, or of all with `*`; pages that came
    /// from the same host and port may always. Callers that are no browsers are not concerned.
    #[cfg(feature = "http")]
    pub fn websocket_origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Server {
        self.websockets.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Compresses the messages of WebSockets whose callers offer it (RFC 7692), both ways; browsers always do.
    ///
    /// Off unless asked for: it costs time, some 50 KiB for each connection on which a compressed message is arriving
    /// and 300 KiB a thread, and the sizes of messages tell something about their content where secrets travel beside
    /// what an attacker may choose. No side keeps its window between messages. Limits hold for what messages are when
    /// they are not compressed; short ones never are.
    #[cfg(feature = "http")]
    pub fn websocket_deflate(mut self) -> Server {
        self.websockets.deflate = true;
        self
    }

    /// Serves `grpc.channelz.v1.Channelz` too, unless a service of that name was added: this server, its listeners,
    /// and every connection with its addresses and what went over it.
    ///
    /// Off unless asked for, as with every implementation of gRPC: whoever may call this server then sees who else
    /// does. Connections count their calls and messages only when it is on.
    #[cfg(feature = "channelz")]
    pub fn channelz(mut self) -> Server {
        self.channelz = true;
        self
    }

    /// Replaces all limits, sources included.
    pub fn limits(mut self, limits: Limits) -> Server {
        self.limits = limits;
        self
    }

    /// Serves until Ctrl-C or SIGTERM, then [stops](Running::stop): calls get the time of `drain_timeout`. A second
    /// signal cuts at once.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
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

    /// Serves until `stop` is ready, then [stops](Running::stop).
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn serve_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let running = self.start().await?;
        tokio::select! {
            () = stop => {}
            () = running.handed_over() => {}
        }
        running.stop_logged().await;
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
        let announced: Vec<_> = self.services.iter().map(|service| service.info().name).collect();
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
            table.take_others(services.clone()).map_err(Error::config)?;
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
        let rest = crate::http::Rest::new(&table, self.http_json).map_err(Error::config)?;
        let table = Arc::new(table);
        let listeners = self.listeners.into_iter().map(|listening| listening.resolve(&self.limits));
        let mut listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let wires = self.guards.wires.unwrap_or(Wires::ALL);
        for listener in &mut listeners {
            listener.wires = listener.wires.and(wires);
        }
        let limited = listeners.iter().any(|listener| listener.wires != Wires::ALL);
        let guarding = self.guards.build(&table, limited)?;
        let others = self.fallback.map(|(service, _)| service);
        let services = self.services.into_iter().chain(others).enumerate();
        let services = services.map(|(at, service)| service.guarded(guarding.chain(at))).collect();
        let memory = Account::new(live.memory_bytes_max.clone(), table.slots());
        let shared = Arc::new(Shared {
            id: sockets::next_id(),
            listening: OnceLock::new(),
            #[cfg(feature = "tls")]
            acceptors: OnceLock::new(),
            last_started: sockets::Moment::default(),
            #[cfg(feature = "channelz")]
            counts_sockets: self.channelz,
            #[cfg(not(feature = "channelz"))]
            counts_sockets: false,
            metrics: Metrics::new(table.clone(), runtime::worker_count()),
            table,
            services,
            guarding,
            limits: self.limits,
            compression: self.compression,
            parked: AtomicUsize::new(0),
            memory,
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            access: self.access,
            live,
            flags: Arc::new(flags),
            phase: watch::Sender::new(Phase::Starting),
            #[cfg(feature = "http")]
            flights: Flights::new(runtime::worker_count()),
            open: Mutex::default(),
            #[cfg(feature = "http")]
            websockets: self.websockets,
            #[cfg(feature = "http")]
            drain_http: watch::Sender::new(false),
            #[cfg(feature = "http")]
            http: std::sync::OnceLock::new(),
            #[cfg(feature = "http")]
            rest,
            #[cfg(feature = "http")]
            cors: self.cors.map(Arc::new),
            #[cfg(feature = "http")]
            pages: self.pages,
        });
        #[cfg(feature = "channelz")]
        shown.show(&shared);
        #[cfg(feature = "handover")]
        let (mut inherited, mut offered) = match &self.handover {
            None => (handover::Inherited::default(), Vec::new()),
            Some(path) => (handover::Inherited::ask(path).await?, Vec::new()),
        };
        let mut bound = Vec::new();
        for resolved in listeners {
            let failed = |error| Error::bind(format!("listen on {}: {error}", resolved.address), error);
            #[cfg(feature = "handover")]
            let listener = match inherited.take(&resolved.address) {
                Some(socket) => Listener::from_socket(socket).map_err(failed)?,
                None => Listener::bind(&resolved.address).await.map_err(failed)?,
            };
            #[cfg(feature = "handover")]
            if self.handover.is_some()
                && let Some(socket) = listener.socket().map_err(failed)?
            {
                offered.push((handover::key(&resolved.address), socket));
            }
            #[cfg(not(feature = "handover"))]
            let listener = Listener::bind(&resolved.address).await.map_err(failed)?;
            let address = resolved.public(listener.address().map_err(failed)?);
            bound.push((listener, address, resolved));
        }
        let (stop, stopped) = watch::channel(());
        let (mut addresses, mut accepting) = (Vec::new(), Vec::new());
        #[cfg(feature = "tls")]
        let mut acceptors = Vec::new();
        for (listener, address, resolved) in bound {
            addresses.push(address);
            #[cfg(feature = "tls")]
            if let Some(acceptor) = &resolved.acceptor {
                crate::runtime::spawn(acceptor.clone().keep_fresh(stopped.clone()));
                acceptors.push(acceptor.clone());
            }
            accepting.push((listener, resolved));
        }
        // As with the addresses below.
        #[cfg(feature = "tls")]
        let _ = shared.acceptors.set(acceptors);
        let listening = addresses.iter().map(|address| (sockets::next_id(), address.clone()));
        // Nobody else sets it, and nobody can ask before connections are accepted.
        let _ = shared.listening.set(listening.collect());
        let mut running = Running {
            shared,
            addresses,
            stop: Some(stop),
            hooks: self.hooks,
            announced: None,
            #[cfg(feature = "handover")]
            waiting: None,
            #[cfg(feature = "http")]
            admin: None,
        };
        #[cfg(feature = "http")]
        if let Some((address, admin)) = admin {
            running.admin = Some(crate::admin::start(admin, &address, running.shared.clone()).await?);
        }
        // With work to be done first, probes are to be told.
        let is_ready = running.hooks().warm_up.is_empty();
        running.shared.set_phase(if is_ready { Phase::Serving } else { Phase::Starting });
        for (listener, resolved) in accepting {
            crate::runtime::spawn(accept::run(listener, running.shared.clone(), resolved, stopped.clone()));
        }
        running.begin(&self.announcements, &announced, self.announce_notice).await?;
        #[cfg(feature = "handover")]
        if let (Some(path), Some(announced)) = (self.handover, &running.announced) {
            inherited.ready(announced.names()).await;
            running.waiting = Some(handover::Waiting::at(&path, offered, announced.taken())?);
        }
        Ok(running)
    }
}

/// A server that serves. Dropping it stops accepting and cuts every connection; [`drain`](Running::drain) is kinder.
#[must_use = "dropping a running server ends it"]
pub struct Running {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    /// The acceptors end when it is dropped.
    stop: Option<watch::Sender<()>>,
    hooks: Mutex<Hooks>,
    /// Its end is that of the sockets that are offered.
    #[cfg(feature = "handover")]
    waiting: Option<handover::Waiting>,
    #[cfg(feature = "http")]
    admin: Option<(Address, tokio::task::AbortHandle)>,
    announced: Option<Announced>,
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
        self.shared.stats()
    }

    /// Reads the certificates of every listener again, if their files have changed. Listeners whose files cannot be
    /// used go on with what they have. Connections that are open are not touched.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    #[cfg(feature = "tls")]
    pub fn reload_tls(&self) -> Result<(), Error> {
        let outcomes: Vec<_> = self.shared.acceptors().iter().map(|acceptor| acceptor.reload()).collect();
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }
}

impl Running {
    /// Cuts everything at once, as a crash would; for tests.
    pub fn kill(self) {
        if let Some(announced) = &self.announced {
            announced.kill();
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
        self.shared.cut_all();
    }
}

/// What all connections of a server share.
pub(crate) struct Shared {
    /// Of this server among all of the process.
    #[cfg_attr(not(feature = "channelz"), expect(dead_code, reason = "only Channelz asks"))]
    id: u64,
    /// Where it listens, with the number of each listener.
    listening: OnceLock<Vec<(u64, Address)>>,
    /// The listeners that take TLS.
    #[cfg(feature = "tls")]
    acceptors: OnceLock<Vec<Arc<Acceptor>>>,
    /// When a call began on a connection that has ended.
    last_started: sockets::Moment,
    /// Whether connections count what goes over them.
    counts_sockets: bool,
    pub(crate) table: Arc<MethodTable>,
    pub(crate) services: Vec<Arc<dyn ErasedService>>,
    pub(crate) guarding: Guarding,
    pub(crate) limits: Limits,
    pub(crate) compression: Serving,
    pub(crate) metrics: Metrics,
    /// Calls that wait in handlers, on all connections. Calls that are ready at once are never counted here, so
    /// the hot path shares no counter.
    pub(crate) parked: AtomicUsize,
    /// What connections hold for their peers.
    pub(crate) memory: Account,
    pub(crate) draining: AtomicBool,
    /// The calls that are left had their time to end.
    pub(crate) ending: AtomicBool,
    pub(crate) access: Access,
    pub(crate) live: Live,
    pub(crate) flags: Arc<Flags>,
    phase: watch::Sender<Phase>,
    #[cfg(feature = "http")]
    pub(crate) flights: Flights,
    open: Mutex<BTreeMap<u64, Open>>,
    /// Of pages that may open WebSockets.
    #[cfg(feature = "http")]
    pub(crate) websockets: crate::http::websocket::Options,
    #[cfg(feature = "http")]
    pub(crate) drain_http: watch::Sender<bool>,
    /// What HTTP connections share; made by the first.
    #[cfg(feature = "http")]
    pub(crate) http: std::sync::OnceLock<Arc<crate::http::Standard>>,
    #[cfg(feature = "http")]
    pub(crate) rest: crate::http::Rest,
    #[cfg(feature = "http")]
    pub(crate) cors: Option<Arc<crate::Cors>>,
    #[cfg(feature = "http")]
    pub(crate) pages: crate::http::Pages,
}

/// An open connection.
pub(crate) struct Open {
    wakes: Arc<Wakes>,
    cut: Option<tokio::task::AbortHandle>,
    /// What it counts, if it does.
    socket: Option<Arc<Socket>>,
    /// Of the peer, as in [`Peer::address`](crate::Peer::address).
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the admin listener shows it"))]
    pub(crate) address: Box<str>,
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the admin listener shows it"))]
    pub(crate) began: Instant,
    /// What it speaks, once that is known.
    pub(crate) carrier: Option<Carrier>,
}

impl Shared {
    pub(crate) fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(any(feature = "channelz", feature = "http"))]
    pub(crate) fn listening(&self) -> &[(u64, Address)] {
        self.listening.get().map_or(&[], Vec::as_slice)
    }

    fn cut_all(&self) {
        let all = std::mem::take(&mut *self.open());
        for connection in all.into_values() {
            if let Some(carrier) = connection.carrier {
                self.metrics.end(carrier);
            }
            if let Some(cut) = connection.cut {
                cut.abort();
            }
        }
    }
}

/// What calls get that did not end while the server drained.
pub(crate) fn going_away() -> Status {
    Status::unavailable("the server is going away, and the call did not end in the time that was left")
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
