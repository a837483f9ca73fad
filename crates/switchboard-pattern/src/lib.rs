//! Messaging patterns on sockets of ZeroMQ, one module each: components with limits, statistics and typed errors.
//!
//! The page `docs/patterns.md` compares them: when to use which, what each guarantees, and what it does when a peer
//! fails. Their peers may be programs of libzmq that speak the published protocols.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(feature = "beacon")]
pub mod beacon;
pub mod binary_star;
pub mod bus;
pub mod clone;
pub mod devices;
mod error;
pub mod freelance;
pub mod lag;
pub mod last_value_cache;
pub mod majordomo;
pub mod pipeline;
pub mod pirate;
mod route;
mod session;
mod stall;
pub mod survey;
mod task;
pub mod titanic;

pub use error::{Error, ErrorKind, Result};
