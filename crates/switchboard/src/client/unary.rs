//! Calls with one reply, or none.

use super::{
    Begin, Target, Way, call_options,
    calls::Answer,
    connection::{Connection, Request},
    fleet::{self, Explained, Explanation, First, Found, Ticket, Trail},
};
use crate::{
    Codec, Compression, Metadata, Payload, Reply, Result, Status,
    call::{ReplyBody, ReplyParts, RequestBody},
    codec::Pieces,
    compression::{Message, Packing},
    guard,
    stream::check_reply,
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
use switchboard_wire::wire::{CallId, Encoding};

/// A unary call: set options, then await it.
///
/// Cancel safe in the sense that dropping it ends the call on both sides.
#[must_use = "a call does nothing until it is awaited"]
pub struct UnaryCall<R> {
    raw: Kept,
    decode: fn(Codec, Bytes) -> Result<R>,
}

call_options!(UnaryCall<R>, raw.begin);

impl<R> UnaryCall<R> {
    /// Gives the call a key, the metadata `idempotency-key`, by which servers that
    /// [keep answers](crate::Server::result_cache) of the method know it again, so that it runs once however often it
    /// is sent: 1 to 128 bytes that no other call has. A channel to several servers sends it again, to the same
    /// server, where it could not know otherwise whether the call ran; not on kiss, sofa and Thrift without THeader,
    /// which have no place for it. Set it only where the servers keep answers.
    #[must_use = "a call does nothing until it is awaited"]
    pub fn idempotency_key(mut self, key: impl Into<Bytes>) -> Self {
        self.raw.begin.set_key(key);
        self
    }

    /// What it is made of.
    pub(super) fn into_parts(mut self) -> Result<(Begin, Bytes, Decode<R>)> {
        let request = self.raw.take_request()?;
        Ok((self.raw.begin.take(), request, self.decode))
    }

    /// Sends these bytes beside the message, which a channel on baidu_std or hulu does and one to a service of this
    /// process; others fail the call with `Unimplemented`.
    pub fn attachment(mut self, bytes: impl Into<Bytes>) -> Self {
        self.raw.begin.metadata.set_attachment(bytes);
        self
    }

    /// Sends the call and tells, beside what came of it, what the channel knew before and what became of each attempt,
    /// at the limits of the server too, where that is Switchboard and the wire carries metadata.
    /// Costs more than a call; for people who ask why.
    ///
    /// Cancel safe as the call itself.
    pub async fn explained(mut self) -> Explained<R> {
        let channel = match &self.raw.begin.target {
            Target::Channel(channel) => Some(channel.clone()),
            Target::Connection(connection) => connection.channel(),
            Target::Nowhere => None,
        };
        let (method, trail) = (self.raw.begin.method.path, Trail::new());
        let key = self.raw.begin.asked.as_ref().and_then(|asked| asked.hash_key.clone());
        let mut before = channel.as_ref().map_or_else(
            || Explanation::of_nothing(method),
            |channel| channel.explain(method, key.as_deref()),
        );
        self.raw.begin.asked().trail = Some(trail.clone());
        // Without it less is told.
        let _ = self.raw.begin.metadata.insert(guard::ASKED.0, guard::ASKED.1);
        // A fleet notes its attempts itself; elsewhere there is one.
        let is_fleet = channel.as_ref().is_some_and(|channel| matches!(&*channel.0, Way::Fleet(_)));
        let only = (!is_fleet).then(|| trail.begin(before.channel.clone()));
        let outcome = (&mut self).await;
        if let Some(at) = only {
            trail.end(at, outcome.as_ref().map(|answer| [&answer.metadata, &answer.trailers]));
        }
        let (attempts, took) = trail.take();
        // The balancer may have chosen otherwise when it was asked for the call.
        for candidate in before.candidates.iter_mut().filter(|_| !attempts.is_empty()) {
            candidate.chosen = candidate.address == attempts[0].address;
        }
        Explained { before, attempts, took, outcome }
    }

    #[inline]
    pub(super) fn new(begin: Begin, request: Result<Payload>, decode: fn(Codec, Bytes) -> Result<R>) -> Self {
        UnaryCall { raw: Kept::new(begin, request), decode }
    }
}

#[cfg(feature = "proto")]
impl<R> UnaryCall<R>
where
    R: buffa::Message + buffa::HasMessageView + serde::Serialize + serde::de::DeserializeOwned,
{
    /// Leaves the reply encoded, to be [viewed](crate::Encoded::view) in place: a message with many strings is then
    /// read without an allocation.
    ///
    /// ```ignore
    /// let reply = client.query(&request).encoded().await?;
    /// let posts = reply.view()?;
    /// ```
    pub fn encoded(self) -> UnaryCall<crate::Encoded<R>> {
        UnaryCall { raw: self.raw, decode: crate::Encoded::received }
    }
}

impl<R> Future for UnaryCall<R> {
    type Output = Result<Response<R>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let UnaryCall { raw, decode } = &mut *self;
        // The usual answer, a message and nothing beside it, has a way of its own: on the long way it would be moved
        // through four results.
        if let Some(item) = raw.plain_reply() {
            check_reply(&item, raw.begin.reply_bytes_max)?;
            let message = decode(raw.begin.codec, item)?;
            return Poll::Ready(Ok(Response::plain(message)));
        }
        let Answer { item, head, trailers, attempts } = std::task::ready!(raw.poll(cx))?;
        let item = raw.packing.as_deref().unwrap_or(&Packing::OFF).unpack(item)?;
        check_reply(&item, raw.begin.reply_bytes_max)?;
        let message = decode(raw.begin.codec, item)?;
        Poll::Ready(Ok(Response { message, metadata: head, trailers, attempts }))
    }
}

