//! Encoded bytes of one source, shared by all of its subscribers.

use bytes::{Bytes, BytesMut};
use std::{collections::VecDeque, io::IoSlice, ops::Range};

/// Capacity of a segment in bytes. A frame that does not fit begins the next one.
const SEGMENT_BYTES: usize = 64 << 10;
/// Larger payloads are not copied: they are a segment of their own, by reference.
const COPY_MAX: usize = 8 << 10;

/// The bytes of frames, each encoded once, from the position of the slowest subscriber to the head.
///
/// A position is the number of bytes that were appended before it. A subscriber has one: that up to which its socket
/// has taken the bytes, which may be inside a frame. Bytes are held in segments while a subscriber is behind them, and
/// at most `bytes_max` of them: the oldest are dropped then, and a subscriber that was to read them has lagged.
///
/// The buffer counts the *blocked* subscribers, whose sockets are full, in the segment of each. All other subscribers
/// are brought to the head by a pass over all of them, so one number, the head at the start of
/// the pass, is the position of all of them.
#[derive(Debug)]
pub struct BroadcastBuffer {
    segments: VecDeque<Segment>,
    /// Position of the first byte that is held.
    tail: u64,
    /// Position after the last byte.
    head: u64,
    bytes_max: usize,
    /// Blocked subscribers at the head, which become those of the next bytes.
    blocked_at_head: u32,
    /// Memory of a segment that was freed, for the next one: a source whose subscribers keep up allocates once.
    spare: Option<BytesMut>,
}

#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: SegmentBytes,
    /// Ends of the frames that end in this segment, counted from its start.
    ends: Vec<u32>,
    /// Blocked subscribers with their positions in this segment.
    blocked: u32,
}

#[derive(Debug)]
enum SegmentBytes {
    Owned(BytesMut),
    Shared(Bytes),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            SegmentBytes::Owned(bytes) => bytes,
            SegmentBytes::Shared(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn end(&self) -> u64 {
        self.start + self.len() as u64
    }
}

impl BroadcastBuffer {
    /// Creates an empty buffer that holds at most `bytes_max` bytes, and one frame if that is larger.
    pub fn new(bytes_max: usize) -> BroadcastBuffer {
        BroadcastBuffer {
            segments: VecDeque::new(),
            tail: 0,
            head: 0,
            bytes_max,
            blocked_at_head: 0,
            spare: None,
        }
    }

    /// Returns the position after the last byte: that of a subscriber that wants what comes next.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the position of the first byte that is held; a subscriber before it has lagged.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the number of bytes that are held.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        (self.head - self.tail) as usize
    }

