//! The bytes that a connection has read and not handled yet.
//!
//! The functions of each turn are always inlined: a connection calls them in one place, as if they were written there.

use crate::net::{self, Io, Sharing};
use bytes::BytesMut;
use std::{
    future::Future,
    io,
    pin::pin,
    task::{Context, Poll},
};
use switchboard_wire::Input;
use tokio::io::AsyncReadExt;

/// Minimum free space before a read. A smaller one would cause many system calls for one message.
const FREE_MIN: usize = 4096;

/// Buffer for input. The thread lends the memory while bytes arrive, and gets it back when none are left.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: BytesMut,
    sharing: Sharing,
}

impl ReadBuffer {
    /// Creates a buffer with bytes that were read before, such as those by which the protocol was detected.
    pub fn new(bytes: BytesMut) -> ReadBuffer {
        ReadBuffer { bytes, sharing: Sharing::default() }
    }

    /// Reads once, behind the bytes that are left. Returns the number of bytes: 0 at the end of the peer's input.
    #[inline(always)]
    pub fn poll_read(&mut self, io: &mut dyn Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.bytes.capacity() == 0 {
            self.bytes = net::lend();
        } else if self.bytes.capacity() - self.bytes.len() < FREE_MIN {
            self.bytes.reserve(net::BUFFER_BYTES);
        }
        pin!(io.read_buf(&mut self.bytes)).poll(cx)
    }

    /// Reads once and discards the bytes; returns their number as [`poll_read`](Self::poll_read) does.
    pub fn poll_discard(&mut self, io: &mut dyn Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.bytes.clear();
        let read = self.poll_read(io, cx);
        self.bytes.clear();
        read
    }

    /// Takes the bytes out for a state machine; [`put_back`](Self::put_back) returns those that it has left.
    #[inline(always)]
    pub fn take(&mut self) -> Input {
        Input::new(std::mem::take(&mut self.bytes)).sharing(self.sharing.allowed())
    }

    /// Keeps the bytes that a state machine has left, for the next read.
    #[inline(always)]
    pub fn put_back(&mut self, input: Input) {
        self.bytes = input.into_buffer();
    }

    /// Returns the memory to the thread if no bytes are left.
    #[inline(always)]
    pub fn release(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > 0 {
            self.sharing.take_back(std::mem::take(&mut self.bytes));
        }
    }

    /// Drops the bytes and the memory.
    pub fn clear(&mut self) {
        self.bytes = BytesMut::new();
    }

    /// Returns the number of bytes that are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether no bytes are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the memory that the connection holds while it waits for more input.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        match self.bytes.len() {
            0 => 0,
            // Pages that were never written use no memory.
            len => len.max(self.bytes.capacity().min(net::BUFFER_BYTES)),
        }
    }
}
