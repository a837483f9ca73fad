//! Messages to bytes and back, one file a family of types.

#[cfg(feature = "proto")]
pub mod proto;
pub mod serde;

#[cfg(feature = "proto")]
mod arena;
#[cfg(feature = "proto")]
mod encoded;

#[cfg(feature = "proto")]
pub use encoded::Encoded;

use crate::{Codec, Status};
use std::fmt;

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
