//! Publications: options, and futures that resolve to the position.

use super::{Bus, Side, backlog_full, local::Local, remote::Remote};
use crate::{
    clock,
    log::{AppendError, Appended, Entry, NameRef, Position, Publication, Refused, Topic},
};
use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use std::{
    fmt,
    future::{Future, IntoFuture, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_wire::{Codec, Status};
use tokio::sync::Notify;

/// A message to be published; see [`Bus::publish`].
#[must_use = "a publication does nothing before it is awaited, or `now` is called"]
pub struct Publish<'a, T> {
    bus: &'a Bus,
    name: NameRef<'a>,
    message: &'a T,
    encode: fn(&T, Codec) -> Result<Bytes>,
    publication: Publication,
    error: Option<Status>,
}

impl<'a, T> Publish<'a, T> {
    pub(super) fn new(
        bus: &'a Bus,
        name: NameRef<'a>,
        message: &'a T,
        codec: Codec,
        encode: fn(&T, Codec) -> Result<Bytes>,
    ) -> Publish<'a, T> {
        let publication = Publication::new(codec, Bytes::new());
        Publish { bus, name, message, encode, publication, error: None }
    }

    /// Sets the codec.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.publication.codec = codec;
        self
    }

    /// Sets the key for conflation.
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.publication.key = key.into();
        self
    }

    /// Sets the id: a second publication with it within `dedup_window` is not appended, and returns the first position.
    /// A publication with an id may be repeated after any failure.
    pub fn id(mut self, id: impl Into<Bytes>) -> Self {
        self.publication.id = id.into();
        self
    }

    /// Sets the period after which the message is not delivered.
    pub fn expires_in(mut self, period: Duration) -> Self {
        self.publication.expires_in = Some(period);
        self
    }

    /// Adds a header. The publication fails with `InvalidArgument` if [`Metadata`](switchboard_wire::Metadata) does not
    /// allow it.
    pub fn header(mut self, name: &str, value: impl Into<Bytes>) -> Self {
        if let Err(invalid) = self.publication.headers.insert(name, value) {
            let text = format!("header \"{name}\" of a publication: {invalid}");
            self.error.get_or_insert(Status::invalid_argument(text));
        }
        self
    }

    pub(super) fn topic_name(&self) -> &'a str {
        self.name.name
    }

    pub(super) fn name(&self) -> NameRef<'a> {
        self.name
    }

    /// Publishes without a wait: a full topic with [`SlowReader::Wait`](crate::SlowReader::Wait) refuses the message.
    ///
    /// # Errors
    /// `ResourceExhausted` that names the limit, `InvalidArgument` for an invalid name or header, the errors of the
    /// codec, and `Unimplemented` for durable topics and those of another process: await the publication, or call
    /// [`later`](Self::later).
    pub fn now(self) -> Result<Position> {
        self.into_future().now()
    }

    /// Publishes without a wait and without a position. Durable topics and those of another process receive the message
    /// in the background, in the order of these calls; a message that they refuse is logged, and by another process it
    /// is counted, and repeated only if it has an [`id`](Self::id).
    ///
    /// ```
    /// # fn main() -> switchboard_core::Result<()> {
    /// # let bus = switchboard_message::Bus::new();
    /// bus.publish("metrics/load", &0.5).later()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`now`](Self::now) for topics of this process; for topics of another one
    /// `ResourceExhausted` if the queue of the connection is full, and the errors of the codec.
    pub fn later(self) -> Result<()> {
        self.into_future().later()
    }

    /// Encodes the message.
    pub(super) fn publication(mut self) -> Result<Publication> {
        match self.error {
            Some(error) => Err(error),
            None => (self.encode)(self.message, self.publication.codec).map(|bytes| {
                self.publication.bytes = bytes;
                self.publication
            }),
        }
    }
}

impl<'a, T> IntoFuture for Publish<'a, T> {
    type Output = Result<Position>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        let (bus, name) = (self.bus, self.name);
        Publishing::new(bus, name, self.publication())
    }
}

impl<T> fmt::Debug for Publish<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish").field("topic", &self.name.name).finish_non_exhaustive()
    }
}

