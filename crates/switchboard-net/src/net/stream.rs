//! TCP, Unix sockets and memory pipes behind one type.

use super::{
    Address, Carries, WebSocketIo, memory,
    transport::{self, ConnectorHandle},
};
use std::{
    any::Any,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::Status;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, Ready},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream, lookup_host},
    time::timeout,
};

/// A bidirectional byte stream; each system call costs one virtual call. `Any`, so that a socket can be taken out of
/// its box and out of the runtime.
pub trait Io: Any + AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns whether the peer has closed its sending side, even if bytes before the end are unread. Makes no system
    /// call. False if the transport does not report it, and while the unread bytes fill the buffers of the system.
    fn is_read_closed(&self) -> bool {
        false
    }
}

impl Io for tokio::io::DuplexStream {}

impl Io for TcpStream {
    fn is_read_closed(&self) -> bool {
        is_closed(self.ready(Interest::READABLE))
    }
}

impl Io for UnixStream {
    fn is_read_closed(&self) -> bool {
        is_closed(self.ready(Interest::READABLE))
    }
}

/// Returns whether the runtime has seen the peer close its sending side.
fn is_closed(ready: impl Future<Output = io::Result<Ready>>) -> bool {
    let known = pin!(ready).poll(&mut Context::from_waker(Waker::noop()));
    matches!(known, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}

/// Writes several parts with one vectored write, and a single part with a plain write, which is faster in the
/// kernel.
#[inline]
pub fn poll_write_parts(
    io: &mut dyn Io,
    cx: &mut Context<'_>,
    parts: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    match parts {
        [part] => Pin::new(io).poll_write(cx, part),
        parts => Pin::new(io).poll_write_vectored(cx, parts),
    }
}

/// A pipe that is not registered with a runtime yet, so that the worker that will drive it can adopt it.
// closed: a transport of an application is `Custom`
pub enum Pipe {
    Custom(Box<dyn transport::Pipe>),
    Memory(tokio::io::DuplexStream),
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Pipe {
    /// Returns the local IP address, if the pipe has one.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Pipe::Tcp(stream) => stream.local_addr().ok(),
            Pipe::Custom(_) | Pipe::Memory(_) | Pipe::Unix(_) => None,
        }
    }

    /// Registers the pipe with the runtime of this thread.
    pub fn adopt(self) -> io::Result<Box<dyn Io>> {
        Ok(match self {
            Pipe::Custom(pipe) => Box::new(pipe),
            Pipe::Memory(stream) => Box::new(stream),
            Pipe::Tcp(stream) => Box::new(TcpStream::from_std(stream)?),
            Pipe::Unix(stream) => Box::new(UnixStream::from_std(stream)?),
        })
    }
}

/// Accepts pipes at an address.
// closed: a transport of an application is `Custom`
pub enum Listener {
    /// A listener of the application, with its public address.
    Custom(Box<dyn transport::Listener>, Address),
    Memory(memory::Listener),
    Tcp(TcpListener),
    Unix(UnixListener, std::path::PathBuf),
}

/// Maximum number of connections that wait to be accepted; the kernel limits it to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

impl Listener {
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Memory(name) => memory::Listener::bind(name).map(Listener::Memory),
            // TCP and TLS use the same socket; the acceptor handles TLS.
            Address::Tcp(host, port) | Address::Tls(host, port) => {
                let mut last = None;
                for address in lookup_host((host.as_str(), *port)).await? {
                    match bind_tcp(address) {
                        Ok(listener) => return Ok(Listener::Tcp(listener)),
                        Err(error) => last = Some(error),
                    }
                }
                Err(last
                    .unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
            }
            Address::Unix(path) => {
                // A socket file without a listener is left over from a server that was killed.
                if std::os::unix::net::UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    std::fs::remove_file(path)?;
                }
                Ok(Listener::Unix(UnixListener::bind(path)?, path.clone()))
            }
            Address::WebSocket(..) | Address::WebSocketTls(..) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "WebSockets use a TCP address: listen on tcp://HOST:PORT or tls://HOST:PORT",
            )),
        }
    }

    /// Uses a socket that listens already.
    #[cfg(feature = "handover")]
    pub fn from_socket(socket: std::net::TcpListener) -> io::Result<Listener> {
        TcpListener::from_std(socket).map(Listener::Tcp)
    }

    /// Duplicates the socket, if it is a TCP socket.
    #[cfg(feature = "handover")]
    pub fn socket(&self) -> io::Result<Option<std::os::fd::OwnedFd>> {
        use std::os::fd::AsFd;
        match self {
            Listener::Tcp(listener) => listener.as_fd().try_clone_to_owned().map(Some),
            Listener::Custom(..) | Listener::Memory(_) | Listener::Unix(..) => Ok(None),
        }
    }

    /// Returns the bound address, with the port that the system chose.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Listener::Custom(_, address) => address.clone(),
            Listener::Memory(listener) => Address::Memory(listener.name().to_owned()),
            Listener::Tcp(listener) => {
                let address = listener.local_addr()?;
                Address::Tcp(address.ip().to_string(), address.port())
            }
            Listener::Unix(_, path) => Address::Unix(path.clone()),
        })
    }

    /// Returns the next pipe and the peer's address. Cancel safe.
    pub async fn accept(&mut self) -> io::Result<(Pipe, String, Option<SocketAddr>)> {
        match self {
            Listener::Custom(listener, _) => {
                let (pipe, peer) = listener.accept().await?;
                Ok((Pipe::Custom(pipe), peer, None))
            }
            Listener::Memory(listener) => {
                let pipe = listener.accept().await?;
                Ok((Pipe::Memory(pipe), format!("memory://{}", listener.name()), None))
            }
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Always set: Nagle's algorithm waits for an acknowledgement, which costs 40 ms per call with
                // some peers.
                stream.set_nodelay(true)?;
                Ok((Pipe::Tcp(stream.into_std()?), format!("tcp://{peer}"), Some(peer)))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Pipe::Unix(stream.into_std()?), "unix:".to_owned(), None))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Best effort: the next bind recognizes a file that remains as a leftover.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// TLS settings of a channel.
