//! A call with streams: a task moves messages between the caller's queues and the connection.

use super::{
    codes,
    link::{Exchange, InFlight},
    replies::Replies,
    settings::Terms,
    upload::Uploader,
};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};
use switchboard_core::{Result, queue::Queue};
use switchboard_wire::{Code, Metadata, Status};

/// A call that was sent, in its task.
pub(super) struct StreamCall {
    pub(super) terms: Terms,
    pub(super) wanted: &'static str,
    pub(super) link: InFlight,
    pub(super) exchange: Exchange,
}

impl StreamCall {
    /// Runs the call until the server ends it, its deadline passes, or the reader is dropped.
    pub(super) async fn run(self, mut queues: Queues, deadline: Option<Instant>) {
        let inbound = queues.inbound.clone();
        queues.end = Some(super::within(deadline, super::NO_ANSWER, pin!(self.run_exchange(&inbound))).await);
    }

    async fn run_exchange(mut self, inbound: &Queue) -> Result<Metadata> {
        let mut sending = pin!(self.exchange.uploader().map(Uploader::run));
        let mut receiving = pin!(self.receive(inbound));
        poll_fn(|cx| {
            inbound.watch_consumer(cx.waker());
            if inbound.is_closed() {
                return Poll::Ready(Err(Status::canceled("the caller dropped the stream")));
            }
            if let Some(uploading) = sending.as_mut().as_pin_mut()
                && let Poll::Ready(sent) = uploading.poll(cx)
            {
                sending.set(None);
                sent?;
            }
            receiving.as_mut().poll(cx)
        })
        .await
    }

    async fn receive(self, inbound: &Queue) -> Result<Metadata> {
        let StreamCall { terms, wanted, link, exchange } = self;
        let link = link.link();
        let response = exchange.response().await.map_err(|broken| link.status(&broken))?;
        let (head, mut replies) = Replies::new(terms, wanted, link, response)?;
        inbound.set_head(head);
        while let Some(message) = replies.next().await? {
            let mut message = Some(message.into());
            poll_fn(|cx| inbound.poll_push(cx, &mut message)).await?;
        }
        Ok(replies.end())
    }
}

/// The queues of the caller; dropping them ends both with the status of the call, also when its task never ran.
pub(super) struct Queues {
    inbound: Arc<Queue>,
    outbound: Option<Arc<Queue>>,
    end: Option<Result<Metadata>>,
}

impl Queues {
    pub(super) fn new(inbound: Arc<Queue>, outbound: Option<Arc<Queue>>) -> Queues {
        Queues { inbound, outbound, end: None }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| {
            Err(codes::from_path(Code::Unavailable, "the runtime that drove the call has ended".into()))
        });
        if let Some(outbound) = &self.outbound {
            let why = end.as_ref().err().cloned();
            outbound.close(why.unwrap_or_else(|| Status::canceled("the call has ended")));
        }
        self.inbound.finish(end);
    }
}
