//! Measures of lag and their limits, without a clock and a socket.

use std::{fmt, time::Duration};

/// Publishers whose numbers are counted. A further one replaces the publisher that was silent for the longest time.
const PUBLISHERS_MAX: usize = 64;

/// Stamp of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// Number of the publisher's run, which is random.
    pub run: u64,
    /// Number of the message in the run, from 1.
    pub number: u64,
    /// Time in microseconds since 1970.
    pub time_us: u64,
}

impl Stamp {
    /// Returns the bytes of the stamp.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (field, value) in bytes.chunks_exact_mut(8).zip([self.run, self.number, self.time_us]) {
            field.copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// Reads a stamp; `None` for bytes of another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Stamp> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let mut fields = bytes
            .chunks_exact(8)
            .map(|field| field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        Some(Stamp { run: fields.next()?, number: fields.next()?, time_us: fields.next()? })
    }
}

/// Limits of a lag guard. `None` does not measure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct LagLimits {
    /// Time from the stamp to the receive; default 1 s.
    pub delay_max: Duration,
    /// Messages of a run that were not received, one after the other or not; default `None`. Only a subscriber of all
    /// topics can count them.
    pub missing_max: Option<u64>,
    /// Messages that wait in the queues of the subscriber; default `None`. Less than `queues.receive_messages_max` of
    /// the socket, which is the most that waits for each publisher.
    pub unread_max: Option<usize>,
}

impl Default for LagLimits {
    fn default() -> LagLimits {
        LagLimits { delay_max: Duration::from_secs(1), missing_max: None, unread_max: None }
    }
}

/// Limit that a subscription has exceeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LagReason {
    /// A message arrived too late.
    Delay {
        /// Time from its stamp to the receive.
        delay: Duration,
        /// Limit.
        limit: Duration,
    },
    /// Messages were not received.
    Missing {
        /// Number of them, since the subscription received the first message of the publisher.
        messages: u64,
        /// Limit.
        limit: u64,
    },
    /// Messages wait to be received.
    Unread {
        /// Number of them.
        messages: usize,
        /// Limit.
        limit: usize,
    },
}

impl fmt::Display for LagReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LagReason::Delay { delay, limit } => {
                write!(f, "a message is {delay:?} late; the limit is delay_max={limit:?}")
            }
            LagReason::Missing { messages, limit } => {
                write!(f, "{messages} messages are missing; the limit is missing_max={limit}")
            }
            LagReason::Unread { messages, limit } => {
                write!(f, "{messages} messages are unread; the limit is unread_max={limit}")
            }
        }
    }
}

/// Measures of a subscription.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LagStats {
    /// Messages that were received.
    pub received: u64,
    /// Messages without a valid stamp, which were skipped.
    pub invalid: u64,
    /// Messages that were not received, by their numbers. Those of topics without a subscription are included.
    pub missing: u64,
    /// Delay of the last message.
    pub delay: Duration,
    /// Largest delay.
    pub delay_max: Duration,
}

/// Measures each message, and ends for good at the first limit that is exceeded.
#[derive(Clone, Debug)]
pub struct LagMeter {
    limits: LagLimits,
    /// Runs with the number of their last message, the latest one last.
    runs: Vec<(u64, u64)>,
    stats: LagStats,
    ended: Option<LagReason>,
}

impl LagMeter {
    /// Creates a meter.
    pub fn new(limits: LagLimits) -> LagMeter {
        LagMeter { limits, runs: Vec::new(), stats: LagStats::default(), ended: None }
    }

