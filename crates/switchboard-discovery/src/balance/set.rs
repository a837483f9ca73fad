//! The endpoints that a balancer chooses from.

use super::{Endpoint, Pick, fnv1a};
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
use switchboard_core::clock::mix;

/// Set of endpoints, sorted by id. It is immutable: a change of the fleet creates another set.
pub struct Endpoints {
    list: Vec<Arc<Endpoint>>,
    generation: u64,
    /// True when all have the same weight, which is not 0.
    equal_weights: bool,
    prepared: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Endpoints {
    /// Creates a set of these endpoints.
    pub fn new(endpoints: Vec<Endpoint>) -> Endpoints {
        Endpoints::shared(endpoints.into_iter().map(Arc::new).collect())
    }

    #[doc(hidden)]
    pub fn shared(mut list: Vec<Arc<Endpoint>>) -> Endpoints {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        list.sort_by(|a, b| a.id().cmp(b.id()));
        let first = list.first().map_or(0, |endpoint| endpoint.weight());
        let equal_weights = first > 0 && list.iter().all(|endpoint| endpoint.weight() == first);
        let generation = NEXT.fetch_add(1, Ordering::Relaxed);
        Endpoints { list, generation, equal_weights, prepared: OnceLock::new() }
    }

    #[cfg(test)]
    pub(crate) fn shared_list(&self) -> Vec<Arc<Endpoint>> {
        self.list.clone()
    }

    /// Number of endpoints.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true when there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates over the endpoints, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.list.iter().map(|endpoint| &**endpoint)
    }

    /// Number that is unique among the sets of this process.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the data that the balancer made of this set at its first call, such as a ring of hashes. A set holds one
    /// value of one type; returns `None` for another type.
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

    /// Returns true when all endpoints get equal shares.
    #[inline]
    pub(super) fn has_equal_weights(&self, pick: &Pick<'_>) -> bool {
        self.equal_weights && pick.has_full_weights()
    }

    /// Selects an endpoint that takes the call at random, by weight.
    pub fn any(&self, pick: &Pick<'_>) -> Option<usize> {
        if self.has_equal_weights(pick) {
            // One of the first few draws nearly always takes the call.
            for _ in 0..4 {
                let at = pick.below(self.len());
                if pick.accepts(&self.list[at]) {
                    return Some(at);
                }
            }
        }
        let candidates = || self.list.iter().enumerate().filter(|(_, endpoint)| pick.accepts(endpoint));
        let total: f64 = candidates().map(|(_, endpoint)| pick.weight(endpoint)).sum();
        let mut left = pick.fraction() * total;
        let mut last = None;
        for (at, endpoint) in candidates() {
            last = Some(at);
            left -= pick.weight(endpoint);
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// Selects, among the endpoints that take the call, the one with the lowest `cost`; at random among equals.
    pub fn least(&self, pick: &Pick<'_>, mut cost: impl FnMut(&Endpoint) -> f64) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        let mut equals = 0;
        for (at, endpoint) in self.list.iter().enumerate().filter(|(_, endpoint)| pick.accepts(endpoint)) {
            let cost = cost(endpoint);
            match best {
                Some((_, least)) if cost > least => {}
                Some((_, least)) if cost == least => {
                    equals += 1;
                    // Each of the equals has the same probability to remain in the end.
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

/// Returns the ids of the `size` servers that the client with this number connects to, when it need not connect to all.
/// Clients numbered from 0 load the servers evenly: every server is in the subset of equally many clients, give or take
/// one round. Adding or removing a server changes few subsets.
pub fn subset<'a>(ids: impl Iterator<Item = &'a str>, client: u64, size: usize) -> HashSet<&'a str> {
    let mut ids: Vec<_> = ids.collect();
    if ids.len() <= size || size == 0 {
        return ids.into_iter().collect();
    }
    // The clients of one round divide the servers among themselves; each round has its own order.
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
    fn any_skips_ejected_endpoints() {
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
    fn prepared_data_is_made_once() {
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
