//! Transports: what makes ordered bytes both ways.

mod address;
mod buffer;
pub(crate) mod memory;
mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;

pub use address::Address;
pub(crate) use buffer::{BUFFER_BYTES, Sharing, lend, take_back};
pub(crate) use stream::{Io, Listener, Pipe, TlsConnector, dial};
