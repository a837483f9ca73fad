//! Tasks that read the bus for an engine: its entries for subscribers, and its jobs for PULL peers.

use super::{Pipeline, adapter::ZmtpAdapter};
use bytes::Bytes;
use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_core::{Result, runtime};
use switchboard_fanout::Handle;
use switchboard_message::{Bus, Delivery, Gap, Message, Pattern, Subscription};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::sleep,
};

/// KiB of entries between the bus and an engine. Those behind them wait in the bus, with its limits.
const WAITING_KIB: usize = 4096;
/// Pause before a subscription that the bus has ended begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// A message to an engine.
#[derive(Debug)]
pub(super) enum Command {
    /// An entry for the subscribers that match its topic, with its part of the entries that may wait.
    Entry(Message<Bytes>, OwnedSemaphorePermit),
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
    let source = Source::Entries(Arc::new(Semaphore::new(WAITING_KIB)));
    Reader { bus: bus.clone(), engine, source }.spawn()
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
    let source = Source::Jobs(pipeline.clone(), permits);
    Reader { bus: bus.clone(), engine, source }.spawn()
}

struct Reader {
    bus: Bus,
    engine: Handle<ZmtpAdapter>,
    source: Source,
}

enum Source {
    /// All entries, with the KiB that may wait.
    Entries(Arc<Semaphore>),
    /// Those of a group; the adapter adds a permit when a peer has a job.
    Jobs(Pipeline, Arc<Semaphore>),
}

impl Reader {
    fn begin(&self) -> Result<Subscription<Bytes>> {
        match &self.source {
            Source::Entries(_) => begin(self.bus.subscribe_encoded(Pattern::prefix(""))),
            Source::Jobs(pipeline, _) => begin(pipeline.member(&self.bus)),
        }
    }

    /// Reads the bus until the engine ends. The bus ends subscriptions of slow readers to some topics: then another one
    /// begins.
    fn spawn(self) -> Result<Feed> {
        let mut begun = Ok(self.begin()?);
        let run = async move {
            loop {
                match begun {
                    Ok(subscription) => {
                        if self.read(subscription).await.is_none() {
                            return;
                        }
                    }
                    Err(status) => tracing::warn!("zmtp: the bus is not read: {status}"),
                }
                sleep(PAUSE).await;
                begun = self.begin();
            }
        };
        Ok(Feed(runtime::spawn(run).abort_handle()))
    }

    /// Sends the entries of a subscription; `None` when the engine has ended.
    async fn read(&self, mut subscription: Subscription<Bytes>) -> Option<()> {
        loop {
            if let Source::Jobs(_, permits) = &self.source {
                permits.acquire().await.ok()?.forget();
            }
            let Some(entry) = next(&mut subscription, &self.engine).await? else {
                if let Source::Jobs(_, permits) = &self.source {
                    permits.add_permits(1);
                }
                return Some(());
            };
            let command = match &self.source {
                Source::Jobs(..) => Command::Job(entry),
                Source::Entries(waiting) => {
                    let kib = (entry.len() / 1024).saturating_add(1).min(WAITING_KIB) as u32;
                    Command::Entry(entry, waiting.clone().acquire_many_owned(kib).await.ok()?)
                }
            };
            self.engine.send(command).await.ok()?;
        }
    }
}

/// A subscription of the bus begins at once.
fn begin(subscribe: impl IntoFuture<Output = Result<Subscription<Bytes>>>) -> Result<Subscription<Bytes>> {
    let begun = pin!(subscribe.into_future());
    match begun.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(begun) => begun,
        Poll::Pending => unreachable!("subscriptions inside the process do not wait"),
    }
}

/// Returns the next entry; `Some(None)` when the bus has ended the subscription, `None` when the engine has ended.
async fn next(
    subscription: &mut Subscription<Bytes>,
    engine: &Handle<ZmtpAdapter>,
) -> Option<Option<Message<Bytes>>> {
    loop {
        match subscription.next().await {
            Ok(Some(Delivery::Entry(entry))) => return Some(Some(entry)),
            Ok(Some(Delivery::Gap(gap))) => engine.send(Command::Missed(gap)).await.ok()?,
            Ok(Some(_)) => {}
            Ok(None) => return Some(None),
            Err(status) => tracing::warn!("zmtp: a subscription of the bus: {status}"),
        }
    }
}
