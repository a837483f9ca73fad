//! Identities of the peers of a ROUTER.

use bytes::Bytes;
use std::collections::BTreeMap;

/// Peers of a ROUTER that are called `P`, by identity.
#[derive(Debug)]
pub struct Routes<P> {
    peers: BTreeMap<Bytes, P>,
    /// Number of the next generated identity.
    next: u32,
    has_handover: bool,
}

/// Result of adding a peer.
#[derive(Clone, Debug, Eq, PartialEq)]
// closed: every ROUTER handles each outcome
pub enum Added<P> {
    /// The peer has this identity.
    Added(Bytes),
    /// Another live peer has the identity: the new one is neither read nor written.
    Ignored,
    /// The peer has this identity, and the previous owner must be closed.
    Replaced(Bytes, P),
}

impl<P: Copy + Eq> Routes<P> {
    /// Creates routes whose generated identities count from `first`. A random start prevents a peer from guessing the
    /// identity of another.
    pub fn new(first: u32) -> Routes<P> {
        Routes { peers: BTreeMap::new(), next: first, has_handover: false }
    }

    /// Lets a new peer take the identity of a live one. Identities are not authenticated, so this lets any peer replace
    /// any other one.
    #[must_use]
    pub fn with_handover(mut self) -> Routes<P> {
        self.has_handover = true;
        self
    }

    /// Adds a peer with the identity of its handshake; without one, an identity of a zero byte and a number is
    /// generated.
    pub fn add(&mut self, identity: &Bytes, peer: P) -> Added<P> {
        let identity = if identity.is_empty() { self.generate() } else { identity.clone() };
        match self.peers.get_mut(&identity) {
            None => {
                self.peers.insert(identity.clone(), peer);
                Added::Added(identity)
            }
            Some(owner) if self.has_handover => Added::Replaced(identity, std::mem::replace(owner, peer)),
            Some(_) => Added::Ignored,
        }
    }

    /// Removes a peer; returns false if the identity belongs to another one, or to none.
    pub fn remove(&mut self, identity: &[u8], peer: P) -> bool {
        let is_owner = self.find(identity) == Some(peer);
        if is_owner {
            self.peers.remove(identity);
        }
        is_owner
    }

    /// Returns the peer with this identity. A ROUTER drops a message to an unknown one, or reports it if it is
    /// mandatory.
    pub fn find(&self, identity: &[u8]) -> Option<P> {
        self.peers.get(identity).copied()
    }

    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns true if there is no peer.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    fn generate(&mut self) -> Bytes {
        loop {
            let [a, b, c, d] = self.next.to_be_bytes();
            self.next = self.next.wrapping_add(1);
            let identity = [0, a, b, c, d];
            if !self.peers.contains_key(&identity[..]) {
                return Bytes::copy_from_slice(&identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_identities_are_unique() {
        let mut routes = Routes::new(u32::MAX);
        let none = Bytes::new();
        assert_eq!(routes.add(&none, 1), Added::Added(Bytes::from_static(&[0, 255, 255, 255, 255])));
        assert_eq!(routes.add(&none, 2), Added::Added(Bytes::from_static(&[0; 5])));
        routes.next = u32::MAX;
        assert_eq!(routes.add(&none, 3), Added::Added(Bytes::from_static(&[0, 0, 0, 0, 1])));
        assert_eq!((routes.find(&[0; 5]), routes.len()), (Some(2), 3));
    }

    #[test]
    fn an_identity_belongs_to_one_peer() {
        let id = Bytes::from_static(b"id");
        let mut routes = Routes::new(0);
        assert_eq!(routes.add(&id, 1), Added::Added(id.clone()));
        assert_eq!(routes.add(&id, 2), Added::Ignored);
        assert!(!routes.remove(b"id", 2), "the newcomer never had it");
        assert_eq!(routes.find(b"id"), Some(1));
        assert!(routes.remove(b"id", 1) && routes.is_empty());

        let mut routes = Routes::new(0).with_handover();
        routes.add(&id, 1);
        assert_eq!(routes.add(&id, 2), Added::Replaced(id, 1));
        assert!(!routes.remove(b"id", 1), "the end of the old connection keeps the new one");
        assert_eq!(routes.find(b"id"), Some(2));
    }
}
