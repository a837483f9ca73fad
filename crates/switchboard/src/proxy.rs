//! Forwards calls to other servers: the parts of a proxy.
//!
//! [`Forward`] is a service whose handler is a channel. It accepts the calls of a given service, or the calls that no
//! service [declares](crate::Server::fallback), and forwards their messages as bytes, with metadata, the remaining
//! time, and the end of each side; replies are forwarded the same way. The wires of caller and server are independent
//! of each other. If they encode messages in different codecs, a [`Translate`] converts the messages.
//!
//! Callers on Thrift can call a service that has a descriptor without a [`Translate`]: its messages are converted to
//! protobuf before. If the upstream server uses Thrift, [`Messages`](switchboard_core::codec::thrift::Messages)
//! converts protobuf
//! messages.
//!
//! ```
//! use switchboard::{Channel, Server, proxy::Forward};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Callers of any wire reach a brpc server whose services this program does not know.
//! let channel = Channel::builder("tcp://10.0.0.1:8002?wire=baidu_std").lazy()?;
//! let server = Server::new().fallback(Forward::any(channel), ["example.EchoService"]);
//! # Ok(())
//! # }
//! ```
//!
//! **Without a schema** the kind of a method is unknown: how many messages it takes and returns. If the wire of the
//! caller reports only that a call begins (gRPC), the proxy waits for the first message. If no second message follows
//! within 250 ms, the call is forwarded as a call with one request, if the next server needs to know. On Connect,
//! JSON-RPC, baidu_std, rpcx and Thrift such a call has one reply; on the native wire and gRPC any number.
//!
//! A forwarded call costs the same as a handler that makes one call through a channel, and takes no lock.

use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use switchboard_client::{Channel, ClientMethod, client::RequiredCallShape};
use switchboard_core::{
    Call, Reply, Result, Service,
    call::{ReplyBody, ReplyParts, RequestBody},
    queue::Queue,
};
use switchboard_wire::{Codec, Idempotency, Kind, Metadata, MethodInfo, ServiceInfo, Status, WireId};

/// Time within which a caller that did not declare its number of requests must send a second one or end.
const SECOND_MAX: Duration = Duration::from_millis(250);

/// A service that forwards its calls to a channel.
pub struct Forward {
    info: &'static ServiceInfo,
    methods: Methods,
    channel: Channel,
    codec: Option<Codec>,
    translate: Option<Arc<dyn Translate>>,
}

#[derive(Clone)]
enum Methods {
    /// Methods by their index.
    Declared(&'static [ClientMethod]),
    /// Methods by the names with which they are called.
    Called,
}

/// Converts messages if a caller and the upstream server encode them in different codecs.
///
/// ```
/// use switchboard::{Call, Codec, Result, Status, proxy::{Translate, Translation}};
///
/// /// For services whose messages are identical in JSON, regardless of their content.
/// struct Same;
///
/// impl Translate for Same {
///     fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
///         match (call.codec(), to) {
///             (Codec::Json, Codec::Proto) => Ok(Translation::new(Ok, Ok)),
///             (from, to) => Err(Status::unimplemented(format!("{from} cannot be converted to {to}"))),
///         }
///     }
/// }
/// ```
pub trait Translate: Send + Sync + 'static {
    /// Inspects a call whose messages the upstream server expects as `to`.
    ///
    /// # Errors
    /// The reason why they cannot be converted; the call ends with it.
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation>;
}

/// Conversion of the messages of one call.
#[expect(missing_debug_implementations, reason = "three functions")]
pub struct Translation {
    request: Box<dyn FnMut(Bytes) -> Result<Bytes> + Send + Sync>,
    reply: Box<dyn FnMut(Bytes) -> Result<Bytes> + Send>,
    failure: Option<Box<dyn FnOnce(Status) -> Result<Bytes> + Send>>,
}

impl Translation {
    /// Converts requests from the codec of the caller to that of the server, and replies back.
    pub fn new(
        request: impl FnMut(Bytes) -> Result<Bytes> + Send + Sync + 'static,
        reply: impl FnMut(Bytes) -> Result<Bytes> + Send + 'static,
    ) -> Translation {
        Translation { request: Box::new(request), reply: Box::new(reply), failure: None }
    }

    /// Converts the status of the server to a reply, if the codec of the caller has errors in replies, as Thrift has
    /// exceptions. Not used for failures in the middle of a stream.
    #[must_use]
    pub fn failure(mut self, failure: impl FnOnce(Status) -> Result<Bytes> + Send + 'static) -> Translation {
        self.failure = Some(Box::new(failure));
        self
    }
}

#[cfg(feature = "http")]
impl Translate for switchboard_core::codec::thrift::Messages {
    fn begin(&self, call: &Call, to: Codec) -> Result<Translation> {
        let messages = self.method(call.cx().service_name(), call.cx().method_name())?;
        let (of_replies, from) = (messages.clone(), call.codec());
        Ok(Translation::new(
            move |request| messages.request(from, to, &request),
            move |reply| of_replies.reply(to, from, &reply),
        ))
    }
}

