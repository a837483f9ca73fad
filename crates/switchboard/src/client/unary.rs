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
        // The usual answer, a message and nothing beside it, has a way of its own: on the long way it would be moved
        // through four results.
        if let Some(item) = self.raw.plain_reply() {
            check_reply(&item, self.reply_bytes_max)?;
            let message = (self.decode)(self.codec, item)?;
            return Poll::Ready(Ok(Response {
                message,
                metadata: Metadata::new(),
                trailers: Metadata::new(),
            }));
        }
        let answer = std::task::ready!(self.raw.poll(cx))?;
        check_reply(&answer.item, self.reply_bytes_max)?;
        let message = (self.decode)(self.codec, answer.item)?;
        Poll::Ready(Ok(Response {
            message,
            metadata: answer.head.map_or_else(Metadata::new, |head| *head),
            trailers: answer.trailers.map_or_else(Metadata::new, |trailers| *trailers),
        }))
    }
}

/// A unary call before its reply is read as a type.
struct Raw {
    /// What is sent, and sent once more when its first connection turns out to take no calls any more.
    begin: Begin,
    request: Result<Bytes>,
    stage: Stage,
    /// What is to be sent was handed on: it cannot be sent again.
    moved_on: bool,
}

enum Stage {
    Start,
    Connecting(Pin<Box<dyn Future<Output = Result<Sent>> + Send>>),
    Waiting(Sent),
    Local(Pin<Box<dyn Future<Output = Result<Answer>> + Send>>),
    Done,
}

/// A call that was sent; dropped before its answer, it is cancelled.
struct Sent {
    connection: Arc<Connection>,
    id: Option<CallId>,
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
        Raw { begin, request, stage: Stage::Start, moved_on: false }
    }

    /// The reply, if it is there and came with nothing beside it.
    #[inline(always)]
    fn plain_reply(&mut self) -> Option<Bytes> {
        let Stage::Waiting(sent) = &mut self.stage else { return None };
        let item = sent.connection.take_plain_reply(sent.id?)?;
        sent.id = None;
        self.stage = Stage::Done;
        Some(item)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer>> {
        loop {
            match &mut self.stage {
                Stage::Start => {
                    let next = self.begin(cx);
                    let waits = matches!(next, Ok(Stage::Waiting(_)));
                    self.stage = match next {
                        Ok(next) => next,
                        Err(status) => {
                            self.stage = Stage::Done;
                            return Poll::Ready(Err(status));
                        }
                    };
                    if waits {
                        return Poll::Pending;
                    }
                }
                Stage::Connecting(sent) => {
                    let sent = std::task::ready!(sent.as_mut().poll(cx))?;
                    self.stage = Stage::Waiting(sent);
                }
                Stage::Waiting(sent) => {
                    let id = sent.id.expect("a sent call has its number until it is answered");
                    let answer = std::task::ready!(sent.connection.poll_unary(id, cx));
                    sent.id = None;
                    let Stage::Waiting(sent) = std::mem::replace(&mut self.stage, Stage::Done) else {
                        unreachable!("matched above")
                    };
                    if let Err(status) = &answer
                        && let Some(moved) = self.moved(&sent.connection, status)
                    {
                        self.stage = moved;
                        continue;
                    }
                    return Poll::Ready(answer);
                }
                Stage::Local(answer) => {
                    let answer = std::task::ready!(answer.as_mut().poll(cx));
                    self.stage = Stage::Done;
                    return Poll::Ready(answer);
                }
                Stage::Done => panic!("a call was polled after its answer"),
            }
        }
    }

    /// Sends the call if there is a connection, else begins to wait for one.
    #[inline(always)]
    fn begin(&mut self, cx: &Context<'_>) -> Result<Stage> {
        let request = match &self.request {
            Ok(request) => request,
            Err(status) => return Err(status.clone()),
        };
        if let Some(mistake) = self.begin.mistake.take() {
            return Err(mistake);
        }
        let Target::Connection(connection) = &self.begin.target else { return self.begin_slowly() };
        let id = connection.unary(&self.begin.request(), request, cx.waker());
        let Target::Connection(connection) = std::mem::replace(&mut self.begin.target, Target::Nowhere)
        else {
            unreachable!("matched above")
        };
        match id {
            Ok(id) => Ok(Stage::Waiting(Sent { connection, id: Some(id) })),
            Err(status) => self.moved(&connection, &status).ok_or(status),
        }
    }

    /// Through a channel: connects first, or hands the call to a service of this process.
    #[cold]
    fn begin_slowly(&mut self) -> Result<Stage> {
        self.moved_on = true;
        let mut begin = self.begin.take();
        let request = std::mem::replace(&mut self.request, Ok(Bytes::new()))?;
        let Target::Channel(channel) = &begin.target else {
            return Err(Status::internal("a call was begun twice"));
        };
        let channel = channel.clone();
        match &*channel.0 {
            Way::Remote(_) => Ok(Stage::Connecting(Box::pin(connect_and_send(begin, request)))),
            #[cfg(feature = "http")]
            Way::Http(_) => Ok(Stage::Local(Box::pin(async move {
                let Way::Http(http) = &*channel.0 else { unreachable!("matched above") };
                http.unary(&begin, &request).await
            }))),
            Way::Local(local) => {
                let called = local.call(&mut begin, RequestBody::One(request));
                Ok(Stage::Local(Box::pin(async move { answer_of(called.await?) })))
            }
        }
    }

    /// The call on its way to another connection, if it surely did not begin on this one. Once, because what is sent
    /// goes with it; the timeout begins anew.
    #[cold]
    fn moved(&mut self, connection: &Connection, status: &Status) -> Option<Stage> {
        if self.moved_on {
            return None;
        }
        let channel = connection.other_way(status)?;
        self.begin.target = Target::Channel(channel);
        self.begin_slowly().ok()
    }
}

async fn connect_and_send(begin: Begin, request: Bytes) -> Result<Sent> {
    let connection = begin.connection().await?;
    let id = std::future::poll_fn(|cx| Poll::Ready(connection.unary(&begin.request(), &request, cx.waker())))
        .await?;
    Ok(Sent { connection, id: Some(id) })
}

impl Begin {
    /// Takes the call out, for ways that keep it.
    fn take(&mut self) -> Begin {
        Begin {
            target: std::mem::replace(&mut self.target, Target::Nowhere),
            method: self.method,
            codec: self.codec,
            timeout: self.timeout,
            reply_bytes_max: self.reply_bytes_max,
            metadata: std::mem::take(&mut self.metadata),
            mistake: self.mistake.take(),
        }
    }

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
            Target::Nowhere => return Err(Status::internal("a call was begun twice")),
        };
        let Way::Remote(pool) = &*channel.0 else {
            return Err(Status::internal("only native channels have native connections"));
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
            Ok(Answer { item, head: boxed(reply.metadata), trailers: boxed(reply.trailers) })
        }
        ReplyBody::Many(_) => Err(Status::internal("a stream of replies where one belongs")),
    }
}

fn boxed(metadata: Metadata) -> Option<Box<Metadata>> {
    (!metadata.is_empty()).then(|| Box::new(metadata))
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
            match &*channel.0 {
                #[cfg(feature = "http")]
                Way::Http(http) => return http.unary(&self.begin, &request).await.map(drop),
                Way::Local(local) => {
                    return local.call(&mut self.begin, RequestBody::One(request)).await.map(drop);
                }
                Way::Remote(_) => {}
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
