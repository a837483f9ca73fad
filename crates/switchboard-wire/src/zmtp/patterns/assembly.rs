//! Messages from frames.

use bytes::Bytes;

/// Collects the frames of one connection until a message is complete. It is dropped with its connection, and an
/// incomplete message with it.
#[derive(Debug, Default)]
pub struct Assembly {
    frames: Vec<Bytes>,
}

impl Assembly {
    /// Creates an assembly without frames.
    pub fn new() -> Assembly {
        Assembly::default()
    }

    /// Adds a frame; returns the message if it is the last one. The limits of the connection bound the message.
    pub fn push(&mut self, body: Bytes, more: bool) -> Option<Vec<Bytes>> {
        self.frames.push(body);
        (!more).then(|| std::mem::take(&mut self.frames))
    }

    /// Returns true if a message is incomplete.
    pub fn is_incomplete(&self) -> bool {
        !self.frames.is_empty()
    }
}
