//! Centrifuge, the protocol of the client libraries of Centrifugo, version 2, as pure state machines.
//!
//! [`Server`] turns the bytes of a client into [`Command`]s; [`Client`] sends commands and turns bytes into
//! [`Reply`]s. A connection has one [`Format`]:
//!
//! ```text
//! JSON      {"id":2,"subscribe":{"channel":"live:7"}} LF    … a text message of a WebSocket without the last LF
//! Protobuf  length (varint) │ Command or Reply              … a binary message of a WebSocket
//! ```
//!
//! A message of a WebSocket holds any number of either, one behind the other; the driver adds the LF behind a message
//! with JSON. An empty reply is a ping of the server, an empty command the pong.
//!
//! ```text
//! bytes ─► Server::recv ─► Command ─► the driver ─► Server::reply ─► bytes
//!              └─► an error: the driver closes the WebSocket with its code
//! entries ─► Reply::push ─► write ─► bytes that all subscribers with the format share
//! ```
//!
//! The machine checks that the first command is *connect*, and that every command has an id that no command in
//! flight has. A command that arrived in part stays in the input; a length of the peer reserves no memory. Fields that
//! are zero, empty or false are left out, unknown ones are ignored. Fields with data are bytes in Protobuf, and in JSON
//! the value itself.
//!
//! The protocol carries messages and no calls of its own, so it is not in the list of wires: a plugin of a server
//! drives [`Server`].

mod client;
pub mod code;
mod command;
mod data;
mod error;
mod field;
mod format;
mod limits;
mod message;
mod reply;
mod server;
#[cfg(test)]
mod tests;

pub use client::{Client, NotSent};
pub use command::{
    Channel, Command, Connect, History, Position, Publish, Refresh, Rpc, SendRequest, SubRefresh, Subscribe,
};
pub use data::Data;
pub use error::{ErrorKind, ProtocolError};
pub use field::Empty;
pub use format::Format;
pub use limits::Limits;
pub use reply::{
    Connected, Disconnected, Error, HistoryResult, Info, Member, MessagePush, PresenceResult, PresenceStats,
    Publication, Push, Refreshed, Reply, RpcResult, SubRefreshed, SubscribePush, Subscribed, Unsubscribed,
};
pub use server::Server;
