//! The workloads of messaging: entries of a topic that are delivered to SUB peers of ZeroMQ, and inside the process.
//!
//! A PUB peer publishes a batch of entries in one write, and the next one when every SUB peer has the one before: what
//! the server reads and writes at once does not depend on its speed.

use crate::workload::TURN_MAX_MS;
use bytes::Bytes;
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};
use switchboard::{Codec, Limit, Running, Server, Status};
use switchboard_adapter::Zmtp;
use switchboard_fanout::Options;
use switchboard_message::{Bus, Delivery, Publication};

/// One shape of deliveries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deliveries {
    /// Each entry to this number of SUB peers; the entries of a batch are published at once.
    Peers { peers: usize, batch: usize },
    /// Each entry to one subscription inside the process.
    Process,
}

/// Bytes of an entry. The first eight are its number.
const ENTRY_BYTES: usize = 64;
/// The frames of an entry of the topic `t` begin with these bytes; the content follows the last.
const FRAME_HEADS: [u8; 5] = [1, 1, b't', 0, ENTRY_BYTES as u8];
/// Bytes of an entry between a peer and the server.
const WIRE_BYTES: usize = FRAME_HEADS.len() + ENTRY_BYTES;
/// A wait this long means that an entry is lost, also under valgrind on a busy machine.
const LOST: Duration = Duration::from_secs(300);

/// Starts a server of a bus for peers of ZeroMQ on a free port.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn serve() -> Result<Running, String> {
    let mut options = Options::default();
    options.turn_max = Duration::from_millis(TURN_MAX_MS);
    let zmtp = Zmtp::new(Bus::new()).options(options);
    let server = Server::new().plugin(zmtp).limit(Limit::ConnectionTurnMax, TURN_MAX_MS);
    server.listen("tcp://127.0.0.1:0").start().await.map_err(|error| error.to_string())
}

impl Deliveries {
    /// Has this number of entries delivered and checks each of them.
    ///
    /// # Errors
    /// When an entry is not delivered, or another one is.
    pub(crate) async fn make(self, deliveries: u64, address: &str) -> Result<(), String> {
        match self {
            Self::Process => in_process(deliveries).await.map_err(|status| status.to_string()),
            Self::Peers { peers, batch } => {
                let batches = deliveries / (peers * batch) as u64;
                to_peers(peers, batch as u64, batches, address).map_err(|error| error.to_string())
            }
        }
    }
}

fn content(number: u64) -> Bytes {
    let mut content = vec![7; ENTRY_BYTES];
    content[..8].copy_from_slice(&number.to_be_bytes());
    content.into()
}

async fn in_process(entries: u64) -> Result<(), Status> {
    let bus = Bus::new();
    let mut subscription = bus.subscribe_encoded("t").await?;
    // Shared from the start, so that a copy allocates nothing.
    let content = content(0);
    for number in 1..=entries {
        bus.publish_encoded("t", Publication::new(Codec::Raw, content.clone())).await?;
        match subscription.next().await? {
            Some(Delivery::Entry(entry)) if entry.position().offset == number && *entry == content => {}
            other => return Err(Status::internal(format!("{other:?} instead of entry {number}"))),
        }
    }
    Ok(())
}

fn to_peers(peers: usize, batch: u64, batches: u64, address: &str) -> std::io::Result<()> {
    let mut subscribers = (0..peers).map(|_| subscriber(address)).collect::<std::io::Result<Vec<_>>>()?;
    let mut publisher = connect(address, b"PUB", b"")?;
    let mut received = vec![0; WIRE_BYTES * batch as usize];
    for first in (0..batches).map(|at| at * batch) {
        let sent: Vec<u8> = (first..first + batch)
            .flat_map(|number| FRAME_HEADS.into_iter().chain(content(number)))
            .collect();
        publisher.write_all(&sent)?;
        for subscriber in &mut subscribers {
            subscriber.read_exact(&mut received)?;
            if received != sent {
                return Err(std::io::Error::other(format!("other entries than those from {first} on")));
            }
        }
    }
    Ok(())
}

/// Connects a SUB peer of the topic `t`. Later entries are delivered to it: the server has responded to a PING that
/// follows the subscription.
fn subscriber(address: &str) -> std::io::Result<TcpStream> {
    let mut socket = connect(address, b"SUB", b"\x04\x0b\x09SUBSCRIBEt\x04\x07\x04PING\0\0")?;
    let mut greeting = [0; 64];
    socket.read_exact(&mut greeting)?;
    loop {
        let mut head = [0; 2];
        socket.read_exact(&mut head)?;
        let mut command = vec![0; usize::from(head[1])];
        socket.read_exact(&mut command)?;
        if command.starts_with(b"\x04PONG") {
            return Ok(socket);
        }
    }
}

/// Sends the greeting, READY and further commands in one write.
fn connect(address: &str, kind: &[u8; 3], commands: &[u8]) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LOST))?;
    let mut bytes = b"\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL".to_vec();
    bytes.resize(64, 0);
    bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03");
    bytes.extend_from_slice(kind);
    bytes.extend_from_slice(commands);
    socket.write_all(&bytes)?;
    Ok(socket)
}
