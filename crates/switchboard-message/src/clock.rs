//! Clock of a bus: that of the runtime, or one that a test moves.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};
use switchboard_core::clock;
use tokio::time::{Instant, Sleep};

/// Source of the time, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// Moved by hand; timers never fire.
    Manual(Arc<AtomicU64>),
    /// The clock of the runtime.
    Runtime,
    /// The clock of the runtime, as a time since 1970: it continues after a restart. With the difference between both.
    Unix(u64),
}

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        match self {
            Clock::Manual(now) => now.load(Ordering::Acquire),
            Clock::Runtime => clock::now_ns(),
            Clock::Unix(base) => clock::now_ns().saturating_add(*base),
        }
    }

    /// Returns the clock of a bus with files.
    pub(crate) fn with_files(self) -> Clock {
        match self {
            Clock::Manual(now) => Clock::Manual(now),
            Clock::Runtime | Clock::Unix(_) => {
                let unix = clock::time_of_day().duration_since(UNIX_EPOCH).unwrap_or_default();
                let unix = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
                Clock::Unix(unix.saturating_sub(clock::now_ns()))
            }
        }
    }

    /// Returns a timer; `None` if timers never fire.
    pub(crate) fn timer(&self, deadline: u64) -> Option<Pin<Box<Sleep>>> {
        match self {
            Clock::Manual(_) => None,
            Clock::Runtime => Some(Box::pin(tokio::time::sleep_until(instant(deadline)))),
            Clock::Unix(base) => {
                let deadline = deadline.saturating_sub(*base);
                Some(Box::pin(tokio::time::sleep_until(instant(deadline))))
            }
        }
    }
}

/// Converts a time of the runtime's clock.
pub(crate) fn instant(deadline: u64) -> Instant {
    Instant::from_std(clock::instant(deadline))
}

/// Returns the time after a period.
pub(crate) fn after(now: u64, period: Duration) -> u64 {
    now.saturating_add(period.as_nanos().try_into().unwrap_or(u64::MAX))
}

/// Returns the time before a period.
pub(crate) fn before(now: u64, period: Duration) -> u64 {
    now.saturating_sub(period.as_nanos().try_into().unwrap_or(u64::MAX))
}
