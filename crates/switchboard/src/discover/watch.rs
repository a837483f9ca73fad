//! A watch: the newest snapshot of a service, and how good it is.

use super::{Snapshot, discovery::Following};
use crate::Status;
use std::{fmt, sync::Arc};
use tokio::sync::watch;

/// Follows one service; made by [`Registry::watch`](super::Registry::watch). Dropping it and its clones ends it.
#[derive(Clone)]
pub struct Watch {
    pub(super) following: Arc<Following>,
    pub(super) snapshots: watch::Receiver<Arc<Snapshot>>,
}

impl Watch {
    /// The full name of the service.
    pub fn service(&self) -> &str {
        self.following.service()
    }

    /// The name of the registry.
    pub fn registry(&self) -> &str {
        self.following.registry()
    }

    /// The newest snapshot; empty until something is [known](Watch::state). Takes a short lock: who asks for each call
    /// keeps the snapshot until [`changed`](Watch::changed).
    pub fn latest(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Waits for a snapshot that this watch has not returned from here yet, and returns the newest. The first is one
    /// that the registry, or the disk, has answered with, which may be empty; a clone begins where its origin was.
    ///
    /// Cancel safe.
    pub async fn changed(&mut self) -> Arc<Snapshot> {
        // The sender is part of what this watch holds, so it cannot be gone.
        let _ = self.snapshots.changed().await;
        self.snapshots.borrow_and_update().clone()
    }

    /// Reports that a connection to an instance failed: it is then believed when the registry loses it, even with
    /// most of the others, or has lost it. Unknown ids are ignored.
    pub fn confirm_gone(&self, id: &str) {
        self.following.confirm_gone(id);
    }

    /// Reports that there is a connection to an instance: what [`confirm_gone`](Self::confirm_gone) said of it before
    /// is over. A server that was restarted is then not taken for dead when the registry is restarted after it.
    pub fn confirm_back(&self, id: &str) {
        self.following.confirm_back(id);
    }

    /// What is known, from where, and what is wrong.
    pub fn state(&self) -> WatchState {
        self.following.state()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Watch");
        debug.field("service", &self.service()).field("registry", &self.registry());
        debug.field("state", &self.state()).finish_non_exhaustive()
    }
}

/// How good the snapshot of a [`Watch`] is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WatchState {
    /// Where the snapshot comes from.
    pub known: Known,
    /// Why the registry does not answer, or why its last answer was refused; none while all is well.
    pub trouble: Option<Status>,
    /// Ids of instances that the registry has lost and that stay until it is confirmed.
    pub held_back: Vec<String>,
}

/// Where a snapshot comes from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Known {
    /// The registry has not answered yet, and nothing was on the disk.
    #[default]
    Nothing,
    /// The disk: the registry has not answered since the start of this process.
    Disk,
    /// The registry.
    Registry,
}
