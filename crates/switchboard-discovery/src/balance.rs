//! Balancers: the choice of the endpoint that takes a call.
//!
//! A balancer is one file here that implements [`Balance`], with a `BalancerSpec`, and a line in `BALANCERS`. It works
//! on an immutable set of [`Endpoints`] and on the changing counters of each [`Endpoint`]. It has no clock, no sockets
//! and no source of randomness of its own: the time and the seed come with each [`Pick`].

mod breaker;
mod closest;
mod endpoint;
mod jump;
mod ketama;
mod least_active;
mod p2c;
mod ping;
#[cfg(test)]
mod properties;
mod random;
mod round_robin;
mod set;
mod sticky;
mod weighted;

#[doc(hidden)]
pub use breaker::{Breaking, Probe};
pub use closest::Closest;
pub use endpoint::Endpoint;
#[doc(hidden)]
pub use endpoint::{State, Stats};
pub use jump::Jump;
#[doc(hidden)]
pub use jump::partition_of;
pub use ketama::Ketama;
pub use least_active::LeastActive;
pub use p2c::P2c;
pub use ping::PingWeighted;
pub use random::Random;
pub use round_robin::RoundRobin;
pub use set::Endpoints;
#[doc(hidden)]
pub use set::subset;
pub use sticky::Sticky;
pub use weighted::WeightedRoundRobin;

use std::{cell::Cell, sync::Arc, time::Duration};
use switchboard_core::clock::mix;
use switchboard_wire::Code;

/// A balancer that URLs select, as `balance=NAME`.
#[doc(hidden)]
pub struct BalancerSpec {
    pub name: &'static str,
    /// Creates the balancer; the error names a missing option.
    pub make: fn(&BalancerOptions) -> Result<Arc<dyn Balance>, &'static str>,
}

/// Options of URLs for balancers.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct BalancerOptions {
    /// Location of the client, in degrees.
    pub latitude: Option<f64>,
    pub longitude: Option<f64>,
    /// Points of a hash ring per server of mean weight.
    pub points: u32,
}

impl Default for BalancerOptions {
    fn default() -> BalancerOptions {
        BalancerOptions { latitude: None, longitude: None, points: 160 }
    }
}

/// The default balancer.
#[doc(hidden)]
pub const DEFAULT: &BalancerSpec = &p2c::P2C;

/// All balancers that URLs select, sorted by name.
#[doc(hidden)]
pub const BALANCERS: [&BalancerSpec; 10] = [
    &ketama::BOUNDED,
    &closest::CLOSEST,
    &jump::JUMP,
    &ketama::KETAMA,
    &least_active::LEAST_ACTIVE,
    &p2c::P2C,
    &ping::PING,
    &random::RANDOM,
    &round_robin::ROUND_ROBIN,
    &weighted::WEIGHTED,
];

/// Selects the endpoint of a call. All threads call it for every call: it must not wait, nor hold a lock for long.
pub trait Balance: Send + Sync + 'static {
    /// Returns the index in `set` of the endpoint for this call, or `None` when no endpoint
    /// [accepts](Pick::accepts) it.
    /// When the chosen endpoint does not take the call, the channel repeats the pick with lower demands, so an index of
    /// a full endpoint does no harm.
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize>;

    /// Reports how a call to this endpoint ended. [`Endpoint`] maintains its own counters; an implementation need not.
    fn done(&self, _endpoint: &Endpoint, _outcome: &Outcome) {}
}

impl<B: Balance + ?Sized> Balance for Arc<B> {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        (**self).pick(set, pick)
    }

    fn done(&self, endpoint: &Endpoint, outcome: &Outcome) {
        (**self).done(endpoint, outcome);
    }
}

/// Result of a call, for balancers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Time from the choice of the endpoint to the end of the call.
    pub took: Duration,
    /// [`Code::Ok`] for a response, [`Code::Canceled`] when the caller dropped the call.
    pub code: Code,
    /// True when the connection broke, which ends all calls on it; the endpoint gets no calls until it is connected
    /// again.
    pub lost: bool,
}

