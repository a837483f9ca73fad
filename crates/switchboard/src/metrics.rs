//! Counters of a server: cells per worker, summed when somebody looks.

use crate::Code;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_wire::{MethodId, MethodTable};

/// Latency is counted in powers of two of a microsecond: below 1, below 2, … the last one open.
const BUCKETS: usize = 28;

/// What a server counted since it started.
pub(crate) struct Metrics {
    table: Arc<MethodTable>,
    shards: Vec<Shard>,
    slow: Vec<AtomicU64>,
    pub(crate) accepted: AtomicU64,
    pub(crate) unknown_protocol: AtomicU64,
    pub(crate) protocol_errors: AtomicU64,
    /// Connections with TLS where none is taken, and without where it is required.
    pub(crate) tls_mismatches: AtomicU64,
}

/// The cells that one worker writes; a line of its own so that workers share no cache line.
#[repr(align(128))]
struct Shard {
    methods: Vec<Cells>,
}

struct Cells {
    latency: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
    codes: [AtomicU64; 17],
}

/// The counters of one method.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MethodStats {
    /// Full name, `package.Service/Method`.
    pub name: String,
    /// Calls that ended, by [`Code::number`].
    pub ended: [u64; 17],
    /// Time from arrival to end of all calls.
    pub total: Duration,
    /// Calls by latency: entry n counts those below 2^n microseconds that no earlier one counts.
    pub latency: Vec<u64>,
    /// Times that a handler held its connection's turn for more than 10 ms.
    pub slow_turns: u64,
}

/// The counters of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStats {
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
    /// What was counted of TLS.
    pub tls: TlsStats,
    /// By method, in the order in which services were added.
    pub methods: Vec<MethodStats>,
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
        let cells = || Cells {
            latency: std::array::from_fn(|_| AtomicU64::new(0)),
            nanoseconds: AtomicU64::new(0),
            codes: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let methods = table.len();
        Metrics {
            shards: (0..shards.max(1))
                .map(|_| Shard { methods: (0..methods).map(|_| cells()).collect() })
                .collect(),
            slow: (0..methods).map(|_| AtomicU64::new(0)).collect(),
            table,
            accepted: AtomicU64::new(0),
            unknown_protocol: AtomicU64::new(0),
            protocol_errors: AtomicU64::new(0),
            tls_mismatches: AtomicU64::new(0),
        }
    }

    /// Counts a call that ended.
    pub(crate) fn record(&self, shard: usize, method: MethodId, code: Code, took: Duration) {
        self.record_many(shard, method, 1, took);
        if code != Code::Ok {
            let cells = &self.shards[shard % self.shards.len()].methods[usize::from(method.0)];
            cells.codes[code as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts calls that succeeded and took so long each.
    #[inline]
    pub(crate) fn record_many(&self, shard: usize, method: MethodId, calls: u64, took: Duration) {
        let cells = &self.shards[shard % self.shards.len()].methods[usize::from(method.0)];
        let nanoseconds = took.as_nanos() as u64;
        let bucket = (64 - (nanoseconds >> 10).leading_zeros() as usize).min(BUCKETS - 1);
        cells.latency[bucket].fetch_add(calls, Ordering::Relaxed);
        cells.nanoseconds.fetch_add(nanoseconds * calls, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn slow(&self, method: MethodId) {
        self.slow[usize::from(method.0)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn methods(&self) -> Vec<MethodStats> {
        (0..self.table.len())
            .map(|at| {
                let mut latency = vec![0; BUCKETS];
                let (mut ended, mut nanoseconds) = ([0; 17], 0);
                for shard in &self.shards {
                    let cells = &shard.methods[at];
                    nanoseconds += cells.nanoseconds.load(Ordering::Relaxed);
                    for (sum, cell) in latency.iter_mut().zip(&cells.latency) {
                        *sum += cell.load(Ordering::Relaxed);
                    }
                    for (sum, cell) in ended.iter_mut().zip(&cells.codes) {
                        *sum += cell.load(Ordering::Relaxed);
                    }
                }
                // Success is what is not a failure, so that the hot path counts once.
                ended[0] = latency.iter().sum::<u64>().saturating_sub(ended.iter().sum());
                MethodStats {
                    name: self.table.full_name(MethodId(at as u16)),
                    ended,
                    total: Duration::from_nanos(nanoseconds),
                    latency,
                    slow_turns: self.slow[at].load(Ordering::Relaxed),
                }
            })
            .collect()
    }
}
