//! Channels: connections of a client to a service, over any wire.

mod aborter;
mod address_list;
mod calls;
mod combined;
mod connection;
mod direct;
mod fleet;
#[cfg(feature = "http")]
mod http;
mod interned;
mod kind;
mod layered;
mod local;
mod mirror;
mod named;
mod options;
mod pool;
mod remote;
mod setters;
mod streaming;
mod unary;
mod undeclared;
mod wires;

pub use aborter::ConnectionAborter;
pub use combined::{Parallel, Part, Partitioned, Selective};
pub use fleet::{Attempt, Candidate, EndpointStats, Explained, Explanation, FailMode, Receipt};
#[doc(hidden)]
pub use layered::RequiredCallShape;
pub use mirror::Mirror;
pub use named::NamedCall;
pub use options::ChannelBuilder;
pub use streaming::{BidiCall, ClientStreamCall, ServerStreamCall, Upload};
pub use unary::{OnewayCall, Response, UnaryCall};

use bytes::Bytes;
use kind::ChannelKind;
use local::Local;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_core::{
    Compression, Limit, Limits, Payload, Result, Service, context,
    limits::Source,
    reserved::IDEMPOTENCY_KEY,
    trace::{TRACEPARENT, TRACESTATE},
};
use switchboard_discovery::discover::Registry;
use switchboard_wire::{Codec, Kind, Metadata, SchemaId, ServiceInfo, Status};

/// A method as a client describes it. Generated code has one per method, in a static; [`intern`](Self::intern) creates
/// methods that are known only at run time.
#[derive(Debug)]
pub struct ClientMethod {
    /// The service.
    pub service: &'static ServiceInfo,
    /// Index of the method in the service.
    pub index: u16,
    /// The full name, `package.Service/Method`.
    pub path: &'static str,
}

impl ClientMethod {
    /// Kind of the call; unary when the index belongs to no method, which the server then reports.
    pub(crate) fn kind(&self) -> Kind {
        self.service.methods.get(usize::from(self.index)).map_or(Kind::Unary, |method| method.kind)
    }

    /// Index in the service as declared in the `.proto` file; `None` for methods without a descriptor.
    pub(crate) fn proto_index(&self) -> Option<u16> {
        (!self.service.descriptor.is_empty()).then_some(self.index)
    }

    /// Schema that the caller was built from.
    pub(crate) fn schema(&self) -> Option<SchemaId> {
        self.service.methods.get(usize::from(self.index)).and_then(|method| method.schema)
    }
}

/// A client's connection to a service: to one or several addresses, or to a service in this process.
///
/// Cheap to clone; all clones share the connections. Thousands of callers may use one channel at once.
#[derive(Clone)]
pub struct Channel(Arc<dyn ChannelKind>);

impl Channel {
    /// Opens a channel to `url` and waits for its first connection, for at most [`connect_timeout`].
    ///
    /// The URL names one or several addresses and options:
    /// `tcp://10.0.0.1:8080,10.0.0.2:8080?connections=4&timeout=500ms`, or with TLS
    /// `tls://a.example:8443?ca=ca.pem`.
    ///
    /// The wire is the native one unless `wire=grpc`, `grpc-web`, `grpc-web-text`, `connect` or `jsonrpc` selects
    /// another; `http://` means `wire=connect`. With these, `http=1` or `2` selects the version (2 by default), and
    /// `codec=json` the encoding of protobuf services (traits always use JSON on HTTP). `get=true` calls methods
    /// without side effects by GET on Connect. JSON-RPC uses POST on HTTP/1.1, to `/` or `path=/rpc`, or a WebSocket
    /// (`ws://HOST:PORT/PATH?wire=jsonrpc`), where replies may be streams. Thrift uses POST as well when `wire=thrift`
    /// is combined with `http://`, `path` or `http`. rpcx also runs in a WebSocket, at `/_rpcx_` when the address has
    /// no path (`ws://HOST:PORT?wire=rpcx`).
    ///
    /// On all wires but JSON-RPC and Thrift, `compression=gzip`, `zstd` or `deflate` compresses requests and allows
    /// compressed replies, `compression=replies` only the latter. Addresses of WebSockets also take `deflate=true`:
    /// messages are compressed if the server agrees (`Server::websocket_deflate`).
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid URL, `Unavailable` when no address responds in time.
    ///
    /// [`connect_timeout`]: ChannelBuilder::connect_timeout
    pub async fn connect(url: &str) -> Result<Channel> {
        Channel::builder(url).connect().await
    }

