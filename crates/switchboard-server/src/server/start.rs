//! Start of a server: checks the configuration, builds the method table and the shared state, binds the listeners, and
//! accepts.

#[cfg(feature = "channelz")]
use super::channelz;
#[cfg(feature = "handover")]
use super::handover;
use super::{Running, Server, accept, listening::Resolved, plugin};
#[cfg(feature = "handover")]
use std::os::fd::OwnedFd;
use std::{io, mem, net::TcpListener, sync::Arc};
use switchboard_core::{Error, flags::Flags, metrics};
use switchboard_driver::serving::{Live, Phase, ServerParts, ServerState};
use switchboard_guard::{
    dispatch::{Guarded, GuardedService},
    guard::Unknown,
};
#[cfg(feature = "http")]
use switchboard_http::{
    HttpJson,
    http::{HttpConfig, HttpState, Rest},
};
use switchboard_net::net::{Address, Listener};
use switchboard_wire::{MethodTable, WireSet};
#[cfg(feature = "tls")]
use tokio::sync::watch;

/// A bound listener that does not accept yet.
struct Bound {
    listener: Listener,
    /// Its public address, with the port that the system chose.
    address: Address,
    resolved: Resolved,
}

impl Server {
    /// Starts the server; see [`start`](Self::start).
    pub(super) async fn bind_and_serve(mut self) -> Result<Running, Error> {
        self.check_config()?;
        #[cfg(feature = "http")]
        let admin = self.admin.take().map(|admin| Ok::<_, Error>((admin.check()?, admin))).transpose()?;
        let live = Live::new(&self.limits);
        let flags = self.collect_flags(&live)?;
        let service_names: Vec<_> = self.services.iter().map(|service| service.info().name).collect();
        #[cfg(feature = "channelz")]
        let shown = self.add_channelz();
        let table = self.build_table()?;
        #[cfg(feature = "http")]
        let mut rest =
            Rest::new(&table, mem::replace(&mut self.http_json, HttpJson::new())).map_err(Error::config)?;
        let (listeners, wires) = self.resolve_listeners()?;
        let shared = self.build_state(table, &listeners, wires, live, flags)?;
        #[cfg(feature = "http")]
        rest.add_plugin_routes(plugin::routes(&self.plugins, &shared)?).map_err(Error::config)?;
        plugin::start(mem::take(&mut self.plugins), &shared)?;
        plugin::check_listeners(&listeners, &shared)?;
        #[cfg(not(feature = "http"))]
        let http = accept::Http;
        #[cfg(feature = "http")]
        let http = self.http_state(rest, &shared);
        #[cfg(feature = "channelz")]
        shown.show(&shared);
        #[cfg(feature = "handover")]
        let mut inherited = match &self.handover {
            None => handover::Inherited::default(),
            Some(path) => handover::Inherited::request(path).await?,
        };
        let mut bound = Vec::with_capacity(listeners.len());
        for resolved in listeners {
            #[cfg(feature = "handover")]
            let socket = inherited.take(&resolved.address);
            #[cfg(not(feature = "handover"))]
            let socket = None;
            bound.push(bind(resolved, socket).await?);
        }
        #[cfg(feature = "handover")]
        let offered = if self.handover.is_some() { duplicate_sockets(&bound)? } else { Vec::new() };
        let mut running = self.create_running(shared, &http, &bound);
        #[cfg(feature = "http")]
        if let Some((address, admin)) = admin {
            running.admin = Some(crate::admin::start(admin, &address, running.shared.clone()).await?);
        }
        running.accept(bound, &http);
        running.begin(&self.templates, &service_names, self.registration_notice).await?;
        #[cfg(feature = "handover")]
        if let (Some(path), Some(registrations)) = (self.handover, &running.registrations) {
            inherited.ready(registrations.names()).await;
            running.waiting = Some(handover::Waiting::at(&path, offered, registrations.taken())?);
        }
        Ok(running)
    }

