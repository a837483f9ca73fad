//! The body of a reply: `connectrpc`'s body with the trailers of a stream in its last frame, a refusal for message size
//! in this crate's wording, and base64 if the caller wants that.

use super::{
    connection_memory::{CHANGE, ConnectionMemory},
    convert::OWN_TEXT,
    envelopes::ENVELOPE,
    field_values,
    status_text::{GRPC_STATUS_DETAILS, reword, reword_frame},
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
use switchboard_net::http_fields::grpc_web_text;

pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The reply body that hyper sends.
pub(super) struct Reply {
    body: Source,
    trailers: Option<Arc<Trailers>>,
    /// Trailers for the last frame.
    late: Option<Late>,
    /// A frame that may be the last one.
    held: Option<Frame<Bytes>>,
    /// No frame was sent yet. Only the first frame can be a refusal by `connectrpc`.
    is_first: bool,
    is_text: bool,
    /// Counts the pieces of the body as held memory.
    connection_memory: Option<Arc<ConnectionMemory>>,
    /// Bytes of pieces that are not counted yet; they count together with the next counted piece.
    uncounted: usize,
    /// The next frame: the message whose envelope was sent before.
    message: Option<Frame<Bytes>>,
}

/// The source of the frames.
enum Source {
    Connect(ConnectRpcBody),
    Own(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

impl Reply {
    /// Creates a body of these bytes.
    pub(super) fn whole(body: Bytes) -> Reply {
        Reply::from(Source::Connect(ConnectRpcBody::Full(Full::new(body))))
    }

    /// Creates a body that contains its trailers itself.
    pub(super) fn own(body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Reply {
        Reply::from(Source::Own(Box::pin(body)))
    }

    /// Converts a response; streams come with the cell for their trailers. With `is_text` the body is encoded as
    /// base64.
    pub(super) fn of(
        mut response: Response<ConnectRpcBody>,
        trailers: Option<Arc<Trailers>>,
        is_text: bool,
    ) -> Response<Reply> {
        let is_own = response.headers_mut().remove(OWN_TEXT).is_some();
        if response.status() == StatusCode::TOO_MANY_REQUESTS && !is_own {
            reword_whole(response.body_mut());
        }
        // If there is no message, `connectrpc` puts the gRPC status in the head, and again in the trailers.
        let failed = response.headers_mut().remove(GRPC_STATUS).is_some();
        if failed {
            response.headers_mut().remove(GRPC_MESSAGE);
        }
        // Metadata that a streaming handler set for the head counts as sent.
        let has_head = trailers.as_ref().is_some_and(|trailers| trailers.has_head());
        let message = if failed && !has_head { end_in_head(&mut response, is_own) } else { None };
        response.map(|body| Reply {
            trailers,
            is_first: !is_own,
            is_text,
            message,
            ..Reply::from(Source::Connect(body))
        })
    }

    /// Counts the pieces of the body as held memory from now on.
    pub(super) fn count_for(&mut self, connection_memory: Arc<ConnectionMemory>) {
        // hyper may queue a complete body behind other replies.
        if let Source::Connect(ConnectRpcBody::Full(full)) = &mut self.body
            && full.size_hint().lower() >= CHANGE as u64
            && let Some(data) = taken(full)
        {
            *full = connection_memory.counted(data, 0).into();
        }
        self.connection_memory = Some(connection_memory);
    }

    /// Puts the trailers where the protocol expects them.
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

/// Moves the trailers of a failure into its head, which then ends the stream: gRPC clients consider a call with a
/// separate head as committed and do not retry it. Returns a frame that does not contain trailers.
fn end_in_head(response: &mut Response<ConnectRpcBody>, is_own: bool) -> Option<Frame<Bytes>> {
    let cx = &mut Context::from_waker(Waker::noop());
    // The body is ready without waiting.
    let Poll::Ready(Some(Ok(frame))) = Pin::new(response.body_mut()).poll_frame(cx) else { return None };
    let mut trailers = match frame.into_trailers() {
        Ok(trailers) => trailers,
        Err(frame) => return Some(frame),
    };
    if !is_own {
        reword_trailers(&mut trailers);
    }
    let head = response.headers_mut();
    for (name, value) in &trailers {
        head.append(name, value.clone());
    }
    *response.body_mut() = ConnectRpcBody::Full(Full::default());
    None
}

/// Replaces the text of a body that is one piece, before its length is sent.
fn reword_whole(body: &mut ConnectRpcBody) {
    let ConnectRpcBody::Full(full) = body else { return };
    if let Some(data) = taken(full) {
        *full = reword(&data).map_or(data, Bytes::from).into();
    }
}

/// Takes the bytes of the body, if there are any.
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
            connection_memory: None,
            uncounted: 0,
            message: None,
        }
    }
}

/// Replaces the text of the first frame if it refuses a message for its size; `connectrpc` sends nothing before that.
fn reword_first(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_data() {
        // The last frame of gRPC-Web and of Connect streams.
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
        // A refusal has no details; `connectrpc` repeats the text there.
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
        // hyper holds one piece until its peer has room, and takes no second one. A large message follows its envelope
        // and is in memory as well: it is counted now.
        let envelope = if this.is_text { ENVELOPE.div_ceil(3) * 4 } else { ENVELOPE };
        if frame.data_ref().is_some_and(|data| data.len() == envelope)
            && let Poll::Ready(message) = this.poll_piece(cx)
        {
            this.message = message.map(|message| message.map_data(|data| this.counted(data)));
        }
        Poll::Ready(Some(Ok(frame.map_data(|data| this.counted(data)))))
    }

    /// The size of a single message is known, so HTTP/1.1 sends a content length instead of chunks.
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
    /// Counts a piece from now on; small ones count with the next counted piece.
    fn counted(&mut self, data: Bytes) -> Bytes {
        let is_counted = !self.is_text && matches!(self.body, Source::Connect(ConnectRpcBody::Full(_)));
        let Some(connection_memory) = self.connection_memory.as_ref().filter(|_| !is_counted) else {
            return data;
        };
        if self.uncounted + data.len() < CHANGE {
            self.uncounted += data.len();
            return data;
        }
        connection_memory.counted(data, std::mem::take(&mut self.uncounted))
    }

    /// Returns the next frame in the form in which it is sent.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Source::Own(body) = &mut self.body {
            return body.as_mut().poll_frame(cx).map(|frame| frame.map(|Ok(frame)| frame));
        }
        let Some(Ok(mut frame)) = ready!(self.poll_complete(cx)) else { return Poll::Ready(None) };
        if let Some(trailers) = frame.trailers_mut() {
            field_values::trim(trailers);
        }
        // The text of a handler's error is not changed.
        let is_handlers = self.trailers.as_ref().is_some_and(|trailers| trailers.has_begun());
        if std::mem::take(&mut self.is_first) && !is_handlers {
            frame = reword_first(frame);
        }
        if self.is_text {
            frame = frame.map_data(|data| grpc_web_text::encode(&data));
        }
        Poll::Ready(Some(frame))
    }

    /// Returns the next frame, with the trailers in the last one.
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
                // After the end of the stream all frames are available; otherwise the held one is not the last.
                Poll::Pending => {
                    return this.held.take().map_or(Poll::Pending, |frame| Poll::Ready(Some(Ok(frame))));
                }
            };
            if this.late.is_none() {
                this.late = this.trailers.as_ref().and_then(|trailers| trailers.take());
            }
            // The stream ended with trailers: at most the rest of the data and the last frame follow.
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
