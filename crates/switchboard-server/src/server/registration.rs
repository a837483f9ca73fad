//! Registration of a server with registries, from its start to its drain.

use std::{net::IpAddr, sync::Arc, time::Duration};
use switchboard_core::{Error, backoff};
use switchboard_discovery::discover::{Instance, Lease, Registry, State};
use switchboard_net::net::Address;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// A registry, and the template of the registration.
pub(super) struct RegistrationTemplate {
    pub(super) registry: Arc<dyn Registry>,
    pub(super) template: Instance,
}

impl RegistrationTemplate {
    /// Returns one instance for each service, or the one that the template names.
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
                    "register with {}: {address} is every address of this machine, and callers need one: set the \
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
        let of_service = |service: &&str| {
            let mut instance = template.clone();
            (*service).clone_into(&mut instance.service);
            instance
        };
        Ok(services.iter().map(of_service).collect())
    }
}

/// Phase of a server, as far as the tasks that keep its leases need it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Draining,
    Killed,
    Serving,
}

/// The registrations of a running server. Dropping them deregisters without waiting.
pub(super) struct Registrations {
    phase: watch::Sender<Phase>,
    kept: Vec<JoinHandle<()>>,
    /// Names that identify each registration to a successor process.
    #[cfg_attr(not(feature = "handover"), expect(dead_code, reason = "there are no successors"))]
    names: Vec<String>,
    /// Names of the registrations that a successor has taken over.
    #[cfg_attr(not(feature = "handover"), expect(dead_code, reason = "there are no successors"))]
    taken: watch::Sender<Vec<String>>,
}

impl Registrations {
    /// Starts to register; an unavailable registry is retried.
    pub(super) fn begin(
        templates: &[RegistrationTemplate],
        services: &[&str],
        address: &Address,
        notice: Duration,
    ) -> Result<Registrations, Error> {
        let (phase, phases) = watch::channel(Phase::Serving);
        let mut all = Vec::new();
        for template in templates {
            for instance in template.instances(services, address)? {
                instance
                    .check()
                    .map_err(|wrong| Error::config(format!("registration: {}", wrong.message())))?;
                all.push((template.registry.clone(), instance));
            }
        }
        let (taken, takes) = watch::channel(Vec::new());
        let (mut kept, mut names) = (Vec::new(), Vec::new());
        for (registry, instance) in all {
            let name = format!("{}\t{}\t{}", registry.name(), instance.service, instance.id);
            let taken = Taken { name: name.clone(), names: takes.clone() };
            kept.push(switchboard_core::runtime::spawn(keep(
                registry,
                instance,
                notice,
                phases.clone(),
                taken,
            )));
            names.push(name);
        }
        Ok(Registrations { phase, kept, names, taken })
    }

    /// Returns the names that identify each registration to a successor process.
    #[cfg(feature = "handover")]
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the channel for the names of registrations that a successor takes over. This server does not
    /// deregister them: the successor has registered, or is about to register, the same id, and deregistering
    /// would remove its registration too.
    #[cfg(feature = "handover")]
    pub(super) fn taken(&self) -> watch::Sender<Vec<String>> {
        self.taken.clone()
    }

    /// Registers the server as draining, deregisters it, and waits until callers have learned of it.
    pub(super) async fn withdraw(&mut self) {
        self.phase.send_replace(Phase::Draining);
        for kept in self.kept.drain(..) {
            // A panic was printed; the lease expires.
            let _ = kept.await;
        }
    }

    /// Leaves the registrations to expire, as a crash would.
    pub(super) fn kill(&self) {
        self.phase.send_replace(Phase::Killed);
    }
}

/// Watches whether a successor has taken over one registration.
struct Taken {
    name: String,
    names: watch::Receiver<Vec<String>>,
}

impl Taken {
    async fn over(&mut self) {
        if self.names.wait_for(|names| names.contains(&self.name)).await.is_err() {
            // The sender was dropped because the server ends, which other tasks observe.
            std::future::pending::<()>().await;
        }
    }
}

/// Maximum pause between two attempts to register.
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
        // The server was dropped, and the lease with it.
        Phase::Serving => {}
        Phase::Draining => {
            // Half of the time is for clients that support the draining state, half for those that only see
            // the removal.
            let (drains, step) = (instance.state(State::Draining), notice / 2);
            let _ = tokio::join!(timeout(step, lease.replace(drains)), sleep(step));
            // Awaited even if there is no time for the notice: after a drain the process ends.
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
                    tracing::warn!(registry, service, %error, "cannot register yet: retrying");
                }
                sleep(backoff::pause(failures, backoff::CONNECT_MIN, RETRY_MAX)).await;
            }
        }
    }
}
