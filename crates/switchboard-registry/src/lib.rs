//! Registries for [`switchboard::discover`], one feature for each kind.
//!
//! [`connect`] creates a registry from an address, and its documentation lists the kinds; each type also has a
//! `connect` function. The [embedded](Embedded) one is enabled by default, since it needs only Switchboard.
//!
//! A new kind is one file with a [`Backend`](switchboard::discover::Backend) and the constructor of its addresses, one
//! line in the list of kinds in `address.rs`, and a test that runs `tests/suite` against its real server.
// Time comes from the clock of `switchboard_core`, see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod address;
#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "dns")]
pub mod dns;
#[cfg(feature = "embedded")]
pub mod embedded;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod entries;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod layout;
#[cfg(feature = "mdns")]
pub mod mdns;
#[cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "mdns",
    feature = "nacos",
    feature = "redis",
    feature = "zookeeper"
))]
mod meta;
#[cfg(feature = "nacos")]
pub mod nacos;
#[cfg(any(feature = "consul", feature = "nacos", feature = "redis"))]
mod owner;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

#[cfg(feature = "redis")]
pub use self::redis::Redis;
pub use address::{connect, fleet, is_registry};
#[cfg(feature = "consul")]
pub use consul::Consul;
#[cfg(feature = "dns")]
pub use dns::Dns;
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, EmbeddedServer};
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
#[cfg(feature = "kubernetes")]
pub use kubernetes::Kubernetes;
#[cfg(feature = "mdns")]
pub use mdns::Mdns;
#[cfg(feature = "nacos")]
pub use nacos::Nacos;
#[cfg(feature = "zookeeper")]
pub use zookeeper::ZooKeeper;

/// The documentation page, so that its examples are compiled and run.
#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../../../docs/discovery.md")]
struct DiscoveryPage;
