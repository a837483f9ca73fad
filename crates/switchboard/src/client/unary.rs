//! Calls with one reply, or none.

use super::{
    Begin, Target, Way, call_options,
    calls::Answer,
    connection::{Connection, Request},
};
use crate::{
    Codec, Metadata, Reply, Result, Status,
    call::{ReplyBody, RequestBody},
    stream::check_reply,
};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, IntoFuture},
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};
use switchboard_wire::wire::CallId;

/// A unary call: set options, then await it.
///
/// Cancel safe in the sense that dropping it ends the call on both sides.
#[must_use = "a call does nothing until it is awaited"]
pub struct UnaryCall<R> {
    begin: Begin,
    request: Result<Bytes>,
    decode: fn(Codec, Bytes) -> Result<R>,
}

call_options!(UnaryCall<R>);

impl<R> UnaryCall<R> {
    pub(super) fn new(begin: Begin, request: Result<Bytes>, decode: fn(Codec, Bytes) -> Result<R>) -> Self {
        UnaryCall { begin, request, decode }
    }
}

impl<R> IntoFuture for UnaryCall<R> {
    type Output = Result<Response<R>>;
    type IntoFuture = UnaryFuture<R>;

    fn into_future(self) -> UnaryFuture<R> {
        UnaryFuture {
            decode: self.decode,
            codec: self.begin.codec,
            reply_bytes_max: self.begin.reply_bytes_max,
            raw: Raw::new(self.begin, self.request),
        }
    }
}

/// What a [`UnaryCall`] becomes when it is awaited.
#[must_use = "futures do nothing unless polled"]
pub struct UnaryFuture<R> {
    raw: Raw,
    codec: Codec,
    reply_bytes_max: usize,
    decode: fn(Codec, Bytes) -> Result<R>,
}

impl<R> Future for UnaryFuture<R> {
    type Output = Result<Response<R>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(self.raw.poll(cx))?;
        check_reply(&answer.item, self.reply_bytes_max)?;
        let message = (self.decode)(self.codec, answer.item)?;
        Poll::Ready(Ok(Response {
            message,
            metadata: answer.head.map_or_else(Metadata::new, |head| *head),
            trailers: answer.trailers,
        }))
    }
}

/// A unary call before its reply is read as a type.
enum Raw {
    Start(Option<(Begin, Result<Bytes>)>),
    Connecting(Pin<Box<dyn Future<Output = Result<Sent>> + Send>>),
    Waiting(Sent),
    Local(Pin<Box<dyn Future<Output = Result<Answer>> + Send>>),
    Done,
}

/// A call that was sent; dropped before its answer, it is cancelled.
struct Sent {
    connection: Arc<Connection>,
    id: Option<CallId>,
    /// What is sent once more, on another connection, when this one turns out to take no calls any more.
    again: Option<(Begin, Bytes)>,
}

impl Drop for Sent {
    #[inline]
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.connection.cancel(id);
        }
    }
}

