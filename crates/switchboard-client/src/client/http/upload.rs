//! The body of a request: one message, or the messages of a stream as they are sent.

use super::{envelope, settings::Terms};
use bytes::Bytes;
use h2::SendStream;
use http_body::{Body, Frame, SizeHint};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use switchboard_core::{Result, queue::Queue};
use switchboard_net::http_fields::grpc_web_text;
use switchboard_wire::Status;

/// The body of a request.
pub(super) enum Upload {
    Many(Requests),
    Nothing,
    One(Bytes),
}

/// The messages of a stream, each in its envelope.
pub(super) struct Requests {
    queue: Arc<Queue>,
    terms: Terms,
}

impl Requests {
    pub(super) fn new(queue: Arc<Queue>, terms: Terms) -> Requests {
        Requests { queue, terms }
    }

    /// Returns the next message, `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let message = ready!(self.queue.poll_pop(cx));
        Poll::Ready(message.map(|message| wrap(&message?.bytes, &self.terms)))
    }
}

/// Wraps a message in its envelope, compressed and in base64 if the call requires it.
pub(super) fn wrap(message: &Bytes, terms: &Terms) -> Result<Bytes> {
    let wrapped = match terms.compression {
        None => envelope::wrap(0, message),
        Some(compression) => envelope::wrap(envelope::COMPRESSED, &compression.compress(message)?),
    }?;
    Ok(if terms.text { grpc_web_text::encode(&wrapped) } else { wrapped })
}

/// For HTTP/1.1, which polls the body itself.
impl Body for Upload {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        match &mut *self {
            Upload::Many(requests) => {
                requests.poll_next(cx).map(|message| message.map(|message| message.map(Frame::data)))
            }
            Upload::Nothing => Poll::Ready(None),
            Upload::One(_) => {
                let Upload::One(body) = std::mem::replace(&mut *self, Upload::Nothing) else {
                    unreachable!("matched above")
                };
                Poll::Ready(Some(Ok(Frame::data(body))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Upload::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Many(_) => SizeHint::default(),
            Upload::Nothing => SizeHint::with_exact(0),
            Upload::One(body) => SizeHint::with_exact(body.len() as u64),
        }
    }
}

/// Sends the messages of a stream on HTTP/2, within the server's window.
pub(super) struct Uploader {
    pub(super) stream: SendStream<Bytes>,
    pub(super) requests: Requests,
}

impl Uploader {
    /// Completes with the stream's requests, or when the server accepts no more; the response has the reason.
    ///
    /// # Errors
    /// A message that cannot be sent; the stream is then reset.
    pub(super) async fn run(mut self) -> Result<()> {
        while let Some(message) = poll_fn(|cx| self.requests.poll_next(cx)).await {
            let mut message = message?;
            while !message.is_empty() {
                self.stream.reserve_capacity(message.len());
                let Some(Ok(room)) = poll_fn(|cx| self.poll_room(cx)).await else { return Ok(()) };
                let part = message.split_to(room.min(message.len()));
                if self.stream.send_data(part, false).is_err() {
                    return Ok(());
                }
            }
        }
        // An error means that the server has ended the call.
        let _ = self.stream.send_data(Bytes::new(), true);
        Ok(())
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<usize, h2::Error>>> {
        match self.stream.poll_reset(cx) {
            Poll::Ready(Ok(reason)) => Poll::Ready(Some(Err(reason.into()))),
            Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
            Poll::Pending => self.stream.poll_capacity(cx),
        }
    }
}
