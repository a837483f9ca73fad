//! Topics inside a process: logs, cursors, and a [`Bus`] of typed messages.
//!
//! A *topic* has one log of *entries* with increasing offsets, and every receiver is a *cursor* on that log, without a
//! queue of its own. An own cursor belongs to one subscription, a group cursor to the members of a group, and a durable
//! cursor is kept while its client is disconnected.
//!
//! ```text
//! Bus::publish ─► shard (one of 16, one lock) ─► log of the topic ─► cursors that wait are woken after the lock
//! Subscription ─► shard ─► entries after its cursor, at most a batch ─► Delivery::{Entry, Gap, Recovered}
//! ```
//!
//! An append costs one lock and one copy of a pointer; a subscription that is behind is not touched. Each entry that a
//! subscription does not receive is reported as a [`Gap`].
//!
//! ```
//! # use switchboard_message::{Bus, Delivery};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> switchboard_core::Result<()> {
//! let bus = Bus::new();
//! let mut quotes = bus.subscribe::<f64>("quotes/*").await?;
//! bus.publish("quotes/acme", &12.5).await?;
//! let Some(Delivery::Entry(quote)) = quotes.next().await? else { panic!("a gap") };
//! assert_eq!((quote.topic().name(), *quote), ("quotes/acme", 12.5));
//! # Ok(())
//! # }
//! ```
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bridge;
pub mod broker;
mod bus;
mod clock;
mod files;
mod limits;
mod log;
mod rules;

pub use bridge::{Bridge, BridgeBuilder, BridgeStats};
#[doc(hidden)]
pub use bus::Attempt;
pub use bus::{
    Bus, BusBuilder, Delivery, Embedded, ForwardEntries, HistoryPage, ListTopics, ListingTopics, Message,
    Publish, PublishBatch, Publishing, ReadHistory, Replies, Request, Selector, Subscribe, Subscribing,
    Subscription, TopicsPage, WithGaps, remote,
};
pub use files::FileOptions;
#[doc(hidden)]
pub use files::crc32c;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use files::log_segment;
pub use limits::Limits;
pub use log::{
    BusStats, Checkpoint, Entry, Gap, GapReason, History, ListedTopic, NameRef, Pattern, Position,
    Publication, SlowReader, Storage, Topic, TopicOptions, TopicStats, names,
};
pub use rules::{TopicRule, TopicRules};
