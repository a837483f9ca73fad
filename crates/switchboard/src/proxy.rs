//! Calls handed on to other servers: what a proxy is made of.
//!
//! [`Forward`] is a service whose handler is a channel. It takes the calls of a service that is known, or those that no
//! service [declares](crate::Server::fallback), and hands their messages on as bytes, with metadata, the time that is
//! left, and the end of either side; what comes back goes the same way. The wires of caller and server are independent
//! of each other. Where they do not write messages in the same codec, a [`Translate`] rewrites them.
//!
//! Callers on Thrift reach a service that has a descriptor without one: its messages are protobuf by then, as
//! everywhere. Where the server behind speaks Thrift, [`Messages`](crate::codec::thrift::Messages) rewrite those of
//! protobuf.
//!
//! ```
//! use switchboard::{Channel, Server, proxy::Forward};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Callers of any wire reach a server of brpc that this program knows nothing about.
//! let channel = Channel::builder("tcp://10.0.0.1:8002?wire=baidu_std").lazy()?;
//! let server = Server::new().fallback(Forward::any(channel), ["example.EchoService"]);
//! # Ok(())
//! # }
//! ```
//!
//! **Without a schema** one thing is unknown: how many messages a method takes and gives. A wire that tells of a call
//! only that it begins (gRPC) is asked for its first message, and what has no second one within 250 ms goes on as a
//! call with one request where the next server wants to know. On Connect, JSON-RPC, baidu_std, rpcx and Thrift such a
//! call has one reply; on the native wire and gRPC any number.
//!
//! A call costs what a call of a handler through a channel costs, and no lock.

use crate::{
    Call, Channel, ClientMethod, Codec, Idempotency, Kind, Metadata, MethodInfo, Reply, Result, Service,
    ServiceInfo, Status,
    call::{ReplyBody, ReplyParts, RequestBody},
    client::Tells,
    stream::Queue,
};
use bytes::Bytes;
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use switchboard_wire::LEARNED_MAX;

/// How long a caller that did not say how many requests it has gets to send a second one or to end.
const SECOND_MAX: Duration = Duration::from_millis(250);

/// A service that hands its calls on to a channel.
pub struct Forward {
    info: &'static ServiceInfo,
    methods: Methods,
    channel: Channel,
    codec: Option<Codec>,
    translate: Option<Arc<dyn Translate>>,
}

#[derive(Clone)]
enum Methods {
    /// By their index.
    Declared(&'static [ClientMethod]),
    /// By their place in the server's table, as they are called.
    Learned(Arc<[OnceLock<Learned>]>),
}

/// A method of which nobody said how it is called.
struct Learned {
    service: &'static ServiceInfo,
    unary: &'static ClientMethod,
    server_stream: &'static ClientMethod,
    bidi: &'static ClientMethod,
}

/// Rewrites messages where a caller and the server behind write them in different codecs.
///
/// ```
/// use switchboard::{Call, Codec, Result, Status, proxy::{Translate, Translation}};
///
/// /// For services whose messages are the same in JSON, whatever they hold.
/// struct Same;
///
/// impl Translate for Same {
///     fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
///         match (call.codec(), to) {
///             (Codec::Json, Codec::Proto) => Ok(Translation::new(Ok, Ok)),
///             (from, to) => Err(Status::unimplemented(format!("{from} is not rewritten as {to}"))),
///         }
///     }
/// }
/// ```
pub trait Translate: Send + Sync + 'static {
    /// Looks at a call whose messages the server behind wants as `to`.
    ///
    /// # Errors
    /// Why they cannot be rewritten; the call ends with it.
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation>;
}

/// What is done with the messages of one call.
#[expect(missing_debug_implementations, reason = "three functions")]
pub struct Translation {
    request: Box<dyn FnMut(Bytes) -> Result<Bytes> + Send + Sync>,
    reply: Box<dyn FnMut(Bytes) -> Result<Bytes> + Send>,
    failure: Option<Box<dyn FnOnce(Status) -> Result<Bytes> + Send>>,
}

impl Translation {
    /// Rewrites requests from the codec of the caller to that of the server, and replies back.
    pub fn new(
        request: impl FnMut(Bytes) -> Result<Bytes> + Send + Sync + 'static,
        reply: impl FnMut(Bytes) -> Result<Bytes> + Send + 'static,
    ) -> Translation {
        Translation { request: Box::new(request), reply: Box::new(reply), failure: None }
    }

