//! Channels on HTTP: calls to any gRPC, gRPC-Web or Connect server.
//!
//! A call is encoded by its dialect ([`head`], [`upload`]), sent over a connection that all callers of a worker share
//! ([`link`]), and its response is read by [`replies`] or, for Connect's unary form, [`unary`]. On HTTP/2 a caller
//! drives its stream itself, so a unary call needs no task and no queue; a call with streams has one task.
//!
//! # Cost of a unary call
//!
//! Beside the payloads: the boxed future of the call, the request in its envelope, the header maps of request and
//! response, and the state of a stream in `h2`. URIs of methods are built once per connection.
//!
//! # Common behaviour with the native wire
//!
//! Connection slots, back-off and reconnecting, the keepalive (on HTTP/2, by PING), deadlines, cancellation by drop,
//! and the texts of statuses. Calls that surely did not begin, because the server refused the stream, named a last one
//! before it (GOAWAY) or closed an idle connection, are retried once, of any kind. `stream_window_bytes` is the window
//! of a stream on HTTP/2; `methods_max` and `outbox_bytes_max` do not apply.

mod codes;
mod compression;
mod connect;
mod envelope;
mod grpc;
mod grpc_web;
mod head;
mod http1;
mod http2;
mod json_rpc;
mod link;
mod pipe;
mod replies;
mod settings;
mod streaming;
mod texts;
mod thrift;
mod unary;
mod upload;

pub(super) use settings::{Dialect, Settings};

use super::{
    Begin, RequiredCallShape,
    calls::RawResponse,
    connection::Connection,
    kind::ChannelKind,
    options::Options,
    pool::Pool,
    streaming::{STREAM_BYTES_AHEAD, StartedStream},
};
use bytes::Bytes;
use head::OutgoingRequest;
use link::{InFlight, Link};
use settings::{Terms, Version};
use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use streaming::{Queues, StreamCall};
use switchboard_core::{Result, compression::Packing, layer::BoxFuture, queue::Queue};
use switchboard_net::net::{Address, Carries};
use switchboard_wire::{Code, Codec, Origin, Retry, Status};
use texts::Texts;
use tokio::runtime::Handle;
use upload::{Requests, Upload};

/// The connections of a channel on HTTP.
pub(super) struct Http {
    pool: Pool<Link>,
    /// Connections of JSON-RPC in WebSockets, used instead of `pool`.
    texts: Option<Box<Pool<Texts>>>,
    terms: Terms,
}

impl Http {
    pub(super) fn new(
        addresses: Vec<Address>,
        dialect: Dialect,
        options: Options,
        owner: Weak<dyn ChannelKind>,
    ) -> Http {
        let terms = options.http.terms(dialect, &options.limits);
        let over_websocket = options.dialling.carries == Carries::JsonRpc;
        let texts =
            over_websocket.then(|| Box::new(Pool::new(addresses.clone(), options.clone(), owner.clone())));
        Http { pool: Pool::new(addresses, options, owner), texts, terms }
    }

    /// Sends a unary call and waits for its reply; dropping the future cancels the call.
    async fn send(&self, begin: &Begin, message: &Bytes) -> Result<RawResponse> {
        if let Some(texts) = &self.texts {
            return Box::pin(texts::unary(texts, begin, message)).await;
        }
        let deadline = begin.deadline_if_any();
        let terms = self.terms.compressed(begin.compression)?;
        let called = pin!(async {
            let (link, left) = match self.pool.ready() {
                // No time has passed: an unchanged timeout is the same in every call, which HTTP/2 encodes in one byte.
                Some(link) => (link.enter()?, begin.time_left()),
                // Boxed, to keep the future of a call on a ready connection small.
                None => (Box::pin(self.connect_and_enter(deadline)).await?, time_left(deadline)),
            };
            let first = unary::call(terms, &link, outgoing(begin, left), message).await;
            drop(link);
            match first {
                Err(status) if surely_not_begun(&status) => {
                    let again = async {
                        let link = self.enter(deadline).await.map_err(|_| status)?;
                        unary::call(terms, &link, outgoing(begin, time_left(deadline)), message).await
                    };
                    Box::pin(again).await
                }
                first => first,
            }
        });
        within(deadline, NO_ANSWER, called).await
    }

