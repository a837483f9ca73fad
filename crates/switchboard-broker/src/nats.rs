//! NATS 2.9 or later with JetStream: one stream of the entries of all topics, which the server republishes.
//!
//! With the prefix `swb`, the stream `swb` stores the subjects `swb.log.>`, and the server republishes each stored
//! message to `swb.live.>`. The topic `quotes/acme` is `quotes.acme` there. A process that follows a topic has a plain
//! subscription: no consumer is created. The number of a message in the stream is the offset, so that the offsets of a
//! topic increase with holes. A republished message names the one before it in its subject, which shows holes;
//! direct gets fill them. The epoch is the time at which the stream was created.

mod jetstream;
mod live;
mod options;
mod read;

pub use options::Options;

use crate::record;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, ServerAddr, connection::State};
use jetstream::{Ack, unreadable};
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
use switchboard_core::{Result, backoff};
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
/// Live entries of one topic that wait for this process; those after them are read later.
const WAITING_MAX: usize = 1_024;

/// State that the tasks of the followers share.
struct Shared {
    name: String,
    address: ServerAddr,
    options: Options,
    client: tokio::sync::Mutex<Option<Client>>,
    followers: Mutex<HashMap<Topic, Follower>>,
    /// Epoch of the stream; 0 before it is known.
    epoch: AtomicU64,
    /// Newest number in the stream that this process has seen.
    newest: AtomicU64,
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
            client: tokio::sync::Mutex::default(),
            followers: Mutex::default(),
            epoch: AtomicU64::new(0),
            newest: AtomicU64::new(0),
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
        let mut known = self.client.lock().await;
        if let Some(client) = &*known {
            return match client.connection_state() {
                State::Connected => Ok(client.clone()),
                // Nothing was sent.
                _ => Err(self.away("is not connected").with_retry(Retry::Safe)),
            };
        }
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
        Ok(known.insert(client).clone())
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
            0 => self.renew(client).await.map(|(epoch, _)| epoch),
            epoch => Ok(epoch),
        }
    }

    /// Queries the epoch of the stream, and its newest number. Another epoch than before ends all deliveries.
    async fn renew(self: &Arc<Self>, client: &Client) -> Result<(u64, u64)> {
        let info = jetstream::stream(&self.name, client, &self.options).await?;
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
        Ok((epoch, last))
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
                    self.renew(&client).await?;
                    continue;
                }
                Ok(Err(error)) => return Err(self.away(error)),
            };
            let Ack { seq, duplicate } = jetstream::ack(&self.name, &response.payload)?;
            // A number that is not behind those seen before belongs to a stream that was created since.
            let epoch = match seq > newest || duplicate {
                true => epoch,
                false => self.renew(&client).await?.0,
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
        Event::SlowConsumer(_) => shared.interrupt("has delivered more than this process has read"),
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
        _known: Option<Position>,
        to: Mailbox,
    ) -> BrokerFuture<'a, Position> {
        Box::pin(live::follow(&self.shared, topic, to))
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