#[cfg(feature = "tls")]
pub(crate) type TlsConnector = std::sync::Arc<super::tls::Connector>;
/// Uninhabited: this build has no TLS.
#[cfg(not(feature = "tls"))]
pub(crate) type TlsConnector = std::convert::Infallible;

/// Settings for opening the pipes of a channel.
#[derive(Clone, Debug, Default)]
pub struct Dialling {
    /// TLS settings, for addresses that use it.
    pub tls: Option<TlsConnector>,
    /// Protocol inside WebSockets.
    pub carries: Carries,
    /// Offers compression of messages on WebSockets.
    pub deflate: bool,
    /// Opens the pipes instead of the transport of the address.
    pub connector: Option<ConnectorHandle>,
}

/// Opens a pipe within `limit`, including the TLS handshake.
///
/// # Errors
/// Returns `Unavailable` with the phase, the peer and the cause; a retry is safe.
pub async fn dial(address: &Address, dialling: &Dialling, limit: Duration) -> Result<Box<dyn Io>> {
    let failed = |why: String| {
        Status::unavailable(format!("connect to {address}: {why}"))
            .with_origin(switchboard_wire::Origin::Connection)
            .with_retry(switchboard_wire::Retry::Safe)
    };
    let Dialling { tls, carries, deflate, .. } = dialling;
    let dialled = async {
        let pipe = open(address, dialling).await?;
        Ok::<Box<dyn Io>, io::Error>(match address {
            Address::Memory(_) | Address::Tcp(..) | Address::Unix(_) => pipe,
            Address::Tls(host, _) => secure(pipe, host, tls.as_ref()).await?,
            Address::WebSocket(host, port, path) | Address::WebSocketTls(host, port, path) => {
                let (scheme, stream) = match address.is_tls() {
                    true => ("https", secure(pipe, host, tls.as_ref()).await?),
                    false => ("http", pipe),
                };
                let origin = match host.contains(':') {
                    true => format!("{scheme}://[{host}]:{port}"),
                    false => format!("{scheme}://{host}:{port}"),
                };
                Box::new(WebSocketIo::connect(stream, &origin, path, *carries, *deflate).await?)
            }
        })
    };
    match timeout(limit, dialled).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(failed(error.to_string()).with_source(error)),
        Err(_) => Err(failed(format!("no response within {limit:?} (connect_timeout)"))),
    }
}

/// Opens the pipe to an address, without TLS and WebSocket.
async fn open(address: &Address, dialling: &Dialling) -> io::Result<Box<dyn Io>> {
    if let Some(ConnectorHandle(connector)) = &dialling.connector {
        return Ok(Box::new(connector.connect(address).await?));
    }
    Ok(match address {
        Address::Memory(name) => Box::new(memory::dial(name).await?),
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
        Address::Tcp(host, port)
        | Address::Tls(host, port)
        | Address::WebSocket(host, port, _)
        | Address::WebSocketTls(host, port, _) => {
            // Every address of the host is tried in turn, under one time limit.
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Box::new(of_another(stream)?)
        }
    })
}

#[cfg(feature = "tls")]
async fn secure(io: Box<dyn Io>, host: &str, tls: Option<&TlsConnector>) -> io::Result<Box<dyn Io>> {
    match tls {
        Some(connector) => connector.connect(io, host).await,
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "no settings for TLS")),
    }
}

#[cfg(not(feature = "tls"))]
async fn secure(_io: Box<dyn Io>, _host: &str, _tls: Option<&TlsConnector>) -> io::Result<Box<dyn Io>> {
    let text = "this program was built without TLS (feature `tls` of the crate `switchboard`)";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Rejects a TCP stream that is connected to itself. If no process listens on a local port, the system may
/// choose this port for the dialling side. The stream then receives its own bytes, for ever if it is kept,
/// and keeps the server from binding its port.
fn of_another(stream: TcpStream) -> io::Result<TcpStream> {
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "no server listens on this port"));
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stream_to_itself_is_refused() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let own = socket.local_addr().unwrap();
        let stream = socket.connect(own).await.unwrap();
        assert_eq!(of_another(stream).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
