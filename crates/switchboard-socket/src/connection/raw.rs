//! The task of a connection of STREAM: bytes in both directions, without ZMTP.
//!
//! Each read is a message. The connection is not read while the lane of its peer is full.

use crate::{
    Message,
    core::{Attached, Batch, Core},
};
use std::{
    io::IoSlice,
    mem,
    sync::Arc,
    task::{Context, Poll},
};
use switchboard_core::{clock, runtime};
use switchboard_net::{
    connection::ReadBuffer,
    net::{self, Io},
};

/// Turns after which other tasks of the thread run.
const TURNS_MAX: usize = 16;
/// Parts of a vectored write.
const PARTS_MAX: usize = 64;

/// An open connection.
pub(super) struct RawLink {
    core: Arc<Core>,
    io: Box<dyn Io>,
    attached: Attached,
    input: ReadBuffer,
    batch: Batch,
    /// Messages and bytes that were written since the last visit of the socket.
    written: (usize, usize),
    is_flushed: bool,
    /// The application ended the connection, the socket closes, or the endpoint was stopped.
    is_closing: bool,
}

impl RawLink {
    pub(super) fn new(core: Arc<Core>, io: Box<dyn Io>, attached: Attached) -> RawLink {
        RawLink {
            core,
            io,
            attached,
            input: ReadBuffer::default(),
            batch: Batch::default(),
            written: (0, 0),
            is_flushed: false,
            is_closing: false,
        }
    }

    /// Returns true if the connection ended because this side closes it and everything is written.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    /// Returns true if this side ends the connection once its bytes are written.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(super) fn into_parts(self) -> (Box<dyn Io>, Batch) {
        (self.io, self.batch)
    }

    /// Writes and reads until neither makes progress; returns the reason for which the connection ends.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        for _ in 0..TURNS_MAX {
            let turn = self.write(cx).and_then(|wrote| Ok(self.read(cx)? || wrote));
            match turn {
                Ok(_) if self.is_flushed => return Poll::Ready("this side closed the connection".to_owned()),
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(reason) => return Poll::Ready(reason),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes; returns true if bytes were written.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let mut has_written = false;
        while !self.batch.is_empty() || self.visit(cx)? {
            let mut parts = [IoSlice::new(&[]); PARTS_MAX];
            let filled = self.batch.bytes.fill(&mut parts);
            match net::poll_write_parts(&mut *self.io, cx, &parts[..filled]) {
                Poll::Pending => {
                    self.visit(cx)?;
                    return Ok(has_written);
                }
                Poll::Ready(Ok(0)) => return Err("write: the connection takes no bytes".to_owned()),
                Poll::Ready(Ok(written)) => {
                    has_written = true;
                    self.written.0 += self.batch.written(written);
                    self.written.1 += written;
                }
                Poll::Ready(Err(error)) => return Err(format!("write: {error}")),
            }
        }
        Ok(has_written)
    }

    /// Visits the socket; returns true if there is something to write.
    fn visit(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let written = mem::take(&mut self.written);
        let duties = self.core.exchange(self.attached.id, written, &mut self.batch, cx.waker());
        if let Some(reason) = duties.abort {
            return Err(reason.into());
        }
        self.is_closing = duties.is_closing;
        if self.batch.is_empty() {
            self.is_flushed = duties.is_closing;
            self.batch.release();
        }
        Ok(!self.batch.is_empty())
    }

    /// Reads once; returns true if bytes arrived.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        if self.is_flushed || self.attached.lane.room_or_wake(cx.waker()) == 0 {
            return Ok(false);
        }
        match self.input.poll_read(&mut *self.io, cx) {
            Poll::Pending => {
                self.input.release();
                Ok(false)
            }
            Poll::Ready(Ok(0)) => Err("the peer closed the connection".to_owned()),
            Poll::Ready(Ok(bytes)) => {
                runtime::traffic(clock::now());
                let mut input = self.input.take();
                let mut messages = vec![Message::from(input.take(bytes))];
                self.input.put_back(input);
                let pushed = self.attached.lane.extend(&mut messages);
                self.core.inbox.arrived(&self.attached.lane, pushed);
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(format!("read: {error}")),
        }
    }
}
