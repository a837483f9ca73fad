//! Server: numbers the updates of clients, publishes them, and answers requests for snapshots.

use super::{
    CloneClient, CloneEndpoints, CloneEvent, CloneLimits,
    frames::{self, HUGZ, Properties, Update},
    snapshot::Snapshots,
    table::{Applied, Table},
};
use crate::{Error, ErrorKind, Result, route, task::Task};
use bytes::Bytes;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use switchboard_core::clock;
use switchboard_socket::{Message, Router, SocketOptions, Sub, Xpub, options::QueueFullPolicy};
use tokio::{sync::Notify, time::MissedTickBehavior};

/// Time that a client has to make room for the next entry of its snapshot.
const SNAPSHOT_STALL_MAX: Duration = Duration::from_secs(10);

/// A server of CHP. Dropping it ends the server.
///
/// ```
/// use switchboard_pattern::clone::{CloneClient, CloneServer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = CloneServer::builder().bind("tcp://127.0.0.1:0")?.start().await?;
/// server.set("/prices/acme", "12.5", None)?;
/// let client = CloneClient::builder().server_at(server.endpoints()).subtree("/prices/").connect().await?;
/// assert_eq!(client.get("/prices/acme").unwrap(), "12.5");
/// client.set("/prices/acme", "12.6").await?;
/// assert_eq!(server.get("/prices/acme").unwrap(), "12.6");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CloneServer {
    core: Arc<Core>,
    endpoints: CloneEndpoints,
    snapshots: Router,
    collector: Sub,
    task: Task,
    _follower: Option<Task>,
}

#[derive(Debug)]
struct Core {
    state: Mutex<State>,
    updates: Xpub,
    limits: CloneLimits,
    /// The earliest time to live may have changed.
    expiry: Notify,
}

#[derive(Debug)]
struct State {
    table: Table,
    is_following: bool,
    stats: ServerStats,
}

/// Counters of a [`CloneServer`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Keys in the table.
    pub entries: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
    /// Number of the last update.
    pub sequence: u64,
    /// Updates that were applied: of clients, of the application, and of the server that this one follows.
    pub updates: u64,
    /// Updates that were applied before, by their UUID.
    pub repeated: u64,
    /// Values whose time to live has passed.
    pub expired: u64,
    /// Updates that a limit refused, and those of clients while the server follows another one.
    pub refused: u64,
    /// Snapshots that were begun.
    pub snapshots: u64,
    /// Requests for snapshots beyond `snapshots_max`, and of clients whose snapshot is being sent.
    pub snapshots_refused: u64,
    /// Messages that break a rule of the protocol.
    pub invalid: u64,
    /// Updates that were dropped because a subscriber was too slow.
    pub dropped: u64,
    /// The server follows another one.
    pub is_following: bool,
}

impl CloneServer {
    /// Returns the settings of a server.
    pub fn builder() -> CloneServerBuilder {
        CloneServerBuilder {
            endpoints: None,
            follow: None,
            follow_silence: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
            limits: CloneLimits::default(),
            options: SocketOptions::default(),
            snapshots_max: 64,
            snapshot_timeout: Duration::from_secs(60),
        }
    }

    /// Returns the endpoints, with the ports that the system chose.
    pub fn endpoints(&self) -> CloneEndpoints {
        self.endpoints.clone()
    }

    /// Sets a value, and publishes it; returns the number of the update. An empty value deletes the key.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for a key or value that breaks a rule, and [`ErrorKind::Limit`] at a limit
    /// of the table, and while the server follows another one.
    pub fn set(&self, key: &str, value: impl Into<Bytes>, ttl: Option<Duration>) -> Result<u64> {
        let update = new_update(key, value.into(), ttl, &self.core.limits)?;
        if self.core.lock().is_following {
            let text = format!("key {key:?} is not set: the server follows another one; set it there");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        self.core.apply(update).map_err(|text| Error::new(ErrorKind::Limit, format!("key {key:?}: {text}")))
    }

    /// Returns a value.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.core.lock().table.value(key)
    }

