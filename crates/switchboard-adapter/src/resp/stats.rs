//! Counters of the plugin.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a [`Redis`](super::Redis) plugin, of all servers that it was added to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RedisStats {
    /// Messages of clients that became entries of the bus.
    pub published: u64,
    /// Messages and subscriptions of clients that were refused: a rule of topics, an invalid name of a topic, a limit,
    /// a full topic.
    pub refused: u64,
    /// Entries that went to broadcast buffers of subscribers, once for each set of subscriptions and each subscription
    /// in it.
    pub encoded: u64,
    /// Calls of methods.
    pub calls: u64,
    /// Credentials that the server rejected.
    pub rejected_credentials: u64,
    /// Entries that the bus dropped before this plugin had read them, as far as their number is known.
    pub missed: u64,
    /// Connections that were closed because their client was too slow.
    pub lagged: u64,
    /// Connections that were closed because of an error of the client.
    pub protocol_errors: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) published: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) encoded: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) rejected_credentials: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) lagged: AtomicU64,
    pub(super) protocol_errors: AtomicU64,
}

impl Counters {
    pub(super) fn stats(&self) -> RedisStats {
        let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        RedisStats {
            published: count(&self.published),
            refused: count(&self.refused),
            encoded: count(&self.encoded),
            calls: count(&self.calls),
            rejected_credentials: count(&self.rejected_credentials),
            missed: count(&self.missed),
            lagged: count(&self.lagged),
            protocol_errors: count(&self.protocol_errors),
        }
    }
}
