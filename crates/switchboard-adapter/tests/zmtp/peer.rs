//! A peer of ZMTP, on the machine of this side.

use std::{sync::Arc, time::Duration};
use switchboard::Running;
use switchboard_adapter::Zmtp;
use switchboard_wire::{
    Input, Outbox, Outgoing,
    zmtp::{Connection, Credentials, Event, Mechanism, Settings, SocketType},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// A peer with a socket of this type.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) connection: Connection,
    input: Input,
    pub(crate) out: Outbox,
}

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), work).await.expect("in time")
}

impl Peer {
    pub(crate) async fn connect(running: &Running, kind: SocketType) -> Peer {
        Peer::open(running, Settings::new(kind)).await.expect("a handshake")
    }

    /// A peer with a username and a password; `None` if the server refuses it.
    pub(crate) async fn log_in(
        running: &Running,
        username: &'static str,
        password: &'static str,
    ) -> Option<Peer> {
        Peer::log_in_as(running, SocketType::Sub, username, password).await
    }

    pub(crate) async fn log_in_as(
        running: &Running,
        kind: SocketType,
        username: &'static str,
        password: &'static str,
    ) -> Option<Peer> {
        let credentials = Mechanism::PlainClient(Credentials::new(username, password).unwrap());
        Peer::open(running, Settings::new(kind).with_mechanism(credentials)).await
    }

    pub(crate) async fn open(running: &Running, settings: Settings) -> Option<Peer> {
        Peer::open_at(running.url(), settings).await
    }

    /// Connects to one of several listeners.
    pub(crate) async fn open_at(url: String, settings: Settings) -> Option<Peer> {
        let address = url.replace("tcp://", "").parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        // What the kernel holds for it is part of what the server has written.
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let stream = socket.connect(address).await.unwrap();
        let mut out = Outbox::new();
        let connection = Connection::new(Arc::new(settings), &mut out);
        let mut peer = Peer { stream, connection, input: Input::default(), out };
        matches!(peer.event().await, Some(Event::Ready(_))).then_some(peer)
    }

    pub(crate) async fn flush(&mut self) {
        let bytes = self.out.take_all();
        // The server may have closed the connection.
        let _ = self.stream.write_all(&bytes).await;
    }

    /// The next event; `None` at the end of the connection.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        loop {
            let received = self.connection.recv(&mut self.input, &mut self.out);
            self.flush().await;
            match received {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                Err(_) => return None,
            }
            let mut buffer = [0; 4096];
            match soon(self.stream.read(&mut buffer)).await {
                Ok(read) if read > 0 => self.input.extend(&buffer[..read]),
                _ => return None,
            }
        }
    }

    /// The next message.
    pub(crate) async fn message(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        loop {
            match self.event().await? {
                Event::Frame { body, more } => {
                    frames.push(body.to_vec());
                    if !more {
                        return Some(frames);
                    }
                }
                Event::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn send(&mut self, frames: &[&[u8]]) {
        assert!(self.connection.send(frames.iter().copied().map(Outgoing::Lent), &mut self.out));
        self.flush().await;
    }

    pub(crate) async fn subscribe(&mut self, prefix: &[u8]) {
        assert!(self.connection.subscribe(prefix, &mut self.out));
        self.flush().await;
    }
}

/// Waits until the server has processed what a peer sent before: a PING is answered after it.
pub(crate) async fn settled(peer: &mut Peer) {
    assert!(peer.connection.ping(None, b"settled", &mut peer.out));
    peer.flush().await;
    let Some(Event::Pong(context)) = peer.event().await else { panic!("no PONG") };
    assert_eq!(context, "settled");
}

/// The number of connections that ended for this reason.
pub(crate) fn closed(zmtp: &Zmtp, reason: &str) -> u64 {
    zmtp.closed().iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
}
