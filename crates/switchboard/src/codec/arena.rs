//! Memory for small messages on their way out: pieces of a block, so that encoding one costs no allocation.
//!
//! A message is gone from memory as soon as it is in an outbox, and the block is used again from its start when all
//! of its messages are gone. One that stays, in the queue of a slow stream say, keeps its whole block.

use bytes::{Bytes, BytesMut};
use std::cell::RefCell;

/// Larger messages get memory of their own.
const MESSAGE_MAX: usize = 4 << 10;
/// Small enough to stay in the nearest cache beside what is written from it.
const BLOCK_BYTES: usize = 16 << 10;

thread_local! {
    static BLOCK: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// A message of `len` bytes that `write` appends. `write` must not encode other messages.
#[inline]
pub(super) fn encode(len: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    if len > MESSAGE_MAX {
        let mut own = BytesMut::with_capacity(len);
        write(&mut own);
        return own.freeze();
    }
    BLOCK.with_borrow_mut(|block| {
        if block.capacity() < len && !block.try_reclaim(BLOCK_BYTES) {
            *block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        write(block);
        block.split().freeze()
    })
}
