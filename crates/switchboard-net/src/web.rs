//! A small HTTP/1.1 client for requests other than calls: registries, key sets, trace collectors.
//!
//! Each request uses one connection, with or without TLS, and the size of its response is limited. Redirects
//! are not followed.

use crate::{
    Address,
    net::{self, Dialling},
};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, StatusCode, body::Incoming, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{fmt::Display, path::Path, time::Duration};
use switchboard_core::Result;
use switchboard_wire::{Code, Origin, Retry, Status};
use tokio::{task::AbortHandle, time::timeout};

/// An HTTP/1.1 server with a base path: `http://127.0.0.1:8500`, `https://login.example/keys`.
#[derive(Clone, Debug)]
pub struct Site {
    name: String,
    address: Address,
    /// Value of the header `host`.
    authority: String,
    /// Path of the URL with its query, from the first `/` on; empty if it has none.
    path: String,
    dialling: Dialling,
}

/// An HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// Method, such as `GET`.
    pub method: &'static str,
    /// Path from the first `/` on, appended to the path of the site.
    pub path: &'a str,
    /// Headers; names in lower case.
    pub headers: &'a [(&'static str, String)],
    /// Body of the request.
    pub body: &'a [u8],
    /// Maximum size of the response in bytes.
    pub bytes_max: usize,
    /// Time limit of the whole exchange; for a streamed response, of its beginning.
    pub limit: Duration,
}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

/// A response that is read line by line. Dropping it closes the connection.
#[derive(Debug)]
pub struct ResponseLines {
    name: String,
    body: Incoming,
    read: BytesMut,
    line_max: usize,
    _connection: ConnectionTask,
}

/// Maximum number of bytes that are kept of an error response.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

impl Default for HttpRequest<'_> {
    /// Creates a `GET` with an empty path, a limit of 5 s and at most 64 KiB.
    fn default() -> Self {
        let limit = Duration::from_secs(5);
        HttpRequest { method: "GET", path: "", headers: &[], body: &[], bytes_max: 64 << 10, limit }
    }
}

