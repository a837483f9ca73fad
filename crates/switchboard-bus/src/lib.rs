//! Topics of a server, for callers of every protocol.
//!
//! [`BusServer`] is the service `switchboard.bus.v1.Bus` over a [`Bus`]: callers of the native wire, gRPC, gRPC-Web,
//! Connect, HTTP/JSON, JSON-RPC and WebSockets publish and subscribe with the clients they already have. The process
//! itself uses the same topics by the [`Bus`].
//!
//! ```
//! use switchboard::Server;
//! use switchboard_bus::{BusServer, v1::{BusClient, Publication, PublishRequest}};
//! use switchboard_message::{Bus, Delivery};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> switchboard::Result<()> {
//! let bus = Bus::new();
//! let mut quotes = bus.subscribe_encoded("quotes/*").await?;
//! let server = Server::new().add(BusServer::new(bus)).listen("tcp://127.0.0.1:0").start().await?;
//!
//! let client = BusClient::connect(&server.url()).await?;
//! let entry = Publication { payload: "12.5".into(), ..Default::default() };
//! let request = PublishRequest { topic: "quotes/acme".into(), entry: entry.into(), ..Default::default() };
//! client.publish(request).await?;
//!
//! let Some(Delivery::Entry(quote)) = quotes.next().await? else { panic!("a gap") };
//! assert_eq!((quote.topic().name(), &quote[..]), ("quotes/acme", &b"12.5"[..]));
//! # Ok(())
//! # }
//! ```
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod acks;
mod connect;
mod convert;
mod events;
mod plugin;
mod remote;
mod service;

pub use connect::Connect;
pub use service::BusServer;

/// Parts of event streams, for crates of Switchboard with further ones.
#[doc(hidden)]
pub mod parts {
    pub use crate::events::{Format, HEARTBEAT, Positions, accepts_events, tag_of};
}

#[cfg(doc)]
use switchboard_message::Bus;

/// Messages, client and service of the package `switchboard.bus.v1`.
///
/// Generated from `proto/switchboard/bus/v1/bus.proto`; a test of `switchboard-build` compares the files with it.
#[allow(
    missing_docs,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    reason = "the generator documents what the schema documents"
)]
pub mod v1 {
    include!("../generated/switchboard.bus.v1.rs");
}

/// The documentation pages, so that their examples are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/topics.md")]
struct TopicsPage;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/durable-topics.md")]
struct DurableTopicsPage;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/event-streams.md")]
struct EventStreamsPage;
