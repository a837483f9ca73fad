//! Plugins of servers that serve message protocols on the topics of a bus.
//!
//! [`Zmtp`] serves sockets of ZeroMQ on the port of a server: SUB peers subscribe to topics by prefix, PUB and PUSH
//! peers publish, PULL peers share the entries of a topic.
//!
//! [`Redis`] serves clients of Redis: `SUBSCRIBE`, `PUBLISH`, and `CALL` for the methods of the server.
//!
//! [`Mqtt`] serves clients of MQTT 3.1, 3.1.1 and 5: QoS 0, 1 and 2, sessions, wills, retained messages.
//!
//! [`Nats`] serves clients of NATS on a listener of its own.
//!
//! ```no_run
//! use switchboard_adapter::Zmtp;
//! use switchboard_message::Bus;
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let bus = Bus::new();
//! let zmtp = Zmtp::new(bus.clone()).pipeline("jobs", "workers")?;
//! switchboard::Server::new().plugin(zmtp).listen("tcp://0.0.0.0:8080").serve().await?;
//! # Ok(())
//! # }
//! ```
// Set for arithmetic on times, see clippy.toml: a peer must not be able to choose a time that causes a panic.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod counters;
mod feed;
mod mqtt;
mod nats;
mod publish;
mod ready;
mod reserved;
mod resp;
mod responses;
mod shared_sets;
mod task;
mod zmtp;

/// Parts of adapters, for crates of Switchboard with further ones.
#[doc(hidden)]
pub mod parts {
    pub use crate::{feed::begin, task::Task};
}

pub use mqtt::{MQTT, Mqtt, MqttStats, RefusedPublish};
pub use nats::{NATS, Nats, NatsStats, SlowConsumer};
pub use resp::{REDIS, Redis, RedisStats};
pub use switchboard_wire::zmtp::SocketType;
#[cfg(feature = "curve")]
pub use switchboard_wire::zmtp::{PublicKey as CurvePublicKey, SecretKey as CurveSecretKey};
pub use zmtp::{
    ZMTP, Zmtp, ZmtpDealer, ZmtpDealerSender, ZmtpPair, ZmtpRouter, ZmtpRouterMessage, ZmtpRouterOptions,
    ZmtpRouterSender, ZmtpStats,
};