impl Outcome {
    /// Creates the outcome of a call that took `took` and ended with `code`; the connection was not lost.
    pub fn new(took: Duration, code: Code) -> Outcome {
        Outcome { took, code, lost: false }
    }

    /// Returns true when the outcome is a failure of the endpoint rather than of the request. A lost connection is not
    /// counted: it is one event, however many calls end with it.
    pub fn is_fault(&self) -> bool {
        !self.lost && is_fault(self.code)
    }
}

/// Returns true when `code` is a failure of the endpoint. A rejection because of load is not: the endpoint is healthy.
pub(crate) fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::DataLoss | Code::DeadlineExceeded | Code::Internal | Code::Unavailable | Code::Unknown
    )
}

/// Properties of the call that a balancer selects an endpoint for.
#[derive(Debug)]
pub struct Pick<'a> {
    method: &'a str,
    key: Option<&'a [u8]>,
    tried: &'a [u64],
    zone: &'a str,
    demand: Demand,
    now_ns: u64,
    slow_start_ns: u64,
    seed: Cell<u64>,
}

/// Requirements on an endpoint. When no endpoint meets a level, the channel picks again with the level below.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[doc(hidden)]
// closed: the levels are tried in this order, down to the first one
pub enum Demand {
    /// The endpoint has a weight above 0 and this call was not tried on it.
    Untried,
    /// In addition, the endpoint is connected.
    Connected,
    /// In addition, the endpoint is not ejected and its circuit breaker admits the method.
    Healthy,
    /// In addition, the endpoint is in the zone of the caller.
    SameZone,
}

