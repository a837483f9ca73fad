//! Calls with one reply, or none.

use super::{
    Begin, ChannelKind, Target, call_options,
    calls::RawResponse,
    connection::{Connection, Request, is_full},
    fleet::{self, AttemptLog, EndpointPermit, Explained, Explanation, First, Selection},
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    fmt,
    future::{Future, IntoFuture, poll_fn},
    mem,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};
use switchboard_core::{
    Compression, Payload, Reply, Result,
    call::{ReplyBody, ReplyParts, RequestBody},
    compression::{Message, Packing},
    payload::Pieces,
    reserved::EXPLAIN_REQUEST,
    stream::check_reply,
};
use switchboard_wire::{
    Codec, Metadata, Origin, Status,
    wire::{ClientCallId, Encoding},
};

/// A unary call: set options, then await it.
///
/// Cancel safe: dropping it ends the call on both sides.
#[must_use = "a call does nothing until it is awaited"]
pub struct UnaryCall<R> {
    raw: PooledCall,
    decode: fn(Codec, Bytes) -> Result<R>,
}

call_options!(UnaryCall<R>, raw.begin);

impl<R> UnaryCall<R> {
    /// Sets an idempotency key, the metadata `idempotency-key`. Servers that
    /// cache results of the method recognize a repeated call by it, so that the call
    /// runs once however often it is sent. A key has 1 to 128 bytes and is unique to the call. A channel to several
    /// servers retries the call, on the same server, when it cannot know whether the call ran; not on kiss, sofa and
    /// Thrift without THeader, which cannot carry the key. Set it only where the servers cache results.
    #[must_use = "a call does nothing until it is awaited"]
    pub fn idempotency_key(mut self, key: impl Into<Bytes>) -> Self {
        self.raw.begin.set_key(key);
        self
    }

    /// Splits the call into its parts.
    pub(super) fn into_parts(mut self) -> Result<(Begin, Bytes, Decode<R>)> {
        let request = self.raw.take_request()?;
        Ok((self.raw.begin.take(), request, self.decode))
    }

    /// Sets the name of the method, when it is [in the metadata](ClientMethod::is_called).
    pub(crate) fn undeclared_name(mut self, name: Option<switchboard_wire::UndeclaredName>) -> Self {
        self.raw.begin.metadata.set_undeclared_name(name);
        self
    }

    /// Sends these bytes beside the message. Supported by channels on baidu_std or hulu and by those to a service of
    /// this process; others fail the call with `Unimplemented`.
    pub fn attachment(mut self, bytes: impl Into<Bytes>) -> Self {
        self.raw.begin.metadata.set_attachment(bytes);
        self
    }

    /// Sends the call and returns, beside its outcome, the state of the channel before it and the result of each
    /// attempt. This includes the limits of the server when the server is Switchboard and the wire carries metadata.
    /// More expensive than a plain call; for diagnosis.
    ///
    /// Cancel safe like the call itself.
    pub async fn explained(mut self) -> Explained<R> {
        let channel = match &self.raw.begin.target {
            Target::Channel(channel) => Some(channel.clone()),
            Target::Connection(connection) => connection.channel(),
            Target::Nowhere => None,
        };
        let (method, attempt_log) = (self.raw.begin.method.path, AttemptLog::new());
        let key = self.raw.begin.options.as_ref().and_then(|options| options.hash_key.clone());
        let mut before = channel.as_ref().map_or_else(
            || Explanation::of_nothing(method),
            |channel| channel.explain(method, key.as_deref()),
        );
        self.raw.begin.options().attempt_log = Some(attempt_log.clone());
        // When the metadata is full, the server reports no limits.
        let _ = self.raw.begin.metadata.insert(EXPLAIN_REQUEST.0, EXPLAIN_REQUEST.1);
        // A fleet logs its attempts itself; other channels make one attempt.
        let is_fleet = channel.as_ref().is_some_and(|channel| matches!(&*channel.0, ChannelKind::Fleet(_)));
        let only = (!is_fleet).then(|| attempt_log.begin(before.channel.clone()));
        let outcome = (&mut self).await;
        if let Some(at) = only {
            attempt_log.end(at, outcome.as_ref().map(|response| [&response.metadata, &response.trailers]));
        }
        let (attempts, took) = attempt_log.take();
        // The balancer may have selected another endpoint for the call than for the explanation.
        for candidate in before.candidates.iter_mut().filter(|_| !attempts.is_empty()) {
            candidate.chosen = candidate.address == attempts[0].address;
        }
        Explained { before, attempts, took, outcome }
    }

