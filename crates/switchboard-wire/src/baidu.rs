//! baidu_std, the protocol of brpc: one frame a request and one a response, in any order.
//!
//! ```text
//! "PRPC" | body size u32 BE | meta size u32 BE | RpcMeta (protobuf) | message | attachment
//! ```
//!
//! The body is everything behind the header. [`Server`] and [`Client`] are the machines; whoever opened the connection
//! sends requests, and nothing but its role tells a request from a response: some servers copy one into the other.
//!
//! What a frame says of its call becomes metadata, both ways:
//!
//! | in `RpcMeta` | metadata |
//! | --- | --- |
//! | `user_fields` | the same names in lower case; values that are no plain text under `NAME-bin`; out in base64 |
//! | `attachment_size` | the [attachment](crate::Metadata::attachment) |
//! | `request.log_id`, `trace_id` | `baidu-log-id`, `baidu-trace-id`, decimal numbers |
//! | `request.span_id`, `parent_span_id` | `baidu-span-id`, `baidu-parent-span-id`, decimal numbers |
//! | `request.request_id` | `x-request-id` |
//! | `authentication_data` | `authorization` of all calls: `Bearer DATA` unless it names a scheme itself |
//! | the same, no plain text | `baidu-authentication-bin` of all calls |
//! | `response.error_code` | `baidu-error-code` of the status; [`error_code`] and [`status_of`] say what it means |
//!
//! `timeout_ms` is the time that is left for the call, `compress_type` 1 is raw Snappy, 2 gzip and 3 zlib,
//! `content_type` 1 and 2 are JSON; CRC32C over message and attachment is checked, and answered in kind. Streaming RPC
//! (`STRM` frames) is not spoken: methods that stream are refused.

mod checksum;
mod client;
mod error;
mod fields;
mod frame;
mod meta;
mod server;
#[cfg(test)]
mod tests;

pub use client::{Client, Names};
pub use error::{error_code, status_of};
pub use server::Server;

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"PRPC";
/// Largest `RpcMeta` that is taken, in bytes; a frame with a larger one ends the connection.
pub const META_BYTES_MAX: u32 = 64 << 10;
/// Longest name of a service or method, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Largest message that brpc takes unless it was told otherwise.
const PEER_BYTES_MAX: u32 = 64 << 20;
