//! Layers around the calls of a channel: like the layers around the handlers of a server, on the client side.

use super::{
    Begin, BidiCall, CallOptions, Channel, ClientMethod, ClientStreamCall, EndpointStats, Explanation,
    OnewayCall, ServerStreamCall,
    calls::RawResponse,
    connection::Connection,
    direct::{self, Direct, Prepared, Running},
    kind::ChannelKind,
    streaming::StartedStream,
    unary,
};
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use switchboard_core::{
    Call, Compression, Cx, Extensions, Layer, Next, Receiver, Reply, Result, Sender,
    call::{ReplyBody, ReplyParts, RequestBody},
    context,
    layer::{BoxFuture, End},
    queue::Queue,
    stream::stream_reply,
    trace::{TRACEPARENT, TRACESTATE},
};
use switchboard_wire::{Codec, Kind, Metadata, Status};

/// A channel and the layers around its calls, the first of them outermost.
pub(super) struct Layered {
    channel: Channel,
    layers: Vec<Arc<dyn Layer>>,
    direct: Direct,
}

impl Layered {
    /// Only the channel itself limits the size of messages.
    fn new(channel: Channel, layers: Vec<Arc<dyn Layer>>, extensions: Option<Arc<Extensions>>) -> Layered {
        let direct = Direct::new(format!("{channel:?}"), extensions, usize::MAX);
        Layered { channel, layers, direct }
    }

    /// Passes a call through the layers to the channel.
    fn start(self: &Arc<Self>, begin: &mut Begin, body: RequestBody) -> Result<Running> {
        let Prepared { call, scope, .. } = self.direct.prepare(begin, body, begin.method.service)?;
        let channel_end = ChannelEnd {
            channel: self.channel.clone(),
            method: begin.method,
            codec: begin.codec,
            compression: begin.compression,
            timeout: begin.timeout,
            options: begin.options.as_deref().cloned(),
        };
        let layered = self.clone();
        Ok(scope.run(Box::pin(async move { Next::new(&layered.layers, &channel_end).call(call).await })))
    }
}

impl ChannelKind for Layered {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.channel.0.write_target(f)?;
        f.write_str(" behind layers")
    }

    /// Layers see the metadata that the channel adds.
    fn prepare(&self, begin: &mut Begin) -> Option<Arc<Connection>> {
        self.channel.0.prepare(begin);
        None
    }

    fn unary(self: Arc<Self>, mut begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        let running = self.start(&mut begin, RequestBody::One(request));
        Box::pin(async move { running?.response().await })
    }

    fn oneway(self: Arc<Self>, mut begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            begin.options().oneway = true;
            let running = self.start(&mut begin, RequestBody::One(request))?;
            running.reply().await.map(drop)
        })
    }

    fn stream(
        self: Arc<Self>,
        mut begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(async move {
            let running = self.start(&mut begin, direct::requests(message, outbound))?;
            running.stream(begin.method.kind()).await
        })
    }

    fn connect(&self) -> BoxFuture<'_, Result<()>> {
        self.channel.0.connect()
    }

    fn is_ready(&self) -> bool {
        self.channel.0.is_ready()
    }

    fn codec(&self, preferred: Codec) -> Codec {
        self.channel.codec(preferred)
    }

    fn required_shape(&self) -> RequiredCallShape {
        self.channel.required_shape()
    }

    fn endpoints(&self) -> Vec<EndpointStats> {
        self.channel.endpoints()
    }

    fn explain(&self, explanation: &mut Explanation, key: Option<&[u8]>) {
        self.channel.0.explain(explanation, key);
    }

    /// The options of the call, with its log, reach the channel.
    fn logs_attempts(&self) -> bool {
        self.channel.0.logs_attempts()
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        self.channel.0.add_hosts(hosts);
    }

    #[cfg(any(test, feature = "simulation"))]
    fn left(&self) -> Vec<(&'static str, usize)> {
        self.channel.left()
    }

    fn layered(&self) -> Option<&Layered> {
        Some(self)
    }
}