    /// Returns the last error of a setter, and the error of a server without listeners.
    fn check_config(&mut self) -> Result<(), Error> {
        if let Some(error) = self.config_errors.pop() {
            return Err(error);
        }
        if self.listeners.is_empty() {
            return Err(Error::config("the server has no listener: add .listen(\"tcp://127.0.0.1:8080\")"));
        }
        Ok(())
    }

    /// Returns the flags of the application and of the server.
    fn collect_flags(&mut self, live: &Live) -> Result<Flags, Error> {
        let mut flags = Flags::default();
        for flag in self.flags.drain(..).chain(self.access.flags()).chain(live.flags()) {
            flags.add(flag)?;
        }
        Ok(flags)
    }

    /// Adds the service of channelz if it is on, unless the application has added one of that name.
    #[cfg(feature = "channelz")]
    fn add_channelz(&mut self) -> channelz::Shown {
        let shown = channelz::Shown::default();
        if self.channelz && self.services.iter().all(|service| service.info().name != shown.info().name) {
            self.services.push(Arc::new(Guarded::new(shown.service())));
        }
        shown
    }

    /// Builds the table of all methods, with their names and settings.
    fn build_table(&mut self) -> Result<MethodTable, Error> {
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
        for (method, on) in mem::take(&mut self.method_compression) {
            let known = table.find(&method);
            let known = known.ok_or_else(|| table.unknown(&method).message().to_owned());
            let known = known.map_err(|why| Error::config(format!("method_compression: {why}")))?;
            self.compression.plain.retain(|plain| *plain != known);
            if !on {
                self.compression.plain.push(known);
            }
        }
        self.guards.name(&mut table)?;
        Ok(table)
    }

    /// Parses the addresses of the listeners and loads their certificates. Returns also the wires of the server, which
    /// restrict those of each listener.
    fn resolve_listeners(&mut self) -> Result<(Vec<Resolved>, WireSet), Error> {
        let listeners = mem::take(&mut self.listeners).into_iter();
        let listeners = listeners.map(|listening| listening.resolve(&self.limits));
        let mut listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        let wires = self.guards.wires.unwrap_or_else(WireSet::built_in).or(self.guards.added_wires);
        for listener in &mut listeners {
            listener.wires = listener.wires.and(wires);
        }
        Ok((listeners, wires))
    }

    /// Builds the state that all connections share: services with their guards, limits and settings.
    fn build_state(
        &mut self,
        mut table: MethodTable,
        listeners: &[Resolved],
        wires: WireSet,
        live: Live,
        flags: Flags,
    ) -> Result<Arc<ServerState>, Error> {
        let limited = listeners.iter().any(|listener| !listener.wires.has_all(WireSet::built_in()));
        if !self.guards.auth.is_empty() {
            table.guard_unknown().map_err(Error::config)?;
        }
        let guarding = mem::take(&mut self.guards).build(&table, limited)?;
        guarding.unlist(&mut table);
        let table = Arc::new(table);
        let others = self.fallback.take().map(|(service, _)| service);
        let unknown = table
            .guards_unknown()
            .then(|| Arc::new(Guarded::new(Unknown::new(&table, &guarding))) as Arc<dyn GuardedService>);
        let services = mem::take(&mut self.services).into_iter().chain(others).chain(unknown).enumerate();
        let services = services.map(|(at, service)| service.guarded(guarding.chain(at))).collect();
        #[cfg(feature = "channelz")]
        let counts_sockets = self.channelz;
        #[cfg(not(feature = "channelz"))]
        let counts_sockets = false;
        Ok(Arc::new(ServerState::new(ServerParts {
            table,
            services,
            guarding,
            wires,
            limits: mem::take(&mut self.limits),
            live,
            flags,
            access: mem::take(&mut self.access),
            compression: mem::take(&mut self.compression),
            strict_fields: self.strict_fields,
            extensions: mem::take(&mut self.extensions),
            counts_sockets,
            sources: mem::take(&mut self.sources),
        })))
    }

