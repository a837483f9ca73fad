//! Apache Thrift: framed, unframed and in THeader, strict binary and compact.
//!
//! Message bodies are structs of the binary protocol wherever they leave or enter this module. Compact bodies are
//! [transcoded](transcode), which needs no schema. A request is the struct of a method's arguments, a reply the struct
//! of its result: field 0 is the value, other fields are the declared exceptions.
//!
//! Reading order: [`value`] (bytes of a value, for generated code), `compact`, [`transcode`], [`scan`] (the end of a
//! struct without a frame), [`message`] (names and numbers before the struct), [`header`] (THeader), [`exception`],
//! `frames` (complete messages), [`server`], [`client`]. The format follows the specifications in the repository of
//! Apache Thrift and the libraries of version 0.25.

pub mod client;
mod compact;
pub mod exception;
mod frames;
pub mod header;
pub mod message;
mod names;
mod options;
mod place;
pub mod scan;
pub mod server;
mod spec;
pub mod transcode;
pub mod value;

#[cfg(test)]
mod tests;

pub use client::{Client, Settings};
pub use place::field_at;
pub use server::Server;
pub use spec::THRIFT;
pub use value::{Double, Reader, Uuid, Value};

use std::{borrow::Cow, fmt};

/// Largest nesting of structs and containers, the limit of the Thrift libraries.
pub const DEPTH_MAX: usize = 64;

/// Longest name of a message, in bytes.
pub const NAME_MAX: usize = 1024;

/// Largest size of everything before a message's struct: its name, and the fields around it.
const AROUND_MAX: usize = NAME_MAX + 64;

/// Protocol in which a message is encoded.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the protocols of Thrift that the wire reads and writes
pub enum Encoded {
    /// `TBinaryProtocol`.
    Binary,
    /// `TCompactProtocol`.
    Compact,
}

/// Separation of messages on a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
// closed: the transports of Thrift that the wire reads and writes
pub enum Framing {
    /// No separation: `TBufferedTransport`, `TSocket`.
    Unframed,
    /// A length before each message: `TFramedTransport`.
    Framed,
    /// A length and a header before each message: `THeaderTransport`.
    Header,
}

/// Type of a value, by its number in the binary protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Type(pub u8);

impl Type {
    /// The end of a struct.
    pub const STOP: Type = Type(0);
    /// No value: the result of a method that returns nothing.
    pub const VOID: Type = Type(1);
    /// One byte, 0 or 1.
    pub const BOOL: Type = Type(2);
    /// A byte with a sign.
    pub const I8: Type = Type(3);
    /// IEEE 754, 64 bits.
    pub const DOUBLE: Type = Type(4);
    /// A number of 16 bits.
    pub const I16: Type = Type(6);
    /// A number of 32 bits, and every enum.
    pub const I32: Type = Type(8);
    /// A number of 64 bits.
    pub const I64: Type = Type(10);
    /// Text, or any bytes.
    pub const STRING: Type = Type(11);
    /// Fields; exceptions and unions too.
    pub const STRUCT: Type = Type(12);
    /// Pairs.
    pub const MAP: Type = Type(13);
    /// Elements that differ.
    pub const SET: Type = Type(14);
    /// Elements.
    pub const LIST: Type = Type(15);
    /// 16 bytes.
    pub const UUID: Type = Type(16);

    /// Returns the size of every value of the type in the binary protocol, if it is constant.
    pub(crate) fn fixed(self) -> Option<usize> {
        match self {
            Type::BOOL | Type::I8 => Some(1),
            Type::I16 => Some(2),
            Type::I32 => Some(4),
            Type::I64 | Type::DOUBLE => Some(8),
            Type::UUID => Some(16),
            _ => None,
        }
    }

    /// Returns the smallest size of a value in the binary protocol; `None` for an unknown type.
    pub(crate) fn least(self) -> Option<usize> {
        match self {
            Type::STRING => Some(4),
            Type::STRUCT => Some(1),
            Type::MAP => Some(6),
            Type::SET | Type::LIST => Some(5),
            other => other.fixed(),
        }
    }
}

/// Error for bytes that are not valid Thrift, or that exceed a limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Malformed(pub Cow<'static, str>);

impl Malformed {
    pub(crate) fn cut_short() -> Malformed {
        Malformed(Cow::Borrowed("the bytes end in the middle of a value"))
    }

    pub(crate) fn deep() -> Malformed {
        Malformed(Cow::Borrowed("nested deeper than 64 structs and containers"))
    }

    pub(crate) fn no_type(number: u8) -> Malformed {
        Malformed(format!("there is no type with the number {number}").into())
    }

    pub(crate) fn size(count: impl fmt::Display) -> Malformed {
        Malformed(format!("a size of {count} exceeds the remaining bytes").into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}
