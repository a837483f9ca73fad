//! Bytes to be written: small payloads are gathered in a tail buffer, large ones are chained without a copy.

use crate::Outgoing;
use bytes::{Buf, Bytes, BytesMut};
use std::{collections::VecDeque, io::IoSlice};

/// Larger payloads are chained, smaller ones are copied to the tail: below this size in bytes a copy is cheaper than
/// another part in the vectored write and another reference count.
const COPY_MAX: usize = 8 << 10;
/// Smallest capacity of a new tail in bytes, so that a batch of small frames grows it once.
const TAIL_BYTES: usize = 16 << 10;
/// Largest capacity of a tail that is kept for the next batch, in bytes.
const TAIL_KEEP_MAX: usize = 256 << 10;

/// Bytes that a connection still has to write, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    parts: VecDeque<Bytes>,
    parts_bytes: usize,
    /// Bytes of the first part that are written: its memory is kept until the rest is written.
    front_written: usize,
    tail: BytesMut,
}

impl Outbox {
    /// Creates an empty outbox; it allocates with the first bytes.
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Returns the tail, to append small payloads.
    #[inline]
    pub fn tail(&mut self) -> &mut BytesMut {
        if self.tail.capacity() == 0 {
            self.tail.reserve(TAIL_BYTES);
        }
        &mut self.tail
    }

    /// Appends a payload: small and lent ones are copied, large ones are chained.
    #[inline]
    pub fn put<'a>(&mut self, payload: impl Into<Outgoing<'a>>) {
        match payload.into() {
            Outgoing::Shared(payload) if payload.len() > COPY_MAX => self.chain(payload.clone()),
            payload => self.tail().extend_from_slice(&payload),
        }
    }

    /// Appends the head of a frame and its payload, with memory reserved once for both.
    #[inline]
    pub fn put_with<'a, const N: usize>(&mut self, head: &[u8; N], payload: impl Into<Outgoing<'a>>) {
        match payload.into() {
            Outgoing::Shared(payload) if payload.len() > COPY_MAX => {
                self.tail().extend_from_slice(head);
                self.chain(payload.clone());
            }
            payload => {
                let tail = self.tail();
                tail.reserve(N + payload.len());
                tail.extend_from_slice(head);
                tail.extend_from_slice(&payload);
            }
        }
    }

    /// Appends a payload by reference, whatever its size.
    pub fn chain(&mut self, payload: Bytes) {
        if !self.tail.is_empty() {
            let part = self.tail.split().freeze();
            self.parts_bytes += part.len();
            self.parts.push_back(part);
        }
        self.parts_bytes += payload.len();
        self.parts.push_back(payload);
    }

    /// Returns the number of bytes that are not written yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.parts_bytes + self.tail.len()
    }

    /// Returns true if everything is written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory in bytes that unwritten data occupies: more than its [length](Self::len) if large parts are
    /// partly written, or if the tail has spare capacity.
    #[inline]
    pub fn allocated_bytes(&self) -> usize {
        let tail = if self.tail.is_empty() { 0 } else { self.tail.capacity() };
        self.parts_bytes + self.front_written + tail
    }

    /// Fills `slices` with the front of the outbox for one vectored write; returns the number of slices filled.
    pub fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        let parts = self.parts.iter().map(|part| &part[..]).chain(tail);
        let mut filled = 0;
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    /// Drops the first `written` bytes.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn advance(&mut self, mut written: usize) {
        while let Some(part) = self.parts.front_mut() {
            if written < part.len() {
                part.advance(written);
                self.parts_bytes -= written;
                self.front_written += written;
                return;
            }
            written -= part.len();
            self.parts_bytes -= part.len();
            self.front_written = 0;
            self.parts.pop_front();
        }
        if written == self.tail.len() {
            self.tail.clear();
            if self.tail.capacity() > TAIL_KEEP_MAX {
                self.tail = BytesMut::new();
            }
        } else {
            self.tail.advance(written);
        }
    }

    /// Returns the memory of an empty tail, for instance for a pool, even while large parts wait.
    pub fn release(&mut self) -> Option<BytesMut> {
        if self.parts.is_empty() && self.tail.is_empty() {
            self.parts = VecDeque::new();
        }
        (self.tail.is_empty() && self.tail.capacity() > 0).then(|| std::mem::take(&mut self.tail))
    }

    /// Takes memory for the tail from a pool if it has none: growing from nothing would copy every batch again.
    #[inline]
    pub fn adopt(&mut self, lend: impl FnOnce() -> BytesMut) {
        if self.tail.capacity() == 0 {
            self.tail = lend();
        }
    }

    /// Returns everything as one vector; for tests and for in-memory peers.
    pub fn take_all(&mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        for part in self.parts.drain(..) {
            all.extend_from_slice(&part);
        }
        all.extend_from_slice(&self.tail);
        self.parts_bytes = 0;
        self.front_written = 0;
        self.tail.clear();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_across_copies_and_chains_whatever_is_written_at_once() {
        for step in [1, 7, 5000, 100_000] {
            let mut outbox = Outbox::new();
            let mut expected = Vec::new();
            for size in [3usize, 9000, 0, 12, 20_000, 8192, 8193, 1] {
                let payload = Bytes::from(vec![size as u8; size]);
                outbox.put(&payload);
                outbox.tail().extend_from_slice(b"/");
                expected.extend_from_slice(&payload);
                expected.push(b'/');
            }
            let mut written = Vec::new();
            while !outbox.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = outbox.fill(&mut slices);
                let batch: Vec<u8> =
                    slices[..filled].iter().flat_map(|slice| slice.iter().copied()).take(step).collect();
                written.extend_from_slice(&batch);
                outbox.advance(batch.len());
            }
            assert_eq!(written, expected);
            assert!(outbox.release().is_some() && outbox.release().is_none());
        }
    }

    #[test]
    fn memory_is_held_until_a_part_is_written_to_its_end() {
        let mut outbox = Outbox::new();
        outbox.put(&Bytes::from(vec![1; 20_000]));
        outbox.advance(15_000);
        assert_eq!((outbox.len(), outbox.allocated_bytes()), (5_000, 20_000));
        outbox.adopt(|| BytesMut::with_capacity(1000));
        assert!(outbox.release().is_some(), "an empty tail is not needed for parts");
        outbox.put(&Bytes::from_static(b"tail"));
        assert!(outbox.release().is_none() && outbox.allocated_bytes() >= 20_000 + TAIL_BYTES);
        outbox.advance(5_000);
        assert!(outbox.allocated_bytes() >= TAIL_BYTES && outbox.allocated_bytes() < 20_000);
        outbox.advance(4);
        assert_eq!(outbox.allocated_bytes(), 0);
    }
}
