//! Channels: a client's way to a service, whatever lies in between.

mod address_list;
mod calls;
mod combined;
mod connection;
mod cut;
mod fleet;
#[cfg(feature = "http")]
mod http;
mod interned;
mod layered;
mod local;
mod options;
mod pool;
mod streaming;
mod unary;
mod wires;

pub use combined::{Parallel, Part, Partitioned, Selective};
pub use cut::Cut;
pub use fleet::{Attempt, Candidate, EndpointStats, Explained, Explanation, FailMode, Receipt};
pub(crate) use layered::Tells;
pub use options::ChannelBuilder;
pub(crate) use pool::pause;
pub use streaming::{BidiCall, ClientStreamCall, ServerStreamCall, Upload};
pub use unary::{OnewayCall, Response, UnaryCall};

use crate::{
    Codec, Compression, Kind, Layer, Limit, Limits, Metadata, Payload, Result, Service, Status, context,
    discover::Registry,
    guard::IDEMPOTENCY_KEY,
    limits::Source,
    trace::{TRACEPARENT, TRACESTATE},
};
use bytes::Bytes;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use switchboard_wire::{SchemaId, ServiceInfo};

/// A method as a client knows it; generated code has one per method, in a static, and [`intern`](Self::intern) makes
/// those that are only known at run time.
#[derive(Debug)]
pub struct ClientMethod {
    /// The service.
    pub service: &'static ServiceInfo,
    /// Index of the method in it.
    pub index: u16,
    /// The full name, `package.Service/Method`.
    pub path: &'static str,
}

impl ClientMethod {
    /// What kind of call it is; unary when the index is of no method, which the server will say.
    pub(crate) fn kind(&self) -> Kind {
        self.service.methods.get(usize::from(self.index)).map_or(Kind::Unary, |method| method.kind)
    }

    /// Its place in the service, as a `.proto` file has it; methods that are known by name alone have none.
    pub(crate) fn place(&self) -> Option<u16> {
        (!self.service.descriptor.is_empty()).then_some(self.index)
    }

    /// The schema that the caller was built from.
    pub(crate) fn schema(&self) -> Option<SchemaId> {
        self.service.methods.get(usize::from(self.index)).and_then(|method| method.schema)
    }
}

/// A way to a service: connections to one or several addresses, or a service in this process.
///
/// Cheap to clone; all clones share the connections. Thousands of callers may use one channel at once.
#[derive(Clone)]
pub struct Channel(Arc<Way>);

#[cfg_attr(
    not(feature = "http"),
    expect(clippy::large_enum_variant, reason = "one per channel, behind an Arc")
)]
enum Way {
    Combined(combined::Combined),
    Fleet(fleet::Fleet),
    #[cfg(feature = "http")]
    Http(http::Http),
    Local(local::Local),
    Remote(pool::Pool),
}

impl Channel {
    /// A channel to `url` and the wait for its first connection, at most [`connect_timeout`] long.
    ///
    /// The URL names one or several addresses and options:
    /// `tcp://10.0.0.1:8080,10.0.0.2:8080?connections=4&timeout=500ms`, or with TLS
    /// `tls://a.example:8443?ca=ca.pem`.
    ///
    /// The server speaks the native wire unless `wire=grpc`, `grpc-web`, `grpc-web-text`, `connect` or `jsonrpc` says
    /// otherwise; `http://` means `wire=connect`. With these, `http=1` or `2` chooses the version (2 by default), and
    /// `codec=json` how protobuf services are written (traits always are, on HTTP). `get=true` calls methods without
    /// side effects by GET on Connect. JSON-RPC goes by POST on HTTP/1.1, to `/` or `path=/rpc`, or to a WebSocket
    /// (`ws://HOST:PORT/PATH?wire=jsonrpc`), where replies may be streams. Thrift goes by POST likewise, where
    /// `wire=thrift` comes with `http://`, `path` or `http`. rpcx goes into a WebSocket as well, to `/_rpcx_` where the
    /// address has no path (`ws://HOST:PORT?wire=rpcx`).
    ///
    /// On all wires but JSON-RPC and Thrift `compression=gzip`, `zstd` or `deflate` compresses requests and lets
    /// replies be compressed, `compression=replies` only the latter. Addresses of WebSockets take `deflate=true` as
    /// well: what goes through is compressed if the server agrees (`Server::websocket_deflate`).
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong URL, `Unavailable` when no address answers in time.
    ///
    /// [`connect_timeout`]: ChannelBuilder::connect_timeout
    pub async fn connect(url: &str) -> Result<Channel> {
        Channel::builder(url).connect().await
    }

