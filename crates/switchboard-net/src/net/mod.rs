//! Transports: bidirectional byte streams.

mod address;
mod buffer;
pub mod memory;
mod stream;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transport;
mod websocket;

pub use address::Address;
pub use buffer::{BUFFER_BYTES, Sharing, lend, take_back};
pub use stream::{Dialling, Io, Listener, Pipe, dial, poll_write_parts};
pub use websocket::{Carries, WebSocketIo};
#[cfg(feature = "http")]
pub use websocket::{JSONRPC_PROTOCOL, PROTOCOL as WEBSOCKET_PROTOCOL};
