//! The clock and the random source of the crate. A test that pauses tokio's clock passes deadlines without
//! waiting, and a simulation runs identically each time.

#[cfg(any(test, feature = "simulation"))]
use std::cell::OnceCell;
use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};

static START: OnceLock<Instant> = OnceLock::new();

// Of the thread: a seed that all cores changed would be contended.
thread_local! {
    static SEED: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

// Of the thread, so that tests that run side by side have a time each.
#[cfg(any(test, feature = "simulation"))]
thread_local! {
    static SIMULATED: OnceCell<Instant> = const { OnceCell::new() };
}

/// Returns the current time on the clock of the runtime. This is the clock of the system, at the same cost,
/// unless tokio is built with `test-util`, which only tests do.
#[inline]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time of day, which may jump: for what people and other machines read, such as logs, expiries and
/// signatures. In a simulation it moves with the clock of the simulation.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn time_of_day() -> SystemTime {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(start) = SIMULATED.with(|start| start.get().copied()) {
        let time = SystemTime::UNIX_EPOCH.checked_add(SIMULATED_SINCE_1970.saturating_add(since(start)));
        return time.unwrap_or(SystemTime::UNIX_EPOCH);
    }
    SystemTime::now()
}

/// Time of day at which simulations begin.
#[cfg(any(test, feature = "simulation"))]
const SIMULATED_SINCE_1970: Duration = Duration::from_secs(1_700_000_000);

/// Returns the time that has passed since `then`.
#[inline]
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Returns the nanoseconds since the first call in this process, plus one second: 0 always lies in the past.
#[inline]
pub fn now_ns() -> u64 {
    since(start()).as_nanos() as u64 + 1_000_000_000
}

/// Converts a value of [`now_ns`] to an `Instant`.
pub fn instant(ns: u64) -> Instant {
    after(start(), Duration::from_nanos(ns.saturating_sub(1_000_000_000)))
}

/// Returns `then + pause`, or a time a century later if the clock cannot represent the sum.
///
/// The operator `+` panics in this case, and pauses come from peers and settings.
#[inline]
pub fn after(then: Instant, pause: Duration) -> Instant {
    then.checked_add(pause).unwrap_or_else(|| then.checked_add(CENTURY).unwrap_or(then))
}

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

#[inline]
#[expect(clippy::disallowed_methods, reason = "tests share it, each with a clock of its own")]
fn start() -> Instant {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(start) = SIMULATED.with(|start| start.get().copied()) {
        return start;
    }
    *START.get_or_init(Instant::now)
}

/// Returns an unpredictable number.
#[inline]
pub fn random() -> u64 {
    SEED.with(|seed| {
        let next = mix(seed.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        seed.set(next);
        next
    })
}

/// Returns an unpredictable fraction of at least 0 and less than 1.
pub fn fraction() -> f64 {
    (random() >> 11) as f64 / (1u64 << 53) as f64
}

/// Starts simulated time for this thread at the current time, and seeds its random source. Call it once per
/// thread.
#[cfg(any(test, feature = "simulation"))]
pub fn simulate(seed: u64) {
    SIMULATED.with(|start| start.set(now()).expect("one simulation a thread"));
    SEED.set(seed);
}

/// Final mixing step of splitmix64: neighbouring inputs give unrelated outputs.
#[inline]
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
