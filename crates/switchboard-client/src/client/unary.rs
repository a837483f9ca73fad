//! Calls with one reply, or none.

use super::{
    Begin, Channel, Target, call_options,
    calls::RawResponse,
    connection::{Connection, Request, is_full},
    fleet::{self, AttemptLog, EndpointPermit, Explained, Explanation},
    kind::Selection,
    remote,
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    fmt,
    future::{Future, IntoFuture, poll_fn, ready},
    mem,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};
use switchboard_core::{
    Compression, Payload, Result,
    compression::{Message, Packing},
    layer::BoxFuture,
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
        let is_logged = channel.as_ref().is_some_and(|channel| channel.0.logs_attempts());
        let only = (!is_logged).then(|| attempt_log.begin(before.channel.clone()));
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

/// The state of a call in memory that later calls reuse: builders and futures move the call as one word.
struct PooledCall(Option<Box<RawCall>>);

/// Maximum number of reusable boxes per thread, of 200 bytes each.
const POOLED_MAX: usize = 256;

// Of the thread, because calls of any channel may use the memory again; in the channel it would need a lock.
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
                PooledCall(Some(pooled))
            }
            None => {
                let stage = Stage::Start;
                PooledCall(Some(Box::new(RawCall { begin, request, stage, packing: None, deadline: None })))
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
    /// Compression of the messages of the call, if any; a box, because calls are moved.
    packing: Option<Box<Packing>>,
    /// Deadline of a call that may be sent once more after its server has refused it.
    deadline: Option<Instant>,
}

enum Stage {
    Start,
    /// The call is sent by this thread alone, without a further allocation.
    Waiting(Sent),
    /// The call is sent by a future of its channel.
    Boxed(BoxFuture<'static, Result<RawResponse>>),
    Done,
}

/// A call that was sent; dropping it before its reply cancels it.
pub(super) struct Sent {
    connection: Arc<Connection>,
    id: Option<ClientCallId>,
    /// The permit of the fleet endpoint that was selected for it.
    permit: Option<EndpointPermit>,
}

impl Sent {
    #[inline]
    pub(super) fn new(connection: Arc<Connection>, id: ClientCallId, permit: Option<EndpointPermit>) -> Sent {
        Sent { connection, id: Some(id), permit }
    }

    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<RawResponse>> {
        let id = self.id.expect("a sent call has its id until its reply");
        let response = std::task::ready!(self.connection.poll_unary(id, cx));
        self.id = None;
        Poll::Ready(response)
    }
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
        self.deadline = None;
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
                Stage::Waiting(sent) => {
                    let response = std::task::ready!(sent.poll(cx));
                    let again = match &response {
                        Err(status) if sent.permit.is_none() => sent.connection.second_channel(status),
                        _ => None,
                    };
                    match (sent.permit.take(), response) {
                        (None, Err(_)) if again.is_some() => self.begin_again(again)?,
                        (Some(permit), Err(status)) => self.resume(permit, Some(status))?,
                        (permit, response) => {
                            if let Some(permit) = permit {
                                permit.succeeded();
                            }
                            self.stage = Stage::Done;
                            return Poll::Ready(response);
                        }
                    }
                }
                Stage::Boxed(response) => {
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
        if let Some(early_error) = self.begin.early_error.take() {
            return Err(early_error);
        }
        if let (Target::Channel(channel), Some(message)) = (&self.begin.target, &self.request) {
            match channel.0.select(&self.begin, message) {
                Selection::Ready(permit, connection) => {
                    match self.begin.send(&connection, message, &mut self.packing, cx.waker()) {
                        Ok(id) => {
                            self.stage = Stage::Waiting(Sent::new(connection, id, Some(permit)));
                            return Ok(true);
                        }
                        // The call waits for space on the endpoint's channel.
                        Err(status) if is_full(&status) => self.resume(permit, None)?,
                        Err(status) => self.resume(permit, Some(status))?,
                    }
                    return Ok(false);
                }
                Selection::Chosen(permit) => {
                    self.resume(permit, None)?;
                    return Ok(false);
                }
                Selection::Unselected => {}
                Selection::Rejected(status) => return Err(status),
            }
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
                if connection.may_refuse_sent_calls() {
                    self.deadline = self.begin.deadline_if_any();
                } else {
                    // Its memory is reused by the next call, while it is still in the cache.
                    self.request = None;
                }
                self.stage = Stage::Waiting(Sent::new(connection, id, None));
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

    /// Continues a call of a fleet in a box: at the endpoint that was selected, or after its failure there.
    #[cold]
    fn resume(&mut self, permit: EndpointPermit, failure: Option<Status>) -> Result<()> {
        self.packing = None;
        let request = self.take_request()?;
        self.stage = Stage::Boxed(Box::pin(fleet::resume(permit, failure, self.begin.take(), request)));
        Ok(())
    }

    /// Sends a call that its server refused before it began once more, by this channel, within the time that is left.
    #[cold]
    fn begin_again(&mut self, channel: Option<Channel>) -> Result<()> {
        self.packing = None;
        let request = self.take_request()?;
        let mut begin = self.begin.take();
        begin.target = channel.map_or(Target::Nowhere, Target::Channel);
        begin.end_at(self.deadline.take());
        self.stage = Stage::Boxed(Box::pin(remote::second_unary(begin, request)));
        Ok(())
    }

    /// Begins a call that its channel sends: it waits for a connection or for space on one, or has no connection.
    #[cold]
    fn begin_boxed(&mut self) -> Result<Stage> {
        let request = self.take_request()?;
        let begin = self.begin.take();
        match &begin.target {
            Target::Channel(channel) => Ok(Stage::Boxed(channel.0.clone().unary(begin, request))),
            Target::Connection(_) => Ok(Stage::Boxed(Box::pin(remote::unary(begin, request)))),
            Target::Nowhere => Err(Status::internal("a call was begun twice")),
        }
    }

    /// Moves the call to another connection, if it surely did not begin on this one; the timeout starts again.
    #[cold]
    fn moved(&mut self, connection: &Connection, status: &Status) -> Option<Stage> {
        let channel = connection.retry_channel(status)?;
        self.begin.target = Target::Channel(channel);
        self.begin_boxed().ok()
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
}

impl IntoFuture for OnewayCall {
    type Output = Result<()>;
    type IntoFuture = BoxFuture<'static, Result<()>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let request = match (self.request, self.begin.early_error.take()) {
            (Ok(request), None) => request,
            (Err(status), _) | (Ok(_), Some(status)) => return Box::pin(ready(Err(status))),
        };
        match &self.begin.target {
            Target::Channel(channel) => channel.0.clone().oneway(self.begin, request),
            Target::Connection(_) | Target::Nowhere => Box::pin(remote::oneway(self.begin, request)),
        }
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
