//! Discovery and load balancing of [Switchboard](https://docs.rs/switchboard).
//! Applications use the crate `switchboard`, which re-exports the public items of this one.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod balance;
pub mod discover;
