//! The state of a running server: what its listeners, connections, HTTP handlers and admin pages share.

#[cfg(feature = "http")]
mod flights;
mod live;

#[cfg(feature = "http")]
pub(crate) use flights::Flights;
pub(crate) use live::Live;
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
pub(crate) enum Phase {
    /// It listens and serves calls, but probes report that it is not ready.
    Starting,
    Serving,
    /// It still serves, but probes report that it is not ready.
    Stopping,
}

impl Phase {
    #[cfg(feature = "http")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Serving => "serving",
            Phase::Stopping => "stopping",
        }
    }
}

/// State that all connections of a server share.
pub(crate) struct ServerState {
    /// Number of this server within the process.
    #[cfg_attr(not(feature = "channelz"), expect(dead_code, reason = "only Channelz uses it"))]
    pub(crate) id: u64,
    /// Addresses of the listeners, with the number of each.
    pub(crate) listening: OnceLock<Vec<(u64, Address)>>,
    /// The listeners with TLS.
    #[cfg(feature = "tls")]
    pub(crate) acceptors: OnceLock<Vec<Arc<Acceptor>>>,
    /// Start of the latest call on a connection that has ended.
    pub(crate) last_started: Moment,
    /// Set if connections count their traffic for Channelz.
    pub(crate) counts_sockets: bool,
    pub(crate) table: Arc<MethodTable>,
    pub(crate) services: Vec<Arc<dyn GuardedService>>,
    pub(crate) guarding: Guarding,
    pub(crate) limits: Limits,
    pub(crate) compression: Serving,
    /// Whether requests may not have fields that their types do not have.
    pub(crate) strict_fields: bool,
    /// Values that all calls share.
    pub(crate) extensions: Option<Arc<Extensions>>,
    pub(crate) metrics: Metrics,
    /// Number of calls that wait in handlers, on all connections. Calls that are ready at once are not
    /// counted, so the hot path shares no counter.
    pub(crate) parked: AtomicUsize,
    /// Memory held for peers.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) draining: AtomicBool,
    /// Set when the remaining calls must end.
    pub(crate) ending: AtomicBool,
    pub(crate) access: Access,
    pub(crate) live: Live,
    pub(crate) flags: Arc<Flags>,
    pub(crate) phase: watch::Sender<Phase>,
    #[cfg(feature = "http")]
    pub(crate) flights: Flights,
    pub(crate) open: Mutex<BTreeMap<u64, Open>>,
    #[cfg(feature = "http")]
    pub(crate) drain_http: watch::Sender<Drain>,
}

/// Progress of the shutdown, for HTTP connections.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Drain {
    /// New calls are accepted.
    Open,
    /// New calls are rejected.
    Draining,
    /// The remaining calls are ended.
    Ending,
}

/// An open connection.
pub(crate) struct Open {
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) abort_handle: Option<tokio::task::AbortHandle>,
    /// Its Channelz counters, if they are on.
    pub(crate) socket: Option<Arc<ConnectionCounters>>,
    /// Address of the peer, as in [`Peer::address`](switchboard_core::Peer::address).
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the admin listener shows it"))]
    pub(crate) address: Box<str>,
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the admin listener shows it"))]
    pub(crate) began: Instant,
    /// Its protocol, once detected.
    pub(crate) protocol: Option<ConnectionProtocol>,
}

impl ServerState {
    #[cfg(feature = "http")]
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(any(feature = "channelz", feature = "http"))]
    pub(crate) fn listening(&self) -> &[(u64, Address)] {
        self.listening.get().map_or(&[], Vec::as_slice)
    }
}

/// Returns the error for calls that did not end during the drain.
pub(crate) fn going_away() -> Status {
    Status::unavailable("the server is going away, and the call did not end in the time that was left")
}
