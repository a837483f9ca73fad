//! A stream of requests: a body with one JSON value per line.

use super::super::metered_body::{Broken, MeteredBody};
use bytes::{Buf, Bytes, BytesMut};
use connectrpc::{ConnectError, dispatcher::RequestStream};
use futures_core::Stream;
use http_body::Body as _;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Reads the lines of `body` as messages, each of at most `max` bytes.
pub(super) fn requests(body: MeteredBody, max: usize) -> RequestStream {
    Box::pin(Lines { body, buffer: BytesMut::new(), searched: 0, max, ended: false })
}

struct Lines {
    body: MeteredBody,
    buffer: BytesMut,
    /// Bytes of the buffer in which there is no end of a line.
    searched: usize,
    max: usize,
    ended: bool,
}

impl Lines {
    /// Returns the next line that is not blank; at the end of the body, the rest counts as a line.
    fn line(&mut self) -> Option<Result<Bytes, ConnectError>> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let line = match end {
                Some(end) => {
                    let line = self.buffer.split_to(self.searched + end).freeze();
                    self.buffer.advance(1);
                    line
                }
                None if self.ended => std::mem::take(&mut self.buffer).freeze(),
                None => {
                    self.searched = self.buffer.len();
                    return (self.searched > self.max).then(|| Err(self.too_long()));
                }
            };
            self.searched = 0;
            if line.len() > self.max {
                return Some(Err(self.too_long()));
            }
            if !line.trim_ascii().is_empty() {
                return Some(
                    super::json::check_depth(&line)
                        .map(|()| line)
                        .map_err(|status| ConnectError::invalid_argument(status.message())),
                );
            }
            if self.ended && self.buffer.is_empty() {
                return None;
            }
        }
    }

    fn too_long(&self) -> ConnectError {
        let max = self.max;
        ConnectError::resource_exhausted(format!(
            "a line is over the limit of {max} bytes (message_bytes_max of the receiver)"
        ))
    }
}

impl Stream for Lines {
    type Item = Result<Bytes, ConnectError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let line = this.line();
            this.body.keeps(this.buffer.len());
            if let Some(line) = line {
                if line.is_err() {
                    (this.ended, this.buffer) = (true, BytesMut::new());
                }
                return Poll::Ready(Some(line));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        this.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    (this.ended, this.buffer) = (true, BytesMut::new());
                    return Poll::Ready(Some(Err(match error {
                        Broken::Refused(status) => ConnectError::resource_exhausted(status.message()),
                        Broken::Http(error) => {
                            ConnectError::canceled(format!("the body ended early: {error}"))
                        }
                    })));
                }
                None => this.ended = true,
            }
        }
    }
}
