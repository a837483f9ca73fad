//! The client side of gRPC on HTTP/2 (RFC 9113).
//!
//! The id of a call is half the number of its stream, so no table maps one to the other. A unary call whose response
//! is plain and complete in the input passes through [`ClientWire::next_reply`] without an event; everything else goes
//! through [`ClientWire::recv`].
//!
//! The machine counts the windows of both directions. Requests that the server's windows do not allow yet, and calls
//! above its limit of streams, wait here in order; they count as [bytes to be written](ClientWire::queued_bytes).

mod body;
mod control;
mod grpc;
mod known;
mod receive;
mod request;
mod response;
mod send;
mod stream;
#[cfg(test)]
mod tests;

use super::{
    frame::{self, ErrorCode},
    hpack::{self, Decoder},
    settings::Settings,
    streams::Streams,
    window::ReceiveWindow,
};
use crate::{
    Fatal, Input, Kind, Limits, Outbox, Outgoing, Retry, SchemaId, Status,
    wire::{CallIds, ClientCallId, ClientEvent, ClientWire, Encoding, Open},
};
use bytes::Bytes;
use known::KnownBlocks;
use receive::Receiving;
use request::RequestHeads;
use send::Sending;
use std::collections::VecDeque;
use stream::{Stream, stream_of};

/// Largest frame that is accepted, in bytes. DATA is passed on as it arrives, so it costs no memory.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Number of streams that may be open before the settings of the server arrive.
const EARLY_STREAMS_MAX: u32 = 100;
/// Streams that are left when the connection is replaced.
const STREAMS_RESERVED: u32 = 1 << 16;
/// Number of the last stream of a connection.
const STREAM_MAX: u32 = frame::WINDOW_MAX;
/// Content of pings.
const PING: [u8; 8] = *b"keepaliv";

/// State machine of a client connection for gRPC.
#[derive(Debug)]
pub struct Client {
    limits: Limits,
    /// Address of the server, for messages.
    peer: Box<str>,
    /// Settings of the server.
    settings: Settings,
    has_settings: bool,
    heads: RequestHeads,
    decoder: Decoder,
    known_heads: KnownBlocks,
    known_ends: KnownBlocks,
    streams: Streams<Stream>,
    /// Number of the lowest stream that was never open.
    next_stream: u32,
    receiving: Receiving,
    /// Window of the connection for what the server sends. Streams have windows of their own, so it is as large as it
    /// can be: a stream without a reader does not stop the others.
    receive_window: ReceiveWindow,
    sending: Sending,
    events: VecDeque<ClientEvent>,
    /// Last stream that the server processes, from its GOAWAY.
    last_stream: Option<u32>,
    /// The end of the numbers of streams was reported.
    is_replaced: bool,
    refuses_pings: bool,
}

impl Client {
    /// Creates the state machine of a new connection to the server at `peer`, which messages name. Requests have this
    /// `authority`, and the scheme `https` if the connection is secure.
    pub fn new(limits: Limits, peer: &str, authority: &str, is_secure: bool) -> Client {
        Client {
            limits,
            peer: peer.into(),
            settings: Settings::default(),
            has_settings: false,
            heads: RequestHeads::new(authority, is_secure),
            decoder: Decoder::new(hpack::TABLE_BYTES),
            known_heads: KnownBlocks::default(),
            known_ends: KnownBlocks::default(),
            streams: Streams::default(),
            next_stream: 1,
            receiving: Receiving::default(),
            receive_window: ReceiveWindow::of_connection(frame::WINDOW_MAX),
            sending: Sending::default(),
            events: VecDeque::new(),
            last_stream: None,
            is_replaced: false,
            refuses_pings: false,
        }
    }

    /// Continues with this number of a stream, as after many calls.
    #[cfg(test)]
    fn with_next_stream(self, next_stream: u32) -> Client {
        Client { next_stream, ..self }
    }

    /// Returns the status of calls that another connection may take.
    fn going_away(&self, reason: &str) -> Status {
        let text = format!("{} takes no more calls: {reason}", self.peer);
        grpc::from_path(crate::Code::Unavailable, text).with_retry(Retry::Safe)
    }

    fn check_open(&self, open: &Open<'_>, message_len: usize) -> Result<(), Status> {
        if self.last_stream.is_some() {
            return Err(self.going_away("the server is going away"));
        }
        if grpc::content_type(open.codec).is_none() {
            let text =
                format!("codec {} is not supported on HTTP; use proto or json, or wire=native", open.codec);
            return Err(Status::unimplemented(text));
        }
        if message_len > self.message_bytes_max() as usize {
            let text = format!("a message of {message_len} bytes is over the 4 GiB of HTTP");
            return Err(Status::resource_exhausted(text));
        }
        if open.metadata.is_empty() {
            return Ok(());
        }
        let sizes =
            open.metadata.iter().map(|(name, value)| name.len() + value.len() + hpack::FIELD_OVERHEAD);
        let (len, max) = (sizes.sum::<usize>(), self.settings.header_list_bytes_max);
        if len > max as usize {
            return Err(Status::resource_exhausted(format!(
                "request metadata of {len} bytes is over the limit of {max} bytes of the server \
                 (SETTINGS_MAX_HEADER_LIST_SIZE)"
            )));
        }
        Ok(())
    }

