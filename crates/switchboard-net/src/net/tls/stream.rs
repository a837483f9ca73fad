//! A pipe inside TLS: rustls between the socket and the reader and writer of the pipe.
//!
//! Up to 64 KiB of writes become records that one vectored write sends, and each read of the socket is passed
//! to rustls as a whole. An idle connection holds no buffer here, and one of 4 KiB in rustls.
//!
//! Records that the socket did not accept are sent by the next poll of either direction, because the drivers
//! of this crate always poll for reading and never flush.

use super::explain;
use crate::net::{self, Io};
use bytes::{Buf, BytesMut};
use rustls::Connection;
use std::{
    future::poll_fn,
    io::{self, BufRead, IoSlice, Write},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

pub(crate) struct Stream {
    io: Box<dyn Io>,
    session: Connection,
    /// Bytes that were read from the socket and not yet passed to rustls.
    incoming: BytesMut,
    /// First bytes from the peer, to identify its protocol if it is not TLS.
    first: [u8; 8],
    /// Number of bytes that the peer has sent, counted up to the length of `first`.
    heard: usize,
    closing: bool,
}

/// Reason of a failed handshake.
#[derive(Debug)]
pub(super) enum Failed {
    /// The peer closed the connection during the handshake.
    Closed,
    /// Socket error.
    Io(io::Error),
    /// The peer does not speak TLS; contains its first bytes.
    NotTls(Vec<u8>),
    /// One side rejected the other, or violated the protocol.
    Tls(rustls::Error),
}

impl Stream {
    /// Creates a TLS pipe on `io`, from which `incoming` was already read. Run the handshake first.
    pub(super) fn new(io: Box<dyn Io>, incoming: BytesMut, session: impl Into<Connection>) -> Stream {
        let session = session.into();
        let mut stream = Stream { io, session, incoming, first: [0; 8], heard: 0, closing: false };
        stream.note_first(0);
        stream
    }

    /// Runs the handshake, and sends the alert if it fails. Not cancel safe: a canceled handshake makes the
    /// connection unusable.
    pub(super) async fn handshake(&mut self) -> Result<(), Failed> {
        let outcome = poll_fn(|cx| self.poll_handshake(cx)).await;
        if let Err(Failed::Tls(_)) = outcome {
            // Sending the alert is best effort; the peer may be gone.
            let _ = poll_fn(|cx| self.poll_send(cx)).await;
        }
        outcome
    }

    /// Returns the underlying pipe, to send an error after a failed handshake.
    pub(super) fn into_inner(self) -> Box<dyn Io> {
        self.io
    }

    pub(super) fn session(&self) -> &Connection {
        &self.session
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        loop {
            // A partial write is sufficient: reading from the peer may be required first, and the remaining
            // records leave with later writes.
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(Failed::Io(error)));
            }
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.incoming.is_empty() && ready!(self.poll_receive(cx)).map_err(Failed::Io)? == 0 {
                return Poll::Ready(Err(Failed::Closed));
            }
            let taken = self.digest().map_err(|error| match error {
                // The first handshake message is not encrypted: a wrong record type means another protocol.
                rustls::Error::InvalidMessage(_) if self.first[0] != HANDSHAKE && self.first[0] != ALERT => {
                    Failed::NotTls(self.first[..self.heard].to_vec())
                }
                error => Failed::Tls(error),
            })?;
            if taken == 0 {
                return Poll::Ready(Err(Failed::Closed));
            }
        }
    }

    /// Passes received bytes to rustls; it accepts none after the peer's close_notify.
    fn digest(&mut self) -> Result<usize, rustls::Error> {
        let taken = self.session.read_tls(&mut &self.incoming[..]).map_err(|error| {
            // Only a message over 64 KiB can fill the buffer of rustls, because plaintext is always taken out
            // first.
            rustls::Error::General(error.to_string())
        })?;
        self.incoming.advance(taken);
        if self.incoming.is_empty() {
            net::take_back(std::mem::take(&mut self.incoming));
        }
        self.session.process_new_packets().map(|_| taken)
    }

    /// Reads from the socket once; returns 0 at its end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.incoming.capacity() == 0 {
            self.incoming = net::lend();
        }
        let before = self.incoming.len();
        let read = pin!(self.io.read_buf(&mut self.incoming)).poll(cx);
        if !matches!(read, Poll::Ready(Ok(n)) if n > 0) {
            net::take_back(std::mem::take(&mut self.incoming));
        }
        self.note_first(before);
        read
    }

    fn note_first(&mut self, before: usize) {
        let new = &self.incoming[before.min(self.incoming.len())..];
        let count = new.len().min(self.first.len() - self.heard);
        self.first[self.heard..self.heard + count].copy_from_slice(&new[..count]);
        self.heard += count;
    }

    /// Writes the pending records.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket { io: &mut self.io, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Moves decrypted bytes to `into`; returns true at the end of the stream.
    fn take_plaintext(&mut self, into: &mut ReadBuf<'_>) -> io::Result<bool> {
        let mut reader = self.session.reader();
        while into.remaining() > 0 {
            match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(chunk) => {
                    let count = chunk.len().min(into.remaining());
                    into.put_slice(&chunk[..count]);
                    reader.consume(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Accepts bytes once the socket has accepted all earlier ones.
    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
        accept: impl FnOnce(&mut Connection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let accepted = accept(&mut self.session)?;
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(accepted)),
        }
    }
}

/// Record types.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The next write reports an error of this one; bytes that the peer sent before can still be read.
        let _ = this.poll_send(cx);
        let before = into.filled().len();
        loop {
            let over = this.take_plaintext(into)?;
            let taken = into.filled().len() > before;
            if over || into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if this.incoming.is_empty() {
                if taken {
                    return Poll::Ready(Ok(()));
                }
                if ready!(this.poll_receive(cx))? == 0 {
                    // Without a close_notify an attacker may have truncated the stream.
                    let text = "the connection ended without a TLS close_notify";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
                }
            }
            let digested = this.digest();
            // Sends alerts and key updates as far as the socket accepts them.
            let _ = this.poll_send(cx);
            match digested {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) => {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        explain::text(&error),
                    )));
                }
            }
        }
    }
}

