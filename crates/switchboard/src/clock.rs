//! Time and chance, as all that waits, counts or chooses reads them: a test that pauses tokio's clock sees deadlines
//! pass without waiting, and a simulation runs the same way twice.

#[cfg(test)]
use std::cell::OnceCell;
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

#[cfg(test)]
thread_local! {
    static SIMULATED: OnceCell<Instant> = const { OnceCell::new() };
}

/// This moment on the clock of the runtime. That is the clock of the system, and no dearer, unless tokio is built with
/// `test-util`, which only tests do.
#[inline]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// How long ago that was.
#[inline]
pub(crate) fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Nanoseconds since the process first asked, and one second: 0 is always long ago.
#[inline]
pub(crate) fn now_ns() -> u64 {
    since(start()).as_nanos() as u64 + 1_000_000_000
}

/// When that was.
pub(crate) fn instant(ns: u64) -> Instant {
    start() + Duration::from_nanos(ns.saturating_sub(1_000_000_000))
}

#[inline]
fn start() -> Instant {
    #[cfg(test)]
    if let Some(start) = SIMULATED.with(|start| start.get().copied()) {
        return start;
    }
    *START.get_or_init(Instant::now)
}

/// A number that nobody foresees.
#[inline]
pub(crate) fn chance() -> u64 {
    SEED.with(|seed| {
        let next = crate::balance::mix(seed.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        seed.set(next);
        next
    })
}

/// A part of one that nobody foresees, less than 1.
pub(crate) fn fraction() -> f64 {
    (chance() >> 11) as f64 / (1u64 << 53) as f64
}

/// From here on time begins now for this thread, and chance is that of the seed. Once for each thread.
#[cfg(test)]
pub(crate) fn simulate(seed: u64) {
    SIMULATED.with(|start| start.set(now()).expect("one simulation a thread"));
    SEED.set(seed);
}
