//! A message to be written to an outbox.

use bytes::Bytes;
use std::ops::Deref;

/// A message to be written, borrowed from its owner.
///
/// Reference counting costs as much as copying a small message, and an [`Outbox`](crate::Outbox) copies those anyway.
/// Only large messages have to be in shared memory.
#[derive(Clone, Copy, Debug)]
// closed: memory is lent or shared
pub enum Outgoing<'a> {
    /// In reusable memory: copied wherever it has to be stored.
    Lent(&'a [u8]),
    /// In reference-counted memory.
    Shared(&'a Bytes),
}

impl Outgoing<'_> {
    /// An empty message.
    pub const EMPTY: Outgoing<'static> = Outgoing::Lent(&[]);

    /// Returns the message with the parts that follow it.
    pub fn with(self, rest: &[Bytes]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len() + rest.iter().map(Bytes::len).sum::<usize>());
        whole.extend_from_slice(&self);
        rest.iter().for_each(|part| whole.extend_from_slice(part));
        whole
    }

    /// Returns an owned message: a lent one is copied.
    pub fn to_bytes(self) -> Bytes {
        match self {
            Outgoing::Lent(message) => Bytes::copy_from_slice(message),
            Outgoing::Shared(message) => message.clone(),
        }
    }
}

impl Deref for Outgoing<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Outgoing::Lent(message) => message,
            Outgoing::Shared(message) => message,
        }
    }
}

impl<'a> From<&'a Bytes> for Outgoing<'a> {
    #[inline]
    fn from(message: &'a Bytes) -> Outgoing<'a> {
        Outgoing::Shared(message)
    }
}