    #[inline]
    pub(super) fn new(begin: Begin, request: Result<Payload>, decode: fn(Codec, Bytes) -> Result<R>) -> Self {
        UnaryCall { raw: PooledCall::new(begin, request), decode }
    }
}

#[cfg(feature = "proto")]
impl<R> UnaryCall<R>
where
    R: buffa::Message + buffa::HasMessageView + serde::Serialize + serde::de::DeserializeOwned,
{
    /// Leaves the reply encoded, to be [viewed](switchboard_core::Encoded::view) in place: a message with many strings
    /// is then
    /// read without an allocation.
    ///
    /// ```ignore
    /// let reply = client.query(&request).encoded().await?;
    /// let posts = reply.view()?;
    /// ```
    pub fn encoded(self) -> UnaryCall<switchboard_core::Encoded<R>> {
        UnaryCall { raw: self.raw, decode: switchboard_core::Encoded::received }
    }
}

impl<R> Future for UnaryCall<R> {
    type Output = Result<Response<R>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let UnaryCall { raw, decode } = &mut *self;
        // Fast path for a reply of one message without metadata: the general path would move it through four results.
        if let Some(item) = raw.plain_reply() {
            check_reply(&item, raw.begin.reply_bytes_max)?;
            let message = decode(raw.begin.codec, item)?;
            return Poll::Ready(Ok(Response::plain(message)));
        }
        let RawResponse { item, head, trailers, attempts } = std::task::ready!(raw.poll(cx))?;
        let written = item.codec;
        let item = raw.packing.as_deref().unwrap_or(&Packing::OFF).unpack(item)?;
        check_reply(&item, raw.begin.reply_bytes_max)?;
        let message = decode_reply(raw.begin.codec, written, item, *decode)?;
        Poll::Ready(Ok(Response { message, metadata: head, trailers, attempts }))
    }
}

/// Sends a call and waits for its reply, which is decompressed.
pub(super) async fn run(begin: Begin, request: Bytes) -> Result<RawResponse> {
    let mut raw = PooledCall::new(begin, Ok(request.into()));
    let response = poll_fn(|cx| raw.poll(cx)).await?;
    let codec = response.item.codec;
    let bytes = raw.packing.as_deref().unwrap_or(&Packing::OFF).unpack(response.item)?;
    Ok(RawResponse { item: Message { bytes, compressed: false, codec }, ..response })
}

/// Decodes a reply in the codec that its server named, or else in that of the call.
pub(super) fn decode_reply<R>(
    codec: Codec,
    written: Option<Codec>,
    item: Bytes,
    decode: Decode<R>,
) -> Result<R> {
    match written {
        Some(other) if other != codec => decode(other, item).map_err(|status| {
            let text = format!("the server replied in {other} to a call in {codec}: {}", status.message());
            Status::new(status.code(), text).with_origin(status.origin())
        }),
        _ => decode(codec, item),
    }
}

impl RawResponse {
    /// Takes the message, for a path that needs it in the codec of the call.
    ///
    /// # Errors
    /// When the server has encoded it in another codec.
    pub(super) fn message_in(&mut self, codec: Codec) -> Result<Bytes> {
        match self.item.codec {
            Some(other) if other != codec => Err(Status::internal(format!(
                "the server replied in {other} to a call in {codec}; forwarding channels do not accept another \
                 codec: use {other} for the call"
            ))
            .with_origin(Origin::Peer)),
            _ => Ok(mem::take(&mut self.item.bytes)),
        }
    }
}

/// Decodes a reply into a type.
pub(super) type Decode<R> = fn(Codec, Bytes) -> Result<R>;

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The state of a call in memory that later calls reuse: builders and futures move the call as one word.
struct PooledCall(Option<Box<RawCall>>);

/// Maximum number of reusable boxes per thread, of 200 bytes each.
const POOLED_MAX: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "a call holds the box")]
    static FREE: RefCell<Vec<Box<RawCall>>> = const { RefCell::new(Vec::new()) };
}

impl PooledCall {
    #[inline]
    fn new(mut begin: Begin, request: Result<Payload>) -> PooledCall {
        let request = request.map_err(|status| begin.early_error.get_or_insert(status)).ok();
        match FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten() {
            Some(mut pooled) => {
                pooled.begin = begin;
                pooled.request = request;
                pooled.stage = Stage::Start;
                pooled.was_moved = false;
                PooledCall(Some(pooled))
            }
            None => {
                let stage = Stage::Start;
                PooledCall(Some(Box::new(RawCall { begin, request, stage, was_moved: false, packing: None })))
            }
        }
    }
}

