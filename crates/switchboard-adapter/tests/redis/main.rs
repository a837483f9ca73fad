//! Clients of Redis on a server: what they may do, byte by byte, and what ends with them. Real clients are in
//! `interop/redis`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod calls;
mod limits;
mod order;
mod pubsub;
mod rules;
mod support;
