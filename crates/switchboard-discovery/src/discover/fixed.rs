//! A list in memory: instances that the program knows, and a registry within one process.

use super::{Backend, BoxFuture, Discovery, Feed, Instance, Options, Registration, Registry};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::Result;
use tokio::sync::watch;

/// Instances that the program lists, and instances that it registers while it runs.
///
/// Changes apply at once: the list belongs to the program, so no instance is held back.
///
/// ```
/// use switchboard::discover::{Fixed, Instance, Registry};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let list = Fixed::new([Instance::new("demo.Greeter", "tcp://10.0.0.7:8080")]);
/// let watch = list.watch("demo.Greeter");
/// assert_eq!(watch.latest().instances.len(), 1);
/// list.replace([]);
/// # }
/// ```
pub struct Fixed {
    discovery: Discovery,
    list: List,
}

impl Fixed {
    /// Creates a registry with these instances, of any services.
    pub fn new(instances: impl IntoIterator<Item = Instance>) -> Fixed {
        let list = List::default();
        list.replace(instances);
        let discovery = Discovery::new(list.clone(), Options::new().confirm_after(Duration::ZERO));
        Fixed { discovery, list }
    }

    /// Creates a registry of one service at these addresses, each with weight 100.
    pub fn addresses<A: Into<String>>(service: &str, addresses: impl IntoIterator<Item = A>) -> Fixed {
        Fixed::new(addresses.into_iter().map(|address| Instance::new(service, address)))
    }

    /// Replaces all instances by these.
    pub fn replace(&self, instances: impl IntoIterator<Item = Instance>) {
        self.list.replace(instances);
    }
}

impl Registry for Fixed {
    fn discovery(&self) -> &Discovery {
        &self.discovery
    }
}

/// Instances by service and id.
#[derive(Clone, Default)]
struct List {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    instances: Mutex<BTreeMap<(String, String), Instance>>,
    changed: watch::Sender<()>,
}

impl List {
    fn replace(&self, instances: impl IntoIterator<Item = Instance>) {
        let key = |instance: &Instance| (instance.service.clone(), instance.id.clone());
        let instances = instances.into_iter().map(|instance| (key(&instance), instance)).collect();
        *self.shared.lock() = instances;
        self.shared.changed.send_replace(());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Instance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for List {
    fn name(&self) -> &str {
        "fixed list"
    }

    fn follow<'a>(&'a self, service: &'a str, feed: &'a Feed) -> BoxFuture<'a, Result<Infallible>> {
        Box::pin(async move {
            let mut changed = self.shared.changed.subscribe();
            loop {
                changed.mark_unchanged();
                let listed: Vec<_> = {
                    let instances = self.shared.lock();
                    let of_service = instances.values().filter(|instance| instance.service == service);
                    of_service.cloned().map(Ok).collect()
                };
                feed.publish(listed);
                // `changed` cannot fail: the sender is in the list, which outlives this future.
                let _ = changed.changed().await;
            }
        })
    }

    fn may_lose_registrations(&self) -> bool {
        false
    }

    fn register<'a>(
        &'a self,
        instance: &'a Instance,
        _ttl: Duration,
    ) -> BoxFuture<'a, Result<Box<dyn Registration>>> {
        Box::pin(async move {
            let key = (instance.service.clone(), instance.id.clone());
            self.shared.lock().insert(key.clone(), instance.clone());
            self.shared.changed.send_replace(());
            Ok(Box::new(Listed { shared: self.shared.clone(), key }) as Box<dyn Registration>)
        })
    }
}

/// A registration; it has no TTL, because only this process can remove it.
struct Listed {
    shared: Arc<Shared>,
    key: (String, String),
}

impl Registration for Listed {
    fn renew(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.shared.lock().remove(&self.key);
            self.shared.changed.send_replace(());
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_list_is_published_at_once_and_changes_follow() {
        let list = Fixed::addresses("a", ["tcp://h:1", "tcp://h:2"]);
        let mut watch = list.watch("a");
        assert_eq!(watch.latest().instances.len(), 2);
        assert_eq!(watch.changed().await.instances.len(), 2);
        let lease = list.register(Instance::new("a", "tcp://h:3")).await.unwrap();
        assert_eq!(watch.changed().await.instances.len(), 3);
        lease.end().await.unwrap();
        assert_eq!(watch.changed().await.instances.len(), 2);
        list.replace([]);
        assert_eq!(watch.changed().await.instances.len(), 0);
    }

    #[tokio::test]
    async fn an_unknown_service_has_an_empty_snapshot() {
        let mut watch = Fixed::addresses("ab", ["tcp://h:1"]).watch("a");
        assert!(watch.changed().await.instances.is_empty());
    }

    #[tokio::test]
    async fn confirm_after_may_be_unlimited() {
        let list = List::default();
        let registry = Discovery::new(list.clone(), Options::new().confirm_after(Duration::MAX));
        list.replace([Instance::new("a", "tcp://h:1")]);
        let mut watch = registry.watch("a");
        list.replace([]);
        while watch.state().held_back.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(watch.changed().await.instances.len(), 1);
    }

    #[tokio::test]
    async fn a_dropped_lease_deregisters() {
        let list = Fixed::new([]);
        let mut watch = list.watch("a");
        watch.changed().await;
        let lease = list.register(Instance::new("a", "tcp://h:1")).await.unwrap();
        assert_eq!(watch.changed().await.instances.len(), 1);
        drop(lease);
        assert_eq!(watch.changed().await.instances.len(), 0);
    }

    #[tokio::test]
    async fn invalid_instances_are_rejected() {
        let list = Fixed::new([]);
        let rejected = list.register(Instance::new("a", "")).await.unwrap_err();
        assert_eq!(rejected.code(), switchboard_wire::Code::InvalidArgument);
        let lease = list.register(Instance::new("a", "tcp://h:1")).await.unwrap();
        let rejected = lease.replace(Instance::new("b", "tcp://h:1")).await.unwrap_err();
        assert!(rejected.message().contains("register that one"), "{rejected}");
    }
}
