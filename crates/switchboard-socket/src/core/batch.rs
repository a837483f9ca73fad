//! Encoded messages that wait to be written to one connection.

use super::segments::Segments;
use crate::Message;
use bytes::{Bytes, BytesMut};
use std::{collections::VecDeque, ops::Range};
use switchboard_net::net;
use switchboard_wire::{Outbox, zmtp};

/// Messages above this size in bytes that go to several peers are encoded once and shared, each with memory of its own.
/// Smaller ones are in [`Segments`].
pub(super) const SHARE_MIN: usize = 1024;
/// Slices of segments from this size in bytes on are shared. Smaller ones are copied: a slice keeps its whole segment.
const SLICE_MIN: usize = 8 << 10;
/// Connections with usual batches from this size in bytes on lend a large buffer. Many connections with small batches
/// at the same time would need many of them.
const LEND_MIN: usize = 24 << 10;
/// Memory for the first bytes of a batch.
const MEMORY_MIN: usize = 512;

/// Encoded messages, and the position at which each one ends: messages are counted, dropped and kept as a whole.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Outbox,
    /// Positions of the ends of the messages that are not complete yet, counted from the start of the batch.
    ends: VecDeque<u64>,
    /// Number of bytes that have left the front.
    position: u64,
    /// Position at which the oldest message begins: before `position` if a part of it was written.
    begin: u64,
    /// Messages after `bytes`, as their range in the segments of the socket.
    run: Option<Range<u64>>,
    /// Bytes of usual batches of this connection, by which the first memory is chosen.
    usual_bytes: usize,
}

impl Batch {
    /// Creates an empty batch of a connection whose batches usually have so many bytes.
    pub(crate) fn new(usual_bytes: usize) -> Batch {
        Batch { usual_bytes, ..Batch::default() }
    }

    /// Sets the number of bytes that batches usually have.
    pub(crate) fn set_usual(&mut self, usual_bytes: usize) {
        self.usual_bytes = usual_bytes;
    }

    /// Takes memory for a batch of the usual size.
    #[inline]
    fn adopt(bytes: &mut Outbox, usual_bytes: usize) {
        bytes.adopt(|| match usual_bytes {
            LEND_MIN.. => net::lend(),
            usual => BytesMut::with_capacity(usual.max(MEMORY_MIN).next_power_of_two()),
        });
    }

    pub(crate) fn messages(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.run.is_none()
    }

    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.run.as_ref().map_or(0, |run| (run.end - run.start) as usize)
    }

    /// Appends a message that is in the segments of the socket.
    #[inline]
    pub(crate) fn push_range(&mut self, range: &Range<u64>, segments: &mut Segments) {
        match &mut self.run {
            Some(run) if run.end == range.start => run.end = range.end,
            _ => {
                self.seal(segments);
                self.run = Some(range.clone());
            }
        }
        self.end_message();
    }

    /// Turns the range of the last messages into bytes. Called before other messages are appended, and before the batch
    /// is written.
    pub(crate) fn seal(&mut self, segments: &mut Segments) {
        let Some(run) = self.run.take() else { return };
        let usual_bytes = self.usual_bytes.max((run.end - run.start) as usize);
        let bytes = &mut self.bytes;
        segments.read(&run, |slice| {
            if slice.len() >= SLICE_MIN {
                bytes.chain(slice);
            } else {
                Batch::adopt(bytes, usual_bytes);
                bytes.tail().extend_from_slice(&slice);
            }
        });
    }

    /// Appends a message. The batch must be sealed, as for all changes but [`push_range`](Self::push_range).
    #[inline]
    pub(crate) fn push(&mut self, message: &Message) {
        debug_assert!(self.run.is_none(), "the batch is not sealed");
        Batch::adopt(&mut self.bytes, self.usual_bytes);
        zmtp::write_message(message.frames(), &mut self.bytes);
        self.end_message();
    }

    /// Appends a message that is encoded already.
    #[inline]
    pub(crate) fn push_encoded(&mut self, encoded: &Bytes) {
        debug_assert!(self.run.is_none(), "the batch is not sealed");
        if encoded.len() > SHARE_MIN {
            self.bytes.chain(encoded.clone());
        } else {
            Batch::adopt(&mut self.bytes, self.usual_bytes);
            self.bytes.tail().extend_from_slice(encoded);
        }
        self.end_message();
    }

    #[inline]
    fn end_message(&mut self) {
        self.ends.push_back(self.position + self.len() as u64);
    }

    /// Removes bytes that were written; returns the number of messages whose last byte is among them.
    pub(crate) fn written(&mut self, bytes: usize) -> usize {
        self.bytes.advance(bytes);
        self.position += bytes as u64;
        if self.bytes.is_empty() {
            let all = self.ends.len();
            self.clear();
            all
        } else {
            let complete = self.ends.partition_point(|end| *end <= self.position);
            if let Some(end) = self.ends.drain(..complete).next_back() {
                self.begin = end;
            }
            complete
        }
    }

    /// Drops the oldest message, or the rest of it.
    pub(crate) fn drop_oldest(&mut self) {
        debug_assert!(self.run.is_none(), "the batch is not sealed");
        if let Some(end) = self.ends.pop_front() {
            self.bytes.advance(usize::try_from(end - self.position).unwrap_or(0));
            self.position = end;
            self.begin = end;
        }
    }

    /// Drops all messages.
    pub(crate) fn clear(&mut self) {
        self.bytes.advance(self.bytes.len());
        self.run = None;
        self.ends.clear();
        self.position = 0;
        self.begin = 0;
    }

    /// Puts the messages of a batch whose connection ended before those of this one. A partly written message is lost;
    /// returns the number of lost ones, 0 or 1.
    pub(crate) fn requeue(&mut self, mut broken: Batch) -> u64 {
        debug_assert!(self.run.is_none() && broken.run.is_none(), "the batch is not sealed");
        let mut lost = 0;
        if broken.position > broken.begin {
            lost = 1;
            broken.drop_oldest();
        }
        let offset = broken.position + broken.bytes.len() as u64;
        let later = std::mem::take(self);
        let start = later.position;
        broken.ends.extend(later.ends.iter().map(|end| end - start + offset));
        let mut bytes = later.bytes;
        let rest = bytes.take_all();
        if !rest.is_empty() {
            broken.bytes.chain(Bytes::from(rest));
        }
        *self = broken;
        lost
    }

    /// Returns the memory of an empty batch to the pool of this thread.
    pub(crate) fn release(&mut self) {
        if let Some(tail) = self.bytes.release() {
            net::take_back(tail);
        }
        if self.ends.is_empty() {
            self.ends = VecDeque::new();
        }
    }
}

