//! The state of a running server: what its listeners, connections, HTTP handlers and admin pages share.

mod calls;
mod ending;
mod flights;
mod live;
mod parts;
mod plugins;
mod service_call;
mod services;
mod sources;

pub use calls::{CallRecord, Watched, arrived_late, deadline_passed};
pub use flights::{Flights, Place};
pub use live::Live;
pub use parts::ServerParts;
pub use plugins::{PluginConnectionCount, Plugins, RunningPlugin};
pub use services::PluginServices;
pub use sources::Sources;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::Instant,
};
use switchboard_core::{
    Extensions, Limits,
    access::Access,
    compression::Serving,
    flags::Flags,
    memory::MemoryBudget,
    metrics::{ConnectionCounters, ConnectionProtocol, Metrics, Moment},
};
use switchboard_guard::{dispatch::GuardedService, guard::Guarding};
#[cfg(feature = "tls")]
use switchboard_net::net::tls::Acceptor;
use switchboard_net::{connection::Wakes, net::Address};
use switchboard_wire::{MethodTable, Status};
use tokio::sync::watch;

/// Phase of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: probes have a response for each phase
pub enum Phase {
    /// It listens and serves calls, but probes report that it is not ready.
    Starting,
    /// It serves.
    Serving,
    /// It still serves, but probes report that it is not ready.
    Stopping,
}

impl Phase {
    /// Returns the name of the phase on pages and in responses to probes.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Serving => "serving",
            Phase::Stopping => "stopping",
        }
    }
}

/// State that all connections of a server share.
pub struct ServerState {
    /// Number of this server within the process.
    pub id: u64,
    /// Addresses of the listeners, with the number of each.
    pub listening: OnceLock<Vec<(u64, Address)>>,
    /// The listeners with TLS.
    #[cfg(feature = "tls")]
    pub acceptors: OnceLock<Vec<Arc<Acceptor>>>,
    /// Start of the latest call on a connection that has ended.
    pub last_started: Moment,
    /// Set if connections count their traffic for Channelz.
    pub counts_sockets: bool,
    /// Methods of the services.
    pub table: Arc<MethodTable>,
    /// Services in the order of the table.
    pub services: Vec<Arc<dyn GuardedService>>,
    /// Guards of the calls and connections.
    pub guarding: Guarding,
    /// Limits of the server; listeners may override them.
    pub limits: Limits,
    /// Compression of replies.
    pub compression: Serving,
    /// Set if requests may not have fields that their types do not have.
    pub strict_fields: bool,
    /// Values that all calls share.
    pub extensions: Option<Arc<Extensions>>,
    /// Counters of the server.
    pub metrics: Metrics,
    /// Number of calls that wait in handlers, on all connections. Calls that are ready at once are not
    /// counted, so the hot path shares no counter.
    pub parked: AtomicUsize,
    /// Memory held for peers.
    pub memory: Arc<MemoryBudget>,
    /// Set when no new calls are accepted.
    pub draining: AtomicBool,
    /// Set when the remaining calls must end.
    pub ending: AtomicBool,
    /// The call logs.
    pub access: Access,
    /// Limits that can be changed while the server runs.
    pub live: Live,
    /// Flags of the server, with those of its limits and logs.
    pub flags: Arc<Flags>,
    /// Phase of the server.
    pub phase: watch::Sender<Phase>,
    /// Calls on HTTP and of plugins that wait in handlers.
    pub flights: Flights,
    /// Open connections by their numbers.
    pub open: Mutex<BTreeMap<u64, Open>>,
    /// Progress of the shutdown, for HTTP connections.
    #[cfg(feature = "http")]
    pub drain_http: watch::Sender<Drain>,
    /// The plugins, with their connections.
    pub plugins: Plugins,
    /// Counters of plugins, topics and parts of the application.
    pub sources: Sources,
}

/// Progress of the shutdown, for HTTP connections.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: every HTTP connection handles each step
pub enum Drain {
    /// New calls are accepted.
    Open,
    /// New calls are rejected.
    Draining,
    /// The remaining calls are ended.
    Ending,
}

/// An open connection.
pub struct Open {
    /// Wakes its task.
    pub wakes: Arc<Wakes>,
    /// Aborts its task, once it was spawned.
    pub abort_handle: Option<tokio::task::AbortHandle>,
    /// Its Channelz counters, if they are on.
    pub socket: Option<Arc<ConnectionCounters>>,
    /// Address of the peer, as in [`Peer::address`](switchboard_core::Peer::address).
    pub address: Box<str>,
    /// Time at which it was accepted.
    pub began: Instant,
    /// Its protocol, once detected.
    pub protocol: Option<ConnectionProtocol>,
}

impl ServerState {
    /// Returns the phase of the server.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Returns the open connections by their numbers, locked.
    pub fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the addresses of the listeners, with the number of each.
    pub fn listening(&self) -> &[(u64, Address)] {
        self.listening.get().map_or(&[], Vec::as_slice)
    }
}

/// Returns the error for calls that did not end during the drain.
pub fn going_away() -> Status {
    Status::unavailable("the server is going away, and the call did not end in the time that was left")
}
