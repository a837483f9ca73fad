//! The instances of the embedded registry. Time is an argument; overdue leases end at the next operation.
//!
//! Every operation under the lock costs the logarithm of the number of leases, besides the lists that it returns:
//! leases end in the order of their time, each once, and a name is removed with its last follower.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard::{Code, Result, Status, discover::Instance};
use tokio::{sync::watch, time::Instant};

/// A shorter TTL would cause more renewals than useful work, a longer one would have no effect.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Instances with their leases, of all services.
pub(super) struct Store {
    instances_max: usize,
    service_instances_max: usize,
    instance_bytes_max: usize,
    inner: Mutex<Inner>,
}

struct Inner {
    services: HashMap<String, Listed>,
    /// Service and id of each lease.
    leases: HashMap<u64, (String, String)>,
    /// All leases by the time of their end.
    ends: BTreeSet<(Instant, u64)>,
    /// The last number of a lease or version. It starts at a random number, so that numbers from before a restart do
    /// not count as newer ones.
    last: u64,
}

/// The instances of one service. It exists while it has an instance or a follower.
struct Listed {
    instances: BTreeMap<String, StoredInstance>,
    /// Their leases by the time of their end.
    ends: BTreeSet<(Instant, u64)>,
    version: u64,
    changed: watch::Sender<()>,
}

struct StoredInstance {
    json: String,
    lease: u64,
    ttl: Duration,
    until: Instant,
}

/// A follower of one service.
pub(super) struct Subscription<'a> {
    store: &'a Store,
    service: String,
    /// Taken when the subscription ends.
    changed: Option<watch::Receiver<()>>,
}

impl Store {
    pub(super) fn new(
        instances_max: usize,
        service_instances_max: usize,
        instance_bytes_max: usize,
    ) -> Store {
        let last = RandomState::new().hash_one(0) >> 1;
        let inner = Inner { services: HashMap::new(), leases: HashMap::new(), ends: BTreeSet::new(), last };
        Store { instances_max, service_instances_max, instance_bytes_max, inner: Mutex::new(inner) }
    }

