//! Round robin without weights.

use super::{Balance, BalancerSpec, Endpoints, Pick};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// `balance=round_robin`.
pub(super) const ROUND_ROBIN: BalancerSpec =
    BalancerSpec { name: "round_robin", make: |_| Ok(Arc::new(RoundRobin::default())) };

/// Selects one endpoint after the other; a weight matters only when it is 0.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: AtomicUsize,
}

impl Balance for RoundRobin {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let count = set.len();
        // Skipped endpoints lose their turn; otherwise their neighbour would get it each time.
        let turns = (0..count).map(|_| self.next.fetch_add(1, Ordering::Relaxed) % count);
        let mut turns = turns.filter(|at| pick.accepts(&set[*at]));
        turns.next().or_else(|| {
            // Concurrent callers took turns in the meantime, so this search may have missed an endpoint that takes the
            // call.
            (0..count).find(|at| pick.accepts(&set[*at]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn contract() {
        check_contract(&RoundRobin::default());
    }

    #[test]
    fn turns_are_exact() {
        let (balance, set) = (RoundRobin::default(), fleet(&[100, 1, 100]));
        let picks: Vec<_> = (0..6).map(|_| balance.pick(&set, &Pick::new("a.B/C", 0, 0)).unwrap()).collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
        assert_eq!(shares(&balance, &set, 3000), [1000; 3]);
    }
}