    /// A channel to `url` with options to set.
    pub fn builder(url: &str) -> ChannelBuilder {
        ChannelBuilder::new(url)
    }

    /// A channel to all instances of `service` that `registry` knows, with options to set. Those that join get calls
    /// without a restart, those that leave end what they have. Their addresses bring options of their own; what is set
    /// here holds where they say nothing.
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

    /// Hands calls to a service of this process: no bytes are framed, no connection is made. Messages are encoded
    /// and decoded once, so that both sides own what they hold. As elsewhere, messages have at most 4 MiB.
    pub fn local(service: impl Service) -> Channel {
        Channel(Arc::new(Way::Local(local::Local::new(service, &Limits::default()))))
    }

    /// The same with another [`Limit::MessageBytesMax`], for requests and replies; no other limit has a meaning there.
    ///
    /// # Errors
    /// `InvalidArgument` for another limit, or a value that this one cannot have.
    pub fn local_with(service: impl Service, limits: &[(Limit, u64)]) -> Result<Channel> {
        let mut set = Limits::default();
        for (limit, value) in limits {
            if *limit != Limit::MessageBytesMax {
                let text = format!("{} means nothing in the process, message_bytes_max does", limit.name());
                return Err(Status::invalid_argument(text));
            }
            set.set(*limit, *value, Source::Channel)?;
        }
        Ok(Channel(Arc::new(Way::Local(local::Local::new(service, &set)))))
    }

