//! Handing a connection to an engine.

use bytes::BytesMut;
use socket2::Socket;
use std::{any::Any, fmt, net::SocketAddr};
use switchboard_net::net::{Io, Pipe};
use tokio::net::{TcpStream, UnixStream};

/// A connection that goes from a task of the runtime to an engine, with the bytes that were read from it.
pub struct Handoff<C> {
    pub(crate) pipe: HandoffPipe,
    pub(crate) first: BytesMut,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) guard: Option<Box<dyn Any + Send>>,
    pub(crate) connection: C,
}

pub(crate) enum HandoffPipe {
    Socket(Socket),
    Pipe(Box<dyn Io>),
}

impl<C> Handoff<C> {
    /// Takes a connection out of the runtime. A TCP or Unix socket is a bare descriptor from now on.
    ///
    /// # Errors
    /// That of the runtime, if it cannot release the socket.
    pub fn new(io: Box<dyn Io>, first: BytesMut, connection: C) -> std::io::Result<Handoff<C>> {
        let pipe = release(io)?;
        Ok(Handoff { pipe, first, address: None, guard: None, connection })
    }

    /// Takes a connection that no runtime has adopted.
    pub fn from_pipe(pipe: Pipe, connection: C) -> std::io::Result<Handoff<C>> {
        let pipe = match pipe {
            Pipe::Tcp(stream) => HandoffPipe::Socket(stream.into()),
            Pipe::Unix(stream) => HandoffPipe::Socket(stream.into()),
            other => HandoffPipe::Pipe(other.adopt()?),
        };
        Ok(Handoff { pipe, first: BytesMut::new(), address: None, guard: None, connection })
    }

    /// Sets the address of the peer.
    #[must_use]
    pub fn address(mut self, address: Option<SocketAddr>) -> Handoff<C> {
        self.address = address;
        self
    }

    /// Sets a value that is dropped when the connection has ended: counts, permits.
    #[must_use]
    pub fn guard(mut self, guard: Box<dyn Any + Send>) -> Handoff<C> {
        self.guard = Some(guard);
        self
    }
}

impl<C> fmt::Debug for Handoff<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Takes a socket out of its box and out of the runtime; any other pipe stays as it is.
fn release(io: Box<dyn Io>) -> std::io::Result<HandoffPipe> {
    let any: &dyn Any = &*io;
    if any.is::<TcpStream>() {
        let any: Box<dyn Any> = io;
        let Ok(stream) = any.downcast::<TcpStream>() else { unreachable!("its type was just checked") };
        return Ok(HandoffPipe::Socket(stream.into_std()?.into()));
    }
    if any.is::<UnixStream>() {
        let any: Box<dyn Any> = io;
        let Ok(stream) = any.downcast::<UnixStream>() else { unreachable!("its type was just checked") };
        return Ok(HandoffPipe::Socket(stream.into_std()?.into()));
    }
    Ok(HandoffPipe::Pipe(io))
}
