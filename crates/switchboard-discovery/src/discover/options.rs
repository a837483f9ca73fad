//! Options of every registry.

use std::{path::PathBuf, time::Duration};

/// Options of a [`Discovery`](super::Discovery), for any back end.
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

/// Limit of durations; more would overflow clocks.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl Options {
    /// Creates the default options.
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

    /// Sets the folder that keeps the last snapshot of each service, one file each, for a start while the registry is
    /// down; by default there is none. The folder is created when missing. Each registry needs a folder of its own;
    /// processes may share one. Files are replaced atomically.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Options {
        self.cache = Some(folder.into());
        self
    }

    /// Sets how long instances that vanish all at once are kept; the default is 10 s, zero publishes every snapshot as
    /// it is, and more than a year is a year.
    ///
    /// The exact rule: an instance is *lost* when it was published as `Up` and a later snapshot of the registry does
    /// not have it, or has it as `Down`; one that was `Draining` may end without being lost. Let `lost` be the
    /// instances lost within `confirm_after`, and `up` those published as `Up` now. A snapshot that loses `new` more is
    /// accepted while `lost + new` is at most half of `lost + up`; otherwise the `new` ones are *held back*: they stay
    /// published as they were, beside all instances of the snapshot. When the registry responds again after an outage,
    /// the instances that it has not listed again are held back, too, however few they are: a restarted registry may
    /// only know the instances that have registered again by then, unless it
    /// [keeps registrations](super::Backend::may_lose_registrations).
    /// Instances that are held back
    /// - are as before when the registry has them again;
    /// - are removed when a snapshot that comes `confirm_after` later or after that still lacks them: the service is
    ///   then read from scratch, so that a missing update is no confirmation;
    /// - are removed at once when [`Watch::confirm_gone`](super::Watch::confirm_gone) names them, or has named them
    ///   within `confirm_after` before.
    ///
    /// Confirmed instances no longer count as lost.
    pub fn confirm_after(mut self, time: Duration) -> Options {
        self.confirm_after = time.min(YEAR);
        self
    }

    /// Sets the maximum size of an encoded instance in bytes; the default is 8 KiB. Larger ones cannot be registered,
    /// and are skipped with a warning when a registry has them.
    pub fn instance_bytes_max(mut self, bytes: usize) -> Options {
        self.instance_bytes_max = bytes;
        self
    }

    /// Sets the maximum number of instances of one service; the default is 10 000. Larger snapshots are rejected: the
    /// last good one stays, and the watch state has the error.
    pub fn instances_max(mut self, instances: usize) -> Options {
        self.instances_max = instances;
        self
    }

    /// Sets the longest pause between two attempts to reach a registry that is down; the default is 10 s. Pauses begin
    /// at 50 ms and double, and each is random between half of that and the whole.
    pub fn retry_max(mut self, pause: Duration) -> Options {
        self.retry_max = pause;
        self
    }

    /// Sets how long a registration is kept after its last renewal; the default is 15 s. It is renewed after a third of
    /// it. Back ends round it to the values that they support.
    pub fn ttl(mut self, time: Duration) -> Options {
        self.ttl = time;
        self
    }
}