impl Forward {
    /// Forwards the calls of this service, for [`Server::add`](crate::Server::add). The data about its methods is never
    /// freed.
    pub fn service(info: &'static ServiceInfo, channel: Channel) -> Forward {
        let method = |(index, method): (usize, &MethodInfo)| ClientMethod {
            service: info,
            index: index as u16,
            path: Box::leak(format!("{}/{}", info.name, method.name).into()),
        };
        let methods: Vec<_> = info.methods.iter().enumerate().map(method).collect();
        Forward { info, methods: Methods::Declared(methods.leak()), channel, codec: None, translate: None }
    }

    /// Forwards calls that no service declares, for [`Server::fallback`](crate::Server::fallback).
    pub fn any(channel: Channel) -> Forward {
        static ANY: ServiceInfo = ServiceInfo { name: "*", methods: &[], descriptor: &[] };
        Forward { info: &ANY, methods: Methods::Called, channel, codec: None, translate: None }
    }

    /// Returns a copy that uses another channel for calls from now on, with the same [`Translate`]. Its
    /// [codec](Self::codec) is reset to that of each caller, since the other servers may support others.
    ///
    /// Running calls end on the channel on which they began. That channel closes its connections when the last
    /// `Forward` with it is dropped and the last call has ended. A
    /// [`ConnectionAborter`](switchboard_client::client::ConnectionAborter) aborts calls that take longer.
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

    /// Encodes messages in this codec on channels that support it, instead of in that of each caller.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Forward {
        self.codec = Some(codec);
        self
    }

    /// Converts messages if the codecs differ. Without it such calls end with `Unimplemented`.
    #[must_use]
    pub fn translate(mut self, translate: impl Translate) -> Forward {
        self.translate = Some(Arc::new(translate));
        self
    }

    /// Returns the codec of messages to the upstream server.
    fn codec_behind(&self, call: &Call) -> Codec {
        match self.channel.codec(self.codec.unwrap_or(call.codec())) {
            // The wire must declare a codec, and the codec of raw messages is unknown.
            to if call.codec() == Codec::Raw && to != Codec::Raw => self.channel.codec(Codec::Proto),
            to => to,
        }
    }

    fn translation(&self, call: &Call, to: Codec) -> Result<Option<Translation>> {
        match &self.translate {
            _ if call.codec() == to || call.codec() == Codec::Raw => Ok(None),
            Some(translate) => translate.begin(call, to).map(Some),
            None => Err(Status::unimplemented(format!(
                "{} was called in {}, the upstream server expects {to}, and the proxy has no schema for its messages",
                call.full_name(),
                call.codec()
            ))),
        }
    }

    /// Returns the method to call, and the requests that were read to determine its kind.
    async fn method(&self, call: &mut Call) -> Result<(&'static ClientMethod, Vec<Bytes>)> {
        if let Methods::Declared(methods) = &self.methods {
            let method = methods.get(usize::from(call.method()));
            let method =
                method.ok_or_else(|| Status::internal("the called method is not part of the service"))?;
            return Ok((method, Vec::new()));
        }
        let reports = self.channel.required_shape();
        let mut ahead = Vec::new();
        if let RequestBody::Many(queue) = call.body()
            && reports != RequiredCallShape::None
            // The native wire has reported that it is a stream.
            && !(reports == RequiredCallShape::Requests && call.cx().peer().wire == Some(WireId::NATIVE))
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
            _ if reports == RequiredCallShape::Kind || call.cx().is_oneway() => Kind::Unary,
            _ => Kind::ServerStream,
        };
        match call.cx().undeclared_name() {
            Some(_) => Ok((ClientMethod::undeclared(kind), ahead)),
            // The method is declared; this service was added besides the declaring one.
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
        let expects_reply = !call.cx().is_oneway();
        let translation = self.translation(&call, to)?;
        let (method, mut ahead) = self.method(&mut call).await?;
        let Some(Translation { mut request, reply, failure }) = translation else {
            return self.channel.forward(method, to, call, ahead).await;
        };
        for message in &mut ahead {
            *message = request(std::mem::take(message))?;
        }
        call.unpack_message()?;
        call.each_message(request)?;
        match (self.channel.forward(method, to, call, ahead).await, failure) {
            (Ok(result), _) if expects_reply => result.each_message(reply),
            (Err(status), Some(failure)) if expects_reply => Ok(ReplyParts {
                body: ReplyBody::One(failure(status)?.into()),
                metadata: Metadata::new(),
                trailers: Metadata::new(),
            }
            .into()),
            (result, _) => result,
        }
    }

    /// The upstream server supports Thrift as well.
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

/// Reads the first requests of a stream; returns them and whether the first is the only one.
async fn look_ahead(queue: &Queue) -> Result<(Vec<Bytes>, bool)> {
    let Some(first) = queue.next().await? else { return Ok((Vec::new(), false)) };
    match tokio::time::timeout(SECOND_MAX, queue.next()).await {
        Ok(Ok(None)) => Ok((vec![first], true)),
        Ok(Ok(Some(second))) => Ok((vec![first, second], false)),
        Ok(Err(status)) => Err(status),
        Err(_) => Ok((vec![first], false)),
    }
}
