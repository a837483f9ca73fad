//! Client: a copy of the table, updates, and events.

use super::{
    CloneEndpoints, CloneLimits,
    frames::{self, Update},
    server::new_update,
    session::{self, Command, Repeat},
    view::View,
};
use crate::{Error, ErrorKind, Result, route, task::Task};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use switchboard_core::clock;
use switchboard_socket::SocketOptions;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    mpsc, oneshot, watch,
};

/// A copy of the table of a server, or of a subtree of it. See [`CloneServer`](super::CloneServer) for an example.
///
/// Handles are not cheap to clone: share one. Dropping it ends the client.
#[derive(Debug)]
pub struct CloneClient {
    pub(super) shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    subtree: String,
    limits: CloneLimits,
    set_timeout: Duration,
    _task: Task,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub state: Mutex<State>,
    pub events: broadcast::Sender<CloneEvent>,
    /// The server whose table is copied, or the reason why there is none.
    pub status: watch::Sender<Result<usize, String>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub view: View,
    pub stats: ClientStats,
}

/// Event of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CloneEvent {
    /// A key was deleted, by an update or because a new snapshot does not have it.
    #[non_exhaustive]
    Deleted {
        /// Key.
        key: String,
        /// UUID of the update, 16 bytes; empty if it has none.
        id: Bytes,
    },
    /// The receiver of events was too slow: compare with [`CloneClient::entries`].
    Lagged {
        /// Number of lost events.
        count: u64,
    },
    /// The server is silent, or breaks a limit: the copy stays, and the client goes to the next server.
    #[non_exhaustive]
    Lost {
        /// Index of the server, in the order of the settings.
        server: usize,
        /// Cause.
        reason: String,
        /// The server sent nothing for `silence_max`. Otherwise it is alive, as far as the client knows.
        is_silent: bool,
    },
    /// The copy has the state of a server; the events before it have the differences.
    Synchronized {
        /// Index of the server.
        server: usize,
    },
    /// A key has a new value.
    #[non_exhaustive]
    Updated {
        /// Key.
        key: String,
        /// Value.
        value: Bytes,
        /// Time to live that the update names.
        ttl: Option<Duration>,
        /// UUID of the update, 16 bytes; empty if it has none.
        id: Bytes,
    },
}

/// Receives the events of a client. A slow receiver loses the oldest ones, and [`CloneEvent::Lagged`] reports it.
#[derive(Debug)]
pub struct CloneEvents(broadcast::Receiver<CloneEvent>);

impl CloneEvents {
    /// Returns the next event; `None` once the client has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<CloneEvent> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(CloneEvent::Lagged { count }),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Counters of a [`CloneClient`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Index of the server whose table is copied; `None` while there is none.
    pub server: Option<usize>,
    /// Keys of the copy.
    pub entries: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
    /// Number of the last update.
    pub sequence: u64,
    /// Updates that were applied.
    pub updates: u64,
    /// Updates that were part of the snapshot.
    pub old: u64,
    /// Snapshots that were received.
    pub snapshots: u64,
    /// Lost updates that were noticed; each led to a new snapshot. Only a client without a subtree notices them.
    pub gaps: u64,
    /// Messages that break a rule of the protocol.
    pub invalid: u64,
    /// Servers that were left.
    pub lost: u64,
}

impl CloneClient {
    /// Returns the settings of a client.
    pub fn builder() -> CloneClientBuilder {
        CloneClientBuilder {
            connect_timeout: Duration::from_secs(10),
            events_max: 1024,
            limits: CloneLimits::default(),
            options: SocketOptions::default(),
            servers: Vec::new(),
            set_timeout: Duration::from_secs(15),
            sets_max: 1024,
            silence_max: Duration::from_secs(5),
            subtree: String::new(),
        }
    }

