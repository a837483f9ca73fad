//! Keepalive of a connection: a peer that is silent is pinged, and lost if it remains silent.

use std::time::{Duration, Instant};
use switchboard_core::clock::after;

/// Tracks the silence of a peer.
#[derive(Debug)]
pub struct Keepalive {
    /// Silence after which the peer is pinged.
    interval: Duration,
    /// Silence after a PING at which the connection is lost.
    timeout: Duration,
    last_read: Instant,
    /// Time of a PING that no bytes have followed.
    pinged: Option<Instant>,
}

/// Consequence of the silence of a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: every driver handles each consequence
pub enum Silence {
    /// Nothing yet.
    Short,
    /// A PING; it counts as sent.
    Ping,
    /// The end of the connection: no bytes have followed the PING. Only if a read finds none either: after a long pause
    /// of the process, they may have arrived and not been read.
    Lost,
}

impl Keepalive {
    /// Begins at `now`, with a PING after `interval` and the loss of the connection `timeout` after that.
    pub fn new(interval: Duration, timeout: Duration, now: Instant) -> Keepalive {
        Keepalive { interval, timeout, last_read: now, pinged: None }
    }

    /// Records that bytes arrived: whichever they are, the peer is alive.
    #[inline]
    pub fn received(&mut self, now: Instant) {
        self.last_read = now;
        self.pinged = None;
    }

    /// Returns the time at which bytes arrived last, or the connection began.
    #[inline]
    pub fn last_read(&self) -> Instant {
        self.last_read
    }

    /// Returns the time until which the peer may be silent.
    #[inline]
    pub fn due(&self) -> Instant {
        match self.pinged {
            Some(pinged) => after(pinged, self.timeout),
            None => after(self.last_read, self.interval),
        }
    }

    /// Returns the longest silence of a peer that is not lost.
    pub fn silence_max(&self) -> Duration {
        self.interval.saturating_add(self.timeout)
    }

    /// Returns whether a PING was sent that no bytes have followed.
    #[inline]
    pub fn is_pinged(&self) -> bool {
        self.pinged.is_some()
    }

    /// Returns the consequence of the silence until `now`.
    #[inline]
    pub fn check(&mut self, now: Instant) -> Silence {
        if self.due() > now { Silence::Short } else { self.ping(now) }
    }

    #[cold]
    fn ping(&mut self, now: Instant) -> Silence {
        match self.pinged {
            Some(_) => Silence::Lost,
            None => {
                self.pinged = Some(now);
                Silence::Ping
            }
        }
    }

    /// Forgets a PING, while nothing depends on its response.
    #[inline]
    pub fn forget_ping(&mut self) {
        self.pinged = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_pinged_once_and_then_lost() {
        let second = Duration::from_secs(1);
        let began = Instant::now();
        let mut keepalive = Keepalive::new(10 * second, 2 * second, began);
        assert_eq!(keepalive.check(began + 9 * second), Silence::Short);
        assert_eq!(keepalive.check(began + 10 * second), Silence::Ping);
        assert_eq!(keepalive.due(), began + 12 * second);
        assert_eq!(keepalive.check(began + 11 * second), Silence::Short);
        // Any bytes are a response.
        keepalive.received(began + 11 * second);
        assert!(!keepalive.is_pinged());
        assert_eq!(keepalive.check(began + 21 * second), Silence::Ping);
        assert_eq!(keepalive.check(began + 23 * second), Silence::Lost);
        // A new wait begins with a PING of its own.
        keepalive.forget_ping();
        assert_eq!(keepalive.check(began + 23 * second), Silence::Ping);
        assert_eq!(keepalive.last_read(), began + 11 * second);
    }
}