impl Site {
    /// Creates a site from a URL; messages refer to it as `name`. `ca` contains the trusted roots for
    /// `https`; without it the roots of the machine are used.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that is not `http` or `https`, and for roots that cannot be used.
    pub fn new(name: impl Into<String>, url: &str, ca: Option<&Path>) -> Result<Site> {
        let wrong = |why: &str| Status::invalid_argument(format!("{url:?} is not an HTTP URL: {why}"));
        let (rest, secure) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => return Err(wrong("it begins with neither http:// nor https://")),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(wrong("the path has characters that must be percent-encoded"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let full = match (has_port, secure) {
            (true, _) => authority.to_owned(),
            (false, true) => format!("{authority}:443"),
            (false, false) => format!("{authority}:80"),
        };
        let scheme = if secure { "tls" } else { "tcp" };
        let address: Address = format!("{scheme}://{full}").parse()?;
        let dialling = dialling(secure, ca)?;
        Ok(Site { name: name.into(), address, authority: authority.to_owned(), path, dialling })
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request and reads the complete response. Cancel safe: dropping the future closes the
    /// connection.
    ///
    /// # Errors
    /// `Unavailable` if there is no response or if it is too long; for a status that is an error `NotFound`
    /// for 404, `Unauthenticated` for 401, `PermissionDenied` for 403, `Aborted` for 410 and `Unavailable`
    /// for others, with the beginning of the response body.
    pub async fn call(&self, request: HttpRequest<'_>) -> Result<HttpResponse> {
        self.limited(request, async {
            let (status, headers, body, _connection) = self.begin(request).await?;
            let (status, headers, body) = self.check_status(request, status, headers, body).await?;
            let body = self.collect(body, request.bytes_max, without_query(request.path)).await?;
            Ok(HttpResponse { status, headers, body })
        })
        .await
    }

    /// Sends a request and reads the complete response, with any [status](HttpResponse::status). Cancel safe like
    /// [`call`](Site::call).
    ///
    /// # Errors
    /// `Unavailable` if there is no response or if it is too long.
    pub async fn exchange(&self, request: HttpRequest<'_>) -> Result<HttpResponse> {
        self.limited(request, async {
            let (status, headers, body, _connection) = self.begin(request).await?;
            let body = self.collect(body, request.bytes_max, without_query(request.path)).await?;
            Ok(HttpResponse { status, headers, body })
        })
        .await
    }

    async fn limited<T>(
        &self,
        request: HttpRequest<'_>,
        exchange: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let slow = |_| {
            self.failed(&format!("no response to {} within {:?}", without_query(request.path), request.limit))
        };
        timeout(request.limit, exchange).await.map_err(slow)?
    }

    /// Sends a request and returns its response line by line; each line has at most `bytes_max` bytes.
    ///
    /// # Errors
    /// Returns the errors of [`call`](Site::call).
    pub async fn stream(&self, request: HttpRequest<'_>) -> Result<ResponseLines> {
        let begun = self.limited(request, async {
            let (status, headers, body, driver) = self.begin(request).await?;
            let (_, _, body) = self.check_status(request, status, headers, body).await?;
            Ok((body, driver))
        });
        let (body, _connection) = begun.await?;
        let read = BytesMut::new();
        Ok(ResponseLines { name: self.name.clone(), body, read, line_max: request.bytes_max, _connection })
    }

    /// Boxes the future, so that this crate has its code and that of hyper's client: the code of an async function is
    /// compiled by each crate that polls it.
    fn begin<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> switchboard_core::layer::BoxFuture<'a, Result<ResponseParts>> {
        Box::pin(self.send(request))
    }

    async fn send(&self, request: HttpRequest<'_>) -> Result<ResponseParts> {
        let failed = |error: &dyn Display| self.failed(&format!("{}: {error}", without_query(request.path)));
        let io = net::dial(&self.address, &self.dialling, request.limit).await?;
        let opened = http1::handshake(TokioIo::new(io)).await;
        let (mut sender, connection) = opened.map_err(|error| failed(&error))?;
        // This task performs the exchange; it is aborted when the exchange is dropped.
        let driver = ConnectionTask(
            switchboard_core::runtime::spawn(async move { drop(connection.await) }).abort_handle(),
        );
        let path = format!("{}{}", self.path, request.path);
        let path = if path.is_empty() { "/" } else { &path };
        let mut builder = Request::builder().method(request.method).uri(path).header(HOST, &self.authority);
        for (name, value) in request.headers {
            builder = builder.header(*name, value);
        }
        let body = Full::new(Bytes::copy_from_slice(request.body));
        let http_request = builder.body(body).map_err(|error| failed(&error))?;
        let response = sender.send_request(http_request).await.map_err(|error| failed(&error))?;
        let (head, body) = response.into_parts();
        Ok((head.status, head.headers, body, driver))
    }

    /// # Errors
    /// Returns an error for a status that is an error, as described at [`call`](Site::call).
    async fn check_status(
        &self,
        request: HttpRequest<'_>,
        status: StatusCode,
        headers: HeaderMap,
        body: Incoming,
    ) -> Result<(StatusCode, HeaderMap, Incoming)> {
        if status.is_success() {
            return Ok((status, headers, body));
        }
        let text =
            self.collect(body, ERROR_BODY_BYTES_MAX, without_query(request.path)).await.unwrap_or_default();
        let text: String = String::from_utf8_lossy(&text).trim().chars().take(200).collect();
        let code = match status.as_u16() {
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::NotFound,
            410 => Code::Aborted,
            _ => Code::Unavailable,
        };
        Err(Status::new(code, format!("{}: {}: {}: {text}", self.name, without_query(request.path), status)))
    }

    async fn collect(&self, mut body: Incoming, bytes_max: usize, path: &str) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.failed(&format!("{path}: {error}")))?;
            let Ok(bytes) = frame.into_data() else { continue };
            if whole.len() + bytes.len() > bytes_max {
                let why = format!("{path}: the response has over {bytes_max} bytes");
                return Err(Status::unavailable(format!("{}: {why}", self.name)));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole.freeze())
    }

    fn failed(&self, why: &str) -> Status {
        let text = format!("{}: {why}", self.name);
        Status::unavailable(text).with_origin(Origin::Connection).with_retry(Retry::Safe)
    }
}

impl HttpResponse {
    /// Returns the status code, such as 200.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// Returns the first value of a header, if it is text; the name must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl ResponseLines {
    /// Reads the next line without its line end; `None` at the end of the response. Cancel safe.
    ///
    /// # Errors
    /// `Unavailable` if the connection breaks or the line is too long.
    pub async fn line(&mut self) -> Result<Option<Bytes>> {
        let mut looked = 0;
        loop {
            let end = self.read[looked..].iter().position(|byte| *byte == b'\n').map(|at| looked + at);
            looked = self.read.len();
            if end.unwrap_or(looked) > self.line_max {
                let text = format!("{}: a line of the response has over {} bytes", self.name, self.line_max);
                return Err(Status::unavailable(text));
            }
            if let Some(end) = end {
                let line = self.read.split_to(end);
                self.read.advance(1);
                return Ok(Some(line.freeze()));
            }
            match self.body.frame().await {
                None if self.read.is_empty() => return Ok(None),
                None => return Ok(Some(self.read.split().freeze())),
                Some(Err(error)) => {
                    return Err(
                        Status::unavailable(format!("{}: {error}", self.name)).with_retry(Retry::Safe)
                    );
                }
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.read.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }
}

/// Returns a path without its query for messages, because the query may contain secrets.
fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(without_query, _)| without_query)
}

