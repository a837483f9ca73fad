//! Static pages besides the calls: content that the application registered for browsers, at fixed paths.
//!
//! Only GET and HEAD of the exact path are answered here, before the calls; all other requests go on to the protocols,
//! so that a POST to `/` remains JSON-RPC. A page may load from, and connect to, only the origin it came from.

use super::{body::Reply, response::respond};
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS,
    },
};
use bytes::Bytes;
use std::collections::HashMap;

/// Headers of every page. Isolation from other origins also enables the browser's high-resolution clock.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-cache"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The pages of a server, by path.
#[derive(Default)]
pub struct Pages(HashMap<String, Page>);

struct Page {
    kind: HeaderValue,
    /// HttpState by all responses.
    content: Bytes,
}

impl Pages {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Errors
    /// An invalid path or content type, or a second page at the path.
    pub fn add(&mut self, path: &str, kind: &str, content: Bytes) -> Result<(), String> {
        let is_path = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !path.starts_with('/') || !path.as_bytes().iter().all(is_path) {
            return Err(format!("{path:?} is not a path: a path begins with / and has no blanks, ? or #"));
        }
        let kind = HeaderValue::from_str(kind).map_err(|_| {
            format!("{kind:?} is not a content type for {path}: try text/html; charset=utf-8")
        })?;
        match self.0.insert(path.to_owned(), Page { kind, content }) {
            None => Ok(()),
            Some(_) => Err(format!("two pages are at {path}")),
        }
    }

    /// Returns the page for a request, if there is one.
    pub(super) fn respond<B>(&self, request: &Request<B>) -> Option<Response<Reply>> {
        let is_head = request.method() == Method::HEAD;
        if !is_head && request.method() != Method::GET {
            return None;
        }
        let page = self.0.get(request.uri().path())?;
        let content = if is_head { Bytes::new() } else { page.content.clone() };
        let mut response = respond(StatusCode::OK, content);
        page.describe(response.headers_mut());
        Some(response)
    }
}

impl Page {
    fn describe(&self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_TYPE, self.kind.clone());
        headers.insert(CONTENT_LENGTH, HeaderValue::from(self.content.len()));
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}
