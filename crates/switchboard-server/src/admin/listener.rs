//! The socket of the admin listener: HTTP/1.1 with few connections and small requests.

use super::{
    Admin, PageOf,
    page::Form,
    pages::{self, PageResponse},
};
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN,
        WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};
use switchboard_core::Error;
use switchboard_driver::serving::ServerState;
use switchboard_net::{
    Address,
    net::{Listener, Pipe},
};
use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
};

/// Maximum number of connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// Time limit for the head of a request, and for the pause between two requests.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a failed accept, which usually means that there are no free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// State that request handling reads.
pub(super) struct View {
    pub(super) shared: Arc<ServerState>,
    pub(super) pages: Vec<(String, PageOf)>,
    token: Option<String>,
}

/// Binds the listener and serves requests until the task is aborted.
///
/// # Errors
/// Fails if the address cannot be bound.
pub(crate) async fn start(
    admin: Admin,
    address: &Address,
    shared: Arc<ServerState>,
) -> Result<(Address, AbortHandle), Error> {
    let failed = |error| Error::bind(format!("admin at {address}: {error}"), error);
    let listener = Listener::bind(address).await.map_err(failed)?;
    let bound = listener.address().map_err(failed)?;
    let view = Arc::new(View { shared, pages: admin.pages, token: admin.token });
    Ok((bound, switchboard_core::runtime::spawn(accept(listener, view)).abort_handle()))
}

async fn accept(mut listener: Listener, view: Arc<View>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping the set when this task ends closes the connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((pipe, peer, _)) => {
                let view = view.clone();
                connections.spawn(async move {
                    let _place = place;
                    serve(pipe, peer, view).await;
                });
            }
            Err(error) => {
                tracing::warn!("accept on the admin listener: {error}; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(pipe: Pipe, peer: String, view: Arc<View>) {
    let Ok(io) = pipe.adopt() else { return };
    let service = service_fn(|request| {
        let (view, peer) = (view.clone(), peer.clone());
        async move { Ok::<_, Infallible>(view.respond(request, &peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(io), service);
    if let Err(error) = connection.await {
        tracing::debug!(peer, "admin connection ended: {error}");
    }
}

impl View {
    async fn respond(&self, request: Request<Incoming>, peer: &str) -> Response<Full<Bytes>> {
        let form = form(request.uri().query().unwrap_or_default(), request.headers());
        let is_head = request.method() == Method::HEAD;
        let page = match self.may(&request) {
            Err((status, why)) => PageResponse::failure(status, why),
            Ok(()) => match *request.method() {
                Method::GET | Method::HEAD => pages::show(self, &request, form).await,
                Method::POST => pages::change(self, request.uri(), peer),
                _ => PageResponse::failure(StatusCode::METHOD_NOT_ALLOWED, "pages take GET, and flags POST"),
            },
        };
        let content = if is_head { Bytes::new() } else { page.content };
        let mut response = Response::new(Full::new(content));
        *response.status_mut() = page.status;
        let headers = response.headers_mut();
        let fixed: [(HeaderName, &str); 4] = [
            (CONTENT_TYPE, page.kind),
            (CACHE_CONTROL, "no-store"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (
                CONTENT_SECURITY_POLICY,
                "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            ),
        ];
        headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
        match page.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }

    /// Checks whether a request is allowed; returns the status and the reason if it is not.
    fn may<B>(&self, request: &Request<B>) -> Result<(), (StatusCode, &'static str)> {
        let headers = request.headers();
        let host = headers.get(HOST).map_or("", |host| host.to_str().unwrap_or("?"));
        match &self.token {
            Some(token) => {
                let sent = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
                let sent = sent.strip_prefix(b"Bearer ").unwrap_or_default();
                if !is_same(sent, token.as_bytes()) {
                    return Err((StatusCode::UNAUTHORIZED, "send authorization: Bearer TOKEN"));
                }
            }
            // DNS rebinding: the owner of a name can point it to this host, so that their web page passes as
            // same-origin.
            None if !is_own(host) => {
                let why = "name this host by its address, or as localhost";
                return Err((StatusCode::MISDIRECTED_REQUEST, why));
            }
            None => {}
        }
        if request.method() == Method::POST && !is_same_origin(headers, host) {
            return Err((StatusCode::FORBIDDEN, "pages of other origins may change nothing here"));
        }
        Ok(())
    }
}

/// Compares in constant time for inputs of equal length.
fn is_same(sent: &[u8], token: &[u8]) -> bool {
    sent.len() == token.len() && sent.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Returns whether a host is an address or `localhost`, with or without a port.
fn is_own(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or_default();
    name.is_empty() || name == "localhost" || name.parse::<IpAddr>().is_ok()
}

fn is_same_origin(headers: &HeaderMap, host: &str) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.is_some_and(|(_, authority)| authority == host)
}

/// Selects the format of the response: by `?format=`, else by `Accept`.
fn form(query: &str, headers: &HeaderMap) -> Form {
    match query.split('&').find_map(|part| part.strip_prefix("format=")) {
        Some("json") => return Form::Json,
        Some("html") => return Form::Html,
        Some(_) => return Form::Text,
        None => {}
    }
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("text/html") {
        Form::Html
    } else if accept.contains("application/json") {
        Form::Json
    } else {
        Form::Text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_host_names_are_rejected() {
        for own in ["", "localhost", "localhost:9090", "127.0.0.1:1", "[::1]:1", "[::1]", "10.0.0.1"] {
            assert!(is_own(own), "{own}");
        }
        for other in ["evil.example", "evil.example:9090", "localhost.evil.example", "?"] {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn form_is_that_of_the_query_or_of_accept() {
        let accept = |value: &'static str| HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]);
        assert_eq!(form("", &HeaderMap::new()), Form::Text);
        assert_eq!(form("", &accept("text/html,*/*")), Form::Html);
        assert_eq!(form("", &accept("application/json")), Form::Json);
        assert_eq!(form("a=b&format=json", &accept("text/html")), Form::Json);
    }
}