impl Channel {
    /// Returns this channel with a [layer](Layer) around its calls, of every kind. The layer added first is outermost,
    /// as on servers; earlier clones of the channel stay without it.
    ///
    /// A layer sees the call with the metadata that the channel adds, before an endpoint is selected. It may change or
    /// reject the call, reply to it, or [try it again](switchboard_core::Call::try_clone). The timeout of the call
    /// includes the time in its layers. Each call costs some further allocations.
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
        let (channel, mut layers, extensions) = self.layered_parts();
        layers.push(Arc::new(layer));
        Channel(Arc::new(Layered::new(channel, layers, extensions)))
    }

    /// Returns this channel with a value that all its [layers](Self::layer) find in the
    /// [extensions](switchboard_core::Cx::extensions) of their calls, those that are added later as well. A value of
    /// the same type replaces the earlier one; earlier clones of the channel stay without it.
    ///
    /// ```
    /// use switchboard::{Channel, Status, layer};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> switchboard::Result<()> {
    ///
    /// struct Tenant(&'static str);
    ///
    /// let named = layer::from_fn("tenant", |mut call, next| {
    ///     Box::pin(async move {
    ///         let tenant = call.cx().extensions().get::<Tenant>().map_or("public", |tenant| tenant.0);
    ///         call.cx_mut().metadata_mut().insert("tenant", tenant)?;
    ///         next.call(call).await
    ///     })
    /// });
    /// let channel = Channel::builder("tcp://127.0.0.1:8080").lazy()?.layer(named);
    /// let acme = channel.extension(Tenant("acme"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn extension<T: Send + Sync + 'static>(&self, value: T) -> Channel {
        let (channel, layers, shared) = self.layered_parts();
        let mut extensions = Extensions::with_shared(shared);
        extensions.insert(value);
        Channel(Arc::new(Layered::new(channel, layers, Some(Arc::new(extensions)))))
    }

    /// The channel behind the layers, the layers, and the values that they share.
    fn layered_parts(&self) -> (Channel, Vec<Arc<dyn Layer>>, Option<Arc<Extensions>>) {
        match self.0.layered() {
            Some(layered) => (layered.channel.clone(), layered.layers.clone(), layered.direct.extensions()),
            None => (self.clone(), Vec::new(), None),
        }
    }
}

/// Properties of a call that a channel's wire must know before its first message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
// closed: each wire states one of them, and channels handle all
pub enum RequiredCallShape {
    /// None: every kind of call looks the same.
    None,
    /// The kind of requests: one or a stream.
    Requests,
    /// The kind of the call: one message or a stream, in each direction.
    Kind,
}

impl Channel {
    /// Forwards a call as a call of `method`, encoded with `codec`, with the metadata and options of the channel.
    /// `ahead` holds requests that were already taken from its stream.
    #[doc(hidden)]
    pub async fn forward(
        &self,
        method: &'static ClientMethod,
        codec: Codec,
        mut call: Call,
        ahead: Vec<Bytes>,
    ) -> Result<Reply> {
        let Begin { metadata, compression, timeout, options, .. } = self.begin(method, codec);
        let carried = call.cx_mut().metadata_mut();
        for (name, _) in metadata.iter() {
            carried.remove(name);
        }
        carried.extend(metadata);
        let mut options = options.map(|options| *options);
        if call.cx().is_oneway() && method.kind() == Kind::Unary {
            options.get_or_insert_default().oneway = true;
        }
        let channel_end = ChannelEnd { channel: self.clone(), method, codec, compression, timeout, options };
        channel_end.send(call, ahead).await
    }

    /// The hosts that its servers may name for second connections: their own, and those set with
    /// [`file_hosts`](super::ChannelBuilder::file_hosts).
    #[cfg(feature = "auth")]
    #[doc(hidden)]
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = Vec::new();
        self.0.add_hosts(&mut hosts);
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Properties that must be known of a call through this channel.
    #[doc(hidden)]
    pub fn required_shape(&self) -> RequiredCallShape {
        self.0.required_shape()
    }
}

/// The end of the layers of a call: its channel, and the options of the call.
#[derive(Clone)]
struct ChannelEnd {
    channel: Channel,
    method: &'static ClientMethod,
    codec: Codec,
    compression: Compression,
    timeout: Option<Duration>,
    options: Option<CallOptions>,
}

impl End for ChannelEnd {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(self.send(call, Vec::new()))
    }

    fn shared(&self) -> Arc<dyn End> {
        Arc::new(self.clone())
    }
}

