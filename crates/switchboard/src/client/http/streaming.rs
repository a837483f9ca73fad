//! A call with streams: a task moves messages between the caller's queues and the connection.

use super::{
    link::{Exchange, InFlight},
    replies::Replies,
    settings::Terms,
    upload::Uploader,
};
use crate::{Metadata, Result, Status, stream::Queue};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};

/// A call that was sent, and what its caller holds of it.
pub(super) struct Conversation {
    pub(super) terms: Terms,
    pub(super) wanted: &'static str,
    pub(super) link: InFlight,
    pub(super) exchange: Exchange,
    pub(super) inbound: Arc<Queue>,
    pub(super) outbound: Option<Arc<Queue>>,
}

impl Conversation {
    /// Runs the call to its end: the server's, the deadline, or the reader's who has gone.
    pub(super) async fn run(self, deadline: Option<Instant>) {
        let (inbound, outbound) = (self.inbound.clone(), self.outbound.clone());
        let end = super::within(deadline, pin!(self.converse())).await;
        if let Some(outbound) = outbound {
            let why = end.as_ref().err().cloned();
            outbound.close(why.unwrap_or_else(|| Status::canceled("the call has ended")));
        }
        inbound.finish(end);
    }

    async fn converse(mut self) -> Result<Metadata> {
        let inbound = self.inbound.clone();
        let mut sending = pin!(self.exchange.uploader().map(Uploader::run));
        let mut receiving = pin!(self.receive());
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

    async fn receive(self) -> Result<Metadata> {
        let Conversation { terms, wanted, link, exchange, inbound, .. } = self;
        let link = link.link();
        let answer = exchange.answer().await.map_err(|broken| link.status(&broken))?;
        let (head, mut replies) = Replies::new(terms, wanted, link, answer)?;
        inbound.set_head(head);
        while let Some(message) = replies.next().await? {
            let mut message = Some(message);
            poll_fn(|cx| inbound.poll_push(cx, &mut message)).await?;
        }
        Ok(replies.end())
    }
}
