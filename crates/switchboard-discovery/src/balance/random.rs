//! Random selection by weight.

use super::{Balance, BalancerSpec, Endpoints, Pick};
use std::sync::Arc;

/// `balance=random`.
pub(super) const RANDOM: BalancerSpec = BalancerSpec { name: "random", make: |_| Ok(Arc::new(Random)) };

/// Selects an endpoint at random, by weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Balance for Random {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        set.any(pick)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn contract() {
        check_contract(&Random);
    }

    #[test]
    fn shares_go_by_weight() {
        let set = fleet(&[100, 100, 50, 200]);
        let shares = shares(&Random, &set, 40_000);
        assert!(even(&set, &shares, 0.1), "{shares:?}");
    }
}
