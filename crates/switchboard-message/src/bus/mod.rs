//! A bus of typed messages.
//!
//! The bus encodes and decodes messages, reads the clock and waits; the [logs](crate::log) of this process do the rest,
//! or the [`RemoteBus`](remote::RemoteBus) of another one.

mod builder;
mod counters;
mod embedded;
mod engine;
mod forward;
mod history;
mod local;
mod local_subscription;
mod message;
mod publish;
pub mod remote;
mod request;
mod subscribe;
mod subscription;
mod topics;

pub use builder::BusBuilder;
pub use embedded::Embedded;
pub use forward::{ForwardEntries, WithGaps};
pub(crate) use history::poll_ready;
pub use history::{HistoryPage, ReadHistory};
pub use message::{Delivery, Message};
pub use publish::{Attempt, Publish, PublishBatch, Publishing};
pub use request::{Replies, Request};
pub use subscribe::{Selector, Subscribe, Subscribing};
pub use subscription::Subscription;
pub use topics::{ListTopics, ListingTopics, TopicsPage};

#[cfg(doc)]
use crate::Pattern;
use crate::{
    limits::Limits,
    log::{BusStats, Entry, GroupKey, NameRef, Publication, Topic, TopicStats},
};
use bytes::Bytes;
use local::{Local, REPLY_PREFIX};
use remote::Remote;
use serde::{Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};
use switchboard_core::{Result, codec};
use switchboard_wire::{Codec, Status};

/// Topics of this process, or of another one. Cheap to clone; all clones are one bus.
///
/// [`Bus::new`] creates the topics of this process. The crate `switchboard-bus` connects to those of another process
/// with `Bus::connect(url)`, and serves them with `BusServer`. Both are used in the same way; a method whose result is
/// known only in the process of the topics says so.
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
    side: Side,
}

/// Process that has the topics.
#[derive(Clone, Debug)]
enum Side {
    Local(Arc<Local>),
    Remote(Arc<Remote>),
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
        BusBuilder::new()
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
        self.publish_with(topic, message, self.codec(), codec::serde::encode)
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
        PublishBatch::new(self, topic.into(), messages, self.codec(), codec::serde::encode)
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
    /// Returns the errors of [`request`](Bus::request).
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

    /// Reads the entries that a topic keeps, in pages, without a subscription: `await` the result for a
    /// [`HistoryPage`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, Delivery, TopicOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = Bus::builder().topics("log", TopicOptions::new().history(10, Duration::MAX))?.build();
    /// bus.publish_batch("log", &[1, 2, 3]).await?;
    /// let page = bus.history::<i32>("log").limit(2).await?;
    /// assert!(matches!(&page.deliveries[0], Delivery::Entry(second) if **second == 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` for a topic that has no entries and no subscriptions, `InvalidArgument` for an invalid name, and the
    /// errors of the codec.
    pub fn history<'a, T: DeserializeOwned>(&'a self, topic: impl Into<NameRef<'a>>) -> ReadHistory<'a, T> {
        self.history_with(topic, codec::serde::decode)
    }

    /// Reads the entries that a topic keeps, with a function for decoding; see [`history`](Self::history).
    pub fn history_with<'a, T>(
        &'a self,
        topic: impl Into<NameRef<'a>>,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> ReadHistory<'a, T> {
        ReadHistory::new(self, topic.into(), decode)
    }

