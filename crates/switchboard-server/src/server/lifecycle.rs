//! Lifecycle of a server, from the first bind to the last connection: phases, hooks, and orderly shutdown.

use super::{
    Drained, Running,
    registration::{RegistrationTemplate, Registrations},
};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::PoisonError,
    time::{Duration, Instant},
};
use switchboard_core::{Error, Limits, Result, layer::BoxFuture, metrics::ConnectionProtocol};
use switchboard_driver::serving::{Phase, ServerState};
use switchboard_net::Address;
use switchboard_wire::Status;
use tokio::time::{sleep, timeout_at};

/// Interval at which the shutdown checks for remaining connections.
const LOOK: Duration = Duration::from_millis(5);
/// Time that serving until a signal adds for closing connections after the last calls have ended.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(1);

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type StartHook = Box<dyn FnOnce(Vec<Address>) -> Work<Result<()>> + Send>;

/// Hooks of the application for the start and the end. The lock is never contended: it makes the struct
/// `Sync`, which the hooks need not be.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) warm_up: Vec<Box<dyn FnOnce() -> Work<Result<()>> + Send>>,
    pub(super) start: Vec<StartHook>,
    pub(super) stop: Vec<Box<dyn FnOnce() -> Work<()> + Send>>,
    /// Time for the shutdown notice to reach callers.
    pub(super) notice: Duration,
}

/// Result of a shutdown.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    /// Duration of the shutdown.
    pub took: Duration,
    /// Calls that did not end during the drain and were aborted with `Unavailable`.
    pub calls: Vec<AbortedCalls>,
    /// Connections that were closed forcibly, by protocol.
    pub connections: Vec<AbortedConnections>,
}

/// Calls of one method that did not end during the drain.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AbortedCalls {
    /// Full name, `package.Service/Method`.
    pub method: String,
    /// Their wire, as in [`WireStats::wire`](switchboard_core::WireStats::wire).
    pub wire: &'static str,
    /// Number of calls.
    pub calls: u64,
}

/// Connections of one protocol that were closed forcibly.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AbortedConnections {
    /// Their protocol, as in [`ServerStats::protocols`](switchboard_core::ServerStats::protocols); `none` if it was not
    /// detected yet.
    pub protocol: &'static str,
    /// Number of connections.
    pub connections: u64,
}

/// Time limits of [`Running::stop`].
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until they are passed to `stop`"]
pub struct StopOptions {
    drain: Option<Duration>,
    close: Option<Duration>,
}

impl StopOptions {
    /// Creates the options with their defaults.
    pub fn new() -> StopOptions {
        StopOptions::default()
    }

    /// Sets the time that calls in flight have to end; by default the limit `drain_timeout` of the server.
    pub fn drain(mut self, limit: Duration) -> StopOptions {
        self.drain = Some(limit);
        self
    }

    /// Sets the time after which open connections are closed, whether their calls have ended or not. It begins with
    /// that of [`drain`](Self::drain) and is one second longer by default.
    pub fn close(mut self, limit: Duration) -> StopOptions {
        self.close = Some(limit);
        self
    }

    /// The times for calls and for connections of a server with these limits.
    fn times(&self, limits: &Limits) -> (Duration, Duration) {
        let drain = self.drain.unwrap_or_else(|| limits.drain_timeout());
        (drain, self.close.unwrap_or_else(|| drain.saturating_add(CLOSE_TIME)))
    }
}

