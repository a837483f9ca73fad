//! ZMTP 3.0 and 3.1, the protocol of ZeroMQ (RFC 23 and 37), as a pure state machine.
//!
//! [`Connection`] is one side of one connection, either the accepting or the connecting one: ZMTP has no roles besides
//! those of the mechanism. It turns bytes into [`Event`]s and messages into frames. [`patterns`] has the rules of
//! the socket types that need no connection: envelopes, identities, subscriptions, rotation among peers.
//!
//! ```text
//! bytes ─► recv ─► greeting ─► handshake ─► Ready ─► Frame { more: true }*, Frame { more: false } ─► one message
//!            │                    └► Credentials or ClientKey,         ├► Subscribe, Cancel, Join, Leave
//!            │                         then accept or reject            │
//!            │                                                          └► Ping, Pong
//!            └─► out: greeting, commands of the handshake, PONG
//! ```
//!
//! Frames of a message arrive one by one, so that a driver can collect them where it wants; a message whose last frame
//! has not arrived must be dropped when the connection ends. Commands between the frames of a message do not
//! disturb it.
//!
//! An error of the peer is a [`ProtocolError`]: it names the frame or command, the rule, and the limit if there is one.
//! During the handshake an ERROR with its text is written first, except by clients of PLAIN and CURVE, which have none.
//! Nothing is read after an error.
//!
//! The mechanisms are NULL, PLAIN, and with the feature `curve` CURVE, whose frames are encrypted. A peer that offers
//! another one is refused by name.
//!
//! Time is the driver's: it limits the duration of the handshake and the rate of PINGs, which it sees as events, and it
//! sends PINGs of its own.

mod command;
mod connection;
#[cfg(feature = "curve")]
mod curve;
mod error;
mod frame;
mod greeting;
mod handshake;
mod limits;
pub mod patterns;
mod properties;
mod public_key;
mod receiving;
mod sending;
mod settings;
mod socket;
mod subscription;
#[cfg(test)]
mod tests;
pub mod z85;
pub mod zws;

pub use connection::{Connection, Event, Peer};
#[cfg(feature = "curve")]
pub use curve::{CurveClient, CurveServer, Randomness, SecretKey};
pub use error::{ErrorKind, ProtocolError};
pub use frame::{frame_bytes, write_frame, write_frame_header, write_message};
pub use greeting::{GREETING_BYTES, SIGNATURE_BYTES, Version, sniff};
pub use limits::Limits;
pub use properties::Properties;
pub use public_key::{KEY_BYTES, PublicKey};
pub use settings::{Credentials, IDENTITY_BYTES_MAX, Mechanism, Settings};
pub use socket::SocketType;
pub use z85::Z85Error;
