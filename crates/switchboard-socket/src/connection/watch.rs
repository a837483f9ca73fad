//! Heartbeats: PINGs of this side, and the time without bytes of the peer.

use crate::{
    PeerId,
    core::{Command, Core},
    options::HeartbeatOptions,
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use switchboard_core::clock;
use tokio::sync::Notify;

/// Activity of a peer whose time without bytes is limited, by heartbeats of this side or by a PING of the peer.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Time of the last bytes, see [`clock::now_ns`].
    last_ns: AtomicU64,
    /// Time without bytes that the peer requested in its last PING, in nanoseconds; 0 if none.
    ttl_ns: AtomicU64,
    changed: Notify,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        Activity {
            last_ns: AtomicU64::new(clock::now_ns()),
            ttl_ns: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }

    /// Records that bytes arrived.
    pub(crate) fn record(&self) {
        self.last_ns.store(clock::now_ns(), Ordering::Relaxed);
    }

    /// Records the time to live of a PING.
    pub(crate) fn set_ttl(&self, ttl: Option<Duration>) {
        let ttl_ns = ttl.map_or(0, |ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
        if self.ttl_ns.swap(ttl_ns, Ordering::Relaxed) != ttl_ns {
            self.last_ns.store(clock::now_ns(), Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Sends PINGs, and returns the reason once the peer was silent for too long. Without heartbeats it never returns.
    pub(crate) async fn expired(&self, core: &Core, id: PeerId) -> String {
        let HeartbeatOptions { interval, timeout, .. } = core.options.heartbeats;
        let own = interval.map(|interval| timeout.unwrap_or(interval));
        loop {
            let ttl = Some(self.ttl_ns.load(Ordering::Relaxed)).filter(|ttl| *ttl > 0);
            let ttl = ttl.map(Duration::from_nanos);
            let limit = match (own, ttl) {
                (Some(own), Some(ttl)) => Some(own.min(ttl)),
                (own, ttl) => own.or(ttl),
            };
            let Some(limit) = limit else {
                self.changed.notified().await;
                continue;
            };
            let pause = interval.map_or(limit, |interval| interval.min(limit));
            if tokio::time::timeout(pause, self.changed.notified()).await.is_ok() {
                continue;
            }
            let silent_ns = clock::now_ns().saturating_sub(self.last_ns.load(Ordering::Relaxed));
            let silent = Duration::from_nanos(silent_ns);
            // The first PING is answered within one more pause.
            if silent >= limit.saturating_add(pause) {
                let option = if own == Some(limit) { "heartbeats.timeout" } else { "the ttl of its PING" };
                return format!("no bytes of the peer for {silent:?}; the limit is {limit:?} ({option})");
            }
            if interval.is_some() {
                core.command_to(id, Command::Ping);
            }
        }
    }
}
