//! Subscriptions before they begin: topics, start, group.

use super::{
    Bus, Side, Subscription,
    engine::{EngineStart, EngineSubscription},
    local::Local,
    local_subscription::LocalSubscription,
    remote::{RemoteAck, RemoteFuture, RemoteSelector, RemoteStart, RemoteStream, RemoteSubscribe},
};
#[cfg(doc)]
use super::{Delivery, Message};
use crate::{
    broker::ReadFrom,
    clock,
    log::{AckOptions, Attach, Checkpoint, GroupKey, Pattern, Position, Source, Start, Topic},
};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Codec, Status};

/// Topics of a subscription: a name, a pattern with wildcards, or a [`Pattern`].
#[derive(Debug)]
pub struct Selector {
    pub(crate) source: Result<Source>,
}

impl Selector {
    /// Returns the topic or pattern.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid name.
    pub(crate) fn into_source(self) -> Result<Source> {
        self.source
    }
}

impl From<&str> for Selector {
    fn from(text: &str) -> Self {
        Selector { source: Pattern::new(text).and_then(|pattern| Selector::from(pattern).source) }
    }
}

impl From<String> for Selector {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Selector {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<Topic> for Selector {
    fn from(topic: Topic) -> Self {
        Selector { source: Ok(Source::Topic(topic)) }
    }
}

impl From<&Topic> for Selector {
    fn from(topic: &Topic) -> Self {
        topic.clone().into()
    }
}

impl From<Pattern> for Selector {
    fn from(pattern: Pattern) -> Self {
        // A group has one set of cursors, also if some members name the topic by a pattern.
        let source = pattern.topic().map_or(Source::Pattern(pattern), Source::Topic);
        Selector { source: Ok(source) }
    }
}

/// Period after which an unacknowledged entry is delivered again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// Deliveries of one entry.
const ATTEMPTS_MAX: u32 = 5;

/// A subscription to be made; see [`Bus::subscribe`].
#[must_use = "a subscription does not begin before it is awaited"]
pub struct Subscribe<'a, T> {
    bus: &'a Bus,
    selector: Selector,
    decode: fn(Codec, Bytes) -> Result<T>,
    start: RemoteStart,
    /// A name, and whether the cursor is durable.
    group: Option<(String, bool)>,
    ack: Option<AckOptions>,
    dead_letters: Option<Result<Topic>>,
    unacknowledged_max: Option<usize>,
}

impl<'a, T> Subscribe<'a, T> {
    pub(super) fn new(
        bus: &'a Bus,
        selector: Selector,
        decode: fn(Codec, Bytes) -> Result<T>,
    ) -> Subscribe<'a, T> {
        Subscribe {
            bus,
            selector,
            decode,
            start: RemoteStart::Head,
            group: None,
            ack: None,
            dead_letters: None,
            unacknowledged_max: None,
        }
    }

    /// Begins with this number of kept entries of each topic, if it has as many. The default is the next entry.
    pub fn last(mut self, entries: usize) -> Self {
        self.start = RemoteStart::Last(entries);
        self
    }

