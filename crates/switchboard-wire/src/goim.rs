//! goim and im-cloud, protocols of push gateways with packets of 16 bytes and a body, as pure state machines.
//!
//! [`Server`] turns the packets of a device into [`Event`]s and replies; [`Client`] sends requests and turns replies
//! and pushes into [`ClientEvent`]s. [`PushForm`] writes pushes, in bytes that all devices with one form share.
//!
//! A packet is the payload of a binary WebSocket message, or follows the one before it on TCP:
//!
//! ```text
//! length u32 BE, with these 16 bytes │ 0x0010 │ version i16 │ operation i32 │ sequence i32 │ body
//! ```
//!
//! The protocol carries messages and no calls, so it is not in the list of wires: a plugin of a server drives
//! [`Server`]. [`sniff`] detects it by its first bytes.
//!
//! ```text
//! bytes ─► Server::recv ─► before auth: other packets are Skipped
//!              │          ├► Auth ─► accept, or the driver closes the connection
//!              │          ├► Heartbeat ─► heartbeat, with the number of connections in the room
//!              │          ├► ChangeRoom, Subscribe, Unsubscribe, Message, Refused: the reply is in the outbox
//!              │          └► Push of a device with im-cloud
//!              └─► an error, without a reply: the connection is closed
//! pushes ─► PushForm::write ─► bytes
//! ```
//!
//! Replies have the order of the requests: while an event waits for its reply, the next packet is not read. A packet
//! that arrived in part stays in the input, and a length of the peer reserves no memory. A machine has no memory of its
//! own, so a connection that waits costs the size of [`Server`].
//!
//! The variant of im-cloud has the same packets with other bodies: [`imcloud`]. [`Variants`] says which are served, and
//! how the first packet selects one.
//!
//! Time is the driver's: it limits the time until a device is authenticated, and between two heartbeats.

mod auth;
mod client;
mod error;
pub mod imcloud;
mod limits;
pub mod operation;
mod packet;
mod push;
mod room_key;
mod server;
mod sniff;
#[cfg(test)]
mod tests;
mod variant;

pub use auth::Auth;
pub use client::{Client, ClientEvent, NotSent};
pub use error::{ErrorKind, ProtocolError};
pub use limits::{Limits, PushLimits};
pub use packet::{HEADER_BYTES, Packet};
pub use push::{Push, PushForm, TooLarge};
pub use room_key::{room_key, split_room_key};
pub use server::{Event, Refusal, Server};
pub use sniff::sniff;
pub use variant::{Variant, Variants};
