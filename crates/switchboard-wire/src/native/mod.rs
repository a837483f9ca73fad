//! The native wire: specified byte by byte in `docs/native-wire.md`.
//!
//! A connection is a preface and then frames of a 12-byte header and a body. A call is one frame up and one
//! frame down when it is unary; streams are flow-controlled by credit in bytes.

mod client;
mod frame;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use frame::{DEFAULT_WINDOW, MAGIC, PREFACE_LEN, VERSION};
pub use server::Server;
pub use spec::NATIVE;