/// Messages to be published to one topic; see [`Bus::publish_batch`].
#[must_use = "a publication does nothing before it is awaited"]
pub struct PublishBatch<'a, T> {
    bus: &'a Bus,
    name: NameRef<'a>,
    messages: &'a [T],
    codec: Codec,
    encode: fn(&T, Codec) -> Result<Bytes>,
}

impl<'a, T> PublishBatch<'a, T> {
    pub(super) fn new(
        bus: &'a Bus,
        name: NameRef<'a>,
        messages: &'a [T],
        codec: Codec,
        encode: fn(&T, Codec) -> Result<Bytes>,
    ) -> PublishBatch<'a, T> {
        PublishBatch { bus, name, messages, codec, encode }
    }

    /// Sets the codec.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Publishes without a wait: a full topic with [`SlowReader::Wait`](crate::SlowReader::Wait) refuses the messages.
    ///
    /// # Errors
    /// Returns the errors of [`Publish::now`].
    pub fn now(self) -> Result<Position> {
        self.into_future().now()
    }

    fn content(&self) -> Result<Content> {
        let publication = |message| Ok(Publication::new(self.codec, (self.encode)(message, self.codec)?));
        let publications = self.messages.iter().map(publication);
        match &self.bus.side {
            Side::Local(local) if local.engine_of(self.name.name).is_some() => {
                check_batch(local, self.messages.len())?;
                let checked = publications.map(|publication| checked(local, publication?));
                Ok(Content::Publications(checked.collect::<Result<_>>()?))
            }
            Side::Local(local) => {
                check_batch(local, self.messages.len())?;
                let entries = publications.map(|publication| entry(local, publication?));
                Ok(Content::Entries(entries.collect::<Result<_>>()?))
            }
            Side::Remote(_) => Ok(Content::Publications(publications.collect::<Result<_>>()?)),
        }
    }
}

impl<'a, T> IntoFuture for PublishBatch<'a, T> {
    type Output = Result<Position>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        Publishing { bus: self.bus, name: self.name, content: self.content(), waiting: None }
    }
}

impl<T> fmt::Debug for PublishBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topic, messages) = (&self.name.name, &self.messages.len());
        f.debug_struct("PublishBatch")
            .field("topic", topic)
            .field("messages", messages)
            .finish_non_exhaustive()
    }
}

