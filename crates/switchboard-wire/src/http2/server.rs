//! The server side of an HTTP/2 connection, for gRPC.
//!
//! The machine counts both windows in both directions itself: its driver may send at any time, and bytes that the peer
//! does not accept yet wait here, by reference.

mod bodies;
mod frames;
mod replies;
mod requests;
mod simple;

use super::{
    abuse_budget::{AbuseBudget, Pings},
    frame::{ConnectionError, ErrorCode, WINDOW_MAX, put_go_away, put_ping, put_reset, put_window_update},
    hpack::{self, Blocks, Decoder},
    send::{Sending, Waiting},
    settings::Settings,
    streams::{Resets, Streams},
    window::{ReceiveWindow, SendWindow},
};
use crate::{
    Encoding, Encodings, Fatal, Input, Limits, Metadata, MethodId, MethodTable, Outbox, Outgoing, Status,
    http::{
        dialect::grpc::{Assembly, Form},
        fields::DecodedField,
        head::PlainHead,
    },
    wire::{CallId, Head, MachineMemory, Opened, ServerEvent, ServerWire},
};
use bytes::Bytes;
use frames::Reading;
use requests::PartialBlock;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Most streams that a peer may have open; peers queue the calls above this limit.
const STREAMS_MAX: u32 = 1000;
/// Bytes in flight to one stream, and to the connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Largest payload of a frame. DATA is passed on as it arrives, so its size costs no memory.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Content of the PING that follows the notice of a drain.
const DRAIN_PING: [u8; 8] = *b"draining";

/// Options of a server connection.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Shortest time between two pings of an idle peer in milliseconds; 0 allows any number of pings.
    pub ping_interval_ms: u64,
    /// Time in milliseconds without credit after which a stream with waiting bytes is reset, when the peer sends
    /// something; 0 for no limit.
    pub stall_ms: u64,
}

impl ServerOptions {
    /// Sets the shortest time between two pings of an idle peer in milliseconds.
    #[must_use]
    pub fn with_ping_interval_ms(mut self, ping_interval_ms: u64) -> ServerOptions {
        self.ping_interval_ms = ping_interval_ms;
        self
    }

    /// Sets the time in milliseconds without credit after which a stream with waiting bytes is reset. It is checked
    /// when the peer sends something: a peer that sends nothing is subject to the keepalive of the driver.
    #[must_use]
    pub fn with_stall_ms(mut self, stall_ms: u64) -> ServerOptions {
        self.stall_ms = stall_ms;
        self
    }
}

/// State machine of a server connection.
#[derive(Debug)]
pub struct Server {
    limits: Limits,
    table: Arc<MethodTable>,
    encodings: Encodings,
    /// Largest message for which memory is available, in bytes.
    room: u32,
    reading: Reading,
    decoder: Decoder<DecodedField>,
    blocks: Blocks<PlainHead>,
    /// Head that `next_call` has decoded and left to `recv`.
    decoded: Option<requests::Decoded>,
    /// A header block that continues in further frames.
    partial: Option<PartialBlock>,
    streams: Streams<Stream>,
    resets: Resets,
    /// The last stream of the peer.
    last: u32,
    /// Window of the connection for bodies of requests.
    window: ReceiveWindow,
    sending: Sending,
    /// Streams whose waiting bytes were sent.
    resumed: VecDeque<u32>,
    /// Calls that this side has reset, for the driver.
    canceled: VecDeque<u32>,
    stall_ms: u64,
    /// No waiting bytes were last sent, or began to wait, before this time.
    progress: u64,
    budget: AbuseBudget,
    pings: Pings,
    /// Time in milliseconds, of an origin of the driver.
    now: u64,
    /// Bytes of requests that are not events yet.
    held: usize,
    greeted: bool,
    phase: Phase,
}

/// Phase of a connection; it only moves forward.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Phase {
    Open,
    /// The peer was notified to start no further calls.
    Draining,
    /// Further calls are refused; the peer is to be notified of the last one.
    Refusing,
    /// The peer knows the last call, or the connection has failed.
    Final,
}

/// An open stream.
#[derive(Debug)]
struct Stream {
    method: MethodId,
    form: Form,
    replies: Encoding,
    /// The peer has ended its side.
    remote_ended: bool,
    /// The driver knows the call.
    opened: bool,
    head_sent: bool,
    /// Time in milliseconds at which it was opened.
    began: u64,
    send: SendWindow,
    window: ReceiveWindow,
    /// Bytes of messages that their reader has not taken.
    unread: u32,
    /// The request, until it is complete or refused.
    body: Option<Box<Body>>,
    waiting: Option<Box<Waiting>>,
    /// Head of a call that begins with its only message.
    plain: Option<PlainHead>,
    /// It is in the queue of blocked streams.
    is_queued: bool,
}

