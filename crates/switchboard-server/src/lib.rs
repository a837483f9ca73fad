//! The server of [Switchboard](https://docs.rs/switchboard): services behind listeners, with every protocol on each
//! listener, and admin pages. Applications use the crate `switchboard`, which re-exports the public items of this one.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "channelz")]
// Generated code names the crate `switchboard`, whose items it finds below.
extern crate self as switchboard;

#[cfg(feature = "http")]
pub mod admin;
pub mod server;

pub use server::{AbortedCalls, AbortedConnections, Drained, Running, Server, StopOptions, Stopped};
#[cfg(feature = "channelz")]
use switchboard_core::{Call, Cx, Reply, Result, Service};
#[cfg(feature = "channelz")]
use switchboard_wire::{Kind, MethodInfo, Params, ServiceInfo, Status};

/// Items for the generated code of Channelz.
#[cfg(feature = "channelz")]
mod codegen {
    pub(crate) use ::{buffa, buffa_types, serde};
    pub(crate) use std::sync::Arc;
    pub(crate) use switchboard_core::codec::{self, read_request};
}
