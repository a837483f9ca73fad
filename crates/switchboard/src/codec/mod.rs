//! Messages to bytes and back, one file a family of types.

pub mod flatbuffers;
pub mod msgpack;
#[cfg(feature = "proto")]
pub mod proto;
pub mod serde;
pub mod thrift;

mod arena;
#[cfg(feature = "proto")]
mod encoded;
mod payload;
mod raw;
#[cfg(feature = "proto")]
mod segments;

#[cfg(feature = "proto")]
pub use encoded::Encoded;
pub use payload::Payload;
pub(crate) use payload::Pieces;
#[cfg(feature = "proto")]
pub(crate) use segments::MESSAGE_MIN as PARTS_FROM;

use crate::{Codec, Status};
use std::fmt;

/// Where a message with memory of its own begins in it.
///
/// Allocators give large memory at the same place of a page, and what is copied into a message usually lies at the
/// start of such memory as well. Behind a few bytes of tag and length the copy then goes to a place 1 to 15 bytes
/// further in its page than where it comes from, at which `rep movsb`, with which C libraries and the kernel copy,
/// takes 13 times as long on some processors (AMD Zen 3 to 5: 3.5 instead of 47 GB/s).
const OFFSET: usize = 128;

/// The status for bytes that cannot be read as the message.
fn malformed(type_name: &str, codec: Codec, error: &dyn fmt::Display) -> Status {
    Status::invalid_argument(format!("the {codec} message is no {type_name}: {error}"))
}

/// The status for a codec that the type does not have.
fn foreign(type_name: &str, codec: Codec, known: &str) -> Status {
    Status::unimplemented(format!("{type_name} cannot be read or written as {codec}; it speaks {known}"))
}

/// The last part of a type's path, for messages.
fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.split('<').next().and_then(|path| path.rsplit("::").next()).unwrap_or(name)
}
