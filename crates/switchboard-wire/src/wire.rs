//! Traits of a wire: one protocol, one role, one connection.
//!
//! The driver reads bytes into an [`Input`] and calls `recv` until it returns no more events. The driver handles each
//! event before the next call. Commands append bytes to the [`Outbox`]; the driver writes them when the read side is
//! drained. A machine that returns [`Fatal`] is finished: the driver writes the outbox and closes the connection.

mod boxed;
mod client;

pub(crate) use client::no_streams;
pub use client::{CallIds, ClientCallId, ClientWire, Open};

pub use crate::codec::{Codec, Encoding, Encodings};
use crate::{Input, Metadata, MethodId, Outbox, Outgoing, Status};
use bytes::Bytes;
use std::{fmt, time::Duration};

/// Number of a call on its connection.
pub type CallId = u32;

/// Properties of a call that precede its first message.
#[derive(Clone, Debug)]
pub struct Head {
    /// Number of the method in the table of the server.
    pub method: MethodId,
    /// Full name of the method, if no service declares it.
    pub undeclared_name: Option<crate::UndeclaredName>,
    /// Codec of messages and replies.
    pub codec: Codec,
    /// Encoding of compressed messages of the caller; each message declares whether it is compressed.
    pub encoding: Encoding,
    /// Encoding of compressed replies; most wires have one for both directions.
    pub replies: Encoding,
    /// Time that is left for the call; `None` means no deadline.
    pub timeout: Option<Duration>,
    /// Metadata of the caller.
    pub metadata: Metadata,
    /// The call has no reply.
    pub oneway: bool,
}

/// A call in its simplest form: one message, no metadata.
#[derive(Debug)]
pub struct Opened {
    /// Number of the call.
    pub id: CallId,
    /// The method.
    pub method: MethodId,
    /// Codec of the messages.
    pub codec: Codec,
    /// Encoding of compressed replies. The message of the call is not compressed.
    pub replies: Encoding,
    /// Time that is left for the call.
    pub timeout: Option<Duration>,
    /// Size of its message in bytes.
    pub len: usize,
}

/// A message that a server sends outside of any call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Push {
    /// Subject of the message, in two parts: `Service/Method`. Sender and receiver agree on them; there need not be a
    /// service with this name.
    pub path: String,
    /// Metadata of the sender.
    pub metadata: Metadata,
    /// The message, in a codec on which both sides agree.
    pub message: Bytes,
    /// Codec of the message, if the wire carries it; `Raw` if unspecified.
    pub codec: Codec,
}

impl Push {
    /// Creates a push without metadata and with an unspecified codec.
    pub fn new(path: impl Into<String>, message: impl Into<Bytes>) -> Push {
        Push { path: path.into(), metadata: Metadata::new(), message: message.into(), codec: Codec::Raw }
    }

    /// Sets the codec of the message. A peer of eRPC that reads more than bytes requires it; a wire without a number
    /// for the codec does not send it.
    #[must_use]
    pub fn with_codec(mut self, codec: Codec) -> Push {
        self.codec = codec;
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Push {
        self.metadata = metadata;
        self
    }

    /// Returns service and method of the path; a path without a slash is a service.
    pub fn names(&self) -> (&str, &str) {
        self.path.rsplit_once('/').unwrap_or((&self.path, ""))
    }

    /// Approximate memory of the push, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Push>() + self.path.len() + self.metadata.encoded_len() + self.message.len()
    }
}

/// Limits of a wire for a [`Push`], in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushLimits {
    /// Longest path.
    pub path: usize,
    /// Largest [metadata](Metadata::encoded_len).
    pub metadata: usize,
}

/// Memory that a machine uses between two reads on behalf of its peer, beside
/// [waiting responses](ServerWire::unsent_response_bytes).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MachineMemory {
    /// Number of calls that have an entry in the machine. Each is a call that its driver has not ended, or one whose
    /// response is counted in [`ServerWire::unsent_response_bytes`].
    pub calls: usize,
    /// Bytes of those entries, and of partly received messages that have left the input.
    pub bytes: usize,
}

