//! Time and chance of fleets, the only place where they come in.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
    time::{Duration, Instant},
};

static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static SEED: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// Nanoseconds since the process first asked, and one second: 0 is always long ago.
#[inline]
pub(super) fn now() -> u64 {
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1_000_000_000
}

/// When that was.
pub(super) fn instant(ns: u64) -> Instant {
    *START.get_or_init(Instant::now) + Duration::from_nanos(ns.saturating_sub(1_000_000_000))
}

/// A number that nobody foresees.
#[inline]
pub(super) fn chance() -> u64 {
    SEED.with(|seed| {
        let next = crate::balance::mix(seed.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        seed.set(next);
        next
    })
}
