//! HTTP/1.1: a connection carries one call at a time, so callers take turns on a bounded set of them.

use super::{
    codes,
    link::{self, Answer, Common, Link},
    pipe::{Heard, Pipe},
    upload::Upload,
};
use crate::{
    Code, Limit, Result, Retry, Status,
    client::{Cut, connection::Ended, options::Options},
    net::{self, Address, Io},
};
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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of one place; callers wait when all are in use.
const OPEN_MAX: usize = 256;
/// Connections kept while nobody uses them.
const IDLE_MAX: usize = 32;
/// The least buffer that hyper accepts, and what it gets to read bodies beside a head.
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
    cut: Option<Cut>,
}

/// Connections that wait for a call.
struct Idle {
    /// None once the channel was dropped.
    senders: Mutex<Option<Vec<SendRequest<Upload>>>>,
    /// A connection was closed from this side, since its call was given up.
    cut: AtomicBool,
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

    fn give_back(&self, sender: SendRequest<Upload>) {
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
        let heard = Heard::new();
        let (sender, connection) = handshake(io, heard.clone(), head_bytes_max).await?;
        let host = HeaderValue::try_from(authority.as_str())
            .map_err(|error| Status::invalid_argument(format!("{address} is no host of HTTP: {error}")))?;
        let link = Http1 {
            address: address.clone(),
            dialling: options.dialling.clone(),
            host,
            connect_timeout: options.connect_timeout,
            head_bytes_max,
            idle: Arc::new(Idle { senders: Mutex::new(Some(vec![sender])), cut: AtomicBool::new(false) }),
            open: Arc::new(Semaphore::new(OPEN_MAX)),
            cut: options.cut.clone(),
        };
        let idle = link.idle.clone();
        Ok((link, Driver { connection, heard, idle }))
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
                // Idle connections end when their server likes; a new one has to work.
                if fresh {
                    return Err(self.refused(common, "the server closed it"));
                }
                continue;
            }
            // The request starts here, so that a connection that ends right now gives it back.
            let mut answer: Pin<Box<dyn Future<Output = Outcome> + Send>> =
                Box::pin(sender.try_send_request(request));
            let first = std::future::poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
            let answer = match first {
                Poll::Pending => Started::Pending(answer),
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
            return Ok(Exchange { answer, lease });
        }
    }

    async fn dial(&self, common: &Common) -> Result<SendRequest<Upload>> {
        super::needs_runtime("new connections")?;
        if let Some(cut) = &self.cut {
            cut.check()?;
        }
        let dialled = async {
            let io = net::dial(&self.address, &self.dialling, self.connect_timeout).await?;
            handshake(io, Heard::new(), self.head_bytes_max).await
        };
        // The next call goes through the pool, with its pauses.
        let (sender, connection) = dialled.await.inspect_err(|_| common.close())?;
        let driven = crate::runtime::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("http connection ended: {error}");
            }
        });
        if let Some(cut) = &self.cut {
            cut.hold(driven.abort_handle());
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
    heard: Arc<Heard>,
    head_bytes_max: usize,
) -> Result<(SendRequest<Upload>, Connection)> {
    http1::Builder::new()
        .max_buf_size(head_bytes_max.max(BUFFER_LEAST) + READ_BUFFER)
        .handshake(TokioIo::new(Pipe::new(io, heard)))
        .await
        .map_err(|error| {
            codes::from_path(Code::Unavailable, format!("the connection could not be opened: {error}"))
                .with_retry(Retry::Safe)
        })
}

/// An exchange that broke.
pub(super) struct Broken {
    error: hyper::Error,
    /// The connection had ended before the request was sent.
    unsent: bool,
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Broken {
        Broken { error, unsent: false }
    }
}

/// What an error of HTTP/1.1 means for the call.
pub(super) fn status(common: &Common, broken: &Broken) -> Status {
    let Broken { error, unsent } = broken;
    if *unsent {
        return common.lost("the server closed it before the call was sent").with_retry(Retry::Safe);
    }
    if error.is_parse() || error.is_parse_too_large() {
        return codes::from_path(
            Code::Internal,
            format!("{} sent an answer that is no HTTP/1.1: {error}", common.peer),
        );
    }
    // The request's own stream may have failed.
    if let Some(status) = error.source().and_then(|source| source.downcast_ref::<Status>()) {
        return status.clone();
    }
    let why =
        if error.is_incomplete_message() { "the server closed it".to_owned() } else { error.to_string() };
    common.lost(&why)
}

/// A call has the connection for itself; others may use it when its answer was read to the end. Else it is closed.
struct Lease {
    sender: Option<SendRequest<Upload>>,
    idle: Arc<Idle>,
    done: bool,
    _turn: OwnedSemaphorePermit,
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.sender.take_if(|_| self.done) {
            Some(sender) => self.idle.give_back(sender),
            None => self.idle.cut.store(true, Ordering::Relaxed),
        }
    }
}

type Outcome = std::result::Result<::http::Response<Incoming>, TrySendError<Request<Upload>>>;

#[expect(clippy::large_enum_variant, reason = "one per call, moved once")]
enum Started {
    Pending(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Ready(Outcome),
}

/// A request that was begun on a connection of its own.
pub(super) struct Exchange {
    answer: Started,
    lease: Lease,
}

impl Exchange {
    pub(super) async fn answer(self) -> Result<Answer, Broken> {
        let outcome = match self.answer {
            Started::Pending(answer) => answer.await,
            Started::Ready(answer) => answer,
        };
        let (head, incoming) = match outcome {
            Ok(response) => response.into_parts(),
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                if unsent {
                    // The server closes what is idle: the others are likely closed as well.
                    self.lease.idle.clear();
                }
                return Err(Broken { error: error.into_error(), unsent });
            }
        };
        let body = Body { incoming, trailers: None, lease: self.lease };
        Ok(Answer { status: head.status, headers: head.headers, body: link::Body::Http1(Box::new(body)) })
    }
}

/// The body of an answer; the connection is free when it is dropped.
pub(super) struct Body {
    // Dropped before the lease, so that hyper knows first whether the connection can be used again.
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

/// Drives the first connection of the place.
pub(super) struct Driver {
    connection: Connection,
    heard: Arc<Heard>,
    idle: Arc<Idle>,
}

impl Driver {
    pub(super) async fn run(self, link: Arc<Link>) -> Ended {
        let end = self.connection.await;
        if self.heard.anything() || self.idle.cut.load(Ordering::Relaxed) {
            return Ended::Heard;
        }
        // A server that accepts and closes: the next try has to wait.
        let common = link.common();
        common.close();
        let why = end.err().map_or_else(|| "the server closed it".to_owned(), |error| error.to_string());
        Ended::Unheard(common.lost(&why))
    }
}
