//! A call as layers and services see it: untyped, the same for every wire.

mod ended;
mod messages;
mod reply;

pub(crate) use messages::Change;
pub use reply::Reply;
pub(crate) use reply::{ReplyBody, ReplyParts, Streamed, compressed};

#[cfg(feature = "proto")]
use crate::codec::PARTS_FROM;
use crate::{
    Caller, Codec, Metadata, Pusher, Result, Status,
    compression::{Message, Packing},
    metrics::PeerCount,
    stream::Queue,
    trace::{self, Trace},
};
use bytes::Bytes;
use std::{
    cell::{Cell, RefCell},
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use switchboard_wire::{MethodInfo, ServiceInfo};

/// One call on its way to a handler.
#[derive(Debug)]
pub struct Call {
    pub(crate) method: u16,
    /// Also holds the messages: the call stays two words on its way through guards and layers.
    pub(crate) cx: Cx,
}

/// The messages of a request.
pub(crate) enum RequestBody {
    /// The only one.
    One(Bytes),
    /// As they come.
    Many(Arc<Queue>),
}

/// What a handler knows of its call beside the messages, and what it adds to the reply.
///
/// One word, so that the call is cheap to move on its way to the handler; what it points to is used again.
pub struct Cx(Option<Box<Context>>);

struct Context {
    codec: Codec,
    /// The only request message is compressed.
    compressed: bool,
    oneway: bool,
    packing: Packing,
    /// The request, until it is [taken](Call::into_one).
    body: Option<RequestBody>,
    /// The reply, once there is [one](Reply::one).
    answered: Option<ReplyParts>,
    peer: Arc<Peer>,
    /// Who calls if `has_caller`, else who did when these contexts were another call's.
    caller: Option<Arc<Caller>>,
    has_caller: bool,
    service: &'static ServiceInfo,
    method: &'static MethodInfo,
    /// When it came, as far as its connection has read the clock for it.
    arrived: Option<Instant>,
    deadline: Option<Instant>,
    metadata: Metadata,
    /// The request message, if it is large: a reply may share parts of it.
    #[cfg(feature = "proto")]
    request: Option<Bytes>,
    trace: Option<Arc<Trace>>,
    reply: Place,
}

/// Contexts that a thread keeps for the calls to come. They keep their peers and callers, which the next call has as
/// well, as a rule, and need not count again.
const CONTEXTS_MAX: usize = 16;

thread_local! {
    #[expect(clippy::vec_box, reason = "what a call holds is the box")]
    static CONTEXTS: RefCell<Vec<Box<Context>>> = const { RefCell::new(Vec::new()) };
}

/// Where the reply's metadata is kept.
enum Place {
    /// Here: of a handler that fails it goes to whoever [asked for it](Cx::keep_reply).
    Here(ReplyCell),
    /// With whoever answers the caller, so that it outlives a handler that fails.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only HTTP shares it"))]
    Shared(Arc<ReplyCell>),
}

/// What a handler adds to its reply; costs no allocation while that is nothing.
#[derive(Default)]
pub(crate) struct ReplyCell {
    reply: Mutex<Option<Box<ReplyMetadata>>>,
    /// Under this number it is left behind when the call is over; 0 leaves nothing.
    number: u64,
}

thread_local! {
    /// What the call that was over last on this thread had added.
    static LEFT: Cell<Option<(u64, Box<ReplyMetadata>)>> = const { Cell::new(None) };
    /// Numbers of no other thread.
    static NEXT: Cell<u64> = Cell::new(THREADS.fetch_add(1 << 40, Ordering::Relaxed));
}

static THREADS: AtomicU64 = AtomicU64::new(0);

/// The metadata before and after the messages of a reply.
#[derive(Default)]
pub(crate) struct ReplyMetadata {
    pub(crate) head: Metadata,
    pub(crate) trailers: Metadata,
}

/// Who calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// The wire: `native`, `grpc`, `grpc-web`, `connect`, `http-json`, `jsonrpc`, `baidu_std`, `erpc`, `hulu`, `kiss`,
    /// `rpcx`, `sofa`, `thrift` or `local`.
    pub wire: &'static str,
    /// Address of the peer, for people: `tcp://[::1]:4444`, `tls://[::1]:4444`, `unix:`,
    /// `memory://name`, `local`.
    pub address: String,
    /// The same as a socket address, where there is one.
    pub socket: Option<SocketAddr>,
    /// Who the peer has proved to be by its certificate, where TLS asks for one.
    pub identity: Option<Arc<Identity>>,
    /// The wires that it may speak.
    pub(crate) wires: crate::guard::Wires,
    /// What is counted of the connection, where somebody may ask.
    pub(crate) counts: Option<Arc<crate::server::Socket>>,
    /// What is counted of all its connections.
    pub(crate) tally: Option<Arc<PeerCount>>,
    /// The number of the connection in this process; 0 for calls inside it.
    pub(crate) connection: u64,
    /// For what it is told without having asked, where its wire has a place for that.
    pub(crate) pusher: Option<Pusher>,
}

