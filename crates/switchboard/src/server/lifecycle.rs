//! From the first bind to the last connection: phases, hooks, and the end in good order.

use super::{
    Drained, Running, Shared,
    announce::{Announced, Announcement},
};
use crate::{Address, Error, Result, Status, metrics::Carrier};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout_at};

/// How often the end looks whether connections are left.
const LOOK: Duration = Duration::from_millis(5);
/// What serving until a signal leaves between the end of the last calls and that of their connections.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a server is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// It listens and answers, but probes are told to send nobody yet.
    Starting,
    Serving,
    /// Probes are told to send nobody any more.
    Stopping,
}

impl Phase {
    #[cfg(feature = "http")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Serving => "serving",
            Phase::Stopping => "stopping",
        }
    }
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type StartHook = Box<dyn FnOnce(Vec<Address>) -> Work<Result<()>> + Send>;

/// What the application wants done at the beginning and at the end. Behind a lock that nobody ever waits for: the work
/// need not be `Sync`, and what has it is.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) warm_up: Vec<Box<dyn FnOnce() -> Work<Result<()>> + Send>>,
    pub(super) start: Vec<StartHook>,
    pub(super) stop: Vec<Box<dyn FnOnce() -> Work<()> + Send>>,
    /// How long the notice of an end takes to reach everybody.
    pub(super) notice: Duration,
}

/// How a server stopped.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    /// From the beginning to the end of it.
    pub took: Duration,
    /// Calls that had not ended by themselves and were ended with `Unavailable`.
    pub calls: Vec<CutCalls>,
    /// Connections that were cut, by what they spoke.
    pub connections: Vec<CutConnections>,
}

/// Calls of one method that did not end by themselves.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CutCalls {
    /// Full name, `package.Service/Method`.
    pub method: String,
    /// The wire that they came on, as in [`WireStats::wire`](crate::WireStats::wire).
    pub wire: &'static str,
    /// How many.
    pub calls: u64,
}

/// Connections of one protocol that were cut.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CutConnections {
    /// As in [`CarrierStats::protocol`](crate::CarrierStats::protocol); `none` for those that had not shown theirs.
    pub protocol: &'static str,
    /// How many.
    pub connections: u64,
}

