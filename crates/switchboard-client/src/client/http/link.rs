//! The HTTP connections of a slot, of either version: calls begin here.

use super::{
    Version, codes,
    http1::{self, Http1},
    http2::{self, Http2},
    upload::{Upload, Uploader},
};
use crate::client::{ClientMethod, connection::ConnectionEnd, kind::ChannelKind, options::Options, pool};
use ::http::{HeaderMap, Method, Request, StatusCode, Uri, uri};
use bytes::Bytes;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use switchboard_core::{Limit, Result};
use switchboard_net::net::{Address, Io};
use switchboard_wire::{Code, Metadata, Retry, Status};

/// The connections of one slot: one on HTTP/2, one per concurrent call on HTTP/1.1.
pub(super) struct Link {
    common: Common,
    version: Either,
}

enum Either {
    Http1(Http1),
    Http2(Http2),
}

/// State that both versions share.
pub(super) struct Common {
    pub(super) peer: String,
    pub(super) usable: AtomicBool,
    /// Number of calls in flight.
    pub(super) calls: AtomicUsize,
    calls_max: usize,
    /// Status with which the connection ended.
    pub(super) ended: OnceLock<Status>,
    /// The path of all calls, in dialects that do not name methods in the path.
    pub(super) path: Option<String>,
    /// Scheme and authority, for versions whose requests name them.
    origin: Option<(uri::Scheme, uri::Authority)>,
    /// URIs of methods called before, at most one per method of the program.
    uris: Mutex<Vec<(&'static ClientMethod, Uri)>>,
}

/// Counts a call while it is in flight.
pub(super) struct InFlight(Arc<Link>);

impl InFlight {
    pub(super) fn link(&self) -> &Link {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.common.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// Number of calls in flight.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn in_flight(&self) -> usize {
        self.common.calls.load(Ordering::Relaxed)
    }

    /// Counts a call that begins.
    ///
    /// # Errors
    /// `ResourceExhausted` when there are `calls_max` calls in flight.
    pub(super) fn enter(self: Arc<Link>) -> Result<InFlight> {
        let calls = self.common.calls.fetch_add(1, Ordering::Relaxed);
        let entered = InFlight(self);
        if calls >= entered.0.common.calls_max {
            let text = format!("{calls} calls are in flight on this connection (calls_max)");
            return Err(Status::resource_exhausted(text).with_retry(Retry::Safe));
        }
        Ok(entered)
    }

    pub(super) fn peer(&self) -> &str {
        &self.common.peer
    }

    /// The URI of a method.
    pub(super) fn uri(&self, method: &'static ClientMethod, metadata: &Metadata) -> Result<Uri> {
        if method.is_undeclared() {
            return self.address(&format!("/{}", method.path_of(metadata)));
        }
        let mut uris = self.common.uris.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, uri)) = uris.iter().find(|(known, _)| std::ptr::eq(*known, method)) {
            return Ok(uri.clone());
        }
        let uri = self.address(&format!("/{}", method.path))?;
        uris.push((method, uri.clone()));
        Ok(uri)
    }

    /// The URI of this path and query.
    pub(super) fn address(&self, path: &str) -> Result<Uri> {
        let path = uri::PathAndQuery::try_from(path)
            .map_err(|error| Status::internal(format!("{path:?} is not a valid HTTP path: {error}")))?;
        let mut parts = uri::Parts::default();
        parts.path_and_query = Some(path);
        if let Some((scheme, authority)) = &self.common.origin {
            parts.scheme = Some(scheme.clone());
            parts.authority = Some(authority.clone());
        }
        Uri::from_parts(parts)
            .map_err(|error| Status::internal(format!("cannot build the URI of the call: {error}")))
    }

    /// Begins an exchange. A complete `body` is sent at once; HTTP/1.1 fetches a stream itself, on HTTP/2 the caller
    /// runs the [`uploader`](Exchange::uploader).
    ///
    /// # Errors
    /// `Unavailable`, safe to retry, when the connection accepts no more calls.
    pub(super) async fn begin(&self, head: Request<()>, body: Upload) -> Result<Exchange> {
        match &self.version {
            // Boxed, to keep calls on HTTP/2 small.
            Either::Http1(link) => {
                let begun = Box::pin(link.begin(&self.common, head, body)).await;
                begun.map(|exchange| Exchange::Http1(Box::new(exchange)))
            }
            Either::Http2(link) => link.begin(&self.common, head, body).map(Exchange::Http2),
        }
    }

    /// Converts a failed exchange into the status of its call.
    pub(super) fn status(&self, broken: &Broken) -> Status {
        match broken {
            Broken::Http1(broken) => http1::status(&self.common, broken),
            Broken::Http2(error) => http2::status(&self.common, error),
        }
    }
}

