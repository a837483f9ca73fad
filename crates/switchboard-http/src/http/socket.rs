//! The bytes of an HTTP connection as hyper reads and writes them: counted, limited in pings and turns, and paused
//! while memory is short.

use super::{
    HttpState,
    connection_memory::{ConnectionMemory, Pause},
    pings::Pings,
    turn::Turn,
};
use bytes::{Buf, BytesMut};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};
use switchboard_core::{metrics::ConnectionProtocol, runtime};
use switchboard_net::net::Io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of bytes that first returns the bytes that were read to detect its protocol.
pub(super) struct Prefixed {
    pub(super) first: BytesMut,
    pub(super) io: Box<dyn Io>,
    /// The counters of its bytes.
    pub(super) counts: (Arc<HttpState>, usize, ConnectionProtocol),
    /// Ping limits of HTTP/2.
    pub(super) pings: Option<Box<Pings>>,
    pub(super) connection_memory: Arc<ConnectionMemory>,
    /// Set while the connection is not read for lack of memory.
    pub(super) pause: Pause,
    /// Ends when other connections of the worker have had their share.
    pub(super) turn: Turn,
}

impl Prefixed {
    fn count_sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let (shared, shard, protocol) = &self.counts;
        if let Poll::Ready(Ok(bytes)) = &written {
            shared.metrics.sent(*shard, *protocol, *bytes);
        }
        written
    }

    fn took(&mut self, bytes: &[u8], now: Instant) {
        let (shared, shard, protocol) = &self.counts;
        shared.metrics.received(*shard, *protocol, bytes.len());
        let of_bodies = match &mut self.pings {
            Some(pings) => pings.received(bytes, now),
            // Heads are included; they stop counting when a body ends.
            None => bytes.len(),
        };
        self.connection_memory.came(of_bodies);
    }

    /// Writes the rest of a frame before the connection ends for too many pings, and then GOAWAY.
    fn poll_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(pings) = &mut self.pings else { return Poll::Ready(Ok(0)) };
        let rest = pings.before_end(bytes.len());
        if rest == 0 {
            return pings.poll_end(&mut self.io, cx).map(Err);
        }
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, &bytes[..rest]))?;
        pings.sent(&bytes[..written]);
        // There may be no further write: GOAWAY is written when this is polled again.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(written))
    }

    fn is_last(&self) -> bool {
        self.pings.as_ref().is_some_and(|pings| pings.are_too_many())
    }
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_last() {
            // Reading stops, so that the number of pending responses is finite.
            return self.poll_last(cx, &[]).map_ok(drop);
        }
        let this = &mut *self;
        ready!(this.turn.poll(cx));
        ready!(this.connection_memory.poll_read(cx, &mut this.pause))?;
        let before = into.filled().len();
        if self.first.is_empty() {
            let read = Pin::new(&mut self.io).poll_read(cx, into);
            if read.is_pending() {
                self.turn.rest();
            }
            ready!(read)?;
            if into.filled().len() > before {
                let now = switchboard_core::clock::now();
                runtime::traffic(now);
                self.turn.read(now);
                self.took(&into.filled()[before..], now);
            }
        } else {
            let count = self.first.len().min(into.remaining());
            into.put_slice(&self.first[..count]);
            self.first.advance(count);
            self.took(&into.filled()[before..], switchboard_core::clock::now());
            if self.first.is_empty() {
                self.first = BytesMut::new();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_last() {
            return self.poll_last(cx, bytes);
        }
        ready!(self.turn.poll(cx));
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let (Some(pings), Poll::Ready(Ok(written))) = (&mut self.pings, &written) {
            pings.sent(&bytes[..*written]);
        }
        self.count_sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_last() {
            let first = bytes.iter().find(|slice| !slice.is_empty());
            return self.poll_last(cx, first.map_or(&[], |slice| slice));
        }
        ready!(self.turn.poll(cx));
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        if let (Some(pings), Poll::Ready(Ok(written))) = (&mut self.pings, &written) {
            let mut left = *written;
            for slice in bytes {
                let part = left.min(slice.len());
                pings.sent(&slice[..part]);
                left -= part;
            }
        }
        self.count_sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
