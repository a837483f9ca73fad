//! Counters by caller for a limited number of callers: the busiest keep their entries, the others share one.
//!
//! A caller is an IP address, or the kind of transport if there is no address. A full table evicts the caller
//! without a connection that made the fewest calls, and adds its counts to the shared entry. So clients with
//! many addresses evict each other, and not the callers with many calls.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Number of callers with their own counters.
const PEERS_MAX: usize = 256;

/// The callers of a server.
#[derive(Default)]
pub struct Peers {
    known: Mutex<HashMap<Key, Arc<PeerCount>>>,
    others: Arc<PeerCount>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Key {
    Ip(IpAddr),
    Local(&'static str),
}

/// Counters of one caller.
#[derive(Debug, Default)]
pub struct PeerCount {
    open: AtomicU64,
    connections: AtomicU64,
    calls: AtomicU64,
    failed: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

/// Counts that a connection collects before it adds them to its [`PeerCount`], so that connections from one
/// address do not contend for a cache line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub calls: u64,
    pub failed: u64,
    pub received: u64,
    pub sent: u64,
}

/// The counters of one caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerStats {
    /// IP address; `unix` or `memory` for callers without one; `others` for all callers without their own
    /// counters.
    pub address: String,
    /// Currently open connections.
    pub open: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Ended calls. Connections report after 1024 calls, or after a second of silence.
    pub calls: u64,
    /// Failed calls.
    pub failed: u64,
    /// Bytes of request messages.
    pub received: u64,
    /// Bytes of reply messages.
    pub sent: u64,
}

impl Peers {
    /// Counts a new connection; [`PeerCount::leave`] counts its end.
    pub fn enter(&self, ip: Option<IpAddr>, address: &str) -> Arc<PeerCount> {
        let key = match ip {
            Some(ip) => Key::Ip(ip.to_canonical()),
            None if address.starts_with("unix") => Key::Local("unix"),
            None => Key::Local("memory"),
        };
        let mut known = self.lock();
        let count = match known.get(&key).cloned() {
            Some(count) => count,
            None if known.len() < PEERS_MAX || self.evict(&mut known) => {
                let count = Arc::<PeerCount>::default();
                known.insert(key, count.clone());
                count
            }
            None => self.others.clone(),
        };
        // Under the lock, so that a caller that is being added is not evicted.
        count.open.fetch_add(1, Ordering::Relaxed);
        count.connections.fetch_add(1, Ordering::Relaxed);
        count
    }

    /// Evicts a caller; returns false if every caller has a connection.
    fn evict(&self, known: &mut HashMap<Key, Arc<PeerCount>>) -> bool {
        let idle = known.iter().filter(|(_, count)| count.open.load(Ordering::Relaxed) == 0);
        let least = idle.min_by_key(|(_, count)| count.calls.load(Ordering::Relaxed)).map(|(key, _)| *key);
        let Some(given_up) = least.and_then(|key| known.remove(&key)) else { return false };
        let stats = given_up.stats(String::new());
        self.others.connections.fetch_add(stats.connections, Ordering::Relaxed);
        self.others.add(&Tally {
            calls: stats.calls,
            failed: stats.failed,
            received: stats.received,
            sent: stats.sent,
        });
        true
    }

    /// Returns all callers, the busiest first, and the shared entry last if it is not empty.
    pub fn stats(&self) -> Vec<PeerStats> {
        let name = |key: &Key| match key {
            Key::Ip(ip) => ip.to_string(),
            Key::Local(name) => (*name).to_owned(),
        };
        let mut stats: Vec<_> = self.lock().iter().map(|(key, count)| count.stats(name(key))).collect();
        stats.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.address.cmp(&b.address)));
        let others = self.others.stats("others".to_owned());
        stats.extend((others.connections > 0).then_some(others));
        stats
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<PeerCount>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerCount {
    pub fn add(&self, tally: &Tally) {
        for (cell, count) in [
            (&self.calls, tally.calls),
            (&self.failed, tally.failed),
            (&self.received, tally.received),
            (&self.sent, tally.sent),
        ] {
            if count > 0 {
                cell.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Counts a connection once more while it goes from one owner to another; each of them [leaves](Self::leave).
    pub fn stay(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection.
    pub fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn stats(&self, address: String) -> PeerStats {
        let count = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        PeerStats {
            address,
            open: count(&self.open),
            connections: count(&self.connections),
            calls: count(&self.calls),
            failed: count(&self.failed),
            received: count(&self.received),
            sent: count(&self.sent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::from(0x0A00_0000 + number)))
    }

    #[test]
    fn busy_callers_stay_and_strangers_push_each_other_out() {
        let peers = Peers::default();
        let busy = peers.enter(ip(0), "tcp://");
        busy.add(&Tally { calls: 1000, failed: 1, received: 10, sent: 20 });
        busy.leave();
        for stranger in 1..2000 {
            let count = peers.enter(ip(stranger), "tcp://");
            count.add(&Tally { calls: 1, ..Tally::default() });
            count.leave();
        }
        let stats = peers.stats();
        assert_eq!(stats.len(), PEERS_MAX + 1);
        assert_eq!((stats[0].address.as_str(), stats[0].calls), ("10.0.0.0", 1000));
        assert_eq!(stats[PEERS_MAX].address, "others");
        // Evicted counts are added to the shared entry.
        assert_eq!(stats.iter().map(|peer| peer.calls).sum::<u64>(), 2999);
        assert_eq!(stats.iter().map(|peer| peer.connections).sum::<u64>(), 2000);
    }

    #[test]
    fn open_connections_are_never_given_up() {
        let peers = Peers::default();
        let held: Vec<_> = (0..PEERS_MAX as u32).map(|at| peers.enter(ip(at), "tcp://")).collect();
        let late = peers.enter(ip(9999), "tcp://");
        late.add(&Tally { calls: 5, ..Tally::default() });
        let stats = peers.stats();
        assert_eq!(stats.last().map(|peer| (peer.address.as_str(), peer.calls)), Some(("others", 5)));
        drop(held);
        // An IPv4 caller has the same entry on an IPv6 socket.
        let mapped = Some(IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()));
        peers.enter(mapped, "tcp://");
        let stats = peers.stats();
        assert_eq!(stats.iter().find(|peer| peer.address == "10.0.0.1").map(|peer| peer.open), Some(2));
    }
}
