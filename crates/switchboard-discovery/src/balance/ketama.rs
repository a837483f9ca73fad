//! Consistent hashing on a ring, compatible with libketama: adding or removing an endpoint moves only its own share of
//! the keys. Clients of any language that build the same ring choose the same servers.

use super::{Balance, BalancerSpec, Endpoint, Endpoints, Pick};
use std::sync::Arc;

/// `balance=ketama`.
pub(super) const KETAMA: BalancerSpec =
    BalancerSpec { name: "ketama", make: |options| Ok(Arc::new(Ketama::new().with_points(options.points))) };

/// `balance=bounded`.
pub(super) const BOUNDED: BalancerSpec = BalancerSpec {
    name: "bounded",
    make: |options| Ok(Arc::new(Ketama::new().with_points(options.points).bounded(1.25))),
};

/// Selects the same endpoint for the same key, on the ring of libketama: the points of a server come from the MD5
/// digests of `host:port-0`, `host:port-1` and so on, four points per digest, and a key belongs to the first point not
/// below the first four bytes of its own digest. An endpoint with a weight above 0 has at least four points, also where
/// libketama gives none to a light one. Calls without a key go to an endpoint at random, by weight.
#[derive(Clone, Copy, Debug)]
pub struct Ketama {
    points: u32,
    /// Maximum ratio of an endpoint's calls in flight to its share.
    bound: Option<f64>,
}

impl Default for Ketama {
    fn default() -> Ketama {
        Ketama::new()
    }
}

impl Ketama {
    /// Creates a ring with 160 points per server of mean weight, like libketama and libmemcached.
    pub fn new() -> Ketama {
        Ketama { points: 160, bound: None }
    }

    /// Sets the number of points per server of mean weight, 4 to 4000; brpc has 100.
    #[must_use]
    pub fn with_points(mut self, points: u32) -> Ketama {
        self.points = points.clamp(4, 4000);
        self
    }

    /// Sends calls for an endpoint that has more than `factor` times its share of all calls in flight to the next on
    /// the ring ("consistent hashing with bounded loads"); 1.25 is usual, values below 1 mean 1.
    #[must_use]
    pub fn bounded(mut self, factor: f64) -> Ketama {
        self.bound = Some(factor.max(1.0));
        self
    }
}

impl Balance for Ketama {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let ring = pick.key().and_then(|key| Some((key, set.prepared(|set| Ring::new(set, self.points))?)));
        let Some((key, ring)) = ring else { return set.any(pick) };
        let most = self.bound.map(|factor| Bound::new(set, pick, factor));
        let mut owners = ring.from(hash_of(key));
        let within = |at: usize| most.as_ref().is_none_or(|most| most.accepts(&set[at]));
        // All endpoints may be at their bound, because the counts change between the two reads.
        owners
            .clone()
            .find(|at| pick.accepts(&set[*at]) && within(*at))
            .or_else(|| owners.find(|at| pick.accepts(&set[*at])))
    }
}

/// Limit of calls in flight per unit of weight.
struct Bound {
    per_weight: f64,
}

impl Bound {
    fn new(set: &Endpoints, pick: &Pick<'_>, factor: f64) -> Bound {
        let candidates = || set.iter().filter(|endpoint| pick.accepts(endpoint));
        let calls: u64 = candidates().map(|endpoint| u64::from(endpoint.in_flight())).sum();
        let weights: f64 = candidates().map(|endpoint| f64::from(endpoint.weight())).sum();
        Bound { per_weight: factor * (calls + 1) as f64 / weights }
    }

    fn accepts(&self, endpoint: &Endpoint) -> bool {
        f64::from(endpoint.in_flight()) < (self.per_weight * f64::from(endpoint.weight())).ceil()
    }
}

/// Points in ascending order, each with the index of its endpoint.
struct Ring(Vec<(u32, u32)>);

impl Ring {
    fn new(set: &Endpoints, points: u32) -> Ring {
        let weights: f64 = set.iter().map(|endpoint| f64::from(endpoint.weight())).sum();
        let mut ring = Vec::with_capacity(set.len() * points as usize);
        for (at, endpoint) in set.iter().enumerate() {
            let share = f64::from(endpoint.weight()) * set.len() as f64 / weights;
            // libketama rounds down; the small addend keeps inexact arithmetic from rounding a fifth of 40 to 7. At
            // least one digest: where libketama rounds to none, an endpoint that takes calls would get none.
            let digests =
                ((share * f64::from(points / 4) + 1e-9) as u32).max(u32::from(endpoint.weight() > 0));
            let name = host_and_port(endpoint.address());
            for number in 0..digests {
                let digest = md5::compute(format!("{name}-{number}"));
                ring.extend(digest.chunks_exact(4).map(|bytes| (first_word(bytes), at as u32)));
            }
        }
        ring.sort_unstable();
        Ring(ring)
    }

    /// Yields the owners of the points from `hash` on, once around the ring.
    fn from(&self, hash: u32) -> impl Iterator<Item = usize> + Clone {
        let first = self.0.partition_point(|(point, _)| *point < hash);
        let (before, behind) = self.0.split_at(first);
        behind.iter().chain(before).map(|(_, at)| *at as usize)
    }
}

/// The part of an address that other implementations hash: without scheme, path and options.
fn host_and_port(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    // Only the path distinguishes a Unix socket from others.
    if address.starts_with("unix:") { rest } else { &rest[..rest.find(['/', '?']).unwrap_or(rest.len())] }
}

fn hash_of(key: &[u8]) -> u32 {
    first_word(&*md5::compute(key))
}

