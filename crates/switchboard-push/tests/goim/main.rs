//! Devices of goim on a server, byte by byte: what the hub may refuse, and what ends with them. A client that was
//! written from the protocol, WebSockets and the HTTP interfaces are in `interop/goim`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod limits;
mod login;
mod orders;
mod support;