    /// Builds the state that HTTP connections share in addition.
    #[cfg(feature = "http")]
    fn http_state(&mut self, rest: Rest, shared: &Arc<ServerState>) -> accept::Http {
        let config = HttpConfig {
            rest,
            cors: self.cors.take().map(Arc::new),
            hosts: mem::take(&mut self.hosts),
            pages: mem::take(&mut self.pages),
            websockets: mem::take(&mut self.websockets),
        };
        Arc::new(HttpState::new(shared.clone(), config))
    }

    /// Creates the running server, which does not accept connections yet.
    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "only HTTP has further state"))]
    fn create_running(&mut self, shared: Arc<ServerState>, http: &accept::Http, bound: &[Bound]) -> Running {
        #[cfg(feature = "tls")]
        let stop = keep_certificates_fresh(&shared, bound);
        let addresses: Vec<_> = bound.iter().map(|bound| bound.address.clone()).collect();
        let listening = addresses.iter().map(|address| (metrics::next_id(), address.clone()));
        // This is the only place that sets it, before connections are accepted.
        let _ = shared.listening.set(listening.collect());
        Running {
            shared,
            addresses,
            #[cfg(feature = "tls")]
            stop: Some(stop),
            acceptors: None,
            hooks: mem::take(&mut self.hooks),
            registrations: None,
            #[cfg(feature = "handover")]
            waiting: None,
            #[cfg(feature = "http")]
            admin: None,
            #[cfg(feature = "http")]
            http: http.clone(),
        }
    }
}

impl Running {
    /// Accepts connections on the bound listeners.
    fn accept(&mut self, bound: Vec<Bound>, http: &accept::Http) {
        // During a warm-up, probes report that the server is not ready.
        let is_ready = self.hooks().warm_up.is_empty();
        self.set_phase(if is_ready { Phase::Serving } else { Phase::Starting });
        for address in &self.addresses {
            tracing::info!(target: "switchboard::server", %address, "listening");
        }
        let mut acceptors = accept::Acceptors::new();
        for Bound { listener, resolved, .. } in bound {
            acceptors.add(listener, self.shared.clone(), http.clone(), resolved);
        }
        self.acceptors = Some(acceptors);
    }
}

/// Binds a listener, unless it is a transport of the application, or `socket` is bound already.
async fn bind(mut resolved: Resolved, socket: Option<TcpListener>) -> Result<Bound, Error> {
    let custom = resolved.listener.take();
    let failed = |error| bind_error(&resolved.address, error);
    let listener = match (custom, socket) {
        (Some(listener), _) => Listener::Custom(listener, resolved.address.clone()),
        #[cfg(feature = "handover")]
        (None, Some(socket)) => Listener::from_socket(socket).map_err(failed)?,
        (None, _) => Listener::bind(&resolved.address).await.map_err(failed)?,
    };
    let address = resolved.public(listener.address().map_err(failed)?);
    Ok(Bound { listener, address, resolved })
}

fn bind_error(address: &Address, error: io::Error) -> Error {
    Error::bind(format!("listen on {address}: {error}"), error)
}

/// Returns duplicates of the sockets, with the names under which a successor finds them.
#[cfg(feature = "handover")]
fn duplicate_sockets(bound: &[Bound]) -> Result<Vec<(String, OwnedFd)>, Error> {
    let mut sockets = Vec::new();
    for Bound { listener, resolved, .. } in bound {
        if let Some(socket) = listener.socket().map_err(|error| bind_error(&resolved.address, error))? {
            sockets.push((handover::key(&resolved.address), socket));
        }
    }
    Ok(sockets)
}

/// Reloads changed certificates of the listeners until the returned sender is dropped.
#[cfg(feature = "tls")]
fn keep_certificates_fresh(shared: &ServerState, bound: &[Bound]) -> watch::Sender<()> {
    let (stop, stopped) = watch::channel(());
    let acceptors = bound.iter().filter_map(|bound| bound.resolved.acceptor.clone());
    let acceptors: Vec<_> = acceptors.collect();
    for acceptor in &acceptors {
        switchboard_core::runtime::spawn(acceptor.clone().keep_fresh(stopped.clone()));
    }
    // This is the only place that sets it, before connections are accepted.
    let _ = shared.acceptors.set(acceptors);
    stop
}
