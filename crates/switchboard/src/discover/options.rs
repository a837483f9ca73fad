//! What can be set for every registry.

use std::{path::PathBuf, time::Duration};

/// How a [`Discovery`](super::Discovery) behaves, whatever its back end.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(super) cache: Option<PathBuf>,
    pub(super) confirm_after: Duration,
    pub(super) instance_bytes_max: usize,
    pub(super) instances_max: usize,
    pub(super) retry_max: Duration,
    pub(super) ttl: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

/// More would overflow clocks.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl Options {
    /// What is usual.
    pub fn new() -> Options {
        Options {
            cache: None,
            confirm_after: Duration::from_secs(10),
            instance_bytes_max: 8 << 10,
            instances_max: 10_000,
            retry_max: Duration::from_secs(10),
            ttl: Duration::from_secs(15),
        }
    }

    /// A folder that keeps the last snapshot of each service, one file each, for a start while the registry is down;
    /// none unless set. It is made if it is not there. Each registry needs a folder of its own; processes may share
    /// one. Files are replaced as a whole.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Options {
        self.cache = Some(folder.into());
        self
    }

    /// How long instances that vanish all at once are kept; 10 s unless set, zero believes everything, and more than a
    /// year is a year.
    ///
    /// The exact rule. An instance is *lost* when it was published as `Up` and a later snapshot of the registry does
    /// not have it, or has it as `Down`; one that was `Draining` may end without being lost. Let `lost` be those that
    /// were lost within `confirm_after`, and `up` those that are published as `Up` now. A snapshot that loses `new`
    /// more is believed while `lost + new` is at most half of `lost + up`; otherwise the `new` ones are *held back*:
    /// they stay published as they were, beside all that the snapshot has. After the registry did not answer, those
    /// that it has not shown again are held back, too, however few they are: one that was restarted may know only those
    /// who have registered again by then, unless it [never forgets](super::Backend::forgets). Held back instances
    ///
    /// - are as before when the registry has them again;
    /// - are gone when a snapshot that comes `confirm_after` later or after that still lacks them: the service is
    ///   then read from scratch, so that silence is no confirmation;
    /// - are gone at once when [`Watch::confirm_gone`](super::Watch::confirm_gone) names them, or has named them
    ///   within `confirm_after` before.
    ///
    /// What was confirmed does not count as lost any more.
    pub fn confirm_after(mut self, time: Duration) -> Options {
        self.confirm_after = time.min(YEAR);
        self
    }

    /// The largest encoded instance; 8 KiB unless set. Larger ones cannot be registered, and are left out with a
    /// warning where they are found.
    pub fn instance_bytes_max(mut self, bytes: usize) -> Options {
        self.instance_bytes_max = bytes;
        self
    }

    /// The most instances of one service; 10 000 unless set. Larger snapshots are refused: the last good one stays,
    /// and the watch says so.
    pub fn instances_max(mut self, instances: usize) -> Options {
        self.instances_max = instances;
        self
    }

    /// The longest pause between two tries to reach a registry that is down; 10 s unless set. Pauses begin at 50 ms
    /// and double, and each is by chance between half of that and the whole.
    pub fn retry_max(mut self, pause: Duration) -> Options {
        self.retry_max = pause;
        self
    }

    /// How long a registration is kept after its process was last heard of; 15 s unless set, renewed after a third of
    /// it. Back ends round it to what they can do.
    pub fn ttl(mut self, time: Duration) -> Options {
        self.ttl = time;
        self
    }
}
