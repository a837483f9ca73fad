//! Engines of a [`Bus`](switchboard_message::Bus): topics that are kept outside the process, so that several processes
//! publish to them and follow them. Each engine is a feature.
//!
//! ```no_run
//! # use switchboard_message::Bus;
//! # async fn example() -> switchboard_core::Result<()> {
//! let bus = Bus::builder().engine(switchboard_broker::connect("redis://127.0.0.1:6379")?).build();
//! bus.publish("quotes/acme", &12.5).await?;
//! # Ok(())
//! # }
//! ```

mod address;
#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
mod attempts;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "kafka", feature = "nats", feature = "redis"))]
mod record;
#[cfg(feature = "redis")]
pub mod redis;

pub use address::connect;
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
#[cfg(feature = "nats")]
pub use nats::Nats;
#[cfg(feature = "redis")]
pub use redis::Redis;

/// The documentation page, so that its example is compiled.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../../docs/engines.md")]
struct EnginesPage;
