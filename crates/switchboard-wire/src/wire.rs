//! The contract of a wire: one protocol, one role, one connection.
//!
//! The driver reads bytes into an [`Input`] and calls `recv` until it has no more events; every event is
//! handled before the next is asked for. Commands append bytes to the [`Outbox`]; the driver writes them when
//! the read side is drained. A machine that returns [`Fatal`] is finished: the driver writes what is in the
//! outbox and closes.

mod client;

pub(crate) use client::no_streams;
pub use client::{ClientWire, Open};

use crate::{Input, Metadata, MethodId, Outbox, Outgoing, Status};
use bytes::Bytes;
use std::{fmt, time::Duration};

/// The number of a call on its connection, as the wire has it.
pub type CallId = u32;

/// How the bytes of a message are to be read; the numbers are those of the native wire.
///
/// A whole word: what holds a byte is copied in odd pieces, which the processor reads back slowly.
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
    /// Bytes that only the application reads: the one argument of a method and its result, or a protobuf message.
    Raw = 7,
    /// A struct of Apache Thrift on its own, in its binary protocol: the one argument of a method, and its result.
    /// Methods that have other arguments or results have those of `Thrift`.
    ThriftStruct = 8,
}

impl Codec {
    /// Every codec, in the order of the numbers.
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

    /// The codec with this number.
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

    /// The name in messages, options and metrics.
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

/// How the bytes of a message are compressed; the numbers are those of the native wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(usize)]
pub enum Encoding {
    /// Not at all.
    Identity = 0,
    /// RFC 1952.
    Gzip = 1,
    /// RFC 8878.
    Zstd = 2,
    /// RFC 1950, what HTTP calls `deflate`.
    Deflate = 3,
    /// The raw format of Snappy, without framing.
    Snappy = 4,
    /// A block of LZ4 behind its length before compression, in 4 bytes.
    Lz4 = 5,
}

impl Encoding {
    /// Every way of compression, in the order of the numbers; `Identity` is none.
    pub const ALL: [Encoding; 5] =
        [Encoding::Gzip, Encoding::Zstd, Encoding::Deflate, Encoding::Snappy, Encoding::Lz4];

    /// The encoding with this number.
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

    /// The name in messages, options and on HTTP.
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

/// The encodings that one side reads: a bit for each number.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Encodings(pub u32);

impl Encodings {
    /// Everything that this version of the wire has a number for.
    pub const ALL: Encodings = Encodings(0b11_1110);
    /// Plain messages alone.
    pub const NONE: Encodings = Encodings(0);

    /// Whether messages in `encoding` are read; plain ones always are.
    pub fn has(self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity || self.0 >> encoding as u32 & 1 == 1
    }
}

/// The names of those that have one here, or `none`.
impl fmt::Display for Encodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut known = Encoding::ALL.iter().filter(|encoding| self.has(**encoding));
        let Some(first) = known.next() else { return f.write_str("none") };
        write!(f, "{first}")?;
        known.try_for_each(|encoding| write!(f, ", {encoding}"))
    }
}

/// What a caller says of a call before its first message.
#[derive(Clone, Debug)]
pub struct Head {
    /// The method, by its number in the table of the server.
    pub method: MethodId,
    /// How the messages are to be read, and how replies are to be written.
    pub codec: Codec,
    /// How messages may be compressed, both ways; those that are say so.
    pub encoding: Encoding,
    /// Time that is left for the call; none means no deadline.
    pub timeout: Option<Duration>,
    /// What the caller added.
    pub metadata: Metadata,
    /// No reply is wanted.
    pub oneway: bool,
}

/// A call of the plainest kind: one message, no metadata.
#[derive(Debug)]
pub struct Opened {
    /// Number of the call.
    pub id: CallId,
    /// The method.
    pub method: MethodId,
    /// How the messages are to be read and written.
    pub codec: Codec,
    /// Time that is left for the call.
    pub timeout: Option<Duration>,
    /// Bytes of its message.
    pub len: usize,
}

/// A message that a server sends without having been asked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Push {
    /// What it is about, in two parts: `Service/Method`. Sender and receiver agree on them; no service has to have this
    /// name.
    pub path: String,
    /// What the sender adds.
    pub metadata: Metadata,
    /// The message, written as both sides agree.
    pub message: Bytes,
    /// How it is written, as far as the wire says so: `Raw` says nothing.
    pub codec: Codec,
}