/// Aborts the task of a connection on drop.
#[derive(Debug)]
struct ConnectionTask(AbortHandle);

/// The head of a response, its body, and the task that reads it.
type ResponseParts = (StatusCode, HeaderMap, Incoming, ConnectionTask);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(feature = "tls")]
fn dialling(secure: bool, ca: Option<&Path>) -> Result<Dialling> {
    use crate::net::tls::{ALPN_HTTP1, Connector, TlsOptions};
    if !secure {
        return Ok(Dialling::default());
    }
    let options = TlsOptions { ca: ca.map(Path::to_owned), ..TlsOptions::default() };
    let connector = Connector::new(options, &[ALPN_HTTP1])?;
    Ok(Dialling { tls: Some(std::sync::Arc::new(connector)), ..Dialling::default() })
}

#[cfg(not(feature = "tls"))]
fn dialling(secure: bool, _ca: Option<&Path>) -> Result<Dialling> {
    match secure {
        false => Ok(Dialling::default()),
        true => Err(Status::invalid_argument("https:// needs the feature `tls`, which is off")),
    }
}

/// Bytes that [`encode`] escapes: all but the unreserved characters of RFC 3986.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes text for a query or path: letters, digits and `- . _ ~` stay, other bytes become `%XX`.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, &ESCAPED).to_string()
}

/// Decodes `%XX`; invalid sequences stay, and invalid UTF-8 becomes the replacement character.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Decodes a name or value of a query as HTML forms and Go write it: [`decode`], and `+` is a space.
pub fn decode_query(text: &str) -> String {
    decode(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    #[test]
    fn urls_are_taken_apart() {
        for (url, address, authority, path) in [
            ("http://a:1", "tcp://a:1", "a:1", ""),
            ("http://a/b?c=d", "tcp://a:80", "a", "/b?c=d"),
            ("http://[::1]?x", "tcp://[::1]:80", "[::1]", "/?x"),
        ] {
            let site = Site::new("site", url, None).unwrap();
            assert_eq!(
                (site.address.to_string().as_str(), &*site.authority, &*site.path),
                (address, authority, path)
            );
        }
        for (url, part) in
            [("ftp://a", "neither"), ("http://", "host is missing"), ("http://a/b c", "percent")]
        {
            let error = Site::new("site", url, None).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn escapes_are_those_of_urls() {
        assert_eq!(encode("aZ0-._~ b/%*\u{e4}\n"), "aZ0-._~%20b%2F%25%2A%C3%A4%0A");
        assert_eq!(decode(&encode("a b/%\u{e4}")), "a b/%\u{e4}");
        assert_eq!(decode("%41+%c3%a4%zz%4%+1%"), "A+\u{e4}%zz%4%+1%");
        assert_eq!(decode("%ff%25%"), "\u{fffd}%%");
        assert_eq!(decode_query("a+b%2B%20%+1"), "a b+ % 1");
    }

    /// Starts a server that sends these bytes for every request and then closes.
    async fn server(answer: String) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site =
            Site::new("the server", &format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
        switchboard_core::runtime::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        site
    }

    #[tokio::test]
    async fn responses_are_bounded_and_errors_reported() {
        let long = format!("HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 100\r\n\r\n{}", "x".repeat(100));
        let site = server(long).await;
        let answer = site.call(HttpRequest { bytes_max: 100, ..HttpRequest::default() }).await.unwrap();
        assert_eq!((answer.header("x-a"), answer.body.len()), (Some("b"), 100));
        let error = site.call(HttpRequest { bytes_max: 99, ..HttpRequest::default() }).await.unwrap_err();
        assert!(error.message().contains("over 99 bytes"), "{error}");
        for (status, code) in
            [("404 X", Code::NotFound), ("403 X", Code::PermissionDenied), ("500 X", Code::Unavailable)]
        {
            let site = server(format!("HTTP/1.1 {status}\r\ncontent-length: 3\r\n\r\nwhy")).await;
            let error = site.call(HttpRequest { path: "/p", ..HttpRequest::default() }).await.unwrap_err();
            assert_eq!((error.code(), error.message().ends_with("why")), (code, true), "{error}");
        }
    }

    #[tokio::test]
    async fn lines_come_one_by_one() {
        let site = server("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\na\nbc\n\nd".to_owned()).await;
        let mut lines = site.stream(HttpRequest { bytes_max: 2, ..HttpRequest::default() }).await.unwrap();
        for line in ["a", "bc", "", "d"] {
            assert_eq!(lines.line().await.unwrap().unwrap(), line);
        }
        assert!(lines.line().await.unwrap().is_none());
        let site = server("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabcdef".to_owned()).await;
        let mut lines = site.stream(HttpRequest { bytes_max: 2, ..HttpRequest::default() }).await.unwrap();
        assert!(lines.line().await.unwrap_err().message().contains("over 2 bytes"));
    }
}
