//! Memory for small messages that somebody shares, those of streams above all: pieces of a block, so that encoding one
//! costs no allocation. Messages that are written at once lie in a [`Payload`](super::Payload) of their own.
//!
//! A message is gone from memory as soon as it is in an outbox, or its call has ended, and a block is used again from
//! its start when all of its messages are gone. One that stays, with a caller who keeps it or in the queue of a slow
//! stream, keeps its whole block; so a thread has only so many blocks, and while all of them are kept, messages get
//! memory of their own.

use super::OFFSET;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::cell::RefCell;

/// Larger messages get memory of their own.
const MESSAGE_MAX: usize = 4 << 10;
/// Small enough to stay in the nearest cache beside what is written from it.
const BLOCK_BYTES: usize = 16 << 10;
/// Blocks beside the current one that still have messages: no more than 256 KiB a thread can be kept by the few
/// messages that somebody keeps.
const FULL_MAX: usize = 16;

thread_local! {
    static BLOCKS: RefCell<Blocks> = RefCell::new(Blocks::new());
}

/// A message of `len` bytes that `write` appends. `write` must not encode other messages.
#[inline]
pub(super) fn encode(len: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
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

pub(super) fn alone(len: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut own = BytesMut::with_capacity(OFFSET + len);
    own.put_bytes(0, OFFSET);
    own.advance(OFFSET);
    write(&mut own);
    own.freeze()
}

struct Blocks {
    current: BytesMut,
    /// No room is left in them, and messages of theirs were there when they were last looked at.
    full: Vec<BytesMut>,
    /// Bytes of messages to go until they are looked at again.
    rest: usize,
}

impl Blocks {
    fn new() -> Blocks {
        Blocks { current: BytesMut::with_capacity(BLOCK_BYTES), full: Vec::new(), rest: 0 }
    }

    /// Makes the current block one with room; false when the message of `len` bytes is to have its own memory.
    #[cold]
    fn renew(&mut self, len: usize) -> bool {
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(len.max(1));
            return false;
        }
        if self.current.try_reclaim(BLOCK_BYTES) {
            // More than is needed now; one at a time, since needs come in waves.
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

    /// Blocks of this thread.
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
        // One of every block, and then all of them.
        let mut kept: Vec<_> = (0..100_000).map(|_| message(1000)).step_by(15).collect();
        assert_eq!(blocks(), 1 + FULL_MAX);
        kept.extend((0..10_000).map(|_| message(1000)));
        assert_eq!(blocks(), 1 + FULL_MAX);
        assert!(kept.iter().all(|message| *message == vec![7; 1000]));
        // What is gone is used again, and given back when it is not needed.
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
            // Each caller has one under way: the next is encoded when the last is gone.
            for message in &mut before {
                *message = Bytes::new();
                *message = self::message(581);
            }
            assert!(blocks() <= most + 2, "{} blocks, {most} at first", blocks());
        }
    }
}
