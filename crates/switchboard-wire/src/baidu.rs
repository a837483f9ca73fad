//! baidu_std, the protocol of brpc: one frame a request and one a response, in any order. Its older relatives
//! hulu_pbrpc and sofa_pbrpc are other [layouts](Layout) of the same machines, without streams.
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
//! | the same number as brpc-java has it, `request.ext_fields` | the same names in lower case; of requests that come |
//! | `authentication_data` | `authorization` of all calls: `Bearer DATA` unless it names a scheme itself |
//! | the same, no plain text | `baidu-authentication-bin` of all calls |
//! | `response.error_code` | `baidu-error-code` of the status; [`error_code`] and [`status_of`] say what it means |
//!
//! `timeout_ms` is the time that is left for the call, `compress_type` 1 is raw Snappy, 2 gzip and 3 zlib,
//! `content_type` 1 and 2 are JSON; CRC32C over message and attachment is checked, and answered in kind.
//!
//! # Streams
//! A call of a method that streams opens one, with `stream_settings`; what follows are frames of the same shape:
//!
//! ```text
//! "STRM" | body size u32 BE | meta size u32 BE | StreamFrameMeta | message, or a part of one
//! ```
//!
//! | kind of the method | request of the call | stream, to the server | response of the call | stream, to the client |
//! | --- | --- | --- | --- | --- |
//! | server stream | the request | nothing | empty | the replies |
//! | client stream | empty, or the first request | requests | empty | the reply |
//! | bidirectional | empty, or the first request | requests | empty | the replies |
//!
//! A client takes a response that is not empty as the first reply. A server answers the call as soon as its handler
//! waits, inside a frame of the stream as brpc does, so that clients may go on; a handler that fails before that fails
//! the call. Each side sends 2 MiB ahead of the other's `FEEDBACK`, and takes as much from those who
//! want none. `timeout_ms` is for the response alone.
//!
//! brpc knows neither a half-closed stream nor how one ended. Here `CLOSE` of a client ends the requests: replies still
//! follow, to which brpc's clients, having forgotten the stream, answer `RST`, which cancels the call. The server's
//! `CLOSE` ends the call; `RST` fails it. Both may hold a response of the call as their payload, which brpc does not
//! look at: with trailers, and with the error and its status. Metadata that a handler sends after the response goes
//! with the trailers.

mod checksum;
mod client;
mod error;
mod fields;
mod frame;
mod hulu;
mod layout;
mod meta;
mod server;
mod sofa;
mod stream;
#[cfg(test)]
mod tests;

pub use client::{Client, Names};
pub use error::{error_code, status_of};
pub use layout::Layout;
pub use server::Server;

/// The first bytes of every frame of a stream.
const STREAM_MAGIC: [u8; 4] = *b"STRM";
/// Most streams on a connection.
pub const STREAMS_MAX: usize = 1024;
/// Largest meta that is taken, in bytes; a frame with a larger one ends the connection.
pub const META_BYTES_MAX: u32 = 64 << 10;
/// Longest name of a service or method, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Largest message that brpc takes unless it was told otherwise.
const PEER_BYTES_MAX: u32 = 64 << 20;
