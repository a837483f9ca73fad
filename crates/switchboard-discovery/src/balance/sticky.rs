//! Selection of the same endpoint for as long as it is healthy.

use super::{Balance, Endpoint, Endpoints, Outcome, Pick};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Stays with the endpoint that another balancer chose first, until that is no longer healthy or has left the set.
pub struct Sticky {
    inner: Arc<dyn Balance>,
    /// Number of the endpoint, 0 before the first call.
    chosen: AtomicU64,
}

impl Sticky {
    /// Creates a balancer that uses `inner` for its rare choices.
    pub fn new(inner: Arc<dyn Balance>) -> Sticky {
        Sticky { inner, chosen: AtomicU64::new(0) }
    }
}

impl Balance for Sticky {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let chosen = self.chosen.load(Ordering::Relaxed);
        let known = set.iter().position(|endpoint| endpoint.number() == chosen);
        if let Some(at) = known.filter(|at| pick.accepts(&set[*at])) {
            return Some(at);
        }
        let at = self.inner.pick(set, pick)?;
        // An endpoint that did not take only this call, because it was tried, stays the choice for other calls.
        if known.is_none_or(|at| !set[at].is_healthy(pick.now_ns()) || set[at].weight() == 0) {
            self.chosen.store(set[at].number(), Ordering::Relaxed);
        }
        Some(at)
    }

    fn done(&self, endpoint: &Endpoint, outcome: &Outcome) {
        self.inner.done(endpoint, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::balance::Random;
    use switchboard_core::clock::mix;

    #[test]
    fn contract() {
        check_contract(&Sticky::new(Arc::new(Random)));
    }

    #[test]
    fn stays_until_the_endpoint_is_ejected() {
        let (balance, set) = (Sticky::new(Arc::new(Random)), fleet(&[100; 5]));
        let pick = |seed| Pick::new("a.B/C", 5, mix(seed));
        let first = balance.pick(&set, &pick(0)).unwrap();
        for seed in 0..100 {
            assert_eq!(balance.pick(&set, &pick(seed)), Some(first));
        }
        let elsewhere = balance.pick(&set, &pick(1).tried(&[set[first].number()])).unwrap();
        assert_ne!(elsewhere, first);
        assert_eq!(balance.pick(&set, &pick(2)), Some(first), "a retry elsewhere changes nothing");
        set[first].stats().eject(10);
        let second = balance.pick(&set, &pick(3)).unwrap();
        assert_ne!(second, first);
        set[first].stats().eject(0);
        assert_eq!(balance.pick(&set, &pick(4)), Some(second), "does not return to the first");
    }
}
