//! Bytes that arrived and were not yet understood.

use bytes::{Buf, Bytes, BytesMut};

/// Payloads up to this size are copied out of a buffer that is [not shared](Input::sharing), larger ones never.
const COPY_MAX: usize = 1024;

/// A read buffer with a cursor: units are taken off the front, a partial tail stays.
#[derive(Debug, Default)]
pub struct Input {
    buffer: BytesMut,
    at: usize,
    unshared: bool,
}

impl Input {
    /// Continues with what is in `buffer`.
    pub fn new(buffer: BytesMut) -> Input {
        Input { buffer, at: 0, unshared: false }
    }

    /// Whether small payloads may be shares of the buffer. Shares are quick as long as they are gone
    /// before the buffer is needed again; a user that keeps them would keep a whole buffer each for a few bytes, so
    /// a driver that cannot win its buffers back says no for a while.
    #[must_use]
    pub fn sharing(mut self, shared: bool) -> Input {
        self.unshared = !shared;
        self
    }

    /// What has not been taken yet.
    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    /// How many bytes have not been taken yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len() - self.at
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
        if n == 0 {
            return Bytes::new();
        }
        if self.unshared && n <= COPY_MAX {
            let taken = Bytes::copy_from_slice(&self.rest()[..n]);
            self.at += n;
            return taken;
        }
        self.settle();
        self.buffer.split_to(n).freeze()
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

    fn settle(&mut self) {
        if self.at == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.advance(self.at);
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
