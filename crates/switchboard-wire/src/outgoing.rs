//! A message on its way into an outbox.

use bytes::Bytes;
use std::ops::Deref;

/// A message that is to be written, which its owner keeps.
///
/// Counting references costs as much as copying a small message, and an [`Outbox`](crate::Outbox) copies those anyway;
/// so only what is large has to be in memory that can be shared.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing<'a> {
    /// In memory that is used again: copied wherever it has to stay.
    Lent(&'a [u8]),
    /// In memory that stays for as long as somebody refers to it.
    Shared(&'a Bytes),
}

impl Outgoing<'_> {
    /// An empty message.
    pub const EMPTY: Outgoing<'static> = Outgoing::Lent(&[]);

    /// The message with what it goes on with.
    pub(crate) fn with(self, rest: &[Bytes]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len() + rest.iter().map(Bytes::len).sum::<usize>());
        whole.extend_from_slice(&self);
        rest.iter().for_each(|part| whole.extend_from_slice(part));
        whole
    }

    /// The message, to be kept: copied if it was lent.
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