impl Stopped {
    /// Returns whether every call and every connection ended without force.
    pub fn is_clean(&self) -> bool {
        self.calls.is_empty() && self.connections.is_empty()
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped after {} ms", self.took.as_millis())?;
        for AbortedCalls { method, wire, calls } in &self.calls {
            write!(f, "; aborted {} of {method} ({wire})", plural(*calls, "call"))?;
        }
        for AbortedConnections { protocol, connections } in &self.connections {
            write!(f, "; aborted {} ({protocol})", plural(*connections, "connection"))?;
        }
        Ok(())
    }
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Running {
    /// Runs the warm-up hooks, marks the server as ready, runs the start hooks, and registers its `services`
    /// with registries.
    ///
    /// # Errors
    /// Returns the error of a hook, or of an invalid registration.
    pub(super) async fn begin(
        &mut self,
        templates: &[RegistrationTemplate],
        services: &[&str],
        notice: Duration,
    ) -> Result<(), Error> {
        let failed = |what, status: Status| Error::config(format!("{what}: {status}"));
        let hooks = std::mem::take(&mut self.hooks().warm_up);
        for hook in hooks {
            hook().await.map_err(|status| failed("warm_up", status))?;
        }
        self.set_phase(Phase::Serving);
        let hooks = std::mem::take(&mut self.hooks().start);
        for hook in hooks {
            hook(self.addresses.clone()).await.map_err(|status| failed("on_start", status))?;
        }
        self.registrations = Some(Registrations::begin(templates, services, &self.addresses[0], notice)?);
        Ok(())
    }

    /// Shuts down in these steps, and returns the calls and connections that were ended forcibly:
    ///
    /// 1. Probes report that the server is not ready, registries are updated, which takes [`registration_notice`]
    ///    if there are any, and the hooks of [`on_stop`] run.
    /// 2. For the time of [`notice`] the server continues to serve, including new callers, so that the change
    ///    can spread.
    /// 3. Listeners close, and every peer gets a notice to start no further calls. Calls in flight may end.
    /// 4. After the time of [`drain`](StopOptions::drain) the remaining calls end with `Unavailable`, which is sent to
    ///    their callers.
    /// 5. After the time of [`close`](StopOptions::close), counted from step 3 as well, the remaining connections are
    ///    closed.
    ///
    /// Always ends, at the latest after the times of `notice` and `close`, including the hooks. Cancel safe: dropping
    /// the future closes everything.
    ///
    /// ```
    /// # async fn f(running: switchboard::Running) {
    /// use std::time::Duration;
    /// use switchboard::StopOptions;
    ///
    /// let stopped = running.stop(StopOptions::new().drain(Duration::from_secs(60))).await;
    /// if !stopped.is_clean() {
    ///     eprintln!("{stopped:?}");
    /// }
    /// # }
    /// ```
    ///
    /// [`registration_notice`]: super::Server::registration_notice
    /// [`on_stop`]: super::Server::on_stop
    /// [`notice`]: super::Server::notice
    pub async fn stop(self, options: StopOptions) -> Stopped {
        self.stop_boxed(options).await
    }

    /// Boxes the future, so that this crate has its code, as for the start.
    fn stop_boxed(self, options: StopOptions) -> BoxFuture<'static, Stopped> {
        Box::pin(self.stop_in_steps(options))
    }

    async fn stop_in_steps(mut self, options: StopOptions) -> Stopped {
        let (drain, close) = options.times(&self.shared.limits);
        let (began, notice) = (switchboard_core::clock::now(), self.hooks().notice);
        self.set_phase(Phase::Stopping);
        self.leave(switchboard_core::clock::after(began, notice.saturating_add(close))).await;
        sleep(notice).await;
        self.wind_down(drain, close, began).await
    }

    /// Stops accepting, sends every peer a drain notice, lets calls end, and closes the remaining connections
    /// after `limit`. Before that, the hooks of [`on_stop`](super::Server::on_stop) run and the
    /// [registrations](super::Server::register) are removed and the change spreads, for which `limit` applies
    /// as well. Always ends.
    ///
    /// Cancel safe: dropping the future closes every connection.
    pub async fn drain(self, limit: Duration) -> Drained {
        self.drain_boxed(limit).await
    }

