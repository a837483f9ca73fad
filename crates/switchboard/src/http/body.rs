//! The body of a reply: `connectrpc`'s, with the trailers of a stream in its last frame, our words where a message
//! was refused for its size, and in base64 where the caller wants that.

use super::{
    connection::ENVELOPE,
    holding::{CHANGE, Holding},
    reword::{GRPC_STATUS_DETAILS, reword, reword_frame},
    text,
    trailers::{Late, Trailers},
};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use connectrpc::ConnectRpcBody;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What hyper sends.
pub(super) struct Reply {
    body: Source,
    trailers: Option<Arc<Trailers>>,
    /// Trailers that are to go into the last frame.
    late: Option<Late>,
    /// A frame that may be the last one.
    held: Option<Frame<Bytes>>,
    /// Nothing was sent yet. Only what is sent first can be a refusal by `connectrpc`.
    is_first: bool,
    is_text: bool,
    /// Where its pieces are counted.
    holding: Option<Arc<Holding>>,
    /// Bytes of pieces before the next one that is counted.
    uncounted: usize,
    /// The message whose envelope went before.
    message: Option<Frame<Bytes>>,
}

/// Who makes the frames.
enum Source {
    Connect(ConnectRpcBody),
    Own(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

impl Reply {
    /// A body of these bytes.
    pub(super) fn whole(body: Bytes) -> Reply {
        Reply::from(Source::Connect(ConnectRpcBody::Full(Full::new(body))))
    }

    /// A body that brings its trailers itself.
    pub(super) fn own(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Reply {
        Reply::from(Source::Own(Box::pin(body)))
    }

    /// A response; streams come with the cell for their trailers. With `is_text` the body will be base64.
    pub(super) fn of(
        mut response: Response<ConnectRpcBody>,
        trailers: Option<Arc<Trailers>>,
        is_text: bool,
    ) -> Response<Reply> {
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            reword_whole(response.body_mut());
        }
        response.map(|body| Reply { trailers, is_first: true, is_text, ..Reply::from(Source::Connect(body)) })
    }

    /// Counts its pieces from now on.
    pub(super) fn count_for(&mut self, holding: Arc<Holding>) {
        // hyper may let what is whole wait behind other replies.
        if let Source::Connect(ConnectRpcBody::Full(full)) = &mut self.body
            && full.size_hint().lower() >= CHANGE as u64
            && let Some(data) = taken(full)
        {
            *full = holding.counted(data, 0).into();
        }
        self.holding = Some(holding);
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

/// A body that is one piece, before its size is told.
fn reword_whole(body: &mut ConnectRpcBody) {
    let ConnectRpcBody::Full(full) = body else { return };
    if let Some(data) = taken(full) {
        *full = reword(&data).map_or(data, Bytes::from).into();
    }
}

/// What is in it, if anything is.
fn taken(full: &mut Full<Bytes>) -> Option<Bytes> {
    let frame = Pin::new(full).poll_frame(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Ok(frame))) = frame else { return None };
    frame.into_data().ok()
}

impl From<Source> for Reply {
    fn from(body: Source) -> Reply {
        Reply {
            body,
            trailers: None,
            late: None,
            held: None,
            is_first: false,
            is_text: false,
            holding: None,
            uncounted: 0,
            message: None,
        }
    }
}

/// The first frame, if it refuses a message for its size; `connectrpc` sends nothing before that.
fn reword_first(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_data() {
        // The last frame of gRPC-Web and of Connect's streams.
        Ok(data) if matches!(data.first(), Some(0x80 | 2)) => {
            Frame::data(reword_frame(&data).map_or(data, Bytes::from))
        }
        Ok(data) => Frame::data(data),
        Err(frame) => match frame.into_trailers() {
            Ok(mut trailers) => {
                reword_trailers(&mut trailers);
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        },
    }
}

fn reword_trailers(trailers: &mut HeaderMap) {
    if let Some(message) = trailers.get(&GRPC_MESSAGE)
        && let Some(Ok(ours)) = reword(message.as_bytes()).map(HeaderValue::try_from)
    {
        trailers.insert(GRPC_MESSAGE, ours);
        // A refusal has no details; `connectrpc` says its text there a second time.
        trailers.remove(GRPC_STATUS_DETAILS);
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
        if let Some(message) = this.message.take() {
            return Poll::Ready(Some(Ok(message)));
        }
        let Some(frame) = ready!(this.poll_piece(cx)) else { return Poll::Ready(None) };
        // hyper holds a piece until its peer has room, and takes no second one. A large message comes behind its
        // envelope and is there as well: it is counted now.
        let envelope = if this.is_text { ENVELOPE.div_ceil(3) * 4 } else { ENVELOPE };
        if frame.data_ref().is_some_and(|data| data.len() == envelope)
            && let Poll::Ready(message) = this.poll_piece(cx)
        {
            this.message = message.map(|message| message.map_data(|data| this.counted(data)));
        }
        Poll::Ready(Some(Ok(frame.map_data(|data| this.counted(data)))))
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

impl Reply {
    /// A piece, counted from now on; small ones count with the next one that is counted.
    fn counted(&mut self, data: Bytes) -> Bytes {
        let is_counted = !self.is_text && matches!(self.body, Source::Connect(ConnectRpcBody::Full(_)));
        let Some(holding) = self.holding.as_ref().filter(|_| !is_counted) else { return data };
        if self.uncounted + data.len() < CHANGE {
            self.uncounted += data.len();
            return data;
        }
        holding.counted(data, std::mem::take(&mut self.uncounted))
    }

    /// The next frame as it goes out.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Source::Own(body) = &mut self.body {
            return body.as_mut().poll_frame(cx).map(|frame| frame.map(|Ok(frame)| frame));
        }
        let Some(Ok(mut frame)) = ready!(self.poll_complete(cx)) else { return Poll::Ready(None) };
        if std::mem::take(&mut self.is_first) {
            frame = reword_first(frame);
        }
        if self.is_text {
            frame = frame.map_data(|data| text::encode(&data));
        }
        Poll::Ready(Some(frame))
    }

    /// The next frame, with the trailers in the last one.
    fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self;
        let Source::Connect(body) = &mut this.body else { return Poll::Ready(None) };
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
}
