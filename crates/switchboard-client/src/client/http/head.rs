//! The head of a request: method, URI and headers of each dialect.

use super::{
    compression, connect, grpc,
    link::{self, Link},
    settings::{Dialect, Terms},
};
use crate::client::ClientMethod;
use ::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, TE, USER_AGENT},
};
use bytes::Bytes;
use std::time::Duration;
use switchboard_core::{Result, call::no_attachments};
use switchboard_net::http_fields;
use switchboard_wire::{Codec, Idempotency, Kind, Metadata, Status};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("switchboard/", env!("CARGO_PKG_VERSION")));
const WEB: HeaderName = HeaderName::from_static("x-grpc-web");
/// Number of headers that a dialect adds; with it the map grows at most once.
const OWN_HEADERS: usize = 8;

/// A call to be encoded.
#[derive(Clone, Copy)]
pub(super) struct OutgoingRequest<'a> {
    pub(super) method: &'static ClientMethod,
    pub(super) codec: Codec,
    /// Remaining timeout.
    pub(super) left: Option<Duration>,
    pub(super) metadata: &'a Metadata,
    /// True for a one-way call, without a reply.
    pub(super) oneway: bool,
}

impl OutgoingRequest<'_> {
    pub(super) fn kind(&self) -> Kind {
        self.method.kind()
    }

    /// Returns true for unary calls of Connect, which have a format without envelopes.
    pub(super) fn is_bare(&self, terms: &Terms) -> bool {
        terms.dialect == Dialect::Connect && self.kind() == Kind::Unary
    }

    /// Builds the head of this call.
    ///
    /// # Errors
    /// `DeadlineExceeded` when the timeout has passed, `Unimplemented` for codecs without a content type on HTTP.
    pub(super) fn head(&self, terms: &Terms, link: &Link) -> Result<Request<()>> {
        let uri = match &link.common().path {
            Some(path) => link.address(path)?,
            None => link.uri(self.method, self.metadata)?,
        };
        let mut head = link::request(Method::POST, uri);
        *head.headers_mut() = self.headers(terms)?;
        Ok(head)
    }

    fn headers(&self, terms: &Terms) -> Result<HeaderMap> {
        let mut headers = HeaderMap::with_capacity(OWN_HEADERS + self.metadata.len());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type(terms)?));
        let (accept, encoding) = match terms.dialect {
            Dialect::Grpc => {
                headers.insert(TE, HeaderValue::from_static("trailers"));
                (grpc::ACCEPT_ENCODING, grpc::ENCODING)
            }
            Dialect::GrpcWeb => {
                headers.insert(WEB, HeaderValue::from_static("1"));
                (grpc::ACCEPT_ENCODING, grpc::ENCODING)
            }
            Dialect::Connect => {
                headers.insert(connect::VERSION, HeaderValue::from_static("1"));
                match self.is_bare(terms) {
                    true => (ACCEPT_ENCODING, CONTENT_ENCODING),
                    false => (connect::ACCEPT_ENCODING, connect::CONTENT_ENCODING),
                }
            }
            Dialect::JsonRpc | Dialect::Thrift => (ACCEPT_ENCODING, CONTENT_ENCODING),
        };
        headers.insert(USER_AGENT, AGENT);
        if terms.advertise {
            headers.insert(accept, compression::ACCEPTED.clone());
        }
        if let Some(compression) = terms.compression {
            headers.insert(encoding, HeaderValue::from_static(compression.name()));
        }
        if let Some(left) = self.left {
            if left.is_zero() {
                return Err(Status::deadline_exceeded("the deadline passed before the call was sent"));
            }
            match terms.dialect {
                Dialect::Connect | Dialect::JsonRpc | Dialect::Thrift => {
                    headers.insert(connect::TIMEOUT, connect::timeout(left))
                }
                Dialect::Grpc | Dialect::GrpcWeb => headers.insert(grpc::TIMEOUT, grpc::timeout(left)),
            };
        }
        if !self.metadata.is_empty() {
            if self.metadata.attachment().is_some() {
                return Err(no_attachments("HTTP"));
            }
            http_fields::append(&mut headers, self.metadata);
        }
        Ok(headers)
    }

    /// The content type of the request and of its response.
    pub(super) fn content_type(&self, terms: &Terms) -> Result<&'static str> {
        Ok(match (terms.dialect, self.codec) {
            (Dialect::Grpc, Codec::Proto) => "application/grpc",
            (Dialect::Grpc, Codec::Json) => "application/grpc+json",
            (Dialect::Grpc, Codec::FlatBuffers) => "application/grpc+flatbuffers",
            (Dialect::GrpcWeb, Codec::Proto) if terms.text => "application/grpc-web-text+proto",
            (Dialect::GrpcWeb, Codec::Json) if terms.text => "application/grpc-web-text+json",
            (Dialect::GrpcWeb, Codec::Proto) => "application/grpc-web+proto",
            (Dialect::GrpcWeb, Codec::Json) => "application/grpc-web+json",
            (Dialect::Connect, Codec::Proto) if self.is_bare(terms) => "application/proto",
            (Dialect::Connect, Codec::Json) if self.is_bare(terms) => "application/json",
            (Dialect::Connect, Codec::Proto) => "application/connect+proto",
            (Dialect::Connect, Codec::Json) => "application/connect+json",
            (Dialect::JsonRpc, Codec::Json) => "application/json",
            (Dialect::Thrift, Codec::Thrift) => "application/x-thrift",
            (_, other) => {
                let text =
                    format!("codec {other} is not supported on HTTP; use proto or json, or wire=native");
                return Err(Status::unimplemented(text));
            }
        })
    }

    /// Builds the head of this call as a GET, if the channel enables GET, the method has no side effects, and the URI
    /// of the call is not too long.
    pub(super) fn get(&self, terms: &Terms, link: &Link, message: &Bytes) -> Result<Option<Request<()>>> {
        let info = self.method.service.methods.get(usize::from(self.method.index));
        if !terms.get || info.is_none_or(|info| info.idempotency != Idempotency::NoSideEffects) {
            return Ok(None);
        }
        let (message, compression) = match terms.compression {
            Some(compression) => (compression.compress(message)?, Some(compression.name())),
            None => (message.clone(), None),
        };
        let path = format!("/{}", self.method.path);
        let Some(path) = connect::query(&path, self.codec.name(), compression, &message) else {
            return Ok(None);
        };
        let mut head = link::request(Method::GET, link.address(&path)?);
        let mut headers = self.headers(terms)?;
        for body in [CONTENT_TYPE, CONTENT_ENCODING, connect::VERSION] {
            headers.remove(body);
        }
        *head.headers_mut() = headers;
        Ok(Some(head))
    }
}
