//! The body of a reply: `connectrpc`'s, with the trailers of a stream in its last frame.

use super::trailers::{Late, Trailers};
use bytes::Bytes;
use connectrpc::ConnectRpcBody;
use http_body::{Body, Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// What hyper sends.
pub(super) struct Reply {
    body: Source,
    trailers: Option<Arc<Trailers>>,
    /// Trailers that are to go into the last frame.
    late: Option<Late>,
    /// A frame that may be the last one.
    held: Option<Frame<Bytes>>,
}

/// Who makes the frames.
enum Source {
    Connect(ConnectRpcBody),
    Own(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

impl Reply {
    /// A body; streams come with the cell for their trailers.
    pub(super) fn new(body: ConnectRpcBody, trailers: Option<Arc<Trailers>>) -> Reply {
        Reply { body: Source::Connect(body), trailers, late: None, held: None }
    }

    /// A body that brings its trailers itself.
    pub(super) fn own(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Reply {
        Reply { body: Source::Own(Box::pin(body)), trailers: None, late: None, held: None }
    }

    /// Puts the trailers where the dialect has them.
    fn finish(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let Some(late) = self.late.take() else { return frame };
        match frame.into_trailers() {
            Ok(mut trailers) => {
                late.add_to(&mut trailers);
                Frame::trailers(trailers)
            }
            Err(frame) => match frame.into_data() {
                Ok(data) => Frame::data(late.written_into(&data)),
                Err(frame) => frame,
            },
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let body = match &mut this.body {
            Source::Connect(body) => body,
            Source::Own(body) => return body.as_mut().poll_frame(cx),
        };
        loop {
            let frame = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => {
                    let held = this.held.take();
                    return Poll::Ready(held.map(|frame| Ok(this.finish(frame))));
                }
                // All frames are there once the stream has ended; else the held one is not the last.
                Poll::Pending => {
                    return this.held.take().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))));
                }
            };
            if this.late.is_none() {
                this.late = this.trailers.as_ref().and_then(|trailers| trailers.take());
            }
            // The stream ended with trailers: what follows are at most a rest of data and the last frame.
            if this.late.is_none() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if frame.is_trailers() {
                let before = this.held.take();
                let last = this.finish(frame);
                let Some(before) = before else { return Poll::Ready(Some(Ok(last))) };
                this.held = Some(last);
                return Poll::Ready(Some(Ok(before)));
            }
            if let Some(before) = this.held.replace(frame) {
                return Poll::Ready(Some(Ok(before)));
            }
        }
    }

    /// With the size of a single message known, HTTP/1.1 sends its length instead of chunks.
    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Connect(ConnectRpcBody::Full(body)) => body.is_end_stream(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Connect(ConnectRpcBody::Full(body)) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}
