//! WebSocket (RFC 6455), either role, as a pure state machine.
//!
//! [`Handshake`] opens the connection over HTTP/1.1: [`accept_key`] is the server's part of it, and the HTTP engine
//! does the rest. [`WebSocket`] then turns bytes into [`Event`]s, unmasks payload into a buffer of its driver, and
//! turns messages into frames.
//!
//! ```text
//! bytes ─► recv ─► Data { last: false }*, Data { last: true } ─► one message, in parts as they arrive
//!                ─► Pong, Closed
//! └─► out: the responses to PING and CLOSE
//! ```
//!
//! A protocol error of the peer writes a CLOSE with its code and ends the machine with [`Fatal`](crate::Fatal).
//! Messages may be compressed (RFC 7692) if both sides agreed on a [`Deflate`]; otherwise the reserved bits must be
//! zero.

mod deflate;
mod frame;
mod handshake;
mod machine;
#[cfg(test)]
mod tests;
mod utf8;

pub use deflate::Deflate;
pub use frame::Kind;
pub use handshake::{Accepted, Handshake, accept_key, is_key};
pub use machine::{Close, Event, Limits, Role, WebSocket};

/// Close codes of section 7.4.1 that this machine and its users send.
pub mod close {
    /// The connection is no longer needed.
    pub const NORMAL: u16 = 1000;
    /// The endpoint goes away: a server stops, or a browser leaves the page.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// Messages of this kind are not supported.
    pub const UNSUPPORTED: u16 = 1003;
    /// Text that is not UTF-8.
    pub const INVALID: u16 = 1007;
    /// A frame or message over the limit.
    pub const TOO_BIG: u16 = 1009;
}
