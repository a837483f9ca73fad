//! Answers that are streams: a line of JSON for each message, or a server-sent event.

use super::{
    super::{body::Reply, trailers::Trailers},
    reply::{Style, add_metadata, error_json, prefixed, selected},
    routes::Answer,
};
use ::http::{
    HeaderMap, HeaderValue, Response,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE},
};
use bytes::{BufMut, Bytes, BytesMut};
use connectrpc::{ConnectError, EncodedStream};
use http_body::{Body, Frame};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";

/// The body of a streamed reply: a line or an event for each message.
pub(super) struct Lines {
    stream: Option<EncodedStream>,
    answer: Answer,
    is_events: bool,
    late: Option<Pin<Box<tokio::time::Sleep>>>,
    trailers: Option<Arc<Trailers>>,
}

impl Lines {
    pub(super) fn response(
        reply: connectrpc::Response<EncodedStream>,
        answer: Answer,
        asked: &HeaderMap,
        deadline: Option<Instant>,
        trailers: Option<Arc<Trailers>>,
    ) -> Response<Reply> {
        let accepts = |kind: &str| {
            asked.get_all(ACCEPT).iter().any(|value| {
                value.to_str().unwrap_or_default().split([',', ';']).any(|part| part.trim() == kind)
            })
        };
        let is_events = accepts(EVENTS);
        let lines = Lines {
            stream: Some(reply.body),
            answer,
            is_events,
            late: deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline.into()))),
            trailers,
        };
        let mut response = Response::new(Reply::own(lines));
        let headers = response.headers_mut();
        let kind = if is_events {
            // Neither caches nor proxies may hold events back.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            EVENTS
        } else if accepts(NDJSON) {
            NDJSON
        } else {
            JSON
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        add_metadata(headers, &reply.headers, Style::Rest);
        response
    }

    fn message(&self, message: Bytes) -> Bytes {
        let message = selected(message, &self.answer).unwrap_or_else(|_| Bytes::from_static(b"null"));
        let (before, after) = if self.is_events { ("data: ", "\n\n") } else { ("{\"result\":", "}\n") };
        framed(before, &message, after)
    }

    fn error(&self, error: &ConnectError) -> Bytes {
        let error = error_json(error).to_string();
        let (before, after) =
            if self.is_events { ("event: error\ndata: ", "\n\n") } else { ("{\"error\":", "}\n") };
        framed(before, error.as_bytes(), after)
    }
}

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(stream) = &mut this.stream else {
            let late = this.trailers.take().and_then(|trailers| trailers.take());
            let trailers = late.map(|late| prefixed(late.trailers(), "grpc-trailer-"));
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        };
        let late = this.late.as_mut().is_some_and(|late| late.as_mut().poll(cx).is_ready());
        let item = if late {
            Some(Err(ConnectError::deadline_exceeded("the deadline has passed")))
        } else {
            ready!(stream.as_mut().poll_next(cx))
        };
        let data = match item {
            Some(Ok(message)) => this.message(message.into_contiguous()),
            Some(Err(error)) => {
                this.stream = None;
                this.error(&error)
            }
            None => {
                this.stream = None;
                if !this.is_events {
                    return Pin::new(this).poll_frame(cx);
                }
                // Browsers reconnect when events end without a word.
                Bytes::from_static(b"event: end\ndata: {}\n\n")
            }
        };
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

fn framed(before: &str, content: &[u8], after: &str) -> Bytes {
    let mut frame = BytesMut::with_capacity(before.len() + content.len() + after.len());
    frame.put_slice(before.as_bytes());
    frame.put_slice(content);
    frame.put_slice(after.as_bytes());
    frame.freeze()
}
