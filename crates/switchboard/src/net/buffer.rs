//! Buffers lent to connections while bytes flow, a few kept per thread.
//!
//! A connection that has nothing to read or write holds no buffer, which is what makes ten thousand idle ones
//! cheap; and the one that a worker uses all the time stays in its cache.

use bytes::BytesMut;
use std::cell::RefCell;

/// Capacity of a lent buffer.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;
/// Buffers kept per thread: one for reading, one for writing, a few for connections in the middle of a message.
const KEPT_MAX: usize = 8;
/// Larger ones go back to the allocator.
const KEPT_BYTES_MAX: usize = 4 * BUFFER_BYTES;

thread_local! {
    static KEPT: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer of at least [`BUFFER_BYTES`].
#[inline]
pub(crate) fn lend() -> BytesMut {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
}

/// Takes a buffer back; its contents are dropped. False when parts of it are still in use, as payloads that somebody
/// keeps: then it is lost to the pool.
#[inline]
pub(crate) fn take_back(mut buffer: BytesMut) -> bool {
    buffer.clear();
    if buffer.capacity() < BUFFER_BYTES && !buffer.try_reclaim(BUFFER_BYTES) {
        return false;
    }
    if buffer.capacity() <= KEPT_BYTES_MAX {
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(buffer);
            }
        });
    }
    true
}

/// Whether a connection may hand out shares of its buffers.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Buffers to come that are not shared.
    penalty: u8,
}

impl Sharing {
    /// Buffers that are not shared after one that was lost.
    const PENALTY: u8 = 64;

    #[inline]
    pub(crate) fn allowed(&self) -> bool {
        self.penalty == 0
    }

    /// Gives a buffer back and remembers whether that worked.
    #[inline]
    pub(crate) fn take_back(&mut self, buffer: BytesMut) {
        self.penalty = if take_back(buffer) { self.penalty.saturating_sub(1) } else { Sharing::PENALTY };
    }
}
