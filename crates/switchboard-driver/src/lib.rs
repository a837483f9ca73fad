//! Connections of the servers of [Switchboard](https://docs.rs/switchboard): the loop that runs the wires, and the state
//! of a running server. Applications use the crate `switchboard`.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[doc(hidden)]
pub mod driver;
#[doc(hidden)]
pub mod serving;