    /// Lists the topics of a pattern with their counters, in pages: `await` the result for a [`TopicsPage`]. Reserved
    /// topics are not listed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = switchboard_message::Bus::new();
    /// let _quotes = bus.subscribe::<f64>("quotes/acme").await?;
    /// let mut page = bus.topics("quotes/*").await?;
    /// while let Some(token) = page.next.take() {
    ///     let next = bus.topics("quotes/*").page(token).await?;
    ///     page.topics.extend(next.topics);
    ///     page.next = next.next;
    /// }
    /// assert_eq!(page.topics[0].topic.name(), "quotes/acme");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid pattern or token.
    pub fn topics(&self, topics: impl Into<Selector>) -> ListTopics<'_> {
        ListTopics::new(self, topics.into())
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
        match &self.side {
            // Publishers do not wait for the subscribers of other processes.
            Side::Local(local) if local.engine_of(name.name).is_some() => {
                Topic::new(name.name)?;
                Ok(local.log.limits().batch_entries_max)
            }
            Side::Local(local) => {
                publish::retry_in_room(local, name.name, || local.log.credit(name, local.now())).await
            }
            Side::Remote(remote) => remote.bus.credit(name.name.to_owned()).await,
        }
    }

    /// Waits until the acknowledgements and rejections so far have been sent to the other process, or given up. Call it
    /// before the subscription is dropped: an acknowledgement that arrives later has no effect. Returns at once for
    /// topics of this process. Cancel safe.
    ///
    /// # Errors
    /// `Unavailable` if the runtime of the connection has ended.
    pub async fn settled(&self) -> Result<()> {
        match &self.side {
            Side::Local(_) => Ok(()),
            Side::Remote(remote) => remote.bus.settled().await,
        }
    }

    /// Removes a durable cursor that has no subscription; returns whether there was one.
    ///
    /// ```
    /// assert!(!switchboard_message::Bus::new().remove_durable("inbox/7", "phone").unwrap());
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name or pattern, `Unimplemented` for topics of another process: remove the
    /// cursor there.
    pub fn remove_durable(&self, topics: impl Into<Selector>, name: &str) -> Result<bool> {
        let key = GroupKey { name: name.into(), source: topics.into().source?, is_durable: true };
        match &self.side {
            Side::Local(local) => Ok(local.log.remove_durable(&key)),
            Side::Remote(_) => {
                let text = format!(
                    "durable cursor \"{name}\" cannot be removed from another process; remove it in the process that has \
                     its topics"
                );
                Err(Status::unimplemented(text))
            }
        }
    }

    /// Returns the limits: the defaults for topics of another process, which applies its own.
    ///
    /// ```
    /// assert_eq!(switchboard_message::Bus::new().limits().unacknowledged_max, 64);
    /// ```
    pub fn limits(&self) -> &Limits {
        match &self.side {
            Side::Local(local) => local.log.limits(),
            Side::Remote(remote) => &remote.limits,
        }
    }

    /// Returns the time that is left until an entry expires: for protocols that forward it. `None` without an expiry,
    /// and for topics of another process.
    #[doc(hidden)]
    pub fn expires_in(&self, entry: &Entry) -> Option<Duration> {
        let expires_at = Some(entry.expires_at()).filter(|at| *at != u64::MAX)?;
        Some(Duration::from_nanos(expires_at.saturating_sub(self.local()?.now())))
    }

    /// Returns the counters of a topic that the bus holds. `None` for topics of another process.
    pub fn topic_stats<'a>(&'a self, topic: impl Into<NameRef<'a>>) -> Option<TopicStats> {
        self.local()?.log.topic_stats(topic.into())
    }

    /// Returns the counters of the bus; zeros for topics of another process. Visits all topics.
    ///
    /// ```
    /// let bus = switchboard_message::Bus::new();
    /// assert_eq!((bus.stats().topics, bus.stats().bytes), (0, 0));
    /// ```
    pub fn stats(&self) -> BusStats {
        self.local().map(|local| local.log.stats()).unwrap_or_default()
    }

    /// Removes expired entries, and topics that hold nothing. Publications do this as well, at limits. Has no effect on
    /// topics of another process.
    pub fn remove_unused(&self) {
        if let Some(local) = self.local() {
            local.log.remove_unused(local.now());
        }
    }

    /// Replies to the request with this `reply_to`, which [`Message::reply_to`] has returned, perhaps in another
    /// process.
    ///
    /// # Errors
    /// `NotFound` if the requester no longer waits, `InvalidArgument` for another text.
    #[doc(hidden)]
    pub async fn reply_to(&self, reply_to: &str, reply: Publication) -> Result<()> {
        match &self.side {
            Side::Remote(remote) => remote.bus.reply(reply_to.to_owned(), reply).await,
            Side::Local(_) if !reply_to.starts_with(REPLY_PREFIX) => {
                let shown: String = reply_to.chars().take(64).collect();
                let text = format!(
                    "reply_to \"{shown}\" is not one of this server; send that of an entry unchanged"
                );
                Err(Status::invalid_argument(text))
            }
            Side::Local(_) => {
                let topic = Topic::internal(reply_to);
                let name = NameRef { must_exist: true, ..(&topic).into() };
                Publishing::new(self, name, Ok(reply)).await.map(drop)
            }
        }
    }

    /// Returns whether both are clones of one bus.
    pub(crate) fn is_same(&self, other: &Bus) -> bool {
        match (&self.side, &other.side) {
            (Side::Local(one), Side::Local(other)) => Arc::ptr_eq(one, other),
            (Side::Remote(one), Side::Remote(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Returns the time by which the entries of the bus expire; `None` for topics of another process.
    pub(crate) fn time(&self) -> Option<u64> {
        self.local().map(|local| local.now())
    }

    fn local(&self) -> Option<&Arc<Local>> {
        match &self.side {
            Side::Local(local) => Some(local),
            Side::Remote(_) => None,
        }
    }

    /// Returns the codec of messages whose publication names none.
    fn codec(&self) -> Codec {
        match &self.side {
            Side::Local(local) => local.codec,
            Side::Remote(remote) => remote.codec,
        }
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
