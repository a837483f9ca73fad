//! Calls with streams of requests, of replies, or both.

use super::{Begin, Target, call_options, remote, unary::Response};
use bytes::Bytes;
use std::{
    future::{IntoFuture, ready},
    sync::Arc,
};
use switchboard_core::{
    Receiver, Result, Sender, compression::Packing, layer::BoxFuture, queue::Queue, stream::Follow,
};
use switchboard_wire::{Codec, Status};

/// Bytes of messages that a stream may queue before the other side takes them.
pub(super) const STREAM_BYTES_AHEAD: usize = 64 << 10;

impl Begin {
    /// Sends a call whose requests follow.
    async fn streams<Q, R>(
        self,
        encode: fn(&Q, Codec) -> Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> Result<(Sender<Q>, Receiver<R>)> {
        let (codec, bytes_max) = (self.codec, self.reply_bytes_max);
        let outbound = Arc::new(Queue::new(STREAM_BYTES_AHEAD));
        let StartedStream { inbound, packing, follow } = self.stream(None, Some(outbound.clone())).await?;
        let sender = Sender::new(outbound, codec, encode, true, packing);
        Ok((sender, Receiver::new(inbound, codec, decode, bytes_max).followed_by(follow)))
    }

    /// Sends the call: its only request is `message`, or else its requests are in `outbound`.
    ///
    /// The future is boxed, so that this crate has its code: that of an async function is compiled by each crate that
    /// polls it, here once for each type of message.
    pub(super) fn stream(
        mut self,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        if let Some(early_error) = self.early_error.take() {
            return Box::pin(ready(Err(early_error)));
        }
        match &self.target {
            Target::Channel(channel) => channel.0.clone().stream(self, message, outbound),
            Target::Connection(_) | Target::Nowhere => Box::pin(remote::stream(self, message, outbound)),
        }
    }
}

/// A call with streams that was sent.
pub(super) struct StartedStream {
    /// Queue in which its replies arrive.
    pub(super) inbound: Arc<Queue>,
    /// Compression of its messages.
    pub(super) packing: Packing,
    /// Observer of a fleet, which selected its server.
    pub(super) follow: Option<Box<dyn Follow>>,
}

/// A call with a stream of replies: set options, then await it for its [`Receiver`].
#[must_use = "a call does nothing until it is awaited"]
pub struct ServerStreamCall<R> {
    begin: Begin,
    request: Result<Bytes>,
    decode: fn(Codec, Bytes) -> Result<R>,
}

call_options!(ServerStreamCall<R>, begin);

impl<R> ServerStreamCall<R> {
    pub(super) fn new(begin: Begin, request: Result<Bytes>, decode: fn(Codec, Bytes) -> Result<R>) -> Self {
        ServerStreamCall { begin, request, decode }
    }
}

impl<R: 'static> IntoFuture for ServerStreamCall<R> {
    type Output = Result<Receiver<R>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let (codec, bytes_max) = (self.begin.codec, self.begin.reply_bytes_max);
        Box::pin(async move {
            let StartedStream { inbound, follow, .. } = self.begin.stream(Some(self.request?), None).await?;
            Ok(Receiver::new(inbound, codec, self.decode, bytes_max).followed_by(follow))
        })
    }
}

/// A call with a stream of requests: set options, then await it for its [`Upload`].
#[must_use = "a call does nothing until it is awaited"]
pub struct ClientStreamCall<Q, R> {
    begin: Begin,
    encode: fn(&Q, Codec) -> Result<Bytes>,
    decode: fn(Codec, Bytes) -> Result<R>,
}

call_options!(ClientStreamCall<Q, R>, begin);

impl<Q, R> ClientStreamCall<Q, R> {
    pub(super) fn new(
        begin: Begin,
        encode: fn(&Q, Codec) -> Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> Self {
        ClientStreamCall { begin, encode, decode }
    }
}

impl<Q: 'static, R: 'static> IntoFuture for ClientStreamCall<Q, R> {
    type Output = Result<Upload<Q, R>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (sender, receiver) = self.begin.streams(self.encode, self.decode).await?;
            Ok(Upload { sender, receiver })
        })
    }
}

/// The requests of a client stream and, at the end, its reply. Dropping it earlier ends the call on both sides.
#[derive(Debug)]
pub struct Upload<Q, R> {
    sender: Sender<Q>,
    receiver: Receiver<R>,
}

impl<Q, R> Upload<Q, R> {
    /// Sends one request; waits while the server is slower. Cancel safe as [`Sender::send`].
    ///
    /// # Errors
    /// The status that ended the call; [`finish`](Self::finish) returns the same.
    pub async fn send(&self, message: Q) -> Result<()> {
        self.sender.send(message).await
    }

    /// Ends the requests and waits for the reply.
    ///
    /// # Errors
    /// The status with which the call ended.
    pub async fn finish(self) -> Result<Response<R>> {
        let Upload { sender, mut receiver } = self;
        sender.finish();
        let metadata = receiver.metadata().await;
        match only(&mut receiver).await {
            Ok(message) => Ok(Response { message, metadata, trailers: receiver.trailers(), attempts: 1 }),
            Err(mut status) => {
                // As for a unary call, metadata received before the failure is kept.
                let trailers = std::mem::replace(status.metadata_mut(), metadata);
                status.metadata_mut().extend(trailers);
                Err(status)
            }
        }
    }
}

/// Returns the only reply.
async fn only<R>(receiver: &mut Receiver<R>) -> Result<R> {
    let message = receiver.next().await?;
    let message =
        message.ok_or_else(|| Status::unimplemented("the server ended the call without a reply"))?;
    match receiver.next().await? {
        None => Ok(message),
        Some(_) => Err(Status::unimplemented("the server sent more than one reply")),
    }
}

/// A call with streams both ways: set options, then await it for a [`Sender`] and a [`Receiver`].
#[must_use = "a call does nothing until it is awaited"]
pub struct BidiCall<Q, R> {
    begin: Begin,
    encode: fn(&Q, Codec) -> Result<Bytes>,
    decode: fn(Codec, Bytes) -> Result<R>,
}

call_options!(BidiCall<Q, R>, begin);

impl<Q, R> BidiCall<Q, R> {
    pub(super) fn new(
        begin: Begin,
        encode: fn(&Q, Codec) -> Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> Self {
        BidiCall { begin, encode, decode }
    }
}

impl<Q: 'static, R: 'static> IntoFuture for BidiCall<Q, R> {
    type Output = Result<(Sender<Q>, Receiver<R>)>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin.streams(self.encode, self.decode))
    }
}