impl Raw {
    fn new(begin: Begin, request: Result<Bytes>) -> Raw {
        Raw::Start(Some((begin, request)))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer>> {
        loop {
            match self {
                Raw::Start(start) => {
                    let (begin, request) = start.take().expect("a call begins once");
                    *self = Raw::begin(begin, request, cx)?;
                    if let Raw::Waiting(_) = self {
                        return Poll::Pending;
                    }
                }
                Raw::Connecting(sent) => {
                    let sent = std::task::ready!(sent.as_mut().poll(cx))?;
                    *self = Raw::Waiting(sent);
                }
                Raw::Waiting(sent) => {
                    let id = sent.id.expect("a sent call has its number until it is answered");
                    let answer = std::task::ready!(sent.connection.poll_unary(id, cx));
                    sent.id = None;
                    if let Err(status) = &answer
                        && let Some(moved) = sent.moved(status)
                    {
                        *self = moved;
                        continue;
                    }
                    *self = Raw::Done;
                    return Poll::Ready(answer);
                }
                Raw::Local(answer) => {
                    let answer = std::task::ready!(answer.as_mut().poll(cx));
                    *self = Raw::Done;
                    return Poll::Ready(answer);
                }
                Raw::Done => panic!("a call was polled after its answer"),
            }
        }
    }

    /// Sends the call if there is a connection, else begins to wait for one.
    fn begin(mut begin: Begin, request: Result<Bytes>, cx: &Context<'_>) -> Result<Raw> {
        let request = request?;
        if let Some(mistake) = begin.mistake.take() {
            return Err(mistake);
        }
        let channel = match &begin.target {
            Target::Connection(connection) => {
                let id = connection.unary(&begin.request(), &request, cx.waker());
                let Target::Connection(connection) = std::mem::replace(&mut begin.target, Target::Sent)
                else {
                    unreachable!("matched above")
                };
                let mut sent = Sent { connection, id: None, again: Some((begin, request)) };
                return match id {
                    Ok(id) => {
                        sent.id = Some(id);
                        Ok(Raw::Waiting(sent))
                    }
                    Err(status) => sent.moved(&status).ok_or(status),
                };
            }
            Target::Channel(channel) => channel.clone(),
            Target::Sent => unreachable!("a call begins once"),
        };
        match &*channel.0 {
            Way::Remote(_) => Ok(Raw::Connecting(Box::pin(connect_and_send(begin, request)))),
            Way::Local(local) => {
                let called = local.call(&mut begin, RequestBody::One(request));
                Ok(Raw::Local(Box::pin(async move { answer_of(called.await?) })))
            }
        }
    }
}

async fn connect_and_send(begin: Begin, request: Bytes) -> Result<Sent> {
    let connection = begin.connection().await?;
    let id = std::future::poll_fn(|cx| Poll::Ready(connection.unary(&begin.request(), &request, cx.waker())))
        .await?;
    Ok(Sent { connection, id: Some(id), again: None })
}

impl Sent {
    /// The call on its way to another connection, if it surely did not begin on this one. Once: the second
    /// connection's answer stands. The timeout begins anew.
    #[cold]
    fn moved(&mut self, status: &Status) -> Option<Raw> {
        let channel = self.connection.other_way(status)?;
        let (mut begin, request) = self.again.take()?;
        begin.target = Target::Channel(channel);
        Some(Raw::Connecting(Box::pin(connect_and_send(begin, request))))
    }
}

impl Begin {
    #[inline]
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            method: self.method,
            codec: self.codec,
            timeout: self.time_left(),
            metadata: &self.metadata,
        }
    }

    /// A connection, within the call's deadline; time spent here is taken off the timeout.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>> {
        let channel = match &self.target {
            Target::Connection(connection) => return Ok(connection.clone()),
            Target::Channel(channel) => channel,
            Target::Sent => return Err(Status::internal("a call was sent twice")),
        };
        let Way::Remote(pool) = &*channel.0 else {
            return Err(Status::internal("a local channel has no connections"));
        };
        let deadline = self.deadline(Instant::now());
        match deadline {
            Some(deadline) if tokio::runtime::Handle::try_current().is_ok() => {
                tokio::time::timeout_at(deadline.into(), pool.connection()).await.unwrap_or_else(|_| {
                    Err(Status::deadline_exceeded("no connection within the call's deadline"))
                })
            }
            _ => pool.connection().await,
        }
    }
}

pub(super) fn answer_of(reply: Reply) -> Result<Answer> {
    match reply.body {
        ReplyBody::One(item) => {
            Ok(Answer { item, head: Some(Box::new(reply.metadata)), trailers: reply.trailers })
        }
        ReplyBody::Many(_) => Err(Status::internal("a stream of replies where one belongs")),
    }
}

/// A one-way call: set options, then await it; it is done once the message is on its way.
#[must_use = "a call does nothing until it is awaited"]
pub struct OnewayCall {
    begin: Begin,
    request: Result<Bytes>,
}

call_options!(OnewayCall);

impl OnewayCall {
    pub(super) fn new(begin: Begin, request: Result<Bytes>) -> OnewayCall {
        OnewayCall { begin, request }
    }

    async fn send(mut self) -> Result<()> {
        let request = self.request?;
        if let Some(mistake) = self.begin.mistake.take() {
            return Err(mistake);
        }
        if let Target::Channel(channel) = &self.begin.target {
            let channel = channel.clone();
            if let Way::Local(local) = &*channel.0 {
                return local.call(&mut self.begin, RequestBody::One(request)).await.map(drop);
            }
        }
        let connection = self.begin.connection().await?;
        let Err(status) = connection.oneway(&self.begin.request(), &request) else { return Ok(()) };
        self.begin.target = Target::Channel(connection.other_way(&status).ok_or(status)?);
        self.begin.connection().await?.oneway(&self.begin.request(), &request)
    }
}

impl IntoFuture for OnewayCall {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A reply with what came beside it; it derefs to the message.
#[derive(Clone, Debug)]
pub struct Response<R> {
    pub(super) message: R,
    pub(super) metadata: Metadata,
    pub(super) trailers: Metadata,
}

impl<R> Response<R> {
    /// The message alone.
    pub fn into_inner(self) -> R {
        self.message
    }

    /// Metadata that came before the message.
    pub fn meta(&self) -> &Metadata {
        &self.metadata
    }

    /// Metadata that came with the end.
    pub fn trailers(&self) -> &Metadata {
        &self.trailers
    }
}

impl<R> Deref for Response<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.message
    }
}

impl<R> DerefMut for Response<R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.message
    }
}

impl<R> fmt::Debug for UnaryCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnaryCall({})", self.begin.method.path)
    }
}
