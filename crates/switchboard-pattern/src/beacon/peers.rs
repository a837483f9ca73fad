//! Peers that are present, without a clock and a socket.

use super::BeaconFrame;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};
use switchboard_core::clock;

/// A node that was discovered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BeaconPeer {
    /// UUID.
    pub id: [u8; 16],
    /// Address at which it accepts connections.
    pub address: SocketAddr,
}

impl BeaconPeer {
    /// Returns the endpoint to connect to.
    pub fn endpoint(&self) -> String {
        format!("tcp://{}", self.address)
    }
}

/// Reason for which a peer is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LeaveReason {
    /// The peer announced its end.
    Announced,
    /// No beacon has arrived for `expire_after`.
    Silent,
}

/// Outcome of a beacon.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Heard {
    Full,
    Joined(BeaconPeer),
    Known,
    Left(BeaconPeer),
    Own,
}

#[derive(Debug)]
pub(super) struct Peers {
    own: [u8; 16],
    peers: BTreeMap<[u8; 16], (BeaconPeer, Instant)>,
    max: usize,
    expire_after: Duration,
}

impl Peers {
    pub(super) fn new(own: [u8; 16], max: usize, expire_after: Duration) -> Peers {
        Peers { own, peers: BTreeMap::new(), max, expire_after }
    }

    pub(super) fn hear(
        &mut self,
        BeaconFrame { id, port }: BeaconFrame,
        from: IpAddr,
        now: Instant,
    ) -> Heard {
        if id == self.own {
            return Heard::Own;
        }
        if port == 0 {
            return self.peers.remove(&id).map_or(Heard::Known, |(peer, _)| Heard::Left(peer));
        }
        let peer = BeaconPeer { id, address: SocketAddr::new(from, port) };
        let expires = clock::after(now, self.expire_after);
        if !self.peers.contains_key(&id) && self.peers.len() >= self.max {
            return Heard::Full;
        }
        match self.peers.insert(id, (peer, expires)) {
            Some((known, _)) if known == peer => Heard::Known,
            _ => Heard::Joined(peer),
        }
    }

    /// Removes the peers that have been silent for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<BeaconPeer> {
        let silent = self.peers.extract_if(.., |_, (_, expires)| *expires <= now);
        silent.map(|(_, (peer, _))| peer).collect()
    }

    pub(super) fn present(&self) -> Vec<BeaconPeer> {
        self.peers.values().map(|(peer, _)| *peer).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn peers_join_move_leave_and_expire() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let from = IpAddr::from(Ipv4Addr::LOCALHOST);
        let beacon = |id, port| BeaconFrame { id: [id; 16], port };
        let peer = |id, port| BeaconPeer { id: [id; 16], address: SocketAddr::new(from, port) };
        let mut peers = Peers::new([0; 16], 2, Duration::from_secs(30));
        assert_eq!(peers.hear(beacon(0, 1), from, start), Heard::Own);
        assert_eq!(peers.hear(beacon(1, 1), from, start), Heard::Joined(peer(1, 1)));
        assert_eq!(peers.hear(beacon(1, 1), from, after(10)), Heard::Known);
        assert_eq!(peers.hear(beacon(2, 1), from, after(20)), Heard::Joined(peer(2, 1)));
        assert_eq!(peers.hear(beacon(3, 1), from, start), Heard::Full);
        assert_eq!(peers.hear(beacon(2, 9), from, after(20)), Heard::Joined(peer(2, 9)));
        assert_eq!(peers.hear(beacon(3, 0), from, start), Heard::Known, "it was not known");
        assert_eq!(peers.expire(after(39)), []);
        assert_eq!(peers.expire(after(40)), [peer(1, 1)]);
        assert_eq!(peers.hear(beacon(2, 0), from, start), Heard::Left(peer(2, 9)));
        assert_eq!((peers.len(), peers.present()), (0, vec![]));
    }
}