impl Deref for PooledCall {
    type Target = RawCall;

    #[inline]
    fn deref(&self) -> &RawCall {
        self.0.as_deref().expect("present until it is dropped")
    }
}

impl DerefMut for PooledCall {
    #[inline]
    fn deref_mut(&mut self) -> &mut RawCall {
        self.0.as_deref_mut().expect("present until it is dropped")
    }
}

impl Drop for PooledCall {
    #[inline]
    fn drop(&mut self) {
        let Some(mut raw) = self.0.take() else { return };
        raw.clear();
        // At the end of the thread the box is freed.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < POOLED_MAX {
                free.push(raw);
            }
        });
    }
}

/// A unary call before its reply is decoded.
struct RawCall {
    begin: Begin,
    /// The request, until it is sent; `None` when it could not be encoded, with the error in `begin`.
    request: Option<Payload>,
    stage: Stage,
    /// True when the call was moved to another connection once.
    was_moved: bool,
    /// Compression of the messages of the call, if any; a box, because calls are moved.
    packing: Option<Box<Packing>>,
}

enum Stage {
    Start,
    Connecting(BoxFuture<(Sent, Packing)>),
    Waiting(Sent),
    Local(BoxFuture<RawResponse>),
    Done,
}

/// A call that was sent; dropping it before its reply cancels it.
struct Sent {
    connection: Arc<Connection>,
    id: Option<ClientCallId>,
    /// The permit of the fleet endpoint that was selected for it.
    permit: Option<EndpointPermit>,
}

impl Drop for Sent {
    #[inline]
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.connection.cancel(id);
        }
    }
}

impl RawCall {
    /// Ends the call, and releases its resources.
    #[inline]
    fn clear(&mut self) {
        // A plain call has released everything but its metadata; these checks avoid the drops.
        if !matches!(self.stage, Stage::Done) {
            self.stage = Stage::Done;
        }
        if self.request.is_some() {
            self.request = None;
        }
        if self.packing.is_some() {
            self.packing = None;
        }
        let Begin { target, metadata, early_error, options, .. } = &mut self.begin;
        if !matches!(target, Target::Nowhere) {
            *target = Target::Nowhere;
        }
        *metadata = Metadata::new();
        *early_error = None;
        *options = None;
    }

    /// Takes the request.
    ///
    /// # Errors
    /// The reason why it could not be encoded.
    fn take_request(&mut self) -> Result<Bytes> {
        let begun_twice = || Status::internal("a call was begun twice");
        match self.request.take() {
            Some(request) => Ok(request.into_whole()),
            None => Err(self.begin.early_error.take().unwrap_or_else(begun_twice)),
        }
    }

