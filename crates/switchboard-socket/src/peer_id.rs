//! Numbers of peers.

use std::fmt;

/// Number of a peer, unique within its socket until 2^32 peers have used the same slot.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PeerId(u64);

impl PeerId {
    /// Creates the number of the peer in a slot, which had other peers before.
    pub(crate) fn new(slot: u32, generation: u32) -> PeerId {
        PeerId(u64::from(generation) << 32 | u64::from(slot))
    }

    /// Returns the slot.
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.0 >> 32)
    }
}