    /// Boxes the future, so that this crate has its code, as for the start.
    fn drain_boxed(self, limit: Duration) -> BoxFuture<'static, Drained> {
        Box::pin(self.drain_in_steps(limit))
    }

    async fn drain_in_steps(mut self, limit: Duration) -> Drained {
        let began = switchboard_core::clock::now();
        self.set_phase(Phase::Stopping);
        self.leave(switchboard_core::clock::after(began, limit)).await;
        let stopped = self.wind_down(Duration::MAX, limit, began).await;
        Drained { aborted: stopped.connections.iter().map(|aborted| aborted.connections as usize).sum() }
    }

    /// Sets the phase, which probes on HTTP report.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.shared.phase.send_replace(phase);
        #[cfg(feature = "http")]
        self.http.follow_phase();
    }

    pub(super) fn hooks(&mut self) -> &mut Hooks {
        self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the hooks and removes the [registrations](super::Server::register), concurrently, until `end` at
    /// most.
    async fn leave(&mut self, end: Instant) {
        let mut hooks = tokio::task::JoinSet::new();
        for hook in std::mem::take(&mut self.hooks().stop) {
            hooks.spawn(hook());
        }
        let registrations = self.registrations.take();
        let withdrawn = async {
            if let Some(mut registrations) = registrations {
                registrations.withdraw().await;
            }
        };
        let all = async { while hooks.join_next().await.is_some() {} };
        if timeout_at(end.into(), async { tokio::join!(all, withdrawn) }).await.is_err() {
            tracing::warn!("a hook of on_stop, or a registry, did not end in time");
        }
    }

    async fn wind_down(mut self, drain: Duration, close: Duration, began: Instant) -> Stopped {
        let drain_start = switchboard_core::clock::now();
        #[cfg(feature = "tls")]
        {
            self.stop = None;
        }
        #[cfg(feature = "handover")]
        let has_successor = self.waiting.take().is_some_and(|waiting| waiting.is_taken());
        #[cfg(not(feature = "handover"))]
        let has_successor = false;
        if let Some(acceptors) = self.acceptors.take() {
            // A successor accepts what waits in the kernel.
            acceptors.end(!has_successor).await;
        }
        self.shared.drain_connections();
        self.shared.plugins.drain(drain.min(close));
        let mut stopped = Stopped::default();
        let mut has_ended = false;
        while !self.shared.open().is_empty() || self.shared.plugins.connections() > 0 {
            let passed = switchboard_core::clock::since(drain_start);
            if passed >= close {
                stopped.connections = open_connections(&self.shared);
                break;
            }
            if passed >= drain && !has_ended {
                has_ended = true;
                stopped.calls = calls_in_flight(&self.shared);
                self.shared.end_calls();
            }
            let next = if has_ended { close } else { close.min(drain) };
            sleep(LOOK.min(next.saturating_sub(passed))).await;
        }
        stopped.took = switchboard_core::clock::since(began);
        stopped
    }
}

/// Returns the calls in flight by method and wire.
fn calls_in_flight(state: &ServerState) -> Vec<AbortedCalls> {
    let methods = state.metrics.methods();
    let aborted = methods.iter().flat_map(|method| {
        let waiting = method.wires.iter().filter(|wire| wire.in_flight > 0);
        waiting.map(|wire| AbortedCalls {
            method: method.name.clone(),
            wire: wire.wire,
            calls: wire.in_flight,
        })
    });
    aborted.collect()
}

/// Returns the number of open connections by protocol.
fn open_connections(state: &ServerState) -> Vec<AbortedConnections> {
    let mut left: Vec<AbortedConnections> = Vec::new();
    for open in state.open().values() {
        let protocol = open.protocol.map_or("none", ConnectionProtocol::name);
        match left.iter_mut().find(|aborted| aborted.protocol == protocol) {
            Some(aborted) => aborted.connections += 1,
            None => left.push(AbortedConnections { protocol, connections: 1 }),
        }
    }
    for (wire, connections) in state.plugins.by_wire() {
        left.push(AbortedConnections { protocol: wire.name(), connections: connections as u64 });
    }
    left.sort_by_key(|aborted| aborted.protocol);
    left
}
