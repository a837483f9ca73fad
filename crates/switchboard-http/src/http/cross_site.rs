//! Requests that a page of another site makes a browser send.
//!
//! A browser sends *simple* requests to any server without a preflight: GET, HEAD, and POST with no content type or
//! with a form content type. CORS hides the response from the page, but by then a method has run, with the user's
//! cookies and from the user's network. Therefore a request runs a method only if it is not simple, or if the browser
//! says that it comes from this server or from an origin that [`Cors`] allows.
//!
//! A request without `Origin` and `Sec-Fetch-Site` proves nothing: browsers omit both for GET over plain HTTP, and
//! older ones for POST.

use super::rest::Failure;
use crate::Cors;
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{CONTENT_TYPE, HOST, ORIGIN},
};
use switchboard_wire::Status;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// Content types that browsers send without a preflight.
const SIMPLE_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// Headers of the protocols. A page of another origin can set them only after a preflight, and neither browsers nor
/// proxies add them.
const OWN_HEADERS: [&str; 7] = [
    "connect-protocol-version",
    "connect-timeout-ms",
    "grpc-timeout",
    "x-grpc-web",
    "x-jsonrpc-2.0",
    "x-rpcx-servicemethod",
    "x-rpcx-servicepath",
];

/// Refuses a request that a page of another site may have sent. GET and HEAD pass: [`refuse_read`] checks them once the
/// method is known.
pub(super) fn refuse<B>(request: &Request<B>, cors: Option<&Cors>) -> Option<Failure> {
    if request.method() != Method::POST || is_deliberate(request, cors) {
        return None;
    }
    if comes_from_page(request.headers()) {
        return Some(refused_page("POST"));
    }
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let kind = kind.as_deref().unwrap_or("no content-type");
    let text = format!(
        "{kind}: send JSON with content-type application/json, or another type of an RPC protocol; pages of other sites \
         can make browsers send this POST"
    );
    Some(Failure::new(&Status::invalid_argument(text)).with_http(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// Refuses a GET or HEAD of `method`, which may have side effects, unless no page of another site can have sent it.
pub(super) fn refuse_read<B>(request: &Request<B>, cors: Option<&Cors>, method: &str) -> Option<Failure> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    if !is_read || is_deliberate(request, cors) {
        return None;
    }
    if comes_from_page(request.headers()) {
        return Some(refused_page("GET"));
    }
    let text = format!(
        "GET runs {method}, which may have side effects: declare idempotency_level = NO_SIDE_EFFECTS (`read_only` in a \
         trait), or send the header x-requested-with: XMLHttpRequest"
    );
    Some(Failure::new(&Status::permission_denied(text)).with_http(StatusCode::FORBIDDEN))
}

fn refused_page(verb: &str) -> Failure {
    let text = format!(
        "{verb} from a page of another origin: send content-type application/json, and allow the origin (Server::cors)"
    );
    Failure::new(&Status::permission_denied(text)).with_http(StatusCode::FORBIDDEN)
}

/// Returns whether the browser sent a preflight first, or says that the page may call.
fn is_deliberate<B>(request: &Request<B>, cors: Option<&Cors>) -> bool {
    let headers = request.headers();
    let is_form_verb = [Method::GET, Method::HEAD, Method::POST].contains(request.method());
    !is_form_verb || has_own_type(headers) || has_own_header(headers) || may_call(request, cors)
}

/// Returns whether there are content types and none of them is sent without a preflight.
fn has_own_type(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter().peekable();
    kinds.peek().is_some() && kinds.all(|kind| !is_simple(kind))
}

/// Returns whether browsers may send the type without a preflight. Also true for a type that cannot be parsed.
fn is_simple(kind: &HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_token = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !part.is_empty() && part.bytes().all(is_allowed)
    };
    let is_type = essence.split_once('/').is_some_and(|(main, sub)| is_token(main) && is_token(sub));
    !is_type || SIMPLE_TYPES.iter().any(|simple| simple.eq_ignore_ascii_case(essence))
}

fn has_own_header(headers: &HeaderMap) -> bool {
    // Android web views add this header to every request, with the name of their app.
    let is_script = headers
        .get(X_REQUESTED_WITH)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"XMLHttpRequest"));
    is_script || OWN_HEADERS.iter().any(|name| headers.contains_key(*name))
}

