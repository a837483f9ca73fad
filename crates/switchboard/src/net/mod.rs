//! Transports: bidirectional byte streams.

mod address;
mod buffer;
pub(crate) mod memory;
mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub mod transport;
mod websocket;

pub use address::Address;
pub(crate) use buffer::{BUFFER_BYTES, Sharing, lend, take_back};
pub(crate) use stream::{Dialling, Io, Listener, Pipe, dial, poll_write_parts};
pub(crate) use websocket::{Carries, WebSocketIo};
#[cfg(feature = "http")]
pub(crate) use websocket::{JSONRPC_PROTOCOL, PROTOCOL as WEBSOCKET_PROTOCOL};
