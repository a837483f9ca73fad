//! Selection by calls in flight.

use super::{Balance, BalancerSpec, Endpoints, Pick};
use std::sync::Arc;

/// `balance=least_active`.
pub(super) const LEAST_ACTIVE: BalancerSpec =
    BalancerSpec { name: "least_active", make: |_| Ok(Arc::new(LeastActive)) };

/// Selects the endpoint with the fewest calls in flight for its weight; at random among equals. Reads all endpoints,
/// which suits fleets of some dozens; [`P2c`](super::P2c) is nearly as good with any number.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastActive;

impl Balance for LeastActive {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        set.least(pick, |endpoint| f64::from(endpoint.in_flight() + 1) / pick.weight(endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::balance::Endpoint;
    use switchboard_core::clock::mix;

    #[test]
    fn contract() {
        check_contract(&LeastActive);
    }

    #[test]
    fn idle_equals_share_evenly() {
        let set = fleet(&[100; 5]);
        let shares = shares(&LeastActive, &set, 20_000);
        assert!(even(&set, &shares, 0.1), "{shares:?}");
    }

    #[test]
    fn calls_in_flight_level_out_by_weight() {
        let set = fleet(&[100, 200, 300]);
        for call in 0..600 {
            let at = LeastActive.pick(&set, &Pick::new("a.B/C", 0, mix(call))).unwrap();
            set[at].stats().begun();
        }
        let in_flight: Vec<_> = set.iter().map(Endpoint::in_flight).collect();
        assert!(in_flight[0].abs_diff(100) <= 1 && in_flight[2].abs_diff(300) <= 2, "{in_flight:?}");
    }
}
