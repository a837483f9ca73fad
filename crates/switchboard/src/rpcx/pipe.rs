//! The second connection, once its token was taken.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Bytes both ways, until both sides have ended them. Dropping it closes the connection; what was written before is
/// still sent.
///
/// Nothing limits how long it may be silent: `tokio::time::timeout` does.
#[derive(Debug)]
pub struct Pipe {
    socket: TcpStream,
    /// Bytes that are still to come, where the peer has said how many.
    left: Option<u64>,
}

impl Pipe {
    pub(super) fn new(socket: TcpStream) -> Pipe {
        Pipe { socket, left: None }
    }

    /// Ends after so many bytes, and fails before.
    pub(super) fn of_size(self, bytes: u64) -> Pipe {
        Pipe { left: Some(bytes), ..self }
    }

    /// The other side.
    ///
    /// # Errors
    /// A connection that is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }
}

impl AsyncRead for Pipe {
    /// What comes after the size that was announced is not read; an end before it is `UnexpectedEof`.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(left) = self.left else { return Pin::new(&mut self.socket).poll_read(cx, into) };
        let room = into.remaining().min(usize::try_from(left).unwrap_or(usize::MAX));
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let filled = part.filled().len();
        if filled == 0 {
            let text = format!("the file has ended {left} bytes before its size");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
        }
        into.advance(filled);
        self.left = Some(left - filled as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
