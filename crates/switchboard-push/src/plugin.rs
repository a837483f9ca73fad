//! The hub as a plugin of servers: devices by RPC and event streams, counters, and the list of rooms.

use crate::{counters::DropReason, events, hub::Hub, service::DevicesServer};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use switchboard::{
    Status,
    counters::{Cell, Counter, CounterSource, ListRequest, ListedRows, Listing},
    plugin::{Plugin, PluginContext, PluginServer, Route},
    service::DynService,
};

const ROOMS: &str = "rooms";
const ROOM_COLUMNS: [&str; 6] = ["room", "members", "entries", "bytes", "published", "head"];
/// Rooms of one page.
const ROWS_MAX: usize = 1_000;

/// Path of the event streams.
const PATH: &str = "/events";
/// The method whose rules apply to the path.
const METHOD: &str = "switchboard.push.v1.Devices/Subscribe";

/// Adds the service [`DevicesServer`], `GET /events` for devices that read server-sent events or a WebSocket, and the
/// counters of the hub with the admin page `/rooms`. Adapters of protocols are plugins of their own.
///
/// Streams of devices end when the server drains, on all servers to which this hub was added.
impl Plugin for Hub {
    fn name(&self) -> &'static str {
        "push"
    }

    fn services(&self) -> Vec<DynService> {
        vec![DynService::new(DevicesServer::new(self))]
    }

    fn routes(&self) -> Vec<Route> {
        let hub = self.clone();
        let respond = move |request| {
            let hub = hub.clone();
            async move { events::respond(&hub, &request).await }
        };
        vec![Route::new("GET", PATH, METHOD, respond).websockets().token_in_query("token")]
    }

    fn start(&self, _: PluginContext) -> io::Result<Arc<dyn PluginServer>> {
        Ok(Arc::new(Streams(self.clone())))
    }

    fn counters(&self) -> Vec<Arc<dyn CounterSource>> {
        vec![Arc::new(HubCounters(self.clone())), Arc::new(self.bus().clone())]
    }
}

/// The streams of devices of a running server.
struct Streams(Hub);

impl PluginServer for Streams {
    fn drain(&self, _: Duration) {
        self.0.state.closing.send_modify(|drains| *drains = drains.wrapping_add(1));
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
