//! Which endpoint takes a call: the balancers, and what they see of a fleet.
//!
//! A balancer is one file here that implements [`Balance`]. It works on a set of [`Endpoints`] that never changes and
//! on the numbers of each [`Endpoint`], which do; it has no clock, no sockets and no source of chance of its own:
//! these come with each [`Pick`].

mod breaker;
mod closest;
mod endpoint;
mod jump;
mod ketama;
mod least_active;
mod md5;
mod p2c;
mod ping;
#[cfg(test)]
mod properties;
mod random;
mod round_robin;
mod set;
mod sticky;
mod weighted;

pub(crate) use breaker::Breaking;
pub use closest::Closest;
pub use endpoint::Endpoint;
pub(crate) use endpoint::{State, Stats};
pub use jump::Jump;
pub(crate) use jump::partition_of;
pub use ketama::Ketama;
pub use least_active::LeastActive;
pub use p2c::P2c;
pub use ping::PingWeighted;
pub use random::Random;
pub use round_robin::RoundRobin;
pub use set::Endpoints;
pub(crate) use set::subset;
pub use sticky::Sticky;
pub use weighted::WeightedRoundRobin;

use crate::Code;
use std::{cell::Cell, sync::Arc, time::Duration};

/// Chooses who takes a call. Called for every call from all threads: no waiting, and no lock that is held for long.
pub trait Balance: Send + Sync + 'static {
    /// The place in `set` of the endpoint for this call; none when no endpoint [takes](Pick::takes) it. A choice that
    /// does not take it is asked for again with less demands, so it is safe to let a place go that is full.
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize>;

    /// Tells how a call ended that this endpoint got. The endpoint counts by itself what [`Endpoint`] shows.
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

/// How a call ended, for balancers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// From the choice of the endpoint to the end.
    pub took: Duration,
    /// [`Code::Ok`] for an answer, [`Code::Canceled`] when the caller gave up.
    pub code: Code,
    /// The connection broke, with all calls on it; the endpoint gets no calls until there is another.
    pub lost: bool,
}

impl Outcome {
    /// An end of this kind.
    pub fn new(took: Duration, code: Code) -> Outcome {
        Outcome { took, code, lost: false }
    }

    /// Whether it speaks against the endpoint, rather than against the request. A lost connection does not: it is
    /// one mishap, however many calls end with it.
    pub fn is_fault(&self) -> bool {
        !self.lost && is_fault(self.code)
    }
}

/// Whether a call that ended so speaks against its endpoint. A refusal because of load does not: the endpoint is well.
pub(crate) fn is_fault(code: Code) -> bool {
    matches!(
        code,
        Code::DataLoss | Code::DeadlineExceeded | Code::Internal | Code::Unavailable | Code::Unknown
    )
}

/// What a balancer knows of the call that it chooses for.
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

/// What an endpoint must be to take a call; the least bad ones take it when no better does.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Demand {
    /// Has a weight, and the call was not tried there.
    Untried,
    /// And is connected.
    Connected,
    /// And is not put aside for its failures.
    Well,
    /// And in the caller's zone.
    Near,
}