    /// Returns true while the server follows another one.
    pub fn is_following(&self) -> bool {
        self.core.lock().is_following
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        let state = self.core.lock();
        let (entries, bytes, sequence) = state.table.size();
        let (dropped, is_following) = (self.core.updates.stats().dropped, state.is_following);
        ServerStats { entries, bytes, sequence, dropped, is_following, ..state.stats }
    }

    /// Closes the sockets, and waits until unsent messages are written, at most for `timeouts.linger` of each.
    pub async fn stop(mut self) {
        self.collector.close().await;
        self.snapshots.close().await;
        self.core.updates.close().await;
        self.task.ended().await;
    }
}

/// Creates an update of this side, with a UUID.
pub(super) fn new_update(
    key: &str,
    value: Bytes,
    ttl: Option<Duration>,
    limits: &CloneLimits,
) -> Result<Update> {
    let invalid = |rule: &str| Error::new(ErrorKind::InvalidInput, format!("key {key:?} is not set: {rule}"));
    frames::check_key(key.as_bytes(), limits).map_err(invalid)?;
    if value.len() > limits.value_bytes_max {
        let (length, max) = (value.len(), limits.value_bytes_max);
        return Err(invalid(&format!("the value has {length} bytes; the limit is value_bytes_max={max}")));
    }
    if ttl.is_some_and(|ttl| ttl.as_secs() >= u32::MAX.into()) {
        return Err(invalid("the time to live is above 4,294,967,294 seconds"));
    }
    let random = u128::from(clock::random()) << 64 | u128::from(clock::random());
    // Version 4 and the variant of RFC 9562.
    let id = random & !(0xF << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let id = Bytes::copy_from_slice(&id.to_be_bytes());
    Ok(Update { key: key.to_owned(), sequence: 0, id, properties: Properties::with_ttl(ttl), value })
}

/// Settings of a [`CloneServer`].
#[derive(Debug)]
#[must_use = "a server does not run before `start`"]
pub struct CloneServerBuilder {
    endpoints: Option<CloneEndpoints>,
    follow: Option<CloneEndpoints>,
    follow_silence: Duration,
    heartbeat: Duration,
    limits: CloneLimits,
    options: SocketOptions,
    snapshots_max: usize,
    snapshot_timeout: Duration,
}

impl CloneServerBuilder {
    /// Binds the ports P, P+1 and P+2; see [`CloneEndpoints::at`].
    ///
    /// # Errors
    /// Returns the errors of [`CloneEndpoints::at`].
    pub fn bind(self, endpoint: &str) -> Result<Self> {
        Ok(self.bind_at(CloneEndpoints::at(endpoint)?))
    }

    /// Binds three endpoints.
    pub fn bind_at(mut self, endpoints: CloneEndpoints) -> Self {
        self.endpoints = Some(endpoints);
        self
    }

    /// Follows another server: this one has a copy of its table, answers requests for snapshots, and refuses updates.
    /// When the other server is silent, this one takes over for good: it accepts updates, and the other one is to be
    /// started again as a follower of this one. A server that it leaves for another reason, such as a table above its
    /// limits, is tried again.
    pub fn follow(mut self, server: CloneEndpoints) -> Self {
        self.follow = Some(server);
        self
    }

    /// Sets the time without a message of the followed server after which this one takes over; default 5 s.
    pub fn follow_silence(mut self, limit: Duration) -> Self {
        self.follow_silence = limit;
        self
    }

    /// Sets the pause between two HUGZ messages, by which clients notice that the server is alive; default 1 s, at
    /// least 1 ms.
    pub fn heartbeat(mut self, pause: Duration) -> Self {
        self.heartbeat = pause.max(Duration::from_millis(1));
        self
    }

    /// Sets the limits of the table and of its messages.
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

    /// Sets the number of snapshots that are sent at a time; default 64, at least 1. A client repeats a request that
    /// was refused.
    pub fn snapshots_max(mut self, snapshots: usize) -> Self {
        self.snapshots_max = snapshots.max(1);
        self
    }

    /// Sets the time within which a client must receive its whole snapshot; default 60 s. The snapshot then ends, and
    /// the client requests another one.
    pub fn snapshot_timeout(mut self, limit: Duration) -> Self {
        self.snapshot_timeout = limit;
        self
    }

    /// Binds the sockets and starts the server on the runtime of this thread.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] without endpoints, for invalid endpoints and options, and for a server that
    /// waits for slow subscribers (`queues.when_full`); [`ErrorKind::Socket`] if an endpoint cannot be bound.
    pub async fn start(self) -> Result<CloneServer> {
        let Some(wanted) = &self.endpoints else {
            let text = "the server has no endpoints; call bind or bind_at";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        };
        if self.options.queues.when_full == QueueFullPolicy::Wait {
            let text =
                "a server of CHP cannot wait for slow subscribers; set queues.when_full to another policy";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let mut options = self.options.clone();
        options.subscriptions.manual = true;
        let updates = Xpub::with_options(options)?;
        let mut options = self.options.clone();
        (options.routing.mandatory, options.timeouts.send) = (true, Some(SNAPSHOT_STALL_MAX));
        let snapshots = Router::with_options(options)?;
        let collector = Sub::with_options(self.options.clone())?;
        collector.subscribe("")?;
        let endpoints = CloneEndpoints::new(
            snapshots.bind_to(&wanted.snapshot).await?.to_string(),
            updates.bind_to(&wanted.updates).await?.to_string(),
            collector.bind_to(&wanted.collector).await?.to_string(),
        );
        let state = State {
            table: Table::new(self.limits),
            is_following: self.follow.is_some(),
            stats: ServerStats::default(),
        };
        let (limits, expiry) = (self.limits, Notify::new());
        let core = Arc::new(Core { state: Mutex::new(state), updates, limits, expiry });
        let sending = Snapshots::new(snapshots.clone(), self.snapshots_max, self.snapshot_timeout);
        let (shared, from) = (core.clone(), (snapshots.clone(), collector.clone()));
        let task = Task::spawn(async move {
            if let Err(error) = run(&shared, from, sending, self.heartbeat).await {
                tracing::debug!(%error, "a server of CHP has ended");
            }
        });
        let follower = match self.follow {
            None => None,
            Some(followed) => {
                let client = CloneClient::builder()
                    .server_at(followed)
                    .silence_max(self.follow_silence)
                    .limits(self.limits)
                    .options(self.options)
                    .start()?;
                Some(Task::spawn(follow(core.clone(), client)))
            }
        };
        Ok(CloneServer { core, endpoints, snapshots, collector, task, _follower: follower })
    }
}

async fn run(
    core: &Core,
    (snapshots, collector): (Router, Sub),
    mut sending: Snapshots,
    heartbeat: Duration,
) -> Result<()> {
    let mut ticks = tokio::time::interval(heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let expiry = core.lock().table.next_expiry();
        tokio::select! {
            message = collector.recv() => core.collect(&message?),
            message = snapshots.recv() => core.answer(&mut sending, &message?),
            change = core.updates.recv() => core.subscribe(&change?)?,
            () = sending.ended() => {}
            // Subscribers of a subtree do not see all updates: HUGZ is sent beside them.
            _ = ticks.tick() => core.updates.try_send(frames::hugz())?,
            () = sleep_until(expiry) => core.expire(),
            () = core.expiry.notified() => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies and publishes an update; returns its number. The lock keeps the order of the numbers: a publisher that
    /// drops does not wait.
    fn apply(&self, update: Update) -> Result<u64, String> {
        let mut state = self.lock();
        let expiry = state.table.next_expiry();
        let update = match state.table.apply(update, clock::now()) {
            Ok(Applied::New(update)) => {
                state.stats.updates += 1;
                update
            }
            Ok(Applied::Repeated(update)) => {
                state.stats.repeated += 1;
                update
            }
            Err(limit) => {
                state.stats.refused += 1;
                return Err(limit);
            }
        };
        self.publish(&update);
        if state.table.next_expiry() != expiry {
            self.expiry.notify_one();
        }
        Ok(update.sequence)
    }

    fn publish(&self, update: &Update) {
        // Fails when the server is being stopped only.
        let _ = self.updates.try_send(update.to_message());
    }

    fn expire(&self) {
        let mut state = self.lock();
        let now = clock::now();
        while let Some(update) = state.table.expire(now) {
            state.stats.expired += 1;
            self.publish(&update);
        }
    }

    /// Applies a KVSET.
    fn collect(&self, message: &Message) {
        let update = Update::read(message.frames(), &self.limits);
        {
            let mut state = self.lock();
            if let Err(rule) = update {
                tracing::debug!(rule, "an update of a client is not valid");
                state.stats.invalid += 1;
                return;
            }
            if state.is_following {
                state.stats.refused += 1;
                return;
            }
        }
        if let Ok(update) = update
            && let Err(limit) = self.apply(update)
        {
            tracing::warn!(limit, "an update of a client is refused");
        }
    }

    /// Answers an ICANHAZ.
    fn answer(&self, sending: &mut Snapshots, message: &Message) {
        let Some((identity, request)) = message.frames().split_first() else { return };
        let mut state = self.lock();
        match frames::read_request(request, &self.limits) {
            Err(rule) => {
                tracing::debug!(rule, "a request for a snapshot is not valid");
                state.stats.invalid += 1;
            }
            Ok(_) if !sending.has_room(identity) => state.stats.snapshots_refused += 1,
            Ok(subtree) => {
                state.stats.snapshots += 1;
                sending.begin(identity.clone(), state.table.snapshot(&subtree), subtree);
            }
        }
    }

    /// Adds or ends a subscription. A new one to HUGZ receives one at once: the client then knows that its
    /// subscriptions are active.
    fn subscribe(&self, change: &Message) -> Result<()> {
        match change.frames().first().and_then(|frame| frame.split_first()) {
            Some((0, prefix)) => self.updates.unsubscribe_peer(prefix)?,
            Some((1, prefix)) => {
                if let Err(error) = self.updates.subscribe_peer(prefix) {
                    tracing::warn!(%error, "a server of CHP refuses a subscription");
                } else if HUGZ.as_bytes().starts_with(prefix) {
                    self.updates.send_to_peer(frames::hugz())?;
                }
            }
            _ => self.lock().stats.invalid += 1,
        }
        Ok(())
    }

    /// Copies what the client has and this table has not, and deletes the rest.
    fn copy(&self, client: &CloneClient) {
        let entries = client.entries();
        let keys: HashSet<String> = self.lock().table.keys().into_iter().collect();
        let deleted =
            keys.into_iter().filter(|key| !entries.contains_key(key)).map(|key| (key, Bytes::new()));
        for (key, value) in deleted.chain(entries.clone()) {
            if self.lock().table.value(&key).unwrap_or_default() != value {
                self.copy_one(key, value, None, Bytes::new());
            }
        }
    }

    fn copy_one(&self, key: String, value: Bytes, ttl: Option<Duration>, id: Bytes) {
        let properties = Properties::with_ttl(ttl);
        if let Err(limit) = self.apply(Update { key, sequence: 0, id, properties, value }) {
            tracing::warn!(limit, "a server of CHP cannot follow another one");
        }
    }
}

/// Copies the updates of another server until it is silent.
async fn follow(core: Arc<Core>, client: CloneClient) {
    let mut events = client.events();
    if client.stats().server.is_some() {
        // The first snapshot was complete before this receiver existed.
        core.copy(&client);
    }
    while let Some(event) = events.next().await {
        match event {
            CloneEvent::Updated { key, value, ttl, id, .. } => core.copy_one(key, value, ttl, id),
            CloneEvent::Deleted { key, id, .. } => core.copy_one(key, Bytes::new(), None, id),
            CloneEvent::Lagged { .. } | CloneEvent::Synchronized { .. } => core.copy(&client),
            CloneEvent::Lost { reason, is_silent: true, .. } => {
                tracing::warn!(reason, "a server of CHP takes over from the one that it follows");
                break;
            }
            CloneEvent::Lost { reason, .. } => {
                tracing::warn!(reason, "a server of CHP cannot follow another one and tries again");
            }
        }
    }
    core.lock().is_following = false;
}
