//! Streamed replies: a line of JSON or a server-sent event for each message.

use super::{
    super::{body::Reply, trailers::Trailers},
    reply::{Style, add_metadata, error_json, prefixed},
    shape::Shape,
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
    time::{Duration, Instant},
};
use tokio::time::{Sleep, sleep, sleep_until};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
/// Proxies commonly close a connection after 30 or 60 seconds of silence.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// The body of a streamed reply: a line or an event for each message.
pub(super) struct Lines {
    stream: Option<EncodedStream>,
    shape: Option<Shape>,
    is_events: bool,
    late: Option<Pin<Box<Sleep>>>,
    /// Ends after a pause of events so long that proxies might close the connection; `None` for lines.
    pause: Option<Pin<Box<Sleep>>>,
    trailers: Option<Arc<Trailers>>,
}

impl Lines {
    pub(super) fn response(
        reply: connectrpc::Response<EncodedStream>,
        shape: Option<Shape>,
        request_headers: &HeaderMap,
        deadline: Option<Instant>,
        trailers: Option<Arc<Trailers>>,
    ) -> Response<Reply> {
        let accepts = |kind: &str| {
            request_headers.get_all(ACCEPT).iter().any(|value| {
                value.to_str().unwrap_or_default().split([',', ';']).any(|part| part.trim() == kind)
            })
        };
        let is_events = accepts(EVENTS);
        let lines = Lines {
            stream: Some(reply.body),
            shape,
            is_events,
            late: deadline.map(|deadline| Box::pin(sleep_until(deadline.into()))),
            pause: is_events.then(|| Box::pin(sleep(PAUSE_MAX))),
            trailers,
        };
        let mut response = Response::new(Reply::own(lines));
        let headers = response.headers_mut();
        let kind = if is_events {
            // Caches and proxies must not buffer events.
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

    /// Restarts the timer of the pause.
    fn rest(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause
                .as_mut()
                .reset(switchboard_core::clock::after(switchboard_core::clock::now(), PAUSE_MAX).into());
        }
    }

    fn message(&self, message: Bytes) -> Bytes {
        let message = match &self.shape {
            Some(shape) => shape.apply(&message).unwrap_or_else(|_| Bytes::from_static(b"null")),
            None => message,
        };
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
            match (stream.as_mut().poll_next(cx), &mut this.pause) {
                (Poll::Ready(item), _) => item,
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Pending, Some(pause)) => {
                    ready!(pause.as_mut().poll(cx));
                    this.rest();
                    // A comment line, which is not part of an event.
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b":\n\n")))));
                }
            }
        };
        this.rest();
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
                // Browsers reconnect when events end without a last event.
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

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    /// A stream that never has a message.
    struct Silent;

    impl futures_core::Stream for Silent {
        type Item = Result<connectrpc::EncodedBody, ConnectError>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Pending
        }
    }

    fn silent(accept: &'static str, deadline: Option<Instant>) -> Response<Reply> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let reply = connectrpc::Response::new(Box::pin(Silent) as EncodedStream);
        Lines::response(reply, None, &headers, deadline, None)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_events_are_kept_alive() {
        let began = tokio::time::Instant::now();
        let mut response = silent("text/html, text/event-stream;q=0.9", None);
        for beat in 1..=3 {
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), ":\n\n");
            assert_eq!(began.elapsed(), PAUSE_MAX * beat);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_lines_end_at_the_deadline() {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(100);
        let mut response = silent("*/*", Some(deadline.into_std()));
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        let line = frame.into_data().unwrap();
        assert!(line.starts_with(b"{\"error\":{\"code\":4,"), "{line:?}");
        assert!(tokio::time::Instant::now() >= deadline);
        assert!(response.body_mut().frame().await.is_none());
    }
}
