//! The client side of a protocol.

use super::{ClientEvent, Codec, Encoding, Fatal};
use crate::{Input, Kind, Metadata, Outbox, Outgoing, SchemaId, Status};
use bytes::Bytes;
use std::time::Duration;

/// Properties of a call that a client sends before its first message.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    /// Number that [`ClientWire::method`] assigned to the method.
    pub method: u16,
    /// Codec of the messages.
    pub codec: Codec,
    /// Time that is left for the call. The wire decides on the resolution and never rounds down.
    pub timeout: Option<Duration>,
    /// Metadata of the caller.
    pub metadata: &'a Metadata,
    /// The call has no reply.
    pub oneway: bool,
    /// True if more messages follow the first.
    pub more: bool,
    /// Encoding of compressed messages, in both directions; one that the server [accepts](ClientWire::accepts).
    pub encoding: Encoding,
    /// True if the first message is compressed.
    pub compressed: bool,
    /// Further parts of the first message, if it is large and in several parts.
    pub rest: &'a [Bytes],
}

/// Id of a call that a client opens, unique on its connection according to [`CallIds`].
pub type ClientCallId = u64;

/// Rule by which the driver chooses the ids of calls, so that a late reply never reaches another call.
///
/// Ids count up from 0 and wrap at the width of the field that carries them. Ids of calls in flight are skipped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: channels have a table for each width
pub enum CallIds {
    /// The field has 64 bits: ids are below 2^63 and never repeat on a connection.
    Wide,
    /// The field has 32 bits, and the server sends nothing for a call after it has read its
    /// [`cancel`](ClientWire::cancel). An id repeats after 2^32 calls, whose frames the server has then read.
    Canceled,
    /// The field has 32 bits, of which 31 are used, and the server responds to each call, canceled or not: the id of an
    /// abandoned call stays reserved until its reply has arrived.
    Reserved,
    /// Ids number the streams of HTTP/2: they are below 2^30 and never repeat on a connection, which the wire ends with
    /// [`GoAway`](ClientEvent::GoAway) before they do.
    Streams,
}

impl CallIds {
    /// Returns the bits that ids use.
    pub const fn mask(self) -> ClientCallId {
        match self {
            CallIds::Wide => i64::MAX as ClientCallId,
            CallIds::Canceled => u32::MAX as ClientCallId,
            CallIds::Reserved => i32::MAX as ClientCallId,
            CallIds::Streams => (1 << 30) - 1,
        }
    }
}

/// State machine of a client connection, of one protocol.
///
/// The driver chooses the numbers of methods and the ids of calls according to [`call_ids`](Self::call_ids), and tracks
/// the calls in flight.
pub trait ClientWire: Send {
    /// Returns the name in messages.
    fn name(&self) -> &'static str;

    /// Writes the beginning of a connection, if it is more than the first call; called once, before anything else.
    fn greet(&mut self, _out: &mut Outbox) {}

    /// Returns the rule for ids of calls on this wire.
    fn call_ids(&self) -> CallIds;

    /// Assigns the number `number` to the method `name` (`package.Service/Method`) on this connection; called once,
    /// before the first call of the method. A server that was built from another `schema` rejects calls on postcard.
    fn method(&mut self, number: u16, name: &str, schema: Option<SchemaId>, out: &mut Outbox);

    /// Declares that the method with this number streams, in one direction or both; called after
    /// [`method`](Self::method).
    fn streams(&mut self, _number: u16, _kind: Kind) {}

    /// Sets the index of the method with this number in its service, from 0, as in a `.proto` file; called after
    /// [`method`](Self::method).
    fn index(&mut self, _number: u16, _index: u16) {}

