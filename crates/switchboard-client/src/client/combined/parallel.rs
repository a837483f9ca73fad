//! One call to several channels at once, with their replies merged into one.

use super::super::{
    Begin, Channel, calls::RawResponse, connection::Connection, fleet::with_text, kind::ChannelKind,
    streaming::StartedStream, unary,
};
use ::serde::{Serialize, de::DeserializeOwned};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, poll_fn, ready},
    pin::Pin,
    sync::Arc,
    task::Poll,
};
use switchboard_core::{Result, codec::serde, layer::BoxFuture, queue::Queue};
use switchboard_wire::{Codec, Metadata, Status};

type Map = dyn Fn(&Part<'_>) -> Result<Option<Bytes>> + Send + Sync;
type Merge = dyn Fn(Codec, Vec<Bytes>) -> Result<Bytes> + Send + Sync;

/// A channel that sends each call to several channels at once, see [`Channel::parallel`]. For unary and one-way calls.
#[derive(Clone)]
#[must_use = "it is a channel once it is built"]
pub struct Parallel {
    channels: Vec<Channel>,
    map: Option<Arc<Map>>,
    merge: Option<Arc<Merge>>,
    fail_limit: Option<usize>,
    success_limit: Option<usize>,
}

/// A call to one of several channels, before it is sent, for [`Parallel::map`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Part<'a> {
    /// Index of the channel, from 0.
    pub index: usize,
    /// Number of channels.
    pub count: usize,
    /// The full name of the method, `package.Service/Method`.
    pub method: &'a str,
    /// Encoding of the request.
    pub codec: Codec,
    /// The request of the caller.
    pub request: &'a Bytes,
}

impl Part<'_> {
    /// Returns the caller's request unchanged.
    ///
    /// # Errors
    /// None; the return type fits the end of closures.
    pub fn same(&self) -> Result<Option<Bytes>> {
        Ok(Some(self.request.clone()))
    }

    /// Decodes the request of a trait service: the arguments of the method, as a tuple or as a struct with their names
    /// (which JSON needs).
    ///
    /// # Errors
    /// `InvalidArgument` for a request that is not a `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde::decode(self.codec, self.request.clone())
    }

    /// Encodes another request like that of the caller.
    ///
    /// # Errors
    /// `Internal` when the type cannot be encoded.
    pub fn write<T: Serialize>(&self, request: &T) -> Result<Option<Bytes>> {
        serde::encode(request, self.codec).map(Some)
    }
}

impl Channel {
    /// Creates a channel that sends each call to all of these at the same time, and merges their replies.
    ///
    /// ```
    /// # use switchboard::{Channel, Result};
    /// # fn combine(channels: Vec<Channel>) -> Result<Channel> {
    /// let all = Channel::parallel(channels).fail_limit(1).merge_with(|a: u64, b: u64| a + b).build()?;
    /// # Ok(all)
    /// # }
    /// ```
    pub fn parallel(channels: impl IntoIterator<Item = Channel>) -> Parallel {
        let channels = channels.into_iter().collect();
        Parallel { channels, map: None, merge: None, fail_limit: None, success_limit: None }
    }
}