    /// Sends a call with streams; requests are taken from `outbound`, replies are pushed into `inbound`.
    async fn send_stream(
        &self,
        begin: &Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
        inbound: &Arc<Queue>,
    ) -> Result<()> {
        if let Some(texts) = &self.texts {
            return texts::stream(texts, begin, message, inbound).await;
        }
        if self.terms.dialect.posts() {
            let (wire, instead) = match self.terms.dialect {
                Dialect::Thrift => ("Thrift", ""),
                _ => ("JSON-RPC over POST", "; over ws:// it supports streams of replies"),
            };
            let text = format!("{} has streams, which {wire} does not support{instead}", begin.method.path);
            return Err(Status::unimplemented(text));
        }
        let deadline = begin.deadline_if_any();
        let terms = self.terms.compressed(begin.compression)?;
        let start = async {
            let body = || {
                Ok::<_, Status>(match (&message, &outbound) {
                    (Some(message), _) => Upload::One(upload::wrap(message, &terms)?),
                    (None, Some(queue)) => Upload::Many(Requests::new(queue.clone(), terms)),
                    (None, None) => Upload::Nothing,
                })
            };
            let send = async |link: &InFlight| {
                let link = link.link();
                link.begin(outgoing(begin, time_left(deadline)).head(&terms, link)?, body()?).await
            };
            let link = self.enter(deadline).await?;
            match send(&link).await {
                Ok(exchange) => Ok((link, exchange)),
                Err(status) if surely_not_begun(&status) => {
                    let link = self.enter(deadline).await.map_err(|_| status)?;
                    let exchange = send(&link).await?;
                    Ok((link, exchange))
                }
                Err(status) => Err(status),
            }
        };
        let (link, exchange) = within(deadline, NO_ANSWER, pin!(start)).await?;
        let wanted = outgoing(begin, None).content_type(&terms)?;
        needs_runtime("streams on HTTP")?;
        let stream_call = StreamCall { terms, wanted, link, exchange };
        switchboard_core::runtime::spawn(stream_call.run(Queues::new(inbound.clone(), outbound), deadline));
        Ok(())
    }

    /// Returns a connection, opened if needed, with this call counted.
    async fn enter(&self, deadline: Option<Instant>) -> Result<InFlight> {
        match self.pool.ready() {
            Some(link) => link.enter(),
            None => self.connect_and_enter(deadline).await,
        }
    }

    async fn connect_and_enter(&self, deadline: Option<Instant>) -> Result<InFlight> {
        let connecting = pin!(self.pool.connection());
        let late = "no connection within the call's deadline";
        within(deadline, late, connecting).await?.enter()
    }
}

impl ChannelKind for Http {
    fn write_target(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.pool, f)
    }

    #[inline]
    fn prepare(&self, begin: &mut Begin) -> Option<Arc<Connection>> {
        begin.metadata = self.pool.metadata();
        begin.timeout = self.pool.timeout();
        begin.compression = self.pool.compression(begin.method.path);
        None
    }

    fn unary(self: Arc<Self>, begin: Begin, request: Bytes) -> BoxFuture<'static, Result<RawResponse>> {
        Box::pin(async move { self.send(&begin, &request).await })
    }

    fn oneway(self: Arc<Self>, mut begin: Begin, request: Bytes) -> BoxFuture<'static, Result<()>> {
        begin.options().oneway = true;
        Box::pin(async move { self.send(&begin, &request).await.map(drop) })
    }

    fn stream(
        self: Arc<Self>,
        begin: Begin,
        message: Option<Bytes>,
        outbound: Option<Arc<Queue>>,
    ) -> BoxFuture<'static, Result<StartedStream>> {
        Box::pin(async move {
            let inbound = Arc::new(Queue::new(STREAM_BYTES_AHEAD));
            self.send_stream(&begin, message, outbound, &inbound).await?;
            Ok(StartedStream { inbound, packing: Packing::OFF, follow: None })
        })
    }

    fn connect(&self) -> BoxFuture<'_, Result<()>> {
        match &self.texts {
            Some(texts) => Box::pin(texts.connect()),
            None => Box::pin(self.pool.connect()),
        }
    }

    fn is_ready(&self) -> bool {
        match &self.texts {
            Some(texts) => texts.ready().is_some(),
            None => self.pool.ready().is_some(),
        }
    }

    fn codec(&self, preferred: Codec) -> Codec {
        self.pool.options().http.codec(preferred)
    }

    fn required_shape(&self) -> RequiredCallShape {
        self.pool.options().required_shape()
    }

    #[cfg(feature = "auth")]
    fn add_hosts(&self, hosts: &mut Vec<String>) {
        self.pool.add_hosts(hosts);
    }

    #[cfg(any(test, feature = "simulation"))]
    fn left(&self) -> Vec<(&'static str, usize)> {
        self.pool.usable().map(|link| ("calls", link.in_flight())).collect()
    }
}

