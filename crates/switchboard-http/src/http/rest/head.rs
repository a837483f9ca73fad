//! Reads the head of a request, except its path.

use super::{super::metered_body::MeteredBody, reply::Failure};
use ::http::{
    HeaderMap, HeaderName, Request, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use connectrpc::CompressionRegistry;
use std::borrow::Cow;
use switchboard_wire::Status;

/// Prefix of headers that are metadata under the rest of their name.
const METADATA_PREFIX: &str = "grpc-metadata-";

/// Returns whether the headers identify the request as gRPC, gRPC-Web or Connect.
pub(in crate::http) fn is_of_other_dialect(request: &Request<MeteredBody>) -> bool {
    let kind = content_type(request.headers());
    kind.starts_with("application/grpc")
        || kind.starts_with("application/connect+")
        || request.headers().contains_key("connect-protocol-version")
        || request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "connect=v1"))
}

/// Returns the content type in lower case, without its parameters.
pub(super) fn content_type(headers: &HeaderMap) -> Cow<'_, str> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => kind.to_ascii_lowercase().into(),
        false => kind.into(),
    }
}

/// Returns the compression of a body with these headers; `None` if it is uncompressed.
///
/// Browsers send forms and plain text across origins without a preflight, so only JSON content types are accepted as
/// JSON.
///
/// # Errors
/// An unsupported content type or compression.
pub(super) fn coding<'h>(
    headers: &'h HeaderMap,
    any: bool,
    known: &CompressionRegistry,
) -> Result<Option<&'h str>, Failure> {
    let unsupported = |text: String| {
        Err(Failure::new(&Status::invalid_argument(text)).with_http(StatusCode::UNSUPPORTED_MEDIA_TYPE))
    };
    let coding = headers.get(CONTENT_ENCODING).map(|coding| coding.to_str().unwrap_or("?"));
    let coding = coding.filter(|coding| *coding != "identity");
    if let Some(coding) = coding.filter(|coding| !known.supports(coding)) {
        let known = known.supported_encodings().join(", ");
        return unsupported(format!("content-encoding {coding}: send the body as it is, or in {known}"));
    }
    let kind = content_type(headers);
    let is_json = kind == "application/json" || kind == "application/x-ndjson" || kind.ends_with("+json");
    if any || is_json {
        return Ok(coding);
    }
    let kind = if kind.is_empty() { "no content-type" } else { &*kind };
    unsupported(format!("{kind}: send JSON with content-type application/json"))
}

/// Returns the headers under the names that the application uses.
pub(in crate::http) fn metadata_headers(headers: &HeaderMap) -> HeaderMap {
    let mut named = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let own =
            name.as_str().strip_prefix(METADATA_PREFIX).and_then(|name| HeaderName::try_from(name).ok());
        named.append(own.unwrap_or_else(|| name.clone()), value.clone());
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn only_json_is_taken_for_json() {
        let known = CompressionRegistry::default();
        for (kind, any, ok) in [
            ("application/json", false, true),
            ("application/json;charset=utf-8", false, true),
            ("application/merge-patch+json", false, true),
            ("Application/JSON", false, true),
            ("text/plain", false, false),
            ("application/x-www-form-urlencoded", false, false),
            ("text/plain", true, true),
        ] {
            assert_eq!(coding(&headers(&[("content-type", kind)]), any, &known).is_ok(), ok, "{kind}");
        }
        assert!(coding(&HeaderMap::new(), false, &known).is_err());
        for (packing, read) in [("gzip", Some(Some("gzip"))), ("identity", Some(None)), ("br", None)] {
            let packed = headers(&[("content-type", "application/json"), ("content-encoding", packing)]);
            assert_eq!(coding(&packed, false, &known).ok(), read, "{packing}");
        }
    }

    #[test]
    fn metadata_loses_its_prefix() {
        let named = metadata_headers(&headers(&[("grpc-metadata-x-a", "1"), ("authorization", "b")]));
        assert_eq!(named, headers(&[("x-a", "1"), ("authorization", "b")]));
    }
}
