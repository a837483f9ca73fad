//! Memory for small shared messages, mainly those of streams: slices of a block, so that encoding one needs no
//! allocation. Messages that are written at once have a [`Payload`](super::Payload) of their own.
//!
//! A message is dropped when it is copied into an outbox or when its call has ended. A block is reused from its start
//! when all of its messages are dropped. One message that is kept, by a caller or in the queue of a slow stream, keeps
//! its whole block. Therefore a thread has a limited number of blocks, and while all of them are in use, messages get
//! separate memory.

use super::OFFSET;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::cell::RefCell;

/// Larger messages get separate memory.
const MESSAGE_MAX: usize = 4 << 10;
/// Small enough to stay in the L1 cache together with the data that is written from it.
const BLOCK_BYTES: usize = 16 << 10;
/// Blocks besides the current one that still have messages: a few messages that are kept can hold at most 256 KiB per
/// thread.
const FULL_MAX: usize = 16;

// Of the thread: messages of streams are encoded where no connection is at hand.
thread_local! {
    static BLOCKS: RefCell<Blocks> = RefCell::new(Blocks::new());
}

/// Encodes a message of `len` bytes that `write` appends. `write` must not encode other messages.
#[inline]
pub(crate) fn encode(len: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    if len <= MESSAGE_MAX {
        let shared = BLOCKS.with_borrow_mut(|blocks| {
            if blocks.current.capacity() < len && !blocks.renew(len) {
                return Err(write);
            }
            write(&mut blocks.current);
            Ok(blocks.current.split().freeze())
        });
        return shared.unwrap_or_else(|write| alone(len, write));
    }
    alone(len, write)
}

pub(crate) fn alone(len: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut own = BytesMut::with_capacity(OFFSET + len);
    own.put_bytes(0, OFFSET);
    own.advance(OFFSET);
    write(&mut own);
    own.freeze()
}

struct Blocks {
    current: BytesMut,
    /// Full blocks that still had messages at the last check.
    full: Vec<BytesMut>,
    /// Bytes of messages before the next check.
    rest: usize,
}

impl Blocks {
    fn new() -> Blocks {
        Blocks { current: BytesMut::with_capacity(BLOCK_BYTES), full: Vec::new(), rest: 0 }
    }

    /// Provides a current block with room; returns false if the message of `len` bytes must get separate memory.
    #[cold]
    fn renew(&mut self, len: usize) -> bool {
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(len.max(1));
            return false;
        }
        if self.current.try_reclaim(BLOCK_BYTES) {
            // More than is needed now; released one at a time, because demand varies.
            self.full.pop_if(|block| block.try_reclaim(BLOCK_BYTES));
            return true;
        }
        for block in &mut self.full {
            if block.try_reclaim(BLOCK_BYTES) {
                std::mem::swap(&mut self.current, block);
                return true;
            }
        }
        if self.full.len() == FULL_MAX {
            self.rest = BLOCK_BYTES;
            return false;
        }
        self.full.push(std::mem::replace(&mut self.current, BytesMut::with_capacity(BLOCK_BYTES)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Bytes {
        encode(len, |into| into.resize(len, 7))
    }

    /// Returns the number of blocks of this thread.
    fn blocks() -> usize {
        BLOCKS.with_borrow(|blocks| 1 + blocks.full.len())
    }

    #[test]
    fn block_is_used_again_when_its_messages_are_gone() {
        let first = message(100).as_ptr();
        for _ in 0..BLOCK_BYTES {
            assert_eq!(message(100), vec![7; 100]);
        }
        assert_eq!(blocks(), 1);
        let range = first as usize..first as usize + BLOCK_BYTES;
        assert!(range.contains(&(message(100).as_ptr() as usize)));
    }

    #[test]
    fn messages_that_are_kept_keep_a_few_blocks_only() {
        // One message of every block, so that all blocks are kept.
        let mut kept: Vec<_> = (0..100_000).map(|_| message(1000)).step_by(15).collect();
        assert_eq!(blocks(), 1 + FULL_MAX);
        kept.extend((0..10_000).map(|_| message(1000)));
        assert_eq!(blocks(), 1 + FULL_MAX);
        assert!(kept.iter().all(|message| *message == vec![7; 1000]));
        // Unused blocks are reused, and released when they are not needed.
        drop(kept);
        for _ in 0..100 * BLOCK_BYTES / 1000 {
            message(1000);
        }
        assert_eq!(blocks(), 1);
    }

    #[test]
    fn many_under_way_at_once_allocate_no_further_block() {
        let round = || (0..1000).map(|_| message(581)).collect::<Vec<_>>();
        let mut before = round();
        let most = blocks();
        for _ in 0..50 {
            // Each caller has one message in flight: it encodes the next when the last is dropped.
            for message in &mut before {
                *message = Bytes::new();
                *message = self::message(581);
            }
            assert!(blocks() <= most + 2, "{} blocks, {most} at first", blocks());
        }
    }
}
