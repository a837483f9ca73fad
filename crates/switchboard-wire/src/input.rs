//! Bytes that arrived and were not yet understood.

use bytes::{Buf, Bytes, BytesMut};
use std::mem;

/// Payloads up to this size are copied out of a buffer that is [not shared](Input::sharing), larger ones never.
const COPY_MAX: usize = 1024;

/// Payloads above this size are split off the buffer, each at some cost; for smaller ones the buffer is frozen once,
/// and each is a cheap slice of it.
const SLICE_MAX: usize = 8 << 10;

/// A read buffer with a cursor: units are taken off the front, a partial tail stays.
#[derive(Debug, Default)]
pub struct Input {
    /// What was read; empty, but for its room, while there is something frozen.
    buffer: BytesMut,
    /// What was read, once a small payload was taken of it.
    frozen: Bytes,
    /// Where in one or the other the rest begins.
    at: usize,
    /// What the buffer held at most when it came.
    room: usize,
    unshared: bool,
}

impl Input {
    /// Continues with what is in `buffer`.
    pub fn new(buffer: BytesMut) -> Input {
        let room = buffer.capacity();
        Input { buffer, frozen: Bytes::new(), at: 0, room, unshared: false }
    }

    /// Whether small payloads may be shares of the buffer. Shares are quick as long as they are gone
    /// before the buffer is needed again; a user that keeps them would keep a whole buffer each for a few bytes, so
    /// a driver that cannot win its buffers back says no for a while.
    #[must_use]
    pub fn sharing(mut self, shared: bool) -> Input {
        self.unshared = !shared;
        self
    }

    #[inline]
    fn whole(&self) -> &[u8] {
        if self.frozen.is_empty() { &self.buffer } else { &self.frozen }
    }

    /// What has not been taken yet.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.whole()[self.at..]
    }

    /// How many bytes have not been taken yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.whole().len() - self.at
    }

    /// Whether everything was taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Steps over `n` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        assert!(n <= self.len(), "skip past the end of the input");
        self.at += n;
    }

    /// Steps back over `n` bytes that were just stepped over.
    pub(crate) fn unskip(&mut self, n: usize) {
        self.at -= n;
    }

    /// Takes `n` bytes: as a share of the buffer, or as a copy if they are few and the buffer is not shared.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn take(&mut self, n: usize) -> Bytes {
        if self.frozen.is_empty() {
            return self.take_first(n);
        }
        let taken = self.frozen.slice(self.at..self.at + n);
        self.at += n;
        taken
    }

    /// Takes `n` bytes of what is not frozen yet, and freezes it if more small payloads may follow.
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

    /// The buffer to read more bytes into; call it when no whole unit is left.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.settle();
        &mut self.buffer
    }

    /// Appends bytes, as a read would.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
    }

    /// Gives the buffer back with what was not taken.
    pub fn into_buffer(mut self) -> BytesMut {
        self.settle();
        self.buffer
    }

    /// Makes the buffer hold what was not taken, and that alone.
    fn settle(&mut self) {
        let at = mem::take(&mut self.at);
        if !self.frozen.is_empty() {
            // A part of a unit, at most. Once the frozen bytes are let go, the buffer has all of its room again, unless
            // somebody still holds what was taken.
            let tail = self.frozen[at..].to_vec();
            self.frozen = Bytes::new();
            let _ = self.buffer.try_reclaim(self.room.max(tail.len()));
            self.buffer.extend_from_slice(&tail);
        } else if at == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.advance(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_of_a_frozen_buffer_goes_on_with_what_is_read_next() {
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
