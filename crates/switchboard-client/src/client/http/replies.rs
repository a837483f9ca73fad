//! The messages and the end of a response, for every dialect with envelopes.

use super::{
    codes,
    compression::Compression,
    connect,
    envelope::{COMPRESSED, END, Envelope, Envelopes, TRAILERS},
    grpc, grpc_web,
    link::{Body, HttpResponse, Link},
    settings::{Dialect, Terms},
};
use ::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use switchboard_core::Result;
use switchboard_net::http_fields::grpc_web_text;
use switchboard_wire::{Code, Metadata, Status};

/// Reads a response to its end.
pub(super) struct Replies<'a> {
    terms: Terms,
    link: &'a Link,
    body: Body,
    envelopes: Envelopes,
    /// Characters of base64 that do not form a whole group.
    text: BytesMut,
    compression: Option<Compression>,
    /// The end of the call according to the head: valid only for a response without body and trailers.
    early_end: Option<Result<Metadata>>,
    /// The end of the call according to the body or its trailers.
    end: Option<Result<Metadata>>,
}

impl<'a> Replies<'a> {
    /// Returns the metadata of the head, and the reader of the body.
    ///
    /// # Errors
    /// The status for responses that do not belong to the dialect, such as those of a proxy.
    pub(super) fn new(
        terms: Terms,
        wanted: &'static str,
        link: &'a Link,
        response: HttpResponse,
    ) -> Result<(Metadata, Replies<'a>)> {
        let HttpResponse { status, headers, body } = response;
        let is_grpc = terms.dialect != Dialect::Connect;
        let only_trailers = is_grpc && headers.contains_key(grpc::STATUS);
        if status != StatusCode::OK && !only_trailers {
            return Err(codes::unexpected_response(status, &headers, wanted, link.peer()));
        }
        check_type(&headers, wanted, link.peer())?;
        let encoding = if is_grpc { grpc::ENCODING } else { connect::CONTENT_ENCODING };
        let compression = Compression::named(headers.get(encoding))?;
        let (head, early_end) = match only_trailers {
            true => (Metadata::new(), Some(grpc::end(&headers, &terms.metadata))),
            false => (codes::metadata(&headers, &terms.metadata)?, None),
        };
        let envelopes = Envelopes::new(terms.message_bytes_max);
        Ok((
            head,
            Replies {
                terms,
                link,
                body,
                envelopes,
                text: BytesMut::new(),
                compression,
                early_end,
                end: None,
            },
        ))
    }

    /// Returns the next message; `None` when the call succeeded, and [`end`](Self::end) then returns the trailers.
    ///
    /// # Errors
    /// The status of the call. This method must not be called again after that.
    #[inline]
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            while let Some(envelope) = self.envelopes.next()? {
                if let Some(message) = self.open(envelope)? {
                    return Ok(Some(message));
                }
            }
            match self.body.chunk().await {
                Some(Ok(chunk)) => {
                    if !chunk.is_empty() {
                        self.early_end = None;
                    }
                    let chunk = match self.terms.text {
                        true => grpc_web_text::decode(&mut self.text, &chunk)
                            .map_err(|why| protocol_error(&why.to_string()))?,
                        false => chunk,
                    };
                    self.envelopes.push(chunk);
                }
                Some(Err(broken)) => return Err(self.broken(self.link.status(&broken))),
                None => break,
            }
        }
        if !self.envelopes.is_empty() || !self.text.is_empty() {
            return Err(self.broken(codes::from_path(
                Code::Internal,
                "the response ended in the middle of a message".into(),
            )));
        }
        if self.terms.dialect == Dialect::Grpc {
            let trailers = self.body.trailers().await.map_err(|broken| self.link.status(&broken))?;
            self.end = trailers.map(|trailers| grpc::end(&trailers, &self.terms.metadata));
        }
        match self.end.take().or_else(|| self.early_end.take()) {
            Some(Ok(trailers)) => {
                self.end = Some(Ok(trailers));
                Ok(None)
            }
            Some(Err(status)) => Err(status),
            None => {
                let text = "the server ended the call without a status".to_owned();
                Err(codes::from_path(Code::Internal, text))
            }
        }
    }

    /// The trailers of a successful call.
    pub(super) fn end(self) -> Metadata {
        self.end.and_then(Result::ok).unwrap_or_default()
    }

    /// Prefers a status that was received to the status of the connection that failed after it.
    fn broken(&mut self, status: Status) -> Status {
        match self.end.take().or_else(|| self.early_end.take()) {
            Some(Err(received)) => received,
            _ => status,
        }
    }

    /// Returns a message, or `None` for an envelope with the end.
    #[inline]
    fn open(&mut self, envelope: Envelope) -> Result<Option<Bytes>> {
        let Envelope { flags, payload } = envelope;
        if self.end.is_some() {
            return Err(protocol_error("the server sent more after the end of the call"));
        }
        let ends = match self.terms.dialect {
            Dialect::Connect => END,
            // Dialects that post have no envelopes and do not use this code.
            Dialect::Grpc | Dialect::JsonRpc | Dialect::Thrift => 0,
            Dialect::GrpcWeb => TRAILERS,
        };
        if flags & !(COMPRESSED | ends) != 0 {
            return Err(protocol_error(&format!(
                "the server sent a message with unknown flags {flags:#04x}"
            )));
        }
        let payload = match (flags & COMPRESSED != 0, self.compression) {
            (false, _) => payload,
            (true, Some(compression)) => {
                let bytes_max = self.envelopes.bytes_max(flags);
                compression.decompress(payload, bytes_max)?
            }
            (true, None) => {
                return Err(protocol_error(
                    "the server sent a compressed message without the name of the compression",
                ));
            }
        };
        if flags & ends == 0 {
            return Ok(Some(payload));
        }
        self.end = Some(match self.terms.dialect {
            Dialect::Connect => connect::end(&payload, &self.terms.metadata),
            _ => grpc_web::trailers(&payload).and_then(|trailers| grpc::end(&trailers, &self.terms.metadata)),
        });
        Ok(None)
    }
}

fn protocol_error(text: &str) -> Status {
    codes::from_path(Code::Internal, text.to_owned())
}

/// Prefixes of the content types of a dialect; the longer ones first.
const FAMILIES: [&[u8]; 4] =
    [b"application/grpc-web", b"application/grpc", b"application/connect+", b"application/"];

/// Checks that the response has the requested content type; parameters are ignored, and the `+proto` of gRPC is
/// optional.
pub(super) fn check_type(headers: &HeaderMap, wanted: &str, peer: &str) -> Result<()> {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if kind == wanted.as_bytes() {
        return Ok(());
    }
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let bare = |kind: &[u8]| {
        kind.strip_suffix(b"+proto").map_or_else(|| kind.to_ascii_lowercase(), <[u8]>::to_ascii_lowercase)
    };
    if bare(kind) == bare(wanted.as_bytes()) {
        return Ok(());
    }
    let mut status = codes::unexpected_response(StatusCode::OK, headers, wanted, peer);
    let family = |kind: &[u8]| FAMILIES.iter().position(|family| kind.starts_with(family));
    if family(kind).is_some() && family(kind) == family(wanted.as_bytes()) {
        // The server uses the dialect, but the wrong codec.
        status = protocol_error(status.message());
    }
    Err(status)
}
