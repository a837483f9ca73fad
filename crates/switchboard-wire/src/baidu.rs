//! baidu_std, the protocol of brpc: one frame a request and one a response, in any order. Its older relatives
//! hulu_pbrpc and sofa_pbrpc are other [layouts](Layout) of the same machines, without streams.
//!
//! ```text
//! "PRPC" | body size u32 BE | meta size u32 BE | RpcMeta (protobuf) | message | attachment
//! ```
//!
//! The body is everything behind the header. [`Server`] and [`Client`] are the state machines. The side that opened the
//! connection sends requests. Only the role of the reader distinguishes a request from a response: some servers copy
//! the request into the response.
//!
//! The fields of a meta become metadata of the call, in both directions:
//!
//! | in `RpcMeta` | metadata |
//! | --- | --- |
//! | `user_fields` | the same names in lower case; values that are no plain text under `NAME-bin`; out in base64 |
//! | `attachment_size` | the [attachment](crate::Metadata::attachment) |
//! | `request.log_id`, `trace_id` | `baidu-log-id`, `baidu-trace-id`, decimal numbers |
//! | `request.span_id`, `parent_span_id` | `baidu-span-id`, `baidu-parent-span-id`, decimal numbers |
//! | `request.request_id` | `x-request-id` |
//! | the same field number in brpc-java, `request.ext_fields` | the same names in lower case; for incoming requests |
//! | `authentication_data` | `authorization` of all calls: `Bearer DATA` unless it names a scheme itself |
//! | the same, not plain text | `baidu-authentication-bin` of all calls |
//! | `response.error_code` | `baidu-error-code` of the status; [`error_code`] and [`status_of`] convert it |
//!
//! `timeout_ms` is the time left for the call. `compress_type` 1 is raw Snappy, 2 gzip and 3 zlib. `content_type` 1 and
//! 2 are JSON. The server checks a CRC32C over message and attachment, and sends one in the response if the request has
//! one.
//!
//! # Streams
//! A call of a streaming method opens a stream with `stream_settings`. The frames that follow have the same shape:
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
//! A client takes a non-empty response as the first reply. A server responds to the call as soon as its handler waits,
//! inside a frame of the stream as brpc does, so that the client may continue. A handler that fails before that fails
//! the call. Each side sends 2 MiB ahead of the other side's `FEEDBACK`, and accepts as much from peers that do not
//! want feedback. `timeout_ms` applies to the response only.
//!
//! brpc has neither half-closed streams nor a status at the end of a stream. Here, `CLOSE` from a client ends the
//! requests and replies still follow. A brpc client has forgotten the stream by then and responds to such a reply with
//! `RST`, which cancels the call. Field 1000 of `stream_settings` declares that the sender supports half-closed
//! streams. With a peer that does not send it, a server holds `CLOSE` until the client has read the response, and a
//! client holds it until the server has replied (client stream) or consumed all requests. The server's `CLOSE` ends the
//! call; `RST` fails it. Both may carry a response of the call as payload, which brpc ignores: `CLOSE` carries the
//! trailers, `RST` the error and its status. Metadata that a handler sends after the response is sent with the
//! trailers.
//! handler sends after the response goes with the trailers.

mod checksum;
mod client;
mod error;
mod fields;
mod frame;
mod hulu;
mod layout;
mod meta;
mod options;
mod server;
mod sofa;
mod spec;
mod stream;
#[cfg(test)]
mod tests;

pub use client::{Client, Names};
pub use error::{error_code, status_of};
pub use layout::Layout;
pub use server::Server;
pub use spec::{BAIDU_STD, HULU, SOFA};

/// The first bytes of every frame of a stream.
const STREAM_MAGIC: [u8; 4] = *b"STRM";
/// Most streams on a connection.
pub const STREAMS_MAX: usize = 1024;
/// Largest accepted meta, in bytes; a frame with a larger one ends the connection.
pub const META_BYTES_MAX: u32 = 64 << 10;
/// Longest name of a service or method, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Largest message that brpc accepts by default, in bytes.
const PEER_BYTES_MAX: u32 = 64 << 20;
