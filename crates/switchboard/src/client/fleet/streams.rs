//! Calls with streams, and one-way calls, of fleets: another endpoint while nothing was sent yet.

use super::{
    super::{Begin, Target},
    Shared,
    tries::Tries,
};
use crate::{Result, compression::Packing, stream::Queue};
use bytes::Bytes;
use std::{sync::Arc, time::Instant};

/// Sends a one-way call; done once it is on its way.
pub(in super::super) async fn oneway(shared: Arc<Shared>, begin: Begin, request: Bytes) -> Result<()> {
    let mut tries = Tries::new(begin.deadline(Instant::now()));
    let mut ticket = shared.next(&begin, &request, &mut tries).await?;
    loop {
        tries.sent += 1;
        let sent = async {
            ticket.member().connected(tries.deadline).await?;
            let target = ticket.member().link.channel.target();
            super::super::OnewayCall::new(Begin { target, ..begin.again(&tries) }, Ok(request.clone())).await
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
) -> Result<(Arc<Queue>, Packing)> {
    let mut tries = Tries::new(begin.deadline(Instant::now()));
    let request = message.clone().unwrap_or_default();
    let mut ticket = shared.next(&begin, &request, &mut tries).await?;
    loop {
        tries.sent += 1;
        let sent = async {
            ticket.member().connected(tries.deadline).await?;
            let target: Target = ticket.member().link.channel.target();
            let begin = Begin { target, ..begin.again(&tries) };
            Box::pin(begin.stream(message.clone(), outbound.clone())).await
        };
        let sent = sent.await;
        let member = ticket.ended(&sent);
        match sent {
            Ok(sent) => return Ok(sent),
            Err(status) => {
                ticket = shared.next_after(&begin, &request, &mut tries, member, status).await?;
            }
        }
    }
}
