//! Last value cache: a forwarder that sends the last value of each topic to a new subscriber at once.
//!
//! ```text
//! publishers ─► XSUB ─► values ─► XPUB ─► subscribers
//!                         └── last values of the topics of a new subscription ──► its subscriber alone
//! ```
//!
//! The topic of a message is its first frame. A subscriber receives the last values of the topics that its subscription
//! matches, then each later message, without a hole: one task adds the subscription and sends the values. Values are
//! kept within [`topics_max`](Builder::topics_max) and [`bytes_max`](Builder::bytes_max); at a limit, the value that
//! was updated the longest time ago is removed and counted.
//!
//! Peers are PUB and SUB sockets of any implementation, as in chapter 5 of ZeroMQ's guide. Unlike the cache there, a
//! subscriber does not receive the last values again when another one subscribes.
//!
//! A topic of a [`Bus`](switchboard_message::Bus) gives the same without a component, to subscribers on every wire: one
//! topic per value with a history of one entry, or one topic that keeps the newest entry of each key.
//!
//! ```
//! use std::time::Duration;
//! use switchboard_message::{Bus, Delivery, TopicOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> switchboard_core::Result<()> {
//! let by_topic = TopicOptions::new().history(1, Duration::MAX);
//! let by_key = TopicOptions::new().history(10_000, Duration::MAX).conflate();
//! let bus = Bus::builder().topics("prices/*", by_topic)?.topics("quotes", by_key)?.build();
//! for price in [12.5, 12.6] {
//!     bus.publish("prices/acme", &price).await?;
//!     bus.publish("quotes", &price).key("acme").await?;
//! }
//! let mut prices = bus.subscribe::<f64>("prices/*").last(1).await?;
//! let mut quotes = bus.subscribe::<f64>("quotes").last(10_000).await?;
//! for values in [&mut prices, &mut quotes] {
//!     assert!(matches!(values.next().await?, Some(Delivery::Entry(last)) if *last == 12.6));
//! }
//! # Ok(())
//! # }
//! ```

mod values;

use crate::{Error, ErrorKind, Result, route, task::Task};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use switchboard_socket::{Endpoint, Message, SocketOptions, Xpub, Xsub};
use values::Values;

/// Messages that wait for one subscriber beside its last values.
const QUEUE_MESSAGES: usize = 1000;
/// Bytes of these messages.
const QUEUE_BYTES: usize = 16 << 20;

/// A running last value cache. Dropping it ends the cache and closes its sockets.
///
/// ```
/// use switchboard_pattern::last_value_cache::LastValueCache;
/// use switchboard_socket::{Pub, Sub};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = LastValueCache::builder()
///     .bind_publishers("tcp://127.0.0.1:0")
///     .bind_subscribers("tcp://127.0.0.1:0")
///     .start()
///     .await?;
/// let publisher = Pub::connect(&cache.publishers()[0].to_string()).await?;
/// while cache.last("acme").is_none() { // a PUB drops messages until its peer has subscribed
///     publisher.send(["acme", "12.5"]).await?;
/// #   tokio::task::yield_now().await;
/// }
/// let late = Sub::connect(&cache.subscribers()[0].to_string()).await?;
/// late.subscribe("acme")?;
/// assert_eq!(late.recv().await?.body(), b"12.5");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LastValueCache {
    publishers: Xsub,
    subscribers: Xpub,
    shared: Arc<Mutex<Shared>>,
    task: Task,
}

#[derive(Debug)]
struct Shared {
    values: Values,
    messages: u64,
    replayed: u64,
    subscriptions: u64,
}

impl LastValueCache {
    /// Returns the settings of a cache.
    pub fn builder() -> Builder {
        Builder {
            binds: [Vec::new(), Vec::new()],
            connects: Vec::new(),
            prefixes: Vec::new(),
            topics_max: 10_000,
            bytes_max: 16 << 20,
            options: SocketOptions::default(),
        }
    }

    /// Returns the endpoints to which publishers connect.
    pub fn publishers(&self) -> Vec<Endpoint> {
        self.publishers.endpoints()
    }

    /// Returns the endpoints to which subscribers connect.
    pub fn subscribers(&self) -> Vec<Endpoint> {
        self.subscribers.endpoints()
    }

    /// Returns the last message of a topic; `None` if none is kept.
    pub fn last(&self, topic: impl AsRef<[u8]>) -> Option<Message> {
        lock(&self.shared).values.last(topic.as_ref())
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        let shared = lock(&self.shared);
        Stats {
            topics: shared.values.topics(),
            bytes: shared.values.bytes(),
            messages: shared.messages,
            replayed: shared.replayed,
            subscriptions: shared.subscriptions,
            evicted: shared.values.evicted,
            too_large: shared.values.too_large,
            dropped: self.subscribers.stats().dropped + self.publishers.stats().dropped,
        }
    }

    /// Closes the sockets, and waits until unsent messages are written, at most for 30 s. If the future is dropped,
    /// they are written in the background.
    pub async fn stop(mut self) {
        self.publishers.close().await;
        self.subscribers.close().await;
        self.task.ended().await;
    }
}

/// Counters of a [`LastValueCache`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Topics whose last value is kept.
    pub topics: usize,
    /// Bytes of the kept values and their topics.
    pub bytes: usize,
    /// Messages that were received from publishers.
    pub messages: u64,
    /// Last values that were sent to new subscriptions.
    pub replayed: u64,
    /// Subscriptions that were received, repeated ones included.
    pub subscriptions: u64,
    /// Values that were removed at `topics_max` or `bytes_max`.
    pub evicted: u64,
    /// Messages above `bytes_max`, which are forwarded and not kept.
    pub too_large: u64,
    /// Messages that were dropped because a subscriber was too slow.
    pub dropped: u64,
}

