//! Counters of a server: cells per worker, summed on reading.
//!
//! Cost per call: a few relaxed additions to memory that only its worker writes, shared by up to eight calls
//! on the native wire, and no clock reading of its own.

mod cells;
mod connection;
mod exposition;
mod histogram;
mod labels;
mod peers;

use crate::clock;
use crate::counters::{COUNTERS_MAX, Counter, CounterSource, is_name};
pub use cells::Ended;
use cells::Shard;
#[cfg(any(feature = "channelz", feature = "http"))]
pub use connection::ConnectionCounts;
pub use connection::{ConnectionCounters, Moment, next_id};
pub use histogram::Latency;
pub use labels::ConnectionProtocol;
pub use peers::PeerStats;
pub use peers::{PeerCount, Peers, Tally};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use switchboard_wire::{MethodId, MethodTable, WireId, WireSet};

/// Number of entries of [`MethodStats::latency`].
const POWERS: usize = 28;

/// Counters of a server since its start.
pub struct Metrics {
    table: Arc<MethodTable>,
    shards: Vec<Shard>,
    slow: Vec<AtomicU64>,
    /// Opened and ended connections, by [`ConnectionProtocol`].
    protocols: [(AtomicU64, AtomicU64); ConnectionProtocol::COUNT],
    /// Wires of the listeners.
    enabled: WireSet,
    pub peers: Peers,
    pub began: Instant,
    pub accepted: AtomicU64,
    pub unknown_protocol: AtomicU64,
    pub disabled_wires: AtomicU64,
    pub protocol_errors: AtomicU64,
    /// TLS connections to listeners without TLS, and plaintext connections where TLS is required.
    pub tls_mismatches: AtomicU64,
}

/// The counters of one method.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MethodStats {
    /// Full name, `package.Service/Method`; `*` for all undeclared methods.
    pub name: String,
    /// Ended calls, by [`Code::number`](switchboard_wire::Code::number).
    pub ended: [u64; 17],
    /// Total time of all calls from arrival to end.
    pub total: Duration,
    /// Calls by latency: entry n counts those below 2^n microseconds that are not counted in an earlier
    /// entry. Finer steps and percentiles are in [`times`](Self::times).
    pub latency: Vec<u64>,
    /// Times that a handler held its connection's turn for more than 10 ms.
    pub slow_turns: u64,
    /// Latency distribution.
    pub times: Latency,
    /// Calls currently waiting in handlers.
    pub in_flight: u64,
    /// Bytes of the request messages of ended calls.
    pub received: u64,
    /// Bytes of the reply messages of ended calls.
    pub sent: u64,
    /// Counters by wire, for wires with calls of this method.
    pub wires: Vec<WireStats>,
}

/// The counters of one method on one wire.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WireStats {
    /// Name as in [`Peer::wire`](crate::Peer::wire), or `websocket` for all calls inside WebSockets.
    pub wire: &'static str,
    /// Ended calls, by [`Code::number`](switchboard_wire::Code::number).
    pub ended: [u64; 17],
    /// Total time of all calls from arrival to end.
    pub total: Duration,
    /// Latency distribution.
    pub times: Latency,
    /// Calls currently waiting in handlers.
    pub in_flight: u64,
    /// Bytes of the request messages of ended calls.
    pub received: u64,
    /// Bytes of the reply messages of ended calls.
    pub sent: u64,
}

/// The counters of a server.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Time since the server started.
    pub uptime: Duration,
    /// Connections accepted.
    pub accepted: u64,
    /// Currently open connections.
    pub connections: u64,
    /// Calls currently waiting in handlers.
    pub calls_in_flight: u64,
    /// Connections closed because their first bytes match no enabled protocol.
    pub unknown_protocol: u64,
    /// Connections closed because their listener has not enabled their wire.
    pub disabled_wires: u64,
    /// Connections closed because their peer broke its protocol.
    pub protocol_errors: u64,
    /// Memory held for peers.
    pub memory: crate::MemoryStats,
    /// TLS counters.
    pub tls: TlsStats,
    /// Counters by method, in the order in which services were added.
    pub methods: Vec<MethodStats>,
    /// Counters by connection protocol.
    pub protocols: Vec<ConnectionProtocolStats>,
    /// Counters by caller: the busiest callers, and the rest together.
    pub peers: Vec<PeerStats>,
    /// Counters of plugins, topics and other [sources](crate::counters).
    pub sources: Vec<SourceStats>,
}