impl Stopped {
    /// Whether every call and every connection ended by itself.
    pub fn is_clean(&self) -> bool {
        self.calls.is_empty() && self.connections.is_empty()
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped after {} ms", self.took.as_millis())?;
        for cut in &self.calls {
            write!(f, "; {} of {} ({}) were ended", plural(cut.calls, "call"), cut.method, cut.wire)?;
        }
        for cut in &self.connections {
            write!(f, "; {} ({}) had to be cut", plural(cut.connections, "connection"), cut.protocol)?;
        }
        Ok(())
    }
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Running {
    /// Runs what is to be done before the server counts as ready, then what is to be done because it is, and tells
    /// registries of its `services`.
    ///
    /// # Errors
    /// A hook's, or an announcement that cannot be.
    pub(super) async fn begin(
        &mut self,
        announcements: &[Announcement],
        services: &[&str],
        notice: Duration,
    ) -> Result<(), Error> {
        let failed = |what, status: Status| Error::config(format!("{what}: {status}"));
        let hooks = std::mem::take(&mut self.hooks().warm_up);
        for hook in hooks {
            hook().await.map_err(|status| failed("warm_up", status))?;
        }
        self.shared.set_phase(Phase::Serving);
        let hooks = std::mem::take(&mut self.hooks().start);
        for hook in hooks {
            hook(self.addresses.clone()).await.map_err(|status| failed("on_start", status))?;
        }
        self.announced = Some(Announced::begin(announcements, services, &self.addresses[0], notice)?);
        Ok(())
    }

    /// Stops in good order, and says what was left:
    ///
    /// 1. Probes are told that nobody is to be sent here any more, registries get to know it, which takes
    ///    [`announce_notice`] if there are any, and the hooks of [`on_stop`] run.
    /// 2. For the time of [`notice`] all goes on as before, so that the news can spread; new callers still come.
    /// 3. Listeners close, and every peer is told to begin no further call here. What runs may end.
    /// 4. After `drain` the calls that are left end with `Unavailable`, and their callers get that.
    /// 5. After `hard`, counted from step 3 like `drain`, connections that are left are cut.
    ///
    /// Always ends, at the latest after `notice` and `hard`, which includes the hooks. Cancel safe: dropped before its
    /// end, it cuts everything.
    ///
    /// [`announce_notice`]: super::Server::announce_notice
    /// [`on_stop`]: super::Server::on_stop
    /// [`notice`]: super::Server::notice
    pub async fn stop(mut self, drain: Duration, hard: Duration) -> Stopped {
        let (began, notice) = (crate::clock::now(), self.hooks().notice);
        self.shared.set_phase(Phase::Stopping);
        self.leave(began + notice + hard).await;
        sleep(notice).await;
        self.wind_down(drain, hard, began).await
    }

    /// Stops accepting, tells every peer, lets calls end, and cuts what is left after `limit`, after the hooks of
    /// [`on_stop`](super::Server::on_stop) have run and what was [announced](super::Server::announce) is ended and the
    /// notice of that has spread, which have `limit` too. Always ends.
    ///
    /// Cancel safe: dropped before its end, it cuts every connection.
    pub async fn drain(mut self, limit: Duration) -> Drained {
        let began = crate::clock::now();
        self.shared.set_phase(Phase::Stopping);
        self.leave(began + limit).await;
        let stopped = self.wind_down(Duration::MAX, limit, began).await;
        Drained { cut: stopped.connections.iter().map(|cut| cut.connections as usize).sum() }
    }

    pub(super) fn hooks(&mut self) -> &mut Hooks {
        self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the hooks and ends what was [announced](super::Server::announce), all at once, but not beyond `end`.
    async fn leave(&mut self, end: Instant) {
        let mut hooks = tokio::task::JoinSet::new();
        for hook in std::mem::take(&mut self.hooks().stop) {
            hooks.spawn(hook());
        }
        let announced = self.announced.take();
        let withdrawn = async {
            if let Some(mut announced) = announced {
                announced.withdraw().await;
            }
        };
        let all = async { while hooks.join_next().await.is_some() {} };
        if timeout_at(end.into(), async { tokio::join!(all, withdrawn) }).await.is_err() {
            tracing::warn!("a hook of on_stop, or a registry, did not end in time");
        }
    }

    async fn wind_down(mut self, drain: Duration, hard: Duration, began: Instant) -> Stopped {
        let told = crate::clock::now();
        // The acceptors end with it.
        self.stop = None;
        #[cfg(feature = "handover")]
        {
            self.waiting = None;
        }
        self.shared.tell_to_go();
        let mut stopped = Stopped::default();
        let mut has_ended = false;
        while !self.shared.open().is_empty() {
            let passed = crate::clock::since(told);
            if passed >= hard {
                stopped.connections = self.shared.left();
                break;
            }
            if passed >= drain && !has_ended {
                has_ended = true;
                stopped.calls = self.shared.end_calls();
            }
            let next = if has_ended { hard } else { hard.min(drain) };
            sleep(LOOK.min(next.saturating_sub(passed))).await;
        }
        stopped.took = crate::clock::since(began);
        stopped
    }
}

impl Shared {
    #[cfg(feature = "http")]
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
        #[cfg(feature = "http")]
        crate::http::Standard::follow(self);
    }

    /// Has every peer told to begin no further call.
    fn tell_to_go(&self) {
        self.draining.store(true, Ordering::Relaxed);
        #[cfg(feature = "http")]
        self.drain_http.send_replace(true);
        for connection in self.open().values() {
            connection.wakes.wake();
        }
    }

    /// Ends the calls that are left; says which.
    fn end_calls(&self) -> Vec<CutCalls> {
        let methods = self.metrics.methods();
        let cut = methods.iter().flat_map(|method| {
            let waiting = method.wires.iter().filter(|wire| wire.in_flight > 0);
            waiting.map(|wire| CutCalls {
                method: method.name.clone(),
                wire: wire.wire,
                calls: wire.in_flight,
            })
        });
        let cut = cut.collect();
        self.ending.store(true, Ordering::Relaxed);
        for connection in self.open().values() {
            connection.wakes.wake();
        }
        #[cfg(feature = "http")]
        self.flights.wake_all();
        cut
    }

    /// The connections that are open, by what they speak.
    fn left(&self) -> Vec<CutConnections> {
        let mut left: Vec<CutConnections> = Vec::new();
        for open in self.open().values() {
            let protocol = open.carrier.map_or("none", Carrier::name);
            match left.iter_mut().find(|cut| cut.protocol == protocol) {
                Some(cut) => cut.connections += 1,
                None => left.push(CutConnections { protocol, connections: 1 }),
            }
        }
        left.sort_by_key(|cut| cut.protocol);
        left
    }
}
