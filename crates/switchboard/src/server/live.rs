//! State that can be changed or queried while a server runs.

#[cfg(feature = "http")]
use super::Open;
use super::{Running, Shared, lifecycle};
#[cfg(feature = "tls")]
use crate::net::tls::Acceptor;
#[cfg(feature = "http")]
use crate::{Address, server::Counts};
use crate::{
    Error, Flag, Limit, Limits, MemoryStats,
    metrics::{ConnectionProtocol, ServerStats, TlsStats},
};
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits that can be changed while the server runs.
pub(crate) struct Live {
    pub(crate) connections_max: Flag,
    pub(crate) memory_bytes_max: Flag,
    pub(crate) server_calls_max: Flag,
}

impl Live {
    pub(super) fn new(limits: &Limits) -> Live {
        let flag = |limit: Limit| {
            Flag::new(limit.name(), limit.unit(), limits.get(limit), limit.range(), limit.doc())
        };
        Live {
            connections_max: flag(Limit::ConnectionsMax),
            memory_bytes_max: flag(Limit::MemoryBytesMax),
            server_calls_max: flag(Limit::ServerCallsMax),
        }
    }

    pub(super) fn flags(&self) -> [Flag; 3] {
        [self.connections_max.clone(), self.memory_bytes_max.clone(), self.server_calls_max.clone()]
    }
}

#[cfg(feature = "http")]
impl Open {
    /// Returns its Channelz counters, if they are on.
    pub(crate) fn counts(&self) -> Option<Counts> {
        self.socket.as_ref().map(|socket| socket.counts())
    }

    /// Returns the number of calls that wait in handlers, on any wire.
    pub(crate) fn waiting(&self) -> usize {
        self.wakes.waiting()
    }

    /// Returns the bytes that it holds for its peer, and whether reading is paused because of them.
    pub(crate) fn held(&self) -> (usize, bool) {
        (self.wakes.held(), self.wakes.is_paused())
    }
}

impl Running {
    /// Resolves when a successor has taken over the listeners and serves; then call [`stop`](Self::stop).
    /// Never resolves unless the server was started with [`Server::handover`](super::Server::handover).
    /// Cancel safe.
    #[cfg(feature = "handover")]
    pub async fn handed_over(&self) {
        match &self.waiting {
            Some(waiting) => waiting.taken().await,
            None => std::future::pending().await,
        }
    }

    #[cfg(not(feature = "handover"))]
    pub(super) async fn handed_over(&self) {
        std::future::pending::<()>().await;
    }

    /// Returns the memory counters: the part of [`stats`](Self::stats) that is cheap to query often.
    pub fn memory(&self) -> MemoryStats {
        self.shared.memory.stats()
    }

    /// Changes a [flag](crate::Flag), as the admin page does; `by` is recorded in the audit line.
    ///
    /// # Errors
    /// Fails if the flag does not exist or the value is out of range.
    pub fn set_flag(&self, name: &str, value: &str, by: &str) -> Result<(), Error> {
        self.shared.flags.set(name, value, None, by).map(drop)
    }

    /// Checks whether [`set_flag`](Self::set_flag) would succeed, without changing the flag.
    ///
    /// # Errors
    /// Fails if the flag does not exist or the value is out of range.
    pub fn check_flag(&self, name: &str, value: &str) -> Result<(), Error> {
        self.shared.flags.check(name, value).map(drop)
    }

    /// Returns the address of the admin pages, if they are served.
    #[cfg(feature = "http")]
    pub fn admin(&self) -> Option<&Address> {
        self.admin.as_ref().map(|(address, _)| address)
    }

    /// Stops and logs the result; calls have `drain_timeout` to end.
    pub(super) async fn stop_logged(self) {
        let drain = self.shared.limits.drain_timeout();
        let stopped = self.stop(drain, drain.saturating_add(lifecycle::CLOSE_TIME)).await;
        if stopped.is_clean() {
            tracing::info!("{stopped}");
        } else {
            tracing::warn!("{stopped}");
        }
    }
}

impl Shared {
    /// Returns whether connections count their traffic for Channelz.
    #[cfg(feature = "http")]
    pub(crate) fn counts_sockets(&self) -> bool {
        self.counts_sockets
    }

    /// Records the protocol of a connection.
    pub(crate) fn speaks(&self, connection: u64, protocol: ConnectionProtocol) {
        self.metrics.begin(protocol);
        let before = match self.open().get_mut(&connection) {
            Some(open) => open.protocol.replace(protocol),
            // All connections were aborted meanwhile.
            None => Some(protocol),
        };
        if let Some(before) = before {
            self.metrics.end(before);
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn acceptors(&self) -> &[Arc<Acceptor>] {
        self.acceptors.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn stats(&self) -> ServerStats {
        let metrics = &self.metrics;
        let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        ServerStats {
            uptime: metrics.began.elapsed(),
            accepted: count(&metrics.accepted),
            connections: self.open().len() as u64,
            calls_in_flight: self.parked.load(Ordering::Relaxed) as u64,
            unknown_protocol: count(&metrics.unknown_protocol),
            disabled_wires: count(&metrics.disabled_wires),
            protocol_errors: count(&metrics.protocol_errors),
            memory: self.memory.stats(),
            tls: self.tls_stats(),
            methods: metrics.methods(),
            protocols: metrics.protocols(),
            peers: metrics.peers.stats(),
        }
    }

    fn tls_stats(&self) -> TlsStats {
        let mismatches = self.metrics.tls_mismatches.load(Ordering::Relaxed);
        let stats = TlsStats { mismatches, ..TlsStats::default() };
        #[cfg(feature = "tls")]
        let stats = self.acceptors().iter().fold(stats, |stats, acceptor| acceptor.count(stats));
        stats
    }
}
