//! Smooth weighted round robin, as in nginx: shares are exact, and the turns of a heavy endpoint are spread out.

use super::{Balance, BalancerSpec, Endpoint, Endpoints, Pick};
use std::sync::{Arc, Mutex, PoisonError};

/// `balance=weighted`.
pub(super) const WEIGHTED: BalancerSpec =
    BalancerSpec { name: "weighted", make: |_| Ok(Arc::new(WeightedRoundRobin::default())) };

/// Takes turns by weight, spread out: weights of 5, 1 and 1 give `a a b a c a a`.
#[derive(Debug, Default)]
pub struct WeightedRoundRobin {
    turns: Turns,
}

impl Balance for WeightedRoundRobin {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        self.turns.next(set, pick, |endpoint| pick.weight(endpoint))
    }
}

/// Credits of weighted round robin: each call adds its weight to every endpoint's credit, selects the highest credit,
/// and subtracts the sum of the weights from it.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Credits>);

#[derive(Debug, Default)]
struct Credits {
    /// Generation of the set that the credits belong to.
    generation: u64,
    of: Vec<f64>,
}

impl Turns {
    pub(super) fn next(
        &self,
        set: &Endpoints,
        pick: &Pick<'_>,
        weight: impl Fn(&Endpoint) -> f64,
    ) -> Option<usize> {
        let mut credits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if credits.generation != set.generation() {
            // Credits start again with each set: an endpoint loses at most one turn.
            *credits = Credits { generation: set.generation(), of: vec![0.0; set.len()] };
        }
        let mut total = 0.0;
        let mut best: Option<usize> = None;
        for (at, endpoint) in set.iter().enumerate() {
            let weight = weight(endpoint);
            if weight <= 0.0 || !pick.accepts(endpoint) {
                continue;
            }
            total += weight;
            credits.of[at] += weight;
            if best.is_none_or(|best| credits.of[at] > credits.of[best]) {
                best = Some(at);
            }
        }
        credits.of[best?] -= total;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn contract() {
        check_contract(&WeightedRoundRobin::default());
    }

    #[test]
    fn turns_match_nginx() {
        let (balance, set) = (WeightedRoundRobin::default(), fleet(&[5, 1, 1]));
        let picks: Vec<_> = (0..7).map(|_| balance.pick(&set, &Pick::new("a.B/C", 0, 0)).unwrap()).collect();
        assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn shares_are_exact_for_any_weights() {
        for round in 1..20u32 {
            let weights: Vec<u32> = (1..=round).map(|at| at * 7 % 11 + 1).collect();
            let total = weights.iter().sum::<u32>() as usize;
            let set = fleet(&weights);
            let shares = shares(&WeightedRoundRobin::default(), &set, total * 3);
            let expected: Vec<usize> = weights.iter().map(|weight| *weight as usize * 3).collect();
            assert_eq!(shares, expected);
        }
    }
}
