//! Counters of a server: cells per worker, summed when somebody looks.
//!
//! What a call costs here: a handful of relaxed additions in memory that only its worker writes, shared by up to eight
//! calls on the native wire, and no reading of the clock of its own.

mod cells;
mod exposition;
mod histogram;
mod labels;
mod peers;

pub(crate) use cells::Ended;
use cells::Shard;
pub use histogram::Latency;
pub(crate) use labels::{Carrier, Wire};
pub use peers::PeerStats;
pub(crate) use peers::{PeerCount, Peers, Tally};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use switchboard_wire::{MethodId, MethodTable};

/// Entries of [`MethodStats::latency`].
const POWERS: usize = 28;

/// What a server counted since it started.
pub(crate) struct Metrics {
    table: Arc<MethodTable>,
    shards: Vec<Shard>,
    slow: Vec<AtomicU64>,
    /// By [`Carrier`]: connections that were opened, and those that have ended.
    carriers: [(AtomicU64, AtomicU64); Carrier::ALL.len()],
    pub(crate) peers: Peers,
    pub(crate) began: Instant,
    pub(crate) accepted: AtomicU64,
    pub(crate) unknown_protocol: AtomicU64,
    pub(crate) protocol_errors: AtomicU64,
    /// Connections with TLS where none is taken, and without where it is required.
    pub(crate) tls_mismatches: AtomicU64,
}

/// The counters of one method.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MethodStats {
    /// Full name, `package.Service/Method`; `*` for all that no service declares.
    pub name: String,
    /// Calls that ended, by [`Code::number`](crate::Code::number).
    pub ended: [u64; 17],
    /// Time from arrival to end of all calls.
    pub total: Duration,
    /// Calls by latency: entry n counts those below 2^n microseconds that no earlier one counts. Finer steps and
    /// percentiles are in [`times`](Self::times).
    pub latency: Vec<u64>,
    /// Times that a handler held its connection's turn for more than 10 ms.
    pub slow_turns: u64,
    /// How long the calls took.
    pub times: Latency,
    /// Calls that wait in handlers now.
    pub in_flight: u64,
    /// Bytes of the request messages of calls that ended.
    pub received: u64,
    /// Bytes of the reply messages of calls that ended.
    pub sent: u64,
    /// The same by wire, for wires that it was called on.
    pub wires: Vec<WireStats>,
}

/// The counters of one method on one wire.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WireStats {
    /// As in [`Peer::wire`](crate::Peer::wire), or `websocket` for all calls inside WebSockets.
    pub wire: &'static str,
    /// Calls that ended, by [`Code::number`](crate::Code::number).
    pub ended: [u64; 17],
    /// Time from arrival to end of all calls.
    pub total: Duration,
    /// How long the calls took.
    pub times: Latency,
    /// Calls that wait in handlers now.
    pub in_flight: u64,
    /// Bytes of the request messages of calls that ended.
    pub received: u64,
    /// Bytes of the reply messages of calls that ended.
    pub sent: u64,
}

/// The counters of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStats {
    /// Time since the server started.
    pub uptime: Duration,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub connections: u64,
    /// Calls that wait in handlers now.
    pub calls_in_flight: u64,
    /// Connections closed because their first bytes are of no protocol that this server speaks.
    pub unknown_protocol: u64,
    /// Connections closed because their peer broke its protocol.
    pub protocol_errors: u64,
    /// What peers make the server hold.
    pub memory: crate::MemoryStats,
    /// What was counted of TLS.
    pub tls: TlsStats,
    /// By method, in the order in which services were added.
    pub methods: Vec<MethodStats>,
    /// By what connections speak.
    pub carriers: Vec<CarrierStats>,
    /// By caller: the busiest, and the rest together.
    pub peers: Vec<PeerStats>,
}

/// The counters of the connections that speak one protocol.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CarrierStats {
    /// `baidu_std`, `erpc`, `http1`, `http2`, `hulu`, `jsonrpc`, `kiss`, `native`, `rpcx`, `sofa`, `thrift` or
    /// `websocket`.
    pub protocol: &'static str,
    /// Connections that began to speak it.
    pub connections: u64,
    /// Those of them that are open now.
    pub open: u64,
    /// Bytes read, inside TLS.
    pub received: u64,
    /// Bytes written, inside TLS.
    pub sent: u64,
}

/// What a server counted of TLS, on all listeners.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TlsStats {
    /// Handshakes that succeeded: connections that were inside TLS.
    pub handshakes: u64,
    /// Handshakes that failed or took too long.
    pub failures: u64,
    /// Connections with TLS on a port that takes none, and without on a port that requires it.
    pub mismatches: u64,
    /// Times that changed certificates came into use.
    pub reloads: u64,
    /// Changes of the files that could not be used.
    pub reload_failures: u64,
    /// The certificates in use.
    pub certificates: Vec<CertificateStats>,
}

