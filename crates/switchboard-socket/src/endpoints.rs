//! Endpoints of a socket: binding, connecting, and their ends.

use crate::{
    Endpoint, Error, ErrorKind, PeerId, Result,
    connection::{self, Origin},
    core::{Attachment, Core},
    inproc,
    monitor::Event,
    network,
};
use bytes::Bytes;
use std::{
    error::Error as _,
    io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use switchboard_core::{backoff, clock};
use switchboard_net::net::{Io, Listener};
use switchboard_wire::{Status, zmtp::SocketType};
use tokio::sync::watch;

/// Pause after a failure to accept, such as no free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds a socket; returns the endpoint with the port that the system chose.
pub(crate) async fn bind(core: &Arc<Core>, endpoint: Endpoint) -> Result<Endpoint> {
    check_open(core)?;
    check_transport(core, &endpoint)?;
    let Some(address) = endpoint.address() else {
        let Endpoint::Inproc(name) = &endpoint else { return Ok(endpoint) };
        inproc::bind(core, name)?;
        let attachment = attachment(&endpoint, true, inproc::unbind);
        register(core, attachment, || {}).inspect_err(|_| {
            inproc::unbind(name, core.this());
        })?;
        return Ok(endpoint);
    };
    let failed = |error: io::Error| Error::address(&format!("bind {endpoint}"), error);
    let listener = network::bind(&address, &core.options.transport).await.map_err(failed)?;
    let bound = Endpoint::of(listener.address().map_err(failed)?).unwrap_or(endpoint);
    let attachment = attachment(&bound, true, inproc::unbind);
    let stopped = attachment.stop.subscribe();
    register(core, attachment, || {
        core.spawn(Box::pin(accept(core.clone(), listener, bound.clone(), stopped)));
    })?;
    Ok(bound)
}

/// Connects a socket: the connection is established, and established again after it is lost, in the background.
/// A ROUTER or STREAM calls the peer `route`, if there is one.
pub(crate) fn connect(core: &Arc<Core>, endpoint: &Endpoint, route: Option<Bytes>) -> Result<()> {
    check_open(core)?;
    check_transport(core, endpoint)?;
    let Some(_) = endpoint.address() else {
        let Endpoint::Inproc(name) = endpoint else { return Ok(()) };
        if route.is_some() {
            let text = format!("connect {endpoint}: a routing id of this side is not supported for inproc");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        inproc::connect(core, name)?;
        let attachment = attachment(endpoint, false, inproc::forget);
        return register(core, attachment, || {}).inspect_err(|_| {
            if !inproc::forget(name, core.this()) {
                core.disconnect_inproc(endpoint);
            }
        });
    };
    if let Endpoint::Tcp(host, 0) = endpoint {
        let text = format!("endpoint tcp://{host}:0 cannot be connected to: the port is 0");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    let name: Arc<str> = endpoint.to_string().into();
    let peer = match core.keeps_peers() {
        true => Some(
            core.add_persistent(&name)
                .map_err(|why| Error::new(ErrorKind::State, format!("connect {endpoint}: {why}")))?,
        ),
        false => None,
    };
    let attachment = Attachment { peer, ..attachment(endpoint, false, inproc::forget) };
    let stopped = attachment.stop.subscribe();
    let connecting =
        Connecting { core: core.clone(), endpoint: endpoint.clone(), name, peer, route, stopped };
    register(core, attachment, || core.spawn(Box::pin(connecting.run()))).inspect_err(|_| {
        if let Some(peer) = peer {
            core.remove_persistent(peer);
        }
    })
}

fn check_open(core: &Core) -> Result<()> {
    core.check_process()?;
    if *core.phase.borrow() == crate::core::Phase::Open { Ok(()) } else { Err(Error::closed()) }
}

/// STREAM has no ZMTP, and passes bytes of connections only.
fn check_transport(core: &Core, endpoint: &Endpoint) -> Result<()> {
    if core.kind != SocketType::Stream || matches!(endpoint, Endpoint::Tcp(..)) {
        return Ok(());
    }
    let text = format!("endpoint {endpoint}: STREAM uses the transport tcp only");
    Err(Error::new(ErrorKind::Unsupported, text))
}

fn attachment(endpoint: &Endpoint, is_bound: bool, release: fn(&str, &Weak<Core>) -> bool) -> Attachment {
    Attachment { endpoint: endpoint.clone(), is_bound, stop: watch::channel(None).0, peer: None, release }
}

/// Adds an endpoint and starts its task, unless the socket was closed: [`Core::close`] sets the phase before it takes
/// the endpoints, so none is added after that.
fn register(core: &Core, attachment: Attachment, start: impl FnOnce()) -> Result<()> {
    let (endpoint, is_bound) = (attachment.endpoint.clone(), attachment.is_bound);
    {
        let mut endpoints = core.endpoints();
        check_open(core)?;
        endpoints.push(attachment);
        start();
    }
    if is_bound {
        core.monitors.emit(|| Event::Listening { endpoint: endpoint.to_string() });
    }
    Ok(())
}

async fn accept(
    core: Arc<Core>,
    mut listener: Listener,
    endpoint: Endpoint,
    mut stopped: watch::Receiver<Option<Instant>>,
) {
    let name: Arc<str> = endpoint.to_string().into();
    loop {
        let accept = async {
            // The semaphore is a part of the socket and is never closed.
            let handshake = core.handshakes.clone().acquire_owned().await.ok();
            (handshake, listener.accept().await)
        };
        let (handshake, accepted) = tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            accepted = accept => accepted,
        };
        let adopted = match accepted {
            Ok((pipe, peer, address)) => {
                network::adopt(pipe, address, &core.options.transport).map(|io| (io, peer))
            }
            Err(error) => Err(error),
        };
        match adopted {
            Ok((io, peer)) => {
                core.monitors.emit(|| Event::Accepted { endpoint: name.to_string(), peer: peer.clone() });
                let origin = Origin::Accepted { address: peer.into(), permit: handshake };
                core.spawn(connection::run(core.clone(), io, name.clone(), origin));
            }
            Err(error) => {
                core.monitors
                    .emit(|| Event::AcceptFailed { endpoint: name.to_string(), reason: error.to_string() });
                if error.kind() != io::ErrorKind::PermissionDenied {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The task of a connecting endpoint.
struct Connecting {
    core: Arc<Core>,
    endpoint: Endpoint,
    name: Arc<str>,
    peer: Option<PeerId>,
    route: Option<Bytes>,
    stopped: watch::Receiver<Option<Instant>>,
}

impl Connecting {
    async fn run(self) {
        let mut failures = 0;
        while let Some((reason, pause)) = self.attempt(&mut failures).await {
            self.core.monitors.emit(|| Event::ConnectRetried {
                endpoint: self.name.to_string(),
                pause,
                reason,
            });
            let is_over = tokio::select! {
                biased;
                () = self.core.out_of_time() => true,
                () = self.idle_stop() => true,
                () = tokio::time::sleep(pause) => false,
            };
            if is_over {
                break;
            }
        }
        if let Some(peer) = self.peer {
            self.core.remove_persistent(peer);
        }
    }

    /// Connects once and runs the connection. Returns the reason of its end and the pause before the next attempt;
    /// `None` if there is none.
    async fn attempt(&self, failures: &mut u32) -> Option<(String, Duration)> {
        let stop = self.core.options.reconnect.stop;
        let io = tokio::select! {
            biased;
            () = self.core.out_of_time() => return None,
            () = self.idle_stop() => return None,
            io = self.dial() => io,
        };
        let (reason, is_over) = match io {
            Err(status) => (status.message().to_owned(), stop.refused && is_refused(&status)),
            Ok(io) => {
                self.core.monitors.emit(|| Event::Connected { endpoint: self.name.to_string() });
                let origin = Origin::Connected {
                    known: self.peer,
                    route: self.route.clone(),
                    stop: self.stopped.clone(),
                };
                let ended = connection::run(self.core.clone(), io, self.name.clone(), origin).await;
                if ended.was_open {
                    *failures = 0;
                }
                let is_over = if ended.was_open { stop.disconnected } else { stop.handshake_failed };
                let is_over = is_over || ended.is_final;
                (ended.reason, is_over)
            }
        };
        if is_over || self.is_stopped() {
            return None;
        }
        *failures = failures.saturating_add(1);
        let options = &self.core.options.reconnect;
        Some((
            reason,
            backoff::pause(*failures, options.interval, options.interval_max.max(options.interval)),
        ))
    }

    async fn dial(&self) -> Result<Box<dyn Io>, Status> {
        let Some(address) = self.endpoint.address() else {
            return Err(Status::invalid_argument("the endpoint has no address"));
        };
        let options = &self.core.options;
        network::connect(&address, &options.transport, options.timeouts.connect).await
    }

    /// Returns true if the endpoint was stopped and no message waits, or they are out of time.
    fn is_stopped(&self) -> bool {
        let Some(stopped) = *self.stopped.borrow() else { return false };
        let is_over = self.core.linger_end(stopped).is_some_and(|end| end <= clock::now());
        is_over || !self.has_unsent()
    }

    fn has_unsent(&self) -> bool {
        self.peer.is_some_and(|peer| self.core.has_unsent(peer))
    }

    /// Waits until the endpoint is stopped, and no message waits or they are out of time.
    async fn idle_stop(&self) {
        let mut stopped = self.stopped.clone();
        // Without a sender the endpoint was removed.
        let stopped = stopped.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        if !self.has_unsent() {
            return;
        }
        match self.core.linger_end(stopped.unwrap_or_else(clock::now)) {
            Some(end) => tokio::time::sleep_until(end.into()).await,
            None => std::future::pending().await,
        }
    }
}

fn is_refused(status: &Status) -> bool {
    let source = status.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