/// Event of a server machine.
#[derive(Debug)]
// closed: a driver must handle each event
pub enum ServerEvent {
    /// A call begins. `first` is its first message; if `more` is false it is also the last.
    Open {
        /// Number of the call.
        id: CallId,
        /// Properties of the call.
        head: Head,
        /// The first message, if it arrived with the head.
        first: Option<Bytes>,
        /// True if `first` is compressed.
        compressed: bool,
        /// True if more messages may follow.
        more: bool,
    },
    /// A further message.
    Item {
        /// Number of the call.
        id: CallId,
        /// The message.
        item: Bytes,
        /// True if it is compressed, with the encoding of the call.
        compressed: bool,
    },
    /// The caller sends no more messages.
    HalfClose {
        /// Number of the call.
        id: CallId,
    },
    /// The caller canceled the call.
    Cancel {
        /// Number of the call.
        id: CallId,
    },
    /// The caller can accept more bytes of messages.
    Credit {
        /// Number of the call.
        id: CallId,
        /// Bytes granted in addition to those granted before.
        bytes: u32,
    },
    /// The peer has accepted the bytes of a stream that [waited](ServerWire::is_blocked) for it.
    Resume {
        /// Number of the call.
        id: CallId,
    },
    /// The machine rejects input of the call: the driver ends the call with this status.
    Refused {
        /// Number of the call.
        id: CallId,
        /// Reason.
        status: Status,
    },
    /// The peer responded to a ping.
    Pong,
    /// The peer has ended the connection in order; nothing follows.
    Closed,
    /// The machine handled the input itself, and there may be more.
    Handled,
}

/// Event of a client machine.
#[derive(Debug)]
// closed: a driver must handle each event
pub enum ClientEvent {
    /// Reply metadata, before any message.
    Head {
        /// Number of the call.
        id: ClientCallId,
        /// Metadata of the server.
        metadata: Metadata,
    },
    /// Codec of the reply that follows, if it may differ from that of the call.
    ReplyCodec {
        /// Number of the call.
        id: ClientCallId,
        /// The codec of the reply.
        codec: Codec,
    },
    /// The only message and the end of a call that succeeded.
    Reply {
        /// Number of the call.
        id: ClientCallId,
        /// The message.
        item: Bytes,
        /// True if it is compressed, with the encoding of the call.
        compressed: bool,
    },
    /// A message of a stream.
    Item {
        /// Number of the call.
        id: ClientCallId,
        /// The message.
        item: Bytes,
        /// True if it is compressed, with the encoding of the call.
        compressed: bool,
    },
    /// The end of a call, with trailers or an error.
    End {
        /// Number of the call.
        id: ClientCallId,
        /// Trailers of a call that succeeded, or its error.
        end: Result<Metadata, Status>,
    },
    /// The server can accept more bytes of messages.
    Credit {
        /// Number of the call.
        id: ClientCallId,
        /// Bytes granted in addition to those granted before.
        bytes: u32,
    },
    /// The server sent its settings.
    Settings {
        /// Number of bytes by which the windows of all calls grow, including those in flight.
        window_growth: u32,
    },
    /// The server accepts no further calls on this connection.
    GoAway {
        /// Reason.
        status: Status,
    },
    /// The server sends a push.
    Push(Box<Push>),
    /// The peer responded to a ping.
    Pong,
}

/// The server side of a protocol.
pub trait ServerWire: Send {
    /// Returns the name in metrics and messages.
    fn name(&self) -> &'static str;

    /// Reads the next call up to its message if it is in the simplest form: unary, without metadata, completely
    /// received. Everything else is left to [`recv`](Self::recv). The caller takes the message from `input`, directly
    /// to its destination. Such calls come in runs, and an event costs more than the frame itself.
    #[inline(always)]
    fn next_call(&mut self, _input: &mut Input) -> Option<Opened> {
        None
    }

    /// Takes the next complete unit from `input`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error for bytes after which the connection cannot continue.
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal>;

