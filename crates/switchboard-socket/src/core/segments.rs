//! Messages that a publisher encoded once for all of its subscribers.
//!
//! A subscriber that is to get consecutive messages has the range of their bytes, not a copy. The task of its
//! connection gets slices of the segments, which all subscribers share.

use crate::Message;
use bytes::Bytes;
use std::{collections::VecDeque, mem, ops::Range};
use switchboard_wire::{Outbox, zmtp};

/// Bytes of all segments. Above, the ranges of all subscribers become slices, which may outlive the segments.
const BYTES_MAX: u64 = 256 << 10;

/// Encoded messages, by their position since the socket was created.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Position at which the first segment begins.
    begin: u64,
    /// Segments with the positions at which they begin.
    closed: VecDeque<(u64, Bytes)>,
    /// Position at which the open segment begins.
    open_begin: u64,
    open: Outbox,
}

impl Segments {
    /// Appends a message of small frames; returns the range of its bytes.
    pub(crate) fn append(&mut self, message: &Message) -> Range<u64> {
        let start = self.end();
        zmtp::write_message(message.frames(), &mut self.open);
        start..self.end()
    }

    fn end(&self) -> u64 {
        self.open_begin + self.open.len() as u64
    }

    /// Returns true if the ranges of all subscribers should become slices.
    pub(crate) fn is_full(&self) -> bool {
        self.end() - self.begin > BYTES_MAX
    }

    /// Passes the bytes of a range as slices.
    pub(crate) fn read(&mut self, range: &Range<u64>, mut slice: impl FnMut(Bytes)) {
        if range.end > self.open_begin {
            let bytes = self.open.tail().split().freeze();
            let begin = self.open_begin;
            self.open_begin += bytes.len() as u64;
            self.closed.push_back((begin, bytes));
        }
        let end = |begin: u64, segment: &Bytes| begin + segment.len() as u64;
        // A slow subscriber may have left many segments, and most ranges are in the last ones.
        let first = self.closed.partition_point(|(begin, segment)| end(*begin, segment) <= range.start);
        for (begin, segment) in self.closed.range(first..) {
            let (from, to) = (range.start.max(*begin), range.end.min(end(*begin, segment)));
            if from >= to {
                break;
            }
            slice(segment.slice((from - begin) as usize..(to - begin) as usize));
        }
    }

    /// Forgets all bytes; no range is left.
    pub(crate) fn clear(&mut self) {
        self.begin = self.end();
        self.open_begin = self.begin;
        self.closed.clear();
        // Readers may have the memory of the tail.
        mem::take(self.open.tail());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;

    fn read(segments: &mut Segments, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        segments.read(&range, |slice| bytes.extend_from_slice(&slice));
        bytes
    }

    #[test]
    fn ranges_are_read_over_the_ends_of_segments() {
        let mut segments = Segments::default();
        let one = segments.append(&Message::from("a"));
        assert_eq!((one.clone(), read(&mut segments, one.clone())), (0..3, b"\0\x01a".to_vec()));
        let two = segments.append(&Message::from(["b", "cc"]));
        assert_eq!(two, 3..10);
        assert_eq!(read(&mut segments, 0..10), b"\0\x01a\x01\x01b\0\x02cc");
        assert_eq!(read(&mut segments, two), b"\x01\x01b\0\x02cc");
        segments.clear();
        let three = segments.append(&Message::from("d"));
        assert_eq!((three.clone(), read(&mut segments, three)), (10..13, b"\0\x01d".to_vec()));
        assert!(!segments.is_full());
        let large = Message::from(vec![0; 1000]);
        let count = (0..).take_while(|_| !segments.append(&large).is_empty() && !segments.is_full()).count();
        assert!((250..270).contains(&count), "{count}");
    }

    #[test]
    fn a_range_is_found_among_many_segments() {
        let mut segments = Segments::default();
        // Each reading closes a segment, of one message.
        let ranges: Vec<_> = iter::repeat_with(|| {
            let range = segments.append(&Message::from("ab"));
            read(&mut segments, range.clone());
            range
        })
        .take(100)
        .collect();
        for (from, to) in [(0, 0), (0, 99), (50, 50), (50, 52), (99, 99)] {
            let bytes = read(&mut segments, ranges[from].start..ranges[to].end);
            assert_eq!(bytes, b"\0\x02ab".repeat(to - from + 1), "{from} to {to}");
        }
        // A part of three segments.
        assert_eq!(read(&mut segments, 5..10), b"\x02ab\0\x02");
    }
}