    /// Creates a builder of a channel to `url`.
    pub fn builder(url: &str) -> ChannelBuilder {
        ChannelBuilder::new(url)
    }

    /// Creates a builder of a channel to all instances of `service` in `registry`. Instances that join get calls
    /// without a restart; calls in flight on instances that leave continue to their end. Addresses of instances may
    /// have options of their own, which take precedence over those set here.
    ///
    /// ```
    /// use switchboard::{Channel, discover::Fixed};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard::Result<()> {
    /// let list = Fixed::addresses("demo.Greeter", ["tcp://10.0.0.1:8080", "tcp://10.0.0.2:8080"]);
    /// let channel = Channel::fleet(std::sync::Arc::new(list), "demo.Greeter").zone("eu-1a").lazy()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fleet(registry: Arc<dyn Registry>, service: &str) -> ChannelBuilder {
        ChannelBuilder::of_registry(registry, service)
    }

    /// Creates a channel to a service of this process: no bytes are framed, no connection is made. Messages are encoded
    /// and decoded once, so that both sides own their data. Messages have at most 4 MiB, as elsewhere.
    pub fn local(service: impl Service) -> Channel {
        Channel(Arc::new(Local::new(service, &Limits::default())))
    }

    /// Creates a [local](Self::local) channel with another [`Limit::MessageBytesMax`] for requests and replies; no
    /// other limit applies.
    ///
    /// # Errors
    /// `InvalidArgument` for another limit, or an invalid value.
    pub fn local_with(service: impl Service, limits: &[(Limit, u64)]) -> Result<Channel> {
        let mut set = Limits::default();
        for (limit, value) in limits {
            if *limit != Limit::MessageBytesMax {
                let text = format!(
                    "limit {} does not apply to a local channel: set message_bytes_max",
                    limit.name()
                );
                return Err(Status::invalid_argument(text));
            }
            set.set(*limit, *value, Source::Channel)?;
        }
        Ok(Channel(Arc::new(Local::new(service, &set))))
    }

    /// Statistics of the endpoints of a channel to several servers, by id; empty for other channels.
    pub fn endpoints(&self) -> Vec<EndpointStats> {
        self.0.endpoints()
    }

    /// Resources held for calls; all counts are zero when there are no calls.
    #[cfg(any(test, feature = "simulation"))]
    #[doc(hidden)]
    pub fn left(&self) -> Vec<(&'static str, usize)> {
        self.0.left()
    }

    /// The codec that calls use for a client that prefers `preferred`: HTTP has no Postcard, and a URL may select JSON.
    pub fn codec(&self, preferred: Codec) -> Codec {
        self.0.codec(preferred)
    }

    /// Begins a call of the method with this full name, `package.Service/Method`, without generated code.
    ///
    /// ```no_run
    /// # async fn f() -> switchboard::Result<()> {
    /// use serde_json::{Value, json};
    /// use switchboard::Channel;
    ///
    /// let channel = Channel::connect("tcp://127.0.0.1:8080").await?;
    /// let request = json!({"name": "Ada"});
    /// let reply = channel.call("demo.v1.Greeter/Greet").json::<Value>(&request).await?;
    /// println!("{}", reply["text"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn call<'a>(&'a self, method: &'a str) -> NamedCall<'a> {
        NamedCall::new(self, method)
    }

    /// Begins a unary call; for generated code.
    pub fn unary<R>(
        &self,
        method: &'static ClientMethod,
        codec: Codec,
        request: Result<impl Into<Payload>>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> UnaryCall<R> {
        UnaryCall::new(self.begin(method, codec), request.map(Into::into), decode)
    }

    /// Begins a one-way call; for generated code.
    pub fn oneway(&self, method: &'static ClientMethod, codec: Codec, request: Result<Bytes>) -> OnewayCall {
        OnewayCall::new(self.begin(method, codec), request)
    }

    /// Begins a call with a stream of replies; for generated code.
    pub fn server_stream<R>(
        &self,
        method: &'static ClientMethod,
        codec: Codec,
        request: Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> ServerStreamCall<R> {
        ServerStreamCall::new(self.begin(method, codec), request, decode)
    }

    /// Begins a call with a stream of requests; for generated code.
    pub fn client_stream<Q, R>(
        &self,
        method: &'static ClientMethod,
        codec: Codec,
        encode: fn(&Q, Codec) -> Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> ClientStreamCall<Q, R> {
        ClientStreamCall::new(self.begin(method, codec), encode, decode)
    }

    /// Begins a call with streams both ways; for generated code.
    pub fn bidi<Q, R>(
        &self,
        method: &'static ClientMethod,
        codec: Codec,
        encode: fn(&Q, Codec) -> Result<Bytes>,
        decode: fn(Codec, Bytes) -> Result<R>,
    ) -> BidiCall<Q, R> {
        BidiCall::new(self.begin(method, codec), encode, decode)
    }

    #[inline]
    fn begin(&self, method: &'static ClientMethod, codec: Codec) -> Begin {
        let mut begin = Begin {
            target: Target::Nowhere,
            method,
            codec,
            compression: Compression::None,
            timeout: None,
            reply_bytes_max: usize::MAX,
            metadata: Metadata::new(),
            early_error: None,
            options: None,
        };
        begin.target = match self.0.prepare(&mut begin) {
            Some(connection) => Target::Connection(connection),
            None => Target::Channel(self.clone()),
        };
        if let Some(trace) = context::trace() {
            trace.add_to(&mut begin.metadata);
        }
        begin
    }

    /// The target of a call that is sent now.
    fn target(&self) -> Target {
        let ready = self.0.pool().and_then(pool::Pool::ready);
        ready.map_or_else(|| Target::Channel(self.clone()), Target::Connection)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel(")?;
        self.0.write_target(f)?;
        f.write_str(")")
    }
}

/// State that every kind of call has before it is sent.
struct Begin {
    target: Target,
    method: &'static ClientMethod,
    codec: Codec,
    compression: Compression,
    timeout: Option<Duration>,
    /// Maximum size of a reply message that the caller accepts.
    reply_bytes_max: usize,
    metadata: Metadata,
    /// Error of the first rejected metadata or of the request encoding; the call fails with it.
    early_error: Option<Status>,
    /// Rarely used options.
    options: Option<Box<CallOptions>>,
}

/// Rarely used options of a call, kept in a box.
#[derive(Clone, Default)]
struct CallOptions {
    /// True for a one-way call that passes layers: it has no reply.
    oneway: bool,
    /// Key that related calls share.
    hash_key: Option<Bytes>,
    /// True when the call may be repeated, even if its method is not declared idempotent.
    idempotent: bool,
    /// True when the call has an idempotency key, by which a server recognizes a repetition.
    keyed: bool,
    /// Log of the attempts, for [`explained`](UnaryCall::explained) calls.
    attempt_log: Option<Arc<fleet::AttemptLog>>,
}

/// Destination of a call: determined once, so that a plain call increments one reference count.
enum Target {
    /// A channel: a connection must be opened, or none is needed.
    Channel(Channel),
    /// A connection that was ready when the call was made.
    Connection(Arc<connection::Connection>),
    /// None: the call has begun.
    Nowhere,
}

impl Begin {
    fn attempt_log(&self) -> Option<&Arc<fleet::AttemptLog>> {
        self.options.as_ref()?.attempt_log.as_ref()
    }

    fn options(&mut self) -> &mut CallOptions {
        self.options.get_or_insert_default()
    }

    /// Sets the idempotency key, replacing an earlier one.
    fn set_key(&mut self, key: impl Into<Bytes>) {
        self.metadata.remove(IDEMPOTENCY_KEY);
        self.meta(IDEMPOTENCY_KEY, key);
        self.options().keyed = true;
    }

    fn meta(&mut self, name: &str, value: impl Into<Bytes>) {
        if name.eq_ignore_ascii_case(TRACEPARENT) {
            // The caller's own trace replaces the inherited one.
            self.metadata.remove(TRACEPARENT);
            self.metadata.remove(TRACESTATE);
        }
        if let Err(refused) = self.metadata.insert(name, value) {
            self.early_error.get_or_insert_with(|| refused.into());
        }
    }

    /// The deadline of the call: the earlier of its own timeout and the deadline of the call being served.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        // A timeout beyond the range of the clock means no deadline.
        let own = self.timeout.and_then(|timeout| now.checked_add(timeout));
        match (own, context::deadline()) {
            (Some(own), Some(inherited)) => Some(own.min(inherited)),
            (own, inherited) => own.or(inherited),
        }
    }

    /// Like [`deadline`](Self::deadline), counted from now; reads the clock only when there is one.
    fn deadline_if_any(&self) -> Option<Instant> {
        let any = self.timeout.is_some() || context::deadline().is_some();
        if any { self.deadline(switchboard_core::clock::now()) } else { None }
    }

    /// The remaining time of the call; reads the clock only when a deadline is inherited.
    #[inline]
    fn time_left(&self) -> Option<Duration> {
        match context::deadline() {
            None => self.timeout,
            Some(inherited) => {
                let left = inherited.saturating_duration_since(switchboard_core::clock::now());
                Some(self.timeout.map_or(left, |own| own.min(left)))
            }
        }
    }
}

/// Options of every kind of call.
macro_rules! call_options {
    ($name:ident $(<$($type:ident),*>)?, $($begin:ident).+) => {
        impl $(<$($type),*>)? $name $(<$($type),*>)? {
            /// Ends the call with `DeadlineExceeded` after `timeout`, counted from the start of the call. The server
            /// gets the timeout and stops the call as well. Calls of a handler never outlive the call that it serves.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.$($begin).+.timeout = Some(timeout);
                self
            }

            /// Fails the call with `ResourceExhausted` when a reply message has more than `bytes`. The channel's
            /// `message_bytes_max` applies as well; larger messages are not read at all.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn reply_bytes_max(mut self, bytes: usize) -> Self {
                self.$($begin).+.reply_bytes_max = bytes;
                self
            }

            /// Sets the compression of this call's messages, instead of that of its channel and method. On the native
            /// wire, messages go uncompressed to a server that does not support it, and to one that has not sent its
            /// settings yet: on the first calls of a connection, unless its channel compresses.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn compression(mut self, compression: switchboard_core::Compression) -> Self {
                self.$($begin).+.compression = compression;
                self
            }

            /// Sets the key that this call shares with related calls, which go to the same server when the channel's
            /// balancer [hashes](switchboard_discovery::balance::Ketama).
            #[must_use = "a call does nothing until it is awaited"]
            pub fn hash_key(mut self, key: impl Into<bytes::Bytes>) -> Self {
                self.$($begin).+.options().hash_key = Some(key.into());
                self
            }

            /// Marks the call as safe to repeat, when its method is not declared idempotent: a channel to several
            /// servers may retry it after a failure, or send it to two of them (see [`FailMode`](crate::FailMode)).
            #[must_use = "a call does nothing until it is awaited"]
            pub fn idempotent(mut self) -> Self {
                self.$($begin).+.options().idempotent = true;
                self
            }

            /// Adds metadata; a rejected name or value fails the call.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn meta(mut self, name: &str, value: impl Into<bytes::Bytes>) -> Self {
                self.$($begin).+.meta(name, value);
                self
            }
        }
    };
}
use call_options;
