//! A call as layers and services see it: untyped, and independent of the wire.

mod caller;
mod ended;
mod extensions;
mod messages;
mod peer;
mod reply;

pub use caller::Caller;
pub use extensions::Extensions;
pub use peer::{Identity, Peer};
pub use reply::Reply;
#[doc(hidden)]
pub use reply::{ReplyBody, ReplyParts, Streamed, compressed};

#[cfg(feature = "proto")]
use crate::payload::PARTS_FROM;
use crate::{
    Pusher, Result,
    compression::{Message, Packing},
    queue::{Queue, RawReceiver},
    trace::{self, Trace},
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use switchboard_wire::{Codec, Metadata, MethodInfo, ServiceInfo, Status, WireId, WireSet};

/// One call for a handler.
#[derive(Debug)]
pub struct Call {
    pub(crate) method: u16,
    /// Also holds the messages: the call stays two words as it moves through guards and layers.
    pub(crate) cx: Cx,
}

/// The messages of a request.
#[doc(hidden)]
// closed: one message or many
pub enum RequestBody {
    /// A single message.
    One(Bytes),
    /// Messages of a stream, as they arrive.
    Many(Arc<Queue>),
}

/// The context of a call: everything a handler can read besides the messages, and what it adds to the reply.
///
/// It is one word, so that the call is cheap to move to the handler; the allocation behind it is reused.
pub struct Cx(Option<Box<Context>>);

struct Context {
    codec: Codec,
    /// The only request message is compressed.
    compressed: bool,
    oneway: bool,
    packing: Packing,
    /// The request, until it is [taken](Call::into_one).
    body: Option<RequestBody>,
    /// The reply, once [`Reply::one`] has stored it.
    stored_reply: Option<ReplyParts>,
    peer: Arc<Peer>,
    /// The caller if `has_caller`, otherwise the caller of the previous call that used this context.
    caller: Option<Arc<Caller>>,
    has_caller: bool,
    service: &'static ServiceInfo,
    method: &'static MethodInfo,
    /// Time of arrival, if its connection has read the clock for it.
    arrived: Option<Instant>,
    deadline: Option<Instant>,
    metadata: Metadata,
    /// The request message, if it is large: a reply may share parts of it.
    #[cfg(feature = "proto")]
    request: Option<Bytes>,
    trace: Option<Arc<Trace>>,
    reply: ReplyStore,
    /// Allocated for calls that have values.
    extensions: Option<Box<Extensions>>,
}

/// Contexts that a thread keeps for later calls. They keep their peers and callers: the next call usually has the same
/// ones, and then does not increment their reference counts again.
const CONTEXTS_MAX: usize = 16;

// Of the thread: a call is created by one crate and dropped by a handler, and a lock or an allocation for each would
// cost more than the rest of its context.
thread_local! {
    #[expect(clippy::vec_box, reason = "a call holds the box itself")]
    static CONTEXTS: RefCell<Vec<Box<Context>>> = const { RefCell::new(Vec::new()) };
}

/// The storage of the reply's metadata.
enum ReplyStore {
    /// In the context: if the handler fails, [`Cx::failed`] moves the metadata to the status.
    Local(ReplyCell),
    /// Shared with the task that sends the response, so that it outlives a handler that fails.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only HTTP shares it"))]
    Shared(Arc<ReplyCell>),
}

/// Metadata that a handler adds to its reply; empty metadata needs no allocation.
#[derive(Default)]
#[doc(hidden)]
pub struct ReplyCell {
    reply: Mutex<Option<Box<ReplyMetadata>>>,
}

/// The metadata before and after the messages of a reply.
#[derive(Default)]
#[doc(hidden)]
pub struct ReplyMetadata {
    pub head: Metadata,
    /// For a stream, whose head may be sent before its first message.
    pub(crate) is_head_complete: bool,
    pub trailers: Metadata,
}

impl Call {
    /// Creates a call of the method with this index in its service.
    #[inline]
    #[doc(hidden)]
    pub fn new(method: u16, codec: Codec, body: RequestBody, mut cx: Cx) -> Call {
        let context = cx.context_mut();
        context.codec = codec;
        context.body = Some(body);
        Call { method, cx }
    }

    /// Index of the method in [`ServiceInfo::methods`]; for an undeclared method, the index of its kind.
    #[inline]
    pub fn method(&self) -> u16 {
        self.method
    }

    /// Returns the full name of the method, `package.Service/Method`.
    pub fn full_name(&self) -> String {
        match self.cx.undeclared_name() {
            Some(name) => name.to_owned(),
            None => format!("{}/{}", self.cx.service().name, self.cx.method().name),
        }
    }

    /// Returns the codec of the request messages, which the reply must use too.
    #[inline]
    pub fn codec(&self) -> Codec {
        self.cx.codec()
    }

    /// Returns everything except the messages.
    pub fn cx(&self) -> &Cx {
        &self.cx
    }

    /// Returns everything except the messages, mutably.
    pub fn cx_mut(&mut self) -> &mut Cx {
        &mut self.cx
    }

    /// Returns the only request message.
    ///
    /// # Errors
    /// `Internal` if the request is a stream; the runtime has checked the kind of the method before. A compressed
    /// message can be too large or malformed.
    #[inline]
    pub fn into_one(self) -> Result<(Bytes, Cx)> {
        let mut cx = self.cx;
        let context = cx.context_mut();
        match context.body.take() {
            Some(RequestBody::One(bytes)) => {
                let message = Message { bytes, compressed: context.compressed, codec: None };
                let bytes = match context.packing.unpack(message) {
                    Ok(bytes) => bytes,
                    Err(status) => return Err(cx.failed(status)),
                };
                #[cfg(feature = "proto")]
                let cx = cx.with_request(&bytes);
                Ok((bytes, cx))
            }
            _ => Err(Status::internal("the request is a stream, and the method takes one message")),
        }
    }

    /// Returns the stream of request messages; a single message is a stream of one.
    pub fn into_many(self) -> (RawReceiver, Cx) {
        let mut cx = self.cx;
        let context = cx.context_mut();
        let queue = match context.body.take().expect(TAKEN) {
            RequestBody::Many(queue) => queue,
            RequestBody::One(bytes) => {
                let message = Message { bytes, compressed: context.compressed, codec: None };
                Arc::new(Queue::of_one(message, context.packing))
            }
        };
        (RawReceiver(queue), cx)
    }

    /// Returns the messages of the request.
    #[doc(hidden)]
    pub fn body(&self) -> &RequestBody {
        self.cx.context().body.as_ref().expect(TAKEN)
    }

    /// Returns the messages of the request, mutably.
    #[doc(hidden)]
    pub fn body_mut(&mut self) -> &mut RequestBody {
        self.cx.context_mut().body.as_mut().expect(TAKEN)
    }
}

/// The messages of a call can be taken only once.
const TAKEN: &str = "the messages of a call are taken only once";

/// Returns the status for a wire that does not support attachments.
#[cold]
#[doc(hidden)]
pub fn no_attachments(wire: &str) -> Status {
    Status::unimplemented(format!("attachments are not supported on {wire}; use baidu_std"))
}

/// The service name of methods that no service declares.
const ANY: &str = "*";

/// The metadata by which a call chooses whether unknown fields are refused.
const STRICT_FIELDS: &str = "switchboard-strict-fields";

impl Cx {
    #[inline]
    #[doc(hidden)]
    pub fn new(
        peer: &Arc<Peer>,
        service: &'static ServiceInfo,
        method: &'static MethodInfo,
        deadline: Option<Instant>,
        metadata: Metadata,
    ) -> Cx {
        let trace = trace::begin(&metadata, (peer.wire(), &peer.address), service, method);
        if let Some(mut kept) = CONTEXTS.with_borrow_mut(Vec::pop) {
            if !Arc::ptr_eq(&kept.peer, peer) {
                kept.peer = peer.clone();
            }
            kept.compressed = false;
            kept.oneway = false;
            kept.packing = Packing::OFF;
            kept.service = service;
            kept.method = method;
            kept.arrived = None;
            kept.deadline = deadline;
            kept.metadata = metadata;
            kept.trace = trace;
            return Cx(Some(kept));
        }
        Cx(Some(Box::new(Context {
            codec: Codec::Proto,
            compressed: false,
            oneway: false,
            packing: Packing::OFF,
            body: None,
            stored_reply: None,
            peer: peer.clone(),
            caller: None,
            has_caller: false,
            service,
            method,
            arrived: None,
            deadline,
            metadata,
            #[cfg(feature = "proto")]
            request: None,
            trace,
            reply: ReplyStore::default(),
            extensions: None,
        })))
    }

    /// Sets how the messages are compressed, and whether the only request message is.
    #[inline]
    #[doc(hidden)]
    pub fn set_packing(&mut self, packing: Packing, compressed: bool) {
        let context = self.context_mut();
        context.packing = packing;
        context.compressed = compressed;
    }

    /// Sets the time of arrival; calls that share a reading of the clock have the same.
    #[inline]
    #[doc(hidden)]
    pub fn set_arrived(&mut self, arrived: Instant) {
        self.context_mut().arrived = Some(arrived);
    }

    /// Returns the time of arrival; the current time if the clock was not read for the call.
    #[inline]
    #[doc(hidden)]
    pub fn arrived(&self) -> Instant {
        self.context().arrived.unwrap_or_else(crate::clock::now)
    }

    /// Sets whether the caller expects no reply.
    #[inline]
    #[doc(hidden)]
    pub fn set_oneway(&mut self, oneway: bool) {
        self.context_mut().oneway = oneway;
    }

    /// Returns whether the caller expects no reply: the call was sent one-way, or the method [never has
    /// one](MethodInfo::oneway).
    pub fn is_oneway(&self) -> bool {
        self.context().oneway || self.method().oneway
    }

    #[cfg(feature = "proto")]
    #[inline]
    fn with_request(mut self, request: &Bytes) -> Cx {
        if request.len() >= PARTS_FROM {
            self.context_mut().request = Some(request.clone());
        }
        self
    }

    /// Returns the request message if it is large.
    #[cfg(feature = "proto")]
    pub(crate) fn request(&self) -> Option<Bytes> {
        self.context().request.clone()
    }

    /// Returns how the messages of the reply are compressed.
    #[doc(hidden)]
    pub fn packing(&self) -> Packing {
        self.context().packing
    }

    #[inline]
    fn context(&self) -> &Context {
        self.0.as_deref().expect("it is only taken when the call is over")
    }

    #[inline]
    fn context_mut(&mut self) -> &mut Context {
        self.0.as_deref_mut().expect("it is only taken when the call is over")
    }

    /// Returns the codec of the request messages, which the reply must use too.
    #[inline]
    pub fn codec(&self) -> Codec {
        self.context().codec
    }

    /// Returns whether fields of the request that its type does not have are refused: the value of the metadata
    /// `switchboard-strict-fields`, `true` or `false`, else that of
    /// `Server::strict_fields`. False for codecs other than JSON and MessagePack.
    /// Generated code calls this; a [`Service`](crate::Service) that decodes its messages itself may.
    ///
    /// # Errors
    /// `InvalidArgument` for any other text in that metadata.
    #[inline]
    pub fn refuses_unknown_fields(&self) -> Result<bool> {
        match self.codec() {
            Codec::Json | Codec::MsgPack => self.chosen_strictness(),
            _ => Ok(false),
        }
    }

    fn chosen_strictness(&self) -> Result<bool> {
        match self.metadata().value(STRICT_FIELDS).map(|value| &value[..]) {
            None => Ok(self.peer().strict_fields),
            Some(b"true") => Ok(true),
            Some(b"false") => Ok(false),
            Some(other) => {
                let other = String::from_utf8_lossy(&other[..other.len().min(64)]);
                Err(Status::invalid_argument(format!("{STRICT_FIELDS} is {other:?}; it is true or false")))
            }
        }
    }

    /// Returns the metadata that the caller added to the call.
    pub fn metadata(&self) -> &Metadata {
        &self.context().metadata
    }

    /// Returns bytes that the caller sent besides the message, uncompressed and at most as large as a message. Only
    /// baidu_std and hulu carry them, and calls inside this process.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.metadata().attachment()
    }

    /// Returns the metadata of the call, mutably, for layers that add to it.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.context_mut().metadata
    }

    /// Returns the typed values that layers added to the call, and those of its server or channel.
    pub fn extensions(&self) -> &Extensions {
        let context = self.context();
        let own = context.extensions.as_deref();
        own.or(context.peer.extensions.as_deref()).unwrap_or(Extensions::EMPTY)
    }

    /// Returns the typed values of the call, mutably, for a [layer](crate::Layer) that adds one.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        let Context { extensions, peer, .. } = self.context_mut();
        extensions.get_or_insert_with(|| Box::new(Extensions::with_shared(peer.extensions.clone())))
    }

    /// Returns the trace of the call: from `traceparent` of the request ([W3C Trace Context]), or a new one if the
    /// request has none and spans are recorded here. Calls that the handler makes join the trace automatically.
    ///
    /// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
    pub fn trace(&self) -> Option<&Trace> {
        self.context().trace.as_deref()
    }

    /// Makes the call part of this trace from now on.
    #[cfg(feature = "otlp")]
    #[doc(hidden)]
    pub fn set_trace(&mut self, trace: Arc<Trace>) {
        self.context_mut().trace = Some(trace);
    }

    /// Returns the trace for the task that polls the handler.
    #[inline]
    #[doc(hidden)]
    pub fn shared_trace(&self) -> Option<Arc<Trace>> {
        self.context().trace.clone()
    }

    /// Returns the time by which the call must have ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.context().deadline
    }

    /// Returns the time that is left; zero after the deadline, `None` without one.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_duration_since(crate::clock::now()))
    }

    /// Returns the peer that sent the call.
    pub fn peer(&self) -> &Peer {
        &self.context().peer
    }

    /// Returns a handle that sends the peer messages that it did not request, on the connection of this call while that
    /// is open. Only clients of rpcx and eRPC read such messages.
    ///
    /// # Errors
    /// `Unimplemented` if the wire of the [peer](Self::peer) does not support server push.
    pub fn pusher(&self) -> Result<Pusher> {
        self.peer().pusher.clone().ok_or_else(|| {
            let with_push = WireId::all().filter(|wire| wire.spec().capabilities.push).collect::<WireSet>();
            let wire = self.peer().wire();
            Status::unimplemented(format!(
                "server push is not supported on {wire}; wires with it: {with_push}"
            ))
        })
    }

    /// Returns the caller that the server's auth identified; `None` without any.
    pub fn caller(&self) -> Option<&Caller> {
        let context = self.context();
        context.caller.as_deref().filter(|_| context.has_caller)
    }

    /// Returns the caller, to be kept beyond the call.
    pub(crate) fn shared_caller(&self) -> Option<Arc<Caller>> {
        let context = self.context();
        context.caller.clone().filter(|_| context.has_caller)
    }

    /// Sets the caller, for a [layer](crate::Layer) that authenticates. The built-in guards run before all layers:
    /// rules, rates and limits have not seen this caller. The result cache runs after
    /// them.
    pub fn set_caller(&mut self, caller: impl Into<Arc<Caller>>) {
        let context = self.context_mut();
        context.caller = Some(caller.into());
        context.has_caller = true;
    }

    /// Sets a frequent caller: this context may have counted its reference already.
    #[inline]
    #[doc(hidden)]
    pub fn set_known_caller(&mut self, caller: &Arc<Caller>) {
        let context = self.context_mut();
        if !context.caller.as_ref().is_some_and(|before| Arc::ptr_eq(before, caller)) {
            context.caller = Some(caller.clone());
        }
        context.has_caller = true;
    }

    /// Returns the full name of the called method if no service declares it.
    #[doc(hidden)]
    pub fn undeclared_name(&self) -> Option<&str> {
        // For a declared method, copied metadata of another call may contain the name of that other call's method.
        if self.service().name == ANY { self.metadata().undeclared_name().map(|name| &**name) } else { None }
    }

    /// Returns the full name of the called service: as the caller sent it, if no service declares the method.
    pub fn service_name(&self) -> &str {
        let undeclared = self.undeclared_name().and_then(|name| name.split_once('/'));
        undeclared.map_or(self.service().name, |(service, _)| service)
    }

    /// Returns the name of the called method: as the caller sent it, if no service declares it.
    pub fn method_name(&self) -> &str {
        let undeclared = self.undeclared_name().and_then(|name| name.split_once('/'));
        undeclared.map_or(self.method().name, |(_, method)| method)
    }

    /// Returns the called service; it has the name `*` if no service declares the method, see
    /// [`service_name`](Self::service_name).
    pub fn service(&self) -> &'static ServiceInfo {
        self.context().service
    }

    /// Returns the called method.
    #[inline]
    pub fn method(&self) -> &'static MethodInfo {
        self.context().method
    }

    /// Adds metadata that is sent before the first message of the reply; after that message it has no effect. If the
    /// handler of a call with one reply fails, the metadata is sent with the status.
    ///
    /// # Errors
    /// `InvalidArgument` for names or values that [`Metadata`] refuses.
    pub fn reply_metadata(&self, name: &str, value: impl Into<Bytes>) -> Result<()> {
        Ok(self.reply_mut(|reply| reply.head.insert(name, value))?)
    }

    /// Sends these bytes besides the only message of the reply; see [`attachment`](Self::attachment).
    ///
    /// # Errors
    /// `Unimplemented` if the wire of the [peer](Self::peer) does not support attachments.
    pub fn reply_attachment(&self, bytes: impl Into<Bytes>) -> Result<()> {
        if !self.peer().wire.is_some_and(|wire| wire.spec().capabilities.attachments) {
            return Err(no_attachments(self.peer().wire()));
        }
        self.reply_mut(|reply| reply.head.set_attachment(bytes));
        Ok(())
    }

    /// Adds metadata that is sent with the end of the reply, also if the call fails.
    ///
    /// # Errors
    /// `InvalidArgument` for names or values that [`Metadata`] refuses.
    pub fn reply_trailer(&self, name: &str, value: impl Into<Bytes>) -> Result<()> {
        Ok(self.reply_mut(|reply| reply.trailers.insert(name, value))?)
    }

    fn reply_mut<T>(&self, change: impl FnOnce(&mut ReplyMetadata) -> T) -> T {
        change(self.context().reply.cell().lock().get_or_insert_default())
    }

    /// Stores the reply's metadata so that it outlives this context; must be called before the handler gets the
    /// context.
    #[cfg(feature = "http")]
    #[doc(hidden)]
    pub fn share_reply(&mut self) -> Arc<ReplyCell> {
        let cell = Arc::<ReplyCell>::default();
        self.context_mut().reply = ReplyStore::Shared(cell.clone());
        cell
    }

    /// Adds the metadata that was added to the reply to the status with which the call fails.
    ///
    /// The connection has no access to the context of a handler that has failed, so the status carries its metadata.
    /// Generated code calls this. A [`Service`](crate::Service) that decodes its messages itself calls it for its
    /// errors:
    ///
    /// ```
    /// # use switchboard::{Call, Cx, Reply, Result, codegen::Bytes};
    /// # async fn handler(message: Bytes, cx: &Cx) -> Result<Bytes> { Ok(message) }
    /// # async fn call(call: Call) -> Result<Reply> {
    /// let (message, cx) = call.into_one()?;
    /// let reply = handler(message, &cx).await.map_err(|status| cx.failed(status))?;
    /// Ok(Reply::one(reply, cx))
    /// # }
    /// ```
    #[cold]
    #[must_use]
    pub fn failed(&self, mut status: Status) -> Status {
        // A shared cell is read by the task that sends the response.
        let ReplyStore::Local(cell) = &self.context().reply else { return status };
        let Some(reply) = cell.lock().take() else { return status };
        let own = std::mem::take(status.metadata_mut());
        let ReplyMetadata { head, trailers, .. } = *reply;
        for part in [head, trailers, own] {
            status.metadata_mut().extend(part);
        }
        status
    }

    /// Marks the head of a streamed reply as complete: it is sent without waiting for a message.
    #[doc(hidden)]
    pub fn complete_reply_head(&self) {
        self.reply_mut(|reply| reply.is_head_complete = true);
    }

    pub(crate) fn is_reply_head_complete(&self) -> bool {
        self.reply_mut(|reply| reply.is_head_complete)
    }

    /// Takes the metadata that the handler added for the head.
    pub(crate) fn take_reply_head(&self) -> Metadata {
        self.reply_mut(|reply| std::mem::take(&mut reply.head))
    }

    /// Takes the metadata that the handler added for the end.
    pub(crate) fn take_reply_trailers(&self) -> Metadata {
        self.reply_mut(|reply| std::mem::take(&mut reply.trailers))
    }
}

