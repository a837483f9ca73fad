//! The body of a request: decoded if it is text, and given up when nothing comes.
//!
//! Peers on HTTP/2 are pinged, and a connection that does not answer is closed. HTTP/1.1 has nothing of the kind, so
//! there a body that stops is given up, or a peer could keep its connection and its call for good.

use super::{
    envelopes::Envelopes,
    received::Received,
    text::{Text, Unreadable, decode},
};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;

/// The body of a request, decoded if it is text.
pub(super) struct Asked {
    body: Received,
    /// Characters of a group that is not complete; none if the body is no text.
    rest: Option<BytesMut>,
    silence: Option<Silence>,
    /// Of bodies that have them.
    envelopes: Option<Envelopes>,
    /// Its messages go on one by one.
    streams: bool,
}

/// How long nothing may come of a body, and the timer for it once nothing comes.
struct Silence {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Asked {
    /// A body that is given up after `silence`, where that is given.
    pub(super) fn new(body: Received, text: Text, silence: Option<Duration>) -> Asked {
        let silence = silence.map(|limit| Silence { limit, timer: None });
        Asked { body, rest: text.request.then(BytesMut::new), silence, envelopes: None, streams: false }
    }

    /// The body, whose messages are in these envelopes, each with a flag that has to be one of requests; if it `streams`,
    /// they go on one by one.
    pub(super) fn checked(mut self, envelopes: Option<Envelopes>, streams: bool) -> Asked {
        (self.envelopes, self.streams) = (envelopes, streams);
        self
    }

    /// The next frame as it came.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        // To wait for room is no silence of the peer.
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
        let text = format!("nothing more came of the request for {limit:?} (idle_timeout)");
        Poll::Ready(Some(Err(Failed(text.into()))))
    }

    /// The next frame, decoded.
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
                    return Poll::Ready(Some(Err(Failed("the body is not base64: it is cut short".into()))));
                }
            };
            match decode(rest, &data) {
                // An empty frame would say nothing.
                Ok(decoded) if decoded.is_empty() => {}
                decoded => return Poll::Ready(Some(decoded.map(Frame::data).map_err(Failed))),
            }
        }
    }
}

/// The error of a body, in the shape that `connectrpc` wants it.
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

impl Body for Asked {
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
            let text = format!("a message has the flag {flag}: 0 and 1 are known");
            return Poll::Ready(Some(Err(Failed(text.into()))));
        }
        if self.streams && self.envelopes.as_ref().is_some_and(Envelopes::is_whole) {
            self.body.keeps(0);
        }
        // Connect has another status for this, which `connectrpc` gives.
        if frame.is_none()
            && let Some(envelopes) = self.envelopes.take()
            && envelopes.is_grpc
            && !envelopes.is_whole()
        {
            return Poll::Ready(Some(Err(Failed("the last message is cut off".into()))));
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
