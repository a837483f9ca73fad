//! A byte pipe inside WebSocket messages, for wires that do not depend on message boundaries.
//!
//! Each write becomes one message, text for JSON-RPC and binary for other wires; received messages are read
//! as a continuous byte stream. PING gets a PONG, the peer's CLOSE ends the stream, and shutdown sends a
//! CLOSE and waits for the peer's.

mod messages;

pub use messages::{MessageTranslation, WebSocketMessages};

use super::{BUFFER_BYTES, Io, lend, take_back};
use bytes::{Buf, BytesMut};
use messages::Translated;
use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use switchboard_wire::{
    Input, Outbox,
    websocket::{Event, Handshake, Kind, Limits, Role, WebSocket, close},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// The sub-protocol of the native wire.
pub const PROTOCOL: &str = "swb.1";
/// The sub-protocol of JSON-RPC.
#[cfg(feature = "http")]
pub const JSONRPC_PROTOCOL: &str = "jsonrpc";

/// Wire inside the messages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
// closed: both sides of a WebSocket handle each content
pub enum Carries {
    /// JSON-RPC: every message is one complete text.
    #[cfg(feature = "http")]
    JsonRpc,
    #[default]
    Native,
    /// The bytes of another wire, in messages of either kind and without a sub-protocol.
    Bytes,
}

/// Bytes that wait to be written above which the pipe neither reads nor accepts writes.
const OUT_MAX: usize = 64 << 10;
/// Maximum number of events per poll without payload; the next constant is the number of events that one read
/// counts for.
const UNITS_MAX: u32 = 256;
const READ_UNITS: u32 = 32;
/// Maximum payload of one binary message in bytes.
const WRITE_MAX: usize = 256 << 10;
/// Frames are passed on in parts, so the sizes of frames and messages need no limit.
const LIMITS: Limits = Limits { frame_bytes_max: u64::MAX, message_bytes_max: u64::MAX };

/// A byte pipe over a WebSocket.
pub struct WebSocketIo {
    io: Box<dyn Io>,
    machine: WebSocket,
    /// Kind of the messages.
    kind: Kind,
    /// Accepts messages of the other kind as well.
    any_kind: bool,
    /// Bytes of incomplete frames.
    input: BytesMut,
    /// Payload that has not been read.
    payload: BytesMut,
    /// The translation of the messages, if they are not the bytes of a connection.
    translated: Option<Box<Translated>>,
    out: Outbox,
    close_code: u16,
    /// The peer has ended its side of the stream.
    ended: bool,
    /// The peer violated the protocol; further input is discarded.
    failed: bool,
}

impl WebSocketIo {
    #[cfg(feature = "http")]
    /// Creates the server side; `input` contains the bytes after the handshake.
    pub fn server(
        io: Box<dyn Io>,
        input: BytesMut,
        deflate: Option<switchboard_wire::websocket::Deflate>,
    ) -> WebSocketIo {
        let machine = WebSocket::new(Role::Server, LIMITS).with_deflate(deflate);
        WebSocketIo::new(io, input, machine, Kind::Binary, close::GOING_AWAY)
    }

    #[cfg(feature = "http")]
    /// Creates the server side of a WebSocket whose messages, of at most `message_bytes_max` bytes, are translated. The
    /// bytes of a message count in `memory` from their arrival until they are read; the WebSocket is closed if there is
    /// no memory for the rest of a large message.
    pub fn translated(
        io: Box<dyn Io>,
        input: BytesMut,
        deflate: Option<switchboard_wire::websocket::Deflate>,
        messages: WebSocketMessages,
        message_bytes_max: u64,
        memory: std::sync::Arc<switchboard_core::memory::MemoryBudget>,
    ) -> WebSocketIo {
        let limits = Limits { message_bytes_max, ..LIMITS };
        let machine = WebSocket::new(Role::Server, limits).with_deflate(deflate);
        let kind = if messages.is_text { Kind::Text } else { Kind::Binary };
        let mut pipe = WebSocketIo::new(io, input, machine, kind, close::GOING_AWAY);
        pipe.payload = messages.first;
        pipe.translated = Some(Box::new(Translated::new(messages.translation, memory)));
        pipe
    }

    /// Also accepts text messages with arbitrary bytes, as some peers send them.
    pub fn of_any_kind(mut self) -> WebSocketIo {
        self.machine = self.machine.with_any_text();
        self.any_kind = true;
        self
    }

    /// Runs the client handshake over `io`; with `deflate` offers compression. The server is at `origin`,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// Fails with errors of `io`, and if the server rejects the handshake.
    pub(crate) async fn connect(
        mut io: Box<dyn Io>,
        origin: &str,
        path: &str,
        carries: Carries,
        deflate: bool,
    ) -> io::Result<WebSocketIo> {
        let random = RandomState::new();
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&random.hash_one(0).to_le_bytes());
        nonce[8..].copy_from_slice(&random.hash_one(1).to_le_bytes());
        let (mut handshake, kind) = match carries {
            #[cfg(feature = "http")]
            Carries::JsonRpc => (Handshake::new(nonce, JSONRPC_PROTOCOL).protocol_optional(), Kind::Text),
            Carries::Native => (Handshake::new(nonce, PROTOCOL), Kind::Binary),
            // Servers of rpcx reject clients without an Origin.
            Carries::Bytes => (Handshake::without_protocol(nonce).with_origin(origin), Kind::Binary),
        };
        if deflate {
            handshake = handshake.offer_deflate();
        }
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        io.write_all(handshake.request(host, path).as_bytes()).await?;
        let mut input = Input::default();
        let accepted = loop {
            match handshake.answer(&mut input) {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err(why) => return Err(io::Error::other(why)),
            }
            if io.read_buf(input.buffer()).await? == 0 {
                let text = "the server closed the connection without a response to the WebSocket handshake";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        };
        let role = Role::Client { seed: random.hash_one(2) };
        let machine = WebSocket::new(role, LIMITS).with_deflate(accepted.deflate);
        let pipe = WebSocketIo::new(io, input.into_buffer(), machine, kind, close::NORMAL);
        Ok(if carries == Carries::Bytes { pipe.of_any_kind() } else { pipe })
    }

    fn new(io: Box<dyn Io>, input: BytesMut, machine: WebSocket, kind: Kind, close_code: u16) -> WebSocketIo {
        let (payload, out) = (BytesMut::new(), Outbox::new());
        WebSocketIo {
            io,
            machine,
            kind,
            any_kind: false,
            input,
            payload,
            translated: None,
            out,
            close_code,
            ended: false,
            failed: false,
        }
    }

    /// Fills `payload`, unless the peer has ended the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut units = 0;
        while self.payload.is_empty() && !self.ended {
            if units >= UNITS_MAX {
                // A peer can send frames without payload endlessly: other connections run first.
                let _ = self.poll_out(cx)?;
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
            units += 1;
            let mut input = Input::new(std::mem::take(&mut self.input));
            let payload = match &mut self.translated {
                Some(translated) => &mut translated.message,
                None => &mut self.payload,
            };
            let event = self.machine.recv(&mut input, payload, &mut self.out);
            self.input = input.into_buffer();
            match event {
                Ok(Some(Event::Data { kind, .. })) if kind != self.kind && !self.any_kind => {
                    let why = match kind {
                        _ if self.translated.is_some() => "this path has messages of the other kind",
                        Kind::Binary => "binary messages need the sub-protocol swb.1",
                        Kind::Text => "text messages need the sub-protocol jsonrpc",
                    };
                    self.machine.close(close::UNSUPPORTED, why, &mut self.out);
                    self.payload.clear();
                    (self.ended, self.failed) = (true, true);
                }
                Ok(Some(Event::Data { last: true, .. })) if self.translated.is_some() => {
                    let translated = self.translated.as_mut();
                    let received = translated.map_or(Ok(()), |messages| messages.receive(&mut self.payload));
                    match received {
                        Ok(()) => {
                            self.charge();
                            continue;
                        }
                        Err(fatal) => {
                            tracing::debug!("closed: {fatal}");
                            let close = self.translated.as_mut().and_then(|messages| messages.close());
                            let (code, why) = close.unwrap_or((close::PROTOCOL, fatal.0));
                            self.machine.close(code, &why, &mut self.out);
                            (self.ended, self.failed) = (true, true);
                        }
                    }
                }
                Ok(Some(Event::Data { .. } | Event::Pong)) => continue,
                Ok(Some(Event::Closed(close))) => {
                    self.ended = true;
                    // JSON-RPC has no other way to report the reason.
                    if let (Kind::Text, Some(close)) = (self.kind, close)
                        && self.translated.is_none()
                        && ![close::NORMAL, close::GOING_AWAY].contains(&close.code)
                    {
                        let _ = self.poll_out(cx)?;
                        let why = format!("the server closed it with code {}: {}", close.code, close.reason);
                        return Poll::Ready(Err(io::Error::other(why)));
                    }
                }
                Ok(None) => {}
                Err(fatal) => {
                    tracing::debug!("closed: {fatal}");
                    (self.ended, self.failed) = (true, true);
                }
            }
            self.charge();
            if self.poll_out(cx)?.is_pending() && self.out.len() > OUT_MAX {
                return Poll::Pending;
            }
            if self.ended {
                break;
            }
            if self.input.capacity() - self.input.len() < BUFFER_BYTES / 16 {
                match self.input.is_empty() {
                    true => self.input = lend(),
                    false => self.input.reserve(BUFFER_BYTES),
                }
            }
            match pin!(self.io.read_buf(&mut self.input)).poll(cx)? {
                Poll::Ready(0) => self.ended = true,
                Poll::Ready(_) => units += READ_UNITS,
                Poll::Pending => {
                    // Idle connections hold no buffers.
                    if self.input.is_empty() {
                        take_back(std::mem::take(&mut self.input));
                    }
                    self.payload = BytesMut::new();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Charges the messages of a translated WebSocket to the memory budget, and closes it if there is no memory for the
    /// rest of one.
    fn charge(&mut self) {
        let Some(translated) = &mut self.translated else { return };
        if let Some(status) = translated.charge(self.payload.len()) {
            tracing::debug!("closed: {status}");
            self.machine.close(close::TOO_BIG, status.message(), &mut self.out);
            (self.ended, self.failed) = (true, true);
        }
    }

    /// Writes all pending frames.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 8];
            let filled = self.out.fill(&mut slices);
            match ready!(Pin::new(&mut *self.io).poll_write_vectored(cx, &slices[..filled]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.out.advance(written),
            }
        }
        self.out.release();
        Poll::Ready(Ok(()))
    }

    /// Sends a message of these parts once there is buffer space.
    fn poll_send(&mut self, cx: &mut Context<'_>, parts: &[&[u8]]) -> Poll<io::Result<usize>> {
        if self.machine.is_closing() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.out.len() > OUT_MAX {
            ready!(self.poll_out(cx))?;
        }
        let kind = self.kind;
        match &mut self.translated {
            Some(translated) => {
                for message in translated.send(parts) {
                    self.machine.send(kind, &[&message], &mut self.out);
                }
            }
            None => self.machine.send(kind, parts, &mut self.out),
        }
        // Bytes that the peer does not accept now leave with the next read or write.
        let _ = self.poll_out(cx)?;
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }
}

impl Io for WebSocketIo {
    fn is_read_closed(&self) -> bool {
        self.io.is_read_closed()
    }
}

impl AsyncRead for WebSocketIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(cx))?;
        let count = self.payload.len().min(into.remaining());
        into.put_slice(&self.payload[..count]);
        self.payload.advance(count);
        self.charge();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebSocketIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let most = if self.kind == Kind::Text { usize::MAX } else { WRITE_MAX };
        self.poll_send(cx, &[&bytes[..bytes.len().min(most)]])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut left = if self.kind == Kind::Text { usize::MAX } else { WRITE_MAX };
        let mut parts: Vec<&[u8]> = Vec::with_capacity(slices.len());
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            left -= part.len();
            parts.push(part);
        }
        self.poll_send(cx, &parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ended && !this.machine.is_closing() {
            let close = this.translated.as_mut().and_then(|messages| messages.close());
            let (code, why) = close.unwrap_or_else(|| (this.close_code, String::new()));
            this.machine.close(code, &why, &mut this.out);
        }
        ready!(this.poll_out(cx))?;
        while !this.ended {
            ready!(this.poll_fill(cx))?;
            this.payload.clear();
        }
        ready!(this.poll_out(cx))?;
        ready!(Pin::new(&mut *this.io).poll_shutdown(cx))?;
        // If the socket is closed with unread input, the system may discard the CLOSE that contains the
        // reason.
        while this.failed {
            this.input.clear();
            if this.input.capacity() == 0 {
                this.input = lend();
            }
            if ready!(pin!(this.io.read_buf(&mut this.input)).poll(cx))? == 0 {
                this.failed = false;
            }
        }
        Poll::Ready(Ok(()))
    }
}
