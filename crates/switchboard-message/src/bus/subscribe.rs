//! Subscriptions before they begin: topics, start, group.

use super::{Bus, Subscription};
#[cfg(doc)]
use super::{Delivery, Message};
use crate::log::{AckOptions, Attach, GroupKey, Pattern, Position, Source, Start, Topic};
use bytes::Bytes;
use std::{
    fmt,
    future::{IntoFuture, Ready, ready},
    sync::Arc,
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Codec, Status};

/// Topics of a subscription: a name, a pattern with wildcards, or a [`Pattern`].
#[derive(Debug)]
pub struct Selector {
    pub(super) source: Result<Source>,
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
    start: Start,
    /// A name, and whether the cursor is durable.
    group: Option<(String, bool)>,
    ack: Option<AckOptions>,
    dead_letters: Option<Result<Topic>>,
    unacknowledged_max: usize,
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
            start: Start::Head,
            group: None,
            ack: None,
            dead_letters: None,
            unacknowledged_max: bus.inner.log.limits().unacknowledged_max.max(1),
        }
    }

    /// Begins with this number of kept entries of each topic, if it has as many. The default is the next entry.
    pub fn last(mut self, entries: usize) -> Self {
        self.start = Start::Last(entries);
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
        self.start = Start::After(position);
        self
    }

    /// Begins with the kept entries that are not older than this. The first item is [`Delivery::Recovered`] or
    /// [`Delivery::Gap`].
    pub fn since(mut self, age: Duration) -> Self {
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.start = Start::Since(self.bus.now().saturating_sub(age));
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
        self.unacknowledged_max = entries.clamp(1, self.unacknowledged_max);
        self
    }

    fn ack_options(&mut self) -> &mut AckOptions {
        let default = || AckOptions { wait: ACK_WAIT, attempts_max: ATTEMPTS_MAX, dead_letters: None };
        self.ack.get_or_insert_with(default)
    }

    fn begin(self) -> Result<Subscription<T>> {
        let source = self.selector.source?;
        let invalid = |text: &str| Err(Status::invalid_argument(text));
        if matches!((&source, self.start), (Source::Pattern(_), Start::After(_))) {
            return invalid("a position belongs to one topic; subscribe to a pattern with `last` or `since`");
        }
        if self.ack.is_some() && self.group.is_none() {
            return invalid("a subscription without a group cannot acknowledge; add `group` or `durable`");
        }
        let max = self.bus.inner.log.limits().key_bytes_max;
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
                return invalid(
                    "the topic of dead letters is one of the group's own topics; choose another one",
                );
            }
            ack.dead_letters = Some(topic);
        }
        let group = self.group.map(|(name, is_durable)| GroupKey {
            name: Arc::from(name),
            source: source.clone(),
            is_durable,
        });
        let attach = Attach { source, start: self.start, group, ack };
        Subscription::begin(self.bus, &attach, self.decode, self.unacknowledged_max)
    }
}

impl<'a, T> IntoFuture for Subscribe<'a, T> {
    type Output = Result<Subscription<T>>;
    type IntoFuture = Ready<Result<Subscription<T>>>;

    fn into_future(self) -> Self::IntoFuture {
        ready(self.begin())
    }
}

impl<T> fmt::Debug for Subscribe<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe").field("topics", &self.selector.source).finish_non_exhaustive()
    }
}