    /// Measures a message that was received at a time, in microseconds since 1970, while others are unread; returns its
    /// delay.
    ///
    /// # Errors
    /// Returns the reason if a limit is exceeded, and the same reason from then on.
    pub fn measure(&mut self, stamp: Stamp, now_us: u64, unread: usize) -> Result<Duration, LagReason> {
        if let Some(reason) = self.ended {
            return Err(reason);
        }
        let delay = Duration::from_micros(now_us.saturating_sub(stamp.time_us));
        self.stats.received += 1;
        self.stats.delay = delay;
        self.stats.delay_max = self.stats.delay_max.max(delay);
        self.stats.missing = self.stats.missing.saturating_add(self.missing(stamp));
        let LagLimits { delay_max, missing_max, unread_max } = self.limits;
        let reason = if delay > delay_max {
            Some(LagReason::Delay { delay, limit: delay_max })
        } else if let Some(limit) = missing_max.filter(|limit| self.stats.missing > *limit) {
            Some(LagReason::Missing { messages: self.stats.missing, limit })
        } else {
            let exceeded = unread_max.filter(|limit| unread > *limit);
            exceeded.map(|limit| LagReason::Unread { messages: unread, limit })
        };
        self.ended = reason;
        reason.map_or(Ok(delay), Err)
    }

    /// Returns the number of messages between the last one of the run and this one, and notes it.
    fn missing(&mut self, stamp: Stamp) -> u64 {
        let known = self.runs.iter().position(|(run, _)| *run == stamp.run);
        let last = known.map(|index| self.runs.remove(index).1);
        if self.runs.len() == PUBLISHERS_MAX {
            self.runs.remove(0);
        }
        self.runs.push((stamp.run, last.unwrap_or(0).max(stamp.number)));
        last.map_or(0, |last| stamp.number.saturating_sub(last).saturating_sub(1))
    }

    pub(super) fn count_invalid(&mut self) {
        self.stats.invalid += 1;
    }

    /// Returns the limits.
    pub fn limits(&self) -> LagLimits {
        self.limits
    }

    /// Returns the reason for which the meter has ended.
    pub fn ended(&self) -> Option<LagReason> {
        self.ended
    }

    /// Returns the measures.
    pub fn stats(&self) -> LagStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(run: u64, number: u64, time_us: u64) -> Stamp {
        Stamp { run, number, time_us }
    }

    #[test]
    fn stamps_are_read_as_they_are_written() {
        let written = stamp(u64::MAX, 258, 1);
        assert_eq!(Stamp::from_bytes(&written.to_bytes()), Some(written));
        for length in (0..64).filter(|length| *length != 24) {
            assert_eq!(Stamp::from_bytes(&vec![9; length]), None);
        }
    }

    #[test]
    fn the_first_limit_that_is_exceeded_is_the_reason_for_good() {
        let limits = LagLimits { missing_max: Some(2), unread_max: Some(10), ..LagLimits::default() };
        let mut meter = LagMeter::new(limits);
        assert_eq!(meter.measure(stamp(1, 1, 5_000_000), 5_250_000, 10), Ok(Duration::from_millis(250)));
        assert_eq!(meter.measure(stamp(1, 4, 9_000_000), 5_000_000, 0), Ok(Duration::ZERO));
        let mut late = meter.clone();
        let (delay, limit) = (Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(late.measure(stamp(1, 5, 0), 2_000_000, 0), Err(LagReason::Delay { delay, limit }));
        assert_eq!(late.measure(stamp(1, 6, 0), 0, 0), Err(LagReason::Delay { delay, limit }));
        let mut unread = meter.clone();
        let reason = LagReason::Unread { messages: 11, limit: 10 };
        assert_eq!(unread.measure(stamp(1, 5, 0), 0, 11), Err(reason));
        assert_eq!(meter.measure(stamp(2, 900, 0), 0, 0), Ok(Duration::ZERO), "the first message of a run");
        let reason = LagReason::Missing { messages: 3, limit: 2 };
        assert_eq!(meter.measure(stamp(1, 6, 0), 0, 0), Err(reason));
        assert_eq!(meter.ended(), Some(reason));
        assert!(reason.to_string().contains("missing_max=2"));
    }

    #[test]
    fn any_stamps_are_measured_without_a_panic_and_within_the_number_of_runs() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut meter = LagMeter::new(LagLimits { delay_max: Duration::MAX, ..LagLimits::default() });
        for _ in 0..10_000 {
            let any = |random: &mut fastrand::Rng| random.u64(..) >> random.u32(..64);
            let stamp = stamp(random.u64(..200), any(&mut random), any(&mut random));
            meter.measure(stamp, any(&mut random), random.usize(..)).unwrap();
            assert!(meter.runs.len() <= PUBLISHERS_MAX);
        }
    }
}
