//! The protocol of rpcx 1.4 to 1.9 (smallnest/rpcx), wire version 0, as server and as client.
//!
//! ```text
//!  0  magic 08        1  version 00      2  bits, see below      3  codec in the upper half
//!  4  sequence, u64   12  bytes that follow, u32                 (all numbers big endian)
//! 16  service path, service method, metadata, payload: each its length as u32 and its bytes
//! ```
//!
//! Bits of byte 2: 80 response, 40 heartbeat, 20 one-way, 1C compression (0 none, 1 gzip), 03 status (1 error).
//! Metadata is a row of names and values, each its length as u32 and its bytes; peers in Go keep the last of one that
//! is repeated, here all are kept. There is no handshake; calls of a connection are answered in any order.
//!
//! What a server sends unasked is a one-way request with raw bytes, numbered on its own.
//!
//! On the network that rpcx calls `http` a connection begins with `CONNECT /_rpcx_ HTTP/1.0`, two line feeds, and the
//! answer `HTTP/1.0 200 Connected to rpcx`, two line feeds. On `ws` and `wss` the same bytes go in the messages of a
//! [WebSocket](crate::websocket) without a sub-protocol, wherever these are cut: clients in Go send them as texts.
//!
//! | codec | here |
//! | --- | --- |
//! | 0 raw bytes | `Codec::Raw`; of protobuf services the message, `Codec::Proto` |
//! | 1 JSON | `Codec::Json` |
//! | 2 protobuf | `Codec::Proto` |
//! | 3 MessagePack | `Codec::MsgPack` |
//! | 4 Thrift | `Codec::ThriftStruct` |
//! | 5 to 15 | refused with `can not find codec for N` |
//!
//! | metadata | here |
//! | --- | --- |
//! | `__AUTH` | `authorization`; a value without a scheme is a bearer token |
//! | `__ServerTimeout` | the deadline, in milliseconds that are left |
//! | `__rpcx_error__` | the text of a [`Status`](crate::Status), see [`error`](self) below |
//! | any other name | the same in lower case |
//!
//! A name whose value is no plain ASCII gets `-bin` at its end; names of other characters than `0-9 a-z _ . -` are left
//! out.
//!
//! rpcx has one text for an error and no code. A status is sent as `code: message`, or as the message alone if its code
//! is `Unknown`, together with what our own clients read:
//!
//! | status | `__rpcx_error__` | beside it |
//! | --- | --- | --- |
//! | a service that is not there | `rpcx: can't find service NAME` | `x-status: 12` |
//! | a method that is not there | `rpcx: can't find method NAME` | `x-status: 12` |
//! | any other code | `not_found: no such post` | `x-status: 5` |
//! | retry is safe, or after a pause | | `x-retry: safe`, or the milliseconds |
//! | its details | | `x-status-details-bin`: type names and messages, each after its length |
//! | its metadata | | as it is |
//!
//! Errors of other servers have no code: the texts of the first two are `Unimplemented`, those that Go gives to an
//! expired or canceled context `DeadlineExceeded` and `Canceled`, all others `Unknown`.

mod client;
mod connect;
mod error;
mod frame;
mod metadata;
mod server;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use error::text as error_text;
pub use metadata::pairs as request_metadata;
pub use server::{Server, codec, find};

/// The first byte of every frame.
pub const MAGIC: u8 = 0x08;
/// Where WebSockets are opened.
pub const PATH: &str = "/_rpcx_";
/// Longest service path and longest method, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// Longest heartbeat, names and metadata included, in bytes.
pub const HEARTBEAT_BYTES_MAX: usize = 64 << 10;
