//! Pauses between attempts of work that fails: connections, watches, leases.

use crate::clock;
use std::time::Duration;

/// Pause after the first failure; it doubles from there.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Returns the back-off pause, which doubles with each failure up to `max`; random between half of it and the whole, so
/// that clients do not synchronize.
pub fn pause(failures: u32, max: Duration) -> Duration {
    let whole = BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
    (whole / 2).saturating_add(whole.mul_f64(clock::fraction() / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let max = Duration::from_secs(5);
        for failures in 1..40 {
            let pause = pause(failures, max);
            let whole = BACKOFF_MIN.saturating_mul(1 << (failures - 1).min(16)).min(max);
            assert!(pause >= whole / 2 && pause <= whole, "{failures}: {pause:?}");
        }
    }
}
