//! Limits that can be changed while a server runs, and its counters.

#[cfg(feature = "http")]
use super::Open;
use super::ServerState;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "http")]
use switchboard_core::metrics::ConnectionCounts;
use switchboard_core::{
    Flag, Limit, Limits,
    metrics::{ConnectionProtocol, ServerStats, TlsStats},
};
#[cfg(feature = "tls")]
use switchboard_net::net::tls::Acceptor;

/// Limits that can be changed while the server runs.
pub struct Live {
    /// Limit of open connections.
    pub connections_max: Flag,
    /// Limit of the memory held for peers.
    pub memory_bytes_max: Flag,
    /// Limit of calls in flight.
    pub server_calls_max: Flag,
}

impl Live {
    /// Creates the flags with the values of `limits`.
    pub fn new(limits: &Limits) -> Live {
        let flag = |limit: Limit| {
            Flag::new(limit.name(), limit.unit(), limits.get(limit), limit.range(), limit.doc())
        };
        Live {
            connections_max: flag(Limit::ConnectionsMax),
            memory_bytes_max: flag(Limit::MemoryBytesMax),
            server_calls_max: flag(Limit::ServerCallsMax),
        }
    }

    /// Returns all of them.
    pub fn flags(&self) -> [Flag; 3] {
        [self.connections_max.clone(), self.memory_bytes_max.clone(), self.server_calls_max.clone()]
    }
}

#[cfg(feature = "http")]
impl Open {
    /// Returns its Channelz counters, if they are on.
    pub fn counts(&self) -> Option<ConnectionCounts> {
        self.socket.as_ref().map(|socket| socket.counts())
    }

    /// Returns the number of calls that wait in handlers, on any wire.
    pub fn waiting(&self) -> usize {
        self.wakes.waiting()
    }

    /// Returns the bytes that it holds for its peer, and whether reading is paused because of them.
    pub fn held_bytes_and_pause(&self) -> (usize, bool) {
        (self.wakes.held_bytes(), self.wakes.is_paused())
    }
}

impl ServerState {
    /// Returns whether connections count their traffic for Channelz.
    #[cfg(feature = "http")]
    pub fn counts_sockets(&self) -> bool {
        self.counts_sockets
    }

    /// Records the protocol of a connection.
    pub fn speaks(&self, connection: u64, protocol: ConnectionProtocol) {
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

    /// Returns the listeners with TLS.
    #[cfg(feature = "tls")]
    pub fn acceptors(&self) -> &[Arc<Acceptor>] {
        self.acceptors.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the current counters.
    pub fn stats(&self) -> ServerStats {
        let metrics = &self.metrics;
        let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let mut stats = ServerStats::default();
        stats.uptime = metrics.began.elapsed();
        stats.accepted = count(&metrics.accepted);
        stats.connections = (self.open().len() + self.plugins.connections()) as u64;
        stats.calls_in_flight = self.parked.load(Ordering::Relaxed) as u64;
        stats.unknown_protocol = count(&metrics.unknown_protocol);
        stats.disabled_wires = count(&metrics.disabled_wires);
        stats.protocol_errors = count(&metrics.protocol_errors);
        stats.memory = self.memory.stats();
        stats.tls = self.tls_stats();
        stats.methods = metrics.methods();
        stats.protocols = metrics.protocols();
        stats.peers = metrics.peers.stats();
        stats.sources = self.sources.stats();
        stats
    }

    fn tls_stats(&self) -> TlsStats {
        let mismatches = self.metrics.tls_mismatches.load(Ordering::Relaxed);
        let mut stats = TlsStats::default();
        stats.mismatches = mismatches;
        #[cfg(feature = "tls")]
        let stats = self.acceptors().iter().fold(stats, |stats, acceptor| acceptor.count(stats));
        stats
    }
}