    /// The same channel with a [layer](Layer) around its calls, of every kind. What was added first is outermost, as on
    /// servers; clones that were made before go without it.
    ///
    /// A layer sees the call with what the channel adds to its metadata, before a server is chosen; it may change or
    /// refuse it, answer it itself, or [try it again](crate::Call::again). The time limit of the call holds for
    /// all that its layers do. Each call costs some allocations more.
    ///
    /// ```
    /// use switchboard::{Channel, layer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard::Result<()> {
    /// let named = layer::from_fn("tenant", |mut call, next| {
    ///     Box::pin(async move {
    ///         call.cx_mut().metadata_mut().insert("tenant", "acme")?;
    ///         next.call(call).await
    ///     })
    /// });
    /// let channel = Channel::builder("tcp://127.0.0.1:8080").lazy()?.layer(named);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn layer(&self, layer: impl Layer) -> Channel {
        let (channel, mut layers) = match self.behind_layers() {
            Some(layered) => (layered.channel.clone(), layered.layers.clone()),
            None => (self.clone(), Vec::new()),
        };
        layers.push(Arc::new(layer));
        Channel(Arc::new(Way::Local(local::Local::layered(channel, layers))))
    }

    fn behind_layers(&self) -> Option<&layered::Layered> {
        match &*self.0 {
            Way::Local(local) => local.behind(),
            _ => None,
        }
    }

    /// What is seen of the endpoints of a channel to several servers, by id; none for other channels.
    pub fn endpoints(&self) -> Vec<EndpointStats> {
        match &*self.0 {
            Way::Fleet(fleet) => fleet.stats(),
            Way::Local(local) => local.behind().map_or_else(Vec::new, |layered| layered.channel.endpoints()),
            _ => Vec::new(),
        }
    }

    /// What is held for calls, to be nothing when there is none.
    #[cfg(test)]
    pub(crate) fn left(&self) -> Vec<(&'static str, usize)> {
        match &*self.0 {
            Way::Fleet(fleet) => fleet.left(),
            #[cfg(feature = "http")]
            Way::Http(http) => http.left(),
            Way::Remote(pool) => pool.left(),
            _ => Vec::new(),
        }
    }

    /// The codec of a client that would choose `preferred`: HTTP has no Postcard, and a URL may ask for JSON.
    pub fn codec(&self, preferred: Codec) -> Codec {
        match &*self.0 {
            Way::Combined(combined) => combined.codec(preferred),
            #[cfg(feature = "http")]
            Way::Http(http) => http.codec(preferred),
            Way::Fleet(fleet) => fleet.codec(preferred),
            Way::Local(local) => local.behind().map_or(preferred, |layered| layered.channel.codec(preferred)),
            Way::Remote(pool) => pool.options().codec(preferred),
        }
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

    /// What every call brings.
    #[inline]
    fn metadata(&self) -> Metadata {
        match &*self.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => http.metadata(),
            Way::Fleet(fleet) => fleet.metadata(),
            Way::Combined(_) | Way::Local(_) => Metadata::new(),
            Way::Remote(pool) => pool.metadata(),
        }
    }

    #[inline]
    fn begin(&self, method: &'static ClientMethod, codec: Codec) -> Begin {
        let (target, timeout, compression) = match &*self.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => (Target::Channel(self.clone()), http.timeout(), http.compression(method.path)),
            Way::Fleet(fleet) => {
                (Target::Channel(self.clone()), fleet.timeout(), fleet.compression(method.path))
            }
            Way::Combined(_) => (Target::Channel(self.clone()), None, Compression::None),
            Way::Local(local) => match local.behind() {
                // Layers see what the channel adds.
                Some(layered) => {
                    let target = Target::Channel(self.clone());
                    return Begin { target, ..layered.channel.begin(method, codec) };
                }
                None => (Target::Channel(self.clone()), None, Compression::None),
            },
            Way::Remote(pool) => {
                let compression = pool.compression(method.path);
                match pool.ready() {
                    Some(connection) => (Target::Connection(connection), pool.timeout(), compression),
                    None => (Target::Channel(self.clone()), pool.timeout(), compression),
                }
            }
        };
        let mut metadata = self.metadata();
        if let Some(trace) = context::trace() {
            trace.add_to(&mut metadata);
        }
        let mut begin = Begin {
            target,
            method,
            codec,
            compression,
            timeout,
            reply_bytes_max: usize::MAX,
            metadata,
            mistake: None,
            asked: None,
        };
        if let Way::Fleet(fleet) = &*self.0
            && fleet.gives_keys()
            && method.kind() == Kind::Unary
            && !begin.is_idempotent()
        {
            begin.set_key(format!("{:016x}{:016x}", crate::clock::chance(), crate::clock::chance()));
        }
        begin
    }

    /// Where a call goes that is sent now.
    fn target(&self) -> Target {
        let ready = match &*self.0 {
            Way::Remote(pool) => pool.ready(),
            _ => None,
        };
        ready.map_or_else(|| Target::Channel(self.clone()), Target::Connection)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            #[cfg(feature = "http")]
            Way::Http(http) => write!(f, "Channel({http})"),
            Way::Combined(combined) => write!(f, "Channel({combined})"),
            Way::Fleet(fleet) => write!(f, "Channel({fleet})"),
            Way::Local(local) if local.behind().is_some() => write!(f, "{} behind layers", local.name()),
            Way::Local(local) => write!(f, "Channel(local {})", local.name()),
            Way::Remote(pool) => write!(f, "Channel({pool})"),
        }
    }
}

/// What every kind of call has before it is sent.
struct Begin {
    target: Target,
    method: &'static ClientMethod,
    codec: Codec,
    compression: Compression,
    timeout: Option<Duration>,
    /// Largest reply message that the caller takes.
    reply_bytes_max: usize,
    metadata: Metadata,
    /// The first refused metadata; the call fails with it.
    mistake: Option<Status>,
    /// What was asked for that is rare.
    asked: Option<Box<Asked>>,
}

/// What few calls ask for.
#[derive(Clone, Default)]
struct Asked {
    /// Nothing comes back, of a call that passes layers.
    oneway: bool,
    /// What it has in common with the calls that it belongs to.
    hash_key: Option<Bytes>,
    /// A second try does no harm, whatever is known of the method.
    idempotent: bool,
    /// A second try at the same server does no harm: it brings a key by which the server knows it again.
    keyed: bool,
    /// Where attempts are written down.
    trail: Option<Arc<fleet::Trail>>,
}

/// Where a call goes: found out once, so that the usual call counts one reference.
enum Target {
    /// A connection has to be opened, or none is needed.
    Channel(Channel),
    /// This connection was ready when the call was made.
    Connection(Arc<connection::Connection>),
    /// The call was begun.
    Nowhere,
}

