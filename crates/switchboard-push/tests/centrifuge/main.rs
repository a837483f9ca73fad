//! Clients of Centrifuge on a server, with the client machine, in both formats. The client libraries of Centrifugo are
//! in `interop/centrifuge`.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod api;
mod limits;
mod login;
mod recovery;
mod rooms;
mod support;
