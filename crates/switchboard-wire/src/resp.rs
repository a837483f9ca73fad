//! RESP2 and RESP3, the protocol of Redis, as pure state machines: pub/sub and calls, no keys.
//!
//! [`Server`] turns the requests of a client into [`Event`]s and replies: it has the commands that client libraries
//! send when they connect, subscriptions, publications and `CALL` for methods. [`Client`] sends any command to a server
//! and turns its replies and pushes into [`ClientEvent`]s. [`Pattern`] has the globs of `PSUBSCRIBE`.
//!
//! It carries messages beside calls, so it is not in the list of wires: a plugin of a server drives [`Server`].
//! [`sniff`] detects it by its first bytes.
//!
//! ```text
//! bytes ─► Server::recv ─► PING, HELLO, CLIENT, INFO ... ─► Responded, the reply is in the outbox
//!              │          ├► Subscribe ─► accept or refuse          ├► Call ─► called
//!              │          ├► Unsubscribe, Reset, Quit               ├► Publish ─► published
//!              │          └► Auth ─► accept or reject               └► Channels, Patterns, Subscribers
//!              └─► -ERR Protocol error, the connection is closed
//! entries ─► write_message, write_pattern_message ─► bytes that all subscribers with one version share
//! ```
//!
//! Replies have the order of the requests: while an event waits for its reply, the next request is not read. The
//! machine keeps the names of the subscriptions of a connection, because each confirmation has their count. A client
//! with RESP2 and a subscription may use the commands of subscriptions only; with RESP3 messages are pushes, and any
//! command is allowed.
//!
//! A call of `recv` processes one request, one name of a request with several, or one reply. Requests and replies that
//! arrived in part stay in the input, with their heads parsed, and no length or count of the peer reserves memory.
//! Names and payloads in events are slices of the input: copy the ones that are kept for long.
//!
//! Differences from Redis, each on purpose: a CR or LF out of place and a negative count are errors, `SPUBLISH` and
//! `PUBLISH` are one command, as a shard channel is the channel with its name, and the one database is 0.
//!
//! Time is the driver's: it limits the duration of a request and of the authentication, and the rates of events.

mod build;
mod client;
mod error;
mod inline;
mod limits;
mod line;
mod pattern;
mod reply;
mod request;
mod server;
mod settings;
mod sniff;
#[cfg(test)]
mod tests;
mod value;
mod version;
mod write;

pub use client::{Client, ClientEvent, NotSent};
pub use error::{ErrorKind, ProtocolError};
pub use limits::{Limits, ReplyLimits};
pub use pattern::Pattern;
pub use server::{Event, Server};
pub use settings::{Credentials, Settings};
pub use sniff::{sniff, sniff_inline};
pub use value::Value;
pub use version::{SubscriptionKind, Version};
pub use write::{write_command, write_message, write_pattern_message, write_value};