impl Begin {
    fn trail(&self) -> Option<&Arc<fleet::Trail>> {
        self.asked.as_ref()?.trail.as_ref()
    }

    fn asked(&mut self) -> &mut Asked {
        self.asked.get_or_insert_default()
    }

    /// Gives the call a key, instead of any that it has.
    fn set_key(&mut self, key: impl Into<Bytes>) {
        self.metadata.remove(IDEMPOTENCY_KEY);
        self.meta(IDEMPOTENCY_KEY, key);
        self.asked().keyed = true;
    }

    fn meta(&mut self, name: &str, value: impl Into<Bytes>) {
        if name.eq_ignore_ascii_case(TRACEPARENT) {
            // The caller's own choice, instead of what is inherited.
            self.metadata.remove(TRACEPARENT);
            self.metadata.remove(TRACESTATE);
        }
        if let Err(refused) = self.metadata.insert(name, value) {
            self.mistake.get_or_insert_with(|| refused.into());
        }
    }

    /// When the call must have ended: by its own timeout and the deadline of the call being served.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        // A time that no clock reaches is no deadline.
        let own = self.timeout.and_then(|timeout| now.checked_add(timeout));
        match (own, context::deadline()) {
            (Some(own), Some(inherited)) => Some(own.min(inherited)),
            (own, inherited) => own.or(inherited),
        }
    }

    /// As [`deadline`](Self::deadline), counted from now; the clock is only read when there is one.
    #[cfg(feature = "http")]
    fn deadline_if_any(&self) -> Option<Instant> {
        let any = self.timeout.is_some() || context::deadline().is_some();
        if any { self.deadline(crate::clock::now()) } else { None }
    }

    /// Time that the call has from now on; the clock is only read when a deadline is inherited.
    #[inline]
    fn time_left(&self) -> Option<Duration> {
        match context::deadline() {
            None => self.timeout,
            Some(inherited) => {
                let left = inherited.saturating_duration_since(crate::clock::now());
                Some(self.timeout.map_or(left, |own| own.min(left)))
            }
        }
    }
}

/// The options that every kind of call has.
macro_rules! call_options {
    ($name:ident $(<$($type:ident),*>)?, $($begin:ident).+) => {
        impl $(<$($type),*>)? $name $(<$($type),*>)? {
            /// Ends the call with `DeadlineExceeded` after `timeout`, counted from now on. Sent to the server, which
            /// stops as well. A handler's calls never outlive the call that it serves.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.$($begin).+.timeout = Some(timeout);
                self
            }

            /// Fails the call with `ResourceExhausted` when a reply message has more than `bytes`. The channel's
            /// `message_bytes_max` holds as well and is what keeps larger ones from being read at all.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn reply_bytes_max(mut self, bytes: usize) -> Self {
                self.$($begin).+.reply_bytes_max = bytes;
                self
            }

            /// Compresses the messages of this call, or not, whatever holds for its channel and method. A server of the
            /// native wire that does not take this gets them as they are, and so does one that has not said yet what
            /// it takes: the first calls of a connection, unless its channel compresses.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn compression(mut self, compression: crate::Compression) -> Self {
                self.$($begin).+.compression = compression;
                self
            }

            /// What this call has in common with those that are to go to the same server, where the channel's balancer
            /// [hashes](crate::balance::Ketama).
            #[must_use = "a call does nothing until it is awaited"]
            pub fn hash_key(mut self, key: impl Into<bytes::Bytes>) -> Self {
                self.$($begin).+.asked().hash_key = Some(key.into());
                self
            }

            /// Says that a second try does no harm, where the method does not: a channel to several servers may send
            /// the call again after a failure, or to two of them (see [`FailMode`](crate::FailMode)).
            #[must_use = "a call does nothing until it is awaited"]
            pub fn idempotent(mut self) -> Self {
                self.$($begin).+.asked().idempotent = true;
                self
            }

            /// Adds metadata; a refused name or value fails the call.
            #[must_use = "a call does nothing until it is awaited"]
            pub fn meta(mut self, name: &str, value: impl Into<bytes::Bytes>) -> Self {
                self.$($begin).+.meta(name, value);
                self
            }
        }
    };
}
use call_options;
