//! Transports of applications: pipes that a [`Listener`] accepts and a [`Connector`] opens.
//!
//! `Server::listen_on` and `ChannelBuilder::connector`
//! use them. TLS and WebSockets run inside such pipes as they do inside TCP, if the address says so.

use super::{Address, Io};
use std::{fmt, future::Future, io, pin::Pin, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// A boxed future, for traits behind pointers.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A bidirectional byte stream.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<P: AsyncRead + AsyncWrite + Send + Unpin + 'static> Pipe for P {}

impl Io for Box<dyn Pipe> {}

/// Opens the pipes of a channel.
pub trait Connector: Send + Sync + 'static {
    /// Opens a pipe to `address`. The channel limits the time, and connects again later after an error. Cancel safe: a
    /// dropped future opens no pipe.
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Pipe>>>;
}

/// Accepts the pipes of a server.
pub trait Listener: Send + Sync + 'static {
    /// Returns the next pipe, and the address of its peer for logs. After an error the server calls this again, after a
    /// pause. Must be cancel safe: no pipe is lost when the future is dropped.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Box<dyn Pipe>, String)>>;
}

/// The connector of a channel.
#[derive(Clone)]
#[doc(hidden)]
pub struct ConnectorHandle(pub Arc<dyn Connector>);

impl fmt::Debug for ConnectorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("set by the program")
    }
}
