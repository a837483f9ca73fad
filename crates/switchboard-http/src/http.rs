//! gRPC, gRPC-Web, Connect and HTTP/JSON on HTTP/1.1 and HTTP/2, on connections that the acceptor recognised as HTTP.
//!
//! hyper runs the connection on the worker that accepted it. `connectrpc` implements gRPC, gRPC-Web and Connect, and
//! `rest` implements HTTP/JSON. `dispatch` passes each call to the same handlers that the native wire calls.
//! `cors` answers the preflight requests of browsers for all of these protocols. Health and reflection are served as
//! well, unless the application registers its own; see `standard`.
//!
//! The text mode of gRPC-Web is supported. gRPC on HTTP/1.1 gets status 505. Unknown methods, unknown compressions and
//! timeouts that cannot be parsed are refused in the caller's protocol before a body is read. The compressions are
//! gzip, deflate and zstd.
//!
//! `jsonrpc` serves JSON-RPC in a POST, `thrift` serves a Thrift message in a POST, and `rpcx` serves calls in
//! the headers of rpcx's gateway. `websocket` upgrades a connection to JSON-RPC, rpcx or the native wire. `pages`
//! serves the static files of the application.
//!
//! # Cost of a call
//!
//! Besides the payload's own bytes, a unary call allocates in this crate: the boxed future that `connectrpc` requires,
//! the two of the erased handler, the cell that keeps the reply's metadata if the handler fails, and the metadata that
//! the caller sent. hyper and `connectrpc` add the header maps, the path, the envelope, their own boxed futures and, on
//! HTTP/2, one task. The native wire needs none of these; prefer it where both sides can use it. A stream adds a queue
//! of at most 64 KiB each way, and one shared cell for its trailers.
//!
//! # Metadata and streams
//!
//! The head of a reply is sent before its first message. If a handler waits before it sends a message, its head is sent
//! early, because callers may wait for it: at once if the handler set metadata, otherwise after 100 ms, so that a
//! handler can set metadata after it has read the first message. Metadata that is set later is sent with the trailers,
//! so none is lost. Metadata that a unary handler set before it failed is sent with its error.
//!
//! On gRPC, a failure before the head is sent is a *Trailers-Only* response: one HEADERS frame with END_STREAM that
//! contains all metadata. Clients retry only such responses: after a head without END_STREAM they consider the call
//! committed. If the handler of a stream set metadata for the head, that metadata is sent in a separate head, as in
//! grpc-go.
//!
//! # Limits
//!
//! `message_bytes_max` limits messages both before and after decompression, `metadata_bytes_max` the list of headers,
//! and `calls_max` (1000 at most) the streams of an HTTP/2 connection. `idle_timeout` is the silence after which HTTP/2
//! peers are pinged and HTTP/1.1 connections are closed, between requests and within a body. It also limits the time
//! that an HTTP/1.1 request head may take. After `connection_age` the server starts the graceful shutdown of a
//! connection.

mod body;
mod call_guard;
mod connection;
mod connection_memory;
mod convert;
mod cors;
mod cross_site;
mod decoded_body;
mod dispatch;
mod envelopes;
mod field_values;
mod flatbuffers;
mod health;
mod hosts;
mod jsonrpc;
mod metered_body;
mod pages;
mod pings;
mod plugin_route;
mod refusal;
mod replies;
mod requests;
mod response;
mod rest;
mod router;
mod rpc;
mod rpcx;
mod socket;
mod standard;
mod state;
mod status_text;
mod thrift;
mod timeout;
mod trailers;
mod traits;
mod turn;
mod unary_call;
mod unchecked_request;
mod unpack;
mod websocket;

pub use connection::serve;
pub use cors::Cors;
pub use hosts::Hosts;
pub use pages::Pages;
pub use plugin_route::PluginRoute;
pub use rest::HttpJson;
pub use rest::Rest;
pub use standard::Standard;
pub use state::{HttpConfig, HttpState};
pub use websocket::Options as WebSocketOptions;