impl<'a> Pick<'a> {
    /// Describes a call of `method` at `now_ns`; `seed` seeds its random numbers.
    pub fn new(method: &'a str, now_ns: u64, seed: u64) -> Pick<'a> {
        Pick {
            method,
            key: None,
            tried: &[],
            zone: "",
            demand: Demand::Healthy,
            now_ns,
            slow_start_ns: 0,
            seed: Cell::new(seed),
        }
    }

    /// Sets the key that related calls share; balancers that hash send equal keys to the same endpoint.
    #[must_use]
    pub fn with_key(mut self, key: Option<&'a [u8]>) -> Pick<'a> {
        self.key = key;
        self
    }

    #[doc(hidden)]
    pub fn tried(mut self, tried: &'a [u64]) -> Pick<'a> {
        self.tried = tried;
        self
    }

    #[doc(hidden)]
    pub fn demanding(mut self, demand: Demand, zone: &'a str) -> Pick<'a> {
        self.demand = demand;
        self.zone = zone;
        self
    }

    #[doc(hidden)]
    pub fn slow_start(mut self, ns: u64) -> Pick<'a> {
        self.slow_start_ns = ns;
        self
    }

    /// The full name of the method, `package.Service/Method`.
    pub fn method(&self) -> &str {
        self.method
    }

    /// The key that related calls share, if the call has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.key
    }

    /// Nanoseconds on the monotonic clock of this process.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns true when the endpoint may get the call: it has a weight above 0, was not tried for this call, and meets
    /// the demand of this pick (by default: connected, not ejected, breaker closed).
    #[inline]
    pub fn accepts(&self, endpoint: &Endpoint) -> bool {
        if endpoint.weight() == 0 || (!self.tried.is_empty() && self.tried.contains(&endpoint.number())) {
            return false;
        }
        match self.demand {
            Demand::Untried => true,
            Demand::Connected => endpoint.stats().state() == State::Up,
            Demand::Healthy => endpoint.stats().admits(self.method, self.now_ns),
            Demand::SameZone => {
                endpoint.zone() == self.zone && endpoint.stats().admits(self.method, self.now_ns)
            }
        }
    }

    /// The endpoint's weight, reduced during its slow start.
    #[inline]
    pub fn weight(&self, endpoint: &Endpoint) -> f64 {
        let weight = f64::from(endpoint.weight());
        if self.slow_start_ns == 0 {
            weight
        } else {
            weight * endpoint.slow_start_factor(self.now_ns, self.slow_start_ns)
        }
    }

    /// Returns true when slow start is off, so that all weights equal those of the instances.
    pub(crate) fn has_full_weights(&self) -> bool {
        self.slow_start_ns == 0
    }

    /// Returns a random number.
    #[inline]
    pub fn random(&self) -> u64 {
        let seed = self.seed.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.seed.set(seed);
        mix(seed)
    }

    /// Returns a random number below `end`, which must not be 0.
    #[inline]
    pub fn below(&self, end: usize) -> usize {
        ((u128::from(self.random()) * end as u128) >> 64) as usize
    }

    /// Returns a random number from 0 to 1, less than 1.
    pub fn fraction(&self) -> f64 {
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// FNV-1a with 64 bits, which rpcx uses to hash keys.
#[doc(hidden)]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
pub(crate) mod testing {
    //! Fleets without connections, for the tests of balancers.

    use super::*;
    use crate::discover::Instance;

    /// Creates endpoints `000`, `001` … with these weights, all connected.
    pub(crate) fn fleet(weights: &[u32]) -> Endpoints {
        let endpoint = |(at, weight): (usize, &u32)| {
            let instance = Instance::new("a.B", format!("tcp://10.0.0.{at}:1"));
            Endpoint::new(instance.id(format!("{at:03}")).weight(*weight))
        };
        Endpoints::new(weights.iter().enumerate().map(endpoint).collect())
    }

    /// Counts how many of `calls` each endpoint gets; every call ends before the next begins.
    pub(crate) fn shares(balance: &dyn Balance, set: &Endpoints, calls: usize) -> Vec<usize> {
        let mut shares = vec![0; set.len()];
        for call in 0..calls {
            let pick = Pick::new("a.B/C", call as u64 * 1000, mix(call as u64));
            shares[balance.pick(set, &pick).expect("an endpoint takes the call")] += 1;
        }
        shares
    }

    /// Returns true when every share is within `part` (a fraction) of the weighted mean.
    pub(crate) fn even(set: &Endpoints, shares: &[usize], part: f64) -> bool {
        let total: usize = shares.iter().sum();
        let weights: f64 = set.iter().map(|endpoint| f64::from(endpoint.weight())).sum();
        set.iter().zip(shares).all(|(endpoint, share)| {
            let expected = total as f64 * f64::from(endpoint.weight()) / weights;
            (*share as f64 - expected).abs() <= expected * part
        })
    }

    /// Checks the contract of every balancer: it returns only endpoints that take the call, and returns one whenever an
    /// endpoint takes it.
    pub(crate) fn check_contract(balance: &dyn Balance) {
        let set = fleet(&[100, 0, 50, 100, 200]);
        set[3].stats().eject(u64::MAX);
        for call in 0..1000u64 {
            let key = call.to_le_bytes();
            let tried = [set[0].number(), set[2].number(), set[4].number()];
            for tried in [&tried[..0], &tried[..1], &tried[..2]] {
                let pick = Pick::new("a.B/C", call, mix(call)).with_key(Some(&key)).tried(tried);
                let at = balance.pick(&set, &pick).expect("an endpoint is left");
                assert!(pick.accepts(&set[at]), "call {call}: {at} of {tried:?}");
            }
            let pick = Pick::new("a.B/C", call, mix(call)).with_key(Some(&key)).tried(&tried);
            assert_eq!(balance.pick(&set, &pick), None, "call {call}");
        }
        assert_eq!(balance.pick(&Endpoints::new(Vec::new()), &Pick::new("a.B/C", 0, 0)), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_evenly_distributed() {
        let pick = Pick::new("a.B/C", 0, 7);
        let mut counts = [0; 10];
        for _ in 0..100_000 {
            counts[pick.below(10)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn fnv1a_matches_the_published_vectors() {
        assert_eq!(fnv1a(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_F739_67E8);
    }
}
