//! Whether compressing pays: measured by method, direction and encoding, for the whole process.
//!
//! Messages of one method are alike. After some in a row that did not get smaller by a useful share, the next ones are
//! sent as they are, then one is tried again; each failure doubles the pause up to a bound, and the first success ends
//! it. All of it is one atomic in a table that never grows, written without order: a count that two threads lose does
//! no harm. There is no lock, no allocation, and nothing to give back.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use switchboard_wire::Encoding;

/// A message that does not get smaller by an eighth costs its reader more time than it saves in sending.
const USEFUL_SHARE: usize = 8;
/// Failures in a row after which there is a pause.
const FAILURES: u64 = 8;
/// Messages in the first pause.
const PAUSE: u64 = 64;
/// The pause is doubled so often: 1024 messages then.
const DOUBLINGS: u64 = 4;
/// Methods, directions and encodings that are told apart; two that meet in one place start anew in turns, and so are
/// compressed as if nothing had been measured.
const PLACES: usize = 1024;

/// Each place: the rest of its key in the upper half, then 24 bits of messages left in the pause, then 8 of failures.
static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// What is known of one method's messages in one direction and encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    key: u32,
}

impl Worth {
    /// Of calls that are not compressed.
    pub(super) const NEVER: Worth = Worth { key: 0 };

    /// Of the method at this address: of its replies, or of its requests.
    pub(super) fn of(method: usize, encoding: Encoding, replies: bool) -> Worth {
        let kind = (encoding as u64) << 1 | u64::from(replies);
        let mixed = (method as u64 ^ kind << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Worth { key: (mixed >> 32) as u32 }
    }

    fn place(self) -> &'static AtomicU64 {
        &TABLE[self.key as usize % PLACES]
    }

    /// What the place knows of this key.
    fn known(self) -> u64 {
        let known = self.place().load(Relaxed);
        if known >> 32 == u64::from(self.key) { known & 0xffff_ffff } else { 0 }
    }

    fn set(self, known: u64) {
        self.place().store(u64::from(self.key) << 32 | known, Relaxed);
    }

    /// Whether the next message should be tried; counts it if not.
    pub(super) fn tries(self) -> bool {
        let known = self.known();
        if known >> 8 == 0 {
            return true;
        }
        self.set(known - (1 << 8));
        false
    }

    /// Notes whether one that was tried got small enough.
    pub(super) fn note(self, paid: bool) {
        let known = self.known();
        if paid {
            // The usual case writes nothing that threads share.
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

/// Whether a message that has become this small is worth to be decompressed.
pub(super) fn pays(before: usize, after: usize) -> bool {
    after <= before - before / USEFUL_SHARE && after < before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next messages are not tried.
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
        // A success in between: they do not add up.
        for n in 0..100 {
            worth.note(n % FAILURES == 0);
            assert_eq!(pause(worth), 0);
        }
    }

    #[test]
    fn directions_encodings_and_methods_are_told_apart() {
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
        // Another key in the same place takes it over.
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
