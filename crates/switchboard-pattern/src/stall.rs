//! Pauses of this process, in which messages of peers arrive and nothing reads them.

use std::time::{Duration, Instant};
use switchboard_core::clock;

/// Notices that the task was not polled for longer than a limit, on a machine that is overloaded or was suspended.
/// Peers that were silent for that time may have sent heartbeats.
#[derive(Debug)]
pub(crate) struct Stall {
    last: Instant,
    limit: Duration,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Stall {
        Stall { last: clock::now(), limit }
    }

    /// Returns true if the time since the last call is above the limit.
    pub(crate) fn check(&mut self, now: Instant) -> bool {
        let pause = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        pause > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_is_noticed_once() {
        let mut stall = Stall::new(Duration::from_secs(1));
        let start = clock::now();
        assert!(!stall.check(start + Duration::from_millis(900)));
        assert!(stall.check(start + Duration::from_secs(3)));
        assert!(!stall.check(start + Duration::from_secs(4)));
    }
}
