//! TLS: what listeners and channels accept, refuse, say and keep.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[path = "../support/mod.rs"]
mod support;

mod channels;
mod foreign;
mod hostile;
mod identity;
mod listeners;
mod reload;
mod traffic;
