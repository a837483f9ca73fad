//! Calls with streams, and one-way calls, of fleets: another endpoint while nothing was sent or has come.

use super::{
    super::{Begin, OnewayCall, streaming::Begun},
    Shared, Ticket, clock,
    tries::Tries,
};
use crate::{
    Code, Result, Status,
    stream::{Follow, Queue},
};
use bytes::Bytes;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

/// Sends a one-way call; done once it is on its way.
pub(in super::super) async fn oneway(shared: Arc<Shared>, begin: Begin, request: Bytes) -> Result<()> {
    let mut tries = Tries::new(begin.deadline(crate::clock::now()));
    let mut ticket = shared.next(&begin, &request, &mut tries).await?;
    loop {
        tries.sent += 1;
        let sent = async {
            ticket.member().connected(tries.deadline).await?;
            let target = ticket.member().link.channel.target();
            OnewayCall::new(Begin { target, ..begin.again(&tries) }, Ok(request.clone())).await
        };
        let sent = sent.await;
        let member = ticket.ended(&sent);
        match sent {
            Ok(()) => return Ok(()),
            Err(status) => {
                ticket = shared.next_after(&begin, &request, &mut tries, member, status).await?;
            }
        }
    }
}

/// Sends a call with its queues.
pub(in super::super) async fn stream(
    shared: Arc<Shared>,
    begin: Begin,
    message: Option<Bytes>,
    outbound: Option<Arc<Queue>>,
) -> Result<Begun> {
    let mut tries = Tries::new(begin.deadline(crate::clock::now()));
    let request = message.clone().unwrap_or_default();
    let ticket = shared.next(&begin, &request, &mut tries).await?;
    let call = Call { shared, begin, message, outbound, tries };
    let (begun, follower) = call.open(ticket).await?;
    Ok(Begun { follow: Some(Box::new(follower)), ..begun })
}

/// A call with streams, as it can be sent once more.
struct Call {
    shared: Arc<Shared>,
    begin: Begin,
    /// The only request; without it the requests are in `outbound`, and gone once they are read.
    message: Option<Bytes>,
    outbound: Option<Arc<Queue>>,
    tries: Tries,
}

impl Call {
    async fn open(mut self, mut ticket: Ticket) -> Result<(Begun, Follower)> {
        loop {
            self.tries.sent += 1;
            let sent = async {
                if !ticket.member().link.channel.is_ready() {
                    ticket.member().connected(self.tries.deadline).await?;
                    ticket.sent();
                }
                let target = ticket.member().link.channel.target();
                let begin = Begin { target, ..self.begin.again(&self.tries) };
                Box::pin(begin.stream(self.message.clone(), self.outbound.clone())).await
            };
            match sent.await {
                Ok(begun) => {
                    let follower =
                        Follower { ticket: Some(ticket), first: None, call: Some(self), again: None };
                    return Ok((begun, follower));
                }
                Err(status) => ticket = self.next_after(ticket, status).await?,
            }
        }
    }

    async fn next_after(&mut self, ticket: Ticket, status: Status) -> Result<Ticket> {
        let member = ticket.failed(&status);
        let request = self.message.clone().unwrap_or_default();
        self.shared.next_after(&self.begin, &request, &mut self.tries, member, status).await
    }
}

type Again = Pin<Box<dyn Future<Output = Result<(Begun, Follower)>> + Send>>;

/// Counts a stream at its endpoint for as long as it lasts, and begins it anew while nothing has come.
struct Follower {
    ticket: Option<Ticket>,
    /// How long the first message took: what a stream takes in all says nothing of its server.
    first: Option<Duration>,
    /// Taken when there is no way back.
    call: Option<Call>,
    /// The next attempt. Only ever reached by `&mut`; the lock is there to be shared.
    again: Option<Mutex<Again>>,
}

impl Follower {
    fn end(&mut self, code: Code) {
        if let Some(ticket) = self.ticket.take() {
            let took = self.first.unwrap_or_else(|| match code {
                Code::Canceled => Duration::ZERO,
                _ => Duration::from_nanos(clock::now().saturating_sub(ticket.begun_ns())),
            });
            ticket.close(took, code);
        }
    }
}

impl Follow for Follower {
    fn came(&mut self) {
        if let (None, Some(ticket)) = (self.first, &self.ticket) {
            self.first = Some(Duration::from_nanos(clock::now().saturating_sub(ticket.begun_ns())));
            self.call = None;
        }
    }

    fn ended(&mut self) {
        self.end(Code::Ok);
    }

    fn failed(&mut self, status: &Status) -> bool {
        let Some(ticket) = self.ticket.take() else { return false };
        match self.call.take().filter(|call| call.message.is_some()) {
            Some(mut call) => {
                let status = status.clone();
                self.again = Some(Mutex::new(Box::pin(async move {
                    let ticket = call.next_after(ticket, status).await?;
                    call.open(ticket).await
                })));
                true
            }
            None => {
                ticket.failed(status);
                false
            }
        }
    }

    fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<Queue>>>> {
        let Some(again) = &mut self.again else { return Poll::Ready(None) };
        let again = again.get_mut().unwrap_or_else(PoisonError::into_inner);
        match ready!(again.as_mut().poll(cx)) {
            Ok((begun, follower)) => {
                *self = follower;
                Poll::Ready(Some(Ok(begun.inbound)))
            }
            Err(status) => {
                self.again = None;
                Poll::Ready(Some(Err(status)))
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.end(Code::Canceled);
    }
}
