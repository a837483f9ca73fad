//! HTTP/1.1: a connection carries one call at a time, so callers share a bounded set of connections.

use super::{
    codes,
    link::{self, Common, HttpResponse, Link},
    pipe::{LastReceived, Pipe},
    upload::Upload,
};
use crate::client::{ConnectionAborter, connection::ConnectionEnd, options::Options};
use ::http::{HeaderMap, HeaderValue, Request, header::HOST, uri::Authority};
use bytes::Bytes;
use http_body::Body as _;
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http1::{self, SendRequest},
    },
};
use hyper_util::rt::TokioIo;
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{Limit, Result};
use switchboard_net::net::{self, Address, Io};
use switchboard_wire::{Code, Retry, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of connections of one slot; callers wait when all are in use.
const OPEN_MAX: usize = 256;
/// Maximum number of idle connections.
const IDLE_MAX: usize = 32;
/// Minimum buffer that hyper accepts; `READ_BUFFER` is added to read bodies beside a head.
const BUFFER_LEAST: usize = 8 << 10;
const READ_BUFFER: usize = 64 << 10;

pub(super) struct Http1 {
    address: Address,
    dialling: net::Dialling,
    host: HeaderValue,
    connect_timeout: Duration,
    head_bytes_max: usize,
    idle: Arc<Idle>,
    open: Arc<Semaphore>,
    aborter: Option<ConnectionAborter>,
}

/// Connections without a call.
struct Idle {
    /// `None` once the channel was dropped.
    senders: Mutex<Option<Vec<SendRequest<Upload>>>>,
    /// True when this side has closed a connection because its call was dropped.
    closed_locally: AtomicBool,
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<SendRequest<Upload>>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<SendRequest<Upload>> {
        self.lock().as_mut()?.pop()
    }

    fn clear(&self) {
        if let Some(idle) = &mut *self.lock() {
            idle.clear();
        }
    }

    fn release(&self, sender: SendRequest<Upload>) {
        if let Some(idle) = &mut *self.lock()
            && idle.len() < IDLE_MAX
            && !sender.is_closed()
        {
            idle.push(sender);
        }
    }
}

type Connection = http1::Connection<TokioIo<Pipe>, Upload>;

impl Http1 {
    pub(super) async fn open(
        io: Box<dyn Io>,
        address: &Address,
        authority: &Authority,
        options: &Options,
    ) -> Result<(Http1, Driver)> {
        let head_bytes_max = options.limits.get(Limit::MetadataBytesMax) as usize;
        let received = LastReceived::new();
        let (sender, connection) = handshake(io, received.clone(), head_bytes_max).await?;
        let host = HeaderValue::try_from(authority.as_str()).map_err(|error| {
            Status::invalid_argument(format!("{address} is not a valid HTTP host: {error}"))
        })?;
        let link = Http1 {
            address: address.clone(),
            dialling: options.dialling.clone(),
            host,
            connect_timeout: options.connect_timeout,
            head_bytes_max,
            idle: Arc::new(Idle {
                senders: Mutex::new(Some(vec![sender])),
                closed_locally: AtomicBool::new(false),
            }),
            open: Arc::new(Semaphore::new(OPEN_MAX)),
            aborter: options.aborter.clone(),
        };
        let idle = link.idle.clone();
        Ok((link, Driver { connection, received, idle }))
    }

    pub(super) async fn begin(
        &self,
        common: &Common,
        mut head: Request<()>,
        body: Upload,
    ) -> Result<Exchange> {
        head.headers_mut().insert(HOST, self.host.clone());
        let mut request = head.map(|()| body);
        let turn = self.open.clone().acquire_owned().await;
        let turn = turn.map_err(|_| common.lost("the channel was dropped"))?;
        loop {
            let (mut sender, fresh) = match self.idle.take() {
                Some(sender) => (sender, false),
                None => (self.dial(common).await?, true),
            };
            if sender.ready().await.is_err() {
                // Servers may close idle connections at any time; only the failure of a new one is an error.
                if fresh {
                    return Err(self.refused(common, "the server closed it"));
                }
                continue;
            }
            // Starts the request here, so that a connection that ends now returns it.
            let mut response: Pin<Box<dyn Future<Output = Outcome> + Send>> =
                Box::pin(sender.try_send_request(request));
            let first = std::future::poll_fn(|cx| Poll::Ready(response.as_mut().poll(cx))).await;
            let response = match first {
                Poll::Pending => Started::Pending(response),
                Poll::Ready(Ok(response)) => Started::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => match error.take_message() {
                    Some(unsent) if !fresh => {
                        request = unsent;
                        continue;
                    }
                    Some(_) => return Err(self.refused(common, "the server closed it")),
                    None => Started::Ready(Err(error)),
                },
            };
            let lease = Lease { sender: Some(sender), idle: self.idle.clone(), done: false, _turn: turn };
            return Ok(Exchange { response, lease });
        }
    }

    async fn dial(&self, common: &Common) -> Result<SendRequest<Upload>> {
        super::needs_runtime("new connections")?;
        if let Some(aborter) = &self.aborter {
            aborter.check()?;
        }
        let dialled = async {
            let io = net::dial(&self.address, &self.dialling, self.connect_timeout).await?;
            handshake(io, LastReceived::new(), self.head_bytes_max).await
        };
        // After a failure the next call goes through the pool, with its back-off.
        let (sender, connection) = dialled.await.inspect_err(|_| common.close())?;
        let driven = switchboard_core::runtime::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("http connection ended: {error}");
            }
        });
        if let Some(aborter) = &self.aborter {
            aborter.track(driven.abort_handle());
        }
        Ok(sender)
    }

    fn refused(&self, common: &Common, why: &str) -> Status {
        common.close();
        common.lost(why).with_retry(Retry::Safe)
    }

    pub(super) fn retire(&self) {
        *self.idle.lock() = None;
    }
}

