//! Traits of a wire: one protocol, one role, one connection.
//!
//! The driver reads bytes into an [`Input`] and calls `recv` until it returns no more events. The driver handles each
//! event before the next call. Commands append bytes to the [`Outbox`]; the driver writes them when the read side is
//! drained. A machine that returns [`Fatal`] is finished: the driver writes the outbox and closes the connection.

mod boxed;
mod client;

pub(crate) use client::no_streams;
pub use client::{CallIds, ClientCallId, ClientWire, Open};

use crate::{Input, Metadata, MethodId, Outbox, Outgoing, Status};
use bytes::Bytes;
use std::{fmt, time::Duration};

/// Number of a call on its connection.
pub type CallId = u32;

/// Serialization format of messages; the numbers are those of the native wire.
///
/// The type is a whole word wide: values that contain a byte are copied in odd pieces, which the processor reads back
/// slowly.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(usize)]
pub enum Codec {
    /// Protocol Buffers.
    Proto = 1,
    /// JSON; for protobuf messages the canonical mapping.
    Json = 2,
    /// postcard, for serde types between Rust programs.
    Postcard = 3,
    /// MessagePack, with structures as maps by the names of their fields.
    MsgPack = 4,
    /// Structs of Apache Thrift in its binary protocol: the arguments of a method, and its result.
    Thrift = 5,
    /// A table of FlatBuffers, with the offset to it first.
    FlatBuffers = 6,
    /// Bytes that only the application interprets: the one argument of a method and its result, or a protobuf message.
    Raw = 7,
    /// A single struct of Apache Thrift in its binary protocol: the one argument of a method, and its result. Methods
    /// with other arguments or results use the structs of `Thrift`.
    ThriftStruct = 8,
}

impl Codec {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Codec; 8] = [
        Codec::Proto,
        Codec::Json,
        Codec::Postcard,
        Codec::MsgPack,
        Codec::Thrift,
        Codec::FlatBuffers,
        Codec::Raw,
        Codec::ThriftStruct,
    ];

    /// Returns the codec with this number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Codec> {
        match number {
            1 => Some(Codec::Proto),
            2 => Some(Codec::Json),
            3 => Some(Codec::Postcard),
            4 => Some(Codec::MsgPack),
            5 => Some(Codec::Thrift),
            6 => Some(Codec::FlatBuffers),
            7 => Some(Codec::Raw),
            8 => Some(Codec::ThriftStruct),
            _ => None,
        }
    }

    /// Returns the name in messages, options and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Proto => "proto",
            Codec::Json => "json",
            Codec::Postcard => "postcard",
            Codec::MsgPack => "msgpack",
            Codec::Thrift => "thrift",
            Codec::FlatBuffers => "flatbuffers",
            Codec::Raw => "raw",
            Codec::ThriftStruct => "thrift_struct",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compression of messages; the numbers are those of the native wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(usize)]
pub enum Encoding {
    /// No compression.
    Identity = 0,
    /// RFC 1952.
    Gzip = 1,
    /// RFC 8878.
    Zstd = 2,
    /// RFC 1950, which HTTP calls `deflate`.
    Deflate = 3,
    /// The raw format of Snappy, without framing.
    Snappy = 4,
    /// A block of LZ4 after its uncompressed length, in 4 bytes.
    Lz4 = 5,
}

impl Encoding {
    /// All compressions, in the order of their numbers; `Identity` is not one.
    pub const ALL: [Encoding; 5] =
        [Encoding::Gzip, Encoding::Zstd, Encoding::Deflate, Encoding::Snappy, Encoding::Lz4];

    /// Returns the encoding with this number.
    pub fn from_number(number: u8) -> Option<Encoding> {
        match number {
            0 => Some(Encoding::Identity),
            1 => Some(Encoding::Gzip),
            2 => Some(Encoding::Zstd),
            3 => Some(Encoding::Deflate),
            4 => Some(Encoding::Snappy),
            5 => Some(Encoding::Lz4),
            _ => None,
        }
    }

    /// Returns the name in messages, options and HTTP.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
            Encoding::Deflate => "deflate",
            Encoding::Snappy => "snappy",
            Encoding::Lz4 => "lz4",
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Set of encodings that one side accepts: a bit for each number.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Encodings(pub u32);

impl Encodings {
    /// Every encoding that has a number in this version of the wire.
    pub const ALL: Encodings = Encodings(0b11_1110);
    /// Uncompressed messages only.
    pub const NONE: Encodings = Encodings(0);

    /// Returns true if messages in `encoding` are accepted; uncompressed ones always are.
    pub fn has(self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity || self.0 >> encoding as u32 & 1 == 1
    }
}

/// Writes the names of the known encodings, or `none`.
impl fmt::Display for Encodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut known = Encoding::ALL.iter().filter(|encoding| self.has(**encoding));
        let Some(first) = known.next() else { return f.write_str("none") };
        write!(f, "{first}")?;
        known.try_for_each(|encoding| write!(f, ", {encoding}"))
    }
}

/// Properties of a call that precede its first message.
#[derive(Clone, Debug)]
pub struct Head {
    /// Number of the method in the table of the server.
    pub method: MethodId,
    /// Full name of the method, if no service declares it.
    pub undeclared_name: Option<crate::UndeclaredName>,
    /// Codec of messages and replies.
    pub codec: Codec,
    /// Encoding of compressed messages, in both directions; each message declares whether it is compressed.
    pub encoding: Encoding,
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

    /// Writes the final frames before the driver closes the connection in order. Returns true if the peer responds to
    /// them; the response ends the driver's wait.
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
