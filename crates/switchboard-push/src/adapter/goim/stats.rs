//! Counters of the plugin.

use std::sync::atomic::{AtomicU64, Ordering};
use switchboard_core::counters::{Counter, CounterSource};
use switchboard_wire::goim::{ErrorKind, Refusal};

/// Counters of a [`Goim`](super::Goim) plugin, of all servers that it was added to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct GoimStats {
    /// Connections that were closed because their authentication is not valid JSON, or lacks a member.
    pub auth: u64,
    /// Connections that were closed because of a header whose length is not 16.
    pub header_length: u64,
    /// Connections that were closed because a limit was exceeded.
    pub limit: u64,
    /// Connections that were closed because a packet is shorter than its header.
    pub package_length: u64,
    /// Connections that were closed because the hub refused their device.
    pub unauthenticated: u64,
    /// Connections that were closed because they had no valid credentials in time.
    pub login_timeouts: u64,
    /// Connections that were closed because no heartbeat came in time.
    pub heartbeat_timeouts: u64,
    /// Packets that were ignored because they came before the authentication.
    pub skipped: u64,
    /// Packets that had no effect: a malformed list of operations, key of a room or command, and pushes of devices that
    /// are not allowed.
    pub refused: u64,
    /// Joins of rooms that the hub refused: by a rule, a limit or a rate.
    pub rooms_refused: u64,
    /// Messages of devices to the application.
    pub messages: u64,
    /// Pushes of devices with im-cloud.
    pub pushes: u64,
    /// Times at which a device was too slow for its pushes, and missed some.
    pub lagged: u64,
}

/// Running counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    errors: [AtomicU64; ErrorKind::ALL.len()],
    pub(super) unauthenticated: AtomicU64,
    pub(super) login_timeouts: AtomicU64,
    pub(super) heartbeat_timeouts: AtomicU64,
    pub(super) skipped: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    pub(super) pushes_refused: AtomicU64,
    pub(super) rooms_refused: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) pushes: AtomicU64,
    pub(super) lagged: AtomicU64,
}

/// Adds 1 to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    /// Counts an error that closes a connection.
    pub(super) fn error(&self, kind: ErrorKind) {
        if let Some(at) = ErrorKind::ALL.iter().position(|known| *known == kind) {
            count(&self.errors[at]);
        }
    }

    /// Counts a packet that had no effect.
    pub(super) fn refusal(&self, refusal: Refusal) {
        if let Some(at) = Refusal::ALL.iter().position(|known| *known == refusal) {
            count(&self.refused[at]);
        }
    }

    pub(super) fn stats(&self) -> GoimStats {
        let error = |kind| {
            let at = ErrorKind::ALL.iter().position(|known| *known == kind);
            at.map_or(0, |at| read(&self.errors[at]))
        };
        GoimStats {
            auth: error(ErrorKind::Auth),
            header_length: error(ErrorKind::HeaderLength),
            limit: error(ErrorKind::Limit),
            package_length: error(ErrorKind::PackageLength),
            unauthenticated: read(&self.unauthenticated),
            login_timeouts: read(&self.login_timeouts),
            heartbeat_timeouts: read(&self.heartbeat_timeouts),
            skipped: read(&self.skipped),
            refused: self.refused.iter().map(read).sum::<u64>().saturating_add(read(&self.pushes_refused)),
            rooms_refused: read(&self.rooms_refused),
            messages: read(&self.messages),
            pushes: read(&self.pushes),
            lagged: read(&self.lagged),
        }
    }
}

impl CounterSource for Counters {
    fn kind(&self) -> &'static str {
        "goim"
    }

    fn counters(&self) -> Vec<Counter> {
        let stats = self.stats();
        let closed = |reason, value| {
            let help = "connections that were closed, by reason";
            Counter::total("closed", help, value).label("reason", reason)
        };
        let refused =
            Refusal::ALL.iter().zip(&self.refused).map(|(refusal, value)| (refusal.name(), read(value)));
        let refused = refused.chain([("push", read(&self.pushes_refused)), ("join", stats.rooms_refused)]);
        let mut list = vec![
            closed("auth", stats.auth),
            closed("header_length", stats.header_length),
            closed("limit", stats.limit),
            closed("package_length", stats.package_length),
            closed("unauthenticated", stats.unauthenticated),
            closed("login_timeout", stats.login_timeouts),
            closed("heartbeat_timeout", stats.heartbeat_timeouts),
            Counter::total("skipped", "packets before the authentication", stats.skipped),
            Counter::total("messages", "messages of devices to the application", stats.messages),
            Counter::total("pushes", "pushes of devices with im-cloud", stats.pushes),
            Counter::total("lagged", "times at which a device was too slow for its pushes", stats.lagged),
        ];
        list.extend(refused.map(|(reason, value)| {
            Counter::total("refused", "packets that had no effect, by reason", value).label("reason", reason)
        }));
        list
    }

    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self) as usize)
    }
}
