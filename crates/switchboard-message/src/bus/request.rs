//! Requests over topics: a reply topic per request, one reply, all replies, or those of a survey.

use super::{
    Bus, Delivery, Message, Publish, Publishing, Side, Subscription,
    local::Local,
    remote::{Remote, RemoteRequest},
};
use crate::log::{Appended, NameRef, Position, Publication};
use bytes::Bytes;
use futures_core::Stream;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    future::{Future, IntoFuture, poll_fn},
    marker::PhantomData,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{Result, codec};
use switchboard_wire::{Codec, Status};
use tokio::time::{Instant, Sleep};

/// Time limit of requests that set none.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// A request to be sent; see [`Bus::request`], [`Bus::request_many`] and [`Bus::survey`]. `O` is its outcome.
#[must_use = "a request is not sent before it is awaited"]
pub struct Request<'a, T, O> {
    publish: Publish<'a, T>,
    bus: &'a Bus,
    time_limit: Duration,
    outcome: PhantomData<fn() -> O>,
}

impl<'a, T: Serialize, O> Request<'a, T, O> {
    pub(super) fn new(bus: &'a Bus, name: NameRef<'a>, message: &'a T) -> Request<'a, T, O> {
        let publish = Publish::new(bus, name, message, bus.codec(), codec::serde::encode);
        Request { publish, bus, time_limit: TIME_LIMIT, outcome: PhantomData }
    }
}

impl<'a, T, O> Request<'a, T, O> {
    /// Sets the time limit; default 5 seconds.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets the codec of the request. Replies have the same.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.publish = self.publish.codec(codec);
        self
    }

    /// Sends the request; returns the replies to come, and the number of subscribers.
    async fn send<R: DeserializeOwned>(self) -> Result<(Replies<R>, u32)> {
        let timer = timer(self.time_limit);
        let (bus, name) = (self.bus, self.publish.name());
        let (replies, receivers) = match &bus.side {
            Side::Local(local) => {
                let publication = self.publish.publication()?;
                let request = (name, publication, self.time_limit);
                let (replies, appended) = publish(bus, local, request, timer, codec::serde::decode).await?;
                (replies, appended.cursors)
            }
            Side::Remote(remote) => self.send_over(remote, timer).await?,
        };
        Ok((replies, receivers))
    }

    async fn send_over<R: DeserializeOwned>(
        self,
        remote: &Remote,
        mut timer: Pin<Box<Sleep>>,
    ) -> Result<(Replies<R>, u32)> {
        let (bus, limit, name) = (self.bus, self.time_limit, self.publish.topic_name());
        let publication = self.publish.publication()?;
        let request = RemoteRequest { topic: name.to_owned(), publication, time_limit: limit };
        let mut sent = remote.bus.request(request);
        let sent = poll_fn(|cx| match sent.as_mut().poll(cx) {
            Poll::Ready(sent) => Poll::Ready(Some(sent)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        });
        let (receivers, replies) = sent.await.unwrap_or_else(|| Err(not_accepted(name, limit)))?;
        let subscription = Subscription::remote(bus, replies, codec::serde::decode);
        Ok((Replies { subscription, timer, left: remote.limits.replies_max }, receivers))
    }
}

/// Publishes a request to a topic of this process, and subscribes to its replies.
async fn publish<R>(
    bus: &Bus,
    local: &Local,
    (name, mut publication, limit): (NameRef<'_>, Publication, Duration),
    mut timer: Pin<Box<Sleep>>,
    decode: fn(Codec, Bytes) -> Result<R>,
) -> Result<(Replies<R>, Appended)> {
    if let Some(engine) = local.engine_of(name.name) {
        return Err(engine.unimplemented(&format!("a request to topic \"{}\"", name.name)));
    }
    let topic = local.reply_topic();
    let subscription = bus.subscribe_with(&topic, decode).await?;
    publication.reply_to = Some(topic);
    let mut publishing = Publishing::new(bus, name, Ok(publication));
    // The topic may make its publishers wait.
    let appended = poll_fn(|cx| match publishing.poll_appended(cx) {
        Poll::Ready(appended) => Poll::Ready(Some(appended)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    });
    let appended = appended.await.unwrap_or_else(|| Err(not_accepted(name.name, limit)))?;
    if appended.cursors == 0 {
        let text = format!("topic \"{}\" has no subscriber for the request", name.name);
        return Err(Status::unavailable(text));
    }
    let left = local.log.limits().replies_max;
    Ok((Replies { subscription, timer, left }, appended))
}

fn timer(limit: Duration) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(Instant::now() + limit.min(TIME_LIMIT_MAX)))
}

impl Bus {
    /// Sends an encoded request to a topic of this process; returns its position, the number of its receivers, and its
    /// replies.
    #[doc(hidden)]
    pub async fn request_encoded(
        &self,
        topic: &str,
        publication: Publication,
        time_limit: Option<Duration>,
    ) -> Result<(Position, u32, Replies<Bytes>)> {
        let Side::Local(local) = &self.side else {
            return Err(Status::unimplemented(
                "a request cannot be passed on to the topics of another process",
            ));
        };
        let limit = time_limit.unwrap_or(TIME_LIMIT);
        let request = (topic.into(), publication, limit);
        let (replies, appended) = publish(self, local, request, timer(limit), |_, bytes| Ok(bytes)).await?;
        Ok((appended.position, appended.cursors, replies))
    }
}

fn not_accepted(topic: &str, limit: Duration) -> Status {
    Status::deadline_exceeded(format!("topic \"{topic}\" accepted no request within {limit:?}"))
}

/// A year: the clock can represent its end.
const TIME_LIMIT_MAX: Duration = Duration::from_secs(365 * 86_400);

type Outcome<'a, O> = Pin<Box<dyn Future<Output = Result<O>> + Send + 'a>>;

impl<'a, T, R> IntoFuture for Request<'a, T, Message<R>>
where
    T: Sync,
    R: DeserializeOwned + Send + 'a,
{
    type Output = Result<Message<R>>;
    type IntoFuture = Outcome<'a, Message<R>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (name, limit) = (self.publish.topic_name(), self.time_limit);
            let (mut replies, _) = self.send().await?;
            replies.next().await?.ok_or_else(|| {
                Status::deadline_exceeded(format!(
                    "no reply to the request on topic \"{name}\" within {limit:?}"
                ))
            })
        })
    }
}

