//! A place's connection on HTTP, of either version: where calls begin.

use super::{
    Version, codes,
    http1::{self, Http1},
    http2::{self, Http2},
    upload::{Upload, Uploader},
};
use crate::{
    Code, Limit, Result, Retry, Status,
    client::{ClientMethod, Way, connection::Ended, options::Options, pool},
    net::{Address, Io},
};
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

/// Connections of one place: one on HTTP/2, as many as calls at a time on HTTP/1.1.
pub(super) struct Link {
    common: Common,
    version: Either,
}

enum Either {
    Http1(Http1),
    Http2(Http2),
}

/// What both versions keep.
pub(super) struct Common {
    pub(super) peer: String,
    pub(super) usable: AtomicBool,
    /// Calls in flight.
    pub(super) calls: AtomicUsize,
    calls_max: usize,
    /// Why the connection ended.
    pub(super) ended: OnceLock<Status>,
    /// Where all calls go, in dialects that do not name methods there.
    pub(super) path: Option<String>,
    /// Scheme and authority, where addresses of calls name them.
    origin: Option<(uri::Scheme, uri::Authority)>,
    /// The addresses of methods called before: as many as the program has methods.
    uris: Mutex<Vec<(&'static ClientMethod, Uri)>>,
}

/// Counts a call as long as it is in flight.
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
    /// Calls that have begun and not ended.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.common.calls.load(Ordering::Relaxed)
    }

    /// Counts a call that begins.
    ///
    /// # Errors
    /// `ResourceExhausted` when there are too many.
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

    /// The address of a method.
    pub(super) fn uri(&self, method: &'static ClientMethod) -> Result<Uri> {
        let mut uris = self.common.uris.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, uri)) = uris.iter().find(|(known, _)| std::ptr::eq(*known, method)) {
            return Ok(uri.clone());
        }
        let uri = self.address(&format!("/{}", method.path))?;
        uris.push((method, uri.clone()));
        Ok(uri)
    }

    /// The address of this path and query.
    pub(super) fn address(&self, path: &str) -> Result<Uri> {
        let path = uri::PathAndQuery::try_from(path)
            .map_err(|error| Status::internal(format!("{path:?} is no path of HTTP: {error}")))?;
        let mut parts = uri::Parts::default();
        parts.path_and_query = Some(path);
        if let Some((scheme, authority)) = &self.common.origin {
            parts.scheme = Some(scheme.clone());
            parts.authority = Some(authority.clone());
        }
        Uri::from_parts(parts).map_err(|error| Status::internal(format!("no address for the call: {error}")))
    }

    /// Begins an exchange. `body` goes whole, or is fetched by HTTP/1.1 as it comes; on HTTP/2 the caller runs
    /// what [`Exchange::uploader`] gives.
    ///
    /// # Errors
    /// `Unavailable`, safe to retry, when the connection takes no calls any more.
    pub(super) async fn begin(&self, head: Request<()>, body: Upload) -> Result<Exchange> {
        match &self.version {
            // Boxed, so that calls on HTTP/2 are as small as they can be.
            Either::Http1(link) => {
                let begun = Box::pin(link.begin(&self.common, head, body)).await;
                begun.map(|exchange| Exchange::Http1(Box::new(exchange)))
            }
            Either::Http2(link) => link.begin(&self.common, head, body).map(Exchange::Http2),
        }
    }

    /// What a broken exchange means for its call.
    pub(super) fn status(&self, broken: &Broken) -> Status {
        match broken {
            Broken::Http1(broken) => http1::status(&self.common, broken),
            Broken::Http2(error) => http2::status(&self.common, error),
        }
    }
}

impl Common {
    /// Why calls end that were in flight when the connection was lost.
    pub(super) fn lost(&self, why: &str) -> Status {
        codes::from_path(Code::Unavailable, format!("the connection to {} is lost: {why}", self.peer))
    }

    /// Takes no further call.
    pub(super) fn close(&self) {
        self.usable.store(false, Ordering::Relaxed);
    }
}

impl pool::Link for Link {
    type Task = Pin<Box<dyn Future<Output = Ended> + Send>>;

    async fn open(
        io: Box<dyn Io>,
        address: &Address,
        options: &Options,
        _way: Weak<Way>,
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

/// What the requests say they are for.
fn authority(address: &Address) -> Result<uri::Authority> {
    let text = match address {
        Address::Tcp(host, port) | Address::Tls(host, port) if host.contains(':') => {
            format!("[{host}]:{port}")
        }
        Address::Tcp(host, port) | Address::Tls(host, port) => format!("{host}:{port}"),
        // Neither a path nor a name in this process is a host of HTTP.
        _ => "localhost".to_owned(),
    };
    uri::Authority::try_from(text)
        .map_err(|error| Status::invalid_argument(format!("{address} is no host of HTTP: {error}")))
}

/// A request that is on its way, and the answer to it.
pub(super) enum Exchange {
    Http1(Box<http1::Exchange>),
    Http2(http2::Exchange),
}

impl Exchange {
    /// What a streaming request is sent through on HTTP/2; HTTP/1.1 fetches it by itself.
    pub(super) fn uploader(&mut self) -> Option<Uploader> {
        match self {
            Exchange::Http1(_) => None,
            Exchange::Http2(exchange) => exchange.uploader(),
        }
    }

    /// The head of the answer.
    pub(super) async fn answer(self) -> Result<Answer, Broken> {
        match self {
            Exchange::Http1(exchange) => Box::pin(exchange.answer()).await.map_err(Broken::Http1),
            Exchange::Http2(exchange) => exchange.answer().await.map_err(Broken::Http2),
        }
    }
}

/// The head of an answer, and its body to come.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// The body of an answer.
pub(super) enum Body {
    Http1(Box<http1::Body>),
    Http2(http2::Body),
}

impl Body {
    /// The next chunk, none at the end.
    #[inline]
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        match self {
            Body::Http1(body) => body
                .poll_chunk(cx)
                .map(|chunk| chunk.map(|got| got.map_err(|error| Broken::Http1(error.into())))),
            Body::Http2(body) => body.poll_chunk(cx).map(|chunk| chunk.map(|got| got.map_err(Broken::Http2))),
        }
    }

    /// The next chunk, none at the end.
    #[inline]
    pub(super) async fn chunk(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// The trailers, after the last chunk.
    #[inline]
    pub(super) async fn trailers(&mut self) -> Result<Option<HeaderMap>, Broken> {
        match self {
            Body::Http1(body) => Ok(body.trailers()),
            Body::Http2(body) => body.trailers().await.map_err(Broken::Http2),
        }
    }
}

/// Why an exchange has no end.
pub(super) enum Broken {
    Http1(http1::Broken),
    Http2(h2::Error),
}

/// A request to `uri` without its headers.
pub(super) fn request(method: Method, uri: Uri) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request
}