    /// Returns the bytes of memory that the buffer has.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let segments = self.segments.iter().map(|segment| match &segment.bytes {
            SegmentBytes::Owned(bytes) => bytes.capacity(),
            SegmentBytes::Shared(bytes) => bytes.len(),
        });
        segments.sum::<usize>() + self.spare.as_ref().map_or(0, BytesMut::capacity)
    }

    /// Frees the memory that is kept for the next entries.
    pub(crate) fn release_spare(&mut self) {
        self.spare = None;
    }

    /// Changes the limit of held bytes, from the next entry on.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Returns the limit of held bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Appends a frame: its head, and a payload, which is chained by reference if it is large. Returns the number of
    /// bytes that were dropped at the tail to make room.
    pub fn append(&mut self, frame_head: &[u8], payload: &Bytes) -> usize {
        let chained = payload.len() > COPY_MAX;
        let copied = frame_head.len() + if chained { 0 } else { payload.len() };
        let dropped = self.make_room(frame_head.len() + payload.len());
        let old_head = self.head;
        if copied > 0 {
            let bytes = self.room(copied);
            bytes.extend_from_slice(frame_head);
            if !chained {
                bytes.extend_from_slice(payload);
            }
            self.head += copied as u64;
        }
        if chained {
            let bytes = SegmentBytes::Shared(payload.clone());
            self.segments.push_back(Segment { start: self.head, bytes, ends: Vec::new(), blocked: 0 });
            self.head += payload.len() as u64;
        }
        self.end_frame();
        if self.blocked_at_head > 0
            && let Some(at) = self.segment_of(old_head)
        {
            self.segments[at].blocked += std::mem::take(&mut self.blocked_at_head);
        }
        dropped
    }

    fn end_frame(&mut self) {
        if let Some(last) = self.segments.back_mut() {
            let end = last.len() as u32;
            if last.ends.last() != Some(&end) {
                last.ends.push(end);
            }
        }
    }

    /// Drops the oldest segments until `more` bytes fit; returns the number of bytes dropped.
    fn make_room(&mut self, more: usize) -> usize {
        let before = self.tail;
        while self.held_bytes() + more > self.bytes_max {
            let Some(oldest) = self.segments.pop_front() else { break };
            self.tail = oldest.end();
            *self.blocked_at(self.tail) += oldest.blocked;
            self.keep_memory(oldest);
        }
        (self.tail - before) as usize
    }

    /// Returns the bytes of a last segment that has room for `len` more.
    fn room(&mut self, len: usize) -> &mut BytesMut {
        let fits = self.segments.back().is_some_and(|last| match &last.bytes {
            SegmentBytes::Owned(bytes) => bytes.capacity() - bytes.len() >= len,
            SegmentBytes::Shared(_) => false,
        });
        if !fits {
            let mut bytes = self.spare.take().unwrap_or_default();
            bytes.reserve(len.max(SEGMENT_BYTES));
            let bytes = SegmentBytes::Owned(bytes);
            self.segments.push_back(Segment { start: self.head, bytes, ends: Vec::new(), blocked: 0 });
        }
        match self.segments.back_mut().map(|last| &mut last.bytes) {
            Some(SegmentBytes::Owned(bytes)) => bytes,
            _ => unreachable!("a segment with room was just pushed"),
        }
    }

    fn keep_memory(&mut self, segment: Segment) {
        if let SegmentBytes::Owned(mut bytes) = segment.bytes
            && self.spare.is_none()
            && bytes.capacity() <= 2 * SEGMENT_BYTES
        {
            bytes.clear();
            self.spare = Some(bytes);
        }
    }

    /// Returns the index of the segment with the byte at `position`; `None` at the head and before the tail.
    fn segment_of(&self, position: u64) -> Option<usize> {
        if position < self.tail || position >= self.head {
            return None;
        }
        Some(self.segments.partition_point(|segment| segment.end() <= position))
    }

    /// Fills `parts` with the bytes at `positions`; returns the number of parts filled. A start before the tail gives
    /// none.
    pub fn fill<'a>(&'a self, positions: Range<u64>, parts: &mut [IoSlice<'a>]) -> usize {
        let Some(first) = self.segment_of(positions.start) else { return 0 };
        let mut filled = 0;
        for (part, segment) in parts.iter_mut().zip(self.segments.range(first..)) {
            if segment.start >= positions.end {
                break;
            }
            let skipped = positions.start.saturating_sub(segment.start) as usize;
            let end = (positions.end - segment.start).min(segment.len() as u64) as usize;
            *part = IoSlice::new(&segment.bytes()[skipped..end]);
            filled += 1;
        }
        filled
    }

    /// Returns the bytes from `position` to the end of its segment; empty at the head and before the tail.
    #[inline]
    pub fn part(&self, position: u64) -> &[u8] {
        // A subscriber that keeps up reads from the last segment.
        if let Some(last) = self.segments.back()
            && position >= last.start
        {
            return last.bytes().get((position - last.start) as usize..).unwrap_or_default();
        }
        self.segment_of(position).map_or(&[], |at| {
            let segment = &self.segments[at];
            &segment.bytes()[(position - segment.start) as usize..]
        })
    }

    /// Returns the end of the frame that contains the byte before `position`, or `position` if it is between two
    /// frames. The position must not be before the tail.
    pub fn frame_end(&self, position: u64) -> u64 {
        if position >= self.head || position == 0 {
            return position;
        }
        // The end at `position` itself is in the segment before, if it ends there.
        let first = self.segments.partition_point(|segment| segment.end() < position);
        for segment in self.segments.range(first..) {
            let at = segment.ends.partition_point(|end| segment.start + u64::from(*end) < position);
            if let Some(end) = segment.ends.get(at) {
                return segment.start + u64::from(*end);
            }
        }
        self.head
    }

    /// Returns the bytes from `position` to the end of the frame that it is in, by reference or as a copy of that size.
    pub(crate) fn rest_of_frame(&self, position: u64) -> impl Iterator<Item = Bytes> + '_ {
        self.parts(position, self.frame_end(position))
    }

    /// Returns the bytes from `position` to `end`, by reference or as a copy of that size; none before the tail.
    pub(crate) fn parts(&self, position: u64, end: u64) -> impl Iterator<Item = Bytes> + '_ {
        let first = self.segment_of(position).unwrap_or(self.segments.len());
        let segments = self.segments.range(first..).take_while(move |segment| segment.start < end);
        segments.map(move |segment| {
            let from = position.saturating_sub(segment.start) as usize;
            let to = (end - segment.start).min(segment.len() as u64) as usize;
            match &segment.bytes {
                SegmentBytes::Owned(bytes) => Bytes::copy_from_slice(&bytes[from..to]),
                SegmentBytes::Shared(bytes) => bytes.slice(from..to),
            }
        })
    }

    /// Returns the position of the oldest frame that is held whole: where a subscriber that lagged continues.
    pub fn oldest_frame(&self) -> u64 {
        // The oldest segment may begin with the rest of a frame, if it is a chained payload.
        match self.segments.front() {
            Some(Segment { bytes: SegmentBytes::Shared(_), start, .. }) => self.frame_end(start + 1),
            _ => self.tail,
        }
    }

    /// Returns the number of blocked subscribers at a position. Those before the tail have lagged: they go on with the
    /// oldest frame, which is held for them.
    fn blocked_at(&mut self, position: u64) -> &mut u32 {
        let segment = self.segment_of(position.max(self.tail)).and_then(|at| self.segments.get_mut(at));
        segment.map_or(&mut self.blocked_at_head, |segment| &mut segment.blocked)
    }

    /// Counts a subscriber whose socket is full at `position`, so that its bytes are held.
    pub fn block(&mut self, position: u64) {
        *self.blocked_at(position) += 1;
    }

    /// Takes back [`block`](Self::block) at the same position.
    pub fn unblock(&mut self, position: u64) {
        *self.blocked_at(position) -= 1;
    }

    /// Frees the bytes that no subscriber is behind: those before `passed`, the position that all subscribers that
    /// are not blocked have reached, and before the first blocked one.
    pub fn free(&mut self, passed: u64) {
        while let Some(oldest) = self.segments.front() {
            if oldest.blocked > 0 || oldest.end() > passed {
                return;
            }
            self.tail = oldest.end();
            if let Some(oldest) = self.segments.pop_front() {
                self.keep_memory(oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads at most `max` bytes from `position`, as a socket would take them.
    fn read(buffer: &BroadcastBuffer, position: u64, max: usize) -> Vec<u8> {
        let mut parts = [IoSlice::new(&[]); 4];
        let filled = buffer.fill(position..(position + max as u64).min(buffer.head()), &mut parts);
        let bytes: Vec<u8> = parts[..filled].iter().flat_map(|part| part.to_vec()).collect();
        assert_eq!(
            buffer.part(position).iter().take(max).collect::<Vec<_>>(),
            bytes.iter().take(buffer.part(position).len().min(max)).collect::<Vec<_>>()
        );
        bytes
    }

    fn blocked(buffer: &BroadcastBuffer) -> u32 {
        buffer.segments.iter().map(|segment| segment.blocked).sum::<u32>() + buffer.blocked_at_head
    }

    /// Readers that take any number of bytes at any time get the bytes that were appended, or know that they lagged;
    /// and when all have reached the head nothing is held.
    #[test]
    fn readers_get_what_was_appended() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut buffer = BroadcastBuffer::new(if seed % 2 == 0 { 200_000 } else { usize::MAX });
            let (mut all, mut ends) = (Vec::new(), vec![0]);
            // All readers count as blocked.
            let mut readers = [0_u64; 5];
            readers.iter().for_each(|cursor| buffer.block(*cursor));
            for _ in 0..150 {
                if random.bool() {
                    let longest = if random.u8(..4) == 0 { 40_000 } else { 300 };
                    let (head, payload) = (
                        vec![random.u8(..); random.usize(1..20)],
                        vec![random.u8(..); random.usize(..longest)],
                    );
                    buffer.append(&head, &Bytes::from(payload.clone()));
                    all.extend(head.into_iter().chain(payload));
                    ends.push(all.len() as u64);
                } else {
                    let at = random.usize(..readers.len());
                    let before = readers[at];
                    buffer.unblock(before);
                    if before < buffer.tail() {
                        let oldest = buffer.oldest_frame();
                        assert!(
                            ends.binary_search(&oldest).is_ok(),
                            "seed {seed}: a reader goes on between frames"
                        );
                        readers[at] = oldest;
                    } else {
                        let taken = read(&buffer, before, random.usize(1..100_000));
                        readers[at] += taken.len() as u64;
                        assert_eq!(taken, all[before as usize..readers[at] as usize], "seed {seed}");
                        let end = ends[ends.partition_point(|end| *end < readers[at])];
                        assert_eq!(buffer.frame_end(readers[at]), end, "seed {seed}");
                    }
                    buffer.block(readers[at]);
                    buffer.free(buffer.head());
                }
                assert_eq!(buffer.head(), all.len() as u64);
                let longest = 40_020;
                assert!(seed % 2 == 1 || buffer.held_bytes() <= 200_000 + longest, "{}", buffer.held_bytes());
                let slowest = readers.iter().min().copied().unwrap_or_default();
                assert!(buffer.tail() <= slowest || seed % 2 == 0, "seed {seed}: bytes of a reader are held");
                assert_eq!(blocked(&buffer), readers.len() as u32);
            }
            for cursor in &mut readers {
                buffer.unblock(*cursor);
                *cursor = buffer.head();
            }
            buffer.free(buffer.head());
            assert_eq!(buffer.held_bytes(), 0, "seed {seed}");
        }
    }

    #[test]
    fn a_frame_larger_than_the_limit_is_held_alone() {
        let mut buffer = BroadcastBuffer::new(1000);
        buffer.append(b"first", &Bytes::new());
        assert_eq!(buffer.append(b"head", &Bytes::from(vec![1; 100_000])), 5);
        assert_eq!((buffer.tail(), buffer.held_bytes()), (5, 100_004));
        assert_eq!(buffer.frame_end(6), 100_009);
    }

    /// A source whose subscribers keep up uses the memory of one segment.
    #[test]
    fn memory_is_used_again() {
        let mut buffer = BroadcastBuffer::new(1 << 20);
        let payload = Bytes::from(vec![7; 100]);
        let mut place = None;
        for _ in 0..10_000 {
            buffer.append(b"head", &payload);
            let at = buffer.part(buffer.tail()).as_ptr();
            assert_eq!(*place.get_or_insert(at), at);
            buffer.free(buffer.head());
        }
    }
}
