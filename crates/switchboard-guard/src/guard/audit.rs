//! Rate limit of audit lines: denied callers control how often they are denied.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Budget of audit lines of this process, shared by all servers.
static LINES: Lines = Lines::new();

/// Rate of audit lines per second; after a pause, up to ten seconds' worth may be written at once.
const PER_SECOND: u64 = 100;
const BURST: u64 = 10 * PER_SECOND;
const SECOND_NS: u64 = 1_000_000_000;

/// A token bucket for lines that counts the suppressed ones.
struct Lines {
    /// Time when the bucket is full again, in nanoseconds.
    full_at: Mutex<u64>,
    left_out: AtomicU64,
}

/// Requests an audit line. Returns `None` and counts the line as suppressed if the rate is exceeded;
/// otherwise returns the number of lines suppressed since the last one, if any.
pub(super) fn line() -> Option<Option<u64>> {
    LINES.take(switchboard_core::clock::now_ns())
}

impl Lines {
    const fn new() -> Lines {
        Lines { full_at: Mutex::new(0), left_out: AtomicU64::new(0) }
    }

    fn take(&self, now_ns: u64) -> Option<Option<u64>> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*full_at).max(now_ns).saturating_add(SECOND_NS / PER_SECOND);
        if next.saturating_sub(now_ns) > BURST * (SECOND_NS / PER_SECOND) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *full_at = next;
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_and_reported_with_the_next_line() {
        let lines = Lines::new();
        let now = 7 * SECOND_NS;
        let written = (0..100_000).filter(|_| lines.take(now).is_some()).count();
        assert_eq!(written as u64, BURST);
        assert_eq!(lines.take(now), None);
        let later = now + SECOND_NS;
        assert_eq!(lines.take(later), Some(Some(100_001 - BURST)));
        let written = (0..1000).filter(|_| lines.take(later) == Some(None)).count();
        assert_eq!(written as u64, PER_SECOND - 1);
        // A clock that goes backwards removes no tokens.
        assert_eq!(lines.take(0), None);
    }
}
