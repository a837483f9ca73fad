//! The transport of an HTTP connection: records when the last bytes were received.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use switchboard_core::runtime;
use switchboard_net::net::Io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Time of the last received bytes, readable while the HTTP machine owns the transport.
#[derive(Debug)]
pub(super) struct LastReceived {
    opened: Instant,
    /// Nanoseconds from `opened`; zero before the first bytes.
    last: AtomicU64,
}

impl LastReceived {
    pub(super) fn new() -> Arc<LastReceived> {
        Arc::new(LastReceived { opened: switchboard_core::clock::now(), last: AtomicU64::new(0) })
    }

    /// Returns true when bytes were received.
    pub(super) fn any_received(&self) -> bool {
        self.last.load(Ordering::Relaxed) > 0
    }

    /// The time of the last bytes, or of the opening.
    pub(super) fn last(&self) -> Instant {
        switchboard_core::clock::after(self.opened, Duration::from_nanos(self.last.load(Ordering::Relaxed)))
    }

    fn note(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_nanos().max(1);
        self.last.store(since as u64, Ordering::Relaxed);
    }
}

pub(super) struct Pipe {
    io: Box<dyn Io>,
    received: Arc<LastReceived>,
}

impl Pipe {
    pub(super) fn new(io: Box<dyn Io>, received: Arc<LastReceived>) -> Pipe {
        Pipe { io, received }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
        if into.filled().len() > before {
            let now = switchboard_core::clock::now();
            self.received.note(now);
            // Keeps the worker awake for a caller that waits for this response.
            runtime::traffic(now);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
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
