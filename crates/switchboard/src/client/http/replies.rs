//! The messages and the end of an answer, of every dialect that has envelopes.

use super::{
    codes,
    compression::Compression,
    connect,
    envelope::{COMPRESSED, END, Envelope, Envelopes, TRAILERS},
    grpc, grpc_web,
    link::{Answer, Body, Link},
    settings::{Dialect, Terms},
};
use crate::{Code, Metadata, Result, Status, http::text};
use ::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use bytes::{Bytes, BytesMut};

/// Reads an answer to its end.
pub(super) struct Replies<'a> {
    terms: Terms,
    link: &'a Link,
    body: Body,
    envelopes: Envelopes,
    /// Characters of base64 that are no whole group.
    text: BytesMut,
    compression: Option<Compression>,
    /// How the call ended, as the head says it: holds only for an answer without body and trailers.
    early_end: Option<Result<Metadata>>,
    /// How the call ended, as the body or its trailers say it.
    end: Option<Result<Metadata>>,
}

impl<'a> Replies<'a> {
    /// The metadata of the head, and what reads the rest.
    ///
    /// # Errors
    /// Answers that are none of the dialect, such as a proxy's.
    pub(super) fn new(
        terms: Terms,
        wanted: &'static str,
        link: &'a Link,
        answer: Answer,
    ) -> Result<(Metadata, Replies<'a>)> {
        let Answer { status, headers, body } = answer;
        let is_grpc = terms.dialect != Dialect::Connect;
        let only_trailers = is_grpc && headers.contains_key(grpc::STATUS);
        if status != StatusCode::OK && !only_trailers {
            return Err(codes::foreign(status, &headers, wanted, link.peer()));
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

    /// The next message; none when the call ended well, and [`end`](Self::end) then has the trailers.
    ///
    /// # Errors
    /// Why the call ended. It must not be asked again after that.
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
                        true => {
                            text::decode(&mut self.text, &chunk).map_err(|why| wrong(&why.to_string()))?
                        }
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
                "the answer ended in the middle of a message".into(),
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
                let text = "the server ended the call without saying how".to_owned();
                Err(codes::from_path(Code::Internal, text))
            }
        }
    }

    /// The trailers of a call that ended well.
    pub(super) fn end(self) -> Metadata {
        self.end.and_then(Result::ok).unwrap_or_default()
    }

    /// A status that was told already says more than the way in which the connection broke after it.
    fn broken(&mut self, status: Status) -> Status {
        match self.end.take().or_else(|| self.early_end.take()) {
            Some(Err(told)) => told,
            _ => status,
        }
    }

    /// A message, or nothing for an envelope that tells the end.
    #[inline]
    fn open(&mut self, envelope: Envelope) -> Result<Option<Bytes>> {
        let Envelope { flags, payload } = envelope;
        if self.end.is_some() {
            return Err(wrong("the server sent more after the end of the call"));
        }
        let ends = match self.terms.dialect {
            Dialect::Connect => END,
            // What is posted has no envelopes, and does not come here.
            Dialect::Grpc | Dialect::JsonRpc | Dialect::Thrift => 0,
            Dialect::GrpcWeb => TRAILERS,
        };
        if flags & !(COMPRESSED | ends) != 0 {
            return Err(wrong(&format!(
                "the server sent a message with flags {flags:#04x}, which nobody knows"
            )));
        }
        let payload = match (flags & COMPRESSED != 0, self.compression) {
            (false, _) => payload,
            (true, Some(compression)) => {
                let bytes_max = self.envelopes.bytes_max(flags);
                compression.decompress(payload, bytes_max)?
            }
            (true, None) => return Err(wrong("the server sent a compressed message and did not say how")),
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

fn wrong(text: &str) -> Status {
    codes::from_path(Code::Internal, text.to_owned())
}

/// How the types of a dialect begin; the longer ones first.
const FAMILIES: [&[u8]; 4] =
    [b"application/grpc-web", b"application/grpc", b"application/connect+", b"application/"];

/// Whether the answer is of the type that was asked for; parameters do not count, and gRPC's name for protobuf may be
/// left out.
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
    let mut status = codes::foreign(StatusCode::OK, headers, wanted, peer);
    let family = |kind: &[u8]| FAMILIES.iter().position(|family| kind.starts_with(family));
    if family(kind).is_some() && family(kind) == family(wanted.as_bytes()) {
        // The server speaks the dialect and mistook the codec.
        status = wrong(status.message());
    }
    Err(status)
}
