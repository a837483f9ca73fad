//! The messages of a streamed reply, made while hyper sends them.

use super::{convert, holding::Pause, requests::Requests, ticket::Ticket, trailers::Trailers};
use crate::{Code, Metadata, Result, Status, compression::Message, context, stream::Items};
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

/// How long a head without metadata waits for the first message or for metadata; callers may wait for it.
const HEAD_WAIT: Duration = Duration::from_millis(100);

/// A stream of replies and all that its call needs to its end.
pub(super) struct Replies {
    items: Pin<Box<dyn Items>>,
    requests: Option<Requests>,
    ticket: Ticket,
    trailers: Option<Arc<Trailers>>,
    protocol: Protocol,
    first: Option<Option<Bytes>>,
    ended: bool,
    /// While it waits for room.
    pause: Pause,
}

impl Replies {
    pub(super) fn new(
        items: Pin<Box<dyn Items>>,
        requests: Option<Requests>,
        ticket: Ticket,
        trailers: Option<Arc<Trailers>>,
        protocol: Protocol,
    ) -> Replies {
        Replies { items, requests, ticket, trailers, protocol, first: None, ended: false, pause: None }
    }

    /// Waits until the head can be sent, see the module [`http`](super).
    ///
    /// # Errors
    /// The handler's, if it fails before that; head and trailers are in it.
    pub(super) async fn start(mut self) -> Result<Response<EncodedStream>, ConnectError> {
        let mut head = Metadata::new();
        let mut wait = pin!(None);
        let first = poll_fn(|cx| {
            if let Poll::Ready(item) = self.poll_item(cx) {
                head = self.items.head();
                return Poll::Ready(Some(item));
            }
            self.ticket.park(cx.waker());
            head = self.items.head();
            if !head.is_empty() {
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
            Some(Some(Err(status))) => return Err(self.fail(&status, &head)),
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

    /// The next message of the handler, whose panic ends only this call.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let Some(over) = self.ticket.over(cx) {
            return Poll::Ready(Some(Err(over)));
        }
        if let Some(requests) = &mut self.requests {
            requests.poll(cx, &mut self.ticket);
        }
        if self.ticket.holding().poll_reply(cx, &mut self.pause).is_pending() {
            self.weigh();
            return Poll::Pending;
        }
        let items = self.items.as_mut();
        let poll = || context::scope(self.ticket.deadline(), self.ticket.trace(), || items.poll_next(cx));
        let item = catch_unwind(AssertUnwindSafe(poll))
            .unwrap_or_else(|_| Poll::Ready(Some(Err(Status::internal("handler panicked")))));
        self.weigh();
        if let Poll::Ready(Some(Ok(message))) = &item {
            self.ticket.sent(message.bytes.len());
        }
        // Nobody compresses here: the dialect does.
        item.map_ok(|message| message.bytes)
    }

    /// Tells what is held of its messages.
    fn weigh(&mut self) {
        let requests = self.requests.as_ref().map_or(0, Requests::held);
        self.ticket.streams(requests, self.items.held());
    }

    fn fail(&mut self, status: &Status, head: &Metadata) -> ConnectError {
        self.ended = true;
        self.ticket.end(status.code());
        convert::error(status, head, &self.items.trailers())
    }

    fn finish(&mut self) {
        self.ended = true;
        self.ticket.end(Code::Ok);
        // Metadata that came too late for the head goes here.
        let mut trailers = self.items.head();
        trailers.extend(self.items.trailers());
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
            this.ticket.park(cx.waker());
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

/// The only message of a reply as a stream of one.
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

    fn held(&self) -> usize {
        self.message.as_ref().map_or(0, Bytes::len)
    }

    fn head(&self) -> Metadata {
        self.head.take()
    }

    fn trailers(&self) -> Metadata {
        self.trailers.take()
    }
}