/// The counters of a [source](crate::counters::CounterSource).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SourceStats {
    /// Its name, which no other source of the server has.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its counters, without those whose names metrics cannot have.
    pub counters: Vec<Counter>,
}

impl SourceStats {
    /// Reads the counters of a source.
    pub fn read(name: String, source: &dyn CounterSource) -> SourceStats {
        let mut counters = source.counters();
        counters.retain(|counter| {
            is_name(counter.name) && counter.label.is_none_or(|(label, _)| is_label(label))
        });
        counters.truncate(COUNTERS_MAX);
        SourceStats { name, kind: source.kind(), counters }
    }
}

/// Returns whether a source may use this label: `source` is its name.
fn is_label(label: &str) -> bool {
    is_name(label) && label != "source"
}

/// Counters of the connections that speak one protocol.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionProtocolStats {
    /// `http1`, `http2`, `websocket`, or the name of a wire with connections of its own.
    pub protocol: &'static str,
    /// Connections that started to speak the protocol.
    pub connections: u64,
    /// Currently open connections.
    pub open: u64,
    /// Bytes read, inside TLS.
    pub received: u64,
    /// Bytes written, inside TLS.
    pub sent: u64,
}

/// TLS counters of a server, on all listeners.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TlsStats {
    /// Successful handshakes, equal to the number of TLS connections.
    pub handshakes: u64,
    /// Handshakes that failed or timed out.
    pub failures: u64,
    /// TLS connections to listeners without TLS, and plaintext connections where TLS is required.
    pub mismatches: u64,
    /// Number of times that changed certificates were loaded.
    pub reloads: u64,
    /// Changed files that could not be used.
    pub reload_failures: u64,
    /// The current certificates.
    pub certificates: Vec<CertificateStats>,
}

/// A certificate of a listener.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CertificateStats {
    /// File that contains the certificate.
    pub file: String,
    /// Distinguished name, `CN=a.example`.
    pub subject: String,
    /// Alternative names with their kind: `dns:a.example`, `ip:10.0.0.1`.
    pub names: Vec<String>,
    /// Seconds until the expiry; negative after it.
    pub expires_in_seconds: i64,
}

impl Metrics {
    pub fn new(table: Arc<MethodTable>, shards: usize, enabled: WireSet) -> Metrics {
        Metrics {
            shards: (0..shards.max(1)).map(|_| Shard::new()).collect(),
            slow: (0..table.slots()).map(|_| AtomicU64::new(0)).collect(),
            table,
            protocols: std::array::from_fn(|_| Default::default()),
            enabled,
            peers: Peers::default(),
            began: clock::now(),
            accepted: AtomicU64::new(0),
            unknown_protocol: AtomicU64::new(0),
            disabled_wires: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            tls_mismatches: AtomicU64::new(0),
        }
    }

    /// Counts ended calls.
    #[inline]
    pub fn record(&self, shard: usize, wire: WireId, method: MethodId, ended: &Ended) {
        self.cells(shard, wire, method).record(ended);
    }

