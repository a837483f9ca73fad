//! The engines of a server: one per worker, created at the first connection of the worker.

use crate::{
    Adapter, Engine, EngineCounters, Handle, Handoff, Options,
    subscriber::{BLOCKED, SubscriberId},
    subscribers::Subscribers,
};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use switchboard_core::{Limits, Peer, memory::MemoryBudget, runtime};
use switchboard_net::plugin::{
    ConnectionList, ConnectionPage, ConnectionRow, ListPosition, PluginConnection, PluginServer,
};
use switchboard_wire::{Metadata, WireId};
use tokio::task::AbortHandle;

/// Properties of a connection that a server has handed over, for [`Adapter::Connection`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Admitted {
    /// The wire of the connection.
    pub wire: WireId,
    /// The other end.
    pub peer: Peer,
    /// The limits of the listener.
    pub limits: Arc<Limits>,
    /// Set if the [greeting](Engines::with_greeting) was sent.
    pub is_greeted: bool,
    /// Set if the bytes are those of messages in a WebSocket.
    pub is_websocket: bool,
    /// The headers of the handshake of a WebSocket.
    pub metadata: Metadata,
}

/// Creates the adapter of an engine, which may keep the handle to send commands to itself.
type MakeAdapter<A> = Box<dyn Fn(Handle<A>) -> A + Send + Sync>;

/// Returns the first bytes of a server, for a wire, and whether the listener requires TLS.
type Greeting = Box<dyn Fn(WireId, bool) -> Vec<u8> + Send + Sync>;

/// The engines of a server. Cheap to clone.
///
/// An engine that has panicked closes its subscribers, and the next connection of its worker creates another.
pub struct Engines<A: Adapter> {
    shared: Arc<Shared<A>>,
}

struct Shared<A: Adapter> {
    make: MakeAdapter<A>,
    options: Options,
    memory: Option<Arc<MemoryBudget>>,
    greeting: OnceLock<Greeting>,
    counters: OnceLock<EngineCounters>,
    state: Mutex<State<A>>,
}

struct State<A: Adapter> {
    workers: BTreeMap<usize, Worker<A>>,
    /// No engine is created any more.
    draining: bool,
}

struct Worker<A: Adapter> {
    handle: Handle<A>,
    task: AbortHandle,
}

impl<A: Adapter> Clone for Engines<A> {
    fn clone(&self) -> Self {
        Engines { shared: self.shared.clone() }
    }
}

impl<A: Adapter> fmt::Debug for Engines<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engines").field("engines", &self.lock().workers.len()).finish()
    }
}

impl<A: Adapter> Engines<A> {
    /// Creates the engines of a server; `make` creates the adapter of each.
    pub fn new(
        options: Options,
        memory: Option<Arc<MemoryBudget>>,
        make: impl Fn(Handle<A>) -> A + Send + Sync + 'static,
    ) -> Engines<A> {
        let state = Mutex::new(State { workers: BTreeMap::new(), draining: false });
        let (make, greeting, counters) = (Box::new(make), OnceLock::new(), OnceLock::new());
        Engines { shared: Arc::new(Shared { make, options, memory, greeting, counters, state }) }
    }

    /// Sets the bytes that the server sends before the TLS handshake of a listener with TLS, for a wire whose server
    /// speaks first; see [`PluginServer::greeting`]. A second one has no effect.
    #[must_use]
    pub fn with_greeting(self, greeting: impl Fn(WireId, bool) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let _ = self.shared.greeting.set(Box::new(greeting));
        self
    }

