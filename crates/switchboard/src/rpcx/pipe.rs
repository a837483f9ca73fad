//! The second connection, after its token was accepted.

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

/// A byte stream in both directions, until both sides have ended it. Dropping it closes the connection; bytes
/// written before are still sent.
///
/// There is no idle timeout; use `tokio::time::timeout`.
#[derive(Debug)]
pub struct Pipe {
    socket: TcpStream,
    /// Remaining bytes, if the peer has declared the size.
    left: Option<u64>,
}

impl Pipe {
    pub(super) fn new(socket: TcpStream) -> Pipe {
        Pipe { socket, left: None }
    }

    /// Ends the pipe after this number of bytes; an earlier end is an error.
    pub(super) fn of_size(self, bytes: u64) -> Pipe {
        Pipe { left: Some(bytes), ..self }
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Fails if the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }
}

impl AsyncRead for Pipe {
    /// Bytes beyond the declared size are not read; an earlier end is `UnexpectedEof`.
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
