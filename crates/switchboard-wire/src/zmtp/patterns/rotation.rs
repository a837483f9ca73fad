//! Rotation among peers: the order in which PUSH and DEALER send, and PULL, DEALER and ROUTER receive.

use std::collections::BTreeMap;

/// Peers in rotation. A peer without room for a message, or without a message, is suspended and costs nothing until it
/// is resumed.
#[derive(Clone, Debug)]
pub struct Rotation<P> {
    /// The first `active` peers are in rotation.
    peers: Vec<P>,
    active: usize,
    /// Position of the next peer, below `active` if there is one.
    next: usize,
    /// Positions of all peers.
    positions: BTreeMap<P, usize>,
}

impl<P: Copy + Ord> Rotation<P> {
    /// Creates a rotation without peers.
    pub fn new() -> Rotation<P> {
        Rotation { peers: Vec::new(), active: 0, next: 0, positions: BTreeMap::new() }
    }

    /// Adds a peer that is in rotation; returns false if it exists.
    pub fn add(&mut self, peer: P) -> bool {
        if self.positions.contains_key(&peer) {
            return false;
        }
        self.positions.insert(peer, self.peers.len());
        self.peers.push(peer);
        self.resume(peer);
        true
    }

    /// Removes a peer; returns false if there is none.
    pub fn remove(&mut self, peer: P) -> bool {
        self.suspend(peer);
        let Some(at) = self.positions.get(&peer).copied() else { return false };
        self.swap(at, self.peers.len() - 1);
        self.peers.pop();
        self.positions.remove(&peer);
        true
    }

    /// Takes a peer out of the rotation. Has no effect on a suspended one.
    pub fn suspend(&mut self, peer: P) {
        let Some(at) = self.positions.get(&peer).copied().filter(|at| *at < self.active) else { return };
        self.active -= 1;
        self.swap(at, self.active);
        if self.next >= self.active {
            self.next = 0;
        }
    }

    /// Puts a suspended peer back into the rotation. Has no effect on others.
    pub fn resume(&mut self, peer: P) {
        let Some(at) = self.positions.get(&peer).copied().filter(|at| *at >= self.active) else { return };
        self.swap(at, self.active);
        self.active += 1;
    }

    /// Returns the next peer in rotation; `None` if all are suspended. The message is sent to it, or received from it,
    /// as a whole.
    pub fn select(&mut self) -> Option<P> {
        let peer = self.peers[..self.active].get(self.next).copied()?;
        self.next = if self.next + 1 < self.active { self.next + 1 } else { 0 };
        Some(peer)
    }

    /// Returns the number of peers, suspended ones included.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns true if there is no peer.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.peers.swap(one, other);
        self.positions.insert(self.peers[one], one);
        self.positions.insert(self.peers[other], other);
    }
}

impl<P: Copy + Ord> Default for Rotation<P> {
    fn default() -> Rotation<P> {
        Rotation::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the next peers, sorted.
    fn turn(rotation: &mut Rotation<u32>, count: usize) -> Vec<u32> {
        let mut peers: Vec<_> = (0..count).filter_map(|_| rotation.select()).collect();
        peers.sort_unstable();
        peers
    }

    #[test]
    fn each_peer_has_its_turn() {
        let mut rotation = Rotation::new();
        assert!(rotation.select().is_none() && rotation.is_empty());
        assert!((0..5).all(|peer| rotation.add(peer)) && !rotation.add(3));
        assert_eq!(turn(&mut rotation, 10), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        rotation.select();
        rotation.suspend(2);
        rotation.suspend(2);
        assert_eq!(turn(&mut rotation, 8), [0, 0, 1, 1, 3, 3, 4, 4]);
        assert!(rotation.remove(0) && !rotation.remove(0) && rotation.remove(2));
        assert_eq!((turn(&mut rotation, 3), rotation.len()), (vec![1, 3, 4], 3));
        for peer in [1, 3, 4] {
            rotation.suspend(peer);
        }
        assert_eq!((rotation.select(), rotation.len()), (None, 3));
        rotation.resume(3);
        rotation.resume(7);
        assert_eq!(turn(&mut rotation, 2), [3, 3]);
    }
}