/// Encodes a message for several peers.
pub(crate) fn encode(message: &Message) -> Bytes {
    let mut out = Outbox::new();
    zmtp::write_message(message.frames(), &mut out);
    Bytes::from(out.take_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(texts: &[&str]) -> Batch {
        let mut batch = Batch::default();
        texts.iter().for_each(|text| batch.push(&Message::from(*text)));
        batch
    }

    #[test]
    fn messages_complete_with_their_last_byte() {
        let mut batch = batch(&["a", "bb", "ccc"]);
        assert_eq!((batch.messages(), batch.bytes.len()), (3, 12));
        assert_eq!([2, 1, 3].map(|bytes| batch.written(bytes)), [0, 1, 0]);
        assert_eq!(batch.written(6), 2);
        assert_eq!((batch.messages(), batch.is_empty()), (0, true));
    }

    #[test]
    fn a_broken_batch_keeps_its_whole_messages_in_order() {
        let mut broken = batch(&["a", "bb", "ccc"]);
        assert_eq!(broken.written(4), 1);
        let mut pending = batch(&["d", "ee"]);
        pending.drop_oldest();
        assert_eq!(pending.requeue(broken), 1, "the message whose first byte was written is lost");
        assert_eq!((pending.messages(), pending.bytes.len()), (2, 9));
        assert_eq!(pending.written(5), 1);
        assert_eq!(pending.bytes.take_all(), b"\0\x02ee");
    }

    #[test]
    fn a_batch_that_broke_between_messages_loses_none() {
        let mut broken = batch(&["a", "bb", "ccc"]);
        assert_eq!(broken.written(3), 1);
        let mut pending = batch(&["d"]);
        assert_eq!(pending.requeue(broken), 0);
        let mut dropped = batch(&["old", "new"]);
        dropped.drop_oldest();
        assert_eq!((pending.requeue(dropped), pending.messages()), (0, 4));
        assert_eq!(pending.bytes.take_all(), b"\0\x03new\0\x02bb\0\x03ccc\0\x01d");
    }

    #[test]
    fn ranges_become_bytes_in_their_order() {
        let mut segments = Segments::default();
        let ranges = ["a", "b", "c"].map(|text| segments.append(&Message::from(text)));
        let mut batch = batch(&["0"]);
        batch.push_range(&ranges[0], &mut segments);
        batch.push_range(&ranges[1], &mut segments);
        assert_eq!((batch.len(), batch.bytes.len(), batch.messages()), (9, 3, 3));
        batch.seal(&mut segments);
        batch.push(&Message::from("1"));
        // The second message was for others.
        batch.push_range(&ranges[0], &mut segments);
        batch.push_range(&ranges[2], &mut segments);
        batch.seal(&mut segments);
        assert_eq!(batch.messages(), 6);
        assert_eq!(batch.bytes.take_all(), b"\0\x010\0\x01a\0\x01b\0\x011\0\x01a\0\x01c");
        batch.push_range(&ranges[0], &mut segments);
        batch.clear();
        assert_eq!((batch.is_empty(), batch.len(), batch.messages()), (true, 0, 0));
    }

    #[test]
    fn the_oldest_messages_are_dropped_as_a_whole() {
        let mut batch = batch(&["a", "bb"]);
        batch.drop_oldest();
        batch.push_encoded(&encode(&Message::from("c")));
        batch.push_encoded(&encode(&Message::from(vec![7; 5000])));
        assert_eq!(batch.messages(), 3);
        assert_eq!([4, 3].map(|bytes| batch.written(bytes)), [1, 1]);
        batch.clear();
        assert_eq!((batch.messages(), batch.is_empty()), (0, true));
    }
}
