//! WebSocket (RFC 6455), either role, as a pure machine.
//!
//! [`Handshake`] opens the connection over HTTP/1.1: [`accept_key`] is the server's part of it, and the rest of an
//! HTTP request is for the HTTP engine. [`WebSocket`] then turns bytes into [`Event`]s, unmasked payload into a
//! buffer of its driver, and messages into frames.
//!
//! ```text
//! bytes ─► recv ─► Data { last: false }*, Data { last: true } ─► one message, in parts as they arrive
//!                ─► Pong, Closed
//!             └─► out: the answers to PING and CLOSE
//! ```
//!
//! A mistake of the peer writes a CLOSE with its code and ends the machine with [`Fatal`](crate::Fatal). Messages are
//! compressed (RFC 7692) where both sides agreed on a [`Deflate`]; else the reserved bits must be zero.

mod deflate;
mod frame;
mod handshake;
mod machine;
mod sha1;
#[cfg(test)]
mod tests;
mod utf8;

pub use deflate::Deflate;
pub use frame::Kind;
pub use handshake::{Accepted, Handshake, accept_key, is_key};
pub use machine::{Close, Event, Limits, Role, WebSocket};

/// Close codes of section 7.4.1 that this machine and its users send.
pub mod close {
    /// The purpose is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The endpoint goes away: a server stops, a page is left.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke the protocol.
    pub const PROTOCOL: u16 = 1002;
    /// Messages of this kind are not taken.
    pub const UNSUPPORTED: u16 = 1003;
    /// Text that is not UTF-8.
    pub const INVALID: u16 = 1007;
    /// A frame or message over the limit.
    pub const TOO_BIG: u16 = 1009;
}
