//! HTTP/2 (RFC 9113) as pure functions, tables and state machines: compression of header fields, frames, settings, flow
//! control and streams.

pub mod abuse_budget;
pub mod client;
pub mod frame;
pub mod hpack;
mod send;
pub mod server;
pub mod settings;
pub mod streams;
pub mod window;
