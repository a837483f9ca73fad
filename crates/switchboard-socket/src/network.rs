//! Sockets of the operating system with the options of a socket.

use crate::options::TransportOptions;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::{
    io,
    net::{SocketAddr, TcpStream as StdStream},
    sync::Arc,
    time::Duration,
};
use switchboard_net::{
    Address,
    net::{Dialling, Io, Listener, Pipe, dial},
    transport::{self, BoxFuture, Connector, ConnectorHandle},
};
use switchboard_wire::Status;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream, lookup_host};

/// Binds a listener.
pub(crate) async fn bind(address: &Address, options: &TransportOptions) -> io::Result<Listener> {
    let Address::Tcp(host, port) = address else { return Listener::bind(address).await };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in lookup_host((host.as_str(), *port)).await? {
        match bind_tcp(address, options) {
            Ok(listener) => return Ok(Listener::Tcp(listener)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_tcp(address: SocketAddr, options: &TransportOptions) -> io::Result<TcpListener> {
    let socket = open(address, options)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Creates a socket with the options. Accepted connections inherit those of their listener.
fn open(address: SocketAddr, options: &TransportOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(tos) = options.type_of_service.filter(|_| address.is_ipv4()) {
        socket.set_tos_v4(tos)?;
    }
    if let Some(keepalive) = &options.keepalive {
        let mut probes = TcpKeepalive::new();
        if let Some(idle) = keepalive.idle {
            probes = probes.with_time(idle);
        }
        if let Some(interval) = keepalive.interval {
            probes = probes.with_interval(interval);
        }
        if let Some(count) = keepalive.count {
            probes = probes.with_retries(count);
        }
        socket.set_tcp_keepalive(&probes)?;
    }
    set_linux_options(&socket, options)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn set_linux_options(socket: &Socket, options: &TransportOptions) -> io::Result<()> {
    if let Some(limit) = options.retransmit_max {
        socket.set_tcp_user_timeout(Some(limit))?;
    }
    match &options.bind_device {
        Some(device) => socket.bind_device(Some(device.as_bytes())).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("bind to the device {device:?} (transport.bind_device): {error}"),
            )
        }),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set_linux_options(_: &Socket, options: &TransportOptions) -> io::Result<()> {
    if options.bind_device.is_none() && options.retransmit_max.is_none() {
        return Ok(());
    }
    let text = "transport.bind_device and transport.retransmit_max exist on Linux only";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Opens a connection within `limit`.
pub(crate) async fn connect(
    address: &Address,
    options: &TransportOptions,
    limit: Duration,
) -> Result<Box<dyn Io>, Status> {
    let is_usual = *options == TransportOptions::default() || !matches!(address, Address::Tcp(..));
    let connector = (!is_usual).then(|| ConnectorHandle(Arc::new(Dialler(options.clone()))));
    dial(address, &Dialling { connector, ..Dialling::default() }, limit).await
}

/// Opens TCP connections with options.
struct Dialler(TransportOptions);

impl Connector for Dialler {
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn transport::Pipe>>> {
        Box::pin(async move {
            let stream = self.open(address).await?;
            Ok(Box::new(stream) as Box<dyn transport::Pipe>)
        })
    }
}

impl Dialler {
    async fn open(&self, address: &Address) -> io::Result<TcpStream> {
        let Address::Tcp(host, port) = address else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the address is not one of TCP"));
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in lookup_host((host.as_str(), *port)).await? {
            match self.open_at(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn open_at(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpSocket::from_std_stream(StdStream::from(open(address, &self.0)?));
        let stream = socket.connect(address).await?;
        // Without a listener, a local port may be connected to itself.
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "no server listens on this port"));
        }
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Registers an accepted pipe with the runtime of this thread, unless a filter refuses its peer.
///
/// # Errors
/// Returns `PermissionDenied` for a peer that a filter refuses.
pub(crate) fn adopt(
    pipe: Pipe,
    peer: Option<SocketAddr>,
    options: &TransportOptions,
) -> io::Result<Box<dyn Io>> {
    let refused = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    if let Some(address) = peer.map(|peer| peer.ip())
        && !options.accept_from.is_empty()
        && !options.accept_from.iter().any(|range| range.contains(address))
    {
        return refused(format!("the address {address} is in no range of transport.accept_from"));
    }
    let filter = &options.ipc_filter;
    match pipe {
        Pipe::Unix(stream) if !filter.is_empty() => {
            let stream = UnixStream::from_std(stream)?;
            let peer = stream.peer_cred()?;
            if !filter.accepts(peer.uid(), peer.gid(), peer.pid()) {
                let (user, group) = (peer.uid(), peer.gid());
                return refused(format!(
                    "the peer of user {user} and group {group} is not in transport.ipc_filter"
                ));
            }
            Ok(Box::new(stream))
        }
        pipe => pipe.adopt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TcpKeepaliveOptions;
    use socket2::SockRef;

    fn check(stream: &TcpStream) {
        let socket = SockRef::from(stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(7));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(3));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        assert_eq!(socket.tos_v4().unwrap(), 0x10);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(9)));
        // The system doubles the size.
        assert!((16_000..=64_000).contains(&socket.recv_buffer_size().unwrap()));
        assert!((16_000..=64_000).contains(&socket.send_buffer_size().unwrap()));
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn both_sides_of_a_connection_have_the_options() {
        let keepalive = TcpKeepaliveOptions {
            count: Some(4),
            idle: Some(Duration::from_secs(7)),
            interval: Some(Duration::from_secs(3)),
        };
        let options = TransportOptions {
            backlog: 1,
            keepalive: Some(keepalive),
            receive_buffer_bytes: Some(16_000),
            retransmit_max: Some(Duration::from_secs(9)),
            send_buffer_bytes: Some(16_000),
            type_of_service: Some(0x10),
            ..TransportOptions::default()
        };
        let address = Address::Tcp("127.0.0.1".to_owned(), 0);
        let mut listener = bind(&address, &options).await.unwrap();
        let address = listener.address().unwrap();
        let near = Dialler(options).open(&address).await.unwrap();
        let (Pipe::Tcp(far), ..) = listener.accept().await.unwrap() else { panic!("not a pipe of TCP") };
        check(&near);
        check(&TcpStream::from_std(far).unwrap());
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_device_that_does_not_exist_is_named() {
        let options =
            TransportOptions { bind_device: Some("none0".to_owned()), ..TransportOptions::default() };
        let address = Address::Tcp("127.0.0.1".to_owned(), 0);
        let Err(error) = bind(&address, &options).await else { panic!("the device exists") };
        assert!(error.to_string().contains("\"none0\" (transport.bind_device)"), "{error}");
        // The own device of the machine.
        let options = TransportOptions { bind_device: Some("lo".to_owned()), ..TransportOptions::default() };
        let listener = bind(&address, &options).await.unwrap();
        let Listener::Tcp(socket) = &listener else { panic!("not a listener of TCP") };
        assert_eq!(SockRef::from(socket).device().unwrap().as_deref(), Some(&b"lo"[..]));
        let stream = connect(&listener.address().unwrap(), &options, Duration::from_secs(9)).await;
        assert!(stream.is_ok());
    }
}