impl Parallel {
    /// Sets the function that returns the request of each channel, by default the caller's; `None` leaves the channel
    /// out of this call.
    pub fn map(
        mut self,
        map: impl Fn(&Part<'_>) -> Result<Option<Bytes>> + Send + Sync + 'static,
    ) -> Parallel {
        self.map = Some(Arc::new(map));
        self
    }

    /// Sets the function that merges the replies, encoded, in the order of their channels; not called for a single one.
    /// By default replies of protobuf services are merged as in protobuf: lists are concatenated, of other fields the
    /// last value is used. Replies of trait services need this, or [`merge_with`](Self::merge_with).
    pub fn merge(
        mut self,
        merge: impl Fn(Codec, Vec<Bytes>) -> Result<Bytes> + Send + Sync + 'static,
    ) -> Parallel {
        self.merge = Some(Arc::new(merge));
        self
    }

    /// Merges the replies two at a time, in the order of their channels: for trait services with methods that all
    /// return a `T`.
    pub fn merge_with<T>(self, join: impl Fn(T, T) -> T + Send + Sync + 'static) -> Parallel
    where
        T: Serialize + DeserializeOwned,
    {
        self.merge(move |codec, responses| {
            let mut merged = None;
            for response in responses {
                let response: T = serde::decode(codec, response)?;
                merged = Some(match merged {
                    None => response,
                    Some(merged) => join(merged, response),
                });
            }
            match merged {
                Some(merged) => serde::encode(&merged, codec),
                None => Err(Status::internal("there is no reply to merge")),
            }
        })
    }

    /// Fails the call once this number of channels has failed, and cancels the others; by default when all have failed.
    /// Replies are merged without those of the failed channels.
    pub fn fail_limit(mut self, failures: usize) -> Parallel {
        self.fail_limit = Some(failures.max(1));
        self
    }

    /// Completes the call once this number of channels has replied, and cancels the others; by default it waits for
    /// all.
    pub fn success_limit(mut self, responses: usize) -> Parallel {
        self.success_limit = Some(responses.max(1));
        self
    }

    /// Builds the channel.
    ///
    /// # Errors
    /// `InvalidArgument` without a channel.
    pub fn build(self) -> Result<Channel> {
        super::check(&self.channels)?;
        Ok(Channel(Arc::new(self)))
    }

    /// Sends the call to all channels that it is for; returns the replies in the order of the channels.
    async fn all<T, F>(
        &self,
        begin: &Begin,
        request: &Bytes,
        send: impl Fn(Begin, Bytes) -> F,
    ) -> Result<Vec<(usize, T)>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (deadline, count) = (begin.deadline(switchboard_core::clock::now()), self.channels.len());
        let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::with_capacity(count);
        for (index, channel) in self.channels.iter().enumerate() {
            let part = Part { index, count, method: begin.method.path, codec: begin.codec, request };
            let request = match &self.map {
                Some(map) => map(&part)?,
                None => Some(request.clone()),
            };
            if let Some(request) = request {
                running.push((index, Box::pin(send(begin.part(channel, deadline), request))));
            }
        }
        let called = running.len();
        if called == 0 {
            let text = format!("Parallel::map leaves all {count} channels out of this call");
            return Err(Status::invalid_argument(text));
        }
        let fails = self.fail_limit.unwrap_or(called).min(called);
        let enough = self.success_limit.unwrap_or(called).min(called);
        let (mut responses, mut failed) = (Vec::with_capacity(called), Vec::new());
        while responses.len() < enough
            && let Some((index, outcome)) = first(&mut running).await
        {
            match outcome {
                Ok(response) => responses.push((index, response)),
                Err(status) => {
                    failed.push(index);
                    if failed.len() >= fails {
                        return Err(failure(status, failed, called));
                    }
                }
            }
        }
        responses.sort_by_key(|(index, _)| *index);
        Ok(responses)
    }
}

impl ChannelKind for Parallel {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("parallel").field(&self.channels).finish()
    }

    fn prepare(&self, _begin: &mut Begin) -> Option<Arc<Connection>> {
        None
    }

    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        Box::pin(async move {
            let mut responses = self.all(&begin, &request, unary::run).await?;
            let codec = begin.codec;
            let (mut items, mut attempts) = (Vec::with_capacity(responses.len()), 0);
            let (head, trailers) = match responses.first_mut() {
                Some((_, first)) => (std::mem::take(&mut first.head), std::mem::take(&mut first.trailers)),
                None => (Metadata::new(), Metadata::new()),
            };
            for (_, mut response) in responses {
                attempts += response.attempts;
                items.push(response.message_in(codec)?);
            }
            let item = match (&self.merge, items.len()) {
                (_, 1) => items.remove(0),
                (Some(merge), _) => merge(codec, items)?,
                (None, _) if codec == Codec::Proto => items.concat().into(),
                (None, count) => {
                    let text = format!(
                        "cannot merge {count} replies of {}: set Parallel::merge or Parallel::merge_with",
                        begin.method.path
                    );
                    return Err(Status::failed_precondition(text));
                }
            };
            Ok(RawResponse { item: item.into(), head, trailers, attempts })
        })
    }

    fn oneway(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.all(&begin, &request, Begin::oneway).await.map(drop) })
    }

    fn stream(
        self: Arc<Self>,
        _begin: Begin,
        _message: Option<Bytes>,
        _outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        let text = "parallel channels do not support streams: use calls with one request and one reply";
        Box::pin(ready(Err(Status::unimplemented(text))))
    }

    fn codec(&self, preferred: Codec) -> Codec {
        super::codec(&self.channels, preferred)
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        super::add_hosts(&self.channels, hosts);
    }
}

/// Returns the next result; `None` when all have ended.
async fn first<F: Future>(running: &mut Vec<(usize, Pin<Box<F>>)>) -> Option<(usize, F::Output)> {
    if running.is_empty() {
        return None;
    }
    poll_fn(|cx| {
        for at in 0..running.len() {
            if let Poll::Ready(output) = running[at].1.as_mut().poll(cx) {
                let (index, _) = running.swap_remove(at);
                return Poll::Ready(Some((index, output)));
            }
        }
        Poll::Pending
    })
    .await
}

/// Builds the status for the caller: the failure that exceeded the limit, and the channels that failed.
fn failure(status: Status, mut failed: Vec<usize>, called: usize) -> Status {
    failed.sort_unstable();
    let which: Vec<_> = failed.iter().map(usize::to_string).collect();
    let (number, which) = (failed.len(), which.join(", "));
    let text = format!("{} (failed on {number} of {called} channels: {which})", status.message());
    with_text(status, text)
}

impl fmt::Debug for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel")
            .field("channels", &self.channels)
            .field("fail_limit", &self.fail_limit)
            .field("success_limit", &self.success_limit)
            .finish_non_exhaustive()
    }
}