    /// Reports once that the numbers of streams end soon.
    fn check_numbers(&mut self) {
        if self.next_stream > STREAM_MAX - 2 * STREAMS_RESERVED && !self.is_replaced {
            self.is_replaced = true;
            let status =
                self.going_away("the numbers of its streams end, and another connection replaces it");
            self.events.push_back(ClientEvent::GoAway { status });
        }
    }
}

impl ClientWire for Client {
    fn name(&self) -> &'static str {
        "grpc"
    }

    fn greet(&mut self, out: &mut Outbox) {
        let settings = Settings {
            allows_push: false,
            window_bytes: self.window_bytes(),
            frame_bytes_max: FRAME_BYTES_MAX,
            header_list_bytes_max: self.limits.metadata_bytes_max,
            ..Settings::default()
        };
        let tail = out.tail();
        tail.extend_from_slice(frame::PREFACE);
        settings.put(tail);
        if let Some(increment) = self.receive_window.update() {
            frame::put_window_update(0, increment, tail);
        }
    }

    fn call_ids(&self) -> CallIds {
        CallIds::Streams
    }

    fn method(&mut self, number: u16, name: &str, _schema: Option<SchemaId>, _out: &mut Outbox) {
        self.heads.name(number, name);
    }

    fn streams(&mut self, number: u16, _kind: Kind) {
        self.heads.set_streams(number);
    }

    #[inline]
    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        self.begin(stream_of(id), &open, first, out)
    }

    fn item(
        &mut self,
        id: ClientCallId,
        item: &Bytes,
        compressed: bool,
        out: &mut Outbox,
    ) -> Result<(), Status> {
        if item.len() > self.message_bytes_max() as usize {
            let text = format!("a message of {} bytes is over the 4 GiB of HTTP", item.len());
            return Err(Status::resource_exhausted(text));
        }
        self.send_item(stream_of(id), item, compressed, out);
        Ok(())
    }

    fn half_close(&mut self, id: ClientCallId, out: &mut Outbox) {
        self.end_request(stream_of(id), out);
    }

    fn cancel(&mut self, id: ClientCallId, out: &mut Outbox) {
        let stream = stream_of(id);
        if self.sending.forget(stream) {
            return;
        }
        if self.close(stream).is_some() {
            frame::put_reset(stream, ErrorCode::CANCEL, out.tail());
            self.start_waiting(out);
        }
    }

    fn credit(&mut self, id: ClientCallId, bytes: u32, out: &mut Outbox) {
        let stream = stream_of(id);
        let Some(state) = self.streams.get_mut(stream) else { return };
        let body = state.body.get_or_insert_default();
        body.delivered = body.delivered.saturating_sub(bytes);
        state.receive_window.release(bytes);
        if let Some(increment) = state.receive_window.update() {
            frame::put_window_update(stream, increment, out.tail());
        }
        self.let_in(stream, self.receiving.content_left(stream), out);
    }

    fn is_blocked(&self, id: ClientCallId) -> bool {
        let stream = stream_of(id);
        match self.streams.get(stream) {
            Some(state) => state.body.as_ref().is_some_and(|body| body.pending.bytes() > 0),
            None => self.sending.is_waiting(stream),
        }
    }

    fn ping(&mut self, out: &mut Outbox) {
        frame::put_ping(PING, false, out.tail());
    }

    fn responds_to_pings(&self) -> bool {
        true
    }

    fn refuses_pings(&self) -> bool {
        self.refuses_pings
    }

    fn may_refuse_sent_calls(&self) -> bool {
        true
    }

    #[inline]
    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    #[inline]
    fn queued_bytes(&self) -> usize {
        self.sending.queued_bytes()
    }

    fn calls_max(&self) -> u32 {
        self.limits.calls_max
    }

    fn knows_server(&self) -> bool {
        self.has_settings
    }

    fn accepts(&self, encoding: Encoding) -> bool {
        grpc::encoding_name(encoding).is_some()
    }

    fn message_bytes_max(&self) -> u32 {
        u32::MAX
    }

    fn enforces_windows(&self) -> bool {
        true
    }

    #[inline]
    fn next_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, usize)> {
        self.next_plain_reply(input)
    }

    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal> {
        self.check_numbers();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.step(input, out) {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(increment) = self.receive_window.update() {
                        frame::put_window_update(0, increment, out.tail());
                    }
                    self.start_waiting(out);
                    match self.events.pop_front() {
                        None => return Ok(None),
                        event => return Ok(event),
                    }
                }
                Err(error) => {
                    frame::put_go_away(0, error.code, error.reason, out.tail());
                    return Err(Fatal(error.reason.to_owned()));
                }
            }
        }
    }
}
