//! The byte pipe of a subscriber: a socket without a task, or any other pipe.

use crate::mailbox::LinkWaker;
use mio::{Interest, Registry, Token, unix::SourceFd};
use socket2::Socket;
use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    os::fd::AsRawFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard_net::net::Io;
use tokio::io::{AsyncWrite, ReadBuf};

/// The byte pipe of a subscriber.
pub(crate) enum Link {
    /// A record without a subscriber, or one that is closed.
    Closed,
    /// A TCP or Unix socket: a descriptor, registered once for both directions with the poll instance of the engine.
    Socket(Socket),
    /// A pipe without a descriptor: TLS, `memory://`, a simulated network.
    Pipe(Box<PipeLink>),
}

pub(crate) struct PipeLink {
    io: Box<dyn Io>,
    waker: Waker,
    queue: Arc<LinkWaker>,
}

impl PipeLink {
    fn poll<T>(
        &mut self,
        poll: impl FnOnce(Pin<&mut dyn Io>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        // Before the poll, so that no wake-up is lost.
        self.queue.rearm();
        match poll(Pin::new(&mut *self.io), &mut Context::from_waker(&self.waker)) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Link {
    pub(crate) fn pipe(io: Box<dyn Io>, waker: Arc<LinkWaker>) -> Link {
        Link::Pipe(Box::new(PipeLink { io, waker: waker.clone().into(), queue: waker }))
    }

    /// Registers a socket; its events carry the index.
    pub(crate) fn register(&self, index: u32, registry: &Registry) -> io::Result<()> {
        match self {
            Link::Socket(socket) => {
                let interest = Interest::READABLE | Interest::WRITABLE;
                registry.register(&mut SourceFd(&socket.as_raw_fd()), Token(index as usize), interest)
            }
            Link::Closed | Link::Pipe(_) => Ok(()),
        }
    }

    /// Removes a socket from the poll instance.
    pub(crate) fn deregister(&self, registry: &Registry) {
        if let Link::Socket(socket) = self {
            // It fails only if the socket is not registered.
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }

    /// Reads into `buffer`. `WouldBlock` if there is nothing to read; an event or a wake-up follows then.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Link::Closed => Ok(0),
            Link::Socket(socket) => retry(|| (&*socket).read(buffer)),
            Link::Pipe(pipe) => {
                let mut buffer = ReadBuf::new(buffer);
                pipe.poll(|io, cx| io.poll_read(cx, &mut buffer))?;
                Ok(buffer.filled().len())
            }
        }
    }

    /// Writes one part. `WouldBlock` if the pipe is full; an event or a wake-up follows then.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Link::Closed => Err(ErrorKind::BrokenPipe.into()),
            Link::Socket(socket) => retry(|| socket.send(bytes)),
            Link::Pipe(pipe) => pipe.poll(|io, cx| io.poll_write(cx, bytes)),
        }
    }

    /// Writes several parts in one system call.
    pub(crate) fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Link::Closed => Err(ErrorKind::BrokenPipe.into()),
            Link::Socket(socket) => match parts {
                [part] => retry(|| socket.send(part)),
                parts => retry(|| (&*socket).write_vectored(parts)),
            },
            Link::Pipe(pipe) => pipe.poll(|io, cx| io.poll_write_vectored(cx, parts)),
        }
    }

    /// Writes what the pipe itself holds back, such as records of TLS. `WouldBlock` if it is full.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Link::Closed | Link::Socket(_) => Ok(()),
            Link::Pipe(pipe) => pipe.poll(AsyncWrite::poll_flush),
        }
    }

    /// Ends the sending side, as far as that is possible without waiting.
    pub(crate) fn shutdown(&mut self) {
        match self {
            Link::Closed => {}
            // The peer may be gone already.
            Link::Socket(socket) => drop(socket.shutdown(std::net::Shutdown::Write)),
            Link::Pipe(pipe) => drop(pipe.poll(AsyncWrite::poll_shutdown)),
        }
    }
}

/// Repeats a system call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
