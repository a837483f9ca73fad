//! The hub on a server: devices by event streams and RPC, and the service for applications.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod api;
mod devices;
mod events;
mod support;
