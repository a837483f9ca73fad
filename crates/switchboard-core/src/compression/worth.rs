//! Statistics of whether compression pays, by method, direction and encoding, for the whole process.
//!
//! Messages of one method are alike. After several consecutive messages that did not shrink by a useful
//! share, the next ones are sent uncompressed, then one is tried again. Each failure doubles the pause up to
//! a bound; the first success ends it. The state is one atomic per entry of a fixed table, accessed with
//! relaxed ordering: a lost update between two threads is harmless. There is no lock and no allocation, and
//! nothing has to be released.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use switchboard_wire::Encoding;

/// Minimum saving, as a divisor: a message that shrinks by less than an eighth costs its reader more time
/// than it saves in sending.
const USEFUL_SHARE: usize = 8;
/// Consecutive failures that start a pause.
const FAILURES: u64 = 8;
/// Length of the first pause in messages.
const PAUSE: u64 = 64;
/// Maximum number of doublings of the pause, to 1024 messages.
const DOUBLINGS: u64 = 4;
/// Number of entries for distinct methods, directions and encodings. Two keys that share an entry reset each
/// other and are compressed as if without statistics.
const PLACES: usize = 1024;

/// Layout of an entry: the rest of its key in the upper half, then 24 bits for the messages left in the
/// pause, then 8 bits for failures.
static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Handle to the statistics of one method's messages in one direction and encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    key: u32,
}

impl Worth {
    /// For calls without compression.
    pub(super) const NEVER: Worth = Worth { key: 0 };

    /// Returns the handle for the method at this address, for its replies or its requests.
    pub(super) fn of(method: usize, encoding: Encoding, replies: bool) -> Worth {
        let kind = (encoding as u64) << 1 | u64::from(replies);
        let mixed = (method as u64 ^ kind << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Worth { key: (mixed >> 32) as u32 }
    }

    fn place(self) -> &'static AtomicU64 {
        &TABLE[self.key as usize % PLACES]
    }

    /// Returns the state of the entry for this key.
    fn known(self) -> u64 {
        let known = self.place().load(Relaxed);
        if known >> 32 == u64::from(self.key) { known & 0xffff_ffff } else { 0 }
    }

    fn set(self, known: u64) {
        self.place().store(u64::from(self.key) << 32 | known, Relaxed);
    }

    /// Returns whether to try compressing the next message; counts the message towards the pause if not.
    pub(super) fn tries(self) -> bool {
        let known = self.known();
        if known >> 8 == 0 {
            return true;
        }
        self.set(known - (1 << 8));
        false
    }

    /// Records whether a tried message shrank enough.
    pub(super) fn note(self, paid: bool) {
        let known = self.known();
        if paid {
            // The common case writes nothing that threads share.
            if known != 0 {
                self.set(0);
            }
            return;
        }
        let failures = ((known & 0xff) + 1).min(FAILURES + DOUBLINGS);
        let pause = if failures < FAILURES { 0 } else { PAUSE << (failures - FAILURES) };
        self.set(pause << 8 | failures);
    }
}

/// Returns whether the saving justifies the cost of decompression.
pub(super) fn pays(before: usize, after: usize) -> bool {
    after <= before - before / USEFUL_SHARE && after < before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the messages until the next try.
    fn pause(worth: Worth) -> u64 {
        (0..).find(|_| worth.tries()).expect("it is tried again")
    }

    #[test]
    fn pauses_grow_to_a_bound_and_end_with_the_first_success() {
        let worth = Worth::of(77, Encoding::Zstd, true);
        for _ in 1..FAILURES {
            worth.note(false);
            assert_eq!(pause(worth), 0);
        }
        for expected in [64, 128, 256, 512, 1024, 1024, 1024] {
            worth.note(false);
            assert_eq!(pause(worth), expected);
        }
        worth.note(true);
        worth.note(false);
        assert_eq!(pause(worth), 0);
        // A success in between resets the count of failures.
        for n in 0..100 {
            worth.note(n % FAILURES == 0);
            assert_eq!(pause(worth), 0);
        }
    }

    #[test]
    fn directions_encodings_and_methods_have_separate_statistics() {
        let sick = Worth::of(78, Encoding::Zstd, true);
        for _ in 0..FAILURES {
            sick.note(false);
        }
        for other in [
            Worth::of(78, Encoding::Zstd, false),
            Worth::of(78, Encoding::Gzip, true),
            Worth::of(78 + 16, Encoding::Zstd, true),
        ] {
            assert!(other.tries());
        }
        // Another key of the same entry takes the entry over.
        let twin = Worth { key: sick.key ^ 1 << 31 };
        assert!(twin.tries() && !sick.tries());
        twin.note(false);
        assert!(sick.tries());
    }

    #[test]
    fn useful_share_is_an_eighth() {
        assert!(pays(800, 700) && !pays(800, 701));
        assert!(pays(2, 1) && !pays(1, 1) && !pays(0, 0));
    }
}
