//! What the embedded registry holds. Time is an argument; what is overdue goes when somebody looks.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard::{Code, Result, Status, discover::Instance};
use tokio::{sync::watch, time::Instant};

/// A TTL below this would be more renewing than serving, above it as good as none.
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
    /// Whose lease it is: service and id.
    leases: HashMap<u64, (String, String)>,
    /// The last number of a lease or version; it begins anywhere, so that those of before a restart are not taken for
    /// newer ones.
    last: u64,
}

/// The instances of one service.
struct Listed {
    instances: BTreeMap<String, Kept>,
    version: u64,
    changed: watch::Sender<()>,
}

struct Kept {
    json: String,
    lease: u64,
    ttl: Duration,
    until: Instant,
}

impl Store {
    pub(super) fn new(
        instances_max: usize,
        service_instances_max: usize,
        instance_bytes_max: usize,
    ) -> Store {
        let last = RandomState::new().hash_one(0) >> 1;
        let inner = Inner { services: HashMap::new(), leases: HashMap::new(), last };
        Store { instances_max, service_instances_max, instance_bytes_max, inner: Mutex::new(inner) }
    }

    /// Keeps an instance in place of one with the same service and id, and returns the number of its lease.
    pub(super) fn insert(&self, json: String, ttl: Duration, now: Instant) -> Result<u64> {
        let Instance { service, id, .. } = Instance::decode(json.as_bytes(), self.instance_bytes_max)?;
        if !TTL.contains(&ttl) {
            return Err(Status::new(
                Code::InvalidArgument,
                format!("a ttl of {ttl:?} is not between {:?} and {:?}", TTL.start(), TTL.end()),
            ));
        }
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.leases.len() >= self.instances_max {
            inner.expire_all(now);
        } else {
            inner.expire(&service, now);
        }
        let of_service = inner.services.get(&service);
        let before = of_service.and_then(|listed| listed.instances.get(&id)).map(|kept| kept.lease);
        let count = of_service.map_or(0, |listed| listed.instances.len());
        for (name, count, max) in [
            ("instances_max", inner.leases.len(), self.instances_max),
            ("service_instances_max", count, self.service_instances_max),
        ] {
            if before.is_none() && count >= max {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    format!("the embedded registry has {count} instances already and takes {name} {max}"),
                ));
            }
        }
        let (lease, version) = (inner.next(), inner.next());
        if let Some(before) = before {
            inner.leases.remove(&before);
        }
        inner.leases.insert(lease, (service.clone(), id.clone()));
        let listed = inner.services.entry(service).or_insert_with(|| Listed::new(version));
        let is_news = listed.instances.get(&id).is_none_or(|before| before.json != json);
        listed.instances.insert(id, Kept { json, lease, ttl, until: now + ttl });
        if is_news {
            listed.change(version);
        }
        Ok(lease)
    }

    /// Keeps a lease for its TTL from now on.
    pub(super) fn extend(&self, lease: u64, now: Instant) -> Result<()> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let kept = inner.leases.get(&lease).and_then(|(service, id)| {
            inner.services.get_mut(service).and_then(|listed| listed.instances.get_mut(id))
        });
        match kept {
            Some(kept) if kept.until > now => {
                kept.until = now + kept.ttl;
                Ok(())
            }
            _ => Err(Status::not_found("the embedded registry does not know the lease: register again")),
        }
    }

    /// Ends a lease if it is known.
    pub(super) fn remove(&self, lease: u64, now: Instant) {
        let mut inner = self.lock();
        let version = inner.next();
        if let Some((service, id)) = inner.leases.remove(&lease)
            && let Some(listed) = inner.services.get_mut(&service)
        {
            listed.instances.remove(&id);
            listed.change(version);
            inner.expire(&service, now);
        }
    }

    /// Wakes when the list of a service changes, but not when a lease is overdue.
    pub(super) fn subscribe(&self, service: &str) -> Result<watch::Receiver<()>> {
        // The name becomes a key, and there is no end of names.
        Instance::new(service, "tcp://any").check()?;
        let mut inner = self.lock();
        let version = inner.next();
        inner.services.retain(|_, listed| listed.is_needed());
        let listed = inner.services.entry(service.to_owned()).or_insert_with(|| Listed::new(version));
        Ok(listed.changed.subscribe())
    }

    /// The version of a list, and when its next lease is overdue.
    pub(super) fn version(&self, service: &str, now: Instant) -> (u64, Option<Instant>) {
        let mut inner = self.lock();
        inner.expire(service, now);
        inner.services.get(service).map_or((0, None), |listed| {
            (listed.version, listed.instances.values().map(|kept| kept.until).min())
        })
    }

    /// The version of a list and its encoded instances.
    pub(super) fn list(&self, service: &str, now: Instant) -> (u64, Vec<String>) {
        let mut inner = self.lock();
        inner.expire(service, now);
        inner.services.get(service).map_or((0, Vec::new()), |listed| {
            (listed.version, listed.instances.values().map(|kept| kept.json.clone()).collect())
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn expire_all(&mut self, now: Instant) {
        let services: Vec<String> = self.services.keys().cloned().collect();
        for service in services {
            self.expire(&service, now);
        }
    }

    /// Ends the leases of a service that are overdue.
    fn expire(&mut self, service: &str, now: Instant) {
        let version = self.next();
        let Some(listed) = self.services.get_mut(service) else { return };
        let before = listed.instances.len();
        let leases = &mut self.leases;
        listed.instances.retain(|_, kept| {
            let stays = kept.until > now;
            if !stays {
                leases.remove(&kept.lease);
            }
            stays
        });
        if listed.instances.len() != before {
            listed.change(version);
        }
    }
}

impl Listed {
    fn new(version: u64) -> Listed {
        Listed { instances: BTreeMap::new(), version, changed: watch::Sender::new(()) }
    }

    fn change(&mut self, version: u64) {
        self.version = version;
        self.changed.send_replace(());
    }

    fn is_needed(&self) -> bool {
        !self.instances.is_empty() || self.changed.receiver_count() > 0
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
    fn the_same_again_is_no_change_and_the_old_lease_ends_nothing() {
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
    fn full_is_full_until_leases_end() {
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
    fn what_cannot_be_kept_is_refused() {
        let (store, now) = (Store::new(3, 2, 100), Instant::now());
        for (json, ttl) in [
            (json("a", "1"), Duration::ZERO),
            (json("a", "1"), TTL * 1000),
            (json("a", &"1".repeat(90)), TTL),
            ("{".to_owned(), TTL),
        ] {
            assert_eq!(store.insert(json, ttl, now).unwrap_err().code(), Code::InvalidArgument);
        }
        assert_eq!(store.subscribe("").unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn names_that_nobody_follows_any_more_are_forgotten() {
        let store = Store::new(3, 2, 100);
        for at in 0..100 {
            store.subscribe(&at.to_string()).unwrap();
        }
        assert_eq!(store.lock().services.len(), 1);
    }
}
