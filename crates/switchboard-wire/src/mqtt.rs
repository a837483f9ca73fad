//! MQTT 3.1, 3.1.1 and 5 as pure state machines: [`Server`], and a small [`Client`] for tests and tools.
//!
//! MQTT is not in the list of wires: it carries messages and no calls. A plugin detects it with [`sniff`] on any port.
//!
//! ```text
//! server: recv ─► Connect, then accept or reject ─► Publish, Subscribe, Unsubscribe, Ack, Ping ─► acknowledge, publish
//! client: connect ─► recv: ConnAck ─► publish, subscribe ─► Publish, Ack, SubAck
//! ```
//!
//! A packet becomes an event when it is complete, and its bytes stay in the input until then: nothing is allocated by
//! a length. Each call of `recv` returns at most one event. Topic aliases are resolved by the machine. An error of a
//! client closes the connection: [`ProtocolError`] has the reason code, which a client of version 5 receives in
//! DISCONNECT, or in CONNACK before its connection is accepted.
//!
//! What outlives a connection is not part of the machine. [`Window`] has the packet identifiers of messages on the way
//! to a client, [`ReceivedIds`] those of messages of QoS 2 from it; a driver keeps both with the session. Sessions,
//! subscriptions, retained messages, wills and time are the driver's.
//!
//! Text fields are checked to be UTF-8 without U+0000, and are kept as bytes. [`topic`] has the rules of topic names
//! and topic filters.

mod client;
mod connect;
mod decode;
mod encode;
mod error;
mod fields;
mod limits;
mod packet;
mod properties;
mod publish;
mod reason;
mod received;
mod server;
mod sniff;
#[cfg(test)]
mod tests;
pub mod topic;
mod window;

pub use client::Client;
pub use connect::{Accept, ConnAck, Connect, Will};
pub use error::{ErrorKind, ProtocolError, SendError};
pub use limits::Limits;
pub use packet::{
    Ack, AckKind, Auth, Disconnect, FilterOptions, Packet, QoS, RetainHandling, SubAck, Subscribe,
    Unsubscribe, Version,
};
pub use properties::{Properties, PropertyId, Value};
pub use publish::{EncodedPublish, OutgoingPublish, Publish};
pub use reason::Reason;
pub use received::ReceivedIds;
pub use server::{Server, ServerEvent};
pub use sniff::sniff;
pub use window::{Acknowledged, Resend, Window};
