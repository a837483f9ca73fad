//! Selection by round-trip time, as rpcx's `WeightedICMP`. The times are measured on the calls, so no privilege to send
//! ICMP is needed, and processing time in the server counts.

use super::{Balance, BalancerSpec, Endpoints, Pick, weighted::Turns};
use std::sync::Arc;

/// `balance=ping`.
pub(super) const PING: BalancerSpec =
    BalancerSpec { name: "ping", make: |_| Ok(Arc::new(PingWeighted::default())) };

/// Weighted round robin by round-trip time, with the weights of rpcx: 191 up to 10 ms, then 201 less the milliseconds
/// up to 200, 1 up to a second, beyond that 0. When every weight is 0, it selects at random.
#[derive(Debug, Default)]
pub struct PingWeighted {
    turns: Turns,
}

impl Balance for PingWeighted {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let weighed = self.turns.next(set, pick, |endpoint| {
            f64::from(weight_of(endpoint.latency(pick.now_ns()).as_millis() as u64)) * pick.weight(endpoint)
        });
        weighed.or_else(|| set.any(pick))
    }
}

fn weight_of(millis: u64) -> u32 {
    match millis {
        0..=10 => 191,
        11..=200 => 201 - millis as u32,
        201..1000 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::balance::Outcome;
    use std::time::Duration;
    use switchboard_wire::Code;

    #[test]
    fn contract() {
        check_contract(&PingWeighted::default());
    }

    #[test]
    fn weights_match_rpcx() {
        for (millis, weight) in
            [(0, 191), (10, 191), (11, 190), (100, 101), (200, 1), (201, 1), (999, 1), (1000, 0)]
        {
            assert_eq!(weight_of(millis), weight, "{millis} ms");
        }
    }

    #[test]
    fn shares_follow_the_round_trips() {
        let set = fleet(&[100; 3]);
        for (at, millis) in [5, 106, 2000].into_iter().enumerate() {
            set[at].stats().begun();
            set[at].stats().ended(&Outcome::new(Duration::from_millis(millis), Code::Ok), 0);
        }
        // Within a millisecond, so that latencies do not decay.
        let shares = shares(&PingWeighted::default(), &set, 1000);
        let ratio = shares[0] as f64 / shares[1] as f64;
        assert!((1.9..2.1).contains(&ratio), "{shares:?}");
        assert_eq!(shares[2], 0);
    }
}