/// Checks the number of messages of a batch.
fn check_batch(local: &Local, messages: usize) -> Result<()> {
    let max = local.log.limits().batch_entries_max;
    if messages == 0 {
        let text = "a batch of no messages has no position; publish at least one";
        return Err(Status::invalid_argument(text));
    }
    if messages > max {
        let text = format!("a batch has {messages} messages; the limit is batch_entries_max={max}");
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

fn entry(local: &Local, publication: Publication) -> Result<Entry> {
    let limits = local.log.limits();
    publication.into_entry(|| local.now(), limits.entry_bytes_max, limits.key_bytes_max)
}

/// Checks a publication for the engine.
fn checked(local: &Local, publication: Publication) -> Result<Publication> {
    let limits = local.log.limits();
    publication.check(limits.entry_bytes_max, limits.key_bytes_max)?;
    Ok(publication)
}

/// Future of a publication. Resolves to the position once the log has accepted the entries: at once, unless the topic
/// makes its publishers wait, is durable, or is in another process.
///
/// Dropping it before it resolves publishes nothing. To a durable topic, and in another process, the entries may have
/// been appended, or not, if it was polled before.
#[must_use = "a publication does nothing before it is awaited"]
pub struct Publishing<'a> {
    bus: &'a Bus,
    name: NameRef<'a>,
    content: Result<Content>,
    waiting: Option<Pin<Box<dyn Future<Output = Result<Appended>> + Send + 'a>>>,
}

/// Messages of a publication.
enum Content {
    /// For the logs of this process.
    Entries(SmallVec<[Entry; 1]>),
    /// For another process, or for the engine.
    Publications(Vec<Publication>),
}

/// Outcome of [`Publishing::attempt`].
#[doc(hidden)]
#[derive(Debug)]
// closed: adapters handle each case
pub enum Attempt<'a> {
    /// The topic is durable; nothing is published yet.
    Durable(Publishing<'a>),
    /// Position of the last entry, and the number of subscriptions and groups that receive it.
    Published(Position, u32),
    /// The topic has its publishers wait, or is in another process; nothing is published yet.
    Waits(Publishing<'a>),
}

impl<'a> Publishing<'a> {
    pub(super) fn new(bus: &'a Bus, name: NameRef<'a>, publication: Result<Publication>) -> Publishing<'a> {
        let content = publication.and_then(|publication| match &bus.side {
            Side::Local(local) if local.engine_of(name.name).is_some() => {
                Ok(Content::Publications(vec![checked(local, publication)?]))
            }
            Side::Local(local) => Ok(Content::Entries(smallvec![entry(local, publication)?])),
            Side::Remote(_) => Ok(Content::Publications(vec![publication])),
        });
        Publishing { bus, name, content, waiting: None }
    }

    pub(super) fn batch(bus: &'a Bus, name: NameRef<'a>, publications: Vec<Publication>) -> Publishing<'a> {
        let content = match &bus.side {
            Side::Local(local) if local.engine_of(name.name).is_some() => {
                check_batch(local, publications.len()).and_then(|()| {
                    let checked = publications.into_iter().map(|publication| checked(local, publication));
                    Ok(Content::Publications(checked.collect::<Result<_>>()?))
                })
            }
            Side::Local(local) => check_batch(local, publications.len()).and_then(|()| {
                let entries = publications.into_iter().map(|publication| entry(local, publication));
                Ok(Content::Entries(entries.collect::<Result<_>>()?))
            }),
            Side::Remote(_) => Ok(Content::Publications(publications)),
        };
        Publishing { bus, name, content, waiting: None }
    }

    /// Publishes without a wait; see [`Publish::now`].
    ///
    /// # Errors
    /// Returns the errors of [`Publish::now`].
    pub fn now(self) -> Result<Position> {
        self.at_once().map(|(position, _)| position)
    }

    /// Publishes without a wait; returns the position, and the number of subscriptions and groups that receive the
    /// entry.
    ///
    /// ```
    /// # use switchboard_message::{Bus, Publication};
    /// # use switchboard_wire::Codec;
    /// let bus = Bus::new();
    /// let (position, receivers) = bus.publish_encoded("news", Publication::new(Codec::Raw, "x")).at_once().unwrap();
    /// assert_eq!((position.offset, receivers), (1, 0));
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Publish::now`].
    pub fn at_once(self) -> Result<(Position, u32)> {
        let topic = self.name.name;
        match (&self.bus.side, self.content?) {
            (Side::Local(local), Content::Entries(mut entries)) => {
                match local.log.append(self.name, &mut entries, local.now()) {
                    Ok(appended) => Ok((appended.position, appended.cursors)),
                    Err(AppendError::Failed(status)) => Err(status),
                    Err(AppendError::Wait(..)) => Err(backlog_full(topic, "")),
                    Err(AppendError::Durable) => Err(Status::unimplemented(format!(
                        "topic \"{topic}\" is durable: its position is not known without a wait; await the \
                         publication, or call later()"
                    ))),
                }
            }
            (Side::Local(local), Content::Publications(_)) if local.engine.is_some() => {
                Err(needs_wait(local, topic))
            }
            _ => {
                let text = format!(
                    "topic \"{topic}\" is in another process, whose position is not known without a wait; await the \
                     publication, or call later()"
                );
                Err(Status::unimplemented(text))
            }
        }
    }

    /// Publishes if this needs no wait, and returns the publication otherwise: for adapters that wait elsewhere. Unlike
    /// a poll of the future, it has then published nothing.
    ///
    /// # Errors
    /// Returns the errors of [`Publish::now`], except for topics that need a wait.
    #[doc(hidden)]
    pub fn attempt(mut self) -> Result<Attempt<'a>> {
        let (local, entries) = match (&self.bus.side, &mut self.content) {
            (_, Err(status)) => return Err(status.clone()),
            (Side::Local(local), Ok(Content::Entries(entries))) => (local, entries),
            _ => return Ok(Attempt::Waits(self)),
        };
        match local.log.append(self.name, entries, local.now()) {
            Ok(appended) => Ok(Attempt::Published(appended.position, appended.cursors)),
            Err(AppendError::Durable) => Ok(Attempt::Durable(self)),
            Err(AppendError::Failed(status)) => Err(status),
            Err(AppendError::Wait(..)) => Ok(Attempt::Waits(self)),
        }
    }

    /// Publishes without a wait and without a position; see [`Publish::later`].
    ///
    /// # Errors
    /// Returns the errors of [`Publish::later`].
    pub fn later(self) -> Result<()> {
        let topic = self.name.name;
        let remote = match &self.bus.side {
            Side::Remote(remote) => remote,
            Side::Local(local) => {
                let Content::Entries(mut entries) = self.content? else {
                    return Err(needs_wait(local, topic));
                };
                return match local.log.append(self.name, &mut entries, local.now()) {
                    Ok(_) => Ok(()),
                    Err(AppendError::Durable) => local.log.submit(self.name, entries, false).map(drop),
                    Err(AppendError::Failed(status)) => Err(status),
                    Err(AppendError::Wait(..)) => Err(backlog_full(topic, "")),
                };
            }
        };
        let Content::Publications(publications) = self.content? else { return Err(wrong_bus()) };
        publications
            .into_iter()
            .try_for_each(|publication| remote.bus.publish_later(topic.to_owned(), publication))
    }

    /// Polls for the position, with the number of cursors that receive the entry.
    pub(super) fn poll_appended(&mut self, cx: &mut Context<'_>) -> Poll<Result<Appended>> {
        if let Some(waiting) = &mut self.waiting {
            return waiting.as_mut().poll(cx);
        }
        let name = self.name;
        match (&self.bus.side, &mut self.content) {
            (_, Err(status)) => Poll::Ready(Err(status.clone())),
            (Side::Local(local), Ok(Content::Entries(entries))) => {
                let mut entries = std::mem::take(entries);
                match local.log.append(name, &mut entries, local.now()) {
                    Ok(appended) => Poll::Ready(Ok(appended)),
                    Err(AppendError::Failed(status)) => Poll::Ready(Err(status)),
                    Err(AppendError::Durable) => {
                        let writing = write(local, name, entries);
                        self.waiting.insert(Box::pin(writing)).as_mut().poll(cx)
                    }
                    Err(AppendError::Wait(..)) => {
                        let waiting = async move {
                            let append = || local.log.append(name, &mut entries, local.now());
                            retry_in_room(local, name.name, append).await
                        };
                        self.waiting.insert(Box::pin(waiting)).as_mut().poll(cx)
                    }
                }
            }
            (Side::Remote(remote), Ok(Content::Publications(publications))) => {
                let publications = std::mem::take(publications);
                let sending = send(remote, name.name, publications);
                self.waiting.insert(Box::pin(sending)).as_mut().poll(cx)
            }
            (Side::Local(local), Ok(Content::Publications(publications))) => {
                let publications = std::mem::take(publications);
                let sending = append(local, name, publications);
                self.waiting.insert(Box::pin(sending)).as_mut().poll(cx)
            }
            _ => Poll::Ready(Err(wrong_bus())),
        }
    }
}

/// Publishes in another process, which does not report the number of cursors.
async fn send(remote: &Remote, topic: &str, publications: Vec<Publication>) -> Result<Appended> {
    let position = remote.bus.publish(topic.to_owned(), publications).await?;
    Ok(Appended { position, cursors: 0 })
}

/// Publishes to the engine, which does not report the number of cursors.
async fn append(local: &Local, name: NameRef<'_>, publications: Vec<Publication>) -> Result<Appended> {
    let Some(engine) = &local.engine else { return Err(wrong_bus()) };
    let topic = match name.topic {
        Some(topic) => topic.clone(),
        None => Topic::new(name.name)?,
    };
    let position = engine.append(&topic, publications).await?;
    Ok(Appended { position, cursors: 0 })
}

/// Error for a publication without a wait to a topic of the engine.
fn needs_wait(local: &Local, topic: &str) -> Status {
    let operation = format!("a publication to topic \"{topic}\" without a wait");
    local.engine.as_ref().map_or_else(wrong_bus, |engine| engine.unimplemented(&operation))
}

fn wrong_bus() -> Status {
    Status::internal("a publication is for another bus")
}

impl Future for Publishing<'_> {
    type Output = Result<Position>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Position>> {
        self.poll_appended(cx).map_ok(|appended| appended.position)
    }
}

impl fmt::Debug for Publishing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publishing").field("topic", &self.name.name).finish_non_exhaustive()
    }
}

/// Publishes to a durable topic: waits for its file, and for the slowest cursor if the topic has its publishers wait.
async fn write(local: &Local, name: NameRef<'_>, mut entries: SmallVec<[Entry; 1]>) -> Result<Appended> {
    let mut deadline = None;
    loop {
        let bytes = entries.iter().map(Entry::charged_bytes).sum();
        let size = (entries.len(), bytes);
        let Some(outcome) = local.log.submit(name, entries, true)? else {
            return Err(Status::internal("a publication has no outcome"));
        };
        let (room, limit) = match outcome.await {
            Ok(Ok(appended)) => return Ok(appended),
            Ok(Err(Refused::Failed(status))) => return Err(status),
            Ok(Err(Refused::Wait(room, limit, refused))) => {
                entries = refused;
                (room, limit)
            }
            Err(_) => {
                let text = format!(
                    "the file of topic \"{}\" was closed; the message may be in it, or not",
                    name.name
                );
                return Err(Status::unavailable(text));
            }
        };
        let deadline = *deadline.get_or_insert_with(|| clock::after(local.now(), limit));
        if !has_room(local, name, size, &room, deadline).await {
            return Err(backlog_full(name.name, &format!(" within {limit:?}")));
        }
    }
}

/// Waits until a topic may accept this number of entries with these charged bytes; returns false at the deadline.
async fn has_room(
    local: &Local,
    name: NameRef<'_>,
    (entries, bytes): (usize, usize),
    room: &Arc<Notify>,
    deadline: u64,
) -> bool {
    let mut notified = pin!(room.notified());
    // Registered before the attempt, so that room made in between is not missed.
    notified.as_mut().enable();
    if !matches!(local.log.check_room(name, entries, bytes, local.now()), Err(AppendError::Wait(..))) {
        return local.now() < deadline;
    }
    let mut timer = local.clock.timer(deadline);
    let has_room = poll_fn(|cx| {
        if notified.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        match &mut timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| false),
            None => Poll::Pending,
        }
    });
    has_room.await
}

/// Repeats an operation while its topic is full, at most for the time limit of the topic.
pub(super) async fn retry_in_room<R>(
    local: &Local,
    topic: &str,
    mut attempt: impl FnMut() -> Result<R, AppendError>,
) -> Result<R> {
    let (mut room, limit) = match attempt() {
        Ok(result) => return Ok(result),
        Err(AppendError::Failed(status)) => return Err(status),
        Err(AppendError::Durable) => return Err(durable()),
        Err(AppendError::Wait(room, limit)) => (room, limit),
    };
    let mut timer = local.clock.timer(clock::after(local.now(), limit));
    loop {
        let known = room.clone();
        let mut notified = pin!(known.notified());
        // Registered before the attempt, so that room made in between is not missed.
        notified.as_mut().enable();
        match attempt() {
            Ok(result) => return Ok(result),
            Err(AppendError::Failed(status)) => return Err(status),
            Err(AppendError::Durable) => return Err(durable()),
            Err(AppendError::Wait(current, _)) => room = current,
        }
        if !Arc::ptr_eq(&room, &known) {
            continue;
        }
        let has_room = poll_fn(|cx| {
            if notified.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            match &mut timer {
                Some(timer) => timer.as_mut().poll(cx).map(|()| false),
                None => Poll::Pending,
            }
        });
        if !has_room.await {
            return Err(backlog_full(topic, &format!(" within {limit:?}")));
        }
    }
}

/// Error for a durable topic where only topics in memory wait.
fn durable() -> Status {
    Status::internal("a durable topic was appended to in memory")
}