/// Sends a call and waits for its answer, which is not compressed any more.
pub(super) async fn run(begin: Begin, request: Bytes) -> Result<Answer> {
    let mut raw = Kept::new(begin, Ok(request.into()));
    let answer = poll_fn(|cx| raw.poll(cx)).await?;
    let item = raw.packing.as_deref().unwrap_or(&Packing::OFF).unpack(answer.item)?;
    Ok(Answer { item: item.into(), ..answer })
}

/// Reads a reply as a type.
pub(super) type Decode<R> = fn(Codec, Bytes) -> Result<R>;

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// The memory of a call, used again by the calls to come: a call is moved by each of the builders and futures that it
/// passes through, as one word.
struct Kept(Option<Box<Raw>>);

/// Places that a thread keeps, 200 bytes each.
const KEPT_MAX: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "what a call holds is the box")]
    static FREE: RefCell<Vec<Box<Raw>>> = const { RefCell::new(Vec::new()) };
}

impl Kept {
    #[inline]
    fn new(mut begin: Begin, request: Result<Payload>) -> Kept {
        let request = request.map_err(|status| begin.mistake.get_or_insert(status)).ok();
        match FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten() {
            Some(mut kept) => {
                kept.begin = begin;
                kept.request = request;
                kept.stage = Stage::Start;
                kept.moved_on = false;
                Kept(Some(kept))
            }
            None => {
                let stage = Stage::Start;
                Kept(Some(Box::new(Raw { begin, request, stage, moved_on: false, packing: None })))
            }
        }
    }
}

impl Deref for Kept {
    type Target = Raw;

    #[inline]
    fn deref(&self) -> &Raw {
        self.0.as_deref().expect("taken when it is dropped")
    }
}

impl DerefMut for Kept {
    #[inline]
    fn deref_mut(&mut self) -> &mut Raw {
        self.0.as_deref_mut().expect("taken when it is dropped")
    }
}

impl Drop for Kept {
    #[inline]
    fn drop(&mut self) {
        let Some(mut raw) = self.0.take() else { return };
        raw.clear();
        // A thread that ends keeps nothing any more.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT_MAX {
                free.push(raw);
            }
        });
    }
}