    /// Stores an instance, replacing one with the same service and id, and returns the number of its lease.
    pub(super) fn insert(&self, json: String, ttl: Duration, now: Instant) -> Result<u64> {
        let Instance { service, id, .. } = Instance::decode(json.as_bytes(), self.instance_bytes_max)?;
        if !TTL.contains(&ttl) {
            return Err(Status::new(
                Code::InvalidArgument,
                format!("a ttl of {ttl:?} is not between {:?} and {:?}", TTL.start(), TTL.end()),
            ));
        }
        let mut inner = self.lock(now);
        let inner = &mut *inner;
        let of_service = inner.services.get(&service);
        let before = of_service.and_then(|listed| listed.instances.get(&id)).map(|stored| stored.lease);
        let count = of_service.map_or(0, |listed| listed.instances.len());
        for (name, count, max) in [
            ("instances_max", inner.leases.len(), self.instances_max),
            ("service_instances_max", count, self.service_instances_max),
        ] {
            if before.is_none() && count >= max {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    format!("the embedded registry has {count} instances already; the limit is {name} {max}"),
                ));
            }
        }
        let (lease, version) = (inner.next(), inner.next());
        let until = now + ttl;
        let listed = inner.services.entry(service.clone()).or_insert_with(|| Listed::new(version));
        let is_news = listed.instances.get(&id).is_none_or(|before| before.json != json);
        if let Some(before) = listed.instances.insert(id.clone(), StoredInstance { json, lease, ttl, until })
        {
            inner.leases.remove(&before.lease);
            inner.ends.remove(&(before.until, before.lease));
            listed.ends.remove(&(before.until, before.lease));
        }
        inner.leases.insert(lease, (service, id));
        inner.ends.insert((until, lease));
        listed.ends.insert((until, lease));
        if is_news {
            listed.change(version);
        }
        Ok(lease)
    }

    /// Renews a lease for its TTL from now on.
    pub(super) fn extend(&self, lease: u64, now: Instant) -> Result<()> {
        let mut inner = self.lock(now);
        let inner = &mut *inner;
        let found = inner.leases.get(&lease).and_then(|(service, id)| {
            let listed = inner.services.get_mut(service)?;
            Some((listed.instances.get_mut(id)?, &mut listed.ends))
        });
        let Some((stored, ends)) = found else {
            return Err(Status::not_found("the embedded registry has no such lease: register again"));
        };
        let until = now + stored.ttl;
        for ends in [ends, &mut inner.ends] {
            ends.remove(&(stored.until, lease));
            ends.insert((until, lease));
        }
        stored.until = until;
        Ok(())
    }

    /// Ends a lease if it exists.
    pub(super) fn remove(&self, lease: u64, now: Instant) {
        self.lock(now).end(lease);
    }

    /// Returns the number of the lease that an instance has.
    pub(super) fn lease(&self, service: &str, id: &str, now: Instant) -> Result<u64> {
        let inner = self.lock(now);
        let stored = inner.services.get(service).and_then(|listed| listed.instances.get(id));
        stored
            .map(|stored| stored.lease)
            .ok_or_else(|| Status::not_found(format!("the embedded registry has no {id} of {service}")))
    }

    /// Wakes when the list of a service changes, but not when a lease is overdue.
    pub(super) fn subscribe(&self, service: &str) -> Result<Subscription<'_>> {
        // The name becomes a key, so its form is checked.
        Instance::new(service, "tcp://any").check()?;
        let mut inner = self.unchecked();
        let version = inner.next();
        let listed = inner.services.entry(service.to_owned()).or_insert_with(|| Listed::new(version));
        let changed = Some(listed.changed.subscribe());
        Ok(Subscription { store: self, service: service.to_owned(), changed })
    }

    /// Returns the version of a list, and when its next lease is overdue.
    pub(super) fn version(&self, service: &str, now: Instant) -> (u64, Option<Instant>) {
        self.lock(now)
            .services
            .get(service)
            .map_or((0, None), |listed| (listed.version, listed.ends.first().map(|(until, _)| *until)))
    }

    /// Returns the version of a list and its encoded instances.
    pub(super) fn list(&self, service: &str, now: Instant) -> (u64, Vec<String>) {
        self.lock(now).services.get(service).map_or((0, Vec::new()), |listed| {
            (listed.version, listed.instances.values().map(|stored| stored.json.clone()).collect())
        })
    }

    /// Locks the store and ends the leases that are overdue.
    fn lock(&self, now: Instant) -> MutexGuard<'_, Inner> {
        let mut inner = self.unchecked();
        while let Some((until, lease)) = inner.ends.first().copied()
            && until <= now
        {
            inner.end(lease);
        }
        inner
    }

    fn unchecked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Ends a lease if it exists.
    fn end(&mut self, lease: u64) {
        let version = self.next();
        let Some((service, id)) = self.leases.remove(&lease) else { return };
        let Some(listed) = self.services.get_mut(&service) else { return };
        if let Some(stored) = listed.instances.remove(&id) {
            self.ends.remove(&(stored.until, lease));
            listed.ends.remove(&(stored.until, lease));
        }
        listed.change(version);
        self.forget(&service);
    }

    /// Removes the name of a service without instances and followers.
    fn forget(&mut self, service: &str) {
        let is_needed = |listed: &Listed| !listed.instances.is_empty() || listed.changed.receiver_count() > 0;
        if self.services.get(service).is_some_and(|listed| !is_needed(listed)) {
            self.services.remove(service);
        }
    }
}

impl Listed {
    fn new(version: u64) -> Listed {
        Listed { instances: BTreeMap::new(), ends: BTreeSet::new(), version, changed: watch::Sender::new(()) }
    }

    fn change(&mut self, version: u64) {
        self.version = version;
        self.changed.send_replace(());
    }
}