impl ChannelEnd {
    async fn send(&self, mut call: Call, ahead: Vec<Bytes>) -> Result<Reply> {
        let begin = self.begin(call.cx_mut());
        if self.options.as_ref().is_some_and(|options| options.oneway) {
            let (message, _) = call.into_one()?;
            OnewayCall::new(begin, Ok(message)).await?;
            return Ok(one(Bytes::new(), Metadata::new(), Metadata::new()));
        }
        match self.method.kind() {
            Kind::Unary => {
                let (message, _) = call.into_one()?;
                let mut response = unary::run(begin, message).await?;
                let message = response.message_in(self.codec)?;
                Ok(one(message, response.head, response.trailers))
            }
            Kind::ServerStream => {
                let (message, cx) = call.into_one()?;
                let replies = ServerStreamCall::new(begin, Ok(message), decode).await?;
                let forward =
                    move |cx: Arc<Cx>, into: Sender<Bytes>| async move { forward(&cx, &into, replies).await };
                Ok(stream_reply(cx, self.codec, encode, forward))
            }
            Kind::ClientStream => {
                let (requests, _) = call.into_many();
                let mut requests = Receiver::of_request(requests, self.codec, decode);
                let upload = ClientStreamCall::new(begin, encode, decode).await?;
                for message in ahead {
                    // As below.
                    let _ = upload.send(message).await;
                }
                while let Some(message) = requests.next().await? {
                    // `finish` returns the reason.
                    if upload.send(message).await.is_err() {
                        break;
                    }
                }
                let response = upload.finish().await?;
                Ok(one(response.message, response.metadata, response.trailers))
            }
            Kind::Bidi => {
                let (requests, cx) = call.into_many();
                let requests = Receiver::of_request(requests, self.codec, decode);
                let (up, replies) = BidiCall::new(begin, encode, decode).await?;
                let forward = move |cx: Arc<Cx>, into: Sender<Bytes>| async move {
                    both(&cx, &into, up, (ahead, requests), replies).await
                };
                Ok(stream_reply(cx, self.codec, encode, forward))
            }
        }
    }

    /// Creates the call on the channel, with the metadata as the layers have left it.
    fn begin(&self, cx: &mut Cx) -> Begin {
        let mut metadata = std::mem::take(cx.metadata_mut());
        if let Some(trace) = context::trace() {
            metadata.remove(TRACEPARENT);
            metadata.remove(TRACESTATE);
            trace.add_to(&mut metadata);
        }
        Begin {
            target: self.channel.target(),
            method: self.method,
            codec: self.codec,
            compression: self.compression,
            timeout: self.timeout,
            // Checked where the reply is decoded.
            reply_bytes_max: usize::MAX,
            metadata,
            early_error: None,
            options: self.options.clone().map(Box::new),
        }
    }
}

/// Forwards requests and replies until the replies end.
async fn both(
    cx: &Cx,
    into: &Sender<Bytes>,
    up: Sender<Bytes>,
    (ahead, mut requests): (Vec<Bytes>, Receiver<Bytes>),
    replies: Receiver<Bytes>,
) -> Result<()> {
    let mut is_sending = true;
    let sending = async move {
        for message in ahead {
            // As below.
            let _ = up.send(message).await;
        }
        while let Some(message) = requests.next().await? {
            // The replies end with the reason.
            if up.send(message).await.is_err() {
                break;
            }
        }
        Ok::<(), Status>(())
    };
    let replying = forward(cx, into, replies);
    tokio::pin!(sending, replying);
    loop {
        tokio::select! {
            ended = &mut replying => return ended,
            sent = &mut sending, if is_sending => {
                sent?;
                is_sending = false;
            }
        }
    }
}

/// Forwards replies as they arrive, with the metadata before and after them.
async fn forward(cx: &Cx, into: &Sender<Bytes>, mut replies: Receiver<Bytes>) -> Result<()> {
    for (name, value) in replies.metadata().await.iter() {
        cx.reply_metadata(name, value.clone())?;
    }
    cx.complete_reply_head();
    while let Some(message) = replies.next().await? {
        into.send(message).await?;
    }
    for (name, value) in replies.trailers().iter() {
        cx.reply_trailer(name, value.clone())?;
    }
    Ok(())
}

fn one(message: Bytes, metadata: Metadata, trailers: Metadata) -> Reply {
    ReplyParts { metadata, trailers, body: ReplyBody::One(message.into()) }.into()
}

fn decode(_: Codec, message: Bytes) -> Result<Bytes> {
    Ok(message)
}

fn encode(message: &Bytes, _: Codec) -> Result<Bytes> {
    Ok(message.clone())
}