    /// Returns the reply, if it has arrived and is one message without metadata.
    #[inline(always)]
    fn plain_reply(&mut self) -> Option<Bytes> {
        let Stage::Waiting(sent) = &mut self.stage else { return None };
        let item = sent.connection.take_plain_reply(sent.id?)?;
        sent.id = None;
        if let Some(permit) = sent.permit.take() {
            permit.succeeded();
        }
        self.stage = Stage::Done;
        Some(item)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<RawResponse>> {
        loop {
            match &mut self.stage {
                Stage::Start => {
                    if self.begin(cx)? {
                        return Poll::Pending;
                    }
                }
                Stage::Connecting(sent) => {
                    let (sent, packing) = std::task::ready!(sent.as_mut().poll(cx))?;
                    self.packing = Some(Box::new(packing));
                    self.stage = Stage::Waiting(sent);
                }
                Stage::Waiting(sent) => {
                    let id = sent.id.expect("a sent call has its id until its reply");
                    let response = std::task::ready!(sent.connection.poll_unary(id, cx));
                    sent.id = None;
                    match (sent.permit.take(), response) {
                        (Some(permit), Err(status)) => self.tried(permit, status)?,
                        (permit, response) => {
                            if let Some(permit) = permit {
                                permit.succeeded();
                            }
                            self.stage = Stage::Done;
                            return Poll::Ready(response);
                        }
                    }
                }
                Stage::Local(response) => {
                    let response = std::task::ready!(response.as_mut().poll(cx));
                    self.stage = Stage::Done;
                    return Poll::Ready(response);
                }
                Stage::Done => panic!("a call was polled after its end"),
            }
        }
    }

    /// Sends the call if there is a connection, else starts to wait for one; returns true once it is sent.
    #[inline(always)]
    fn begin(&mut self, cx: &Context<'_>) -> Result<bool> {
        let (Target::Connection(connection), Some(message), None) =
            (&self.begin.target, &self.request, &self.begin.early_error)
        else {
            return self.begin_on_channel(cx);
        };
        let sent = self.begin.send(connection, message, &mut self.packing, cx.waker());
        self.sent(sent)
    }

    /// Begins a call that had no connection when it was made.
    fn begin_on_channel(&mut self, cx: &Context<'_>) -> Result<bool> {
        if let Target::Channel(channel) = &self.begin.target
            && let ChannelKind::Fleet(fleet) = &*channel.0
            && self.begin.early_error.is_none()
            && let Some(message) = &self.request
        {
            if self.begin.attempt_log().is_some() {
                self.continue_in_fleet(First::Nothing)?;
                return Ok(false);
            }
            let whole = message.one().unwrap_or_else(|| message.whole().into());
            let first = match fleet.find(&self.begin, &whole) {
                Selection::NoEndpoint => First::Nothing,
                Selection::Rejected(status) => return Err(status),
                Selection::Chosen(permit) => First::Chosen(permit),
                Selection::Ready(permit, connection) => {
                    match self.begin.send(&connection, message, &mut self.packing, cx.waker()) {
                        Ok(id) => {
                            let permit = Some(permit);
                            self.stage = Stage::Waiting(Sent { connection, id: Some(id), permit });
                            return Ok(true);
                        }
                        // The call waits for space on the endpoint's channel.
                        Err(status) if is_full(&status) => First::Chosen(permit),
                        Err(status) => First::Failed(permit, status),
                    }
                }
            };
            self.continue_in_fleet(first)?;
            return Ok(false);
        }
        if let Some(early_error) = self.begin.early_error.take() {
            return Err(early_error);
        }
        self.stage = self.begin_boxed()?;
        Ok(false)
    }

    /// Waits for the reply of a call that its connection took, else begins again on another connection.
    #[inline(always)]
    fn sent(&mut self, sent: Result<ClientCallId>) -> Result<bool> {
        let Target::Connection(connection) = mem::replace(&mut self.begin.target, Target::Nowhere) else {
            return Err(Status::internal("a call was begun twice"));
        };
        match sent {
            Ok(id) => {
                // Its memory is reused by the next call, while it is still in the cache.
                self.request = None;
                self.stage = Stage::Waiting(Sent { connection, id: Some(id), permit: None });
                Ok(true)
            }
            Err(status) if is_full(&status) => {
                self.begin.target = Target::Connection(connection);
                self.stage = self.begin_boxed()?;
                Ok(false)
            }
            Err(status) => {
                self.stage = self.moved(&connection, &status).ok_or(status)?;
                Ok(false)
            }
        }
    }

    /// Continues after an endpoint of a fleet has failed.
    #[cold]
    fn tried(&mut self, permit: EndpointPermit, status: Status) -> Result<()> {
        self.continue_in_fleet(First::Failed(permit, status))
    }

    /// Continues a fleet's call in a box.
    #[cold]
    fn continue_in_fleet(&mut self, first: First) -> Result<()> {
        self.packing = None;
        let request = self.take_request()?;
        let begin = self.begin.take();
        let Target::Channel(channel) = &begin.target else {
            return Err(Status::internal("a call was begun twice"));
        };
        let ChannelKind::Fleet(fleet) = &*channel.0 else {
            return Err(Status::internal("only fleets have several endpoints"));
        };
        let shared = fleet.shared().clone();
        self.stage = Stage::Local(Box::pin(fleet::unary(shared, begin, request, first)));
        Ok(())
    }

    /// Begins a call through a channel: connects first, or passes the call to a service of this process.
    #[cold]
    fn begin_boxed(&mut self) -> Result<Stage> {
        self.was_moved = true;
        let request = self.take_request()?;
        let mut begin = self.begin.take();
        if let Target::Connection(_) = &begin.target {
            return Ok(Stage::Connecting(Box::pin(connect_and_send(begin, request))));
        }
        let Target::Channel(channel) = &begin.target else {
            return Err(Status::internal("a call was begun twice"));
        };
        let channel = channel.clone();
        match &*channel.0 {
            ChannelKind::Remote(_) => Ok(Stage::Connecting(Box::pin(connect_and_send(begin, request)))),
            #[cfg(feature = "http")]
            ChannelKind::Http(_) => Ok(Stage::Local(Box::pin(async move {
                let ChannelKind::Http(http) = &*channel.0 else { unreachable!("matched above") };
                http.unary(&begin, &request).await
            }))),
            ChannelKind::Combined(_) => Ok(Stage::Local(Box::pin(async move {
                let ChannelKind::Combined(combined) = &*channel.0 else { unreachable!("matched above") };
                combined.unary(begin, request).await
            }))),
            ChannelKind::Fleet(_) => Err(Status::internal("a fleet sends its calls itself")),
            ChannelKind::Local(local) => {
                let called = local.call(&mut begin, RequestBody::One(request));
                Ok(Stage::Local(Box::pin(async move { response_of(called.await?) })))
            }
        }
    }

    /// Moves the call to another connection, if it surely did not begin on this one. Once only, because the request is
    /// consumed; the timeout starts again.
    #[cold]
    fn moved(&mut self, connection: &Connection, status: &Status) -> Option<Stage> {
        if self.was_moved {
            return None;
        }
        let channel = connection.retry_channel(status)?;
        self.begin.target = Target::Channel(channel);
        self.begin_boxed().ok()
    }
}

async fn connect_and_send(mut begin: Begin, request: Bytes) -> Result<(Sent, Packing)> {
    loop {
        let connection = begin.connection().await?;
        let sent = poll_fn(|cx| Poll::Ready(begin.send_packed(&connection, &request, cx.waker())));
        match sent.await {
            Ok((id, packing)) => return Ok((Sent { connection, id: Some(id), permit: None }, packing)),
            Err(status) if is_full(&status) => begin.room(&connection).await?,
            Err(status) => begin.target = Target::Channel(connection.retry_channel(&status).ok_or(status)?),
        }
    }
}

impl Begin {
    /// Takes the call out, for stages that own it.
    fn take(&mut self) -> Begin {
        Begin {
            target: mem::replace(&mut self.target, Target::Nowhere),
            method: self.method,
            codec: self.codec,
            compression: self.compression,
            timeout: self.timeout,
            reply_bytes_max: self.reply_bytes_max,
            metadata: mem::take(&mut self.metadata),
            early_error: self.early_error.take(),
            options: self.options.take(),
        }
    }

