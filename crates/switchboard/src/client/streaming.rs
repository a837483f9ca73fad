//! Calls with streams of requests, of replies, or both.

use super::{
    Begin, Target, Way, call_options,
    connection::{Connection, Request},
    fleet, local,
    unary::{Response, answer_of},
};
use crate::{
    Codec, Receiver, Result, Sender, Status,
    call::RequestBody,
    compression::Packing,
    stream::{Follow, Queue},
};
use bytes::Bytes;
use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
};

/// Requests that a sender may queue before the connection takes them.
const ROOM: usize = 64 << 10;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Begin {
    /// Sends a call whose requests are still to come.
    async fn streams<Q, R>(
        self,
        encode: fn(&Q, Codec) -> Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> Result<(Sender<Q>, Receiver<R>)> {
        let (codec, bytes_max) = (self.codec, self.reply_bytes_max);
        let outbound = Arc::new(Queue::new(ROOM));
        let Begun { inbound, packing, follow } = self.stream(None, Some(outbound.clone())).await?;
        let sender = Sender::new(outbound, codec, encode, true, packing);
        Ok((sender, Receiver::new(inbound, codec, decode, bytes_max).followed_by(follow)))
    }

    /// Sends the call with its queues; replies arrive in the one that is returned, requests are to be packed so.
    pub(super) async fn stream(
        mut self,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<Begun> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        let inbound = Arc::new(Queue::new(ROOM));
        let channel = match &self.target {
            Target::Channel(channel) => Some(channel.clone()),
            Target::Connection(_) | Target::Nowhere => None,
        };
        match channel.as_ref().map(|channel| &*channel.0) {
            None | Some(Way::Remote(_)) => {
                let connection = self.connection().await?;
                return match self.send_stream(&connection, message.as_ref(), outbound.clone()) {
                    Err(status) => {
                        // Not sent: the connection was closed between the choice and now.
                        self.target = Target::Channel(connection.other_way(&status).ok_or(status)?);
                        let connection = self.connection().await?;
                        self.send_stream(&connection, message.as_ref(), outbound)
                    }
                    sent => sent,
                };
            }
            #[cfg(feature = "http")]
            Some(Way::Http(http)) => http.stream(&self, message, outbound, &inbound).await?,
            Some(Way::Combined(combined)) => {
                return Box::pin(combined.stream(self, message, outbound)).await;
            }
            Some(Way::Fleet(fleet)) => {
                let shared = fleet.shared().clone();
                return Box::pin(fleet::stream(shared, self, message, outbound)).await;
            }
            Some(Way::Local(way)) => {
                let deadline = self.deadline(crate::clock::now());
                let body = match (message, outbound) {
                    (Some(message), _) => RequestBody::One(message),
                    (None, outbound) => {
                        RequestBody::Many(outbound.unwrap_or_else(|| Arc::new(Queue::new(ROOM))))
                    }
                };
                let called = way.call(&mut self, body);
                if self.method.kind() == crate::Kind::ClientStream {
                    // The handler's answer comes after the requests, which the caller has yet to send.
                    let into = inbound.clone();
                    crate::runtime::spawn(async move {
                        match called.await.and_then(answer_of) {
                            Ok(answer) => {
                                into.set_head(answer.head);
                                into.push_now(answer.item);
                                into.finish(Ok(answer.trailers));
                            }
                            Err(status) => into.finish(Err(status)),
                        }
                    });
                } else {
                    local::pump(called.await?, &inbound, deadline, way.message_bytes_max())?;
                }
            }
        }
        Ok(Begun { inbound, packing: Packing::OFF, follow: None })
    }

    /// Sends the call on a connection of the native wire.
    fn send_stream(
        &self,
        connection: &Connection,
        message: Option<&Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> Result<Begun> {
        let packing = connection.packing(self.method, self.compression);
        let message = message.map(|message| packing.pack(message.clone()));
        let compressed = message.as_ref().is_some_and(|message| message.compressed);
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        let inbound = Arc::new(Queue::new(ROOM).packing(packing));
        connection.stream(
            &request,
            message.as_ref().map(|message| (&message.bytes).into()),
            &inbound,
            outbound,
        )?;
        Ok(Begun { inbound, packing, follow: None })
    }
}

/// A call with streams that was sent.
pub(super) struct Begun {
    /// Where its replies arrive.
    pub(super) inbound: Arc<Queue>,
    /// How its messages are compressed.
    pub(super) packing: Packing,
    /// Who chose its server.
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
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let (codec, bytes_max) = (self.begin.codec, self.begin.reply_bytes_max);
        Box::pin(async move {
            let Begun { inbound, follow, .. } = self.begin.stream(Some(self.request?), None).await?;
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
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (sender, receiver) = self.begin.streams(self.encode, self.decode).await?;
            Ok(Upload { sender, receiver })
        })
    }
}

/// The requests of a client stream and, at the end, its reply. Dropping it before ends the call on both sides.
#[derive(Debug)]
pub struct Upload<Q, R> {
    sender: Sender<Q>,
    receiver: Receiver<R>,
}

impl<Q, R> Upload<Q, R> {
    /// Sends one request; waits while the server is behind. Cancel safe as [`Sender::send`].
    ///
    /// # Errors
    /// What ended the call; [`finish`](Self::finish) tells the same.
    pub async fn send(&self, message: Q) -> Result<()> {
        self.sender.send(message).await
    }

    /// Ends the requests and waits for the reply.
    ///
    /// # Errors
    /// Why the call ended.
    pub async fn finish(self) -> Result<Response<R>> {
        let Upload { sender, mut receiver } = self;
        sender.finish();
        let metadata = receiver.metadata().await;
        match only(&mut receiver).await {
            Ok(message) => Ok(Response { message, metadata, trailers: receiver.trailers(), attempts: 1 }),
            Err(mut status) => {
                // As with a unary call: what came before the failure is not lost.
                let trailers = std::mem::replace(status.metadata_mut(), metadata);
                status.metadata_mut().extend(trailers);
                Err(status)
            }
        }
    }
}

/// The only reply.
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
    type IntoFuture = BoxFuture<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.begin.streams(self.encode, self.decode))
    }
}