impl Drop for Cx {
    #[inline]
    fn drop(&mut self) {
        let Some(mut context) = self.0.take() else { return };
        context.metadata = Metadata::new();
        context.body = None;
        context.stored_reply = None;
        #[cfg(feature = "proto")]
        {
            context.request = None;
        }
        context.trace = None;
        context.has_caller = false;
        context.extensions = None;
        context.reply.clear();
        // A thread that exits keeps no contexts.
        let _ = CONTEXTS.try_with(|contexts| {
            let mut contexts = contexts.borrow_mut();
            if contexts.len() < CONTEXTS_MAX {
                contexts.push(context);
            }
        });
    }
}

impl Default for ReplyStore {
    fn default() -> ReplyStore {
        ReplyStore::Local(ReplyCell::default())
    }
}

impl ReplyStore {
    fn cell(&self) -> &ReplyCell {
        match self {
            ReplyStore::Local(cell) => cell,
            ReplyStore::Shared(cell) => cell,
        }
    }

    /// Takes the metadata.
    #[inline]
    fn take(&mut self) -> ReplyMetadata {
        match self {
            ReplyStore::Local(cell) => {
                cell.get_mut().take().map_or_else(ReplyMetadata::default, |reply| *reply)
            }
            ReplyStore::Shared(cell) => cell.take(),
        }
    }

    /// Prepares the store for the next call.
    #[inline]
    fn clear(&mut self) {
        match self {
            ReplyStore::Local(cell) => *cell.get_mut() = None,
            ReplyStore::Shared(_) => *self = ReplyStore::default(),
        }
    }
}

impl ReplyCell {
    fn lock(&self) -> MutexGuard<'_, Option<Box<ReplyMetadata>>> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get_mut(&mut self) -> &mut Option<Box<ReplyMetadata>> {
        self.reply.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the metadata.
    #[doc(hidden)]
    pub fn take(&self) -> ReplyMetadata {
        self.lock().take().map_or_else(ReplyMetadata::default, |reply| *reply)
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("method", &format_args!("{}/{}", self.service().name, self.method().name))
            .field("peer", self.peer())
            .field("deadline", &self.deadline())
            .field("metadata", self.metadata())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestBody::One(message) => write!(f, "One({} bytes)", message.len()),
            RequestBody::Many(_) => f.write_str("Many"),
        }
    }
}
