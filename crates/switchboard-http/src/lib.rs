//! HTTP of the servers of [Switchboard](https://docs.rs/switchboard): gRPC, gRPC-Web, Connect, HTTP/JSON and WebSockets.
//! Applications use the crate `switchboard`, which re-exports the public items of this one.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[doc(hidden)]
pub mod http;

pub use http::{Cors, HttpJson};
