//! Snapshot of the counters of a socket.

use super::{Core, peer::Peer};
use crate::PeerId;
use bytes::Bytes;
use std::sync::atomic::Ordering;

/// Counters of a socket.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SocketStats {
    /// Messages that were dropped, those for peers that are gone and for unknown routing ids included.
    pub dropped: u64,
    /// Sends that wait for room or for a peer. Each has one message, which no queue counts yet.
    pub waiting_sends: usize,
    /// Peers, in no order.
    pub peers: Vec<PeerStats>,
}

/// Counters of a peer, since it was added.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PeerStats {
    /// Number of the peer.
    pub id: PeerId,
    /// Endpoint that is bound, or to which the socket connects.
    pub endpoint: String,
    /// Socket type of the peer, known after the handshake.
    pub socket_type: Option<&'static str>,
    /// Address of the peer of the last connection (`Peer-Address`); `None` for an inproc peer and before the first
    /// connection.
    pub address: Option<String>,
    /// User id that the verifier of this side returned (`User-Id`).
    pub user_id: Option<String>,
    /// Properties that the peer sent in the handshake, such as those of its option `metadata`. Not authenticated.
    pub properties: Vec<(String, Bytes)>,
    /// Routing id by which a ROUTER, SERVER or PEER addresses the peer; empty for other types.
    pub routing_id: Bytes,
    /// The handshake is complete and the connection has not ended.
    pub is_connected: bool,
    /// Number of connections: more than one after a reconnect.
    pub connections: u64,
    /// Messages that were accepted for the peer.
    pub sent: u64,
    /// Messages that wait to be written.
    pub unsent: usize,
    /// Messages that arrived from the peer.
    pub received: u64,
    /// Messages that arrived and wait to be taken.
    pub unread: usize,
    /// Messages for the peer that were dropped.
    pub dropped: u64,
}

/// Sums over the peers of a socket.
#[derive(Debug, Default)]
pub(crate) struct SocketTotals {
    pub(crate) dropped: u64,
    pub(crate) peers: u64,
    pub(crate) connected: u64,
    pub(crate) sent: u64,
    pub(crate) unsent: u64,
    pub(crate) received: u64,
    pub(crate) unread: u64,
}

impl Core {
    /// Returns sums over the peers, without a copy of each.
    pub(crate) fn totals(&self) -> SocketTotals {
        let sending = self.sending();
        let mut totals = SocketTotals { dropped: sending.dropped, ..SocketTotals::default() };
        for peer in sending.peers.iter() {
            let (unread, received) = peer.lane.counts();
            totals.peers += 1;
            totals.connected += u64::from(peer.is_connected);
            totals.sent = totals.sent.saturating_add(peer.sent);
            totals.unsent += peer.unsent() as u64;
            totals.received = totals.received.saturating_add(received);
            totals.unread += unread as u64;
        }
        totals
    }

    pub(crate) fn stats(&self) -> SocketStats {
        let sending = self.sending();
        let waiting_sends = self.waiting_sends.load(Ordering::Relaxed);
        let peers = sending.peers.iter().map(peer_stats).collect();
        SocketStats { dropped: sending.dropped, waiting_sends, peers }
    }

    /// Returns the counters of at most `max` peers whose endpoints contain `filter`, from a slot on in the order of the
    /// slots, and the slot that the next page begins with. Peers of other pages are not copied.
    pub(crate) fn stats_page(
        &self,
        first: usize,
        max: usize,
        filter: &str,
    ) -> (Vec<PeerStats>, Option<usize>) {
        let sending = self.sending();
        let mut peers = sending.peers.iter_from(first).filter(|(_, peer)| peer.endpoint.contains(filter));
        let page = peers.by_ref().take(max).map(|(_, peer)| peer_stats(peer)).collect();
        (page, peers.next().map(|(slot, _)| slot))
    }
}

fn peer_stats(peer: &Peer) -> PeerStats {
    let (unread, received) = peer.lane.counts();
    let metadata = peer.metadata.as_deref();
    let properties = metadata.map(|metadata| metadata.properties.iter());
    let properties = properties.into_iter().flatten();
    PeerStats {
        id: peer.id,
        endpoint: peer.endpoint.to_string(),
        socket_type: peer.kind.map(switchboard_wire::zmtp::SocketType::name),
        address: metadata.map(|metadata| metadata.address.to_string()),
        user_id: metadata.map(|metadata| metadata.user_id.to_string()).filter(|user_id| !user_id.is_empty()),
        properties: properties.map(|(name, value)| (name.to_owned(), value.clone())).collect(),
        routing_id: peer.lane.route.clone(),
        is_connected: peer.is_connected,
        connections: peer.connections,
        sent: peer.sent,
        unsent: peer.unsent(),
        received,
        unread,
        dropped: peer.dropped,
    }
}
