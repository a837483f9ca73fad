//! What a server tells registries of itself, from its start to its drain.

use crate::{
    Error, Server, client,
    discover::{Instance, Lease, Registry, State},
    net::Address,
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

impl Server {
    /// Registers this server once it listens, keeps that up while it serves, and ends it first when it drains.
    ///
    /// What `instance` leaves empty is filled in: without a service there is one registration for each that was added,
    /// without an address it has that of the first listener, and its id is the address. Weight, group, zone, version
    /// and tags are taken as they are. A registry that is down does not hold up the start: it is tried again until it
    /// answers. A listener on every address of the machine, `0.0.0.0`, needs an address in the instance.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use switchboard::{Server, discover::{Fixed, Instance}};
    /// # let registry = Arc::new(Fixed::new([]));
    /// let server = Server::new().announce(registry, Instance::default().zone("eu-1a").weight(200));
    /// ```
    pub fn announce(mut self, registry: Arc<dyn Registry>, instance: Instance) -> Server {
        self.announcements.push(Announcement { registry, template: instance });
        self
    }

    /// How long a drain waits for callers to hear that this server goes, before it tells those that are connected; 1 s
    /// unless set. In the first half it is registered as draining, in the second no more.
    pub fn announce_notice(mut self, notice: Duration) -> Server {
        self.announce_notice = notice;
        self
    }
}

/// One registry, and what to fill in there.
pub(super) struct Announcement {
    pub(super) registry: Arc<dyn Registry>,
    pub(super) template: Instance,
}

impl Announcement {
    /// One instance for each service, or the one that the template names.
    fn instances(&self, services: &[&str], address: &Address) -> Result<Vec<Instance>, Error> {
        let mut template = self.template.clone();
        if template.address.is_empty() {
            let everywhere = match address {
                Address::Tcp(host, _) | Address::Tls(host, _) => {
                    host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
                }
                _ => false,
            };
            if everywhere {
                return Err(Error::config(format!(
                    "announce to {}: {address} is every address of this machine, and callers need one: set the \
                     address of the instance",
                    self.registry.name()
                )));
            }
            template.address = address.to_string();
        }
        if template.id.is_empty() {
            template.id.clone_from(&template.address);
        }
        let named = [template.service.as_str()];
        let services = if template.service.is_empty() { services } else { &named[..] };
        let of_service = |service: &&str| Instance { service: (*service).to_owned(), ..template.clone() };
        Ok(services.iter().map(of_service).collect())
    }
}

/// How a server ends, as far as those who keep its leases are concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Draining,
    Killed,
    Serving,
}

/// The registrations of a running server. Dropping them deregisters without waiting.
pub(super) struct Announced {
    phase: watch::Sender<Phase>,
    kept: Vec<JoinHandle<()>>,
    /// What each registration is called between this process and its successor.
    #[cfg_attr(not(feature = "handover"), expect(dead_code, reason = "there are no successors"))]
    names: Vec<String>,
    /// The names of those that a successor keeps from now on.
    #[cfg_attr(not(feature = "handover"), expect(dead_code, reason = "there are no successors"))]
    taken: watch::Sender<Vec<String>>,
}

impl Announced {
    /// Begins to register; a registry that is down is tried again and again.
    pub(super) fn begin(
        announcements: &[Announcement],
        services: &[&str],
        address: &Address,
        notice: Duration,
    ) -> Result<Announced, Error> {
        let (phase, phases) = watch::channel(Phase::Serving);
        let mut all = Vec::new();
        for announcement in announcements {
            for instance in announcement.instances(services, address)? {
                instance.check().map_err(|wrong| Error::config(format!("announce: {}", wrong.message())))?;
                all.push((announcement.registry.clone(), instance));
            }
        }
        let (taken, takes) = watch::channel(Vec::new());
        let (mut kept, mut names) = (Vec::new(), Vec::new());
        for (registry, instance) in all {
            let name = format!("{}\t{}\t{}", registry.name(), instance.service, instance.id);
            let taken = Taken { name: name.clone(), names: takes.clone() };
            kept.push(crate::runtime::spawn(keep(registry, instance, notice, phases.clone(), taken)));
            names.push(name);
        }
        Ok(Announced { phase, kept, names, taken })
    }

    /// What each registration is called between this process and its successor.
    #[cfg(feature = "handover")]
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Where to put the names of those that a successor keeps from now on. This server leaves them to it: the successor
    /// has registered the same id, or is about to, and to end the one would end the other.
    #[cfg(feature = "handover")]
    pub(super) fn taken(&self) -> watch::Sender<Vec<String>> {
        self.taken.clone()
    }

    /// Says that the server drains, deregisters, and waits until callers will have heard of it.
    pub(super) async fn withdraw(&mut self) {
        self.phase.send_replace(Phase::Draining);
        for kept in self.kept.drain(..) {
            // A panic was printed, and the lease ends with its time.
            let _ = kept.await;
        }
    }

    /// Leaves the registrations to their time, as a crash would.
    pub(super) fn kill(&self) {
        self.phase.send_replace(Phase::Killed);
    }
}

/// Whether a successor has taken one registration over.
struct Taken {
    name: String,
    names: watch::Receiver<Vec<String>>,
}

impl Taken {
    async fn over(&mut self) {
        if self.names.wait_for(|names| names.contains(&self.name)).await.is_err() {
            // The server ends, which others see.
            std::future::pending::<()>().await;
        }
    }
}

/// The longest pause between two tries to register.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Keeps one registration until the server ends.
async fn keep(
    registry: Arc<dyn Registry>,
    instance: Instance,
    notice: Duration,
    mut phases: watch::Receiver<Phase>,
    mut taken: Taken,
) {
    let lease = tokio::select! {
        lease = register(&*registry, &instance) => lease,
        _ = phases.changed() => return,
        () = taken.over() => return,
    };
    tokio::select! {
        biased;
        () = taken.over() => return lease.kill(),
        _ = phases.changed() => {}
    }
    let phase = *phases.borrow();
    match phase {
        Phase::Killed => lease.kill(),
        // The server was dropped, and so is the lease.
        Phase::Serving => {}
        Phase::Draining => {
            // Half of the time for those who understand that it drains, half for those who only see it go.
            let (drains, step) = (instance.state(State::Draining), notice / 2);
            let _ = tokio::join!(timeout(step, lease.replace(drains)), sleep(step));
            // Waited for even when there is no time for the notice: after a drain the process ends.
            let ended = timeout(step.max(Duration::from_millis(500)), lease.end());
            let (ended, ()) = tokio::join!(ended, sleep(step));
            if !matches!(ended, Ok(Ok(()))) {
                tracing::warn!(registry = registry.name(), "cannot deregister: the lease ends with its time");
            }
        }
    }
}

async fn register(registry: &dyn Registry, instance: &Instance) -> Lease {
    let mut failures = 0;
    loop {
        match registry.register(instance.clone()).await {
            Ok(lease) => return lease,
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    let (registry, service) = (registry.name(), &instance.service);
                    tracing::warn!(registry, service, %error, "cannot register yet: trying on");
                }
                sleep(client::pause(failures, RETRY_MAX)).await;
            }
        }
    }
}
