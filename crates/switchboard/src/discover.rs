//! Discovery: which instances of a service there are, and telling others of one's own.
//!
//! A [`Registry`] is asked to [`watch`](Registry::watch) a service and hands out whole [`Snapshot`]s, never changes
//! of them, and to [`register`](Registry::register) an [`Instance`] for as long as a [`Lease`] is held. Where the
//! instances come from is a [`Backend`], some hundred lines each; the rules hold for all of them, because they are in
//! [`Discovery`], which makes a registry of a back end:
//!
//! - **A registry that is down changes nothing.** The last good snapshot stays, and with [`Options::cache`] it is there
//!   after a restart of this process too.
//! - **Never below half at once without confirmation.** When more than half of the instances that take calls would
//!   vanish within [`Options::confirm_after`] without a notice, they stay, until the registry still lacks them when it
//!   is read again after that time, or until a caller reports with [`Watch::confirm_gone`] that a connection to one of
//!   them failed. What joins is there at once in any case. See [`Options::confirm_after`] for the exact rule.
//! - **A service is compared as a whole**: who watches `shop.Cart` never sees instances of `shop.CartAdmin`.
//! - **Calm.** Tries to reach a registry are spread, and ever rarer while it is down, up to [`Options::retry_max`];
//!   leases are renewed after a third of their time.
//! - **Bounded.** A snapshot has at most [`Options::instances_max`] instances of [`Options::instance_bytes_max`] each.
//!
//! Here are [`Fixed`], a list, and [`File`]; those that need a client of their own are in the crate
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

pub use discovery::{Backend, Discovery, Feed, Held};
pub use file::File;
pub use fixed::Fixed;
pub use instance::{Instance, Snapshot, State, escape};
pub use lease::Lease;
pub use options::Options;
pub use watch::{Known, Watch, WatchState};

use crate::Result;
use std::{future::Future, pin::Pin};

/// A future that is boxed, since traits that are used as `dyn` have no async methods.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Knows the instances of services. Cheap to share as `Arc<dyn Registry>`.
///
/// A type of one's own around a [`Discovery`] says only where that is.
pub trait Registry: Send + Sync + 'static {
    /// The back end and the rules around it, which do all the rest.
    fn discovery(&self) -> &Discovery;

    /// For texts: `etcd 127.0.0.1:2379`.
    fn name(&self) -> &str {
        self.discovery().backend_name()
    }

    /// Follows a service until the watch and its clones are dropped. Returns at once: what is known comes later,
    /// unless it is at hand. Watches of one service share their work.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    fn watch(&self, service: &str) -> Watch {
        self.discovery().watch_service(service)
    }

    /// Tells others of `instance` for as long as the lease is held; it is renewed in the background, also after the
    /// registry was down or has forgotten it. One with the same service and id is replaced.
    ///
    /// Cancel safe: dropped before its end, what was registered by then ends with its time.
    ///
    /// # Errors
    /// `InvalidArgument` for an instance that cannot be kept, `Unavailable` when the registry does not answer,
    /// `Unimplemented` when it takes no registrations.
    fn register(&self, instance: Instance) -> BoxFuture<'_, Result<Lease>> {
        Box::pin(self.discovery().register_instance(instance))
    }
}
