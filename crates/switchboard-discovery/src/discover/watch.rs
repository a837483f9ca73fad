//! A watch: the newest snapshot of a service, and its quality.

use super::{Snapshot, discovery::Following};
use std::{fmt, sync::Arc};
use switchboard_wire::Status;
use tokio::sync::watch;

/// Follows one service; made by [`Registry::watch`](super::Registry::watch). Dropping it and its clones ends the watch.
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

    /// The newest snapshot; empty until there is [one](Watch::state). Takes a short lock: callers on a hot path keep
    /// the snapshot until [`changed`](Watch::changed).
    pub fn latest(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Waits for a snapshot that this method has not returned yet on this watch, and returns the newest. The first is
    /// the first response of the registry or the disk, which may be empty; a clone continues from the position of its
    /// origin.
    ///
    /// Cancel safe.
    pub async fn changed(&mut self) -> Arc<Snapshot> {
        // `changed` cannot fail: this watch holds the sender.
        let _ = self.snapshots.changed().await;
        self.snapshots.borrow_and_update().clone()
    }

    /// Reports that a connection to an instance failed: when the registry then loses the instance, even together with
    /// most of the others, or has lost it already, the instance is removed. Unknown ids are ignored.
    pub fn confirm_gone(&self, id: &str) {
        self.following.confirm_gone(id);
    }

    /// Reports that a connection to an instance succeeded, which revokes an earlier
    /// [`confirm_gone`](Self::confirm_gone). A restarted server is then not treated as dead when the registry is
    /// restarted after it.
    pub fn confirm_back(&self, id: &str) {
        self.following.confirm_back(id);
    }

    /// The source of the snapshot, the current error, and the ids that are held back.
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

/// Source and quality of the snapshot of a [`Watch`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WatchState {
    /// Source of the snapshot.
    pub source: SnapshotSource,
    /// Why the registry does not respond, or why its last response was rejected; `None` without an error.
    pub error: Option<Status>,
    /// Ids of instances that the registry has lost and that stay until their loss is confirmed.
    pub held_back: Vec<String>,
}

/// Source of a snapshot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum SnapshotSource {
    /// None: the registry has not responded yet, and the disk has no snapshot.
    #[default]
    None,
    /// The disk: the registry has not responded since the start of this process.
    Disk,
    /// The registry.
    Registry,
}
