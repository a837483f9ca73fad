//! One call to every endpoint: broadcast, fork, inform.

use super::{
    super::{Begin, Target, UnaryCall, unary, unary::Response},
    EndpointPermit, clock,
    retry_state::RetryState,
};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};
use switchboard_core::{Result, compression::Message, stream::check_reply};
use switchboard_wire::{Metadata, Status};

/// Result of one endpoint for a call that went to all.
#[derive(Debug)]
#[non_exhaustive]
pub struct Receipt<R> {
    /// The address of the endpoint.
    pub address: String,
    /// Its reply or failure.
    pub outcome: Result<Response<R>>,
}

type Sent<R> = Pin<Box<dyn Future<Output = Receipt<R>> + Send>>;

/// Calls that go at the same time to every endpoint that takes calls; on a channel to one address, to that. Each
/// endpoint gets the call once. Dropping the future ends the call on all endpoints.
impl<R: 'static> UnaryCall<R> {
    /// Sends the call to every endpoint; all must succeed. Waits for all of them in any case.
    ///
    /// # Errors
    /// The failure of an endpoint, with the number and addresses of those that failed.
    pub async fn broadcast(self) -> Result<Vec<Response<R>>> {
        let receipts = self.inform().await?;
        let count = receipts.len();
        let (mut responses, mut failed) = (Vec::with_capacity(count), Vec::new());
        for Receipt { address, outcome } in receipts {
            match outcome {
                Ok(response) => responses.push(response),
                Err(status) => failed.push((address, status)),
            }
        }
        if failed.is_empty() { Ok(responses) } else { Err(all_failures(failed, count)) }
    }

    /// Sends the call to every endpoint; returns the first success and cancels the other calls.
    ///
    /// # Errors
    /// The last failure, when all have failed.
    pub async fn fork(self) -> Result<Response<R>> {
        let mut sent = self.spread().await?;
        let count = sent.len();
        let mut failed = Vec::new();
        while let Some(Receipt { address, outcome }) = first(&mut sent).await {
            match outcome {
                Ok(response) => return Ok(response),
                Err(status) => failed.push((address, status)),
            }
        }
        Err(all_failures(failed, count))
    }

    /// Sends the call to every endpoint and returns the results, in the order in which they arrived.
    ///
    /// # Errors
    /// `Unavailable` when there is no endpoint; otherwise errors of the call itself, such as its metadata.
    pub async fn inform(self) -> Result<Vec<Receipt<R>>> {
        let mut sent = self.spread().await?;
        let mut receipts = Vec::with_capacity(sent.len());
        while let Some(receipt) = first(&mut sent).await {
            receipts.push(receipt);
        }
        Ok(receipts)
    }

    async fn spread(self) -> Result<Vec<Sent<R>>> {
        let (mut begin, request, decode) = self.into_parts()?;
        if let Some(early_error) = begin.early_error.take() {
            return Err(early_error);
        }
        let retry_state = RetryState::new(begin.deadline(switchboard_core::clock::now()));
        let channel = match &begin.target {
            Target::Channel(channel) => Some(channel.clone()),
            Target::Connection(connection) => connection.channel(),
            Target::Nowhere => None,
        };
        let channel = channel.ok_or_else(|| Status::unavailable("the channel was dropped"))?;
        let Some(fleet) = channel.0.fleet() else {
            let address = format!("{channel:?}");
            let address = address.trim_start_matches("Channel(").trim_end_matches(')').to_owned();
            let again = Begin { target: channel.target(), ..begin.again(&retry_state) };
            return Ok(vec![Box::pin(receipt(address, None, again, request, decode))]);
        };
        let shared = fleet.shared();
        let members = || {
            let set = shared.set().clone();
            let takes = set.members.iter().filter(|member| member.endpoint.weight() > 0);
            takes.cloned().collect::<Vec<_>>()
        };
        if members().is_empty() {
            shared.wait_connected(retry_state.deadline).await?;
        }
        let members = members();
        if members.is_empty() {
            return Err(Status::unavailable(format!("no endpoint of {} takes traffic", shared.base.name())));
        }
        let each = members.into_iter().map(|member| {
            let address = member.endpoint.address().to_owned();
            let permit = EndpointPermit::new(member, begin.method.path, clock::now());
            let sent = receipt(address, Some(permit), begin.again(&retry_state), request.clone(), decode);
            Box::pin(sent) as Sent<R>
        });
        Ok(each.collect())
    }
}

/// Sends the call to one endpoint.
async fn receipt<R>(
    address: String,
    permit: Option<EndpointPermit>,
    mut begin: Begin,
    request: Bytes,
    decode: unary::Decode<R>,
) -> Receipt<R> {
    let (codec, bytes_max) = (begin.codec, begin.reply_bytes_max);
    let called = async {
        let target = match &permit {
            None => begin.target,
            Some(permit) => {
                let deadline = begin.deadline(switchboard_core::clock::now());
                permit.member().connected(deadline).await?;
                begin.end_at(deadline);
                permit.member().link.channel.target()
            }
        };
        unary::run(Begin { target, ..begin }, request).await
    };
    let called = called.await;
    if let Some(permit) = permit {
        permit.ended(&called);
    }
    let outcome = called.and_then(|response| {
        let Message { bytes, codec: written, .. } = response.item;
        check_reply(&bytes, bytes_max)?;
        let (metadata, trailers): (Metadata, Metadata) = (response.head, response.trailers);
        Ok(Response {
            message: unary::decode_reply(codec, written, bytes, decode)?,
            metadata,
            trailers,
            attempts: 1,
        })
    });
    Receipt { address, outcome }
}

/// Returns the next result; `None` when all have ended.
async fn first<R>(sent: &mut Vec<Sent<R>>) -> Option<Receipt<R>> {
    if sent.is_empty() {
        return None;
    }
    poll_fn(|cx| {
        for at in 0..sent.len() {
            if let Poll::Ready(receipt) = sent[at].as_mut().poll(cx) {
                drop(sent.swap_remove(at));
                return Poll::Ready(Some(receipt));
            }
        }
        Poll::Pending
    })
    .await
}

/// The status of a call that has failed at some of `count` endpoints.
fn all_failures(mut failed: Vec<(String, Status)>, count: usize) -> Status {
    let number = failed.len();
    let Some((address, last)) = failed.pop() else {
        return Status::unavailable("there was no endpoint to call");
    };
    let others: Vec<_> = failed.into_iter().map(|(address, _)| address).collect();
    let others = if others.is_empty() { String::new() } else { format!("; also at {}", others.join(", ")) };
    let text = format!("{} (failed at {number} of {count} endpoints: {address}{others})", last.message());
    super::retry_state::with_text(last, text)
}

impl<R> fmt::Display for Receipt<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(_) => write!(f, "{}: ok", self.address),
            Err(status) => write!(f, "{}: {status}", self.address),
        }
    }
}