    /// Counts a call that waits in its handler, until [`unpark`](Self::unpark) by the same worker.
    pub fn park(&self, shard: usize, wire: WireId, method: MethodId) {
        self.cells(shard, wire, method).in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub fn unpark(&self, shard: usize, wire: WireId, method: MethodId) {
        self.cells(shard, wire, method).in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn cells(&self, shard: usize, wire: WireId, method: MethodId) -> &cells::Cells {
        self.shards[shard % self.shards.len()].at(wire, self.slot(method), self.slow.len())
    }

    /// Index of a method's counters; undeclared methods share the last one.
    #[inline]
    fn slot(&self, method: MethodId) -> usize {
        usize::from(method.0).min(self.slow.len() - 1)
    }

    /// Counts bytes of a connection.
    #[inline]
    pub fn received(&self, shard: usize, protocol: ConnectionProtocol, bytes: usize) {
        let traffic = self.shards[shard % self.shards.len()].traffic(protocol);
        traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    #[inline]
    pub fn sent(&self, shard: usize, protocol: ConnectionProtocol, bytes: usize) {
        let traffic = self.shards[shard % self.shards.len()].traffic(protocol);
        traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a connection that starts to speak this protocol.
    pub fn begin(&self, protocol: ConnectionProtocol) {
        self.protocols[protocol.index()].0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that ended or changed its protocol.
    pub fn end(&self, protocol: ConnectionProtocol) {
        self.protocols[protocol.index()].1.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub fn slow(&self, method: MethodId) {
        self.slow[self.slot(method)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn protocols(&self) -> Vec<ConnectionProtocolStats> {
        let protocols = ConnectionProtocol::all(self.enabled).into_iter().map(|protocol| {
            let (began, ended) = &self.protocols[protocol.index()];
            // Ends are read first, so that there are never more ends than starts.
            let ended = ended.load(Ordering::Relaxed);
            let connections = began.load(Ordering::Relaxed);
            let sum = |part: fn(&Shard, ConnectionProtocol) -> u64| {
                self.shards.iter().map(|shard| part(shard, protocol)).sum::<u64>()
            };
            ConnectionProtocolStats {
                protocol: protocol.name(),
                connections,
                open: connections.saturating_sub(ended),
                received: sum(|shard, at| shard.traffic(at).received.load(Ordering::Relaxed)),
                sent: sum(|shard, at| shard.traffic(at).sent.load(Ordering::Relaxed)),
            }
        });
        protocols.collect()
    }

    pub fn methods(&self) -> Vec<MethodStats> {
        (0..self.slow.len()).map(|at| self.method(at)).collect()
    }

    fn method(&self, at: usize) -> MethodStats {
        let wires: Vec<_> = WireId::all().filter_map(|wire| self.on_wire(wire, at)).collect();
        let mut ended = [0; 17];
        let mut times = Latency::default();
        for wire in &wires {
            times.merge(&wire.times);
            for (sum, count) in ended.iter_mut().zip(&wire.ended) {
                *sum += count;
            }
        }
        let sum = |part: fn(&WireStats) -> u64| wires.iter().map(part).sum::<u64>();
        MethodStats {
            name: self.table.full_name(MethodId(at as u16)),
            ended,
            total: wires.iter().map(|wire| wire.total).sum(),
            latency: times.by_powers(POWERS),
            slow_turns: self.slow[at].load(Ordering::Relaxed),
            times,
            in_flight: sum(|wire| wire.in_flight),
            received: sum(|wire| wire.received),
            sent: sum(|wire| wire.sent),
            wires,
        }
    }

    /// Returns the sum over all workers; `None` without calls on this wire.
    fn on_wire(&self, wire: WireId, at: usize) -> Option<WireStats> {
        let mut stats = WireStats {
            wire: wire.name(),
            ended: [0; 17],
            total: Duration::ZERO,
            times: Latency::default(),
            in_flight: 0,
            received: 0,
            sent: 0,
        };
        let mut is_any = false;
        for cells in self.shards.iter().filter_map(|shard| shard.find(wire, at)) {
            is_any = true;
            let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
            cells.latency.add_to(&mut stats.times);
            stats.total = stats.total.saturating_add(Duration::from_nanos(count(&cells.nanoseconds)));
            for (sum, cell) in stats.ended.iter_mut().zip(&cells.codes) {
                *sum += count(cell);
            }
            stats.in_flight += count(&cells.in_flight);
            stats.received += count(&cells.received);
            stats.sent += count(&cells.sent);
        }
        // Successes are computed as the remainder, so that the hot path increments one counter.
        stats.ended[0] = stats.times.count().saturating_sub(stats.ended.iter().sum());
        is_any.then_some(stats)
    }
}
