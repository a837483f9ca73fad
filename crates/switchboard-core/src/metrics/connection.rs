//! Counters of a connection for Channelz, present only if the server serves it.
//!
//! The counters belong to one connection, which one worker runs: increments need no lock and touch no cache
//! line of another core.

use std::{
    net::SocketAddr,
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// Ids of servers, listeners and connections: one sequence, since Channelz refers to all of them by id.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Both clocks at one moment, to convert between them.
#[expect(clippy::disallowed_methods, reason = "tests share it, each with a clock of its own")]
static EPOCH: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

/// Returns an id that is unique in this process.
pub fn next_id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Counters of one connection.
#[derive(Debug)]
pub struct ConnectionCounters {
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// Cipher suite of TLS, as named by IANA.
    pub tls: OnceLock<String>,
    started: AtomicU64,
    /// Calls whose end was sent.
    ended: AtomicU64,
    /// Calls that ended without sending an end.
    lost: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    pings: AtomicU64,
    last_started: Moment,
    last_sent: Moment,
    last_received: Moment,
}

impl ConnectionCounters {
    pub fn new(local: Option<SocketAddr>, remote: Option<SocketAddr>) -> ConnectionCounters {
        LazyLock::force(&EPOCH);
        ConnectionCounters {
            local,
            remote,
            tls: OnceLock::new(),
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            pings: AtomicU64::new(0),
            last_started: Moment::default(),
            last_sent: Moment::default(),
            last_received: Moment::default(),
        }
    }

    /// ConnectionCounts started calls.
    pub fn started(&self, count: u64, now: Instant) {
        self.started.fetch_add(count, Ordering::Relaxed);
        self.last_started.set(now);
    }

    /// ConnectionCounts calls whose end was sent, with any status.
    pub fn ended(&self, count: u64) {
        self.ended.fetch_add(count, Ordering::Relaxed);
    }

    /// ConnectionCounts a call that ended without sending an end, because its caller is gone.
    pub fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// ConnectionCounts sent messages.
    pub fn sent(&self, count: u64, now: Instant) {
        self.sent.fetch_add(count, Ordering::Relaxed);
        self.last_sent.set(now);
    }

    /// ConnectionCounts received messages.
    pub fn received(&self, count: u64, now: Instant) {
        self.received.fetch_add(count, Ordering::Relaxed);
        self.last_received.set(now);
    }

    /// ConnectionCounts a keepalive ping.
    pub fn pinged(&self) {
        self.pings.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the start of the last call, for the server's own record.
    pub fn last_started(&self) -> &Moment {
        &self.last_started
    }
}

/// The time of the last event of a kind; initially never.
#[derive(Debug, Default)]
pub struct Moment(AtomicU64);

impl Moment {
    /// Nanoseconds suffice for five centuries; zero means never.
    pub(crate) fn set(&self, now: Instant) {
        let since = now.saturating_duration_since(EPOCH.0).as_nanos() as u64;
        self.0.store(since.max(1), Ordering::Relaxed);
    }

    /// Sets the later of both times.
    pub fn advance(&self, other: &Moment) {
        self.0.fetch_max(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the time of the last call; `None` before the first.
    pub fn time(&self) -> Option<SystemTime> {
        let since = self.0.load(Ordering::Relaxed);
        (since > 0).then(|| EPOCH.1.checked_add(Duration::from_nanos(since)).unwrap_or(EPOCH.1))
    }
}

/// Snapshot of the counters of a connection.
#[cfg(any(feature = "channelz", feature = "http"))]
pub struct ConnectionCounts {
    pub started: u64,
    pub ended: u64,
    pub lost: u64,
    pub sent: u64,
    pub received: u64,
    pub pings: u64,
    pub last_started: Option<SystemTime>,
    pub last_sent: Option<SystemTime>,
    pub last_received: Option<SystemTime>,
}

#[cfg(any(feature = "channelz", feature = "http"))]
impl ConnectionCounters {
    pub fn counts(&self) -> ConnectionCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConnectionCounts {
            // Ends are read first, so that there are never more ends than starts.
            ended: count(&self.ended),
            lost: count(&self.lost),
            started: count(&self.started),
            sent: count(&self.sent),
            received: count(&self.received),
            pings: count(&self.pings),
            last_started: self.last_started.time(),
            last_sent: self.last_sent.time(),
            last_received: self.last_received.time(),
        }
    }
}
