//! The client's side of a protocol.

use super::{CallId, ClientEvent, Codec, Encoding, Fatal};
use crate::{Input, Metadata, Outbox, Outgoing, SchemaId, Status};
use bytes::Bytes;
use std::time::Duration;

/// What a client says of a call before its first message.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    /// Number that [`ClientWire::method`] gave to the method.
    pub method: u16,
    /// How the messages are written.
    pub codec: Codec,
    /// Time that is left for the call; how finely it is carried is the wire's to say, never shorter than it is.
    pub timeout: Option<Duration>,
    /// What the caller adds.
    pub metadata: &'a Metadata,
    /// No reply is wanted.
    pub oneway: bool,
    /// Whether messages follow after the first.
    pub more: bool,
    /// How messages may be compressed, both ways; one that the server [takes](ClientWire::takes).
    pub encoding: Encoding,
    /// Whether the first message is compressed.
    pub compressed: bool,
    /// What the first message goes on with, if it is large and not in one piece.
    pub rest: &'a [Bytes],
}

/// One connection's machine, of one protocol.
///
/// The driver chooses the numbers of calls and methods, and knows which calls are in flight. A number is that of no
/// other call while its call is in flight; the number of an ended call is not used again soon.
pub trait ClientWire: Send {
    /// The name in messages.
    fn name(&self) -> &'static str;

    /// Writes what a connection begins with, if it does with more than its first call; once, before anything else.
    fn greet(&mut self, _out: &mut Outbox) {}

    /// Gives `name`, which is `package.Service/Method`, the number `number` on this connection; once, before the first
    /// call of the method. Calls on postcard are refused by a server that was built from another `schema`.
    fn method(&mut self, number: u16, name: &str, schema: Option<SchemaId>, out: &mut Outbox);

    /// The method of this number streams, in one direction or both; said after its name.
    fn streams(&mut self, _number: u16) {}

    /// The method of this number has this place in its service, from 0, as a `.proto` file says; said after its name.
    fn index(&mut self, _number: u16, _index: u16) {}

    /// Begins a call, with its first message if it has one.
    ///
    /// # Errors
    /// A message larger than the peer takes, metadata over the limit, or a call of a kind that the wire cannot carry.
    /// Nothing was written then.
    fn open(
        &mut self,
        id: CallId,
        open: Open<'_>,
        first: Option<Outgoing<'_>>,
        out: &mut Outbox,
    ) -> Result<(), Status>;

    /// Sends a further message, as it is or `compressed` with the encoding of the call; only on a wire with streams.
    ///
    /// # Errors
    /// A message larger than the peer takes.
    fn item(
        &mut self,
        _id: CallId,
        _item: &Bytes,
        _compressed: bool,
        _out: &mut Outbox,
    ) -> Result<(), Status> {
        Err(no_streams(self.name()))
    }

    /// Says that no more messages follow; nothing on a wire without streams.
    fn half_close(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Gives up on a call; nothing on a wire that cannot say it, where a late answer is dropped.
    fn cancel(&mut self, _id: CallId, _out: &mut Outbox) {}

    /// Lets the server send `bytes` more of a stream; nothing on a wire without credit.
    fn credit(&mut self, _id: CallId, _bytes: u32, _out: &mut Outbox) {}

    /// Asks the server for a sign of life, if it [answers](Self::answers_pings).
    fn ping(&mut self, _out: &mut Outbox) {}

    /// Whether servers answer a [`ping`](Self::ping). Where they cannot, silence proves nothing while calls run.
    fn answers_pings(&self) -> bool {
        false
    }

    /// Calls that may be in flight: the least of both sides' limits.
    fn calls_max(&self) -> u32;

    /// Methods that may be named: their numbers are below this.
    fn methods_max(&self) -> u16 {
        u16::MAX
    }

    /// Whether the server has said what it takes, or never does.
    fn knows_server(&self) -> bool {
        true
    }

    /// Whether the server reads messages in this encoding; only plain ones until it has said so.
    fn takes(&self, encoding: Encoding) -> bool;

    /// Whether it [takes](Self::takes) them in streams too.
    fn compresses_streams(&self) -> bool {
        true
    }

    /// Largest message that the server takes, in bytes before compression.
    fn message_bytes_max(&self) -> u32;

    /// Bytes that may be sent of a new stream before the server gave credit; `u32::MAX` on a wire without credit.
    fn send_window(&self) -> u32 {
        u32::MAX
    }

    /// Bytes of a stream that a server may send ahead of its reader, where servers are told so many: more on a wire
    /// that tells them nothing, and whose servers keep a window of their own.
    fn receive_window(&self, told: u32) -> u32 {
        told
    }

    /// Whether the [attachment](Metadata::attachment) of a call has a place. Calls with one fail where it has not.
    fn carries_attachments(&self) -> bool {
        false
    }

    /// Goes to the message of the next reply if that is what comes next and all of it is there; everything else is for
    /// [`recv`](Self::recv). Its length is that of the message, which the caller takes from `input`, straight to where
    /// it is to be. Replies come in runs, and an event costs more than the reply itself.
    fn next_reply(&mut self, _input: &mut Input) -> Option<(CallId, usize)> {
        None
    }

    /// The same with its message.
    fn take_reply(&mut self, input: &mut Input) -> Option<(CallId, Bytes)> {
        self.next_reply(input).map(|(id, len)| (id, input.take(len)))
    }

    /// Takes the next whole unit from `input`; none means that more bytes are needed.
    ///
    /// # Errors
    /// Bytes after which the stream cannot be followed any more.
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ClientEvent>, Fatal>;
}

/// The answer of a wire without streams to a call that has more than one message.
pub(crate) fn no_streams(wire: &str) -> Status {
    Status::unimplemented(format!("{wire} carries no streams; the native wire, gRPC and Connect do"))
}