impl Push {
    /// A message without metadata, of which nobody says how it is written.
    pub fn new(path: impl Into<String>, message: impl Into<Bytes>) -> Push {
        Push { path: path.into(), metadata: Metadata::new(), message: message.into(), codec: Codec::Raw }
    }

    /// Says how the message is written. A peer of eRPC that reads more than bytes has to be told; a wire that has no
    /// number for the codec says nothing.
    #[must_use]
    pub fn with_codec(mut self, codec: Codec) -> Push {
        self.codec = codec;
        self
    }

    /// Adds metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Push {
        self.metadata = metadata;
        self
    }

    /// Service and method of the path; one without a slash is a service.
    pub fn names(&self) -> (&str, &str) {
        self.path.rsplit_once('/').unwrap_or((&self.path, ""))
    }

    /// Bytes that it holds, or nearly so.
    pub fn weight(&self) -> usize {
        size_of::<Push>() + self.path.len() + self.metadata.encoded_len() + self.message.len()
    }
}

/// What a wire has room for in a [`Push`], in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PushRoom {
    /// Longest path.
    pub path: usize,
    /// Largest [metadata](Metadata::encoded_len).
    pub metadata: usize,
}

/// What arrived at a server.
#[derive(Debug)]
pub enum ServerEvent {
    /// A call begins. `first` is its first message; without `more` it is also the last.
    Open {
        /// Number of the call.
        id: CallId,
        /// What the caller says of it.
        head: Head,
        /// The first message, if it came along.
        first: Option<Bytes>,
        /// Whether `first` is compressed.
        compressed: bool,
        /// Whether messages may follow.
        more: bool,
    },
    /// A further message.
    Item {
        /// Number of the call.
        id: CallId,
        /// The message.
        item: Bytes,
        /// Whether it is compressed, with the encoding of the call.
        compressed: bool,
    },
    /// The caller sends no more messages.
    HalfClose {
        /// Number of the call.
        id: CallId,
    },
    /// The caller gave up.
    Cancel {
        /// Number of the call.
        id: CallId,
    },
    /// The caller can take so many more bytes of messages.
    Credit {
        /// Number of the call.
        id: CallId,
        /// Bytes granted on top of those granted before.
        bytes: u32,
    },
    /// What came for the call cannot be taken: the driver ends it with this status.
    Refused {
        /// Number of the call.
        id: CallId,
        /// Why.
        status: Status,
    },
    /// The peer answered a ping.
    Pong,
    /// The peer has ended the connection in order; nothing follows.
    Closed,
    /// The machine has answered by itself, and there may be more.
    Handled,
}

/// What arrived at a client.
#[derive(Debug)]
pub enum ClientEvent {
    /// Reply metadata, before any message.
    Head {
        /// Number of the call.
        id: CallId,
        /// What the server sent.
        metadata: Metadata,
    },
    /// The only message and the end of a call that succeeded.
    Reply {
        /// Number of the call.
        id: CallId,
        /// The message.
        item: Bytes,
        /// Whether it is compressed, with the encoding of the call.
        compressed: bool,
    },
    /// A message of a stream.
    Item {
        /// Number of the call.
        id: CallId,
        /// The message.
        item: Bytes,
        /// Whether it is compressed, with the encoding of the call.
        compressed: bool,
    },
    /// The end, with trailers or the reason.
    End {
        /// Number of the call.
        id: CallId,
        /// Trailers of a call that succeeded, or why it did not.
        end: Result<Metadata, Status>,
    },
    /// The server can take so many more bytes of messages.
    Credit {
        /// Number of the call.
        id: CallId,
        /// Bytes granted on top of those granted before.
        bytes: u32,
    },
    /// The server said what it takes.
    Settings {
        /// The windows of all calls, those in flight included, grow by so many bytes.
        window_growth: u32,
    },
    /// The server takes no further call on this connection.
    GoAway {
        /// Why.
        status: Status,
    },
    /// The server sends what nobody asked for.
    Push(Box<Push>),
    /// The peer answered a ping.
    Pong,
}

/// The server's side of a protocol.
pub trait ServerWire: Send {
    /// The name in metrics and messages.
    fn name(&self) -> &'static str;

