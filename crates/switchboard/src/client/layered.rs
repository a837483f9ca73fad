//! Layers around the calls of a channel: what a server has around its handlers, on the side of the caller.

use super::{
    Asked, Begin, BidiCall, Channel, ClientMethod, ClientStreamCall, OnewayCall, ServerStreamCall, Way,
    calls::Answer, unary,
};
use crate::{
    Call, Codec, Compression, Cx, Kind, Layer, Metadata, Next, Receiver, Reply, Result, Sender, Status,
    call::{ReplyBody, ReplyParts},
    context,
    layer::{BoxFuture, End},
    stream::stream_reply,
    trace::{TRACEPARENT, TRACESTATE},
};
use bytes::Bytes;
use std::{pin::Pin, sync::Arc, time::Duration};

/// A channel and what its calls pass before it.
pub(super) struct Layered {
    pub(super) channel: Channel,
    pub(super) layers: Vec<Arc<dyn Layer>>,
}

impl Layered {
    /// Takes a call through the layers to the channel.
    pub(super) fn call(
        self: &Arc<Self>,
        call: Call,
        begin: &Begin,
    ) -> Pin<Box<dyn Future<Output = Result<Reply>> + Send>> {
        let onward = Onward {
            channel: self.channel.clone(),
            method: begin.method,
            codec: begin.codec,
            compression: begin.compression,
            timeout: begin.timeout,
            asked: begin.asked.as_deref().cloned(),
        };
        let layered = self.clone();
        Box::pin(async move { Next::new(&layered.layers, &onward).call(call).await })
    }
}

/// How much a channel's wire wants to know of a call before its messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tells {
    /// Nothing: every kind of call looks the same.
    Nothing,
    /// Whether there is one request or a stream of them.
    Requests,
    /// Whether there is one message either way.
    Kind,
}

impl Channel {
    /// Hands a call on as one of `method`, written as `codec`, with what the channel adds to its calls. `ahead` are
    /// requests that were taken out of its stream already.
    pub(crate) async fn hand_on(
        &self,
        method: &'static ClientMethod,
        codec: Codec,
        mut call: Call,
        ahead: Vec<Bytes>,
    ) -> Result<Reply> {
        let Begin { metadata, compression, timeout, asked, .. } = self.begin(method, codec);
        let carried = call.cx_mut().metadata_mut();
        for (name, _) in metadata.iter() {
            carried.remove(name);
        }
        carried.extend(metadata);
        let mut asked = asked.map(|asked| *asked);
        if call.cx().is_oneway() && method.kind() == Kind::Unary {
            asked.get_or_insert_default().oneway = true;
        }
        let onward = Onward { channel: self.clone(), method, codec, compression, timeout, asked };
        onward.send(call, ahead).await
    }

    /// What has to be known of a call that goes through this channel.
    pub(crate) fn tells(&self) -> Tells {
        match &*self.0 {
            Way::Combined(_) => Tells::Kind,
            #[cfg(feature = "http")]
            Way::Http(http) => http.tells(),
            Way::Fleet(fleet) => fleet.tells(),
            Way::Local(local) => local.behind().map_or(Tells::Kind, |layered| layered.channel.tells()),
            Way::Remote(pool) => pool.options().tells(),
        }
    }
}

/// What comes after the last layer of a call: its channel, and what else was asked for.
#[derive(Clone)]
struct Onward {
    channel: Channel,
    method: &'static ClientMethod,
    codec: Codec,
    compression: Compression,
    timeout: Option<Duration>,
    asked: Option<Asked>,
}

impl End for Onward {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Reply>> {
        Box::pin(self.send(call, Vec::new()))
    }

    fn shared(&self) -> Arc<dyn End> {
        Arc::new(self.clone())
    }
}

impl Onward {
    async fn send(&self, mut call: Call, ahead: Vec<Bytes>) -> Result<Reply> {
        let begin = self.begin(call.cx_mut());
        if self.asked.as_ref().is_some_and(|asked| asked.oneway) {
            let (message, _) = call.into_one()?;
            OnewayCall::new(begin, Ok(message)).await?;
            return Ok(one(Bytes::new(), Metadata::new(), Metadata::new()));
        }
        match self.method.kind() {
            Kind::Unary => {
                let (message, _) = call.into_one()?;
                let Answer { item, head, trailers, .. } = unary::run(begin, message).await?;
                Ok(one(item.bytes, head, trailers))
            }
            Kind::ServerStream => {
                let (message, cx) = call.into_one()?;
                let replies = ServerStreamCall::new(begin, Ok(message), decode).await?;
                let hand =
                    move |cx: Arc<Cx>, into: Sender<Bytes>| async move { hand_on(&cx, &into, replies).await };
                Ok(stream_reply(cx, self.codec, encode, hand))
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
                    // Why it has ended is what `finish` tells.
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
                let hand = move |cx: Arc<Cx>, into: Sender<Bytes>| async move {
                    both(&cx, &into, up, (ahead, requests), replies).await
                };
                Ok(stream_reply(cx, self.codec, encode, hand))
            }
        }
    }

    /// The call on the channel, with the metadata that the layers leave.
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
            // Looked at where the reply is read.
            reply_bytes_max: usize::MAX,
            metadata,
            mistake: None,
            asked: self.asked.clone().map(Box::new),
        }
    }
}

/// Requests up and replies down, until the replies end.
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
            // Why the call has ended is what its replies tell.
            if up.send(message).await.is_err() {
                break;
            }
        }
        Ok::<(), Status>(())
    };
    let replying = hand_on(cx, into, replies);
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

/// Replies as they come, with what goes before and after them.
async fn hand_on(cx: &Cx, into: &Sender<Bytes>, mut replies: Receiver<Bytes>) -> Result<()> {
    for (name, value) in replies.metadata().await.iter() {
        cx.reply_metadata(name, value.clone())?;
    }
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
