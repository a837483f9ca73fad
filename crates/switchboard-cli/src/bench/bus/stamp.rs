//! The first bytes of each message, by which a receiver finds lost and duplicated messages, and the delay of some.

use std::time::Duration;

/// Size of a stamp in bytes.
pub(super) const STAMP_BYTES: usize = 20;

/// One message of this number has a time; reading the clock for each would cost as much as the message.
const TIMED_EVERY: u64 = 64;

/// The first bytes of a message: number of the sender, number of the message, time of the send in nanoseconds or 0; all
/// little-endian.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    pub(super) sender: u32,
    pub(super) number: u64,
    pub(super) time_ns: u64,
}

impl Stamp {
    /// Creates the stamp of a message; every 64th one has the time.
    pub(super) fn new(sender: u32, number: u64) -> Self {
        let time_ns = if number.is_multiple_of(TIMED_EVERY) { now_ns() } else { 0 };
        Self { sender, number, time_ns }
    }

    /// Writes the stamp to the start of a message of at least [`STAMP_BYTES`].
    pub(super) fn write(self, message: &mut [u8]) {
        message[..4].copy_from_slice(&self.sender.to_le_bytes());
        message[4..12].copy_from_slice(&self.number.to_le_bytes());
        message[12..STAMP_BYTES].copy_from_slice(&self.time_ns.to_le_bytes());
    }

    /// Reads the stamp; `None` if the message is shorter.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let (sender, rest) = message.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let time_ns = rest.first_chunk()?;
        Some(Self {
            sender: u32::from_le_bytes(*sender),
            number: u64::from_le_bytes(*number),
            time_ns: u64::from_le_bytes(*time_ns),
        })
    }

    /// Returns the time since the send, if the message has one.
    pub(super) fn delay(self) -> Option<Duration> {
        (self.time_ns > 0).then(|| Duration::from_nanos(now_ns().saturating_sub(self.time_ns)))
    }
}

/// Returns the time of the clock that all processes of the machine share, in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Checks the numbers of the messages of one sender.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Checker {
    next: Option<u64>,
    pub(super) lost: u64,
    pub(super) duplicates: u64,
}

impl Checker {
    /// Counts a message. With `may_skip` other receivers have the missing ones.
    pub(super) fn check(&mut self, number: u64, may_skip: bool) {
        match self.next {
            Some(next) if number < next => {
                self.duplicates += 1;
                return;
            }
            Some(next) if !may_skip => self.lost += number - next,
            _ => {}
        }
        self.next = Some(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let mut message = [7; 30];
        let stamp = Stamp { sender: 3, number: u64::MAX, time_ns: 5 };
        stamp.write(&mut message);
        assert_eq!((Stamp::read(&message), Stamp::read(&message[..19])), (Some(stamp), None));
        assert!(Stamp::new(0, 64).delay().is_some() && Stamp::new(0, 65).delay().is_none());
    }

    #[test]
    fn lost_and_duplicated_messages_are_counted() {
        let mut checker = Checker::default();
        [5, 6, 9, 9, 8, 10].into_iter().for_each(|number| checker.check(number, false));
        assert_eq!((checker.lost, checker.duplicates), (2, 2));
        let mut checker = Checker::default();
        [5, 9, 20, 20].into_iter().for_each(|number| checker.check(number, true));
        assert_eq!((checker.lost, checker.duplicates), (0, 1));
    }
}
