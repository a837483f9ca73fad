//! Replies of one message, and errors.

use super::{
    super::{body::Reply, convert},
    fields::BASE64,
    shape::Shape,
};
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, TRAILER, VARY},
};
use base64::Engine as _;
use bytes::Bytes;
use connectrpc::{CompressionRegistry, ConnectError, EncodedResponse, ErrorCode};
use http_body::{Body, Frame};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};
use switchboard_wire::{Metadata, Status};

const JSON: &str = "application/json";
/// Smaller bodies are sent uncompressed, as in the other protocols.
const PACKED_LEAST: usize = 1 << 10;

/// The form of errors and metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::http) enum Style {
    /// As in Connect: code by name, metadata under its own name.
    Connect,
    /// As in grpc-gateway: code by number, metadata with a prefix.
    Rest,
}

/// The form of the reply that a caller accepts.
pub(super) struct Wanted<'a> {
    pub(super) style: Style,
    pub(super) shape: Option<Shape>,
    /// The message is a `google.api.HttpBody`.
    pub(super) is_raw: bool,
    /// The caller accepts HTTP trailers after the body.
    pub(super) trailers: bool,
    /// Compression of large bodies that the caller can read.
    pub(super) coding: Option<&'static str>,
    pub(super) codings: &'a CompressionRegistry,
}

/// The reason for an error response.
pub(in crate::http) struct Failure {
    error: Box<ConnectError>,
    http: Option<StatusCode>,
    allow: Option<HeaderValue>,
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        Failure { error: Box::new(error), http: None, allow: None }
    }
}

impl Failure {
    pub(in crate::http) fn new(status: &Status) -> Failure {
        convert::error(status, &Metadata::new(), &Metadata::new()).into()
    }

    /// Sets an HTTP status other than that of the code.
    pub(in crate::http) fn with_http(mut self, status: StatusCode) -> Failure {
        self.http = Some(status);
        self
    }

    /// Returns the status and the HTTP status, for a protocol with errors of its own.
    pub(in crate::http) fn into_parts(self) -> (Status, StatusCode) {
        (convert::status(&self.error), self.http.unwrap_or_else(|| self.error.http_status()))
    }

    /// Lists the verbs that the path allows.
    pub(super) fn with_allow(mut self, verbs: &str) -> Failure {
        self.allow = HeaderValue::try_from(verbs).ok();
        self
    }

    /// Returns true if the guards did not admit the caller.
    pub(super) fn is_denial(&self) -> bool {
        matches!(self.error.code, ErrorCode::PermissionDenied | ErrorCode::Unauthenticated)
    }

    pub(in crate::http) fn response(self, style: Style) -> Response<Reply> {
        let Failure { mut error, http, allow } = self;
        error.response_headers_mut().remove(convert::OWN_TEXT);
        let (status, body) = match style {
            Style::Connect => (error.http_status(), error.to_json()),
            Style::Rest => (http_status(error.code.grpc_code()), error_json(&error).to_string().into()),
        };
        let mut response = whole(body, JSON);
        *response.status_mut() = http.unwrap_or(status);
        add_metadata(response.headers_mut(), error.response_headers(), style);
        add_trailers(response.headers_mut(), error.trailers(), style);
        if let Some(allow) = allow {
            response.headers_mut().insert(ALLOW, allow);
        }
        response
    }
}