/// A certificate that a listener shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CertificateStats {
    /// The file that it was read from.
    pub file: String,
    /// Its distinguished name, `CN=a.example`.
    pub subject: String,
    /// Its alternative names with their kind: `dns:a.example`, `ip:10.0.0.1`.
    pub names: Vec<String>,
    /// Time until it expires; negative when it has.
    pub expires_in_seconds: i64,
}

impl Metrics {
    pub(crate) fn new(table: Arc<MethodTable>, shards: usize) -> Metrics {
        Metrics {
            shards: (0..shards.max(1)).map(|_| Shard::new()).collect(),
            slow: (0..table.slots()).map(|_| AtomicU64::new(0)).collect(),
            table,
            carriers: Default::default(),
            peers: Peers::default(),
            began: Instant::now(),
            accepted: AtomicU64::new(0),
            unknown_protocol: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            tls_mismatches: AtomicU64::new(0),
        }
    }

    /// Counts calls that ended.
    #[inline]
    pub(crate) fn record(&self, shard: usize, wire: Wire, method: MethodId, ended: &Ended) {
        self.cells(shard, wire, method).record(ended);
    }

    /// A call waits in its handler; [`unpark`](Self::unpark) at the same worker takes it off.
    pub(crate) fn park(&self, shard: usize, wire: Wire, method: MethodId) {
        self.cells(shard, wire, method).in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unpark(&self, shard: usize, wire: Wire, method: MethodId) {
        self.cells(shard, wire, method).in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn cells(&self, shard: usize, wire: Wire, method: MethodId) -> &cells::Cells {
        self.shards[shard % self.shards.len()].at(wire, self.slot(method), self.slow.len())
    }

    /// Where a method counts: learned ones together, in the last place.
    #[inline]
    fn slot(&self, method: MethodId) -> usize {
        usize::from(method.0).min(self.slow.len() - 1)
    }

    /// Counts bytes of a connection.
    #[inline]
    pub(crate) fn received(&self, shard: usize, carrier: Carrier, bytes: usize) {
        let traffic = self.shards[shard % self.shards.len()].traffic(carrier);
        traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn sent(&self, shard: usize, carrier: Carrier, bytes: usize) {
        let traffic = self.shards[shard % self.shards.len()].traffic(carrier);
        traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A connection began to speak this.
    pub(crate) fn begin(&self, carrier: Carrier) {
        self.carriers[carrier as usize].0.fetch_add(1, Ordering::Relaxed);
    }

    /// One that did has ended, or speaks something else from now on.
    pub(crate) fn end(&self, carrier: Carrier) {
        self.carriers[carrier as usize].1.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn slow(&self, method: MethodId) {
        self.slow[self.slot(method)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn carriers(&self) -> Vec<CarrierStats> {
        let carriers = Carrier::ALL.into_iter().map(|carrier| {
            let (began, ended) = &self.carriers[carrier as usize];
            // Ends first, so that no more seem to have ended than began.
            let ended = ended.load(Ordering::Relaxed);
            let connections = began.load(Ordering::Relaxed);
            let sum = |part: fn(&Shard, Carrier) -> u64| {
                self.shards.iter().map(|shard| part(shard, carrier)).sum::<u64>()
            };
            CarrierStats {
                protocol: carrier.name(),
                connections,
                open: connections.saturating_sub(ended),
                received: sum(|shard, at| shard.traffic(at).received.load(Ordering::Relaxed)),
                sent: sum(|shard, at| shard.traffic(at).sent.load(Ordering::Relaxed)),
            }
        });
        carriers.collect()
    }

    pub(crate) fn methods(&self) -> Vec<MethodStats> {
        (0..self.slow.len()).map(|at| self.method(at)).collect()
    }

    fn method(&self, at: usize) -> MethodStats {
        let wires: Vec<_> = Wire::ALL.into_iter().filter_map(|wire| self.on_wire(wire, at)).collect();
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

    /// The sum of all workers; none if nothing came on this wire.
    fn on_wire(&self, wire: Wire, at: usize) -> Option<WireStats> {
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
            stats.total += Duration::from_nanos(count(&cells.nanoseconds));
            for (sum, cell) in stats.ended.iter_mut().zip(&cells.codes) {
                *sum += count(cell);
            }
            stats.in_flight += count(&cells.in_flight);
            stats.received += count(&cells.received);
            stats.sent += count(&cells.sent);
        }
        // Success is what is not a failure, so that the hot path counts once.
        stats.ended[0] = stats.times.count().saturating_sub(stats.ended.iter().sum());
        is_any.then_some(stats)
    }
}
