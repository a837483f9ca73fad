//! Publications: options, and futures that resolve to the position.

use super::{Bus, backlog_full};
use crate::{
    clock,
    log::{AppendError, Appended, Entry, NameRef, Position, Publication, Topic},
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

    pub(super) fn reply_to(mut self, topic: Topic) -> Self {
        self.publication.reply_to = Some(topic);
        self
    }

    /// Publishes without a wait: a full topic with [`SlowReader::Wait`](crate::SlowReader::Wait) refuses the message.
    ///
    /// # Errors
    /// `ResourceExhausted` that names the limit, `InvalidArgument` for an invalid name or header, and the errors of the
    /// codec.
    pub fn now(self) -> Result<Position> {
        self.into_future().now()
    }
}

impl<'a, T> IntoFuture for Publish<'a, T> {
    type Output = Result<Position>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        let Publish { bus, name, message, encode, mut publication, error } = self;
        let publication = match error {
            Some(error) => Err(error),
            None => encode(message, publication.codec).map(|bytes| {
                publication.bytes = bytes;
                publication
            }),
        };
        Publishing::new(bus, name, publication)
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
    /// Those of [`Publish::now`].
    pub fn now(self) -> Result<Position> {
        self.into_future().now()
    }

    fn entries(&self) -> Result<SmallVec<[Entry; 1]>> {
        check_batch(self.bus, self.messages.len())?;
        let entry = |message| {
            let bytes = (self.encode)(message, self.codec)?;
            entry(self.bus, Publication::new(self.codec, bytes))
        };
        self.messages.iter().map(entry).collect()
    }
}

impl<'a, T> IntoFuture for PublishBatch<'a, T> {
    type Output = Result<Position>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        Publishing { bus: self.bus, name: self.name, entries: self.entries(), waiting: None }
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
fn check_batch(bus: &Bus, messages: usize) -> Result<()> {
    let max = bus.inner.log.limits().batch_entries_max;
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

fn entry(bus: &Bus, publication: Publication) -> Result<Entry> {
    let limits = bus.inner.log.limits();
    publication.into_entry(|| bus.now(), limits.entry_bytes_max, limits.key_bytes_max)
}

/// Future of a publication. Resolves to the position once the log has accepted the entries: at once, unless the topic
/// makes its publishers wait.
///
/// Dropping it before it resolves publishes nothing.
#[must_use = "a publication does nothing before it is awaited"]
pub struct Publishing<'a> {
    bus: &'a Bus,
    name: NameRef<'a>,
    entries: Result<SmallVec<[Entry; 1]>>,
    waiting: Option<Pin<Box<dyn Future<Output = Result<Appended>> + Send + 'a>>>,
}

impl<'a> Publishing<'a> {
    pub(super) fn new(bus: &'a Bus, name: NameRef<'a>, publication: Result<Publication>) -> Publishing<'a> {
        let entries = publication.and_then(|publication| Ok(smallvec![entry(bus, publication)?]));
        Publishing { bus, name, entries, waiting: None }
    }

    pub(super) fn batch(bus: &'a Bus, name: NameRef<'a>, publications: Vec<Publication>) -> Publishing<'a> {
        let entries = check_batch(bus, publications.len())
            .and_then(|()| publications.into_iter().map(|publication| entry(bus, publication)).collect());
        Publishing { bus, name, entries, waiting: None }
    }

    pub(super) fn now(self) -> Result<Position> {
        let mut entries = self.entries?;
        match self.bus.inner.log.append(self.name, &mut entries, self.bus.now()) {
            Ok(appended) => Ok(appended.position),
            Err(AppendError::Failed(status)) => Err(status),
            Err(AppendError::Wait(..)) => Err(backlog_full(self.name.name, "")),
        }
    }

    /// Polls for the position, with the number of cursors that receive the entry.
    pub(super) fn poll_appended(&mut self, cx: &mut Context<'_>) -> Poll<Result<Appended>> {
        if let Some(waiting) = &mut self.waiting {
            return waiting.as_mut().poll(cx);
        }
        let (bus, name) = (self.bus, self.name);
        let mut entries = match &mut self.entries {
            Ok(entries) => std::mem::take(entries),
            Err(status) => return Poll::Ready(Err(status.clone())),
        };
        match bus.inner.log.append(name, &mut entries, bus.now()) {
            Ok(appended) => Poll::Ready(Ok(appended)),
            Err(AppendError::Failed(status)) => Poll::Ready(Err(status)),
            Err(AppendError::Wait(..)) => {
                let waiting = async move {
                    retry_in_room(bus, name.name, || bus.inner.log.append(name, &mut entries, bus.now()))
                        .await
                };
                self.waiting.insert(Box::pin(waiting)).as_mut().poll(cx)
            }
        }
    }
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

/// Repeats an operation while its topic is full, at most for the time limit of the topic.
pub(super) async fn retry_in_room<R>(
    bus: &Bus,
    topic: &str,
    mut attempt: impl FnMut() -> Result<R, AppendError>,
) -> Result<R> {
    let (mut room, limit) = match attempt() {
        Ok(result) => return Ok(result),
        Err(AppendError::Failed(status)) => return Err(status),
        Err(AppendError::Wait(room, limit)) => (room, limit),
    };
    let mut timer = bus.inner.clock.timer(clock::after(bus.now(), limit));
    loop {
        let known = room.clone();
        let mut notified = pin!(known.notified());
        // Registered before the attempt, so that room made in between is not missed.
        notified.as_mut().enable();
        match attempt() {
            Ok(result) => return Ok(result),
            Err(AppendError::Failed(status)) => return Err(status),
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