/// Settings of a [`LastValueCache`].
#[derive(Debug)]
#[must_use = "a cache does not run before `start`"]
pub struct Builder {
    /// Endpoints for publishers, and for subscribers.
    binds: [Vec<String>; 2],
    connects: Vec<String>,
    prefixes: Vec<Vec<u8>>,
    topics_max: usize,
    bytes_max: usize,
    options: SocketOptions,
}

impl Builder {
    /// Binds another endpoint, to which publishers connect.
    pub fn bind_publishers(mut self, endpoint: &str) -> Self {
        self.binds[0].push(endpoint.to_owned());
        self
    }

    /// Connects to another publisher.
    pub fn connect_publisher(mut self, endpoint: &str) -> Self {
        self.connects.push(endpoint.to_owned());
        self
    }

    /// Binds another endpoint, to which subscribers connect.
    pub fn bind_subscribers(mut self, endpoint: &str) -> Self {
        self.binds[1].push(endpoint.to_owned());
        self
    }

    /// Keeps and forwards topics with another prefix. The default is all topics.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefixes.push(prefix.as_ref().to_vec());
        self
    }

    /// Sets the number of topics whose value is kept; default 10,000, at least 1.
    pub fn topics_max(mut self, topics: usize) -> Self {
        self.topics_max = topics.max(1);
        self
    }

    /// Sets the bytes of the kept values and their topics; default 16 MiB. A larger message is forwarded and not kept.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// Sets the options of both sockets: limits, security, heartbeats. The queue of a subscriber is made at least so
    /// large that all last values and 1,000 further messages fit, and the option `subscriptions.manual` is set.
    /// `timeouts.receive` and `timeouts.send` are not used.
    pub fn options(mut self, options: SocketOptions) -> Self {
        self.options = options;
        route::remove_time_limits(&mut self.options);
        self
    }

    /// Binds and connects the sockets, and starts the cache on the runtime of this thread.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if publishers or subscribers have no endpoint, and for invalid endpoints and
    /// options; [`ErrorKind::Socket`] if an endpoint cannot be bound.
    pub async fn start(self) -> Result<LastValueCache> {
        let [publishers, subscribers] = &self.binds;
        if publishers.is_empty() && self.connects.is_empty() || subscribers.is_empty() {
            let text = "the cache needs an endpoint on both sides; call bind_publishers or connect_publisher, and \
                        bind_subscribers";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let xsub = Xsub::with_options(self.options.clone())?;
        for endpoint in publishers {
            xsub.bind_to(endpoint).await?;
        }
        for endpoint in &self.connects {
            xsub.connect_to(endpoint).await?;
        }
        let all = [Vec::new()];
        for prefix in if self.prefixes.is_empty() { &all[..] } else { &self.prefixes } {
            xsub.subscribe(prefix)?;
        }
        let mut options = self.options;
        options.subscriptions.manual = true;
        let queues = &mut options.queues;
        let at_least = |limit: usize, least: usize| if limit == 0 { 0 } else { limit.max(least) };
        let messages = self.topics_max.saturating_add(QUEUE_MESSAGES);
        queues.send_messages_max = at_least(queues.send_messages_max, messages);
        let bytes = self.bytes_max.saturating_add(QUEUE_BYTES);
        queues.send_bytes_max = at_least(queues.send_bytes_max, bytes);
        let xpub = Xpub::with_options(options)?;
        for endpoint in subscribers {
            xpub.bind_to(endpoint).await?;
        }
        let values = Values::new(self.topics_max, self.bytes_max);
        let shared = Arc::new(Mutex::new(Shared { values, messages: 0, replayed: 0, subscriptions: 0 }));
        let (from, to, state) = (xsub.clone(), xpub.clone(), shared.clone());
        let task = Task::spawn(async move {
            if let Err(error) = run(&from, &to, &state).await {
                tracing::debug!(%error, "a last value cache has ended");
            }
        });
        Ok(LastValueCache { publishers: xsub, subscribers: xpub, shared, task })
    }
}

async fn run(from: &Xsub, to: &Xpub, shared: &Mutex<Shared>) -> Result<()> {
    loop {
        tokio::select! {
            // A burst of values must not delay new subscribers, and the other way round: the order is random.
            message = from.recv() => {
                let message = message?;
                {
                    let mut shared = lock(shared);
                    shared.messages += 1;
                    shared.values.keep(&message);
                }
                to.send(message).await?;
            }
            change = to.recv() => apply(to, shared, &change?)?,
        }
    }
}

/// Adds or ends a subscription, and sends the last values of a new one to its peer.
fn apply(to: &Xpub, shared: &Mutex<Shared>, change: &Message) -> Result<()> {
    let Some((kind, prefix)) = change.frames().first().and_then(|frame| frame.split_first()) else {
        return Ok(());
    };
    match kind {
        0 => to.unsubscribe_peer(prefix)?,
        1 => {
            if let Err(error) = to.subscribe_peer(prefix) {
                // The peer has more subscriptions than `limits.subscriptions_max`.
                tracing::warn!(%error, "a last value cache refuses a subscription");
                return Ok(());
            }
            let mut shared = lock(shared);
            shared.subscriptions += 1;
            let mut replayed = 0;
            for message in shared.values.matching(prefix) {
                to.send_to_peer(message.clone())?;
                replayed += 1;
            }
            shared.replayed += replayed;
        }
        // Other messages of subscribers have no meaning here.
        _ => {}
    }
    Ok(())
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