    /// Makes a reply of the status that the server has answered with, where the codec of the caller has a place for it
    /// in replies, as Thrift has for exceptions. Not for what fails in the middle of a stream.
    #[must_use]
    pub fn failure(mut self, failure: impl FnOnce(Status) -> Result<Bytes> + Send + 'static) -> Translation {
        self.failure = Some(Box::new(failure));
        self
    }
}

#[cfg(feature = "http")]
impl Translate for crate::codec::thrift::Messages {
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
        let messages = self.method(call.cx().service().name, call.cx().method().name)?;
        let (of_replies, from) = (messages.clone(), call.codec());
        Ok(Translation::new(
            move |request| messages.request(from, to, &request),
            move |reply| of_replies.reply(to, from, &reply),
        ))
    }
}

impl Forward {
    /// Hands on the calls of this service, for [`Server::add`](crate::Server::add). What is kept of its methods is
    /// never freed.
    pub fn service(info: &'static ServiceInfo, channel: Channel) -> Forward {
        let method = |(index, method): (usize, &MethodInfo)| ClientMethod {
            service: info,
            index: index as u16,
            path: Box::leak(format!("{}/{}", info.name, method.name).into()),
        };
        let methods: Vec<_> = info.methods.iter().enumerate().map(method).collect();
        Forward { info, methods: Methods::Declared(methods.leak()), channel, codec: None, translate: None }
    }

    /// Hands on calls that no service declares, for [`Server::fallback`](crate::Server::fallback).
    pub fn any(channel: Channel) -> Forward {
        static ANY: ServiceInfo = ServiceInfo { name: "*", methods: &[], descriptor: &[] };
        let places = (0..LEARNED_MAX).map(|_| OnceLock::new()).collect();
        Forward { info: &ANY, methods: Methods::Learned(places), channel, codec: None, translate: None }
    }

    /// The same over another channel, for calls from now on: what was learned of methods is shared, and so is the
    /// [`Translate`]. Its [codec](Self::codec) is that of each caller again, since the other servers may read others.
    ///
    /// Calls that are under way end on the channel that they began on, which closes its connections when the last
    /// `Forward` with it is gone and the last call has ended. A [`Cut`](crate::client::Cut) ends what takes longer.
    #[must_use]
    pub fn over(&self, channel: Channel) -> Forward {
        Forward {
            info: self.info,
            methods: self.methods.clone(),
            channel,
            codec: None,
            translate: self.translate.clone(),
        }
    }

    /// Writes messages in this codec on channels that can, instead of that of each caller.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Forward {
        self.codec = Some(codec);
        self
    }

    /// Rewrites messages where the codecs differ. Without it such calls end with `Unimplemented`.
    #[must_use]
    pub fn translate(mut self, translate: impl Translate) -> Forward {
        self.translate = Some(Arc::new(translate));
        self
    }

    /// How the server behind is sent messages.
    fn codec_behind(&self, call: &Call) -> Codec {
        match self.channel.codec(self.codec.unwrap_or(call.codec())) {
            // Its wire has to say what they are, which nobody knows.
            to if call.codec() == Codec::Raw && to != Codec::Raw => self.channel.codec(Codec::Proto),
            to => to,
        }
    }

    fn translation(&self, call: &Call, to: Codec) -> Result<Option<Translation>> {
        match &self.translate {
            _ if call.codec() == to || call.codec() == Codec::Raw => Ok(None),
            Some(translate) => translate.begin(call, to).map(Some),
            None => Err(Status::unimplemented(format!(
                "{} was called in {}, the server behind takes {to}, and nobody here knows its messages",
                call.full_name(),
                call.codec()
            ))),
        }
    }

    /// The method as it is to be called, and the requests that were looked at to find out.
    async fn method(&self, call: &mut Call) -> Result<(&'static ClientMethod, Vec<Bytes>)> {
        let places = match &self.methods {
            Methods::Declared(methods) => {
                let method = methods.get(usize::from(call.method()));
                let method =
                    method.ok_or_else(|| Status::internal("a call of a method that the service has not"))?;
                return Ok((method, Vec::new()));
            }
            Methods::Learned(places) => places,
        };
        let tells = self.channel.tells();
        let mut ahead = Vec::new();
        if let RequestBody::Many(queue) = call.body()
            && tells != Tells::Nothing
            // The native wire has said that it is a stream.
            && !(tells == Tells::Requests && call.cx().peer().wire == "native")
        {
            let is_one;
            (ahead, is_one) = look_ahead(queue).await?;
            if is_one {
                *call.body_mut() = RequestBody::One(ahead.pop().unwrap_or_default());
            }
        }
        let is_one = matches!(call.body(), RequestBody::One(_));
        let kind = match call.cx().method().kind {
            Kind::Unary => Kind::Unary,
            _ if !is_one => Kind::Bidi,
            _ if tells == Tells::Kind || call.cx().is_oneway() => Kind::Unary,
            _ => Kind::ServerStream,
        };
        let service = call.cx().service();
        let place = places.get(usize::from(call.method()));
        let learned = place.map(|place| place.get_or_init(|| Learned::new(service)));
        match learned.filter(|learned| std::ptr::eq(learned.service, service)) {
            Some(learned) => Ok((learned.of(kind), ahead)),
            // One of another server with the same fallback.
            None => Ok((ClientMethod::intern(&call.full_name(), kind, Idempotency::Unknown)?, ahead)),
        }
    }
}

