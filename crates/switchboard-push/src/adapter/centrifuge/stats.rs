//! Counters of the plugin.

use std::sync::atomic::{AtomicU64, Ordering};
use switchboard_core::counters::{Counter, CounterSource};
use switchboard_wire::centrifuge::ErrorKind;

/// Counters of a [`Centrifuge`](super::Centrifuge) plugin, of all servers that it was added to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CentrifugeStats {
    /// Connections that were closed because a command is malformed, or too large, or at the wrong time.
    pub violations: u64,
    /// Connections that were closed because the hub refused their device.
    pub unauthenticated: u64,
    /// Connections that were closed because they had no valid credentials in time.
    pub login_timeouts: u64,
    /// Connections that were closed because no pong came in time.
    pub pong_timeouts: u64,
    /// Commands.
    pub commands: u64,
    /// Commands whose reply is an error.
    pub errors: u64,
    /// Times at which a client was too slow for its publications.
    pub lagged: u64,
}

/// Running counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    violations: [AtomicU64; ErrorKind::ALL.len()],
    pub(super) unauthenticated: AtomicU64,
    pub(super) login_timeouts: AtomicU64,
    pub(super) pong_timeouts: AtomicU64,
    pub(super) commands: AtomicU64,
    pub(super) errors: AtomicU64,
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
    /// Counts a command that broke a rule.
    pub(super) fn violation(&self, kind: ErrorKind) {
        if let Some(at) = ErrorKind::ALL.iter().position(|known| *known == kind) {
            count(&self.violations[at]);
        }
    }

    pub(super) fn stats(&self) -> CentrifugeStats {
        CentrifugeStats {
            violations: self.violations.iter().map(read).sum(),
            unauthenticated: read(&self.unauthenticated),
            login_timeouts: read(&self.login_timeouts),
            pong_timeouts: read(&self.pong_timeouts),
            commands: read(&self.commands),
            errors: read(&self.errors),
            lagged: read(&self.lagged),
        }
    }
}

impl CounterSource for Counters {
    fn kind(&self) -> &'static str {
        "centrifuge"
    }

    fn counters(&self) -> Vec<Counter> {
        let closed = |reason, value| {
            let help = "connections that were closed, by reason";
            Counter::total("closed", help, value).label("reason", reason)
        };
        let stats = self.stats();
        let violations = ErrorKind::ALL.iter().zip(&self.violations);
        let mut list: Vec<Counter> =
            violations.map(|(kind, value)| closed(kind.name(), read(value))).collect();
        list.extend([
            closed("unauthenticated", stats.unauthenticated),
            closed("login_timeout", stats.login_timeouts),
            closed("pong_timeout", stats.pong_timeouts),
            Counter::total("commands", "commands of clients", stats.commands),
            Counter::total("errors", "commands whose reply is an error", stats.errors),
            Counter::total("lagged", "times at which a client was too slow", stats.lagged),
        ]);
        list
    }

    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self) as usize)
    }
}