impl Subscription<'_> {
    /// Marks the changes so far as seen.
    pub(super) fn mark_unchanged(&mut self) {
        if let Some(changed) = &mut self.changed {
            changed.mark_unchanged();
        }
    }

    /// Waits for a change. Cancel safe.
    pub(super) async fn changed(&mut self) {
        if let Some(changed) = &mut self.changed {
            // The sender lives as long as this subscription.
            let _ = changed.changed().await;
        }
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let mut inner = self.store.unchecked();
        self.changed = None;
        inner.forget(&self.service);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn json(service: &str, id: &str) -> String {
        String::from_utf8(Instance::new(service, "tcp://h:1").id(id).encode(1024).unwrap()).unwrap()
    }

    #[test]
    fn leases_end_with_their_time_unless_renewed() {
        let (store, start) = (Store::new(10, 10, 1024), Instant::now());
        let one = store.insert(json("a", "1"), TTL, start).unwrap();
        store.insert(json("a", "2"), TTL, start).unwrap();
        store.extend(one, start + TTL / 2).unwrap();
        assert_eq!(store.list("a", start + TTL).1, [json("a", "1")]);
        assert_eq!(store.version("a", start + TTL).1, Some(start + TTL + TTL / 2));
        assert!(store.list("a", start + TTL * 2).1.is_empty());
        assert_eq!(store.extend(one, start + TTL * 2).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn registering_the_same_instance_again_is_no_change_and_the_old_lease_ends_nothing() {
        let (store, now) = (Store::new(10, 10, 1024), Instant::now());
        let old = store.insert(json("a", "1"), TTL, now).unwrap();
        let version = store.version("a", now).0;
        let new = store.insert(json("a", "1"), TTL, now).unwrap();
        assert_eq!(store.version("a", now).0, version);
        store.remove(old, now);
        assert_eq!(store.list("a", now).1.len(), 1);
        store.remove(new, now);
        assert_ne!(store.version("a", now).0, version);
    }

    #[test]
    fn a_full_registry_refuses_until_leases_end() {
        let (store, now) = (Store::new(3, 2, 1024), Instant::now());
        store.insert(json("a", "1"), TTL, now).unwrap();
        store.insert(json("a", "2"), TTL, now).unwrap();
        let refused = store.insert(json("a", "3"), TTL, now).unwrap_err();
        assert!(refused.message().contains("service_instances_max 2"), "{refused}");
        store.insert(json("a", "2"), TTL, now).unwrap();
        store.insert(json("b", "1"), TTL, now).unwrap();
        let refused = store.insert(json("c", "1"), TTL, now).unwrap_err();
        assert!(refused.message().contains(" instances_max 3"), "{refused}");
        store.insert(json("c", "1"), TTL, now + TTL).unwrap();
    }

    #[test]
    fn invalid_instances_and_ttls_are_refused() {
        let (store, now) = (Store::new(3, 2, 100), Instant::now());
        for (json, ttl) in [
            (json("a", "1"), Duration::ZERO),
            (json("a", "1"), TTL * 1000),
            (json("a", &"1".repeat(90)), TTL),
            ("{".to_owned(), TTL),
        ] {
            assert_eq!(store.insert(json, ttl, now).unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!(store.subscribe("").err().unwrap().code(), Code::InvalidArgument);
    }

    #[test]
    fn names_are_removed_with_their_last_follower_and_instance() {
        let (store, now) = (Store::new(3, 2, 1024), Instant::now());
        for at in 0..100 {
            store.subscribe(&at.to_string()).unwrap();
        }
        assert!(store.unchecked().services.is_empty());
        let (one, two) = (store.subscribe("a").unwrap(), store.subscribe("a").unwrap());
        let lease = store.insert(json("a", "1"), TTL, now).unwrap();
        drop(one);
        store.remove(lease, now);
        assert_eq!(store.unchecked().services.len(), 1);
        drop(two);
        assert!(store.unchecked().services.is_empty());
        store.insert(json("a", "1"), TTL, now).unwrap();
        drop(store.subscribe("a").unwrap());
        assert_eq!(store.version("a", now).1, Some(now + TTL));
        assert_eq!(store.version("a", now + TTL), (0, None));
        let inner = store.unchecked();
        assert!(inner.services.is_empty() && inner.leases.is_empty() && inner.ends.is_empty());
    }

    #[test]
    fn leases_end_in_the_order_of_their_time_in_every_service() {
        let (store, now) = (Store::new(300, 300, 1024), Instant::now());
        for at in 0..100 {
            let service = (at % 7).to_string();
            let lease = store.insert(json(&service, &at.to_string()), TTL, now).unwrap();
            if at % 3 == 0 {
                store.extend(lease, now + TTL / 2).unwrap();
            }
        }
        store.version("another", now + TTL);
        assert_eq!(store.unchecked().leases.len(), 34);
        store.version("another", now + TTL + TTL / 2);
        assert!(store.unchecked().services.is_empty());
    }

    #[test]
    fn the_lease_of_an_instance_is_that_of_its_last_registration() {
        let (store, now) = (Store::new(3, 2, 1024), Instant::now());
        let old = store.insert(json("a", "1"), TTL, now).unwrap();
        let new = store.insert(json("a", "1"), TTL, now).unwrap();
        assert_eq!(store.lease("a", "1", now).unwrap(), new);
        assert_eq!(store.extend(old, now).unwrap_err().code(), Code::NotFound);
        assert_eq!(store.lease("a", "1", now + TTL).unwrap_err().code(), Code::NotFound);
    }
}