/// A unary call before its reply is read as a type.
struct Raw {
    begin: Begin,
    /// What is to be sent, until it is; none where it could not be written, which is the mistake of `begin`.
    request: Option<Payload>,
    stage: Stage,
    /// The call was handed on once already.
    moved_on: bool,
    /// How the messages of the call are compressed, if they are; a word, since calls are moved.
    packing: Option<Box<Packing>>,
}

enum Stage {
    Start,
    Connecting(BoxFuture<(Sent, Packing)>),
    Waiting(Sent),
    Local(BoxFuture<Answer>),
    Done,
}

/// A call that was sent; dropped before its answer, it is cancelled.
struct Sent {
    connection: Arc<Connection>,
    id: Option<CallId>,
    /// The place in a fleet that was chosen for it.
    ticket: Option<Ticket>,
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
    /// Ends the call, and gives back what it holds.
    #[inline]
    fn clear(&mut self) {
        // The usual call has given back all but its metadata, and what is looked at first need not be dropped.
        if !matches!(self.stage, Stage::Done) {
            self.stage = Stage::Done;
        }
        if self.request.is_some() {
            self.request = None;
        }
        if self.packing.is_some() {
            self.packing = None;
        }
        let Begin { target, metadata, mistake, asked, .. } = &mut self.begin;
        if !matches!(target, Target::Nowhere) {
            *target = Target::Nowhere;
        }
        *metadata = Metadata::new();
        *mistake = None;
        *asked = None;
    }

    /// What is to be sent.
    ///
    /// # Errors
    /// Why it could not be written.
    fn take_request(&mut self) -> Result<Bytes> {
        let begun_twice = || Status::internal("a call was begun twice");
        match self.request.take() {
            Some(request) => Ok(request.into_whole()),
            None => Err(self.begin.mistake.take().unwrap_or_else(begun_twice)),
        }
    }