    /// Ends a call with its only message.
    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox);

    /// Ends a call with its only message, which is large and in several parts.
    fn reply_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        let whole = Bytes::from(parts.concat());
        self.reply(id, (&whole).into(), out);
    }

    /// Ends a call with its only message, which is `compressed` with the encoding of its call or has `trailers`.
    /// Trailers that the wire cannot carry are left out. Only calls that named an encoding get compressed messages.
    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    );

    /// Sends reply metadata; at most once per call, before any message.
    fn head(&mut self, id: CallId, metadata: &Metadata, out: &mut Outbox);

    /// Sends a message of a stream, `compressed` with the encoding of its call or uncompressed; only on a wire with
    /// streams.
    fn item(&mut self, id: CallId, _item: &Bytes, _compressed: bool, out: &mut Outbox) {
        let text = format!("a stream message on {}, which has no streams", self.name());
        self.end(id, Err(&Status::internal(text)), out);
    }

    /// Ends a call.
    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox);

    /// Lets the peer send `bytes` more of a stream; has no effect on a wire without credit.
    fn credit(&mut self, _id: CallId, _bytes: u32, _out: &mut Outbox) {}

    /// Sends a ping, if the peer [responds to pings](Self::responds_to_pings).
    fn ping(&mut self, _out: &mut Outbox) {}

    /// Announces that this side accepts no further calls; `reason` is human-readable. Calls that are already in flight
    /// to this side are still accepted. On a wire without such a frame peers notice it when their calls are rejected,
    /// or by the end of the connection.
    fn drain(&mut self, _reason: &str, _out: &mut Outbox) {}

    /// Rejects all further calls: the peer has had time to receive the announcement of [`drain`](Self::drain).
    fn refuse(&mut self);

    /// Bytes that this side may send of a new stream before it gets credit; `u32::MAX` on a wire without credit.
    fn send_window(&self) -> u32 {
        u32::MAX
    }

    /// Returns the size limits for pushes; `None` on a wire without server push.
    fn pushes(&self) -> Option<PushLimits> {
        None
    }

    /// Sends a push, if the wire [supports it](Self::pushes).
    fn push(&mut self, _push: &Push, _out: &mut Outbox) {}

    /// Bytes of a stream that a peer may send ahead of its reader, where `configured` is the configured window. The
    /// result is larger on a wire that does not advertise it and whose peers have a window of their own.
    fn receive_window(&self, configured: u32) -> u32 {
        configured
    }

    /// Returns true if the wire advertises the number of bytes of a stream that peers may send. A peer that exceeds the
    /// window then breaks the protocol, and its call ends. If peers have windows of their own, nothing more is read
    /// until the reader has consumed enough.
    fn advertises_windows(&self) -> bool {
        true
    }

    /// Bytes of responses that wait in the machine and not in the outbox; they are counted like those in the outbox.
    /// They must be sent without further input.
    #[inline]
    fn unsent_response_bytes(&self) -> usize {
        0
    }

    /// Bytes of responses that wait in the machine until the peer accepts them. They are held by reference, count for
    /// the memory of the connection, and do not stop reading: the peer's credit has to be read.
    #[inline]
    fn waiting_bytes(&self) -> usize {
        0
    }

    /// Returns true if messages of the stream wait until the peer accepts them; [`ServerEvent::Resume`] reports the end
    /// of the wait. The driver polls for no further messages of the stream before.
    #[inline]
    fn is_blocked(&self, _id: CallId) -> bool {
        false
    }

    /// Sets the time, in milliseconds of an origin of the driver; called once per turn, before anything else.
    #[inline]
    fn at(&mut self, _now_ms: u64) {}

    /// Returns the entries of calls and the parts of messages that the machine stores; the driver charges them to the
    /// memory of the connection. A wire without entries returns the default. Runs in constant time.
    fn memory(&self) -> MachineMemory;

    /// Returns true if ends of streams are held until their callers may receive them. The driver then calls
    /// [`release_ends`](Self::release_ends) every `stream_end_delay` until none is held.
    #[inline]
    fn holds_ends(&self) -> bool {
        false
    }

    /// Writes the ends of streams that were already held at the previous call: each waits for one to two periods.
    fn release_ends(&mut self, _out: &mut Outbox) {}

    /// Rejects messages over this size from now on, even if they are within the limits: there is no memory for them.
    /// Wires that cannot reject a message before they have received it need not implement this.
    fn take_at_most(&mut self, _bytes: u32) {}

    /// Returns true if peers respond to a [`ping`](Self::ping). Otherwise silence does not mean that a connection with
    /// running calls is dead.
    fn responds_to_pings(&self) -> bool {
        false
    }

    /// Returns true while the machine holds a request that the peer has begun and that is no event yet. A drained
    /// connection stays open for it.
    fn has_partial_calls(&self) -> bool {
        false
    }

    /// Writes the final frames before the driver closes the connection in order; the driver sends them first. Returns
    /// true if the peer responds to them; the response ends the driver's wait.
    fn close(&mut self, _out: &mut Outbox) -> bool {
        false
    }
}

/// Unrecoverable protocol error; the connection ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fatal(pub String);

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fatal {}
