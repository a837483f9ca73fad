//! The messages of a streamed reply, produced while hyper sends them.

use super::{
    call_guard::CallGuard, connection_memory::Pause, convert, requests::Requests, trailers::Trailers,
};
use bytes::Bytes;
use connectrpc::{ConnectError, EncodedBody, EncodedStream, Protocol, Response};
use futures_core::Stream;
use std::{
    cell::Cell,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{Result, compression::Message, queue::Items};
use switchboard_wire::{Code, Metadata, Status};

/// Longest time for which a head without metadata waits for the first message or for metadata; callers may wait for
/// the head.
const HEAD_WAIT: Duration = Duration::from_millis(100);

/// A stream of replies, and the state that its call needs until it ends.
pub(super) struct Replies {
    items: Pin<Box<dyn Items>>,
    requests: Option<Requests>,
    call_guard: CallGuard,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
    first: Option<Option<Bytes>>,
    ended: bool,
    /// Set while the stream waits for memory.
    pause: Pause,
}

impl Replies {
    pub(super) fn new(
        items: Pin<Box<dyn Items>>,
        requests: Option<Requests>,
        call_guard: CallGuard,
        trailers: Option<Arc<Trailers>>,
        protocol: Protocol,
    ) -> Replies {
        if let Some(trailers) = &trailers {
            trailers.begin();
        }
        Replies { items, requests, call_guard, trailers, protocol, first: None, ended: false, pause: None }
    }

    /// Waits until the head can be sent; see the module [`http`](super).
    ///
    /// # Errors
    /// The handler's error, if it fails before that; it includes head and trailers.
    pub(super) async fn start(mut self) -> Result<Response<EncodedStream>, ConnectError> {
        let mut head = Metadata::new();
        let mut wait = pin!(None);
        let first = poll_fn(|cx| {
            if let Poll::Ready(item) = self.poll_item(cx) {
                head = self.items.head();
                return Poll::Ready(Some(item));
            }
            self.call_guard.park(cx.waker());
            if let Some(early) = self.items.early_head() {
                head = early;
                return Poll::Ready(None);
            }
            if wait.is_none() {
                wait.set(Some(tokio::time::sleep(HEAD_WAIT)));
            }
            wait.as_mut().as_pin_mut().map_or(Poll::Ready(()), |wait| wait.poll(cx)).map(|()| None)
        })
        .await;
        match first {
            None => {}
            Some(Some(Err(status))) => {
                if let Some(trailers) = self.trailers.as_ref().filter(|_| !head.is_empty()) {
                    trailers.keep_head();
                }
                return Err(self.fail(&status, &head));
            }
            Some(Some(Ok(message))) => self.first = Some(Some(message)),
            Some(None) => {
                self.finish();
                self.first = Some(None);
            }
        }
        let mut response = Response::new(Box::pin(self) as EncodedStream);
        response.headers = convert::headers(&head);
        Ok(response)
    }

    /// Polls the handler for its next message; a panic ends only this call.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let Some(over) = self.call_guard.over(cx) {
            return Poll::Ready(Some(Err(over)));
        }
        if let Some(requests) = &mut self.requests {
            requests.poll(cx, &mut self.call_guard);
        }
        if self.call_guard.connection_memory().poll_reply(cx, &mut self.pause).is_pending() {
            self.report_held();
            return Poll::Pending;
        }
        let items = self.items.as_mut();
        let poll = || self.call_guard.poll(|| items.poll_next(cx));
        let item = catch_unwind(AssertUnwindSafe(poll))
            .unwrap_or_else(|_| Poll::Ready(Some(Err(Status::internal("handler panicked")))));
        self.report_held();
        if let Poll::Ready(Some(Ok(message))) = &item {
            self.call_guard.sent(message.bytes.len());
        }
        // The handler does not compress: the protocol does.
        item.map_ok(|message| message.bytes)
    }

    /// Reports the memory that its messages hold.
    fn report_held(&mut self) {
        let requests = self.requests.as_ref().map_or(0, Requests::queued_bytes);
        self.call_guard.streams(requests, self.items.queued_bytes());
    }

    fn fail(&mut self, status: &Status, head: &Metadata) -> ConnectError {
        self.ended = true;
        self.call_guard.end(status.code());
        convert::error(status, head, &self.items.trailers())
    }

    fn finish(&mut self) {
        self.ended = true;
        self.call_guard.end(Code::Ok);
        // Metadata that was set too late for the head is sent here.
        let trailers = self.items.late_head_and_trailers();
        if let Some(cell) = self.trailers.as_ref().filter(|_| !trailers.is_empty()) {
            cell.set(convert::headers(&trailers), self.protocol);
        }
    }
}

impl Stream for Replies {
    type Item = Result<EncodedBody, ConnectError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(first.map(|message| Ok(message.into())));
        }
        if this.ended {
            return Poll::Ready(None);
        }
        let poll = this.poll_item(cx);
        if poll.is_pending() {
            this.call_guard.park(cx.waker());
        }
        Poll::Ready(match ready!(poll) {
            Some(Ok(message)) => Some(Ok(message.into())),
            Some(Err(status)) => {
                let head = this.items.head();
                let status = match head.is_empty() {
                    true => status,
                    false => {
                        let mut status = status;
                        status.metadata_mut().extend(head);
                        status
                    }
                };
                Some(Err(this.fail(&status, &Metadata::new())))
            }
            None => {
                this.finish();
                None
            }
        })
    }
}

/// A reply of one message, as a stream of one.
pub(super) struct Only {
    message: Option<Bytes>,
    head: Cell<Metadata>,
    trailers: Cell<Metadata>,
}

impl Only {
    pub(super) fn of(message: Bytes, head: Metadata, trailers: Metadata) -> Pin<Box<dyn Items>> {
        Box::pin(Only { message: Some(message), head: head.into(), trailers: trailers.into() })
    }
}

impl Items for Only {
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        Poll::Ready(self.message.take().map(|message| Ok(message.into())))
    }

    fn queued_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, Bytes::len)
    }

    fn head(&self) -> Metadata {
        self.head.take()
    }

    fn trailers(&self) -> Metadata {
        self.trailers.take()
    }
}
