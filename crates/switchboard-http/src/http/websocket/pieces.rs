//! A WebSocket in one direction: each piece of a body is a message of text, and the peer sends none.

use crate::http::connection_memory::{CHANGE, ConnectionMemory};
use bytes::{Bytes, BytesMut};
use connectrpc::{EncodedBody, EncodedStream, ErrorCode};
use std::{
    future::Future,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{clock, metrics::ConnectionProtocol};
use switchboard_driver::driver::Accepted;
use switchboard_net::net::{lend, take_back};
use switchboard_wire::{
    Input, Outbox,
    websocket::{Deflate, Event, Kind, Limits, Role, WebSocket, close},
};
use tokio::{
    io::AsyncReadExt,
    time::{Sleep, sleep},
};

/// Time without a message after which the peer is pinged, and time that it has for its response. Proxies often close a
/// connection after 60 seconds of silence.
const PING_TIME: Duration = Duration::from_secs(25);
/// Time that the peer has to close the connection after the last message.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// Frames of the peer have no payload but that of control frames and of the message that ends the connection.
const LIMITS: Limits = Limits { frame_bytes_max: 64 << 10, message_bytes_max: 64 << 10 };
/// Bytes of responses to the peer above which it is not read.
const OUT_MAX: usize = 64 << 10;
/// Free bytes of the buffer for a read.
const READ_BYTES: usize = 512;
/// Messages and reads of one poll: then other connections of the worker run.
const TURNS_MAX: usize = 64;

/// Sends the pieces of a body to the end of either side. A piece is taken when all earlier bytes are written.
pub(super) struct PieceSender {
    accepted: Accepted,
    machine: WebSocket,
    pieces: Option<EncodedStream>,
    memory: Arc<ConnectionMemory>,
    /// The message that is being written, as held memory.
    unsent: Option<Bytes>,
    out: Outbox,
    /// Payload of the peer, which is discarded.
    discarded: BytesMut,
    /// Ends after a time without a message, or without a response to a ping.
    alarm: Pin<Box<Sleep>>,
    is_pinged: bool,
    /// Bytes came with the handshake.
    has_input: bool,
}

impl PieceSender {
    pub(super) fn new(
        accepted: Accepted,
        deflate: Option<Deflate>,
        (pieces, memory): (EncodedStream, Arc<ConnectionMemory>),
    ) -> PieceSender {
        PieceSender {
            accepted,
            machine: WebSocket::new(Role::Server, LIMITS).with_deflate(deflate),
            pieces: Some(pieces),
            memory,
            unsent: None,
            out: Outbox::new(),
            discarded: BytesMut::new(),
            alarm: Box::pin(sleep(PING_TIME)),
            is_pinged: false,
            has_input: true,
        }
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_input) {
            self.receive()?;
        }
        for _ in 0..TURNS_MAX {
            let is_written = self.poll_write(cx)?.is_ready();
            if is_written && self.machine.is_closed() {
                return Poll::Ready(Ok(()));
            }
            let has_sent = is_written && self.poll_piece(cx).is_ready();
            let has_read = match self.out.len() < OUT_MAX {
                true => self.poll_read(cx)?.is_ready(),
                false => false,
            };
            if !has_sent && !has_read {
                return self.poll_alarm(cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the next piece, or the end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pieces) = &mut self.pieces else { return Poll::Pending };
        match ready!(pieces.as_mut().poll_next(cx)) {
            Some(Ok(piece)) => {
                let piece: Bytes = EncodedBody::into_contiguous(piece);
                self.machine.send(Kind::Text, &[&piece], &mut self.out);
                self.unsent = (piece.len() >= CHANGE).then(|| self.memory.counted(piece, 0));
                self.rest(false, PING_TIME);
            }
            Some(Err(error)) => {
                let code = if error.code == ErrorCode::Unavailable { close::GOING_AWAY } else { INTERNAL };
                self.end(code, error.message.as_deref().unwrap_or_default());
            }
            None => self.end(close::NORMAL, ""),
        }
        Poll::Ready(())
    }

    fn end(&mut self, code: u16, reason: &str) {
        self.pieces = None;
        self.machine.close(code, reason, &mut self.out);
        self.rest(false, CLOSE_TIME);
    }

    /// Restarts the timer.
    fn rest(&mut self, is_pinged: bool, time: Duration) {
        self.is_pinged = is_pinged;
        self.alarm.as_mut().reset(clock::after(clock::now(), time).into());
    }

    /// Pings a silent peer; ends the connection of one that does not respond.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.alarm.as_mut().poll(cx));
        if self.is_pinged || self.machine.is_closing() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.machine.ping(&mut self.out);
        self.rest(true, PING_TIME);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads what the peer sends: responses to pings, and the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let input = &mut self.accepted.input;
        if input.capacity() - input.len() < READ_BYTES {
            match input.is_empty() {
                true => *input = lend(),
                false => input.reserve(READ_BYTES),
            }
        }
        let read = pin!(self.accepted.io.read_buf(input)).poll(cx)?;
        let Poll::Ready(read) = read else {
            // Idle connections hold no buffers.
            if input.is_empty() {
                take_back(std::mem::take(input));
            }
            return Poll::Pending;
        };
        if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let Accepted { shared, shard, .. } = &self.accepted;
        shared.metrics.received(*shard, ConnectionProtocol::WEBSOCKET, read);
        self.is_pinged = false;
        self.receive()?;
        Poll::Ready(Ok(()))
    }

    /// Handles the frames of the peer.
    fn receive(&mut self) -> io::Result<()> {
        let mut input = Input::new(std::mem::take(&mut self.accepted.input));
        let received = loop {
            self.discarded.clear();
            match self.machine.recv(&mut input, &mut self.discarded, &mut self.out) {
                Ok(None) => break Ok(()),
                Ok(Some(Event::Pong)) => {}
                Ok(Some(Event::Closed(_))) => break Ok(()),
                Ok(Some(Event::Data { .. })) => {
                    self.end(close::UNSUPPORTED, "this path sends messages and receives none");
                }
                Err(fatal) => break Err(io::Error::other(fatal.to_string())),
            }
        };
        self.discarded = BytesMut::new();
        self.accepted.input = input.into_buffer();
        received
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Accepted { io, shared, shard, .. } = &mut self.accepted;
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 8];
            let filled = self.out.fill(&mut slices);
            match ready!(Pin::new(&mut **io).poll_write_vectored(cx, &slices[..filled]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    shared.metrics.sent(*shard, ConnectionProtocol::WEBSOCKET, written);
                    self.out.advance(written);
                }
            }
        }
        self.out.release();
        self.unsent = None;
        Pin::new(&mut **io).poll_flush(cx)
    }
}

/// Close code of RFC 6455 for an unexpected condition.
const INTERNAL: u16 = 1011;

impl Future for PieceSender {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_turns(cx).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(peer = %self.accepted.peer.address, "websocket ended: {error}");
            }
        })
    }
}
