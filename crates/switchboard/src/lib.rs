//! Switchboard: an RPC framework that serves one service definition to all protocols on one port.
//!
//! A service is a Rust trait or a `.proto` file. [`Server`] serves it to native, gRPC, gRPC-Web, Connect,
//! HTTP/JSON, JSON-RPC and WebSocket callers on one port; a generated client, on a [`Channel`], calls it.
//!
//! Start with [`run`] for the fastest runtime, or use any tokio runtime. Handlers get a [`Cx`] with metadata,
//! deadline and peer, and return [`Result`]; the error type is [`Status`].
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(feature = "channelz")]
// Generated code refers to this crate by name, as its users do.
extern crate self as switchboard;

mod access;
#[cfg(feature = "http")]
pub mod admin;
pub mod auth;
mod backoff;
pub mod balance;
pub mod blocking;
pub mod call;
pub mod client;
mod clock;
pub mod codec;
mod compression;
mod connection;
mod context;
pub mod discover;
mod dispatch;
mod driver;
mod error;
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only the admin listener uses all of it"))]
mod flags;
pub mod guard;
#[cfg(doctest)]
mod guides;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod http_fields;
pub mod layer;
pub mod limits;
mod memory;
mod metrics;
mod near;
mod net;
#[cfg(feature = "otlp")]
pub mod otlp;
mod pattern;
mod payload;
pub mod proxy;
mod push;
mod queue;
mod reserved;
#[cfg(feature = "auth")]
pub mod rpcx;
pub mod runtime;
pub mod server;
pub mod service;
mod serving;
#[cfg(test)]
#[cfg(feature = "wires")]
mod simulation;
pub mod stream;
mod trace;
#[cfg(feature = "web")]
#[doc(hidden)]
pub mod web;
pub mod wire;

pub use call::{Call, Caller, Cx, Extensions, Identity, Peer, Reply};
pub use client::{
    Attempt, BidiCall, Candidate, Channel, ChannelBuilder, ClientMethod, ClientStreamCall, EndpointStats,
    Explained, Explanation, FailMode, NamedCall, OnewayCall, Parallel, Part, Partitioned, Receipt, Response,
    Selective, ServerStreamCall, UnaryCall, Upload,
};
#[cfg(feature = "proto")]
pub use codec::Encoded;
pub use compression::Compression;
pub use error::Error;
pub use flags::Flag;
#[cfg(feature = "http")]
pub use http::{Cors, HttpJson};
pub use layer::{Layer, Next};
pub use limits::{Limit, Limits};
pub use memory::MemoryStats;
pub use metrics::{
    CertificateStats, ConnectionProtocolStats, Latency, MethodStats, PeerStats, ServerStats, TlsStats,
    WireStats,
};
#[cfg(feature = "tls")]
pub use net::tls::Tls;
pub use net::{Address, transport};
pub use payload::Payload;
pub use push::{Push, Pusher, Pushes};
pub use runtime::{Runtime, run};
pub use server::{AbortedCalls, AbortedConnections, Drained, Running, Server, StopOptions, Stopped};
pub use service::Service;
pub use stream::{Receiver, Sender};
#[cfg(feature = "macros")]
pub use switchboard_macros::{main, service};
pub use switchboard_wire::{
    Code, Codec, Detail, HttpRule, HttpText, Idempotency, Kind, Metadata, MethodInfo, OrStatus, Origin,
    Params, Retry, SchemaId, ServiceInfo, Status, TextKind, TextParam,
};
pub use trace::Trace;

/// Result of calls and handlers.
pub type Result<T, E = Status> = std::result::Result<T, E>;

/// Includes the code that `switchboard_build` generated for a protobuf package:
/// `switchboard::include_proto!("demo.v1");`.
///
/// Without an argument it includes all packages of the build script as nested modules; packages that refer to
/// each other require that.
#[macro_export]
macro_rules! include_proto {
    () => {
        include!(concat!(env!("OUT_DIR"), "/_all.rs"));
    };
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}

/// Items for generated code; not for direct use.
#[doc(hidden)]
pub mod codegen {
    pub use crate::codec::{flatbuffers, thrift};
    #[cfg(feature = "proto")]
    pub use buffa;
    #[cfg(feature = "proto")]
    pub use buffa_types;
    pub use bytes::Bytes;
    pub use serde;
    pub use serde_json;
    pub use std::sync::Arc;
    pub use switchboard_wire::http_text;

    pub use crate::{
        codec::{self, read_request, receive_request},
        stream::stream_reply,
    };
}