/// What the verified certificate of a peer says of it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Identity {
    /// Its distinguished name as RFC 4514 writes it, the most specific part first: `CN=alice,O=example`.
    pub subject: String,
    /// That of the authority that signed it.
    pub issuer: String,
    /// Its alternative names with their kind: `dns:a.example`, `uri:spiffe://example/alice`, `email:…`, `ip:…`.
    pub names: Vec<String>,
}

impl Call {
    /// A call of the method with this index in its service.
    #[inline]
    pub(crate) fn new(method: u16, codec: Codec, body: RequestBody, mut cx: Cx) -> Call {
        let context = cx.context_mut();
        context.codec = codec;
        context.body = Some(body);
        Call { method, cx }
    }

    /// Index of the method in [`ServiceInfo::methods`]; of one that no service declares, which of these it is.
    #[inline]
    pub fn method(&self) -> u16 {
        self.method
    }

    /// The full name of the method, `package.Service/Method`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.cx.service().name, self.cx.method().name)
    }

    /// How the messages are written, and how the reply is to be.
    #[inline]
    pub fn codec(&self) -> Codec {
        self.cx.codec()
    }

    /// Everything that is not a message.
    pub fn cx(&self) -> &Cx {
        &self.cx
    }

    /// Everything that is not a message.
    pub fn cx_mut(&mut self) -> &mut Cx {
        &mut self.cx
    }

    /// The only request message.
    ///
    /// # Errors
    /// `Internal` if the call brings a stream; the runtime has checked the kind of the method before. What comes
    /// compressed can be too large, or broken.
    #[inline]
    pub fn into_one(self) -> Result<(Bytes, Cx)> {
        let mut cx = self.cx;
        let context = cx.context_mut();
        match context.body.take() {
            Some(RequestBody::One(bytes)) => {
                let bytes = context.packing.unpack(Message { bytes, compressed: context.compressed })?;
                #[cfg(feature = "proto")]
                let cx = cx.with_request(&bytes);
                Ok((bytes, cx))
            }
            _ => Err(Status::internal("a stream of requests where one message belongs")),
        }
    }

    /// The stream of request messages; a single message is a stream of one.
    pub fn into_many(self) -> (RawReceiver, Cx) {
        let mut cx = self.cx;
        let context = cx.context_mut();
        let queue = match context.body.take().expect(TAKEN) {
            RequestBody::Many(queue) => queue,
            RequestBody::One(bytes) => {
                let message = Message { bytes, compressed: context.compressed };
                Arc::new(Queue::of_one(message, context.packing))
            }
        };
        (RawReceiver(queue), cx)
    }

    /// The messages of the request.
    pub(crate) fn body(&self) -> &RequestBody {
        self.cx.context().body.as_ref().expect(TAKEN)
    }

    /// The same, to be changed.
    pub(crate) fn body_mut(&mut self) -> &mut RequestBody {
        self.cx.context_mut().body.as_mut().expect(TAKEN)
    }
}

/// A call is used up when its messages are taken.
const TAKEN: &str = "a call has its messages until it is taken apart";

/// A stream of request messages before a [`Receiver`](crate::Receiver) reads them as a type.
pub struct RawReceiver(pub(crate) Arc<Queue>);

/// The status where a wire has no place for attachments.
#[cold]
pub(crate) fn no_attachments(wire: &str) -> Status {
    Status::unimplemented(format!("{wire} has no place for an attachment; baidu_std has"))
}