impl Service for Forward {
    fn info(&self) -> &'static ServiceInfo {
        self.info
    }

    async fn call(&self, mut call: Call) -> Result<Reply> {
        let to = self.codec_behind(&call);
        let is_answered = !call.cx().is_oneway();
        let translation = self.translation(&call, to)?;
        let (method, mut ahead) = self.method(&mut call).await?;
        let Some(Translation { mut request, reply, failure }) = translation else {
            return self.channel.hand_on(method, to, call, ahead).await;
        };
        for message in &mut ahead {
            *message = request(std::mem::take(message))?;
        }
        call.unpack_message()?;
        call.each_message(request)?;
        match (self.channel.hand_on(method, to, call, ahead).await, failure) {
            (Ok(answer), _) if is_answered => answer.each_message(reply),
            (Err(status), Some(failure)) if is_answered => Ok(ReplyParts {
                body: ReplyBody::One(failure(status)?.into()),
                metadata: Metadata::new(),
                trailers: Metadata::new(),
            }
            .into()),
            (answer, _) => answer,
        }
    }

    /// So does the server behind.
    fn takes_thrift(&self) -> bool {
        matches!(self.channel.codec(Codec::Proto), Codec::Thrift | Codec::ThriftStruct)
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward")
            .field("service", &self.info.name)
            .field("channel", &self.channel)
            .field("translates", &self.translate.is_some())
            .finish_non_exhaustive()
    }
}

impl Learned {
    fn new(service: &'static ServiceInfo) -> Learned {
        let name = service.methods[0].name;
        let methods = [Kind::Unary, Kind::ServerStream, Kind::Bidi].map(|kind| MethodInfo::new(name, kind));
        let kinds =
            ServiceInfo { name: service.name, methods: Box::leak(Box::new(methods)), descriptor: &[] };
        let kinds: &'static ServiceInfo = Box::leak(Box::new(kinds));
        let path: &'static str = Box::leak(format!("{}/{name}", service.name).into());
        let method = |index| &*Box::leak(Box::new(ClientMethod { service: kinds, index, path }));
        Learned { service, unary: method(0), server_stream: method(1), bidi: method(2) }
    }

    fn of(&self, kind: Kind) -> &'static ClientMethod {
        match kind {
            Kind::Unary => self.unary,
            Kind::ServerStream => self.server_stream,
            Kind::Bidi | Kind::ClientStream => self.bidi,
        }
    }
}

/// The first requests of a stream, and whether the first is the only one.
async fn look_ahead(queue: &Queue) -> Result<(Vec<Bytes>, bool)> {
    let Some(first) = queue.next().await? else { return Ok((Vec::new(), false)) };
    match tokio::time::timeout(SECOND_MAX, queue.next()).await {
        Ok(Ok(None)) => Ok((vec![first], true)),
        Ok(Ok(Some(second))) => Ok((vec![first, second], false)),
        Ok(Err(status)) => Err(status),
        Err(_) => Ok((vec![first], false)),
    }
}
