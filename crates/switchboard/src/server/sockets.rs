//! What is counted of a connection, for Channelz: nothing, unless the server shows it.
//!
//! Counters belong to one connection, which one worker runs: they are added to without a lock and without another
//! core's cache line.

use std::{
    net::SocketAddr,
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// Numbers of servers, listeners and connections: one sequence, since Channelz knows all by number.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The clocks at one moment, from which later moments are counted.
static EPOCH: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

/// A number that nothing else in this process has.
pub(crate) fn next_id() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One connection.
#[derive(Debug)]
#[cfg_attr(not(feature = "channelz"), expect(dead_code, reason = "only Channelz asks"))]
pub(crate) struct Socket {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// The cipher suite inside TLS, as IANA calls it.
    pub(crate) tls: OnceLock<String>,
    started: AtomicU64,
    /// With an end that was sent.
    ended: AtomicU64,
    /// Without.
    lost: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    pings: AtomicU64,
    last_started: Moment,
    last_sent: Moment,
    last_received: Moment,
}

impl Socket {
    pub(crate) fn new(local: Option<SocketAddr>, remote: Option<SocketAddr>) -> Socket {
        LazyLock::force(&EPOCH);
        Socket {
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

    /// Calls began.
    pub(crate) fn started(&self, count: u64, now: Instant) {
        self.started.fetch_add(count, Ordering::Relaxed);
        self.last_started.set(now);
    }

    /// The ends of calls were sent, whatever their status.
    pub(crate) fn ended(&self, count: u64) {
        self.ended.fetch_add(count, Ordering::Relaxed);
    }

    /// A call is over without an end: its caller has gone.
    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages were sent.
    pub(crate) fn sent(&self, count: u64, now: Instant) {
        self.sent.fetch_add(count, Ordering::Relaxed);
        self.last_sent.set(now);
    }

    /// Messages came.
    pub(crate) fn received(&self, count: u64, now: Instant) {
        self.received.fetch_add(count, Ordering::Relaxed);
        self.last_received.set(now);
    }

    /// The peer was asked for a sign of life.
    pub(crate) fn pinged(&self) {
        self.pings.fetch_add(1, Ordering::Relaxed);
    }

    /// When the last call began, for the server's own record.
    pub(crate) fn last_started(&self) -> &Moment {
        &self.last_started
    }
}

/// The last time that something happened; never, at first.
#[derive(Debug, Default)]
pub(crate) struct Moment(AtomicU64);

impl Moment {
    /// Nanoseconds suffice for five centuries; zero is never.
    pub(crate) fn set(&self, now: Instant) {
        let since = now.saturating_duration_since(EPOCH.0).as_nanos() as u64;
        self.0.store(since.max(1), Ordering::Relaxed);
    }

    /// Takes the later of both.
    pub(crate) fn advance(&self, other: &Moment) {
        self.0.fetch_max(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    #[cfg_attr(not(any(feature = "channelz", feature = "http")), expect(dead_code, reason = "nobody asks"))]
    pub(crate) fn time(&self) -> Option<SystemTime> {
        let since = self.0.load(Ordering::Relaxed);
        (since > 0).then(|| EPOCH.1 + Duration::from_nanos(since))
    }
}

/// The counters of a connection at one moment.
#[cfg(any(feature = "channelz", feature = "http"))]
#[cfg_attr(not(feature = "channelz"), expect(dead_code, reason = "the admin page shows some of them"))]
pub(crate) struct Counts {
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) lost: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) pings: u64,
    pub(crate) last_started: Option<SystemTime>,
    pub(crate) last_sent: Option<SystemTime>,
    pub(crate) last_received: Option<SystemTime>,
}

#[cfg(any(feature = "channelz", feature = "http"))]
impl Socket {
    pub(crate) fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            // Ends first, so that no more calls seem to have ended than began.
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
