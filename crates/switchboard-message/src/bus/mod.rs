//! A bus of typed messages inside the process.
//!
//! The bus encodes and decodes messages, reads the clock and waits; the [logs](crate::log) do the rest.

mod message;
mod publish;
mod request;
mod subscribe;
mod subscription;

pub use message::{Delivery, Message};
pub use publish::{Publish, PublishBatch, Publishing};
pub use request::{Replies, Request};
pub use subscribe::{Selector, Subscribe};
pub use subscription::Subscription;

use crate::{
    clock::Clock,
    limits::Limits,
    log::{BusStats, GroupKey, Log, NameRef, Pattern, Publication, Topic, TopicOptions, TopicStats},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use switchboard_core::{Result, codec};
use switchboard_wire::{Codec, Status};

/// Topics of this process. Cheap to clone; all clones are one bus.
///
/// ```
/// # use switchboard_message::{Bus, Delivery};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> switchboard_core::Result<()> {
/// let bus = Bus::new();
/// let mut jobs = bus.subscribe::<String>("jobs/>").group("workers").ack().await?;
/// bus.publish("jobs/mail", &"to all".to_owned()).await?;
/// if let Some(Delivery::Entry(job)) = jobs.next().await? {
///     assert_eq!(*job, "to all");
///     job.ack();
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Bus {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    log: Log,
    clock: Clock,
    codec: Codec,
    /// Number of the newest reply topic.
    replies: AtomicU64,
}

/// Settings of a [`Bus`].
#[derive(Clone, Debug)]
#[must_use = "a builder has no effect before `build`"]
pub struct BusBuilder {
    limits: Limits,
    rules: Vec<(Pattern, TopicOptions)>,
    clock: Clock,
    codec: Codec,
}

impl Default for Bus {
    fn default() -> Self {
        Bus::new()
    }
}

impl Bus {
    /// Creates a bus whose topics have no history, with the default limits.
    pub fn new() -> Bus {
        Bus::builder().build()
    }

    /// Returns the settings of a bus, to be changed.
    pub fn builder() -> BusBuilder {
        let (limits, rules) = (Limits::default(), Vec::new());
        BusBuilder { limits, rules, clock: Clock::Runtime, codec: Codec::Postcard }
    }

    /// Publishes a message: `await` the result, or call [`Publish::now`].
    ///
    /// ```
    /// # use switchboard_message::Bus;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// # let bus = Bus::new();
    /// let position = bus.publish("quotes/acme", &12.5).key("acme").id("order 7").await?;
    /// assert_eq!(bus.publish("quotes/acme", &12.5).id("order 7").await?, position);
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish<'a, T: Serialize>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        message: &'a T,
    ) -> Publish<'a, T> {
        self.publish_with(topic, message, self.inner.codec, codec::serde::encode)
    }

    /// Publishes a message of any type, with its function for encoding, such as that of `codec::proto`.
    pub fn publish_with<'a, T>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        message: &'a T,
        codec: Codec,
        encode: fn(&T, Codec) -> Result<Bytes>,
    ) -> Publish<'a, T> {
        Publish::new(self, topic.into(), message, codec, encode)
    }

    /// Publishes an encoded message.
    pub fn publish_encoded<'a>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        publication: Publication,
    ) -> Publishing<'a> {
        Publishing::new(self, topic.into(), Ok(publication))
    }

    /// Publishes several messages to one topic: all, or none. Resolves to the position of the last.
    ///
    /// ```
    /// # use switchboard_message::Bus;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// # let bus = Bus::new();
    /// assert_eq!(bus.publish_batch("numbers", &[1, 2, 3]).await?.offset, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish_batch<'a, T: Serialize>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        messages: &'a [T],
    ) -> PublishBatch<'a, T> {
        PublishBatch::new(self, topic.into(), messages, self.inner.codec, codec::serde::encode)
    }

    /// Publishes several encoded messages to one topic, each with its own codec, key and headers: all, or none.
    /// Resolves to the position of the last.
    ///
    /// ```
    /// # use switchboard_message::{Bus, Publication};
    /// # use switchboard_wire::Codec;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// # let bus = Bus::new();
    /// let batch = vec![Publication::new(Codec::Json, "1"), Publication::new(Codec::Raw, "two")];
    /// assert_eq!(bus.publish_batch_encoded("numbers", batch).await?.offset, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish_batch_encoded<'a>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        publications: Vec<Publication>,
    ) -> Publishing<'a> {
        Publishing::batch(self, topic.into(), publications)
    }

    /// Subscribes to a topic or a pattern: `await` the result for the [`Subscription`].
    ///
    /// A name with a wildcard as a level is a pattern; see [`Pattern`].
    pub fn subscribe<T: DeserializeOwned>(&self, topics: impl Into<Selector>) -> Subscribe<'_, T> {
        self.subscribe_with(topics, codec::serde::decode)
    }

    /// Subscribes to messages of any type, with its function for decoding, such as that of `codec::proto`.
    pub fn subscribe_with<T>(
        &self,
        topics: impl Into<Selector>,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Subscribe<'_, T> {
        Subscribe::new(self, topics.into(), decode)
    }

    /// Subscribes to messages that are not decoded.
    ///
    /// ```
    /// # use switchboard_message::{Bus, Delivery, Publication};
    /// # use switchboard_wire::Codec;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = Bus::new();
    /// let mut frames = bus.subscribe_encoded("frames").await?;
    /// bus.publish_encoded("frames", Publication::new(Codec::Raw, "bytes")).await?;
    /// assert!(matches!(frames.next().await?, Some(Delivery::Entry(frame)) if *frame == "bytes"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe_encoded(&self, topics: impl Into<Selector>) -> Subscribe<'_, Bytes> {
        self.subscribe_with(topics, |_, bytes| Ok(bytes))
    }

    /// Sends a request to the subscribers of a topic, and resolves to the first reply.
    ///
    /// ```
    /// # use switchboard_message::{Bus, Delivery};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = Bus::new();
    /// let mut squares = bus.subscribe::<u32>("square").await?;
    /// tokio::spawn(async move {
    ///     while let Ok(Some(Delivery::Entry(number))) = squares.next().await {
    ///         number.reply(&(*number * *number)).await?;
    ///     }
    ///     Ok::<_, switchboard_wire::Status>(())
    /// });
    /// let reply = bus.request::<u32, u32>("square", &7).await?;
    /// assert_eq!(*reply, 49);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` without a subscriber, `DeadlineExceeded` without a reply within the
    /// [time limit](Request::time_limit), and the errors of [`publish`](Bus::publish).
    pub fn request<'a, T: Serialize, R: DeserializeOwned>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        message: &'a T,
    ) -> Request<'a, T, Message<R>> {
        Request::new(self, topic.into(), message)
    }

    /// Sends a request, and resolves to the stream of all replies. It ends at the time limit, or with
    /// `replies_max` replies.
    ///
    /// # Errors
    /// Those of [`request`](Bus::request).
    pub fn request_many<'a, T: Serialize, R: DeserializeOwned>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        message: &'a T,
    ) -> Request<'a, T, Replies<R>> {
        Request::new(self, topic.into(), message)
    }

    /// Sends a request to all subscribers of a topic, and resolves to the replies: when each subscriber has replied, or
    /// at the time limit with those received until then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, Delivery};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = Bus::new();
    /// let mut node = bus.subscribe::<String>("load").await?;
    /// tokio::spawn(async move {
    ///     while let Ok(Some(Delivery::Entry(request))) = node.next().await {
    ///         request.reply(&0.5).await?;
    ///     }
    ///     Ok::<_, switchboard_wire::Status>(())
    /// });
    /// let all = "of this minute".to_owned();
    /// let loads = bus.survey::<_, f64>("load", &all).time_limit(Duration::from_secs(1)).await?;
    /// assert_eq!(loads.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable` without a subscriber, the errors of [`publish`](Bus::publish), and those of [`Replies::next`] for
    /// the first reply that has one: replies received until then are dropped.
    pub fn survey<'a, T: Serialize, R: DeserializeOwned>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        message: &'a T,
    ) -> Request<'a, T, Vec<Message<R>>> {
        Request::new(self, topic.into(), message)
    }

    /// Waits until the topic accepts an entry without a pause; returns how many it accepts. Dropping the future is
    /// safe.
    ///
    /// Only topics with [`SlowReader::Wait`](crate::SlowReader::Wait) make publishers wait; the time limit of the topic
    /// applies here as well. On other topics, the number is the entries before the slowest cursor lags.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, SlowReader, TopicOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let jobs = TopicOptions::new().backlog(100).slow_reader(SlowReader::Wait(Duration::from_secs(5)));
    /// let bus = Bus::builder().topics("jobs", jobs)?.build();
    /// let _worker = bus.subscribe::<u32>("jobs").await?;
    /// assert_eq!(bus.credit("jobs").await?, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ResourceExhausted` at the time limit, `InvalidArgument` for an invalid name.
    pub async fn credit<'a>(&'a self, topic: impl Into<NameRef<'a>>) -> Result<usize> {
        let name = topic.into();
        publish::retry_in_room(self, name.name, || self.inner.log.credit(name, self.now())).await
    }

    /// Removes a durable cursor that has no subscription; returns whether there was one.
    ///
    /// ```
    /// assert!(!switchboard_message::Bus::new().remove_durable("inbox/7", "phone").unwrap());
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name or pattern.
    pub fn remove_durable(&self, topics: impl Into<Selector>, name: &str) -> Result<bool> {
        let key = GroupKey { name: name.into(), source: topics.into().source?, is_durable: true };
        Ok(self.inner.log.remove_durable(&key))
    }

    /// Returns the limits.
    ///
    /// ```
    /// assert_eq!(switchboard_message::Bus::new().limits().unacknowledged_max, 64);
    /// ```
    pub fn limits(&self) -> &Limits {
        self.inner.log.limits()
    }

    /// Returns the counters of a topic that the bus holds.
    pub fn topic_stats<'a>(&'a self, topic: impl Into<NameRef<'a>>) -> Option<TopicStats> {
        self.inner.log.topic_stats(topic.into())
    }

    /// Returns the counters of the bus. Visits all topics.
    ///
    /// ```
    /// let bus = switchboard_message::Bus::new();
    /// assert_eq!((bus.stats().topics, bus.stats().bytes), (0, 0));
    /// ```
    pub fn stats(&self) -> BusStats {
        self.inner.log.stats()
    }

    /// Removes expired entries, and topics that hold nothing. Publications do this as well, at limits.
    pub fn remove_unused(&self) {
        self.inner.log.remove_unused(self.now());
    }

    fn now(&self) -> u64 {
        self.inner.clock.now()
    }

    /// Returns a topic for the replies to one request.
    fn reply_topic(&self) -> Topic {
        let number = self.inner.replies.fetch_add(1, Ordering::Relaxed);
        Topic::internal(&format!("$reply/{number}"))
    }
}

