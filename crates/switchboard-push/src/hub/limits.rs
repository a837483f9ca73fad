//! Limits of a hub.

use std::time::Duration;

/// Limits of a hub. Rates allow bursts of one second, and at least one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HubLimits {
    /// Devices of this process; default 1,000,000.
    pub devices_max: usize,
    /// Devices of one user in this process; default: the 33rd replaces the oldest.
    pub devices_per_user: DeviceLimit,
    /// Rooms of one device; default 128.
    pub rooms_per_device_max: usize,
    /// Joins and leaves of one device per second; default 100.
    pub room_changes_per_s: f64,
    /// Entries that one device publishes per second; default 100.
    pub publications_per_s: f64,
    /// Entries that the devices of one user publish per second; default 1,000.
    pub user_publications_per_s: f64,
    /// Entries to all devices per second; default 10.
    pub broadcasts_per_s: f64,
    /// Rooms that one publication to a pattern reaches; default 10,000.
    pub rooms_per_publication_max: usize,
    /// Bytes of an entry that the server publishes; default 1 MiB.
    pub entry_bytes_max: usize,
    /// Members, devices or keys of one page or request; default 1,000.
    pub page_max: usize,
}

impl Default for HubLimits {
    fn default() -> Self {
        HubLimits {
            devices_max: 1_000_000,
            devices_per_user: DeviceLimit::ReplaceOldest(32),
            rooms_per_device_max: 128,
            room_changes_per_s: 100.0,
            publications_per_s: 100.0,
            user_publications_per_s: 1_000.0,
            broadcasts_per_s: 10.0,
            rooms_per_publication_max: 10_000,
            entry_bytes_max: 1 << 20,
            page_max: 1_000,
        }
    }
}

/// Number of devices of one user in a process, and what happens to a further one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DeviceLimit {
    /// There is no limit.
    Unlimited,
    /// A further device is refused.
    Refuse(usize),
    /// The device that connected first is disconnected.
    ReplaceOldest(usize),
}

/// How often devices must show that they are alive. Any byte of the device counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Heartbeat {
    /// Time without a byte in either direction after which the server pings, in protocols with pings; default 25 s.
    pub interval: Duration,
    /// Time without a byte of the device after which it is disconnected; default 60 s.
    pub timeout: Duration,
    /// Time for the credentials of a new connection; default 8 s.
    pub login: Duration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Heartbeat { interval: seconds(25), timeout: seconds(60), login: seconds(8) }
    }
}
