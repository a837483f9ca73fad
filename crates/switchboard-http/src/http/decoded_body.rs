//! The body of a request: decoded from base64 if it is text, and aborted when no data arrives.
//!
//! The server pings HTTP/2 peers and closes a connection that does not respond. HTTP/1.1 has no pings. There, a body
//! that stops arriving is aborted, because otherwise the peer could hold its connection and its call forever.

use super::{envelopes::Envelopes, metered_body::MeteredBody};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_net::http_fields::grpc_web_text::{Text, Unreadable, decode};
use tokio::time::Sleep;

/// The body of a request, decoded from base64 if it is text.
pub(super) struct DecodedBody {
    body: MeteredBody,
    /// Characters of an incomplete base64 group; `None` if the body is not text.
    rest: Option<BytesMut>,
    silence: Option<Silence>,
    /// Tracks the envelopes of bodies that consist of them.
    envelopes: Option<Envelopes>,
    /// Its messages are passed on one by one.
    streams: bool,
}

/// Longest time without data of a body, and the timer that runs while no data arrives.
struct Silence {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl DecodedBody {
    /// Creates a body that fails after `silence` without data, if `silence` is given.
    pub(super) fn new(body: MeteredBody, text: Text, silence: Option<Duration>) -> DecodedBody {
        let silence = silence.map(|limit| Silence { limit, timer: None });
        DecodedBody { body, rest: text.request.then(BytesMut::new), silence, envelopes: None, streams: false }
    }

    /// Checks that each envelope has a flag that requests may have. If it `streams`, messages are passed on one by one
    /// and only an incomplete one counts as held.
    pub(super) fn checked(mut self, envelopes: Option<Envelopes>, streams: bool) -> DecodedBody {
        (self.envelopes, self.streams) = (envelopes, streams);
        self
    }

    /// Returns the next frame as it arrived.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        // The wait for memory is not the peer's silence.
        ready!(self.body.poll_begin(cx));
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Some(silence) = &mut self.silence else {
            return polled.map_err(|error| Failed(error.into()));
        };
        if let Poll::Ready(frame) = polled {
            silence.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| Failed(error.into()))));
        }
        let limit = silence.limit;
        let timer = silence.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        self.silence = None;
        let text = format!("no data of the request body arrived for {limit:?} (idle_timeout)");
        Poll::Ready(Some(Err(Failed(text.into()))))
    }

    /// Returns the next frame, decoded.
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        loop {
            let frame = ready!(self.poll_raw(cx));
            let Some(rest) = &mut self.rest else { return Poll::Ready(frame) };
            let data = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                failed @ Some(Err(_)) => return Poll::Ready(failed),
                None if rest.is_empty() => return Poll::Ready(None),
                None => {
                    rest.clear();
                    return Poll::Ready(Some(Err(Failed(
                        "the body is not base64: it ends in an incomplete group".into(),
                    ))));
                }
            };
            match decode(rest, &data) {
                // An empty frame is skipped.
                Ok(decoded) if decoded.is_empty() => {}
                decoded => return Poll::Ready(Some(decoded.map(Frame::data).map_err(Failed))),
            }
        }
    }
}

/// The error of a body, in the shape that `connectrpc` requires.
#[derive(Debug)]
pub(super) struct Failed(Unreadable);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl Body for DecodedBody {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        let frame = ready!(self.poll_decoded(cx));
        if let (Some(Ok(frame)), Some(envelopes)) = (&frame, &mut self.envelopes)
            && let Some(data) = frame.data_ref()
            && let Err(flag) = envelopes.take(data)
        {
            let text = format!("a message has the flag {flag}: only 0 and 1 are allowed");
            return Poll::Ready(Some(Err(Failed(text.into()))));
        }
        if self.streams && self.envelopes.as_ref().is_some_and(Envelopes::is_whole) {
            self.body.keeps(0);
        }
        // Connect has another status for this, which `connectrpc` sets.
        if frame.is_none()
            && let Some(envelopes) = self.envelopes.take()
            && envelopes.is_grpc
            && !envelopes.is_whole()
        {
            return Poll::Ready(Some(Err(Failed("the last message is incomplete".into()))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(BytesMut::is_empty)
            && self.envelopes.as_ref().is_none_or(Envelopes::is_whole)
            && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            None => self.body.size_hint(),
            Some(_) => SizeHint::default(),
        }
    }
}
