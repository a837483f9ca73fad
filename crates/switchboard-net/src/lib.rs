//! Connections of [Switchboard](https://docs.rs/switchboard): addresses, transports, TLS and buffers.
//! Applications use the crate `switchboard`, which re-exports the public items of this one.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

// The crates below this one compile for every target, and those above depend on it. Its modules are left out on other
// targets, so that this is the only error.
#[cfg(not(unix))]
compile_error!(
    "switchboard compiles for Unix systems only, because its listeners and channels use Unix sockets: choose a Unix \
     target, see the section Platforms of docs/packages.md"
);

#[cfg(unix)]
#[doc(hidden)]
pub mod connection;
#[cfg(all(unix, feature = "http"))]
#[doc(hidden)]
pub mod http_fields;
#[cfg(unix)]
#[doc(hidden)]
pub mod net;
#[cfg(unix)]
pub mod plugin;
#[cfg(all(unix, feature = "web"))]
#[doc(hidden)]
pub mod web;

#[cfg(all(unix, feature = "tls"))]
pub use net::tls::Tls;
#[cfg(unix)]
pub use net::{Address, transport};
