//! The protocol of rpcx 1.4 to 1.9 (smallnest/rpcx), wire version 0, as server and as client.
//!
//! ```text
//!  0  magic 08        1  version 00      2  bits, see below      3  codec in the upper half
//!  4  sequence, u64   12  bytes that follow, u32                 (all numbers big endian)
//! 16  service path, service method, metadata, payload: each its length as u32 and its bytes
//! ```
//!
//! Bits of byte 2: 80 response, 40 heartbeat, 20 one-way, 1C compression (0 none, 1 gzip), 03 status (1 error).
//! Metadata is a sequence of names and values, each with its length as u32 before its bytes. Of a repeated name peers
//! in Go keep the last value; Switchboard keeps all. There is no handshake; calls of a connection complete in any
//! order.
//!
//! A server push is a one-way request with raw bytes and its own sequence numbers.
//!
//! On the network that rpcx calls `http`, a connection begins with `CONNECT /_rpcx_ HTTP/1.0` and two line feeds. The
//! response is `HTTP/1.0 200 Connected to rpcx` and two line feeds. On `ws` and `wss` the same bytes are sent in the
//! messages of a [WebSocket](crate::websocket) without a sub-protocol, split at any position; clients in Go send them
//! as text messages.
//! | codec | here |
//! | --- | --- |
//! | 0 raw bytes | `Codec::Raw`; for protobuf services the message, `Codec::Proto` |
//! | 1 JSON | `Codec::Json` |
//! | 2 protobuf | `Codec::Proto` |
//! | 3 MessagePack | `Codec::MsgPack` |
//! | 4 Thrift | `Codec::ThriftStruct` |
//! | 5 to 15 | rejected with `can not find codec for N` |
//!
//! | metadata | here |
//! | --- | --- |
//! | `__AUTH` | `authorization`; a value without a scheme is a bearer token |
//! | `__ServerTimeout` | the deadline, in milliseconds that are left |
//! | `__rpcx_error__` | the text of a [`Status`](crate::Status), see [`error`](self) below |
//! | any other name | the same in lower case |
//!
//! A name whose value is not plain ASCII gets the suffix `-bin`. Names with other characters than `0-9 a-z _ . -` are
//! left out.
//!
//! rpcx has one text for an error and no code. A status is sent as `code: message`, or as the message alone if its code
//! is `Unknown`, together with metadata for Switchboard clients:
//!
//! | status | `__rpcx_error__` | beside it |
//! | --- | --- | --- |
//! | unknown service | `rpcx: can't find service NAME` | `x-status: 12` |
//! | unknown method | `rpcx: can't find method NAME` | `x-status: 12` |
//! | any other code | `not_found: no such post` | `x-status: 5` |
//! | retry is safe, or after a delay | | `x-retry: safe`, or the milliseconds |
//! | its details | | `x-status-details-bin`: type names and messages, each after its length |
//! | its metadata | | unchanged |
//!
//! Errors of other servers have no code. The texts of the first two rows become `Unimplemented`, the texts of Go for an
//! expired or canceled context become `DeadlineExceeded` and `Canceled`, all others `Unknown`.

mod client;
mod connect;
mod error;
mod frame;
mod metadata;
mod options;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use error::text as error_text;
pub use metadata::pairs as request_metadata;
pub use server::{Server, codec, find};
pub use spec::RPCX;

/// The first byte of every frame.
pub const MAGIC: u8 = 0x08;
/// Path at which WebSockets are opened.
pub const PATH: &str = "/_rpcx_";
/// Longest service path and longest method, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// Longest heartbeat, including names and metadata, in bytes.
pub const HEARTBEAT_BYTES_MAX: usize = 64 << 10;
