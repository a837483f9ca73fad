//! Settings of rooms.

use crate::access::Access;
use std::time::Duration;
use switchboard_message::TopicOptions;

/// Settings of the rooms that match a pattern; see [`HubBuilder::rooms`](crate::HubBuilder::rooms). By default a room
/// has no history, every verified device may join it, only the server publishes to it, and members may list members if
/// the room has [presence](Self::presence).
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before they are given to the hub"]
pub struct Rooms {
    pub(crate) options: TopicOptions,
    pub(crate) merge: Duration,
    pub(crate) presence: bool,
    pub(crate) join: Access,
    pub(crate) publish: Access,
    pub(crate) list: Access,
    pub(crate) members_max: usize,
    pub(crate) entry_bytes_max: usize,
    pub(crate) rate: Option<f64>,
}

impl Default for Rooms {
    fn default() -> Self {
        Rooms {
            options: TopicOptions::new(),
            merge: Duration::ZERO,
            presence: false,
            join: Access::all(),
            publish: Access::none(),
            list: Access::members(),
            members_max: usize::MAX,
            entry_bytes_max: 64 << 10,
            rate: None,
        }
    }
}

impl Rooms {
    /// Creates the default settings.
    pub fn new() -> Rooms {
        Rooms::default()
    }

    /// Keeps this many entries, not older than `age_max`, for devices that join or come back.
    pub fn history(mut self, entries_max: usize, age_max: Duration) -> Rooms {
        self.options = self.options.history(entries_max, age_max);
        self
    }

    /// Limits the bytes of the history; default 8 MiB.
    pub fn history_bytes(mut self, bytes_max: usize) -> Rooms {
        self.options = self.options.history_bytes(bytes_max);
        self
    }

    /// Sets all options of the topics of these rooms, such as their storage and the behaviour for slow readers.
    pub fn options(mut self, options: TopicOptions) -> Rooms {
        self.options = options;
        self
    }

    /// Delivers the entries of a window together; default: each at once. The first entry of a window waits for its end,
    /// and a member receives the entries of a window in one write.
    pub fn merge(mut self, window: Duration) -> Rooms {
        self.merge = window;
        self
    }

    /// Keeps only the newest entry of each key.
    pub fn conflate(mut self) -> Rooms {
        self.options = self.options.conflate();
        self
    }

    /// Shows the members to those who may [list](Self::list) them, and publishes the events *joined* and *left*.
    pub fn presence(mut self) -> Rooms {
        self.presence = true;
        self
    }

    /// Sets who may join; default all verified devices. The server may have any device join.
    pub fn join(mut self, access: Access) -> Rooms {
        self.join = access;
        self
    }

    /// Sets which devices may publish; default none.
    pub fn publish(mut self, access: Access) -> Rooms {
        self.publish = access;
        self
    }

    /// Sets which devices may list the members and the history; default members of the room.
    pub fn list(mut self, access: Access) -> Rooms {
        self.list = access;
        self
    }

    /// Limits the members of one room in this process; default no limit.
    pub fn members_max(mut self, members: usize) -> Rooms {
        self.members_max = members;
        self
    }

    /// Limits the bytes of an entry that a device publishes; default 64 KiB.
    pub fn entry_bytes_max(mut self, bytes: usize) -> Rooms {
        self.entry_bytes_max = bytes;
        self
    }

    /// Limits the entries per second that devices publish to one room together, with bursts of one second; default no
    /// limit.
    pub fn rate(mut self, per_second: f64) -> Rooms {
        self.rate = Some(per_second);
        self
    }
}
