//! NATS 2.9 or later with JetStream: one stream of the entries of all topics, which the server republishes.
//!
//! With the prefix `swb`, the stream `swb` stores the subjects `swb.log.>`, and the server republishes each stored
//! message to `swb.live.>`. The topic `quotes/acme` is `quotes.acme` there. A process that follows a topic has a plain
//! subscription: no consumer is created. The number of a message in the stream is the offset, so that the offsets of a
//! topic increase with holes. A republished message names the one before it in its subject, which shows holes;
//! direct gets fill them. The epoch is derived from the time at which the stream was created, and from a word in its
//! metadata, which a process replaces when the stream has lost entries that it has seen.

mod jetstream;
mod live;
mod options;
mod read;

pub use options::Options;

use crate::{attempts::Attempts, record};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, ServerAddr, connection::State};
use jetstream::{Ack, Info, unreadable};
use live::Follower;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use switchboard_core::{Result, backoff, clock};
use switchboard_message::{
    Position, Publication, Topic,
    broker::{Accepted, Broker, BrokerFuture, Capabilities, LiveEvent, Mailbox, Page, ReadFrom},
};
use switchboard_wire::{Retry, Status};
use tokio::time::timeout;

/// An engine in NATS.
pub struct Nats {
    shared: Arc<Shared>,
}

/// The server responds within milliseconds; one that takes longer than this counts as down.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of the pings of the connection: the client closes it after two without a response.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Longest pause between two attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Pause before a stream that seems to have lost its end is queried again.
const SETTLE_PAUSE: Duration = Duration::from_millis(300);
/// Live entries of one topic that wait for this process; those after them are read later.
const WAITING_MAX: usize = 1_024;

/// State that the tasks of the followers share.
struct Shared {
    name: String,
    address: ServerAddr,
    options: Options,
    client: Mutex<Option<Client>>,
    connecting: Attempts,
    followers: Mutex<HashMap<Topic, Follower>>,
    /// Epoch of the stream; 0 before it is known.
    epoch: AtomicU64,
    /// Newest number in the stream that this process has seen.
    newest: AtomicU64,
    /// Held while the epoch of a stream that has lost its end is replaced.
    replacing: tokio::sync::Mutex<()>,
    /// Times that messages for this process were dropped because a topic was read too slowly.
    drops: AtomicU64,
}

impl Nats {
    /// Creates the engine at `nats://[USER:PASSWORD@]HOST:PORT` or `tls://…`. Nothing is sent before it is used; then
    /// the stream is created, if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address or prefix.
    pub fn connect(url: &str, options: Options) -> Result<Nats> {
        options.check()?;
        let address: ServerAddr = url.parse().map_err(|error: std::io::Error| {
            Status::invalid_argument(format!("the address of the engine NATS: {error}"))
        })?;
        let name = format!("nats {}:{}", address.host(), address.port());
        let shared = Shared {
            name,
            address,
            options,
            client: Mutex::default(),
            connecting: Attempts::default(),
            followers: Mutex::default(),
            epoch: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            replacing: tokio::sync::Mutex::default(),
            drops: AtomicU64::new(0),
        };
        Ok(Nats { shared: Arc::new(shared) })
    }
}

