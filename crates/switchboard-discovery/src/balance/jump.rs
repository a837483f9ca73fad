//! Jump consistent hashing (Lamping and Veach, 2014), compatible with rpcx. It needs no memory and spreads keys evenly;
//! but removing an endpoint also moves the keys of those after it, so it is for fleets that grow and shrink at the end.

use super::{Balance, BalancerSpec, Endpoints, Pick, fnv1a};
use std::sync::Arc;
use switchboard_core::clock::mix;

/// `balance=jump`.
pub(super) const JUMP: BalancerSpec = BalancerSpec { name: "jump", make: |_| Ok(Arc::new(Jump)) };

/// Selects the same endpoint for the same key, by jump consistent hashing over the endpoints in the order of their ids.
/// Calls without a key go to an endpoint at random, by weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jump;

impl Balance for Jump {
    fn pick(&self, set: &Endpoints, pick: &Pick<'_>) -> Option<usize> {
        let Some(key) = pick.key() else { return set.any(pick) };
        if set.is_empty() {
            return None;
        }
        let mut hash = fnv1a(key);
        // When the first choice does not take the call, further choices follow, always the same ones for a key.
        for _ in 0..8 {
            let at = jump(hash, set.len());
            if pick.accepts(&set[at]) {
                return Some(at);
            }
            hash = mix(hash);
        }
        let first = jump(hash, set.len());
        (first..set.len()).chain(0..first).find(|at| pick.accepts(&set[*at]))
    }
}

/// Returns which of `count` partitions a key belongs to; `count` must not be 0.
pub fn partition_of(key: &[u8], count: usize) -> usize {
    jump(fnv1a(key), count)
}

/// Returns the bucket of this key among `count`.
fn jump(mut key: u64, count: usize) -> usize {
    let (mut bucket, mut next) = (0i64, 0i64);
    while next < count as i64 {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((bucket + 1) as f64 * ((1i64 << 31) as f64 / ((key >> 33) + 1) as f64)) as i64;
    }
    bucket as usize
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn contract() {
        check_contract(&Jump);
    }

    #[test]
    fn buckets_match_published_vectors() {
        for (key, count, bucket) in [
            (1, 1, 0),
            (42, 57, 43),
            (0xDEAD_10CC, 1, 0),
            (0xDEAD_10CC, 666, 361),
            (256, 1024, 520),
            (1, 128, 55),
            (129, 128, 120),
            (u64::MAX, 128, 92),
        ] {
            assert_eq!(jump(key, count), bucket, "{key} of {count}");
        }
    }

    /// Values of rpcx 1.9's `JumpConsistentHash` for these keys: service, method and arguments, joined by slashes.
    #[test]
    fn partitions_match_rpcx() {
        for (key, count, at) in [
            ("/Arith/Mul/1", 8, 6),
            ("/Arith/Mul/2", 8, 1),
            ("/Arith/Add/user-7", 8, 3),
            ("/shop.Cart/Size/Ada", 3, 0),
            ("/shop.Cart/Size/Ada", 100, 35),
            ("/shop.Cart/Size/42", 1000, 939),
        ] {
            assert_eq!(partition_of(key.as_bytes(), count), at, "{key} of {count}");
            let set = fleet(&vec![100; count]);
            let pick = Pick::new("a.B/C", 0, 0).with_key(Some(key.as_bytes()));
            assert_eq!(Jump.pick(&set, &pick), Some(at), "{key} of {count}");
        }
    }

    #[test]
    fn keys_spread_evenly_and_move_only_to_the_new_endpoint() {
        let (small, large) = (fleet(&[100; 9]), fleet(&[100; 10]));
        let (mut shares, mut moved) = (vec![0; 10], 0);
        for key in 0..20_000u32 {
            let bytes = key.to_le_bytes();
            let pick = || Pick::new("a.B/C", 0, 0).with_key(Some(&bytes));
            let (before, after) = (Jump.pick(&small, &pick()).unwrap(), Jump.pick(&large, &pick()).unwrap());
            assert!(before == after || after == 9);
            moved += usize::from(before != after);
            shares[after] += 1;
        }
        assert!(even(&large, &shares, 0.1), "{shares:?}");
        assert!((1_800..2_200).contains(&moved), "{moved}");
    }
}
