//! Layers around the calls of a channel: like the layers around the handlers of a server, on the client side.

use super::{
    Begin, BidiCall, CallOptions, Channel, ChannelKind, ClientMethod, ClientStreamCall, OnewayCall,
    ServerStreamCall, unary,
};
use bytes::Bytes;
use std::{pin::Pin, sync::Arc, time::Duration};
use switchboard_core::{
    Call, Compression, Cx, Layer, Next, Receiver, Reply, Result, Sender,
    call::{ReplyBody, ReplyParts},
    context,
    layer::{BoxFuture, End},
    stream::stream_reply,
    trace::{TRACEPARENT, TRACESTATE},
};
use switchboard_wire::{Codec, Kind, Metadata, Status};

/// A channel and the layers around its calls.
pub(super) struct Layered {
    pub(super) channel: Channel,
    pub(super) layers: Vec<Arc<dyn Layer>>,
}

impl Layered {
    /// Passes a call through the layers to the channel.
    pub(super) fn call(
        self: &Arc<Self>,
        call: Call,
        begin: &Begin,
    ) -> Pin<Box<dyn Future<Output = Result<Reply>> + Send>> {
        let channel_end = ChannelEnd {
            channel: self.channel.clone(),
            method: begin.method,
            codec: begin.codec,
            compression: begin.compression,
            timeout: begin.timeout,
            options: begin.options.as_deref().cloned(),
        };
        let layered = self.clone();
        Box::pin(async move { Next::new(&layered.layers, &channel_end).call(call).await })
    }
}

/// Properties of a call that a channel's wire must know before its first message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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

    #[cfg(feature = "auth")]
    /// The hosts that its servers may name for second connections: their own, and those set with
    /// [`file_hosts`](super::ChannelBuilder::file_hosts).
    #[doc(hidden)]
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = Vec::new();
        self.add_hosts(&mut hosts);
        hosts.sort();
        hosts.dedup();
        hosts
    }

    #[cfg(feature = "auth")]
    pub(super) fn add_hosts(&self, hosts: &mut Vec<String>) {
        match &*self.0 {
            ChannelKind::Combined(combined) => {
                for channel in combined.channels() {
                    channel.add_hosts(hosts);
                }
            }
            #[cfg(feature = "http")]
            ChannelKind::Http(http) => http.add_hosts(hosts),
            ChannelKind::Fleet(fleet) => fleet.add_hosts(hosts),
            ChannelKind::Local(local) => match local.behind() {
                Some(layered) => layered.channel.add_hosts(hosts),
                // A service in this process listens on this machine.
                None => hosts.push("localhost".to_owned()),
            },
            ChannelKind::Remote(pool) => pool.add_hosts(hosts),
        }
    }

    /// Properties that must be known of a call through this channel.
    #[doc(hidden)]
    pub fn required_shape(&self) -> RequiredCallShape {
        match &*self.0 {
            ChannelKind::Combined(_) => RequiredCallShape::Kind,
            #[cfg(feature = "http")]
            ChannelKind::Http(http) => http.required_shape(),
            ChannelKind::Fleet(fleet) => fleet.required_shape(),
            ChannelKind::Local(local) => {
                local.behind().map_or(RequiredCallShape::Kind, |layered| layered.channel.required_shape())
            }
            ChannelKind::Remote(pool) => pool.options().required_shape(),
        }
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
