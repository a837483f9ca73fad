//! A registry in which servers register and which channels watch; it can fail, and lose its entries.

use super::wires::Wire;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_discovery::discover::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration};
use switchboard_wire::Status;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// State of the registry, shared by its back ends.
#[derive(Clone)]
pub(super) struct SimRegistry(Arc<Shared>);

struct Shared {
    state: Mutex<RegistryState>,
    changed: watch::Sender<()>,
}

struct RegistryState {
    available: bool,
    /// Instances by id, each with the time when it expires.
    held: BTreeMap<String, (Instance, Instant)>,
}

/// The registry as back end of channels that use one wire.
struct WireBackend {
    registry: SimRegistry,
    wire: &'static Wire,
}

impl SimRegistry {
    pub(super) fn new() -> SimRegistry {
        let state = Mutex::new(RegistryState { available: true, held: BTreeMap::new() });
        SimRegistry(Arc::new(Shared { state, changed: watch::Sender::new(()) }))
    }

    /// Creates a registry whose instances are called on this wire.
    pub(super) fn registry(&self, wire: &'static Wire) -> Arc<Discovery> {
        Arc::new(Discovery::new(WireBackend { registry: self.clone(), wire }, Options::new()))
    }

    /// Sets whether the registry responds.
    pub(super) fn set_available(&self, available: bool) {
        self.state().available = available;
        self.0.changed.send_replace(());
    }

    /// Removes all entries, like a restart of the registry.
    pub(super) fn clear(&self) {
        self.state().held.clear();
        self.0.changed.send_replace(());
    }

    pub(super) fn is_available(&self) -> bool {
        self.state().available
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.0.state.lock().unwrap()
    }

    /// Returns the state, or an error while the registry is down.
    fn available_state(&self) -> Result<MutexGuard<'_, RegistryState>> {
        let state = self.state();
        if state.available { Ok(state) } else { Err(Status::unavailable("the registry is down")) }
    }
}

impl Backend for WireBackend {
    fn name(&self) -> &str {
        "the simulated registry"
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(async move {
            let mut changed = self.registry.0.changed.subscribe();
            loop {
                changed.mark_unchanged();
                let (listed, next): (Vec<_>, _) = {
                    let (mut state, now) = (self.registry.available_state()?, Instant::now());
                    state.held.retain(|_, (_, until)| *until > now);
                    let of_service = state.held.values().filter(|(instance, _)| instance.service == service);
                    let called = |(instance, _): &(Instance, Instant)| {
                        let mut instance = instance.clone();
                        instance.address = self.wire.at(&instance.address);
                        Ok(instance)
                    };
                    (of_service.map(called).collect(), state.held.values().map(|(_, until)| *until).min())
                };
                feed.publish(listed);
                let expired = async {
                    match next {
                        Some(next) => sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    // `changed` cannot fail: the sender is in the registry.
                    _ = changed.changed() => {}
                    () = expired => {}
                }
            }
        })
    }

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let until = Instant::now() + ttl;
            self.registry.available_state()?.held.insert(instance.id.clone(), (instance.clone(), until));
            self.registry.0.changed.send_replace(());
            Ok(Box::new(SimulatedRegistration {
                registry: self.registry.clone(),
                id: instance.id.clone(),
                ttl,
            }) as Box<dyn Registration>)
        })
    }
}

/// A registered instance.
struct SimulatedRegistration {
    registry: SimRegistry,
    id: String,
    ttl: Duration,
}

impl Registration for SimulatedRegistration {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let mut state = self.registry.available_state()?;
            let entry = state.held.get_mut(&self.id).filter(|(_, until)| *until > Instant::now());
            let (_, until) = entry.ok_or_else(|| Status::not_found("no longer registered"))?;
            *until = Instant::now() + self.ttl;
            Ok(())
        })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.registry.available_state()?.held.remove(&self.id);
            self.registry.0.changed.send_replace(());
            Ok(())
        })
    }
}
