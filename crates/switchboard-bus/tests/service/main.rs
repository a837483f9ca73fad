//! The service of topics, called over the wires.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod support;
mod wires;