    #[inline]
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            method: self.method,
            codec: self.codec,
            timeout: self.time_left(),
            metadata: &self.metadata,
            encoding: Encoding::Identity,
            compressed: false,
            rest: &[],
        }
    }

    /// Sends a unary call, compressed if requested; stores the decompressor of its reply in `packing` then.
    #[inline(always)]
    fn send(
        &self,
        connection: &Connection,
        message: &Payload,
        packing: &mut Option<Box<Packing>>,
        waker: &Waker,
    ) -> Result<ClientCallId> {
        match message.pieces() {
            Pieces::One(message) if self.compression == Compression::None => {
                connection.unary(&self.request(), message, waker)
            }
            Pieces::Parts(parts) if self.compression == Compression::None => {
                connection.unary_parts(&self.request(), parts, waker)
            }
            _ => {
                let (id, used) = self.send_packed(connection, message.whole(), waker)?;
                *packing = Some(Box::new(used));
                Ok(id)
            }
        }
    }

    /// Sends a unary call, compressed; returns its id and the decompressor of its reply.
    #[cold]
    fn send_packed(
        &self,
        connection: &Connection,
        request: &Bytes,
        waker: &Waker,
    ) -> Result<(ClientCallId, Packing)> {
        let packing = connection.packing(self.method, self.compression);
        let Message { bytes, compressed, .. } = packing.pack(request.clone());
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        Ok((connection.unary(&request, (&bytes).into(), waker)?, packing))
    }

    fn send_oneway(&self, connection: &Connection, request: &Bytes) -> Result<()> {
        let packing = connection.packing(self.method, self.compression);
        let Message { bytes, compressed, .. } = packing.pack(request.clone());
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        connection.oneway(&request, (&bytes).into())
    }

    /// Returns a connection, within the call's deadline; the time spent here counts toward the timeout.
    pub(super) async fn connection(&mut self) -> Result<Arc<Connection>> {
        let channel = match &self.target {
            Target::Connection(connection) => return Ok(connection.clone()),
            Target::Channel(channel) => channel,
            Target::Nowhere => return Err(Status::internal("a call was begun twice")),
        };
        let ChannelKind::Remote(pool) = &*channel.0 else {
            return Err(Status::internal("only native channels have native connections"));
        };
        let deadline = self.deadline(switchboard_core::clock::now());
        let connection = match deadline {
            Some(deadline) if tokio::runtime::Handle::try_current().is_ok() => {
                tokio::time::timeout_at(deadline.into(), pool.connection()).await.unwrap_or_else(|_| {
                    Err(Status::deadline_exceeded("no connection within the call's deadline"))
                })
            }
            _ => pool.connection().await,
        };
        self.end_at(deadline);
        connection
    }

    /// Waits, within the call's deadline, until the connection has space for the call; the time spent here counts
    /// toward the timeout.
    #[cold]
    pub(super) async fn room(&mut self, connection: &Connection) -> Result<()> {
        let deadline = self.deadline(switchboard_core::clock::now());
        match deadline {
            Some(deadline) if tokio::runtime::Handle::try_current().is_ok() => {
                tokio::time::timeout_at(deadline.into(), connection.room()).await.map_err(|_| {
                    Status::deadline_exceeded(
                        "the server did not read the calls before this one within the call's deadline",
                    )
                    .with_retry(switchboard_wire::Retry::Safe)
                })?;
            }
            _ => connection.room().await,
        }
        self.end_at(deadline);
        Ok(())
    }

    /// Sets the timeout to the time until `deadline`.
    pub(super) fn end_at(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.timeout = Some(deadline.saturating_duration_since(switchboard_core::clock::now()));
        }
    }
}