impl Shared {
    fn followers(&self) -> MutexGuard<'_, HashMap<Topic, Follower>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self, why: impl fmt::Display) -> Status {
        Status::unavailable(format!("{}: {why}", self.name))
    }

    /// Returns the client, which connects again by itself once it has been connected.
    async fn client(self: &Arc<Self>) -> Result<Client> {
        let client = self.connecting.open(|| self.lock_client().clone(), self.connect()).await?;
        match client.connection_state() {
            State::Connected => Ok(client),
            // Nothing was sent.
            _ => Err(self.away("is not connected").with_retry(Retry::Safe)),
        }
    }

    fn lock_client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(self: &Arc<Self>) -> Result<Client> {
        let shared = Arc::downgrade(self);
        let options = ConnectOptions::new()
            .name("switchboard")
            .connection_timeout(RESPONSE_TIMEOUT)
            .request_timeout(Some(RESPONSE_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            .subscription_capacity(WAITING_MAX)
            .reconnect_delay_callback(|attempts| {
                let failures = attempts.try_into().unwrap_or(u32::MAX);
                backoff::pause(failures, backoff::CONNECT_MIN, PAUSE_MAX)
            })
            .event_callback(move |event| {
                notice(&shared, &event);
                std::future::ready(())
            });
        let connecting = timeout(RESPONSE_TIMEOUT, options.connect(self.address.clone())).await;
        let client = connecting
            .map_err(|_| self.away("does not respond").with_retry(Retry::Safe))?
            .map_err(|error| self.away(error).with_retry(Retry::Safe))?;
        Ok(self.lock_client().insert(client).clone())
    }

    /// Ends all deliveries: the bus subscribes again, and reads what it missed.
    fn interrupt(&self, why: &str) {
        let followers = std::mem::take(&mut *self.followers());
        for follower in followers.into_values() {
            follower.mailbox.deliver(LiveEvent::Interrupted(self.away(why)));
        }
    }

    /// Returns the epoch of the stream; creates the stream if there is none.
    async fn epoch(self: &Arc<Self>, client: &Client) -> Result<u64> {
        match self.epoch.load(Ordering::Acquire) {
            0 => self.renew(client, None).await.map(|(epoch, _)| epoch),
            epoch => Ok(epoch),
        }
    }

    /// Queries the epoch of the stream, and its newest number. Another epoch than before ends all deliveries. A stream
    /// that has lost an entry which this process has seen, with the position `known` or any other, begins a new epoch.
    async fn renew(self: &Arc<Self>, client: &Client, known: Option<Position>) -> Result<(u64, u64)> {
        let is_lost = |info: &Info, newest: u64| {
            let epoch = info.epoch();
            let newest = if self.epoch.load(Ordering::Acquire) == epoch { newest } else { 0 };
            let known = known.filter(|known| known.epoch == epoch).map_or(0, |known| known.offset);
            newest.max(known) > info.state.last_seq
        };
        // Before the query: entries that arrive meanwhile are newer than its result.
        let newest = self.newest.load(Ordering::Acquire);
        let mut info = jetstream::stream(&self.name, client, &self.options).await?;
        if is_lost(&info, newest) {
            let _replacing = self.replacing.lock().await;
            // Once more, unless another caller has replaced the epoch: a new leader may be behind for a moment.
            if [0, info.epoch()].contains(&self.epoch.load(Ordering::Acquire)) {
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
            let newest = self.newest.load(Ordering::Acquire);
            info = jetstream::stream(&self.name, client, &self.options).await?;
            if is_lost(&info, newest) {
                info = self.replace_epoch(client, info).await?;
            }
            return Ok(self.note(&info));
        }
        Ok(self.note(&info))
    }

    /// Handles a number that is not behind those seen before: the stream was created since, or has lost its end.
    async fn renew_behind(self: &Arc<Self>, client: &Client, epoch: u64) -> Result<u64> {
        let (current, _) = self.renew(client, None).await?;
        if current != epoch {
            return Ok(current);
        }
        let _replacing = self.replacing.lock().await;
        let mut info = jetstream::stream(&self.name, client, &self.options).await?;
        if info.epoch() == epoch {
            info = self.replace_epoch(client, info).await?;
        }
        Ok(self.note(&info).0)
    }

    /// Begins a new epoch of the stream, which has lost its end.
    async fn replace_epoch(&self, client: &Client, info: Info) -> Result<Info> {
        jetstream::begin_epoch(&self.name, client, &self.options, info, clock::random()).await?;
        // Other processes may do the same at this time: the last one counts.
        tokio::time::sleep(SETTLE_PAUSE).await;
        jetstream::stream(&self.name, client, &self.options).await
    }

    /// Notes the epoch of the stream, and its newest number.
    fn note(&self, info: &Info) -> (u64, u64) {
        let (epoch, last) = (info.epoch(), info.state.last_seq);
        let before = self.epoch.swap(epoch, Ordering::AcqRel);
        if before == epoch {
            self.newest.fetch_max(last, Ordering::AcqRel);
        } else {
            self.newest.store(last, Ordering::Release);
            if before != 0 {
                self.interrupt("has another stream");
            }
        }
        (epoch, last)
    }

    async fn append(self: &Arc<Self>, topic: &Topic, publications: &[Publication]) -> Result<Position> {
        let [publication] = publications else {
            let text = format!("a batch of publications is not supported by the engine {}", self.name);
            return Err(Status::unimplemented(text));
        };
        let client = self.client().await?;
        let subject = self.options.stored(topic);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", &*self.options.prefix);
        if !publication.id.is_empty() {
            // Ids are those of a topic; JetStream knows those of a stream.
            headers.insert("Nats-Msg-Id", format!("{subject} {}", options::escape(&publication.id)));
        }
        let record = record::encode(publication, record::now());
        // A stream that is gone is created once more.
        for is_last in [false, true] {
            let epoch = self.epoch(&client).await?;
            let newest = self.newest.load(Ordering::Acquire);
            let sent = client.request_with_headers(subject.clone(), headers.clone(), record.clone());
            let response = match timeout(RESPONSE_TIMEOUT, sent).await {
                Err(_) => return Err(self.away("does not respond")),
                Ok(Ok(response)) => response,
                Ok(Err(error)) if error.kind() == async_nats::RequestErrorKind::NoResponders && !is_last => {
                    self.renew(&client, None).await?;
                    continue;
                }
                Ok(Err(error)) => return Err(self.away(error)),
            };
            let Ack { seq, duplicate } = jetstream::ack(&self.name, &response.payload)?;
            // A number that is not behind those seen before belongs to a stream that was created since, or that has
            // lost its end.
            let epoch = match seq > newest || duplicate {
                true => epoch,
                false => self.renew_behind(&client, epoch).await?,
            };
            self.newest.fetch_max(seq, Ordering::AcqRel);
            return Ok(Position { epoch, offset: seq });
        }
        Err(unreadable(&self.name))
    }
}

/// Handles an event of the connection.
fn notice(shared: &Weak<Shared>, event: &Event) {
    let Some(shared) = shared.upgrade() else { return };
    match event {
        Event::Closed | Event::Disconnected => shared.interrupt("has closed the connection"),
        // The topic notices it by its next entry, or when it is idle; others are not affected.
        Event::SlowConsumer(_) => _ = shared.drops.fetch_add(1, Ordering::AcqRel),
        _ => {}
    }
}

impl Broker for Nats {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(Accepted::Engine);
        capabilities.has_history = true;
        capabilities.has_history_per_topic = true;
        capabilities.drops_duplicates = true;
        capabilities.survives_restart = true;
        capabilities.topics_max = self.shared.options.topics_max;
        capabilities
    }

    fn append<'a>(&'a self, topic: &'a Topic, publications: Vec<Publication>) -> BrokerFuture<'a, Position> {
        Box::pin(async move { self.shared.append(topic, &publications).await })
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a Topic,
        known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        Box::pin(live::follow(&self.shared, topic, known, to))
    }

    fn unsubscribe(&self, topic: &Topic) {
        let ended = self.shared.followers().remove(topic);
        drop(ended);
    }

    fn read<'a>(&'a self, topic: &'a Topic, from: ReadFrom, entries_max: usize) -> BrokerFuture<'a, Page> {
        Box::pin(read::page(&self.shared, topic, from, entries_max))
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.shared.followers().clear();
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, options, .. } = &*self.shared;
        f.debug_struct("Nats").field("name", name).field("options", options).finish_non_exhaustive()
    }
}