    /// Returns a value of the copy.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.lock().view.value(key)
    }

    /// Returns the whole copy.
    pub fn entries(&self) -> BTreeMap<String, Bytes> {
        self.lock().view.entries()
    }

    /// Sets a value; resolves to the number of the update once the server has published it. It is repeated until then,
    /// at the next server too; servers of this crate apply it once. Dropping the future stops the repetition: the value
    /// may have been set, or not.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for an empty value, and a key or value that breaks a rule or is outside of
    /// the subtree; [`ErrorKind::TimedOut`] if no server has published it within the time limit: a server at a limit of
    /// its table publishes nothing; [`ErrorKind::Closed`].
    pub async fn set(&self, key: &str, value: impl Into<Bytes>) -> Result<u64> {
        self.set_with(key, value.into(), None).await
    }

    /// Sets a value that the server deletes after a time, unless it is set again. The protocol has whole seconds.
    ///
    /// # Errors
    /// Returns the errors of [`set`](Self::set).
    pub async fn set_for(&self, key: &str, value: impl Into<Bytes>, ttl: Duration) -> Result<u64> {
        self.set_with(key, value.into(), Some(ttl)).await
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// Returns the errors of [`set`](Self::set).
    pub async fn delete(&self, key: &str) -> Result<u64> {
        self.send(new_update(key, Bytes::new(), None, &self.limits)?).await
    }

    async fn set_with(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<u64> {
        if value.is_empty() {
            let text = format!("key {key:?} is not set: an empty value deletes a key; call delete");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        self.send(new_update(key, value, ttl, &self.limits)?).await
    }

    async fn send(&self, update: Update) -> Result<u64> {
        if !update.key.starts_with(&self.subtree) {
            let text = format!("key {:?} is outside of the subtree {:?}", update.key, self.subtree);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let (key, closed) = (update.key.clone(), || Error::closed("the client of CHP"));
        let (done, published) = oneshot::channel();
        let now = clock::now();
        let deadline = clock::after(now, self.set_timeout);
        let command = Command { update, done, deadline, repeat: Repeat::new(now) };
        let sending = async {
            self.commands.send(command).await.map_err(|_| closed())?;
            published.await.map_err(|_| closed())
        };
        let sent = tokio::time::timeout(self.set_timeout, sending).await;
        sent.unwrap_or_else(|_| {
            let text = format!("no server has published key {key:?} within {:?}", self.set_timeout);
            Err(Error::new(ErrorKind::TimedOut, text))
        })
    }

    /// Returns a receiver of the events from now on.
    pub fn events(&self) -> CloneEvents {
        CloneEvents(self.shared.events.subscribe())
    }

    /// Waits until the copy has the state of a server; returns at once if it has. Cancel safe.
    pub async fn synchronized(&self) {
        // The sender is in `shared`.
        let _ = self.shared.status.subscribe().wait_for(Result::is_ok).await;
    }

    /// Returns the counters.
    pub fn stats(&self) -> ClientStats {
        let state = self.lock();
        let (entries, bytes, sequence) = state.view.size();
        let server = self.shared.status.borrow().as_ref().ok().copied();
        ClientStats { server, entries, bytes, sequence, ..state.stats }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn emit(&self, event: CloneEvent) {
        // Without a receiver the event has no reader.
        let _ = self.events.send(event);
    }
}

/// Settings of a [`CloneClient`].
#[derive(Debug)]
#[must_use = "a client does not run before `start` or `connect`"]
pub struct CloneClientBuilder {
    pub(super) connect_timeout: Duration,
    pub(super) events_max: usize,
    pub(super) limits: CloneLimits,
    pub(super) options: SocketOptions,
    pub(super) servers: Vec<CloneEndpoints>,
    pub(super) set_timeout: Duration,
    pub(super) sets_max: usize,
    pub(super) silence_max: Duration,
    pub(super) subtree: String,
}

impl CloneClientBuilder {
    /// Adds a server at the ports P, P+1 and P+2. The first server is tried first, and the others in their order.
    ///
    /// # Errors
    /// Returns the errors of [`CloneEndpoints::at`].
    pub fn server(self, endpoint: &str) -> Result<Self> {
        Ok(self.server_at(CloneEndpoints::at(endpoint)?))
    }

    /// Adds a server at three endpoints.
    pub fn server_at(mut self, endpoints: CloneEndpoints) -> Self {
        self.servers.push(endpoints);
        self
    }

    /// Copies the keys of a subtree only, such as `/prices/`. The default is all keys.
    pub fn subtree(mut self, subtree: &str) -> Self {
        subtree.clone_into(&mut self.subtree);
        self
    }

    /// Sets the time that [`connect`](Self::connect) waits for the first snapshot; default 10 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the time without a message after which a server is left; default 5 s, as in the guide. At least two
    /// heartbeats of the server.
    pub fn silence_max(mut self, limit: Duration) -> Self {
        self.silence_max = limit;
        self
    }

    /// Sets the time until an update must be published; default 15 s, enough for one failover.
    pub fn set_timeout(mut self, limit: Duration) -> Self {
        self.set_timeout = limit;
        self
    }

    /// Sets the number of updates that wait to be published; default 1,024, at least 1. Further ones wait in their
    /// futures.
    pub fn sets_max(mut self, sets: usize) -> Self {
        self.sets_max = sets.max(1);
        self
    }

    /// Sets the number of events that a receiver may lag behind; default 1,024, at least 1.
    pub fn events_max(mut self, events: usize) -> Self {
        self.events_max = events.clamp(1, 1 << 20);
        self
    }

    /// Sets the limits of the copy. A server with more is left.
    pub fn limits(mut self, limits: CloneLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the options of the sockets: queues, limits, security. `timeouts.receive` and `timeouts.send` are not used.
    pub fn options(mut self, options: SocketOptions) -> Self {
        self.options = options;
        route::remove_time_limits(&mut self.options);
        self
    }

    /// Starts the client, and waits for its first snapshot.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start), and [`ErrorKind::TimedOut`] that names the last failure.
    pub async fn connect(self) -> Result<CloneClient> {
        let limit = self.connect_timeout;
        let client = self.start()?;
        if tokio::time::timeout(limit, client.synchronized()).await.is_err() {
            let reason = client.shared.status.borrow().clone().err().unwrap_or_default();
            let text = format!("no snapshot of a server of CHP within {limit:?}: {reason}");
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        Ok(client)
    }

    /// Starts the client on the runtime of this thread. Its copy is empty until the first snapshot.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] without a server, and for an invalid subtree.
    pub fn start(self) -> Result<CloneClient> {
        if self.servers.is_empty() {
            let text = "the client has no server; call server or server_at";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        if let Err(rule) = frames::check_subtree(&self.subtree, &self.limits) {
            let text = format!("subtree {:?} is not valid: {rule}", self.subtree);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let view = View::new(self.subtree.clone(), self.limits);
        let shared = Arc::new(Shared {
            state: Mutex::new(State { view, stats: ClientStats::default() }),
            events: broadcast::channel(self.events_max).0,
            status: watch::Sender::new(Err("no server has been reached yet".to_owned())),
        });
        let (commands, receiver) = mpsc::channel(1);
        let (subtree, limits, set_timeout) = (self.subtree.clone(), self.limits, self.set_timeout);
        let task = Task::spawn(session::run(shared.clone(), receiver, self));
        Ok(CloneClient { shared, commands, subtree, limits, set_timeout, _task: task })
    }
}
