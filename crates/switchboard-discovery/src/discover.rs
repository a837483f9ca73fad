//! Discovery: the instances of a service, and the registration of instances.
//!
//! A [`Registry`] [watches](Registry::watch) a service and delivers whole [`Snapshot`]s, never differences. It
//! [registers](Registry::register) an [`Instance`] for as long as a [`Lease`] is held. The source of the instances is a
//! [`Backend`] of some hundred lines. The following rules hold for every back end, because [`Discovery`], which makes a
//! registry of a back end, implements them:
//!
//! - **An unavailable registry changes nothing.** The last good snapshot stays; with [`Options::cache`] it is also
//!   available after a restart of this process.
//! - **Never below half at once without confirmation.** When more than half of the instances that take calls would
//!   vanish within [`Options::confirm_after`] without draining, they stay until the registry still lacks them when it
//!   is read again after that time, or until a caller reports with [`Watch::confirm_gone`] that a connection to one of
//!   them failed. New instances are always published at once. See [`Options::confirm_after`] for the exact rule.
//! - **Service names match as a whole**: a watch of `shop.Cart` never yields instances of `shop.CartAdmin`.
//! - **Backoff.** Retries are jittered, with growing pauses while the registry is down, up to [`Options::retry_max`];
//!   leases are renewed after a third of their TTL.
//! - **Bounded.** A snapshot has at most [`Options::instances_max`] instances of at most
//!   [`Options::instance_bytes_max`] bytes each.
//!
//! This crate has [`Fixed`], a list, and [`File`]; back ends that need a client library are in the crate
//! `switchboard-registry`.

mod cache;
mod discovery;
mod file;
mod fixed;
mod instance;
mod lease;
mod options;
mod settle;
mod watch;

pub use discovery::{Backend, Discovery, Feed, Registration};
pub use file::File;
pub use fixed::Fixed;
pub use instance::{Instance, Snapshot, State, escape};
pub use lease::Lease;
pub use options::Options;
pub use watch::{SnapshotSource, Watch, WatchState};

use std::{future::Future, pin::Pin};
use switchboard_core::Result;

/// A boxed future; traits used as `dyn` cannot have async methods.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Source of the instances of services. Cheap to share as `Arc<dyn Registry>`.
///
/// A custom type around a [`Discovery`] implements only [`discovery`](Self::discovery).
pub trait Registry: Send + Sync + 'static {
    /// The back end with the common rules, which implements all other methods.
    fn discovery(&self) -> &Discovery;

    /// Name for messages, such as `etcd 127.0.0.1:2379`.
    fn name(&self) -> &str {
        self.discovery().backend_name()
    }

    /// Follows a service until the watch and its clones are dropped. Returns at once; the first snapshot arrives later,
    /// unless the back end has it without waiting. Watches of one service share their work.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    fn watch(&self, service: &str) -> Watch {
        self.discovery().watch_service(service)
    }

    /// Registers `instance` for as long as the lease is held. The registration is renewed in the background, also after
    /// the registry was down or has lost it. It replaces an instance with the same service and id.
    ///
    /// Cancel safe: if dropped before its end, a registration made by then ends with its TTL.
    ///
    /// # Errors
    /// `InvalidArgument` for an instance that cannot be registered, `Unavailable` when the registry does not respond,
    /// `Unimplemented` when it does not accept registrations.
    fn register(&self, instance: Instance) -> BoxFuture<'_, Result<Lease>> {
        Box::pin(self.discovery().register_instance(instance))
    }
}