impl Cx {
    #[inline]
    pub(crate) fn new(
        peer: &Arc<Peer>,
        service: &'static ServiceInfo,
        method: &'static MethodInfo,
        deadline: Option<Instant>,
        metadata: Metadata,
    ) -> Cx {
        let trace = trace::begin(&metadata, peer, service, method);
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
            answered: None,
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
            reply: Place::default(),
        })))
    }

    /// Says how the messages are compressed, and whether the only request message is.
    #[inline]
    pub(crate) fn set_packing(&mut self, packing: Packing, compressed: bool) {
        let context = self.context_mut();
        context.packing = packing;
        context.compressed = compressed;
    }

    /// Says when the call came, give or take the few calls that share a reading of the clock.
    #[inline]
    pub(crate) fn set_arrived(&mut self, arrived: Instant) {
        self.context_mut().arrived = Some(arrived);
    }

    /// When the call came; now, where nobody has read the clock for it.
    #[inline]
    pub(crate) fn arrived(&self) -> Instant {
        self.context().arrived.unwrap_or_else(crate::clock::now)
    }

    /// Says whether the caller waits for no reply.
    #[inline]
    pub(crate) fn set_oneway(&mut self, oneway: bool) {
        self.context_mut().oneway = oneway;
    }

    /// Whether the caller waits for no reply, of a method that it calls so or that [never has one](MethodInfo::oneway).
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

    /// The request message if it is large.
    #[cfg(feature = "proto")]
    pub(crate) fn request(&self) -> Option<Bytes> {
        self.context().request.clone()
    }

    /// How the messages of the reply are compressed.
    pub(crate) fn packing(&self) -> Packing {
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

    /// How the messages are written, and how the reply is to be.
    #[inline]
    pub fn codec(&self) -> Codec {
        self.context().codec
    }

    /// What the caller added to the call.
    pub fn metadata(&self) -> &Metadata {
        &self.context().metadata
    }

    /// Bytes that the caller sent beside the message, not compressed and as large as a message may be. Only baidu_std
    /// and hulu carry them, and calls inside this process.
    pub fn attachment(&self) -> Option<&Bytes> {
        self.metadata().attachment()
    }

    /// The same, for layers that add to it.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.context_mut().metadata
    }

    /// The trace that the call is part of, as its caller told in `traceparent` ([W3C Trace Context]); also when nobody
    /// told one, but spans are recorded here. Calls that the handler makes are part of it too, without its doing.
    ///
    /// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
    pub fn trace(&self) -> Option<&Trace> {
        self.context().trace.as_deref()
    }

    /// Makes it part of this one from here on.
    #[cfg(feature = "otlp")]
    pub(crate) fn set_trace(&mut self, trace: Arc<Trace>) {
        self.context_mut().trace = Some(trace);
    }

    /// The same for whoever polls the handler.
    #[inline]
    pub(crate) fn shared_trace(&self) -> Option<Arc<Trace>> {
        self.context().trace.clone()
    }

    /// When the call must have ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.context().deadline
    }

    /// Time that is left; zero when it is over, none without a deadline.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline.saturating_duration_since(crate::clock::now()))
    }

    /// Who calls.
    pub fn peer(&self) -> &Peer {
        &self.context().peer
    }

    /// Sends the peer messages that it did not ask for, on the connection of this call and for as long as that lives.
    /// Only clients of rpcx and eRPC read any.
    ///
    /// # Errors
    /// `Unimplemented` where the wire of the [peer](Self::peer) has no place for them.
    pub fn pusher(&self) -> Result<Pusher> {
        let Peer { pusher, wire, .. } = self.peer();
        let none = || {
            Status::unimplemented(format!(
                "{wire} has no place for what nobody asked for; rpcx and erpc have"
            ))
        };
        pusher.clone().ok_or_else(none)
    }

    /// Who calls, as far as the server's [auth](crate::auth) found out; nobody without any.
    pub fn caller(&self) -> Option<&Caller> {
        let context = self.context();
        context.caller.as_deref().filter(|_| context.has_caller)
    }

    pub(crate) fn set_caller(&mut self, caller: Arc<Caller>) {
        let context = self.context_mut();
        context.caller = Some(caller);
        context.has_caller = true;
    }

    /// The same for somebody who calls often: this context may have counted its reference already.
    #[inline]
    pub(crate) fn set_known_caller(&mut self, caller: &Arc<Caller>) {
        let context = self.context_mut();
        if !context.caller.as_ref().is_some_and(|before| Arc::ptr_eq(before, caller)) {
            context.caller = Some(caller.clone());
        }
        context.has_caller = true;
    }

    /// The service that is called.
    pub fn service(&self) -> &'static ServiceInfo {
        self.context().service
    }

    /// The method that is called.
    #[inline]
    pub fn method(&self) -> &'static MethodInfo {
        self.context().method
    }

    /// Adds metadata that goes before the first message of the reply; after that message it has no effect. Should the
    /// handler of a call with one reply fail, it comes with the status.
    ///
    /// # Errors
    /// `InvalidArgument` for names or values that [`Metadata`] refuses.
    pub fn reply_metadata(&self, name: &str, value: impl Into<Bytes>) -> Result<()> {
        Ok(self.reply_mut(|reply| reply.head.insert(name, value))?)
    }

    /// Sends these bytes beside the only message of the reply, as [`attachment`](Self::attachment) says.
    ///
    /// # Errors
    /// `Unimplemented` where the wire of the [peer](Self::peer) has no place for them.
    pub fn reply_attachment(&self, bytes: impl Into<Bytes>) -> Result<()> {
        match self.peer().wire {
            "baidu_std" | "hulu" | "local" => {
                self.reply_mut(|reply| reply.head.set_attachment(bytes));
                Ok(())
            }
            wire => Err(no_attachments(wire)),
        }
    }

    /// Adds metadata that goes with the end of the reply, also of one that fails.
    ///
    /// # Errors
    /// `InvalidArgument` for names or values that [`Metadata`] refuses.
    pub fn reply_trailer(&self, name: &str, value: impl Into<Bytes>) -> Result<()> {
        Ok(self.reply_mut(|reply| reply.trailers.insert(name, value))?)
    }

    fn reply_mut<T>(&self, change: impl FnOnce(&mut ReplyMetadata) -> T) -> T {
        change(self.context().reply.cell().lock().get_or_insert_default())
    }

    /// Keeps the reply's metadata where it outlives this context; to be called before the handler gets it.
    #[cfg(feature = "http")]
    pub(crate) fn share_reply(&mut self) -> Arc<ReplyCell> {
        let cell = Arc::<ReplyCell>::default();
        self.context_mut().reply = Place::Shared(cell.clone());
        cell
    }

    /// To be called before the handler gets this context, on the thread that polls it: should the handler fail, what
    /// it had added to its reply is [added to its status](with_left). The context is gone by then; no cell outlives
    /// it, since the usual call needs none.
    pub(crate) fn keep_reply(&mut self) -> u64 {
        let Place::Here(cell) = &mut self.context_mut().reply else { return 0 };
        cell.number = NEXT.get() + 1;
        NEXT.set(cell.number);
        cell.number
    }

    /// Takes what the handler added for the head.
    pub(crate) fn take_reply_head(&self) -> Metadata {
        self.reply_mut(|reply| std::mem::take(&mut reply.head))
    }

    /// Takes what the handler added for the end.
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
        context.answered = None;
        #[cfg(feature = "proto")]
        {
            context.request = None;
        }
        context.trace = None;
        context.has_caller = false;
        context.reply.clear();
        // A thread that ends keeps nothing any more.
        let _ = CONTEXTS.try_with(|contexts| {
            let mut contexts = contexts.borrow_mut();
            if contexts.len() < CONTEXTS_MAX {
                contexts.push(context);
            }
        });
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::Here(ReplyCell::default())
    }
}

