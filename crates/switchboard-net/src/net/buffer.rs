//! Pool of I/O buffers: each thread keeps a few and lends them to connections while bytes flow.
//!
//! A connection without bytes to read or write holds no buffer, so ten thousand idle connections are cheap;
//! and the buffer that a worker uses all the time stays in its cache.

use bytes::BytesMut;
use std::cell::RefCell;

/// Capacity of a lent buffer in bytes.
pub const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of buffers kept per thread: one for reading, one for writing, a few for partially received
/// messages.
const KEPT_MAX: usize = 8;
/// Maximum capacity of a kept buffer; larger ones are freed.
const KEPT_BYTES_MAX: usize = 4 * BUFFER_BYTES;

// Of the thread: the connections of a worker share the buffers without a lock.
thread_local! {
    static KEPT: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer of at least [`BUFFER_BYTES`].
#[inline]
pub fn lend() -> BytesMut {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| BytesMut::with_capacity(BUFFER_BYTES))
}

/// Returns a buffer to the pool and drops its contents. Returns false if parts of it are still in use, for
/// example by a stored payload: then the pool loses the buffer.
#[inline]
pub fn take_back(mut buffer: BytesMut) -> bool {
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

/// Decides whether a connection may hand out slices of its buffers.
#[derive(Debug, Default)]
pub struct Sharing {
    /// Number of further buffers whose contents are copied instead of shared.
    penalty: u8,
}

impl Sharing {
    /// Number of buffers that are not shared after one was lost.
    const PENALTY: u8 = 64;

    #[inline]
    pub fn allowed(&self) -> bool {
        self.penalty == 0
    }

    /// Returns a buffer to the pool, and records whether it was lost.
    #[inline]
    #[doc(hidden)]
    pub fn take_back(&mut self, buffer: BytesMut) {
        self.penalty = if take_back(buffer) { self.penalty.saturating_sub(1) } else { Sharing::PENALTY };
    }
}
