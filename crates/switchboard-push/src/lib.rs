//! A push gateway: devices that connect to a server, in rooms, with presence and recovery.
//!
//! Rooms, users and keys of devices are topics of a [`Bus`](switchboard_message::Bus). A [`Hub`] verifies devices,
//! knows
//! their rooms and their rights, and publishes to them; adapters map the protocols of devices to it.
//!
//! ```text
//! Hub::room(name).publish ─► topic room/NAME ─► members of the room, on every protocol
//! Hub::user(id).publish   ─► topic user/ID   ─► devices of the user
//! Hub::key(key).close     ─► topic key/KEY   ─► the device, wherever it is connected
//! ```
//!
//! ```
//! use std::time::Duration;
//! use switchboard_push::{Hub, Item, Rooms};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> switchboard::Result<()> {
//! let rooms = Rooms::new().history(100, Duration::from_secs(300)).presence();
//! let hub = Hub::builder().open().rooms("live/*", rooms).build().await?;
//! let mut device = hub.attach("ali").await?;
//! device.join("live/7").await?;
//! hub.room("live/7").publish(&"hello").await?;
//! let Some(Item::Entry(entry)) = device.next().await? else { panic!("no entry") };
//! assert_eq!((entry.topic().name(), &entry[..]), ("room/live/7", &b"\"hello\""[..]));
//! # Ok(())
//! # }
//! ```
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod accepts;
mod access;
pub mod adapter;
mod addresses;
pub mod api;
mod centrifugo;
pub mod control;
mod counters;
mod disconnect;
mod events;
pub mod feeds;
mod hub;
mod identity;
mod inbox;
pub mod names;
mod plugin;
mod room;
mod service;
mod start;
mod tickets;
mod verifier;

pub use accepts::{Accepts, OPERATION, operation_of};
pub use access::Access;
pub use centrifugo::CentrifugoApi;
pub use counters::{DropReason, HubStats};
pub use disconnect::{Disconnect, DisconnectReason};
pub use hub::{
    All, Closer, Connect, Device, DeviceInfo, DeviceLimit, Heartbeat, Hub, HubBuilder, HubEvent, HubLimits,
    Joined, Key, Member, MembersPage, Publish, Publishing, Room, RoomPattern, RoomsPage, User,
};
pub use identity::{Credentials, Identity};
pub use inbox::{Inbox, Item};
pub use room::Rooms;
pub use service::{DevicesServer, PushServer, ServiceVerifier, v1};
pub use start::Start;
pub use tickets::{Resumed, Tickets};
pub use verifier::{Jwt, Verifier, Verify, from_fn};

/// The documentation page of Centrifuge, so that its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/centrifuge.md")]
struct CentrifugePage;

/// The documentation page of goim, so that its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/goim.md")]
struct GoimPage;

/// The documentation page, so that its examples are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/push.md")]
struct PushPage;