/// Returns whether a browser says that the request comes from a page.
pub(super) fn comes_from_page(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE)
}

/// Returns whether the browser says that the page is of this origin, or of an allowed one.
fn may_call<B>(request: &Request<B>, cors: Option<&Cors>) -> bool {
    let headers = request.headers();
    let origin = headers.get(ORIGIN);
    if cors.zip(origin).is_some_and(|(cors, origin)| cors.allows(origin)) {
        return true;
    }
    match (headers.get(SEC_FETCH_SITE), origin) {
        // `none` means the user: a typed address or a bookmark.
        (Some(site), _) => site == "same-origin" || site == "none",
        (None, Some(origin)) => is_own(request, origin),
        (None, None) => false,
    }
}

/// Returns whether the origin is the host that the request names.
fn is_own<B>(request: &Request<B>, origin: &HeaderValue) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().authority().map(::http::uri::Authority::as_str).or(host);
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let (Some(host), Some((_, authority))) = (host, authority) else { return false };
    !host.is_empty() && host.eq_ignore_ascii_case(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(verb).uri("/a.B/C").header("host", "here:1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    #[test]
    fn simple_requests_are_refused() {
        let cors = Cors::new().origin("https://app.example");
        for (headers, is_refused) in [
            (&[][..], true),
            (&[("content-type", "text/plain")], true),
            (&[("content-type", "Text/Plain;charset=UTF-8")], true),
            (&[("content-type", "multipart/form-data; boundary=x")], true),
            (&[("content-type", "application/x-www-form-urlencoded")], true),
            (&[("content-type", "")], true),
            (&[("content-type", "json")], true),
            (&[("content-type", "text/plain, application/json")], true),
            (&[("content-type", "application/json"), ("content-type", "text/plain")], true),
            (&[("content-type", "application/json")], false),
            (&[("content-type", "application/grpc")], false),
            (&[("content-type", "application/x-thrift")], false),
            (&[("connect-protocol-version", "1")], false),
            (&[("x-rpcx-servicepath", "a.B")], false),
            (&[("x-requested-with", "XMLHttpRequest")], false),
            (&[("x-requested-with", "com.example.browser")], true),
            (&[("authorization", "Basic eDp5")], true),
            (&[("cookie", "a=b")], true),
            (&[("x-forwarded-for", "10.0.0.1")], true),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://here:1")], true),
            (&[("origin", "http://here:1")], false),
            (&[("origin", "http://here:2")], true),
            (&[("origin", "http://here:1.evil.example")], true),
            (&[("origin", "null")], true),
            (&[("origin", "https://app.example")], false),
            (&[("origin", "https://app.example"), ("sec-fetch-site", "cross-site")], false),
        ] {
            let refused = refuse(&request("POST", headers), Some(&cors)).is_some();
            assert_eq!(refused, is_refused, "{headers:?}");
            for verb in ["GET", "HEAD"] {
                let read = request(verb, headers);
                assert_eq!(
                    refuse_read(&read, Some(&cors), "a.B/C").is_some(),
                    is_refused,
                    "{verb} {headers:?}"
                );
                assert!(refuse(&read, Some(&cors)).is_none(), "methods without side effects may be read");
            }
            for verb in ["DELETE", "PUT", "PATCH"] {
                let preflighted = request(verb, headers);
                assert!(refuse(&preflighted, Some(&cors)).is_none(), "{verb} {headers:?}");
            }
        }
        let origin = [("origin", "https://app.example")];
        assert!(refuse(&request("POST", &origin), None).is_some(), "without CORS no origin is allowed");
        assert!(refuse(&request("POST", &origin), Some(&Cors::any_origin())).is_none());
    }
}