impl Place {
    fn cell(&self) -> &ReplyCell {
        match self {
            Place::Here(cell) => cell,
            Place::Shared(cell) => cell,
        }
    }

    /// Takes what was added.
    #[inline]
    fn take(&mut self) -> ReplyMetadata {
        match self {
            Place::Here(cell) => cell.get_mut().take().map_or_else(ReplyMetadata::default, |reply| *reply),
            Place::Shared(cell) => cell.take(),
        }
    }

    /// Makes it fit for the next call.
    #[inline]
    fn clear(&mut self) {
        match self {
            Place::Here(cell) => cell.leave(),
            Place::Shared(_) => *self = Place::default(),
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

    /// Takes all that was added.
    pub(crate) fn take(&self) -> ReplyMetadata {
        self.lock().take().map_or_else(ReplyMetadata::default, |reply| *reply)
    }

    /// Leaves what was added to whoever [asked for it](Cx::keep_reply), if anybody did.
    #[inline]
    fn leave(&mut self) {
        let number = std::mem::take(&mut self.number);
        if let Some(reply) = self.get_mut().take()
            && number != 0
        {
            // Without effect while the thread ends.
            let _ = LEFT.try_with(|left| left.set(Some((number, reply))));
        }
    }
}

/// The status of a handler that failed in this poll, with what it had added to its reply until then.
#[cold]
pub(crate) fn with_left(mut status: Status, number: u64) -> Status {
    if let Some((left, reply)) = LEFT.take()
        && left == number
        && number != 0
    {
        let own = std::mem::take(status.metadata_mut());
        let ReplyMetadata { head, trailers } = *reply;
        for part in [head, trailers, own] {
            status.metadata_mut().extend(part);
        }
    }
    status
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
