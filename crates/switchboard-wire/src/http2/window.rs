//! Flow control of streams and of connections (RFC 9113, section 5.2 and 6.9).

use super::frame::WINDOW_MAX;

/// An increment or a setting would make a window larger than 2^31 − 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WindowOverflow;

/// Bytes of DATA that the peer accepts, for one stream or for the connection.
///
/// A change of `SETTINGS_INITIAL_WINDOW_SIZE` may make it negative (RFC 9113, section 6.9.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SendWindow(i32);

impl SendWindow {
    /// Creates the window of a new stream, where `bytes` is at most 2^31 − 1.
    #[inline]
    pub fn new(bytes: u32) -> SendWindow {
        SendWindow(bytes.min(WINDOW_MAX) as i32)
    }

    /// Returns the bytes that may be sent now: 0 for a negative window.
    #[inline]
    pub fn available(self) -> usize {
        self.0.max(0) as usize
    }

    /// Takes bytes that are sent; at most those that are [available](Self::available).
    #[inline]
    pub fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available(), "{bytes} bytes of a window of {}", self.0);
        self.0 -= bytes as i32;
    }

    /// Applies the increment of a WINDOW_UPDATE.
    ///
    /// # Errors
    /// The window would be over 2^31 − 1; it is unchanged.
    pub fn grow(&mut self, increment: u32) -> Result<(), WindowOverflow> {
        self.shift(i64::from(increment))
    }

    /// Applies a change of `SETTINGS_INITIAL_WINDOW_SIZE`, by the difference of the new value and the old one.
    ///
    /// # Errors
    /// The window would be over 2^31 − 1; it is unchanged.
    pub fn shift(&mut self, difference: i64) -> Result<(), WindowOverflow> {
        let changed = i64::from(self.0) + difference;
        if changed > i64::from(WINDOW_MAX) {
            return Err(WindowOverflow);
        }
        // Both the old value and the difference are over −2^31, and a setting only takes back what another gave.
        self.0 = changed.max(i64::from(i32::MIN)) as i32;
        Ok(())
    }
}

/// Bytes of DATA that this side accepts, for one stream or for the connection.
///
/// The window has its size again when every received byte was [released](Self::release). Before that, a single message
/// that is larger than the window can be [let in](Self::let_in); bytes that are released later pay for it first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReceiveWindow {
    size: u32,
    /// Bytes that the peer may send now.
    left: u32,
    /// Bytes that were released and not announced to the peer.
    owed: u32,
    /// Bytes that the peer was let to send beyond the size of the window.
    debt: u32,
}

impl ReceiveWindow {
    /// Creates a window of this size, at most 2^31 − 1 bytes.
    #[inline]
    pub fn new(size: u32) -> ReceiveWindow {
        let size = size.min(WINDOW_MAX);
        ReceiveWindow { size, left: size, owed: 0, debt: 0 }
    }

    /// Creates the window of a connection, which has 65,535 bytes until the first WINDOW_UPDATE. The increment to
    /// announce is that of the first [`update`](Self::update).
    pub fn of_connection(size: u32) -> ReceiveWindow {
        const INITIAL: u32 = 65_535;
        let size = size.clamp(INITIAL, WINDOW_MAX);
        ReceiveWindow { size, left: INITIAL, owed: size - INITIAL, debt: 0 }
    }

    /// Returns the bytes that the peer may send now.
    #[inline]
    pub fn left(self) -> u32 {
        self.left
    }

    /// Counts received bytes of a DATA frame, with their padding; returns false if the peer exceeds the window.
    #[inline]
    #[must_use]
    pub fn receive(&mut self, bytes: u32) -> bool {
        let is_within = bytes <= self.left;
        if is_within {
            self.left -= bytes;
        }
        is_within
    }

    /// Releases received bytes that are no longer stored, or that the reader has taken.
    #[inline]
    pub fn release(&mut self, bytes: u32) {
        let paid = bytes.min(self.debt);
        self.debt -= paid;
        self.owed = self.owed.saturating_add(bytes - paid);
    }

    /// Returns the increment of the WINDOW_UPDATE that is due: when half of the window was released.
    #[inline]
    pub fn update(&mut self) -> Option<u32> {
        (self.owed > 0 && self.owed >= self.size / 2).then(|| self.grant())
    }

    #[cold]
    fn grant(&mut self) -> u32 {
        let increment = self.owed.min(WINDOW_MAX - self.left);
        self.owed -= increment;
        self.left += increment;
        increment
    }

    /// Lets the peer send `bytes` more, at most 2^30, of a message that is being collected. Returns the increment of
    /// the WINDOW_UPDATE, 0 if the window has room.
    pub fn let_in(&mut self, bytes: u32) -> u32 {
        let bytes = bytes.min(1 << 30);
        let Some(missing) = bytes.checked_sub(self.left) else { return 0 };
        let released = missing.min(self.owed);
        self.owed -= released;
        self.debt += missing - released;
        self.left = bytes;
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_make_windows_negative_and_increments_open_them() {
        let mut window = SendWindow::new(65_535);
        window.take(60_000);
        window.shift(-65_535).unwrap();
        assert_eq!(window.available(), 0);
        window.grow(60_000).unwrap();
        assert_eq!(window.available(), 0, "it is exactly empty");
        window.grow(1).unwrap();
        assert_eq!(window.available(), 1);
        assert_eq!(window.grow(WINDOW_MAX), Err(WindowOverflow));
        assert_eq!(window.available(), 1);
        window.grow(WINDOW_MAX - 1).unwrap();
        assert_eq!(window.shift(1), Err(WindowOverflow));
    }

    #[test]
    fn half_of_a_window_is_announced_at_once() {
        let mut window = ReceiveWindow::new(1000);
        assert!(window.receive(600) && !window.receive(401));
        window.release(499);
        assert_eq!(window.update(), None);
        window.release(1);
        assert_eq!((window.update(), window.left(), window.update()), (Some(500), 900, None));
        let mut connection = ReceiveWindow::of_connection(1 << 20);
        assert_eq!(connection.update(), Some((1 << 20) - 65_535));
        assert_eq!(connection.left(), 1 << 20);
    }

    #[test]
    fn a_message_over_the_window_is_let_in_and_paid_for_first() {
        let mut window = ReceiveWindow::new(1000);
        assert!(window.receive(400));
        assert_eq!(window.let_in(600), 0);
        assert_eq!(window.let_in(5000), 4400);
        assert!(window.receive(5000) && !window.receive(1));
        window.release(4400);
        assert_eq!(window.update(), None, "what was let in beyond the window");
        window.release(1000);
        assert_eq!((window.update(), window.left()), (Some(1000), 1000));
    }

    #[test]
    fn every_released_byte_is_announced_once() {
        let (mut window, mut announced, mut received) = (ReceiveWindow::new(100), 100u32, 0);
        for step in 0..10_000u32 {
            let bytes = (step * 7 % 41).min(window.left());
            assert!(window.receive(bytes));
            received += bytes;
            if step % 13 == 0 {
                announced += window.let_in(step % 300);
            }
            window.release(bytes);
            announced += window.update().unwrap_or(0);
            assert_eq!(announced - received, window.left());
            assert!(window.left() <= 400);
        }
    }
}