    /// Begins after this position of a topic. The first item is [`Delivery::Recovered`] if no entry is missing, and
    /// [`Delivery::Gap`] otherwise.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, Delivery, TopicOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = Bus::builder().topics("log", TopicOptions::new().history(10, Duration::MAX))?.build();
    /// let first = bus.publish("log", &1).await?;
    /// bus.publish("log", &2).await?;
    /// let mut rest = bus.subscribe::<i32>("log").after(first).await?;
    /// assert!(matches!(rest.next().await?, Some(Delivery::Recovered)));
    /// assert!(matches!(rest.next().await?, Some(Delivery::Entry(second)) if *second == 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(mut self, position: Position) -> Self {
        self.start = RemoteStart::After(position);
        self
    }

    /// Begins with the kept entries that are not older than this. The first item is [`Delivery::Recovered`] or
    /// [`Delivery::Gap`].
    pub fn since(mut self, age: Duration) -> Self {
        self.start = RemoteStart::Since(age);
        self
    }

    /// Continues a subscription to a pattern after its [checkpoint](Subscription::checkpoint). The first item is
    /// [`Delivery::Recovered`] if no entry is missing, and [`Delivery::Gap`] otherwise. After the checkpoint of another
    /// process, it begins with the first kept entry of each topic.
    ///
    /// A topic that was created and removed in the meantime is not reported.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, Delivery, TopicOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let bus = Bus::builder().topics("log/*", TopicOptions::new().history(10, Duration::MAX))?.build();
    /// let mut all = bus.subscribe::<i32>("log/*").await?;
    /// bus.publish("log/a", &1).await?;
    /// bus.publish("log/b", &2).await?;
    /// all.next().await?;
    /// let checkpoint = all.checkpoint().cloned().expect("a pattern");
    /// let mut rest = bus.subscribe::<i32>("log/*").resume(checkpoint).await?;
    /// assert!(matches!(rest.next().await?, Some(Delivery::Recovered)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(mut self, checkpoint: Checkpoint) -> Self {
        self.start = RemoteStart::Resume(checkpoint);
        self
    }

    /// Shares the entries with the other members of a group: each entry goes to one member. The group begins with its
    /// first member, whose start applies, and ends with its last one.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some((name.into(), false));
        self
    }

    /// Uses a cursor that is kept while it has no subscription, and [acknowledges](Self::ack). A later subscription
    /// with the name receives the unacknowledged entries and those published in the meantime, or a gap for those that
    /// the history no longer contains: a durable cursor without a subscription keeps the topics that it knows, and no
    /// entry. A topic that was created and removed in the meantime is not reported.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use switchboard_message::{Bus, Delivery, TopicOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard_core::Result<()> {
    /// let inbox = TopicOptions::new().history(1_000, Duration::from_secs(86_400));
    /// let bus = Bus::builder().topics("inbox/*", inbox)?.build();
    /// drop(bus.subscribe::<u32>("inbox/7").durable("phone").await?);
    /// bus.publish("inbox/7", &1_u32).await?;
    /// let mut phone = bus.subscribe::<u32>("inbox/7").durable("phone").await?;
    /// assert!(matches!(phone.next().await?, Some(Delivery::Entry(note)) if *note == 1 && note.ack()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.group = Some((name.into(), true));
        self.ack()
    }

    /// Delivers an entry again if [`Message::ack`] is not called within 30 seconds, at most 5 times.
    pub fn ack(mut self) -> Self {
        self.ack_options();
        self
    }

    /// Sets the period for the acknowledgement.
    pub fn ack_wait(mut self, period: Duration) -> Self {
        self.ack_options().wait = period;
        self
    }

    /// Sets the number of deliveries of one entry, at least 1.
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.ack_options().attempts_max = attempts.max(1);
        self
    }

    /// Publishes entries that were delivered as often as allowed, without an acknowledgement, to this topic.
    pub fn dead_letters(mut self, topic: &str) -> Self {
        self.ack_options();
        self.dead_letters = Some(Topic::new(topic));
        self
    }

    /// Limits the unacknowledged entries of this member; at most `unacknowledged_max` of the bus, at least 1.
    pub fn unacknowledged_max(mut self, entries: usize) -> Self {
        self.unacknowledged_max = Some(entries.max(1));
        self
    }

    fn ack_options(&mut self) -> &mut AckOptions {
        let default = || AckOptions { wait: ACK_WAIT, attempts_max: ATTEMPTS_MAX, dead_letters: None };
        self.ack.get_or_insert_with(default)
    }

    /// Checks the combination of the options.
    fn check(&self, source: &Source) -> Result<()> {
        let text = match (source, &self.start) {
            (Source::Pattern(_), RemoteStart::After(_)) => {
                "a position belongs to one topic; subscribe to a pattern with `last`, `since` or `resume`"
            }
            (Source::Topic(_), RemoteStart::Resume(_)) => {
                "a checkpoint belongs to a pattern; subscribe to one topic with `after`"
            }
            _ if self.ack.is_some() && self.group.is_none() => {
                "a subscription without a group cannot acknowledge; add `group` or `durable`"
            }
            _ => return Ok(()),
        };
        Err(Status::invalid_argument(text))
    }

    /// Describes the subscription for another process.
    fn into_remote(self) -> Result<RemoteSubscribe> {
        let source = self.selector.source.clone()?;
        self.check(&source)?;
        let dead_letters = self.dead_letters.transpose()?.map(|topic| topic.name().to_owned());
        let ack = self.ack.map(|AckOptions { wait, attempts_max, .. }| RemoteAck {
            wait,
            attempts_max,
            dead_letters,
            unacknowledged_max: self.unacknowledged_max,
        });
        let topics = RemoteSelector::from(&source);
        let is_durable = self.group.as_ref().is_some_and(|(_, is_durable)| *is_durable);
        let group = self.group.map(|(name, _)| name);
        Ok(RemoteSubscribe { topics, start: self.start, group, is_durable, ack })
    }

    /// Begins a subscription to a topic of an engine; `None` for topics of this process.
    fn begin_engine(&self, local: &Arc<Local>) -> Option<Result<(Topic, EngineStart)>> {
        let engine = local.engine.as_ref()?;
        let check = || {
            let source = self.selector.source.clone()?;
            self.check(&source)?;
            let Source::Topic(topic) = source else {
                return Err(engine.unimplemented("a subscription to a pattern"));
            };
            if let Some((name, _)) = &self.group {
                return Err(engine.unimplemented(&format!("group or durable cursor \"{name}\"")));
            }
            let start = match &self.start {
                RemoteStart::After(position) => EngineStart::Kept(ReadFrom::After(*position)),
                RemoteStart::Last(entries) => EngineStart::Kept(ReadFrom::Last(*entries)),
                RemoteStart::Since(age) => EngineStart::Kept(ReadFrom::Since(*age)),
                RemoteStart::Head | RemoteStart::Resume(_) => EngineStart::Head,
            };
            Ok((topic, start))
        };
        match &self.selector.source {
            Ok(Source::Topic(topic)) if topic.name().starts_with('$') => None,
            _ => Some(check()),
        }
    }

    /// Begins a subscription to topics of this process.
    fn begin(self, local: &Arc<Local>) -> Result<Box<LocalSubscription>> {
        let source = self.selector.source.clone()?;
        self.check(&source)?;
        let limits = local.log.limits();
        let max = limits.key_bytes_max;
        if let Some(length) = self.group.as_ref().map(|(name, _)| name.len()).filter(|length| *length > max) {
            let text = format!("the name of a group has {length} bytes; the limit is key_bytes_max={max}");
            return Err(Status::resource_exhausted(text));
        }
        let mut ack = self.ack;
        if let (Some(ack), Some(topic)) = (&mut ack, self.dead_letters) {
            let topic = topic?;
            let is_own = match &source {
                Source::Pattern(pattern) => pattern.matches(topic.name()),
                Source::Topic(known) => *known == topic,
            };
            if is_own {
                return Err(Status::invalid_argument(
                    "the topic of dead letters is one of the group's own topics; choose another one",
                ));
            }
            ack.dead_letters = Some(topic);
        }
        let group = self.group.map(|(name, is_durable)| GroupKey {
            name: Arc::from(name),
            source: source.clone(),
            is_durable,
        });
        let start = match self.start {
            RemoteStart::After(position) => Start::After(position),
            RemoteStart::Head => Start::Head,
            RemoteStart::Last(entries) => Start::Last(entries),
            RemoteStart::Resume(checkpoint) => local.log.behind(&checkpoint),
            RemoteStart::Since(age) => Start::Since(clock::before(local.now(), age)),
        };
        let max = limits.unacknowledged_max.max(1);
        let unacknowledged_max = self.unacknowledged_max.map_or(max, |entries| entries.min(max));
        LocalSubscription::begin(local, &Attach { source, start, group, ack }, unacknowledged_max)
            .map(Box::new)
    }
}