    /// Begins a call, with its first message if it has one.
    ///
    /// # Errors
    /// Returns an error for a message larger than the peer accepts, for metadata over the limit, and for a kind of call
    /// that the wire cannot carry. Nothing is written then.
    fn open(
        &mut self,
        id: ClientCallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status>;

    /// Sends a further message, `compressed` with the encoding of the call or uncompressed; only on a wire with
    /// streams.
    ///
    /// # Errors
    /// Returns an error for a message larger than the peer accepts.
    fn item(
        &mut self,
        _id: ClientCallId,
        _item: &Bytes,
        _compressed: bool,
        _out: &mut Outbox,
    ) -> Result<(), Status> {
        Err(no_streams(self.name()))
    }

    /// Returns true while messages of the call wait in the machine for the server. The driver sends no further ones
    /// until an event [`Credit`](ClientEvent::Credit) for the call.
    fn is_blocked(&self, _id: ClientCallId) -> bool {
        false
    }

    /// Announces that no more messages follow; has no effect on a wire without streams.
    fn half_close(&mut self, _id: ClientCallId, _out: &mut Outbox) {}

    /// Cancels a call; has no effect on a wire without cancellation, which drops a late reply.
    fn cancel(&mut self, _id: ClientCallId, _out: &mut Outbox) {}

    /// Lets the server send `bytes` more of a stream; has no effect on a wire without credit.
    fn credit(&mut self, _id: ClientCallId, _bytes: u32, _out: &mut Outbox) {}

    /// Sends a ping, if the server [responds to pings](Self::responds_to_pings).
    fn ping(&mut self, _out: &mut Outbox) {}

    /// Returns true if servers respond to a [`ping`](Self::ping). Otherwise silence does not mean that a connection
    /// with running calls is dead.
    fn responds_to_pings(&self) -> bool {
        false
    }

    /// Returns true once the server has closed the connection because of too many pings: further connections ping half
    /// as often.
    fn refuses_pings(&self) -> bool {
        false
    }

    /// Returns true if the server may refuse a call after it was sent, and says that it did not begin. The driver then
    /// keeps the requests of calls in flight, to send them once more.
    fn may_refuse_sent_calls(&self) -> bool {
        false
    }

    /// Returns true if [`recv`](Self::recv) has events without further input: another function has caused them.
    fn has_events(&self) -> bool {
        false
    }

    /// Bytes of calls that the machine holds until the server has responded; they count as waiting to be written.
    fn queued_bytes(&self) -> usize {
        0
    }

    /// Number of calls that may be in flight: the lower of both sides' limits.
    fn calls_max(&self) -> u32;

    /// Number of methods that may be named: their numbers are below this.
    fn methods_max(&self) -> u16 {
        u16::MAX
    }

    /// Returns true if the settings of the server have arrived, or if the wire has none.
    fn knows_server(&self) -> bool {
        true
    }

    /// Returns true if the server accepts messages in this encoding; only uncompressed ones until its settings arrive.
    fn accepts(&self, encoding: Encoding) -> bool;

    /// Returns true if the server [accepts](Self::accepts) compressed messages in streams too.
    fn compresses_streams(&self) -> bool {
        true
    }

    /// Largest message that the server accepts, in bytes before compression.
    fn message_bytes_max(&self) -> u32;

    /// Bytes that may be sent of a new stream before the server grants credit; `u32::MAX` on a wire without credit.
    fn send_window(&self) -> u32 {
        u32::MAX
    }

    /// Bytes of a stream that a server may send ahead of its reader, where `configured` is the configured window. The
    /// result is larger on a wire that does not advertise it and whose servers have a window of their own.
    fn receive_window(&self, configured: u32) -> u32 {
        configured
    }

    /// Returns true if the wire advertises the number of bytes of a stream that servers may send. A server that exceeds
    /// the window then breaks the protocol, and its call ends. If servers have windows of their own, nothing more is
    /// read until the reader has consumed enough.
    fn advertises_windows(&self) -> bool {
        true
    }

    /// Returns true if the machine itself ends calls whose server exceeds the window. The driver then does not.
    fn enforces_windows(&self) -> bool {
        false
    }

    /// Returns true if the wire carries the [attachment](Metadata::attachment) of a call. Otherwise calls with one
    /// fail.
    fn carries_attachments(&self) -> bool {
        false
    }

    /// Reads the next reply up to its message if it is next and completely received; everything else is left to
    /// [`recv`](Self::recv). Returns the length of the message, which the caller takes from `input`, directly to its
    /// destination. Replies come in runs, and an event costs more than the reply itself.
    fn next_reply(&mut self, _input: &mut Input) -> Option<(ClientCallId, usize)> {
        None
    }

    /// Reads the next reply like [`next_reply`](Self::next_reply), and takes its message.
    fn take_reply(&mut self, input: &mut Input) -> Option<(ClientCallId, Bytes)> {
        self.next_reply(input).map(|(id, len)| (id, input.take(len)))
    }

    /// Takes the next complete unit from `input`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error for bytes after which the connection cannot continue.
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal>;
}

/// Creates the status of a wire without streams for a call that has more than one message.
pub(crate) fn no_streams(wire: &str) -> Status {
    Status::unimplemented(format!("{wire} carries no streams; the native wire, gRPC and Connect do"))
}
