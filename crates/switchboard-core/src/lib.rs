//! Core of [Switchboard](https://docs.rs/switchboard): calls, services, layers, streams, codecs and limits, which servers
//! and clients share. Applications use the crate `switchboard`, which re-exports the public items of this one.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[doc(hidden)]
pub mod access;
#[doc(hidden)]
pub mod backoff;
#[doc(hidden)]
pub mod buckets;
pub mod call;
#[doc(hidden)]
pub mod clock;
pub mod codec;
#[doc(hidden)]
pub mod compression;
#[doc(hidden)]
pub mod context;
pub mod counters;
#[doc(hidden)]
pub mod erased;
mod error;
#[doc(hidden)]
pub mod flags;
pub mod forward;
pub mod layer;
pub mod limits;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod near;
#[doc(hidden)]
pub mod pattern;
#[doc(hidden)]
pub mod payload;
mod push;
#[doc(hidden)]
pub mod queue;
#[doc(hidden)]
pub mod reserved;
pub mod runtime;
pub mod service;
pub mod stream;
#[doc(hidden)]
pub mod trace;
pub mod wire;

pub use call::{Call, Caller, Cx, Extensions, Identity, Peer, Reply};
#[cfg(feature = "proto")]
pub use codec::Encoded;
pub use compression::Compression;
pub use error::Error;
pub use flags::Flag;
pub use layer::{Layer, Next};
pub use limits::{Limit, Limits};
pub use memory::MemoryStats;
pub use metrics::{
    CertificateStats, ConnectionProtocolStats, Latency, MethodStats, PeerStats, ServerStats, SourceStats,
    TlsStats, WireStats,
};
pub use payload::Payload;
pub use push::{Push, Pusher, Pushes};
pub use runtime::{Runtime, run};
pub use service::Service;
pub use stream::{Receiver, Sender};
pub use trace::Trace;

/// Result of calls and handlers.
pub type Result<T, E = switchboard_wire::Status> = std::result::Result<T, E>;