impl<'a, T> IntoFuture for Subscribe<'a, T> {
    type Output = Result<Subscription<T>>;
    type IntoFuture = Subscribing<T>;

    fn into_future(self) -> Subscribing<T> {
        let (bus, decode) = (self.bus.clone(), self.decode);
        let state = match &bus.side {
            Side::Local(local) => match self.begin_engine(local) {
                None => State::Begun(Some(self.begin(local))),
                Some(Err(status)) => State::Begun(Some(Err(status))),
                Some(Ok((topic, start))) => {
                    let local = local.clone();
                    State::Engine(Box::pin(async move {
                        EngineSubscription::begin(&local, &topic, start).await.map(Box::new)
                    }))
                }
            },
            Side::Remote(remote) => match self.into_remote() {
                Ok(request) => State::Remote(remote.bus.subscribe(request)),
                Err(status) => State::Begun(Some(Err(status))),
            },
        };
        Subscribing { bus, decode, state }
    }
}

/// Future of a subscription. It is ready at once for topics of this process, where the subscription has begun before
/// the first poll.
#[must_use = "a subscription ends when its future is dropped"]
pub struct Subscribing<T> {
    bus: Bus,
    decode: fn(Codec, Bytes) -> Result<T>,
    state: State,
}

enum State {
    Begun(Option<Result<Box<LocalSubscription>>>),
    Engine(RemoteFuture<Box<EngineSubscription>>),
    Remote(RemoteFuture<RemoteStream>),
}

impl<T> Future for Subscribing<T> {
    type Output = Result<Subscription<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let subscribing = &mut *self;
        let (bus, decode) = (&subscribing.bus, subscribing.decode);
        match &mut subscribing.state {
            State::Begun(begun) => Poll::Ready(match begun.take() {
                Some(begun) => begun.map(|local| Subscription::local(bus, local, decode)),
                None => Err(Status::internal("a subscription was polled after it had begun")),
            }),
            State::Engine(begun) => {
                begun.as_mut().poll(cx).map_ok(|engine| Subscription::engine(bus, engine, decode))
            }
            State::Remote(begun) => {
                begun.as_mut().poll(cx).map_ok(|events| Subscription::remote(bus, events, decode))
            }
        }
    }
}

impl<T> fmt::Debug for Subscribing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribing").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Subscribe<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe").field("topics", &self.selector.source).finish_non_exhaustive()
    }
}
