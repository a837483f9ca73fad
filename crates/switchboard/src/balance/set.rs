//! The endpoints that a balancer chooses from.

use super::{Endpoint, Pick, fnv1a, mix};
use std::{
    any::Any,
    collections::HashSet,
    fmt,
    ops::Index,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// A set of endpoints, sorted by id. It never changes: a change of the fleet makes another set.
pub struct Endpoints {
    list: Vec<Arc<Endpoint>>,
    generation: u64,
    /// All have the same weight, which is not 0.
    alike: bool,
    prepared: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Endpoints {
    /// A set of these.
    pub fn new(endpoints: Vec<Endpoint>) -> Endpoints {
        Endpoints::shared(endpoints.into_iter().map(Arc::new).collect())
    }

    pub(crate) fn shared(mut list: Vec<Arc<Endpoint>>) -> Endpoints {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        list.sort_by(|a, b| a.id().cmp(b.id()));
        let first = list.first().map_or(0, |endpoint| endpoint.weight());
        let alike = first > 0 && list.iter().all(|endpoint| endpoint.weight() == first);
        let generation = NEXT.fetch_add(1, Ordering::Relaxed);
        Endpoints { list, generation, alike, prepared: OnceLock::new() }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Each of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.list.iter().map(|endpoint| &**endpoint)
    }

    /// Tells sets of one process apart.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What the balancer of this set made of it at its first call, such as a ring of hashes. There is room for one such
    /// thing, of one type; for another type there is none.
    pub fn prepared<T: Any + Send + Sync>(&self, make: impl FnOnce(&Endpoints) -> T) -> Option<&T> {
        let prepared = match self.prepared.get() {
            Some(prepared) => prepared,
            None => {
                let made = Box::new(make(self));
                self.prepared.get_or_init(|| made)
            }
        };
        prepared.downcast_ref()
    }

    /// Whether each endpoint is to get as much as the next.
    #[inline]
    pub(super) fn is_alike(&self, pick: &Pick<'_>) -> bool {
        self.alike && pick.starts_at_once()
    }

    /// Any endpoint that takes the call, by chance and weight.
    pub fn any(&self, pick: &Pick<'_>) -> Option<usize> {
        if self.is_alike(pick) {
            // Nearly always somebody of the first few takes it.
            for _ in 0..4 {
                let at = pick.below(self.len());
                if pick.takes(&self.list[at]) {
                    return Some(at);
                }
            }
        }
        let takers = || self.list.iter().enumerate().filter(|(_, endpoint)| pick.takes(endpoint));
        let total: f64 = takers().map(|(_, endpoint)| pick.weight(endpoint)).sum();
        let mut left = pick.fraction() * total;
        let mut last = None;
        for (at, endpoint) in takers() {
            last = Some(at);
            left -= pick.weight(endpoint);
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// Those of the endpoints that take the call for which `cost` is least; among equals by chance.
    pub fn least(&self, pick: &Pick<'_>, mut cost: impl FnMut(&Endpoint) -> f64) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        let mut equals = 0;
        for (at, endpoint) in self.list.iter().enumerate().filter(|(_, endpoint)| pick.takes(endpoint)) {
            let cost = cost(endpoint);
            match best {
                Some((_, least)) if cost > least => {}
                Some((_, least)) if cost == least => {
                    equals += 1;
                    // Each of the equals is as likely to stay in the end.
                    if pick.below(equals) == 0 {
                        best = Some((at, cost));
                    }
                }
                _ => {
                    equals = 1;
                    best = Some((at, cost));
                }
            }
        }
        best.map(|(at, _)| at)
    }
}

impl Index<usize> for Endpoints {
    type Output = Endpoint;

    fn index(&self, at: usize) -> &Endpoint {
        &self.list[at]
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

/// The ids of `size` servers that a client with this number connects to, where it does not need all. Clients that are
/// numbered on from 0 load the servers evenly: every server is in the subset of as many of them, give or take one
/// round. One that comes or goes changes the subsets of few.
pub(crate) fn subset<'a>(ids: impl Iterator<Item = &'a str>, client: u64, size: usize) -> HashSet<&'a str> {
    let mut ids: Vec<_> = ids.collect();
    if ids.len() <= size || size == 0 {
        return ids.into_iter().collect();
    }
    // Clients of one round share the servers out among themselves; each round has an order of its own.
    let rounds = (ids.len() / size) as u64;
    let round = client / rounds;
    ids.sort_by_key(|id| mix(fnv1a(id.as_bytes()) ^ mix(round)));
    let first = (client % rounds) as usize * size;
    ids[first..first + size].iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn any_goes_by_weight() {
        for weights in [&[100; 8][..], &[10, 20, 70, 300]] {
            let set = fleet(weights);
            let mut shares = vec![0; set.len()];
            for call in 0..40_000 {
                shares[set.any(&Pick::new("a.B/C", 0, mix(call))).unwrap()] += 1;
            }
            assert!(even(&set, &shares, 0.1), "{shares:?}");
        }
    }

    #[test]
    fn any_leaves_out_who_is_not_well() {
        let set = fleet(&[100; 100]);
        for endpoint in set.iter().skip(1) {
            endpoint.stats().eject(10);
        }
        for call in 0..100 {
            assert_eq!(set.any(&Pick::new("a.B/C", 5, call)), Some(0));
        }
        assert_eq!(set.any(&Pick::new("a.B/C", 5, 1).tried(&[set[0].number()])), None);
    }

    #[test]
    fn what_was_prepared_is_made_once() {
        let set = fleet(&[1, 1]);
        assert_eq!(set.prepared(Endpoints::len), Some(&2));
        assert_eq!(set.prepared(|_| 7usize), Some(&2));
        assert_eq!(set.prepared(|_| "another type"), None);
    }

    #[test]
    fn subsets_load_servers_evenly_and_change_little() {
        let names: Vec<String> = (0..300).map(|at| format!("server-{at}")).collect();
        let (clients, size) = (300, 10);
        let subset_of = |names: &[String], client| {
            subset(names.iter().map(String::as_str), client, size)
                .into_iter()
                .map(str::to_owned)
                .collect::<HashSet<_>>()
        };
        let mut loads = std::collections::HashMap::<String, usize>::new();
        for client in 0..clients {
            let chosen = subset_of(&names, client);
            assert_eq!(chosen.len(), size);
            assert_eq!(chosen, subset_of(&names, client), "the same each time");
            for id in chosen {
                *loads.entry(id).or_default() += 1;
            }
        }
        assert_eq!(loads.len(), 300);
        assert!(loads.values().all(|load| *load == 10), "{loads:?}");
        let fewer = subset(names[..4].iter().map(String::as_str), 7, 10);
        assert_eq!(fewer.len(), 4);
    }
}