/// Converts a reply of one message.
///
/// # Errors
/// The reply does not match the declaration of the route.
pub(super) fn one(reply: EncodedResponse, wanted: &Wanted<'_>) -> Result<Response<Reply>, Failure> {
    let style = wanted.style;
    let mut kind = HeaderValue::from_static(JSON);
    let mut body = reply.body.into_contiguous();
    if let Some(shape) = &wanted.shape {
        body = shape.apply(&body).map_err(|why| no_reply(&why))?;
    }
    if wanted.is_raw {
        let raw: Value = serde_json::from_slice(&body).map_err(|error| no_reply(&error.to_string()))?;
        let data = raw["data"].as_str().unwrap_or_default();
        body = BASE64.decode(data).map_err(|error| no_reply(&error.to_string()))?.into();
        let named = raw["contentType"].as_str().unwrap_or("application/octet-stream");
        kind = HeaderValue::try_from(named).map_err(|error| no_reply(&error.to_string()))?;
    }
    let coding = wanted.coding.filter(|_| body.len() >= PACKED_LEAST);
    if let Some(coding) = coding {
        body = wanted.codings.compress(coding, &body)?;
    }
    let mut response = match (style, wanted.trailers && !reply.trailers.is_empty()) {
        (Style::Rest, true) => {
            let trailers = Some(prefixed(&reply.trailers, "grpc-trailer-"));
            let mut response = Response::new(Reply::own(Tail { data: Some(body), trailers }));
            declare_trailers(response.headers_mut(), &reply.trailers);
            response
        }
        _ => whole(body, JSON),
    };
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if let Some(coding) = coding {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        response.headers_mut().insert(VARY, ACCEPT_ENCODING.into());
    }
    add_metadata(response.headers_mut(), &reply.headers, style);
    if style == Style::Connect {
        add_trailers(response.headers_mut(), &reply.trailers, style);
    }
    Ok(response)
}

/// Creates a response with a complete body.
pub(super) fn whole(body: Bytes, kind: &'static str) -> Response<Reply> {
    let mut response = Response::new(Reply::whole(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn no_reply(why: &str) -> Failure {
    Failure::new(&Status::internal(format!("the reply does not match its HTTP rule: {why}")))
}

/// A body of one piece, followed by trailers.
struct Tail {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Tail {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let data = this.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| this.trailers.take().map(Frame::trailers)).map(Ok))
    }
}

/// Converts the error to a `google.rpc.Status`; details keep their bytes, because their types are not known here.
pub(super) fn error_json(error: &ConnectError) -> Value {
    let details = error.details.iter().map(|detail| {
        let name = detail.type_url.trim_start_matches("type.googleapis.com/");
        json!({"@type": format!("type.googleapis.com/{name}"), "value": detail.value})
    });
    json!({
        "code": error.code.grpc_code(),
        "message": error.message.as_deref().unwrap_or_default(),
        "details": details.collect::<Vec<_>>(),
    })
}

/// Returns the HTTP status of a gRPC code, as in grpc-gateway.
fn http_status(code: u32) -> StatusCode {
    let status = match code {
        0 => 200,
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    };
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(super) fn add_metadata(headers: &mut HeaderMap, metadata: &HeaderMap, style: Style) {
    let prefix = if style == Style::Connect { "" } else { "grpc-metadata-" };
    headers.extend(prefixed(metadata, prefix));
}

/// Adds trailers to the headers, for errors and for Connect.
fn add_trailers(headers: &mut HeaderMap, trailers: &HeaderMap, style: Style) {
    let prefix = if style == Style::Connect { "trailer-" } else { "grpc-trailer-" };
    headers.extend(prefixed(trailers, prefix));
}

pub(super) fn prefixed(metadata: &HeaderMap, prefix: &str) -> HeaderMap {
    let mut named = HeaderMap::with_capacity(metadata.len());
    for (name, value) in metadata {
        if let Ok(name) = HeaderName::try_from(format!("{prefix}{name}")) {
            named.append(name, value.clone());
        }
    }
    named
}

/// HTTP/1.1 sends only the trailers that the head lists.
fn declare_trailers(headers: &mut HeaderMap, trailers: &HeaderMap) {
    for name in trailers.keys() {
        if let Ok(name) = HeaderValue::try_from(format!("grpc-trailer-{name}")) {
            headers.append(TRAILER, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard_wire::Code;

    #[test]
    fn every_code_has_its_http_status() {
        let expected = [200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
        for (code, status) in expected.into_iter().enumerate() {
            assert_eq!(http_status(code as u32), status, "{}", Code::from_number(code as u16));
        }
    }
}
