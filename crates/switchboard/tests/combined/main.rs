//! Channels made of channels: parallel, selective, partitioned, and nested.
#![cfg(feature = "macros")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod parallel;
mod picking;
mod shelf;
