//! Tasks that read the bus for an engine: its entries for subscribers, and its jobs for PULL peers.

use super::{Pipeline, adapter::ZmtpAdapter};
use bytes::Bytes;
use std::sync::Arc;
use switchboard_core::{Result, runtime};
use switchboard_fanout::Handle;
use switchboard_message::{Bus, Delivery, Gap, Message, Pattern, Subscription};
use tokio::{sync::Semaphore, task::AbortHandle};

/// A message to an engine.
#[derive(Debug)]
pub(super) enum Command {
    /// An entry for the subscribers that match its topic.
    Entry(Message<Bytes>),
    /// An entry for one of the PULL peers.
    Job(Message<Bytes>),
    /// Entries that the bus dropped before they were read.
    Missed(Gap),
}

/// A task that is ended when it is dropped.
#[derive(Debug)]
pub(super) struct Feed(AbortHandle);

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends all entries of the bus to an engine. It has begun when this function returns: no later entry is missed.
///
/// # Errors
/// That of the bus, such as its limit of subscriptions.
pub(super) fn entries(bus: &Bus, engine: Handle<ZmtpAdapter>) -> Result<Feed> {
    let subscription = begin(bus.subscribe_encoded(Pattern::prefix("")))?;
    Ok(Feed(runtime::spawn(run(subscription, engine, None)).abort_handle()))
}

/// Sends the entries of a group to an engine, each as soon as there is a permit for it.
///
/// # Errors
/// That of the bus.
pub(super) fn jobs(
    bus: &Bus,
    pipeline: &Pipeline,
    engine: Handle<ZmtpAdapter>,
    permits: Arc<Semaphore>,
) -> Result<Feed> {
    let subscription = begin(bus.subscribe_encoded(&pipeline.topic).group(pipeline.group.clone()).ack())?;
    Ok(Feed(runtime::spawn(run(subscription, engine, Some(permits))).abort_handle()))
}

/// A subscription of the bus begins at once.
fn begin(subscribe: impl IntoFuture<Output = Result<Subscription<Bytes>>>) -> Result<Subscription<Bytes>> {
    let mut begun = std::pin::pin!(subscribe.into_future());
    match begun.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(begun) => begun,
        std::task::Poll::Pending => unreachable!("subscriptions inside the process do not wait"),
    }
}

async fn run(
    mut subscription: Subscription<Bytes>,
    engine: Handle<ZmtpAdapter>,
    permits: Option<Arc<Semaphore>>,
) {
    loop {
        if let Some(permits) = &permits {
            // The adapter adds a permit when a peer has the job.
            let Ok(permit) = permits.acquire().await else { return };
            permit.forget();
        }
        let command = loop {
            match subscription.next().await {
                Ok(Some(Delivery::Entry(entry))) if permits.is_some() => break Command::Job(entry),
                Ok(Some(Delivery::Entry(entry))) => break Command::Entry(entry),
                Ok(Some(Delivery::Gap(gap))) => {
                    if engine.send(Command::Missed(gap)).await.is_err() {
                        return;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(status) => tracing::warn!("zmtp: an entry of the bus is left out: {status}"),
            }
        };
        if engine.send(command).await.is_err() {
            return;
        }
    }
}
