//! Codecs and compressions of messages, with their numbers on the native wire.

use std::fmt;

/// Serialization format of messages; the numbers are those of the native wire.
///
/// The type is a whole word wide: values that contain a byte are copied in odd pieces, which the processor reads back
/// slowly.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
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
    pub const ALL: &[Codec] = &[
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
#[non_exhaustive]
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
    pub const ALL: &[Encoding] =
        &[Encoding::Gzip, Encoding::Zstd, Encoding::Deflate, Encoding::Snappy, Encoding::Lz4];

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
