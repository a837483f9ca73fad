//! gRPC, gRPC-Web, Connect and HTTP/JSON on HTTP/1.1 and HTTP/2, on connections that the acceptor recognised as HTTP.
//!
//! hyper runs the connection on the worker that accepted it, `connectrpc` speaks the first three dialects and
//! [`rest`] the last; [`dispatch`] hands each call to the same handlers that the native wire reaches. What browsers
//! ask before they let pages of other origins call is answered by [`cors`] for all of them. Health and reflection are
//! served beside them, unless the application brings its own; see [`standard`].
//!
//! gRPC-Web is spoken in its text mode too. gRPC proper on HTTP/1.1 is answered with status 505. Unknown methods,
//! compressions and timeouts that cannot be read are refused in the caller's dialect before a body is read. The
//! compressions are gzip, deflate and zstd.
//!
//! Beside them [`jsonrpc`] answers JSON-RPC in a POST, [`thrift`] a message of Thrift in one, [`rpcx`] calls in the
//! headers of rpcx's gateway, and [`websocket`] turns a connection into one of JSON-RPC, rpcx or the native wire. What
//! browsers load from the application itself is answered by [`pages`].
//!
//! # What a call costs
//!
//! Beside the payload's own bytes a unary call allocates, in this crate: the boxed future that `connectrpc`
//! asks for, the two of the erased handler, the cell that keeps the reply's metadata if the handler fails, and the
//! metadata that the caller sent. hyper and `connectrpc` add the header maps, the path, the envelope, their own
//! boxed futures and, on HTTP/2, one task. The native wire needs none of these; programs that can choose should
//! choose that one. A stream adds a queue of at most 64 KiB each way, and one shared cell for its trailers.
//!
//! # Metadata and streams
//!
//! A reply's head goes out before its first message. A handler that waits before it sends anything has its
//! head sent early, because callers may wait for it: at once if it set metadata, else after a tenth of a second,
//! so that a handler can set metadata when it has read the first message. Metadata that is set later goes with the
//! trailers, so that none is lost. What a unary handler set before it failed goes with its error.
//!
//! # Limits
//!
//! `message_bytes_max` bounds messages both compressed and not; `metadata_bytes_max` the list of headers;
//! `calls_max` (1000 at most) the streams of an HTTP/2 connection; `idle_timeout` the silence after which
//! HTTP/2 peers are pinged and HTTP/1.1 connections closed, between requests and within a body, and the time that
//! an HTTP/1.1 request head may take; `connection_age` the time after which a connection is told to end.

mod asked;
mod body;
mod connection;
pub(crate) mod convert;
mod cors;
pub(crate) mod deflate;
mod dispatch;
mod envelopes;
mod flatbuffers;
mod health;
mod holding;
mod jsonrpc;
mod pages;
mod pings;
mod received;
mod refusal;
mod replies;
mod requests;
mod rest;
mod reword;
mod rpcx;
mod standard;
pub(crate) mod text;
pub(crate) mod thrift;
mod ticket;
mod timeout;
mod trailers;
mod traits;
mod unpack;
pub(crate) mod websocket;
mod whole;

pub(crate) use connection::serve;
pub use cors::Cors;
pub(crate) use pages::Pages;
pub use rest::HttpJson;
pub(crate) use rest::Rest;
pub(crate) use standard::Standard;
