//! A bus whose topics are those of a server, over the wires, and over restarts of the server.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod engine;
mod outage;
mod process;
mod publish;
mod reconnect;
mod resume;
mod support;
mod wires;