fn time_left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(switchboard_core::clock::now()))
}

fn outgoing(begin: &Begin, left: Option<Duration>) -> OutgoingRequest<'_> {
    let oneway = begin.options.as_ref().is_some_and(|options| options.oneway);
    OutgoingRequest { method: begin.method, codec: begin.codec, left, metadata: &begin.metadata, oneway }
}

/// Returns true when the call surely did not begin, so that it may be retried whatever its method does.
fn surely_not_begun(status: &Status) -> bool {
    status.code() == Code::Unavailable
        && status.retry() == Retry::Safe
        && status.origin() == Origin::Connection
}

/// Message of a call that ends at its deadline.
const NO_ANSWER: &str = "no response within the call's deadline";

/// # Errors
/// `FailedPrecondition` on a thread without a tokio runtime.
fn needs_runtime(what: &str) -> Result<()> {
    match Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(Status::failed_precondition(format!("{what} need a tokio runtime on this thread"))),
    }
}

/// Runs `work` until the deadline, then drops it. Deadlines need the timer of a tokio runtime.
async fn within<T>(
    deadline: Option<Instant>,
    late: &str,
    work: Pin<&mut (impl Future<Output = Result<T>> + ?Sized)>,
) -> Result<T> {
    let Some(deadline) = deadline else { return work.await };
    needs_runtime("timeouts on HTTP")?;
    let late = || Err(Status::deadline_exceeded(late));
    match tokio::time::timeout_at(deadline.into(), work).await {
        Err(_) => late(),
        // The server's clock was faster: it resets the stream at the deadline.
        Ok(Err(status))
            if status.code() == Code::Canceled
                && status.origin() == Origin::Connection
                && deadline <= switchboard_core::clock::now() =>
        {
            late()
        }
        Ok(outcome) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientMethod, Target};
    use switchboard_wire::{Kind, Metadata, MethodInfo, ServiceInfo};

    static SERVICE: ServiceInfo =
        ServiceInfo { name: "a.B", methods: &[MethodInfo::new("C", Kind::Unary)], descriptor: &[] };
    static METHOD: ClientMethod = ClientMethod { service: &SERVICE, index: 0, path: "a.B/C" };

    #[test]
    fn unary_calls_are_small() {
        let http = Http::new(
            Vec::new(),
            Dialect::Grpc,
            crate::client::options::ChannelBuilder::new("").into_options(),
            Weak::<Http>::new(),
        );
        let begin = Begin {
            target: Target::Nowhere,
            method: &METHOD,
            codec: Codec::Proto,
            compression: switchboard_core::Compression::None,
            timeout: None,
            reply_bytes_max: 0,
            metadata: Metadata::new(),
            early_error: None,
            options: None,
        };
        // The future is moved into its box with every call: rare state is in boxes of its own.
        let bytes = size_of_val(&http.send(&begin, &Bytes::new()));
        assert!(bytes <= 2048, "{bytes}");
    }
}
