//! Writes large protobuf messages without copying the parts that lie in shared memory.

use super::{OFFSET, Payload};
use buffa::EncodeSink;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Messages from this size on are gathered from parts: for smaller ones, a copy costs less than parts.
pub(crate) const MESSAGE_MIN: usize = 32 << 10;

/// Fields from this size on are separate parts.
const PART_MIN: usize = 16 << 10;

/// Gathers a message: large fields share their memory, the rest is in separate memory.
pub(crate) struct Segments {
    parts: Vec<Bytes>,
    /// Bytes that were written since the last part. It has room for the whole message; pages that are not written cost
    /// nothing.
    tail: BytesMut,
    /// Memory that large slices may share: the request that a view borrows from.
    backing: Option<Bytes>,
}

impl Segments {
    pub(crate) fn new(len: usize, backing: Option<Bytes>) -> Segments {
        let mut tail = BytesMut::with_capacity(OFFSET + len);
        tail.put_bytes(0, OFFSET);
        tail.advance(OFFSET);
        Segments { parts: Vec::new(), tail, backing }
    }

    pub(crate) fn finish(mut self) -> Payload {
        self.end_tail();
        Payload::of_parts(self.parts)
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts.push(self.tail.split().freeze());
        }
    }

    /// Returns `slice` as a share of the backing, if it lies in it.
    fn share(&self, slice: &[u8]) -> Option<Bytes> {
        let backing = self.backing.as_ref()?;
        let (whole, part) = (backing.as_ptr_range(), slice.as_ptr_range());
        (whole.start <= part.start && part.end <= whole.end).then(|| backing.slice_ref(slice))
    }
}

impl EncodeSink for Segments {
    const IS_SEGMENTED: bool = true;

    #[inline]
    fn put_u8(&mut self, value: u8) {
        BufMut::put_u8(&mut self.tail, value);
    }

    #[inline]
    fn put_slice(&mut self, slice: &[u8]) {
        if slice.len() >= PART_MIN
            && let Some(part) = self.share(slice)
        {
            self.end_tail();
            self.parts.push(part);
            return;
        }
        BufMut::put_slice(&mut self.tail, slice);
    }

    #[inline]
    fn put_u32_le(&mut self, value: u32) {
        BufMut::put_u32_le(&mut self.tail, value);
    }

    #[inline]
    fn put_u64_le(&mut self, value: u64) {
        BufMut::put_u64_le(&mut self.tail, value);
    }

    #[inline]
    fn put_shared(&mut self, bytes: Bytes) {
        if bytes.len() < PART_MIN {
            return BufMut::put_slice(&mut self.tail, &bytes);
        }
        self.end_tail();
        self.parts.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Pieces;

    #[test]
    fn large_fields_are_shares_and_the_bytes_are_the_same() {
        let request = Bytes::from((0..100_000u32).map(|n| n as u8).collect::<Vec<_>>());
        let foreign = vec![9; 20_000];
        let own = Bytes::from(vec![7; 50_000]);
        let write = |into: &mut dyn FnMut(&[u8], Option<Bytes>)| {
            into(b"head", None);
            into(&request[10..90_000], None);
            into(&request[5..20], None);
            into(&foreign, None);
            into(&own, Some(own.clone()));
            into(&own[..100], Some(own.slice(..100)));
        };
        let mut expected = Vec::new();
        write(&mut |slice, _| expected.extend_from_slice(slice));
        let mut segments = Segments::new(expected.len(), Some(request.clone()));
        write(&mut |slice, shared| match shared {
            Some(shared) => segments.put_shared(shared),
            None => EncodeSink::put_slice(&mut segments, slice),
        });
        let payload = segments.finish();
        assert_eq!(payload.len(), expected.len());
        let Pieces::Parts(parts) = payload.pieces() else { panic!("one part alone") };
        assert_eq!(parts.len(), 5);
        assert_eq!(parts[1].as_ptr(), request[10..].as_ptr());
        assert_eq!(parts[3].as_ptr(), own.as_ptr());
        assert_eq!(payload.whole(), &expected);
    }

    #[test]
    fn message_without_large_fields_is_one_piece() {
        let mut segments = Segments::new(40_000, None);
        (0..40).for_each(|n| EncodeSink::put_slice(&mut segments, &[n; 1000]));
        let payload = segments.finish();
        assert!(payload.one().is_some() && payload.len() == 40_000);
        assert!(Segments::new(0, None).finish().is_empty());
    }
}
