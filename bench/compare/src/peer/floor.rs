//! The floor as a client of the contract: over one or two servers, and with a connection for each call.

use bytes::{Bytes, BytesMut};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use switchboard_cli::bench::{
    floor::{Connection, FloorCaller, FloorEcho, put_frame, take_frame},
    load::{Caller, Load},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Servers taken in turn.
#[derive(Clone, Debug)]
struct Servers {
    addresses: Arc<[String]>,
    next: Arc<AtomicUsize>,
}

impl Servers {
    fn new(list: &str) -> Self {
        Self { addresses: list.split(',').map(str::to_owned).collect(), next: Arc::default() }
    }

    fn next(&self) -> &str {
        &self.addresses[self.next.fetch_add(1, Ordering::Relaxed) % self.addresses.len()]
    }
}

/// Callers that share connections.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    servers: Servers,
    payload: Bytes,
}

impl Shared {
    pub(super) fn new(list: &str, payload: Bytes) -> Self {
        Self { servers: Servers::new(list), payload }
    }

    fn on(&self, address: &str) -> FloorEcho {
        FloorEcho { address: address.to_owned(), payload: self.payload.clone() }
    }
}

impl Load for Shared {
    type Connection = Connection;
    type Caller = FloorCaller;

    async fn connect(&self) -> Result<Connection, String> {
        self.on(self.servers.next()).connect().await
    }

    fn caller(&self, connection: &Connection) -> FloorCaller {
        self.on("").caller(connection)
    }
}

/// Callers that open a connection for each call and close it after the reply.
#[derive(Clone, Debug)]
pub(super) struct PerCall {
    servers: Servers,
    payload: Bytes,
}

impl PerCall {
    pub(super) fn new(list: &str, payload: Bytes) -> Self {
        Self { servers: Servers::new(list), payload }
    }

    async fn call(&self) -> std::io::Result<Bytes> {
        let mut socket = TcpStream::connect(self.servers.next()).await?;
        socket.set_nodelay(true)?;
        let mut bytes = BytesMut::new();
        put_frame(&mut bytes, 0, &self.payload);
        socket.write_all(&bytes).await?;
        bytes.clear();
        loop {
            if socket.read_buf(&mut bytes).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((_, reply)) = take_frame(&mut bytes) {
                return Ok(reply);
            }
        }
    }
}

impl Load for PerCall {
    type Connection = ();
    type Caller = Self;

    async fn connect(&self) -> Result<(), String> {
        Ok(())
    }

    fn caller(&self, (): &()) -> Self {
        self.clone()
    }
}

impl Caller for PerCall {
    async fn call(&mut self) -> Result<(), String> {
        let reply =
            Self::call(self).await.map_err(|error| format!("a call on its own connection: {error}"))?;
        if reply == self.payload { Ok(()) } else { Err(format!("a wrong reply of {} bytes", reply.len())) }
    }
}