impl Io for Stream {
    fn is_read_closed(&self) -> bool {
        self.io.is_read_closed()
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_accept(cx, |session| session.writer().write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_accept(cx, |session| match parts {
            [part] => session.writer().write(part),
            parts => session.writer().write_vectored(parts),
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.closing, true) {
            self.session.send_close_notify();
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Adapter that lets rustls write to the socket.
struct Socket<'a, 'b> {
    io: &'a mut Box<dyn Io>,
    cx: &'a mut Context<'b>,
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        blocking(Pin::new(&mut *self.io).poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(Pin::new(&mut *self.io).poll_write_vectored(self.cx, parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn blocking<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::PROVIDER;
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
        pki_types::PrivateKeyDer,
    };
    use std::sync::Arc;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    const NAME: &str = "a.example";

    fn sessions() -> (ClientConnection, ServerConnection) {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(PROVIDER.clone());
        let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let server = ServerConfig::builder_with_provider(PROVIDER.clone());
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let client = ClientConnection::new(Arc::new(client.with_no_client_auth()), NAME.try_into().unwrap());
        (client.unwrap(), ServerConnection::new(Arc::new(server)).unwrap())
    }

    /// Creates both ends after the handshake, with `room` bytes of buffer in each direction.
    async fn pair(room: usize) -> (Stream, Stream) {
        let (near, far): (DuplexStream, DuplexStream) = duplex(room);
        let (client, server) = sessions();
        let mut client = Stream::new(Box::new(near), BytesMut::new(), client);
        let mut server = Stream::new(Box::new(far), BytesMut::new(), server);
        let near = async {
            client.handshake().await.unwrap();
            client.flush().await.unwrap();
        };
        let ((), far) = tokio::join!(near, server.handshake());
        far.unwrap();
        (client, server)
    }

    fn byte(at: usize) -> u8 {
        (at * 31 + at / 256) as u8
    }

    /// Writes and reads like the drivers: as much as possible in turn, without flushes.
    async fn exchange(stream: &mut Stream, total: usize, step: usize) {
        let sent: Vec<u8> = (0..total).map(byte).collect();
        let (mut written, mut read, mut buffer) = (0, 0, vec![0; step]);
        poll_fn(|cx| {
            loop {
                let mut went = false;
                let parts: Vec<_> = sent[written..].chunks(step).take(3).map(IoSlice::new).collect();
                if !parts.is_empty()
                    && let Poll::Ready(count) = Pin::new(&mut *stream).poll_write_vectored(cx, &parts)
                {
                    written += count.unwrap();
                    went = true;
                }
                let mut into = ReadBuf::new(&mut buffer);
                if let Poll::Ready(outcome) = Pin::new(&mut *stream).poll_read(cx, &mut into) {
                    outcome.unwrap();
                    for got in into.filled() {
                        assert_eq!(*got, byte(read), "at {read}");
                        read += 1;
                    }
                    assert!(!into.filled().is_empty(), "the end came early");
                    went = true;
                }
                if read == total && written == total {
                    return Poll::Ready(());
                }
                if !went {
                    return Poll::Pending;
                }
            }
        })
        .await;
        stream.flush().await.unwrap();
    }

    #[tokio::test]
    async fn every_byte_arrives_in_order_however_little_fits() {
        for (room, total, step) in [
            (1, 5_000, 7),
            (17, 20_000, 1000),
            (100, 100_000, 3),
            (5_000, 300_000, 70_000),
            (1 << 20, 2_000_000, 100_000),
        ] {
            let both = async {
                let (mut client, mut server) = pair(room).await;
                tokio::join!(exchange(&mut client, total, step), exchange(&mut server, total, step));
                let (mut none, mut nothing) = ([0; 1], [0; 1]);
                let (ended, read) = tokio::join!(client.shutdown(), server.read(&mut none));
                assert_eq!((ended.unwrap(), read.unwrap()), ((), 0));
                let (ended, read) = tokio::join!(server.shutdown(), client.read(&mut nothing));
                assert_eq!((ended.unwrap(), read.unwrap()), ((), 0));
            };
            let limit = std::time::Duration::from_secs(60);
            tokio::time::timeout(limit, both).await.unwrap_or_else(|_| panic!("{room} {total} {step} hangs"));
        }
    }

    #[tokio::test]
    async fn end_without_close_notify_is_an_error() {
        let (mut client, server) = pair(1 << 16).await;
        drop(server);
        let error = client.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("close_notify"), "{error}");
    }

    #[tokio::test]
    async fn idle_stream_holds_no_buffer() {
        let (mut client, mut server) = pair(1 << 16).await;
        exchange_one(&mut client, &mut server).await;
        assert_eq!((client.incoming.capacity(), server.incoming.capacity()), (0, 0));
    }

    async fn exchange_one(client: &mut Stream, server: &mut Stream) {
        client.write_all(b"ping").await.unwrap();
        let mut got = [0; 4];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ping");
        let waits = std::future::poll_fn(|cx| {
            let mut into = [0; 1];
            Poll::Ready(Pin::new(&mut *server).poll_read(cx, &mut ReadBuf::new(&mut into)).is_pending())
        });
        assert!(waits.await);
    }
}