    /// Counts in the counters of a plugin, which may be those of several servers. A second call has no effect.
    #[must_use]
    pub fn with_counters(self, counters: EngineCounters) -> Self {
        let _ = self.shared.counters.set(counters);
        self
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handles of the engines that run, with their workers.
    pub fn handles(&self) -> Vec<(usize, Handle<A>)> {
        self.lock().workers.iter().map(|(worker, running)| (*worker, running.handle.clone())).collect()
    }

    /// Returns the engine of a worker, and creates it on the thread that calls if there is none. `None` while the
    /// engines drain.
    fn engine(&self, worker: usize) -> io::Result<Option<Handle<A>>> {
        let mut state = self.lock();
        if state.draining {
            return Ok(None);
        }
        if let Some(running) = state.workers.get(&worker).filter(|running| !running.task.is_finished()) {
            return Ok(Some(running.handle.clone()));
        }
        let (options, memory) = (self.shared.options, self.shared.memory.clone());
        let (mut engine, handle) = Engine::create(&self.shared.make, options, memory)?;
        if let Some(counters) = self.shared.counters.get() {
            engine = engine.with_counters(counters, worker);
        }
        let task = runtime::spawn(engine.run()).abort_handle();
        state.workers.insert(worker, Worker { handle: handle.clone(), task });
        Ok(Some(handle))
    }
}

impl<A: Adapter<Connection: From<Admitted>>> PluginServer for Engines<A> {
    fn connect(&self, connection: PluginConnection) {
        let PluginConnection {
            io,
            first,
            wire,
            peer,
            limits,
            worker,
            is_greeted,
            is_websocket,
            metadata,
            guard,
            ..
        } = connection;
        let address = peer.address.clone();
        let closed = |why: &dyn fmt::Display| tracing::warn!(peer = %address, "closed: {why}");
        let engine = match self.engine(worker) {
            Ok(Some(engine)) => engine,
            Ok(None) => return,
            Err(error) => return closed(&format_args!("no engine for it: {error}")),
        };
        let socket = peer.socket;
        match Handoff::new(
            io,
            first,
            Admitted { wire, peer, limits, is_greeted, is_websocket, metadata }.into(),
        ) {
            Ok(handoff) => {
                if let Err(refused) = engine.hand_over(handoff.address(socket).guard(guard)) {
                    closed(&refused);
                }
            }
            Err(error) => closed(&error),
        }
    }

    fn greeting(&self, wire: WireId, requires_tls: bool) -> Vec<u8> {
        self.shared.greeting.get().map_or_else(Vec::new, |greeting| greeting(wire, requires_tls))
    }

    fn drain(&self, limit: Duration) {
        let notice = limit.min(self.shared.options.drain_notice);
        let engines: Vec<_> = {
            let mut state = self.lock();
            state.draining = true;
            state.workers.values().map(|running| running.handle.clone()).collect()
        };
        for engine in engines {
            runtime::spawn(async move { engine.drain(notice).await });
        }
    }

    fn abort(&self) {
        let mut state = self.lock();
        state.draining = true;
        for running in std::mem::take(&mut state.workers).into_values() {
            running.task.abort();
        }
    }

    fn list(&self, from: ListPosition, max: usize) -> ConnectionList<'_> {
        Box::pin(async move {
            let mut rows = Vec::new();
            let mut record = from.record;
            for (worker, engine) in self.handles().into_iter().filter(|(worker, _)| *worker >= from.worker) {
                let left = max - rows.len();
                if left == 0 {
                    return ConnectionPage::new(rows, Some(ListPosition::new(worker, 0)));
                }
                let start = if worker == from.worker { std::mem::take(&mut record) } else { 0 };
                let listed = engine.query(move |_, subscribers| list(subscribers, worker, start, left)).await;
                let Some((listed, next)) = listed else { continue };
                rows.extend(listed);
                if let Some(record) = next {
                    return ConnectionPage::new(rows, Some(ListPosition::new(worker, record)));
                }
            }
            ConnectionPage::new(rows, None)
        })
    }
}

/// Returns at most `max` rows of an engine, from a record on, and the next record.
fn list(
    subscribers: &mut Subscribers,
    worker: usize,
    from: u32,
    max: usize,
) -> (Vec<ConnectionRow>, Option<u32>) {
    let (ids, next) = subscribers.list(from, max);
    let rows = ids.into_iter().filter_map(|id| row(subscribers, worker, id)).collect();
    (rows, next)
}

fn row(subscribers: &mut Subscribers, worker: usize, id: SubscriberId) -> Option<ConnectionRow> {
    let subscriber = subscribers.pages.get_mut(id)?;
    let mut row = ConnectionRow::new(format!("{id:?}"), worker);
    row.address = subscriber.address.map(|address| address.to_string());
    row.sources = subscriber.feeds.len();
    row.held_bytes = subscriber.held_bytes();
    row.blocked = subscriber.has(BLOCKED);
    Some(row)
}