impl<'a> Pick<'a> {
    /// A call of `method` at `now_ns`, with a seed for what is left to chance.
    pub fn new(method: &'a str, now_ns: u64, seed: u64) -> Pick<'a> {
        Pick {
            method,
            key: None,
            tried: &[],
            zone: "",
            demand: Demand::Well,
            now_ns,
            slow_start_ns: 0,
            seed: Cell::new(seed),
        }
    }

    /// What calls that belong together have in common.
    #[must_use]
    pub fn with_key(mut self, key: Option<&'a [u8]>) -> Pick<'a> {
        self.key = key;
        self
    }

    pub(crate) fn tried(mut self, tried: &'a [u64]) -> Pick<'a> {
        self.tried = tried;
        self
    }

    pub(crate) fn demanding(mut self, demand: Demand, zone: &'a str) -> Pick<'a> {
        self.demand = demand;
        self.zone = zone;
        self
    }

    pub(crate) fn slow_start(mut self, ns: u64) -> Pick<'a> {
        self.slow_start_ns = ns;
        self
    }

    /// The full name of the method, `package.Service/Method`.
    pub fn method(&self) -> &str {
        self.method
    }

    /// What calls that belong together have in common, if anything.
    pub fn key(&self) -> Option<&[u8]> {
        self.key
    }

    /// Nanoseconds on the clock of this process, which never goes back.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Whether the endpoint may get the call: it has a weight, was not tried for this call, and is connected and well.
    #[inline]
    pub fn takes(&self, endpoint: &Endpoint) -> bool {
        if endpoint.weight() == 0 || (!self.tried.is_empty() && self.tried.contains(&endpoint.number())) {
            return false;
        }
        match self.demand {
            Demand::Untried => true,
            Demand::Connected => endpoint.stats().state() == State::Up,
            Demand::Well => endpoint.stats().admits(self.method, self.now_ns),
            Demand::Near => endpoint.zone() == self.zone && endpoint.stats().admits(self.method, self.now_ns),
        }
    }

    /// The endpoint's weight, less while it starts slowly.
    #[inline]
    pub fn weight(&self, endpoint: &Endpoint) -> f64 {
        let weight = f64::from(endpoint.weight());
        if self.slow_start_ns == 0 {
            weight
        } else {
            weight * endpoint.warmth(self.now_ns, self.slow_start_ns)
        }
    }

    /// Whether all weights are what the instances say.
    pub(crate) fn starts_at_once(&self) -> bool {
        self.slow_start_ns == 0
    }

    /// A random number.
    #[inline]
    pub fn random(&self) -> u64 {
        let seed = self.seed.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.seed.set(seed);
        mix(seed)
    }

    /// A random number below `end`, which is not 0.
    #[inline]
    pub fn below(&self, end: usize) -> usize {
        ((u128::from(self.random()) * end as u128) >> 64) as usize
    }

    /// A random number from 0 to 1, less than 1.
    pub fn fraction(&self) -> f64 {
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The last step of splitmix64: neighbours become strangers.
#[inline]
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// FNV-1a with 64 bits, rpcx's hash of keys.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
pub(crate) mod testing {
    //! Fleets on paper, for the tests of balancers.

    use super::*;
    use crate::discover::Instance;

    /// Endpoints `000`, `001` … with these weights, all connected.
    pub(crate) fn fleet(weights: &[u32]) -> Endpoints {
        let endpoint = |(at, weight): (usize, &u32)| {
            let instance = Instance::new("a.B", format!("tcp://10.0.0.{at}:1"));
            Endpoint::new(instance.id(format!("{at:03}")).weight(*weight))
        };
        Endpoints::new(weights.iter().enumerate().map(endpoint).collect())
    }

    /// How many of `calls` each endpoint gets; every call ends before the next begins.
    pub(crate) fn shares(balance: &dyn Balance, set: &Endpoints, calls: usize) -> Vec<usize> {
        let mut shares = vec![0; set.len()];
        for call in 0..calls {
            let pick = Pick::new("a.B/C", call as u64 * 1000, mix(call as u64));
            shares[balance.pick(set, &pick).expect("somebody takes it")] += 1;
        }
        shares
    }

    /// Whether every share is within `part` of the weighted mean.
    pub(crate) fn even(set: &Endpoints, shares: &[usize], part: f64) -> bool {
        let total: usize = shares.iter().sum();
        let weights: f64 = set.iter().map(|endpoint| f64::from(endpoint.weight())).sum();
        set.iter().zip(shares).all(|(endpoint, share)| {
            let expected = total as f64 * f64::from(endpoint.weight()) / weights;
            (*share as f64 - expected).abs() <= expected * part
        })
    }

    /// Whatever the balancer: no place that does not take the call, somebody as long as anybody takes it.
    pub(crate) fn keeps_the_contract(balance: &dyn Balance) {
        let set = fleet(&[100, 0, 50, 100, 200]);
        set[3].stats().eject(u64::MAX);
        for call in 0..1000u64 {
            let key = call.to_le_bytes();
            let tried = [set[0].number(), set[2].number(), set[4].number()];
            for tried in [&tried[..0], &tried[..1], &tried[..2]] {
                let pick = Pick::new("a.B/C", call, mix(call)).with_key(Some(&key)).tried(tried);
                let at = balance.pick(&set, &pick).expect("an endpoint is left");
                assert!(pick.takes(&set[at]), "call {call}: {at} of {tried:?}");
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
    fn chance_is_even() {
        let pick = Pick::new("a.B/C", 0, 7);
        let mut counts = [0; 10];
        for _ in 0..100_000 {
            counts[pick.below(10)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn fnv_is_that_of_its_authors() {
        assert_eq!(fnv1a(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_F739_67E8);
    }
}