impl Common {
    /// The status of calls that were in flight when the connection was lost.
    pub(super) fn lost(&self, why: &str) -> Status {
        codes::from_path(Code::Unavailable, format!("the connection to {} is lost: {why}", self.peer))
    }

    /// Rejects further calls.
    pub(super) fn close(&self) {
        self.usable.store(false, Ordering::Relaxed);
    }
}

impl pool::Link for Link {
    type Task = Pin<Box<dyn Future<Output = ConnectionEnd> + Send>>;

    async fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        _owner: Weak<dyn ChannelKind>,
    ) -> Result<(Arc<Link>, Self::Task)> {
        let authority = authority(address)?;
        let scheme = match address {
            Address::Tls(..) => uri::Scheme::HTTPS,
            _ => uri::Scheme::HTTP,
        };
        let version = options.http.version();
        let common = Common {
            peer: address.to_string(),
            usable: AtomicBool::new(true),
            calls: AtomicUsize::new(0),
            calls_max: options.limits.get(Limit::CallsMax) as usize,
            ended: OnceLock::new(),
            path: options.http.path(),
            origin: (version == Version::Http2).then(|| (scheme, authority.clone())),
            uris: Mutex::default(),
        };
        Ok(match version {
            Version::Http1 => {
                let (link, driver) = Http1::open(io, address, &authority, options).await?;
                let link = Arc::new(Link { common, version: Either::Http1(link) });
                let task = driver.run(link.clone());
                (link, Box::pin(task))
            }
            Version::Http2 => {
                let (link, driver) = Http2::open(io, options).await?;
                let link = Arc::new(Link { common, version: Either::Http2(link) });
                let task = driver.run(link.clone());
                (link, Box::pin(task))
            }
        })
    }

    #[inline]
    fn is_usable(&self) -> bool {
        self.common.usable.load(Ordering::Relaxed)
    }

    fn retire(&self) {
        self.common.close();
        match &self.version {
            Either::Http1(link) => link.retire(),
            Either::Http2(link) => link.retire(),
        }
    }
}

impl Link {
    pub(super) fn common(&self) -> &Common {
        &self.common
    }
}

/// The authority of requests.
fn authority(address: &Address) -> Result<uri::Authority> {
    let text = match address {
        Address::Tcp(host, port) | Address::Tls(host, port) if host.contains(':') => {
            format!("[{host}]:{port}")
        }
        Address::Tcp(host, port) | Address::Tls(host, port) => format!("{host}:{port}"),
        // Neither a path nor a name in this process is a valid HTTP host.
        _ => "localhost".to_owned(),
    };
    uri::Authority::try_from(text)
        .map_err(|error| Status::invalid_argument(format!("{address} is not a valid HTTP host: {error}")))
}

/// A request that was sent, and its response.
pub(super) enum Exchange {
    Http1(Box<http1::Exchange>),
    Http2(http2::Exchange),
}

impl Exchange {
    /// The uploader of a streaming request on HTTP/2; HTTP/1.1 fetches the body itself.
    pub(super) fn uploader(&mut self) -> Option<Uploader> {
        match self {
            Exchange::Http1(_) => None,
            Exchange::Http2(exchange) => exchange.uploader(),
        }
    }

    /// Waits for the head of the response.
    pub(super) async fn response(self) -> Result<HttpResponse, Broken> {
        match self {
            Exchange::Http1(exchange) => Box::pin(exchange.response()).await.map_err(Broken::Http1),
            Exchange::Http2(exchange) => exchange.response().await.map_err(Broken::Http2),
        }
    }
}

/// The head of a response, with its body.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// The body of a response.
pub(super) enum Body {
    Http1(Box<http1::Body>),
    Http2(http2::Body),
}

impl Body {
    /// Returns the next chunk, `None` at the end.
    #[inline]
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        match self {
            Body::Http1(body) => body
                .poll_chunk(cx)
                .map(|chunk| chunk.map(|got| got.map_err(|error| Broken::Http1(error.into())))),
            Body::Http2(body) => body.poll_chunk(cx).map(|chunk| chunk.map(|got| got.map_err(Broken::Http2))),
        }
    }

    /// Returns the next chunk, `None` at the end.
    #[inline]
    pub(super) async fn chunk(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Returns the trailers, after the last chunk.
    #[inline]
    pub(super) async fn trailers(&mut self) -> Result<Option<HeaderMap>, Broken> {
        match self {
            Body::Http1(body) => Ok(body.trailers()),
            Body::Http2(body) => body.trailers().await.map_err(Broken::Http2),
        }
    }
}

/// The error of an exchange that failed.
pub(super) enum Broken {
    Http1(http1::Broken),
    Http2(h2::Error),
}

/// Creates a request to `uri` without headers.
pub(super) fn request(method: Method, uri: Uri) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request
}
