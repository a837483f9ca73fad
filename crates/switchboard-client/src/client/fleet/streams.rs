//! Calls with streams, and one-way calls, of fleets: retried on another endpoint while nothing was sent or received.

use super::{
    super::{Begin, OnewayCall, streaming::StartedStream},
    EndpointPermit, Shared, clock,
    retry_state::RetryState,
};
use bytes::Bytes;
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
use switchboard_core::{Result, queue::Queue, stream::Follow};
use switchboard_wire::{Code, Status};

/// Sends a one-way call; completes once it is sent.
pub(super) async fn oneway(shared: Arc<Shared>, begin: Begin, request: Bytes) -> Result<()> {
    let mut retry_state = RetryState::new(begin.deadline(switchboard_core::clock::now()));
    let mut permit = shared.next(&begin, &request, &mut retry_state).await?;
    loop {
        retry_state.sent += 1;
        let sent = async {
            permit.member().connected(retry_state.deadline).await?;
            let target = permit.member().link.channel.target();
            OnewayCall::new(Begin { target, ..begin.again(&retry_state) }, Ok(request.clone())).await
        };
        let sent = sent.await;
        let member = permit.ended(&sent);
        match sent {
            Ok(()) => return Ok(()),
            Err(status) => {
                permit = shared.next_after(&begin, &request, &mut retry_state, member, status).await?;
            }
        }
    }
}

/// Sends a call with its queues.
pub(super) async fn stream(
    shared: Arc<Shared>,
    begin: Begin,
    message: Option<Bytes>,
    outbound: Option<Arc<Queue>>,
) -> Result<StartedStream> {
    let mut retry_state = RetryState::new(begin.deadline(switchboard_core::clock::now()));
    let request = message.clone().unwrap_or_default();
    let permit = shared.next(&begin, &request, &mut retry_state).await?;
    let call = Call { shared, begin, message, outbound, retry_state };
    let (started, follower) = call.open(permit).await?;
    Ok(StartedStream { follow: Some(Box::new(follower)), ..started })
}

/// A call with streams that may be retried.
struct Call {
    shared: Arc<Shared>,
    begin: Begin,
    /// The only request; when `None`, the requests are in `outbound` and cannot be read again.
    message: Option<Bytes>,
    outbound: Option<Arc<Queue>>,
    retry_state: RetryState,
}

impl Call {
    async fn open(mut self, mut permit: EndpointPermit) -> Result<(StartedStream, Follower)> {
        loop {
            self.retry_state.sent += 1;
            let sent = async {
                if !permit.member().link.channel.0.is_ready() {
                    permit.member().connected(self.retry_state.deadline).await?;
                    permit.sent();
                }
                let target = permit.member().link.channel.target();
                let begin = Begin { target, ..self.begin.again(&self.retry_state) };
                begin.stream(self.message.clone(), self.outbound.clone()).await
            };
            match sent.await {
                Ok(started) => {
                    let follower =
                        Follower { permit: Some(permit), first: None, call: Some(self), again: None };
                    return Ok((started, follower));
                }
                Err(status) => permit = self.next_after(permit, status).await?,
            }
        }
    }

    async fn next_after(&mut self, permit: EndpointPermit, status: Status) -> Result<EndpointPermit> {
        let member = permit.failed(&status);
        let request = self.message.clone().unwrap_or_default();
        self.shared.next_after(&self.begin, &request, &mut self.retry_state, member, status).await
    }
}

type Again = Pin<Box<dyn Future<Output = Result<(StartedStream, Follower)>> + Send>>;

/// Counts a stream at its endpoint for its duration, and restarts it while nothing was received.
struct Follower {
    permit: Option<EndpointPermit>,
    /// Time until the first message: the duration of a whole stream does not depend on the speed of its server.
    first: Option<Duration>,
    /// Taken when the call can no longer be retried.
    call: Option<Call>,
    /// The next attempt. Only accessed through `&mut`; the lock makes the type `Sync`.
    again: Option<Mutex<Again>>,
}

impl Follower {
    fn end(&mut self, code: Code) {
        if let Some(permit) = self.permit.take() {
            let took = self.first.unwrap_or_else(|| match code {
                Code::Canceled => Duration::ZERO,
                _ => Duration::from_nanos(clock::now().saturating_sub(permit.begun_ns())),
            });
            permit.close(took, code);
        }
    }
}

impl Follow for Follower {
    fn came(&mut self) {
        if let (None, Some(permit)) = (self.first, &self.permit) {
            self.first = Some(Duration::from_nanos(clock::now().saturating_sub(permit.begun_ns())));
            self.call = None;
        }
    }

    fn ended(&mut self) {
        self.end(Code::Ok);
    }

    fn failed(&mut self, status: &Status) -> bool {
        let Some(permit) = self.permit.take() else { return false };
        match self.call.take().filter(|call| call.message.is_some()) {
            Some(mut call) => {
                let status = status.clone();
                self.again = Some(Mutex::new(Box::pin(async move {
                    let permit = call.next_after(permit, status).await?;
                    call.open(permit).await
                })));
                true
            }
            None => {
                permit.failed(status);
                false
            }
        }
    }

    fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<Queue>>>> {
        let Some(again) = &mut self.again else { return Poll::Ready(None) };
        let again = again.get_mut().unwrap_or_else(PoisonError::into_inner);
        match ready!(again.as_mut().poll(cx)) {
            Ok((started, follower)) => {
                *self = follower;
                Poll::Ready(Some(Ok(started.inbound)))
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