fn first_word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::discover::Instance;

    #[test]
    fn contract() {
        check_contract(&Ketama::new());
        check_contract(&Ketama::new().bounded(1.25));
    }

    fn ring_of(addresses: impl Iterator<Item = String>) -> Endpoints {
        Endpoints::new(addresses.map(|address| Endpoint::new(Instance::new("a.B", address))).collect())
    }

    fn owner<'a>(balance: Ketama, set: &'a Endpoints, key: &str) -> &'a str {
        let pick = Pick::new("a.B/C", 0, 0).with_key(Some(key.as_bytes()));
        set[balance.pick(set, &pick).unwrap()].address()
    }

    /// A key with the last number of its host on a ring of 160 points each, and on one of 100. Computed from the
    /// definition with the MD5 of Python's hashlib.
    const VECTORS: [(&str, u32, u32); 7] = [
        ("a", 8, 8),
        ("user-1", 3, 2),
        ("user-2", 6, 6),
        ("SVa_]_V41)", 5, 5),
        ("/a/b/c", 8, 8),
        ("Ada", 7, 7),
        ("42", 1, 1),
    ];
    const FIRST_POINT: u32 = 762_113;

    #[test]
    fn owners_match_libketama_and_brpc() {
        let set = || ring_of((1..=8).map(|at| format!("tcp://10.0.1.{at}:11211?timeout=1s")));
        let (of_160, of_100) = (set(), set());
        for (key, ketama, brpc) in VECTORS {
            let address = |host: u32| format!("tcp://10.0.1.{host}:11211?timeout=1s");
            assert_eq!(owner(Ketama::new(), &of_160, key), address(ketama), "{key}");
            assert_eq!(owner(Ketama::new().with_points(100), &of_100, key), address(brpc), "{key}");
        }
        let ring = Ring::new(&of_160, 160);
        assert_eq!((ring.0.len(), ring.0[0].0), (8 * 160, FIRST_POINT));
    }

    /// First points of the ring that RFC 26 of Couchbase's clients publishes.
    #[test]
    fn points_match_published_ones() {
        let set = ring_of((1..=4).map(|at| format!("tcp://192.168.1.10{at}:11210")));
        let ring = Ring::new(&set, 160);
        let host = |at: u32| set[at as usize].address()[18..19].parse::<u32>().unwrap();
        let begin: Vec<_> = ring.0[..5].iter().map(|(point, at)| (*point, host(*at))).collect();
        assert_eq!(
            begin,
            [(19_069_626, 4), (28_439_255, 1), (36_078_660, 4), (46_162_273, 4), (54_096_687, 4)]
        );
    }

    #[test]
    fn keys_spread_and_only_keys_of_the_removed_endpoint_move() {
        let all = ring_of((0..10).map(|at| format!("tcp://10.0.0.{at}:1")));
        let less = ring_of((0..9).map(|at| format!("tcp://10.0.0.{at}:1")));
        let mut shares = vec![0; 10];
        for key in 0..20_000 {
            let key = format!("key-{key}");
            let (before, after) = (owner(Ketama::new(), &all, &key), owner(Ketama::new(), &less, &key));
            assert!(before == after || before == "tcp://10.0.0.9:1", "{key}: {before} to {after}");
            shares[before[13..14].parse::<usize>().unwrap()] += 1;
        }
        assert!(even(&all, &shares, 0.35), "{shares:?}");
    }

    #[test]
    fn weights_are_shares_of_the_ring() {
        let set = fleet(&[100, 300]);
        let ring = Ring::new(&set, 160);
        let points = |at| ring.0.iter().filter(|point| point.1 == at).count();
        assert_eq!((points(0), points(1)), (80, 240));
    }

    #[test]
    fn light_endpoint_has_one_digest_and_takes_calls_when_others_do_not() {
        for (weights, points) in [(&[1, 1000][..], 160), (&[2, 100], 160), (&[100, 50, 100], 4)] {
            let set = fleet(weights);
            let light = (0..set.len()).min_by_key(|at| set[*at].weight()).unwrap();
            (0..set.len()).filter(|at| *at != light).for_each(|at| set[at].stats().eject(u64::MAX));
            let pick = Pick::new("a.B/C", 0, 0).with_key(Some(b"k"));
            assert_eq!(Ketama::new().with_points(points).pick(&set, &pick), Some(light), "{weights:?}");
            assert_eq!(Ring::new(&set, points).0.iter().filter(|point| point.1 == light as u32).count(), 4);
        }
        assert!(
            Ring::new(&fleet(&[0, 100]), 160).0.iter().all(|point| point.1 == 1),
            "a weight of 0 has no points"
        );
    }

    #[test]
    fn bounded_load_moves_excess_calls_to_the_next_endpoint() {
        let set = fleet(&[100; 4]);
        let balance = Ketama::new().bounded(1.25);
        // All calls have the same key.
        for _ in 0..400 {
            let at = balance.pick(&set, &Pick::new("a.B/C", 0, 0).with_key(Some(b"hot"))).unwrap();
            set[at].stats().begun();
        }
        let most = set.iter().map(Endpoint::in_flight).max().unwrap();
        assert!((100..=126).contains(&most), "{most}");
    }

    #[test]
    fn names_on_the_ring_are_host_and_port() {
        for (address, name) in [
            ("tcp://a:1?x=1", "a:1"),
            ("ws://a:1/path", "a:1"),
            ("a:1", "a:1"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert_eq!(host_and_port(address), name);
        }
    }
}