impl<'a, T, R> IntoFuture for Request<'a, T, Replies<R>>
where
    T: Sync,
    R: DeserializeOwned + Send + 'a,
{
    type Output = Result<Replies<R>>;
    type IntoFuture = Outcome<'a, Replies<R>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.send().await?.0) })
    }
}

impl<'a, T, R> IntoFuture for Request<'a, T, Vec<Message<R>>>
where
    T: Sync,
    R: DeserializeOwned + Send + 'a,
{
    type Output = Result<Vec<Message<R>>>;
    type IntoFuture = Outcome<'a, Vec<Message<R>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (mut replies, receivers) = self.send().await?;
            let mut received = Vec::new();
            while received.len() < receivers as usize
                && let Some(reply) = replies.next().await?
            {
                received.push(reply);
            }
            Ok(received)
        })
    }
}

impl<T, O> fmt::Debug for Request<'_, T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("publish", &self.publish)
            .field("time_limit", &self.time_limit)
            .finish()
    }
}

/// A stream of the replies to one request. It ends at the time limit, or with `replies_max` replies.
pub struct Replies<R> {
    subscription: Subscription<R>,
    timer: Pin<Box<Sleep>>,
    /// Replies until the limit.
    left: usize,
}

impl<R> Replies<R> {
    /// Returns the next reply; `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// `ResourceExhausted` if replies arrived faster than they were read, and the errors of the codec.
    pub async fn next(&mut self) -> Result<Option<Message<R>>> {
        poll_fn(|cx| self.poll_reply(cx)).await.transpose()
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message<R>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if let Poll::Ready(delivery) = pin!(&mut self.subscription).poll_next(cx) {
            self.left -= 1;
            return Poll::Ready(delivery.and_then(|delivery| match delivery {
                Ok(Delivery::Entry(reply)) => Some(Ok(reply)),
                Ok(Delivery::Gap(gap)) => Some(Err(Status::resource_exhausted(gap.to_string()))),
                Ok(Delivery::Recovered) => None,
                Err(status) => Some(Err(status)),
            }));
        }
        ready!(self.timer.as_mut().poll(cx));
        self.left = 0;
        Poll::Ready(None)
    }
}

impl<R> Stream for Replies<R> {
    type Item = Result<Message<R>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_reply(cx)
    }
}

impl<R> fmt::Debug for Replies<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("left", &self.left).finish_non_exhaustive()
    }
}
