//! Counters of a hub.

use crate::disconnect::DisconnectReason;
use std::sync::atomic::{AtomicU64, Ordering};
use switchboard::counters::Counter;

/// Reason for which a member of a topic did not get an entry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DropReason {
    /// The filter of the device does not accept the operation of the entry.
    Filtered,
    /// The device, or the engine that drives it, was too slow, and the entry is not kept.
    Lagged,
    /// The history no longer contained it when the device came back.
    Expired,
    /// The device came back with a position of another log.
    Epoch,
    /// The engine of the bus reported that it is lost.
    Lost,
    /// The protocol of the device cannot express it.
    NotEncodable,
}

impl DropReason {
    const ALL: [DropReason; 6] = [
        DropReason::Filtered,
        DropReason::Lagged,
        DropReason::Expired,
        DropReason::Epoch,
        DropReason::Lost,
        DropReason::NotEncodable,
    ];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Filtered => "filtered",
            DropReason::Lagged => "lagged",
            DropReason::Expired => "expired",
            DropReason::Epoch => "epoch",
            DropReason::Lost => "lost",
            DropReason::NotEncodable => "not_encodable",
        }
    }
}

impl From<switchboard_message::GapReason> for DropReason {
    fn from(reason: switchboard_message::GapReason) -> DropReason {
        use switchboard_message::GapReason;
        match reason {
            GapReason::Epoch => DropReason::Epoch,
            GapReason::Expired => DropReason::Expired,
            GapReason::Lost => DropReason::Lost,
            _ => DropReason::Lagged,
        }
    }
}

/// Counters of a hub.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct HubStats {
    /// Connected devices of this process.
    pub devices: u64,
    /// Users with a connected device.
    pub users: u64,
    /// Rooms with a member.
    pub rooms: u64,
    /// Memberships of devices in rooms.
    pub memberships: u64,
    /// Devices that have connected.
    pub connected: u64,
    /// Devices whose credentials were refused.
    pub refused: u64,
    /// Entries that were accepted for rooms, users, keys and all.
    pub published: u64,
    /// Lifecycle events that were lost because the engine of the bus was unavailable.
    pub events_lost: u64,
}

/// Running counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connected: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) published: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) events_lost: AtomicU64,
    pub(crate) delivered: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    disconnected: [AtomicU64; DisconnectReason::ALL.len()],
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(crate) fn dropped(&self, reason: DropReason, entries: u64) {
        if entries > 0 {
            add(&self.dropped[reason as usize], entries);
        }
    }

    pub(crate) fn dropped_so_far(&self, reason: DropReason) -> u64 {
        read(&self.dropped[reason as usize])
    }

    /// Returns the number of entries that members did not get, except those that they filter.
    pub(crate) fn missed(&self) -> u64 {
        let reasons = DropReason::ALL.into_iter().filter(|reason| *reason != DropReason::Filtered);
        reasons.map(|reason| self.dropped_so_far(reason)).sum()
    }

    pub(crate) fn disconnected(&self, reason: DisconnectReason) {
        add(&self.disconnected[reason as usize], 1);
    }

    pub(crate) fn disconnected_so_far(&self, reason: DisconnectReason) -> u64 {
        read(&self.disconnected[reason as usize])
    }

    /// Returns the totals as metrics.
    pub(crate) fn list(&self) -> Vec<Counter> {
        let total = |name, help, counter| Counter::total(name, help, read(counter));
        let mut list = vec![
            total("connected", "devices that have connected", &self.connected),
            total("refused", "devices whose credentials were refused", &self.refused),
            total("published", "entries that were accepted", &self.published),
            total("rejected", "publications of devices that a rule or a limit refused", &self.rejected),
            total("delivered", "entries that were sent to members", &self.delivered),
            total("events_lost", "lifecycle events that the engine did not take", &self.events_lost),
        ];
        for reason in DropReason::ALL {
            let help = "entries that members did not get, by reason";
            let count = self.dropped_so_far(reason);
            list.push(Counter::total("dropped", help, count).label("reason", reason.name()));
        }
        for reason in DisconnectReason::ALL {
            let count = self.disconnected_so_far(reason);
            let help = "devices that were disconnected, by reason";
            list.push(Counter::total("disconnected", help, count).label("reason", reason.name()));
        }
        list
    }
}
