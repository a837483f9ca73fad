//! A topic of a server to many SUB peers, each entry written on its own, and the bare loop of `send` of the same bytes
//! to the same sockets. The peers are bare connections: their process must not be slower than the server.

use super::{PeerArgs, Reading, Tally, end_with_input, message};
use crate::bench::{bus::stamp::Checker, process};
use ::switchboard::{Codec, Result, Server, Status};
use bytes::{Buf, BytesMut};
use std::{io, io::Write, net, sync::Arc, time::Duration};
use switchboard_adapter::Zmtp;
use switchboard_message::{Bus, Publication};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// One byte, as the header of its frame is counted with one.
const TOPIC: &str = "t";
/// Bytes of the greeting of ZMTP.
const GREETING_BYTES: usize = 64;
/// Time for the subscriptions of the last peers.
const SETTLE: Duration = Duration::from_millis(200);
/// Flags of a frame: another one follows, the length has 8 bytes, a command.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Serves the topic. The next entry is published when the last peer, which is in this process, has the one before: no
/// two are merged in one write.
pub(super) async fn publish(args: &PeerArgs) -> Result<Reading> {
    let bus = Bus::new();
    let running = Server::new().plugin(Zmtp::new(bus.clone())).listen(&args.endpoint).start().await?;
    let address = running.url().trim_start_matches("tcp://").to_owned();
    let connected = TcpListener::bind("127.0.0.1:0").await.map_err(|error| unavailable(&error))?;
    process::report_address(format!(
        "{address},{}",
        connected.local_addr().map_err(|error| unavailable(&error))?
    ));
    end_with_input(|| 0);
    let _all = connected.accept().await.map_err(|error| unavailable(&error))?;
    let mut last = Subscriber::connect(&address, true).await.map_err(|error| unavailable(&error))?;
    tokio::time::sleep(SETTLE).await;
    for number in 0.. {
        let publication = Publication::new(Codec::Raw, message(0, number, args.bytes));
        bus.publish_encoded(TOPIC, publication).await?;
        let mut has_entry = false;
        while !has_entry {
            last.read(|_| has_entry = true).await.map_err(|error| unavailable(&error))?;
        }
    }
    Ok(Reading::default())
}

/// Sends the bytes of each entry to each connection, without anything else.
pub(super) fn send(args: &PeerArgs) -> io::Result<Reading> {
    let listener = net::TcpListener::bind("127.0.0.1:0")?;
    let connected = net::TcpListener::bind("127.0.0.1:0")?;
    process::report_address(format!("{},{}", listener.local_addr()?, connected.local_addr()?));
    end_with_input(|| 0);
    let mut sockets = Vec::new();
    for _ in 0..args.peers {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let _all = connected.accept()?;
    for number in 0.. {
        let mut entry = vec![MORE, TOPIC.len() as u8];
        entry.extend_from_slice(TOPIC.as_bytes());
        let body = message(0, number, args.bytes);
        match u8::try_from(body.len()) {
            Ok(len) => entry.extend_from_slice(&[0, len]),
            Err(_) => {
                entry.push(LONG);
                entry.extend_from_slice(&(body.len() as u64).to_be_bytes());
            }
        }
        entry.extend_from_slice(&body);
        for socket in &mut sockets {
            socket.write_all(&entry)?;
        }
    }
    Ok(Reading::default())
}

/// Connects all peers, receives and measures.
pub(super) async fn receive(args: &PeerArgs) -> Result<Reading> {
    let (address, connected) = args
        .endpoint
        .split_once(',')
        .ok_or_else(|| Status::invalid_argument("--endpoint is not ADDRESS,ADDRESS"))?;
    let tally = Arc::new(Tally::new());
    for _ in 0..args.peers {
        let mut subscriber =
            Subscriber::connect(address, !args.stalled).await.map_err(|error| unavailable(&error))?;
        let tally = tally.clone();
        tokio::spawn(async move {
            let mut checker = Checker::default();
            // The connection ends with the measurement.
            while subscriber.read(|body| tally.receive(body, &mut checker, false)).await.is_ok() {}
        });
    }
    let _all = TcpStream::connect(connected).await.map_err(|error| unavailable(&error))?;
    Ok(tally.measure(args).await)
}

fn unavailable(error: &io::Error) -> Status {
    Status::unavailable(format!("a connection of the benchmark: {error}"))
}

/// A connection of a SUB with a subscription, which sends all of its bytes at once.
struct Subscriber {
    socket: TcpStream,
    input: BytesMut,
    /// Bytes of the greeting that are not read yet.
    greeting: usize,
}

impl Subscriber {
    async fn connect(address: &str, has_greeting: bool) -> io::Result<Subscriber> {
        let mut bytes = b"\xFF\0\0\0\0\0\0\0\x01\x7F\x03\x01NULL".to_vec();
        bytes.resize(GREETING_BYTES, 0);
        bytes.extend_from_slice(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB\x04\x0b\x09SUBSCRIBEt");
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(&bytes).await?;
        let greeting = if has_greeting { GREETING_BYTES } else { 0 };
        Ok(Subscriber { socket, input: BytesMut::with_capacity(4096), greeting })
    }

    /// Reads once, and passes the body of each message.
    async fn read(&mut self, mut received: impl FnMut(&[u8])) -> io::Result<()> {
        if self.socket.read_buf(&mut self.input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let skipped = self.greeting.min(self.input.len());
        self.input.advance(skipped);
        self.greeting -= skipped;
        while let Some((flags, head, len)) =
            header(&self.input).filter(|(_, head, len)| self.input.len() >= head + len)
        {
            if flags & (COMMAND | MORE) == 0 {
                received(&self.input[head..head + len]);
            }
            self.input.advance(head + len);
        }
        Ok(())
    }
}

/// Returns the flags of a frame, and the lengths of its header and of its content.
fn header(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let flags = *bytes.first()?;
    if flags & LONG == 0 {
        return Some((flags, 2, usize::from(*bytes.get(1)?)));
    }
    let len = bytes.get(1..9)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((flags, 9, usize::try_from(len).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_in_both_forms() {
        assert_eq!((header(b""), header(b"\0"), header(b"\x02\0\0")), (None, None, None));
        assert_eq!(header(b"\x01\x05"), Some((1, 2, 5)));
        assert_eq!(header(b"\x02\0\0\0\0\0\0\x01\x02"), Some((2, 9, 258)));
    }
}
