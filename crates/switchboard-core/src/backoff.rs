//! Pauses between attempts of work that fails: connections, calls, watches, leases.

use crate::clock;
use std::time::Duration;

/// Pause after the first failure of a connection or of a registry.
pub const CONNECT_MIN: Duration = Duration::from_millis(50);

/// Pause after the first failure of a call, or of an endpoint of a fleet.
pub const RETRY_MIN: Duration = Duration::from_millis(25);

/// Returns the back-off pause, which begins with `min` and doubles with each failure up to `max`; random between half
/// of it and the whole, so that clients do not synchronize.
pub fn pause(failures: u32, min: Duration, max: Duration) -> Duration {
    let whole = min.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
    (whole / 2).saturating_add(whole.mul_f64(clock::fraction() / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let max = Duration::from_secs(5);
        for min in [CONNECT_MIN, RETRY_MIN] {
            for failures in 0..40 {
                let pause = pause(failures, min, max);
                let whole = min.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max);
                assert!(pause >= whole / 2 && pause <= whole, "{failures}: {pause:?}");
            }
        }
    }

    #[test]
    fn a_maximum_below_the_first_pause_holds() {
        let max = Duration::from_millis(4);
        for failures in 0..4 {
            let pause = pause(failures, CONNECT_MIN, max);
            assert!(pause >= max / 2 && pause <= max, "{failures}: {pause:?}");
        }
    }
}
