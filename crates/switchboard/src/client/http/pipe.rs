//! The pipe under an HTTP connection: notes when the server was last heard.

use crate::{net::Io, runtime};
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// When bytes last came, readable while the HTTP machine owns the pipe.
#[derive(Debug)]
pub(super) struct Heard {
    opened: Instant,
    /// Nanoseconds from `opened`; zero before the first bytes.
    last: AtomicU64,
}

impl Heard {
    pub(super) fn new() -> Arc<Heard> {
        Arc::new(Heard { opened: crate::clock::now(), last: AtomicU64::new(0) })
    }

    /// Whether the server has said anything.
    pub(super) fn anything(&self) -> bool {
        self.last.load(Ordering::Relaxed) > 0
    }

    /// When the last bytes came, or the pipe was opened.
    pub(super) fn last(&self) -> Instant {
        self.opened + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    fn note(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_nanos().max(1);
        self.last.store(since as u64, Ordering::Relaxed);
    }
}

pub(super) struct Pipe {
    io: Box<dyn Io>,
    heard: Arc<Heard>,
}

impl Pipe {
    pub(super) fn new(io: Box<dyn Io>, heard: Arc<Heard>) -> Pipe {
        Pipe { io, heard }
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
            let now = crate::clock::now();
            self.heard.note(now);
            // A caller that waits for this answer should not find its worker asleep.
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
