//! Creation of the state of a server.

#[cfg(feature = "http")]
use super::Drain;
use super::{Flights, Live, Phase, Plugins, ServerState, Sources};
use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, AtomicUsize},
};
use switchboard_core::{
    Extensions, Limits,
    access::Access,
    compression::Serving,
    flags::Flags,
    memory::MemoryBudget,
    metrics::{self, Metrics, Moment},
    runtime,
};
use switchboard_guard::{dispatch::GuardedService, guard::Guarding};
use switchboard_wire::{MethodTable, WireSet};
use tokio::sync::watch;

/// Parts of the state of a server that its builder chooses.
pub struct ServerParts {
    /// Methods of the services.
    pub table: Arc<MethodTable>,
    /// Services in the order of the table.
    pub services: Vec<Arc<dyn GuardedService>>,
    /// Guards of the calls and connections.
    pub guarding: Guarding,
    /// Wires that callers may use.
    pub wires: WireSet,
    /// Limits of the server.
    pub limits: Limits,
    /// The limits that can be changed while the server runs.
    pub live: Live,
    /// Flags of the server, with those of `live` and `access`.
    pub flags: Flags,
    /// The call logs.
    pub access: Access,
    /// Compression of replies.
    pub compression: Serving,
    /// Set if requests may not have fields that their types do not have.
    pub strict_fields: bool,
    /// Values that all calls share.
    pub extensions: Extensions,
    /// Set if connections count their traffic for Channelz.
    pub counts_sockets: bool,
    /// Counters of plugins, topics and parts of the application.
    pub sources: Sources,
}

impl ServerState {
    /// Creates the state of a server that starts: it has no listener and no connection.
    pub fn new(parts: ServerParts) -> ServerState {
        let memory = MemoryBudget::new(parts.live.memory_bytes_max.clone(), parts.table.slots());
        ServerState {
            id: metrics::next_id(),
            listening: OnceLock::new(),
            #[cfg(feature = "tls")]
            acceptors: OnceLock::new(),
            last_started: Moment::default(),
            counts_sockets: parts.counts_sockets,
            metrics: Metrics::new(parts.table.clone(), runtime::worker_count(), parts.wires),
            table: parts.table,
            services: parts.services,
            guarding: parts.guarding,
            limits: parts.limits,
            compression: parts.compression,
            strict_fields: parts.strict_fields,
            extensions: (!parts.extensions.is_empty()).then(|| Arc::new(parts.extensions)),
            parked: AtomicUsize::new(0),
            memory: Arc::new(memory),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            access: parts.access,
            live: parts.live,
            flags: Arc::new(parts.flags),
            phase: watch::Sender::new(Phase::Starting),
            flights: Flights::new(runtime::worker_count()),
            open: Mutex::default(),
            #[cfg(feature = "http")]
            drain_http: watch::Sender::new(Drain::Open),
            plugins: Plugins::default(),
            sources: parts.sources,
        }
    }
}
