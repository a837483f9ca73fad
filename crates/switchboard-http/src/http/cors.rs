//! Cross-origin requests: which web pages may call, for every protocol on HTTP.
//!
//! Off unless `Server::cors` turns it on: without the headers of this module, a browser lets no
//! page of another origin read a response. Preflight requests are answered here and never reach a handler.

use super::{body::Reply, router::ResponseFuture};
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
        ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Headers that the protocols need, in addition to those that a page sets.
const HEADERS: [&str; 8] = [
    "authorization",
    "connect-protocol-version",
    "connect-timeout-ms",
    "content-type",
    "grpc-timeout",
    "x-grpc-web",
    "x-requested-with",
    "x-user-agent",
];
const METHODS: [&str; 6] = ["DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"];
/// Headers in which gRPC-Web sends the status of a call.
const EXPOSED: [&str; 3] = ["grpc-message", "grpc-status", "grpc-status-details-bin"];
/// Browsers repeat a preflight after at most two hours, regardless of a larger `max_age`.
const MAX_AGE: Duration = Duration::from_secs(2 * 3600);

/// Which pages may call from a browser.
///
/// ```
/// use switchboard::{Cors, Server};
///
/// let server = Server::new().cors(Cors::new().origin("https://app.example").header("x-tenant"));
/// ```
///
/// The headers that gRPC-Web, Connect and HTTP/JSON need are always allowed, and pages may read every header of a
/// response.
#[derive(Clone, Debug)]
#[must_use = "give it to `Server::cors`"]
pub struct Cors {
    /// `None` allows any origin.
    origins: Option<Vec<String>>,
    methods: Vec<String>,
    headers: Vec<String>,
    credentials: bool,
    max_age: Duration,
}

impl Default for Cors {
    fn default() -> Cors {
        Cors::new()
    }
}

impl Cors {
    /// Allows no origin yet: add them with [`origin`](Cors::origin).
    pub fn new() -> Cors {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Cors {
            origins: Some(Vec::new()),
            methods: owned(&METHODS),
            headers: owned(&HEADERS),
            credentials: false,
            max_age: MAX_AGE,
        }
    }

    /// Allows every origin: for services that are public anyway.
    pub fn any_origin() -> Cors {
        Cors { origins: None, ..Cors::new() }
    }

    /// Allows pages of this origin: `https://app.example`, with its port unless it is the default port.
    pub fn origin(mut self, origin: impl Into<String>) -> Cors {
        self.origins.get_or_insert_default().push(origin.into());
        self
    }

    /// Allows one more HTTP method in addition to DELETE, GET, HEAD, PATCH, POST and PUT.
    pub fn method(mut self, method: impl Into<String>) -> Cors {
        self.methods.push(method.into());
        self
    }

    /// Allows pages to send this header, for application metadata.
    pub fn header(mut self, name: impl Into<String>) -> Cors {
        self.headers.push(name.into());
        self
    }

    /// Allows browsers to send cookies; not with [`any_origin`](Cors::any_origin).
    pub fn credentials(mut self) -> Cors {
        self.credentials = true;
        self
    }

    /// Sets how long browsers may cache a preflight response; default 2 hours.
    pub fn max_age(mut self, age: Duration) -> Cors {
        self.max_age = age;
        self
    }

    /// # Errors
    /// Settings that browsers would refuse, and text that cannot be in a header.
    pub fn check(&self) -> Result<(), String> {
        match &self.origins {
            None if self.credentials => {
                return Err("credentials for any origin: browsers refuse that, name the origins".to_owned());
            }
            Some(origins) if origins.is_empty() => {
                return Err("no origin is allowed: add .origin(\"https://app.example\")".to_owned());
            }
            _ => {}
        }
        for origin in self.origins.iter().flatten() {
            let host = origin.split_once("://").map(|(_, host)| host);
            if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ', '?'])) {
                let rule = "write scheme, host and port, as in https://app.example or http://localhost:3000";
                return Err(format!("`{origin}` is not an origin: {rule}"));
            }
        }
        let is_token = |name: &String| HeaderName::try_from(name.as_str()).is_ok();
        match self.methods.iter().chain(&self.headers).find(|name| !is_token(name)) {
            Some(name) => Err(format!("`{name}` is not the name of a header or method")),
            None => Ok(()),
        }
    }

    /// Answers preflight requests, and adds to other responses the headers that say who may read them.
    pub(super) fn around<B>(
        self: &Arc<Cors>,
        request: Request<B>,
        next: impl FnOnce(Request<B>) -> ResponseFuture,
    ) -> ResponseFuture {
        let Some(origin) = request.headers().get(ORIGIN).cloned() else { return next(request) };
        let is_preflight = request.method() == Method::OPTIONS
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if is_preflight {
            return Box::pin(std::future::ready(Ok(self.preflight(&origin))));
        }
        let cors = self.clone();
        let response = next(request);
        Box::pin(async move {
            let Ok(mut response) = response.await;
            cors.mark(&origin, response.headers_mut());
            Ok(response)
        })
    }

    fn preflight(&self, origin: &HeaderValue) -> Response<Reply> {
        let text = if self.allows(origin) { "" } else { "this origin is not allowed (Server::cors)\n" };
        let mut response = Response::new(Reply::whole(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = if text.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::FORBIDDEN };
        let headers = response.headers_mut();
        for name in [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS] {
            headers.append(VARY, name.into());
        }
        if text.is_empty() {
            self.allow(origin, headers);
            insert(headers, ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "));
            insert(headers, ACCESS_CONTROL_ALLOW_HEADERS, &self.headers.join(", "));
            insert(headers, ACCESS_CONTROL_MAX_AGE, &self.max_age.as_secs().to_string());
        }
        response
    }

    /// Sets the headers of a response that is not to a preflight request.
    fn mark(&self, origin: &HeaderValue, headers: &mut HeaderMap) {
        headers.append(VARY, ORIGIN.into());
        if !self.allows(origin) {
            return;
        }
        let mut exposed: Vec<&str> = headers.keys().map(HeaderName::as_str).chain(EXPOSED).collect();
        exposed.sort_unstable();
        exposed.dedup();
        let exposed = exposed.join(", ");
        self.allow(origin, headers);
        insert(headers, ACCESS_CONTROL_EXPOSE_HEADERS, &exposed);
    }

    fn allow(&self, origin: &HeaderValue, headers: &mut HeaderMap) {
        let any = HeaderValue::from_static("*");
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origins.as_ref().map_or(any, |_| origin.clone()));
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }

    /// Returns whether pages of this origin may call.
    pub(super) fn allows(&self, origin: &HeaderValue) -> bool {
        let known = |known: &String| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
        self.origins.as_ref().is_none_or(|origins| origins.iter().any(known))
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_browsers_refuse_are_rejected() {
        assert_eq!(Cors::any_origin().check(), Ok(()));
        assert_eq!(Cors::new().origin("http://localhost:3000").credentials().check(), Ok(()));
        for (cors, what) in [
            (Cors::new(), "no origin is allowed"),
            (Cors::any_origin().credentials(), "credentials for any origin"),
            (Cors::new().origin("app.example"), "`app.example` is not an origin"),
            (Cors::new().origin("https://app.example/"), "is not an origin"),
            (Cors::new().origin("https://*.example"), "is not an origin"),
            (Cors::any_origin().header("x y"), "`x y` is not the name"),
        ] {
            let error = cors.check().unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