    /// Goes to the message of the next call if that is of the plainest kind: unary, without metadata, all of it there.
    /// Everything else is for [`recv`](Self::recv). The caller takes the message from `input`, straight to where it is
    /// to be. Such calls come in runs, and an event costs more than the frame itself.
    #[inline(always)]
    fn next_call(&mut self, _input: &mut Input) -> Option<Opened> {
        None
    }

    /// Takes the next whole unit from `input`; none means that more bytes are needed.
    ///
    /// # Errors
    /// Bytes after which the stream cannot be followed any more.
    fn recv(&mut self, input: &mut Input, out: &mut Outbox) -> Result<Option<ServerEvent>, Fatal>;

    /// Ends a call with its only message.
    fn reply(&mut self, id: CallId, item: Outgoing<'_>, out: &mut Outbox);

    /// Ends a call with its only message, which is large and not in one piece.
    fn reply_parts(&mut self, id: CallId, parts: &[Bytes], out: &mut Outbox) {
        let whole = Bytes::from(parts.concat());
        self.reply(id, (&whole).into(), out);
    }

    /// Ends a call with its only message, which is `compressed` with the encoding of its call or has `trailers`; what
    /// the wire has no place for is left out. Only calls that named an encoding get compressed messages.
    fn reply_with(
        &mut self,
        id: CallId,
        item: Outgoing<'_>,
        compressed: bool,
        trailers: &Metadata,
        out: &mut Outbox,
    );

    /// Sends reply metadata; at most once a call, before any message.
    fn head(&mut self, id: CallId, metadata: &Metadata, out: &mut Outbox);

    /// Sends a message of a stream, as it is or `compressed` with the encoding of its call; only on a wire with
    /// streams.
    fn item(&mut self, id: CallId, _item: &Bytes, _compressed: bool, out: &mut Outbox) {
        let text = format!("a message of a stream on {}, which has none", self.name());
        self.end(id, Err(&Status::internal(text)), out);
    }

    /// Ends a call.
    fn end(&mut self, id: CallId, end: Result<&Metadata, &Status>, out: &mut Outbox);

    /// Lets the peer send `bytes` more of a stream; nothing on a wire without credit.
    fn credit(&mut self, _id: CallId, _bytes: u32, _out: &mut Outbox) {}

    /// Asks the peer for a sign of life, if it [answers](Self::answers_pings).
    fn ping(&mut self, _out: &mut Outbox) {}

    /// Tells the peer to begin no further call; `reason` is for people. Calls that were under way to this side
    /// are still taken. On a wire that has no word for it peers learn of it when their calls are refused, or by the
    /// end of the connection.
    fn drain(&mut self, _reason: &str, _out: &mut Outbox) {}

    /// Refuses the calls that come from now on: the peer has had time to hear of the [drain](Self::drain).
    fn refuse(&mut self);

    /// Bytes that this side may send of a new stream before it gets credit; `u32::MAX` on a wire without credit.
    fn send_window(&self) -> u32 {
        u32::MAX
    }

    /// The room for messages that nobody asked for; none on a wire that has no place for them.
    fn pushes(&self) -> Option<PushRoom> {
        None
    }

    /// Sends a message that the peer did not ask for, if the wire [has room](Self::pushes) for it.
    fn push(&mut self, _push: &Push, _out: &mut Outbox) {}

    /// Bytes of a stream that a peer may send ahead of its reader, where peers are told so many: more on a wire that
    /// tells them nothing, and whose peers keep a window of their own.
    fn receive_window(&self, told: u32) -> u32 {
        told
    }

    /// Bytes of answers that wait in the machine and not in the outbox; they count as if they were there. They must
    /// be on their way out without further input.
    #[inline]
    fn held(&self) -> usize {
        0
    }

    /// Refuses messages over this size from now on, though they are within the limits: there is no room for them.
    /// Wires that cannot refuse a message before they have it need do nothing.
    fn take_at_most(&mut self, _bytes: u32) {}

    /// Whether peers answer a [`ping`](Self::ping). Where they cannot, silence proves nothing while calls run.
    fn answers_pings(&self) -> bool {
        false
    }

    /// The last words before the driver closes the connection in order; true if the peer answers them, with which the
    /// driver then ends its wait.
    fn close(&mut self, _out: &mut Outbox) -> bool {
        false
    }
}

/// The protocol was broken beyond repair; the connection ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fatal(pub String);

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fatal {}