pub(super) fn response_of(reply: Reply) -> Result<RawResponse> {
    match reply.into_parts() {
        ReplyParts { metadata: head, trailers, body: ReplyBody::One(item) } => {
            Ok(RawResponse { item: item.into_whole().into(), head, trailers, attempts: 1 })
        }
        _ => Err(Status::internal("a stream of replies to a call with one reply")),
    }
}

/// A one-way call: set options, then await it; it completes once the message is sent.
#[must_use = "a call does nothing until it is awaited"]
pub struct OnewayCall {
    begin: Begin,
    request: Result<Bytes>,
}

call_options!(OnewayCall, begin);

impl OnewayCall {
    pub(super) fn new(begin: Begin, request: Result<Bytes>) -> OnewayCall {
        OnewayCall { begin, request }
    }

    async fn send(mut self) -> Result<()> {
        let request = self.request?;
        if let Some(early_error) = self.begin.early_error.take() {
            return Err(early_error);
        }
        if let Target::Channel(channel) = &self.begin.target {
            let channel = channel.clone();
            match &*channel.0 {
                #[cfg(feature = "http")]
                ChannelKind::Http(http) => {
                    self.begin.options().oneway = true;
                    return http.unary(&self.begin, &request).await.map(drop);
                }
                ChannelKind::Combined(combined) => {
                    return Box::pin(combined.oneway(self.begin, request)).await;
                }
                ChannelKind::Fleet(fleet) => {
                    return Box::pin(fleet::oneway(fleet.shared().clone(), self.begin, request)).await;
                }
                ChannelKind::Local(local) => {
                    self.begin.options().oneway = true;
                    return local.call(&mut self.begin, RequestBody::One(request)).await.map(drop);
                }
                ChannelKind::Remote(_) => {}
            }
        }
        loop {
            let connection = self.begin.connection().await?;
            let Err(status) = self.begin.send_oneway(&connection, &request) else { return Ok(()) };
            match is_full(&status) {
                true => self.begin.room(&connection).await?,
                false => {
                    self.begin.target = Target::Channel(connection.retry_channel(&status).ok_or(status)?);
                }
            }
        }
    }
}

impl IntoFuture for OnewayCall {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A reply with its metadata; it derefs to the message.
#[derive(Clone, Debug)]
pub struct Response<R> {
    pub(super) message: R,
    pub(super) metadata: Metadata,
    pub(super) trailers: Metadata,
    pub(super) attempts: u32,
}

impl<R> Response<R> {
    /// Creates a response without metadata.
    #[inline]
    fn plain(message: R) -> Response<R> {
        Response { message, metadata: Metadata::new(), trailers: Metadata::new(), attempts: 1 }
    }

    /// Returns the message alone.
    pub fn into_inner(self) -> R {
        self.message
    }

    /// Number of attempts: more than one when a channel to several servers had to retry.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Metadata received before the message.
    pub fn meta(&self) -> &Metadata {
        &self.metadata
    }

    /// Bytes received beside the message.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.metadata.attachment()
    }

    /// Metadata received with the end.
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
        write!(f, "UnaryCall({})", self.raw.begin.method.path)
    }
}
