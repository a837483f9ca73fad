//! Power of two choices: draws two endpoints at random by weight, and selects the one with the lower expected latency.
//!
//! The cost of an endpoint is its latency, which rises at once and falls slowly ("peak EWMA", as in Finagle), times one
//! plus its calls in flight for its weight. The random draw keeps callers that all see the same numbers from choosing
//! the same server, and decides where the costs differ by less than a factor: one late response must not move all
//! traffic.

use super::{Balance, BalancerSpec, Endpoint, Endpoints, Pick};
use std::sync::Arc;

/// `balance=p2c`.
pub(super) const P2C: BalancerSpec = BalancerSpec { name: "p2c", make: |_| Ok(Arc::new(P2c)) };

/// Selects the better of two random endpoints by latency and calls in flight; the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct P2c;

/// Added to latencies, in ns: differences below this are scheduler noise, and calls in flight are the better measure.
const NOISE: f64 = 1e6;
/// Costs that differ by less than this factor are treated as equal.
const SIMILAR: f64 = 2.0;
/// Cost of an endpoint with calls in flight and no response yet: higher than that of any with a response.
const UNKNOWN: f64 = 1e15;

impl Balance for P2c {
    #[inline]
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let count = set.len();
        if count > 1 && set.has_equal_weights(pick) {
            let first = pick.below(count);
            let mut second = pick.below(count - 1);
            second += usize::from(second >= first);
            if pick.accepts(&set[first]) && pick.accepts(&set[second]) {
                return Some(better(set, pick, first, second));
            }
        }
        let first = set.any(pick)?;
        let second = set.any(pick)?;
        Some(better(set, pick, first, second))
    }
}

#[inline]
fn better(set: &Endpoints, pick: &Pick<'_>, first: usize, second: usize) -> usize {
    if cost(&set[second], pick) * SIMILAR <= cost(&set[first], pick) {
        second
    } else if cost(&set[first], pick) * SIMILAR <= cost(&set[second], pick) || pick.random() & 1 == 0 {
        first
    } else {
        second
    }
}

#[inline]
fn cost(endpoint: &Endpoint, pick: &Pick<'_>) -> f64 {
    let in_flight = f64::from(endpoint.in_flight());
    let latency = endpoint.stats().latency_ns(pick.now_ns());
    if latency == 0.0 && in_flight > 0.0 {
        return UNKNOWN * in_flight;
    }
    (latency + NOISE) * (1.0 + in_flight * 100.0 / pick.weight(endpoint))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::balance::Outcome;
    use std::{collections::BinaryHeap, time::Duration};
    use switchboard_core::clock::mix;
    use switchboard_wire::Code;

    #[test]
    fn contract() {
        check_contract(&P2c);
    }

    /// Simulates calls at a steady rate against servers of these latencies; returns the share of each server.
    fn simulate(set: &Endpoints, latencies_us: &[u64], calls: u64, every_us: u64) -> Vec<usize> {
        let mut shares = vec![0; set.len()];
        let mut ends = BinaryHeap::new();
        for call in 0..calls {
            let now = call * every_us * 1000;
            while let Some((std::cmp::Reverse(end), at, begun)) = ends.pop() {
                if end > now {
                    ends.push((std::cmp::Reverse(end), at, begun));
                    break;
                }
                let took = Duration::from_nanos(end - begun);
                let endpoint: &Endpoint = &set[at];
                endpoint.stats().ended(&Outcome::new(took, Code::Ok), end);
            }
            let at = P2c.pick(set, &Pick::new("a.B/C", now, mix(call))).unwrap();
            shares[at] += 1;
            set[at].stats().begun();
            ends.push((std::cmp::Reverse(now + latencies_us[at] * 1000), at, now));
        }
        shares
    }

    #[test]
    fn equal_servers_get_equal_shares() {
        let set = fleet(&[100; 10]);
        let shares = simulate(&set, &[1000; 10], 50_000, 50);
        assert!(even(&set, &shares, 0.15), "{shares:?}");
    }

    #[test]
    fn weights_shift_shares() {
        let set = fleet(&[100, 300]);
        let shares = simulate(&set, &[1000; 2], 50_000, 50);
        let ratio = shares[1] as f64 / shares[0] as f64;
        assert!((2.7..3.3).contains(&ratio), "{shares:?}");
    }

    #[test]
    fn slow_server_gets_fewer_calls_but_not_none() {
        let set = fleet(&[100; 5]);
        let mut latencies = [1000; 5];
        latencies[2] = 50_000;
        let shares = simulate(&set, &latencies, 50_000, 50);
        assert!(shares[2] * 10 < shares[0], "{shares:?}");
        assert!(shares[2] > 0, "{shares:?}");
    }

    #[test]
    fn new_server_gets_few_calls_before_its_first_response() {
        let set = fleet(&[100; 4]);
        for at in 0..3 {
            set[at].stats().begun();
            set[at].stats().ended(&Outcome::new(Duration::from_millis(1), Code::Ok), 0);
        }
        let mut shares = vec![0; 4];
        for call in 0..1000 {
            let at = P2c.pick(&set, &Pick::new("a.B/C", 1, mix(call))).unwrap();
            shares[at] += 1;
            if at == 3 {
                set[at].stats().begun();
            }
        }
        // Two only if both draws chose it.
        assert!((1..=2).contains(&shares[3]), "{shares:?}");
    }
}