impl BusBuilder {
    /// Sets the limits.
    pub fn limits(mut self, limits: Limits) -> BusBuilder {
        self.limits = limits;
        self
    }

    /// Sets the options of the topics that match a pattern. The first pattern that matches a name applies.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern.
    pub fn topics(mut self, pattern: &str, options: TopicOptions) -> Result<BusBuilder> {
        self.rules.push((Pattern::new(pattern)?, options));
        Ok(self)
    }

    /// Sets the codec of messages whose publication names none; default postcard.
    pub fn codec(mut self, codec: Codec) -> BusBuilder {
        self.codec = codec;
        self
    }

    /// Uses a clock in nanoseconds that is moved by hand; timers never fire. For simulations that poll.
    #[doc(hidden)]
    pub fn manual_clock(mut self, clock: Arc<AtomicU64>) -> BusBuilder {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Creates the bus.
    pub fn build(self) -> Bus {
        let BusBuilder { limits, rules, clock, codec } = self;
        let log = Log::new(limits, rules, switchboard_core::clock::random);
        Bus { inner: Arc::new(Inner { log, clock, codec, replies: AtomicU64::new(0) }) }
    }
}

/// Error for a backlog that stayed full.
fn backlog_full(topic: &str, waited: &str) -> Status {
    let text = format!(
        "topic \"{topic}\" accepts no entry{waited}: its slowest cursor is behind by the whole backlog; publish later, \
         or raise backlog_entries_max"
    );
    Status::resource_exhausted(text).with_retry(switchboard_wire::Retry::Safe)
}
