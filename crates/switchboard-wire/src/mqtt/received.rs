//! Identifiers of messages of QoS 2 from a client.

use std::num::NonZeroU16;

/// Identifiers of messages of QoS 2 that a client has published and not released. A driver keeps them with the session:
/// a PUBLISH that the client repeats after a reconnect is not delivered again.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReceivedIds {
    /// Sorted.
    ids: Vec<NonZeroU16>,
}

impl ReceivedIds {
    /// Adds the identifier of a PUBLISH; returns false if the message was received before.
    pub fn insert(&mut self, id: NonZeroU16) -> bool {
        match self.ids.binary_search(&id) {
            Ok(_) => false,
            Err(at) => {
                self.ids.insert(at, id);
                true
            }
        }
    }

    /// Removes the identifier of a PUBREL; returns false if it is not known.
    pub fn remove(&mut self, id: NonZeroU16) -> bool {
        match self.ids.binary_search(&id) {
            Ok(at) => {
                self.ids.remove(at);
                if self.ids.is_empty() {
                    self.ids = Vec::new();
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Returns the number of identifiers: at most 65,535.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true without identifiers.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}