impl Stream {
    /// Returns the part of a timeout that is left at this time.
    fn left(&self, timeout: Option<Duration>, now: u64) -> Option<Duration> {
        timeout.map(|timeout| timeout.saturating_sub(Duration::from_millis(now.saturating_sub(self.began))))
    }

    /// Returns true if the call has ended and its response waits.
    fn is_answered(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.end.is_some())
    }
}

/// A request whose body is being received.
#[derive(Debug)]
struct Body {
    /// Head of a call that begins with its whole request.
    head: Option<Head>,
    encoding: Encoding,
    /// The only message of such a call, and whether it is compressed.
    first: Option<(Bytes, bool)>,
    assembly: Assembly,
    /// Status in HTTP and text of the response to a request that is no call; sent when the request has ended.
    no_call: Option<(u16, &'static str)>,
    /// Length of the body as the head states it.
    length: Option<u64>,
    received: u64,
}

impl Body {
    fn new(head: Option<Head>, encoding: Encoding) -> Body {
        let assembly = Assembly::default();
        Body { head, encoding, first: None, assembly, no_call: None, length: None, received: 0 }
    }

    /// Returns the bytes that it holds, beside the entry of its stream. The metadata of its head does not change.
    fn memory_bytes(&self) -> usize {
        let metadata = self.head.as_ref().map_or(0, |head| {
            head.metadata.encoded_len() + head.metadata.len() * size_of::<(Bytes, Bytes)>()
        });
        let first = self.first.as_ref().map_or(0, |(message, _)| message.len());
        size_of::<Body>() + metadata + first + self.assembly.memory_bytes()
    }
}

impl Server {
    /// Creates the state machine of a newly accepted connection, before its preface.
    pub fn new(
        limits: Limits,
        table: Arc<MethodTable>,
        encodings: Encodings,
        options: ServerOptions,
    ) -> Server {
        Server {
            limits,
            table,
            encodings,
            room: u32::MAX,
            reading: Reading::Preface,
            decoder: Decoder::of_values(hpack::TABLE_BYTES),
            blocks: Blocks::default(),
            decoded: None,
            partial: None,
            streams: Streams::default(),
            resets: Resets::default(),
            last: 0,
            window: ReceiveWindow::of_connection(CONNECTION_WINDOW),
            sending: Sending::new(encodings),
            resumed: VecDeque::new(),
            canceled: VecDeque::new(),
            stall_ms: options.stall_ms,
            progress: 0,
            budget: AbuseBudget::default(),
            pings: Pings::new(options.ping_interval_ms),
            now: 0,
            held: 0,
            greeted: false,
            phase: Phase::Open,
        }
    }

    /// Returns the number of streams that the peer may have open.
    fn streams_max(&self) -> u32 {
        self.limits.calls_max.min(STREAMS_MAX)
    }

    /// Writes the settings once.
    #[cold]
    fn greet(&mut self, out: &mut Outbox) {
        if std::mem::replace(&mut self.greeted, true) {
            return;
        }
        let settings = Settings {
            streams_max: self.streams_max(),
            window_bytes: STREAM_WINDOW,
            frame_bytes_max: FRAME_BYTES_MAX,
            header_list_bytes_max: self.limits.metadata_bytes_max,
            ignores_priorities: true,
            ..Settings::default()
        };
        settings.put(out.tail());
        self.update_window(out);
    }

    /// Announces released bytes of the connection's window.
    #[inline]
    fn update_window(&mut self, out: &mut Outbox) {
        if let Some(increment) = self.window.update() {
            put_window_update(0, increment, out.tail());
        }
    }

    /// Takes a token of the abuse budget.
    fn charge(&mut self) -> Result<(), ConnectionError> {
        if self.budget.take() {
            return Ok(());
        }
        let reason = "too many resets, errors, control frames or tiny frames without calls";
        Err(ConnectionError::new(ErrorCode::ENHANCE_YOUR_CALM, reason))
    }

    /// Resets a stream because of an error of the peer; its call ends.
    #[cold]
    fn reset(&mut self, id: u32, code: ErrorCode, out: &mut Outbox) -> Result<ServerEvent, ConnectionError> {
        put_reset(id, code, out.tail());
        self.resets.add(id);
        let event = self.remove(id);
        self.charge()?;
        Ok(event)
    }

    /// Removes a stream without a response; returns the event for the driver.
    fn remove(&mut self, id: u32) -> ServerEvent {
        match self.take(id) {
            Some(stream) if stream.opened && !stream.is_answered() => ServerEvent::Cancel { id },
            _ => ServerEvent::Handled,
        }
    }

