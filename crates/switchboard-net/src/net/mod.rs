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
#[cfg(feature = "http")]
pub use websocket::JSONRPC_PROTOCOL;
pub use websocket::PROTOCOL as WEBSOCKET_PROTOCOL;
pub use websocket::{Carries, MessageTranslation, WebSocketIo, WebSocketMessages};
