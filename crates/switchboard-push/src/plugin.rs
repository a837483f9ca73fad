//! The hub as a plugin of servers: its counters and the list of its rooms.

use crate::{counters::DropReason, hub::Hub};
use std::sync::{Arc, atomic::Ordering};
use switchboard::{
    Status,
    counters::{Cell, Counter, CounterSource, ListRequest, ListedRows, Listing},
    plugin::Plugin,
};

const ROOMS: &str = "rooms";
const ROOM_COLUMNS: [&str; 6] = ["room", "members", "entries", "bytes", "published", "head"];
/// Rooms of one page.
const ROWS_MAX: usize = 1_000;

/// Adds the counters of the hub to a server, with the admin page `/rooms`. Adapters of protocols are plugins of their
/// own.
impl Plugin for Hub {
    fn name(&self) -> &'static str {
        "push"
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![Arc::new(HubCounters(self.clone())), Arc::new(self.bus().clone())]
    }
}

struct HubCounters(Hub);

impl CounterSource for HubCounters {
    fn kind(&self) -> &'static str {
        "push"
    }

    fn counters(&self) -> Vec<Counter> {
        let stats = self.0.stats();
        let mut counters = vec![
            Counter::gauge("devices", "connected devices", stats.devices),
            Counter::gauge("users", "users with a connected device", stats.users),
            Counter::gauge("rooms", "rooms with a member", stats.rooms),
            Counter::gauge("memberships", "memberships of devices in rooms", stats.memberships),
        ];
        counters.extend(self.0.state.counters.list());
        counters
    }

    fn lists(&self) -> &'static [&'static str] {
        &[ROOMS]
    }

    fn list<'a>(&'a self, list: &'a str, request: ListRequest) -> Listing<'a> {
        Box::pin(async move {
            if list != ROOMS {
                return Err(Status::not_found(format!("list \"{list}\" is not one of a hub")));
            }
            let max = request.rows_max.min(ROWS_MAX);
            let pattern = request.filter.as_deref().unwrap_or(">");
            let after = request.from.as_deref().unwrap_or_default();
            let page = self.0.rooms(pattern).page(after, max)?;
            let rows = page.rooms.into_iter().map(|(name, members)| self.row(name, members)).collect();
            Ok(ListedRows::new(&ROOM_COLUMNS, rows, page.next))
        })
    }

    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.0.state) as usize)
    }
}

impl HubCounters {
    fn row(&self, name: String, members: usize) -> Vec<Cell> {
        let stats = self.0.room(&name).topic().ok().and_then(|topic| self.0.bus().topic_stats(&topic));
        let number = |value: Option<u64>| Cell::from(value);
        vec![
            Cell::from(name),
            Cell::from(members as u64),
            number(stats.as_ref().map(|stats| stats.entries as u64)),
            number(stats.as_ref().map(|stats| stats.bytes as u64)),
            number(stats.as_ref().map(|stats| stats.published)),
            number(stats.as_ref().map(|stats| stats.head.offset)),
        ]
    }
}

impl Hub {
    /// Returns the number of entries that members did not get for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.state.counters.dropped_so_far(reason)
    }

    /// Returns the number of entries that were sent to members.
    pub fn delivered(&self) -> u64 {
        self.state.counters.delivered.load(Ordering::Relaxed)
    }
}