    /// Removes a stream with what it stores.
    fn take(&mut self, id: u32) -> Option<Stream> {
        let stream = self.streams.remove(id)?;
        if let Some(body) = &stream.body {
            self.held -= body.memory_bytes();
        }
        if let Some(waiting) = &stream.waiting {
            self.sending.waiting_bytes -= waiting.bytes;
        }
        Some(stream)
    }

    /// Writes the GOAWAY of an error.
    #[cold]
    fn fail(&mut self, error: ConnectionError, out: &mut Outbox) -> Fatal {
        put_go_away(self.last, error.code, error.reason, out.tail());
        self.phase = Phase::Final;
        Fatal(error.reason.to_owned())
    }

    /// Notifies the peer of the last call that is accepted.
    #[cold]
    fn end_drain(&mut self, out: &mut Outbox) {
        put_go_away(self.last, ErrorCode::NO_ERROR, "", out.tail());
        self.phase = Phase::Final;
    }
}

impl ServerWire for Server {
    fn name(&self) -> &'static str {
        "grpc"
    }

    fn next_call(&mut self, input: &mut Input) -> Option<Opened> {
        self.next_unary(input)
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal> {
        if !self.greeted {
            self.greet(out);
        }
        if self.phase == Phase::Refusing {
            self.end_drain(out);
        }
        if self.sending.waiting_bytes > 0
            && self.stall_ms > 0
            && self.now.saturating_sub(self.progress) >= self.stall_ms
        {
            self.end_stalled(out);
        }
        if let Some(id) = self.canceled.pop_front() {
            return Ok(Some(ServerEvent::Cancel { id }));
        }
        if let Some(id) = self.resumed.pop_front() {
            return Ok(Some(ServerEvent::Resume { id }));
        }
        let step = self.step(input, out);
        self.update_window(out);
        step.map_err(|error| self.fail(error, out))
    }

    #[inline]
    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox) {
        self.respond(id, item, false, &Metadata::new(), out);
    }

    fn reply_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        self.respond_in_parts(id, parts, out);
    }

    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    ) {
        self.respond(id, item, compressed, trailers, out);
    }

    fn head(&mut self, id: CallId, metadata: &Metadata, out: &mut Outbox) {
        if let Some(stream) = self.streams.get_mut(id)
            && !std::mem::replace(&mut stream.head_sent, true)
        {
            self.sending.put_head(id, stream.form, stream.replies, metadata, out);
        }
    }

    fn item(&mut self, id: CallId, item: &Bytes, compressed: bool, out: &mut Outbox) {
        self.send_item(id, item.into(), compressed, out);
    }

    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox) {
        self.end_call(id, end, out);
    }

    fn credit(&mut self, id: CallId, bytes: u32, out: &mut Outbox) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let taken = bytes.min(stream.unread);
        stream.unread -= taken;
        stream.window.release(taken);
        if !stream.remote_ended
            && let Some(increment) = stream.window.update()
        {
            put_window_update(id, increment, out.tail());
        }
    }

    fn ping(&mut self, out: &mut Outbox) {
        self.greet(out);
        put_ping([0; 8], false, out.tail());
    }

    fn responds_to_pings(&self) -> bool {
        true
    }

    /// Announces the drain in two steps (RFC 9113, section 6.8): calls are refused when the peer has responded to the
    /// PING, or when the driver [refuses](Self::refuse) them.
    fn drain(&mut self, reason: &str, out: &mut Outbox) {
        self.greet(out);
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            put_go_away(WINDOW_MAX, ErrorCode::NO_ERROR, reason, out.tail());
            put_ping(DRAIN_PING, false, out.tail());
        }
    }

    fn refuse(&mut self) {
        self.phase = self.phase.max(Phase::Refusing);
    }

    fn has_partial_calls(&self) -> bool {
        !self.streams.is_empty()
    }

    fn close(&mut self, out: &mut Outbox) -> bool {
        if self.phase < Phase::Final {
            self.end_drain(out);
        }
        false
    }

    /// Handlers may send at any time: the machine counts the windows.
    fn send_window(&self) -> u32 {
        u32::MAX
    }

    fn receive_window(&self, _configured: u32) -> u32 {
        STREAM_WINDOW
    }

    #[inline]
    fn waiting_bytes(&self) -> usize {
        self.sending.waiting_bytes
    }

    #[inline]
    fn is_blocked(&self, id: CallId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.waiting.is_some())
    }

    #[inline]
    fn at(&mut self, now_ms: u64) {
        self.now = now_ms;
        self.budget.refill(now_ms);
    }

    #[inline]
    fn memory(&self) -> MachineMemory {
        let partial = self.partial.as_ref().map_or(0, PartialBlock::memory_bytes);
        MachineMemory { calls: self.streams.len(), bytes: self.streams.memory_bytes() + self.held + partial }
    }

    fn take_at_most(&mut self, bytes: u32) {
        self.room = bytes;
    }
}

#[cfg(test)]
mod tests;
