//! Buffer of received bytes that are not parsed yet.

use bytes::{Buf, Bytes, BytesMut};
use std::mem;

/// Largest payload that is copied out of a buffer that is [not shared](Input::sharing), in bytes.
const COPY_MAX: usize = 1024;

/// Payloads above this size in bytes are split off the buffer, each at some cost. For smaller ones the buffer is frozen
/// once, and each is a cheap slice of it.
const SLICE_MAX: usize = 8 << 10;

/// Longest partial unit that is copied to the front of the buffer. A longer rest stays in place if no slice of the
/// buffer is in use.
const TAIL_COPY_MAX: usize = 512;

/// A read buffer with a cursor: complete units are taken from the front, a partial unit stays.
#[derive(Debug, Default)]
pub struct Input {
    /// Received bytes; empty except for its capacity while `frozen` is in use.
    buffer: BytesMut,
    /// Received bytes, once a small payload was taken from them.
    frozen: Bytes,
    /// Position of the remaining bytes in `buffer` or `frozen`.
    at: usize,
    /// Capacity of the buffer that was passed to [`Input::new`].
    room: usize,
    unshared: bool,
}

impl Input {
    /// Creates an input that continues with the bytes in `buffer`.
    pub fn new(buffer: BytesMut) -> Input {
        let room = buffer.capacity();
        Input { buffer, frozen: Bytes::new(), at: 0, room, unshared: false }
    }

    /// Sets whether small payloads may be slices of the buffer. Slices are fast as long as they are dropped before the
    /// buffer is needed again. A user that keeps them would keep a whole buffer for a few bytes each, so a driver that
    /// cannot reclaim its buffers disables sharing for a while.
    #[must_use]
    pub fn sharing(mut self, shared: bool) -> Input {
        self.unshared = !shared;
        self
    }

    #[inline]
    fn whole(&self) -> &[u8] {
        if self.frozen.is_empty() { &self.buffer } else { &self.frozen }
    }

    /// Returns the bytes that have not been taken.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.whole()[self.at..]
    }

    /// Returns the number of bytes that have not been taken.
    #[inline]
    pub fn len(&self) -> usize {
        self.whole().len() - self.at
    }

    /// Returns true if all bytes were taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Skips `n` bytes.
    ///
    /// # Panics
    /// If there are fewer bytes.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        assert!(n <= self.len(), "skip past the end of the input");
        self.at += n;
    }

    /// Moves the cursor back over `n` bytes that were just skipped.
    pub(crate) fn unskip(&mut self, n: usize) {
        self.at -= n;
    }

    /// Takes `n` bytes: as a slice of the buffer, or as a copy if they are few and the buffer is not shared.
    ///
    /// # Panics
    /// If there are fewer bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Bytes {
        if self.frozen.is_empty() {
            return self.take_first(n);
        }
        let taken = self.frozen.slice(self.at..self.at + n);
        self.at += n;
        taken
    }

    /// Takes `n` bytes that can be changed in place, without a copy unless they are few and the buffer is not shared.
    ///
    /// # Panics
    /// If there are fewer bytes.
    #[cfg(feature = "curve")]
    pub(crate) fn take_mut(&mut self, n: usize) -> BytesMut {
        if self.unshared && n <= COPY_MAX {
            let taken = BytesMut::from(&self.rest()[..n]);
            self.skip(n);
            return taken;
        }
        self.settle();
        self.buffer.split_to(n)
    }

    /// Takes `n` bytes that are not frozen yet, and freezes the buffer if more small payloads may follow.
    fn take_first(&mut self, n: usize) -> Bytes {
        if n == 0 {
            return Bytes::new();
        }
        if self.unshared && n <= COPY_MAX {
            let taken = Bytes::copy_from_slice(&self.rest()[..n]);
            self.at += n;
            return taken;
        }
        if n > SLICE_MAX || n == self.len() || self.unshared {
            self.settle();
            return self.buffer.split_to(n).freeze();
        }
        self.frozen = self.buffer.split().freeze();
        self.take(n)
    }

    /// Returns the buffer to read more bytes into; call it when no complete unit is left.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.settle();
        &mut self.buffer
    }

    /// Appends bytes, as a read would.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
    }

    /// Returns the buffer with the bytes that were not taken.
    pub fn into_buffer(mut self) -> BytesMut {
        self.settle();
        self.buffer
    }

    /// Makes the buffer hold exactly the bytes that were not taken.
    fn settle(&mut self) {
        let at = mem::take(&mut self.at);
        if !self.frozen.is_empty() {
            self.thaw(at);
        } else if at == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.advance(at);
        }
    }

    /// Moves the frozen bytes from `at` on back into the buffer. Copies them if they are few, or if a slice of the
    /// buffer is still in use; the slice then keeps the memory.
    fn thaw(&mut self, at: usize) {
        let mut frozen = mem::take(&mut self.frozen);
        frozen.advance(at);
        if frozen.len() > TAIL_COPY_MAX {
            // The empty buffer also refers to the memory.
            self.buffer = BytesMut::new();
            match frozen.try_into_mut() {
                Ok(buffer) => self.buffer = buffer,
                Err(shared) => {
                    self.buffer.reserve(self.room.max(shared.len()));
                    self.buffer.extend_from_slice(&shared);
                }
            }
            return;
        }
        let tail = frozen.to_vec();
        drop(frozen);
        // Without other slices the buffer has its whole capacity again.
        let _ = self.buffer.try_reclaim(self.room.max(tail.len()));
        self.buffer.extend_from_slice(&tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_of_a_frozen_buffer_continues_with_the_next_read() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut input = Input::new(BytesMut::from(&bytes[..]));
        let kept = [input.take(10), input.take(20)];
        input.skip(5);
        assert_eq!(input.rest(), &bytes[35..]);
        input.extend(&[1, 2, 3]);
        assert_eq!(input.len(), 68);
        assert_eq!(input.take(65), &bytes[35..]);
        assert_eq!(input.into_buffer(), [1, 2, 3][..]);
        assert_eq!(kept.concat(), &bytes[..30]);
    }

    #[test]
    fn a_long_rest_is_copied_only_while_a_slice_is_in_use() {
        let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        for keeps in [false, true] {
            let mut input = Input::new(BytesMut::from(&bytes[..]));
            let kept = input.take(1000);
            let rest = input.rest().as_ptr();
            let kept = keeps.then_some(kept);
            let buffer = input.into_buffer();
            assert_eq!(buffer, bytes[1000..]);
            assert_eq!(buffer.as_ptr() == rest, !keeps, "copied, or shared with {kept:?}");
        }
    }

    #[test]
    fn small_and_large_units_come_out_in_order() {
        let bytes: Vec<u8> = (0..5000u32).map(|n| n as u8).collect();
        let mut input = Input::new(BytesMut::from(&bytes[..]));
        assert_eq!(input.take(10), &bytes[..10]);
        input.skip(5);
        assert_eq!(input.take(2000), &bytes[15..2015]);
        assert_eq!(input.rest(), &bytes[2015..]);
        input.extend(&[1, 2]);
        assert_eq!(input.len(), 5000 - 2015 + 2);
        let rest = input.len();
        input.skip(rest);
        assert!(input.is_empty() && input.into_buffer().is_empty());
    }
}
