//! Sockets with ZeroMQ's names and semantics, in pure Rust, for peers of libzmq and for this crate itself.
//!
//! ```
//! use switchboard_socket::{Pull, Push};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), switchboard_socket::Error> {
//! let push = Push::bind("tcp://127.0.0.1:0").await?;
//! let pull = Pull::connect(&push.endpoints()[0].to_string()).await?;
//! push.send("task").await?; // waits at the high-water mark
//! assert_eq!(pull.recv().await?.body(), b"task");
//! # Ok(())
//! # }
//! ```
//!
//! A socket binds and connects to any number of endpoints: `tcp`, `ipc`, and `inproc`, which passes messages by
//! reference. Connections are established again after they are lost. Sending to a full peer waits, returns an error or
//! drops the message, as the socket type defines. [`SocketStats`] counts the messages that were accepted for a peer
//! and dropped before they were written, and a [`Monitor`] receives an event. Not counted are messages that a newer
//! one replaces with [`conflate`](options::QueueOptions::conflate), messages that were written and not read by the
//! peer, and received messages that the socket type refuses, such as late replies.
//!
//! Handles are cloned for senders and receivers that work at the same time. The last handle that is dropped closes the
//! socket, and unsent messages are written for up to [`linger`](options::TimeoutOptions::linger).
//! [`blocking`] has the sockets for programs without async.
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod blocking;
mod connection;
mod core;
mod counters;
mod endpoint;
mod endpoints;
mod error;
mod inproc;
mod message;
mod monitor;
mod network;
pub mod options;
mod peer_id;
pub mod proxy;
mod socket;
mod types;

pub use core::{PeerStats, SocketStats};
pub use endpoint::Endpoint;
pub use error::{Error, ErrorKind, Result};
pub use message::Message;
pub use monitor::{Event, Monitor};
pub use options::SocketOptions;
pub use peer_id::PeerId;
pub use socket::Socket;
pub use switchboard_wire::zmtp::SocketType;
pub use types::{
    Channel, Client, Dealer, Dish, Gather, Pair, Peer, Pub, Pull, Push, Radio, Rep, Req, Router, Scatter,
    Server, Stream, Sub, Xpub, Xsub,
};
