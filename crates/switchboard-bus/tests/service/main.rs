//! The service of topics, called over the wires.
#![allow(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod errors;
mod groups;
mod http_json;
mod limits;
mod rules;
mod support;
mod wires;
