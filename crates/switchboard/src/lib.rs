//! Switchboard: an RPC framework that serves one service definition to all protocols on one port.
//!
//! A service is a Rust trait or a `.proto` file. [`Server`] serves it to native, gRPC, gRPC-Web, Connect,
//! HTTP/JSON, JSON-RPC and WebSocket callers on one port; a generated client, on a [`Channel`], calls it.
//!
//! Start with [`run`] for the fastest runtime, or use any tokio runtime. Handlers get a [`Cx`] with metadata,
//! deadline and peer, and return [`Result`]; the error type is [`Status`].
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod blocking;
#[cfg(doctest)]
mod guides;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod proxy;
#[cfg(feature = "auth")]
pub mod rpcx;
// The plugin of the simulation is that of the tests, which names the crate.
#[cfg(test)]
extern crate self as switchboard;
#[cfg(test)]
#[cfg(feature = "wires")]
mod simulation;

#[doc(inline)]
pub use switchboard_auth::auth;
#[doc(inline)]
pub use switchboard_client::{
    Attempt, BidiCall, Candidate, Channel, ChannelBuilder, ClientMethod, ClientStreamCall, EndpointStats,
    Explained, Explanation, FailMode, NamedCall, OnewayCall, Parallel, Part, Partitioned, Receipt, Response,
    Selective, ServerStreamCall, UnaryCall, Upload, client,
};
#[cfg(feature = "proto")]
#[doc(inline)]
pub use switchboard_core::Encoded;
#[doc(inline)]
pub use switchboard_core::{
    Call, Caller, CertificateStats, Compression, ConnectionProtocolStats, Cx, Error, Extensions, Flag,
    Identity, Latency, Layer, Limit, Limits, MemoryStats, MethodStats, Next, Payload, Peer, PeerStats, Push,
    Pusher, Pushes, Receiver, Reply, Result, Runtime, Sender, ServerStats, Service, SourceStats, TlsStats,
    Trace, WireStats, call, codec, counters, forward, layer, limits, run, runtime, service, stream, wire,
};
#[doc(inline)]
pub use switchboard_discovery::{balance, discover};
#[doc(inline)]
pub use switchboard_guard::guard;
#[cfg(feature = "http")]
#[doc(inline)]
pub use switchboard_http::{Cors, HttpJson};
#[cfg(feature = "macros")]
pub use switchboard_macros::{main, service};
#[cfg(feature = "tls")]
#[doc(inline)]
pub use switchboard_net::Tls;
#[cfg(feature = "web")]
#[doc(hidden)]
pub use switchboard_net::web;
#[doc(inline)]
pub use switchboard_net::{Address, plugin, transport};
#[cfg(feature = "http")]
#[doc(inline)]
pub use switchboard_server::admin;
#[doc(inline)]
pub use switchboard_server::{
    AbortedCalls, AbortedConnections, Drained, Running, Server, StopOptions, Stopped, server,
};
pub use switchboard_wire::{
    Code, Codec, Detail, HttpRule, HttpText, Idempotency, Kind, Metadata, MethodInfo, OrStatus, Origin,
    Params, Retry, SchemaId, ServiceInfo, Status, TextKind, TextParam,
};

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
    #[cfg(feature = "proto")]
    pub use buffa;
    #[cfg(feature = "proto")]
    pub use buffa_types;
    pub use bytes::Bytes;
    pub use futures_core::Stream;
    pub use serde;
    pub use serde_json;
    pub use std::sync::Arc;
    pub use switchboard_core::codec::{flatbuffers, thrift};
    pub use switchboard_wire::http_text;

    pub use switchboard_core::{
        codec::{self, read_request},
        stream::{receive_request, stream_reply},
    };
}