async fn handshake(
    io: Box<dyn Io>,
    received: Arc<LastReceived>,
    head_bytes_max: usize,
) -> Result<(SendRequest<Upload>, Connection)> {
    http1::Builder::new()
        .max_buf_size(head_bytes_max.max(BUFFER_LEAST) + READ_BUFFER)
        .handshake(TokioIo::new(Pipe::new(io, received)))
        .await
        .map_err(|error| {
            codes::from_path(Code::Unavailable, format!("the connection could not be opened: {error}"))
                .with_retry(Retry::Safe)
        })
}

/// An exchange that failed.
pub(super) struct Broken {
    error: hyper::Error,
    /// True when the connection had ended before the request was sent.
    unsent: bool,
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Broken {
        Broken { error, unsent: false }
    }
}

/// Converts an error of HTTP/1.1 into the status of the call.
pub(super) fn status(common: &Common, broken: &Broken) -> Status {
    let Broken { error, unsent } = broken;
    if *unsent {
        return common.lost("the server closed it before the call was sent").with_retry(Retry::Safe);
    }
    if error.is_parse() || error.is_parse_too_large() {
        return codes::from_path(
            Code::Internal,
            format!("{} sent an invalid HTTP/1.1 response: {error}", common.peer),
        );
    }
    // The stream of requests may have failed.
    if let Some(status) = error.source().and_then(|source| source.downcast_ref::<Status>()) {
        return status.clone();
    }
    let why =
        if error.is_incomplete_message() { "the server closed it".to_owned() } else { error.to_string() };
    common.lost(&why)
}

/// Exclusive use of a connection by a call. The connection is reused when the response was read to its end, and closed
/// otherwise.
struct Lease {
    sender: Option<SendRequest<Upload>>,
    idle: Arc<Idle>,
    done: bool,
    _turn: OwnedSemaphorePermit,
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.sender.take_if(|_| self.done) {
            Some(sender) => self.idle.release(sender),
            None => self.idle.closed_locally.store(true, Ordering::Relaxed),
        }
    }
}

type Outcome = std::result::Result<::http::Response<Incoming>, TrySendError<Request<Upload>>>;

#[expect(clippy::large_enum_variant, reason = "one per call, moved once")]
enum Started {
    Pending(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Ready(Outcome),
}

/// A request that was started on its own connection.
pub(super) struct Exchange {
    response: Started,
    lease: Lease,
}

impl Exchange {
    pub(super) async fn response(self) -> Result<HttpResponse, Broken> {
        let outcome = match self.response {
            Started::Pending(response) => response.await,
            Started::Ready(response) => response,
        };
        let (head, incoming) = match outcome {
            Ok(response) => response.into_parts(),
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                if unsent {
                    // The server closes idle connections, so the others are likely closed as well.
                    self.lease.idle.clear();
                }
                return Err(Broken { error: error.into_error(), unsent });
            }
        };
        let body = Body { incoming, trailers: None, lease: self.lease };
        Ok(HttpResponse {
            status: head.status,
            headers: head.headers,
            body: link::Body::Http1(Box::new(body)),
        })
    }
}

/// The body of a response; the connection is released when it is dropped.
pub(super) struct Body {
    // Dropped before the lease, so that hyper first decides whether the connection can be reused.
    incoming: Incoming,
    trailers: Option<HeaderMap>,
    lease: Lease,
}

impl Body {
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
        loop {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => {
                    self.lease.done = true;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => return Poll::Ready(Some(Ok(chunk))),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    pub(super) fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}

/// Drives the first connection of the slot.
pub(super) struct Driver {
    connection: Connection,
    received: Arc<LastReceived>,
    idle: Arc<Idle>,
}

impl Driver {
    pub(super) async fn run(self, link: Arc<Link>) -> ConnectionEnd {
        let end = self.connection.await;
        if self.received.any_received() || self.idle.closed_locally.load(Ordering::Relaxed) {
            return ConnectionEnd::Responded;
        }
        // The server accepted and closed: the next attempt must wait for the back-off.
        let common = link.common();
        common.close();
        let why = end.err().map_or_else(|| "the server closed it".to_owned(), |error| error.to_string());
        ConnectionEnd::Silent(common.lost(&why))
    }
}
