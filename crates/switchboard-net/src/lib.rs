//! Connections of [Switchboard](https://docs.rs/switchboard): addresses, transports, TLS and buffers.
//! Applications use the crate `switchboard`, which re-exports the public items of this one.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[doc(hidden)]
pub mod connection;
#[cfg(feature = "http")]
#[doc(hidden)]
pub mod http_fields;
#[doc(hidden)]
pub mod net;
pub mod plugin;
#[cfg(feature = "web")]
#[doc(hidden)]
pub mod web;

#[cfg(feature = "tls")]
pub use net::tls::Tls;
pub use net::{Address, transport};