    /// The reply, if it is there and came with nothing beside it.
    #[inline(always)]
    fn plain_reply(&mut self) -> Option<Bytes> {
        let Stage::Waiting(sent) = &mut self.stage else { return None };
        let item = sent.connection.take_plain_reply(sent.id?)?;
        sent.id = None;
        if let Some(ticket) = sent.ticket.take() {
            ticket.answered();
        }
        self.stage = Stage::Done;
        Some(item)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer>> {
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
                    let id = sent.id.expect("a sent call has its number until it is answered");
                    let answer = std::task::ready!(sent.connection.poll_unary(id, cx));
                    sent.id = None;
                    match (sent.ticket.take(), answer) {
                        (Some(ticket), Err(status)) => self.tried(ticket, status)?,
                        (ticket, answer) => {
                            if let Some(ticket) = ticket {
                                ticket.answered();
                            }
                            self.stage = Stage::Done;
                            return Poll::Ready(answer);
                        }
                    }
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

    /// Sends the call if there is a connection, else begins to wait for one; true once it is sent.
    #[inline(always)]
    fn begin(&mut self, cx: &Context<'_>) -> Result<bool> {
        let (Target::Connection(connection), Some(message), None) =
            (&self.begin.target, &self.request, &self.begin.mistake)
        else {
            return self.begin_elsewhere(cx);
        };
        let sent = self.begin.send(connection, message, &mut self.packing, cx.waker());
        self.sent(sent)
    }

    /// The same where no connection was found when the call was made.
    fn begin_elsewhere(&mut self, cx: &Context<'_>) -> Result<bool> {
        if let Target::Channel(channel) = &self.begin.target
            && let Way::Fleet(fleet) = &*channel.0
            && self.begin.mistake.is_none()
            && let Some(message) = &self.request
        {
            if self.begin.trail().is_some() {
                self.go_on(First::Nothing)?;
                return Ok(false);
            }
            let whole = message.one().unwrap_or_else(|| message.whole().into());
            let first = match fleet.find(&self.begin, &whole) {
                Found::Nobody => First::Nothing,
                Found::Refused(status) => return Err(status),
                Found::Chosen(ticket) => First::Chosen(ticket),
                Found::Ready(ticket, connection) => {
                    match self.begin.send(&connection, message, &mut self.packing, cx.waker()) {
                        Ok(id) => {
                            let ticket = Some(ticket);
                            self.stage = Stage::Waiting(Sent { connection, id: Some(id), ticket });
                            return Ok(true);
                        }
                        Err(status) => First::Failed(ticket, status),
                    }
                }
            };
            self.go_on(first)?;
            return Ok(false);
        }
        if let Some(mistake) = self.begin.mistake.take() {
            return Err(mistake);
        }
        self.stage = self.begin_slowly()?;
        Ok(false)
    }

    /// Waits for the answer of a call that its connection took, else begins anew on another.
    #[inline(always)]
    fn sent(&mut self, sent: Result<CallId>) -> Result<bool> {
        let Target::Connection(connection) = mem::replace(&mut self.begin.target, Target::Nowhere) else {
            return Err(Status::internal("a call was begun twice"));
        };
        match sent {
            Ok(id) => {
                // Its memory is for the next one, while it is still in the cache.
                self.request = None;
                self.stage = Stage::Waiting(Sent { connection, id: Some(id), ticket: None });
                Ok(true)
            }
            Err(status) => {
                self.stage = self.moved(&connection, &status).ok_or(status)?;
                Ok(false)
            }
        }
    }

    /// An endpoint of a fleet did not answer.
    #[cold]
    fn tried(&mut self, ticket: Ticket, status: Status) -> Result<()> {
        self.go_on(First::Failed(ticket, status))
    }

    /// The rest of a fleet's call, which takes a while.
    #[cold]
    fn go_on(&mut self, first: First) -> Result<()> {
        self.packing = None;
        let request = self.take_request()?;
        let begin = self.begin.take();
        let Target::Channel(channel) = &begin.target else {
            return Err(Status::internal("a call was begun twice"));
        };
        let Way::Fleet(fleet) = &*channel.0 else {
            return Err(Status::internal("only fleets have several endpoints"));
        };
        let shared = fleet.shared().clone();
        self.stage = Stage::Local(Box::pin(fleet::unary(shared, begin, request, first)));
        Ok(())
    }

    /// Through a channel: connects first, or hands the call to a service of this process.
    #[cold]
    fn begin_slowly(&mut self) -> Result<Stage> {
        self.moved_on = true;
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
            Way::Remote(_) => Ok(Stage::Connecting(Box::pin(connect_and_send(begin, request)))),
            #[cfg(feature = "http")]
            Way::Http(_) => Ok(Stage::Local(Box::pin(async move {
                let Way::Http(http) = &*channel.0 else { unreachable!("matched above") };
                http.unary(&begin, &request).await
            }))),
            Way::Combined(_) => Ok(Stage::Local(Box::pin(async move {
                let Way::Combined(combined) = &*channel.0 else { unreachable!("matched above") };
                combined.unary(begin, request).await
            }))),
            Way::Fleet(_) => Err(Status::internal("a fleet sends its calls itself")),
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

async fn connect_and_send(mut begin: Begin, request: Bytes) -> Result<(Sent, Packing)> {
    let connection = begin.connection().await?;
    let sent = poll_fn(|cx| Poll::Ready(begin.send_packed(&connection, &request, cx.waker())));
    let (id, packing) = sent.await?;
    Ok((Sent { connection, id: Some(id), ticket: None }, packing))
}

impl Begin {
    /// Takes the call out, for ways that keep it.
    fn take(&mut self) -> Begin {
        Begin {
            target: mem::replace(&mut self.target, Target::Nowhere),
            method: self.method,
            codec: self.codec,
            compression: self.compression,
            timeout: self.timeout,
            reply_bytes_max: self.reply_bytes_max,
            metadata: mem::take(&mut self.metadata),
            mistake: self.mistake.take(),
            asked: self.asked.take(),
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

    /// Sends a unary call, compressed if that is wanted; what its reply is to be read by goes into `packing` then.
    #[inline(always)]
    fn send(
        &self,
        connection: &Connection,
        message: &Payload,
        packing: &mut Option<Box<Packing>>,
        waker: &Waker,
    ) -> Result<CallId> {
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

    /// Sends a unary call, compressed; with its number what its reply is to be read by.
    #[cold]
    fn send_packed(
        &self,
        connection: &Connection,
        request: &Bytes,
        waker: &Waker,
    ) -> Result<(CallId, Packing)> {
        let packing = connection.packing(self.method, self.compression);
        let Message { bytes, compressed } = packing.pack(request.clone());
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        Ok((connection.unary(&request, (&bytes).into(), waker)?, packing))
    }

    fn send_oneway(&self, connection: &Connection, request: &Bytes) -> Result<()> {
        let packing = connection.packing(self.method, self.compression);
        let Message { bytes, compressed } = packing.pack(request.clone());
        let request = Request { encoding: packing.encoding(), compressed, ..self.request() };
        connection.oneway(&request, (&bytes).into())
    }

    /// A connection, within the call's deadline; time spent here is taken off the timeout.
    pub(super) async fn connection(&mut self) -> Result<Arc<Connection>> {
        let channel = match &self.target {
            Target::Connection(connection) => return Ok(connection.clone()),
            Target::Channel(channel) => channel,
            Target::Nowhere => return Err(Status::internal("a call was begun twice")),
        };
        let Way::Remote(pool) = &*channel.0 else {
            return Err(Status::internal("only native channels have native connections"));
        };
        let deadline = self.deadline(crate::clock::now());
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

    /// Leaves the call the time until then.
    pub(super) fn end_at(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.timeout = Some(deadline.saturating_duration_since(crate::clock::now()));
        }
    }
}

pub(super) fn answer_of(reply: Reply) -> Result<Answer> {
    match reply.into_parts() {
        ReplyParts { metadata: head, trailers, body: ReplyBody::One(item) } => {
            Ok(Answer { item: item.into_whole().into(), head, trailers, attempts: 1 })
        }
        _ => Err(Status::internal("a stream of replies where one belongs")),
    }
}

/// A one-way call: set options, then await it; it is done once the message is on its way.
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
        if let Some(mistake) = self.begin.mistake.take() {
            return Err(mistake);
        }
        if let Target::Channel(channel) = &self.begin.target {
            let channel = channel.clone();
            match &*channel.0 {
                #[cfg(feature = "http")]
                Way::Http(http) => {
                    self.begin.asked().oneway = true;
                    return http.unary(&self.begin, &request).await.map(drop);
                }
                Way::Combined(combined) => {
                    return Box::pin(combined.oneway(self.begin, request)).await;
                }
                Way::Fleet(fleet) => {
                    return Box::pin(fleet::oneway(fleet.shared().clone(), self.begin, request)).await;
                }
                Way::Local(local) => {
                    self.begin.asked().oneway = true;
                    return local.call(&mut self.begin, RequestBody::One(request)).await.map(drop);
                }
                Way::Remote(_) => {}
            }
        }
        let connection = self.begin.connection().await?;
        let Err(status) = self.begin.send_oneway(&connection, &request) else { return Ok(()) };
        self.begin.target = Target::Channel(connection.other_way(&status).ok_or(status)?);
        let connection = self.begin.connection().await?;
        self.begin.send_oneway(&connection, &request)
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
    pub(super) attempts: u32,
}

impl<R> Response<R> {
    /// A message and nothing beside it.
    #[inline]
    fn plain(message: R) -> Response<R> {
        Response { message, metadata: Metadata::new(), trailers: Metadata::new(), attempts: 1 }
    }

    /// The message alone.
    pub fn into_inner(self) -> R {
        self.message
    }

    /// How often the call was sent: more than once when a channel to several servers had to try again.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Metadata that came before the message.
    pub fn meta(&self) -> &Metadata {
        &self.metadata
    }

    /// Bytes that came beside the message.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.metadata.attachment()
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
        write!(f, "UnaryCall({})", self.raw.begin.method.path)
    }
}
