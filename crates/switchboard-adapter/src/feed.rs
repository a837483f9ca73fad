//! Tasks that read the bus for an engine.

use crate::task::Task;
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_fanout::{Adapter, Handle};
use switchboard_message::{Delivery, Gap, Message, Subscription};
use switchboard_wire::Status;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

/// KiB of entries between the bus and an engine. Those behind them wait in the bus, with its limits.
const WAITING_KIB: usize = 4096;
/// Items in a row after which a subscription may pause although it has more.
const PAUSE_AFTER: u32 = 32;
/// Pause before a subscription that the bus has ended begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// Entries of the bus for an engine, and the commands that carry them.
pub(crate) trait Source: Send + Sync + 'static {
    /// Command of the adapter.
    type Command: Send + 'static;

    /// Begins a subscription; called again when the bus has ended the one before.
    fn begin(&self) -> Result<Subscription<Bytes>>;

    /// Waits until the next entry may be taken from the bus. `None` ends the task.
    fn ready(&self) -> impl Future<Output = Option<()>> + Send {
        std::future::ready(Some(()))
    }

    /// The subscription has ended after [`ready`](Self::ready), without an entry.
    fn unused(&self) {}

    /// Makes a command of an entry, as soon as the engine has room for it. `None` ends the task.
    fn entry(&self, entry: Message<Bytes>) -> impl Future<Output = Option<Self::Command>> + Send;

    /// Makes a command of entries that the bus dropped before they were read.
    fn missed(&self, gap: Gap) -> Self::Command;

    /// Returns a mark of the time before the bus is polled, for [`caught_up`](Self::caught_up).
    fn mark(&self) -> u64 {
        0
    }

    /// All entries that were published before the mark are sent to the engine. The waker of `cx` polls the bus again.
    fn caught_up(&self, _mark: u64, _cx: &Context<'_>) {}
}

/// A task that is ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    _task: Task,
}

impl Feed {
    /// Sends the entries of a source to an engine, until the engine ends. The subscription has begun when this function
    /// returns: no later entry is missed. The bus ends subscriptions of slow readers to some topics: then another one
    /// begins. `name` is that of the plugin, for messages.
    ///
    /// # Errors
    /// That of the bus, such as its limit of subscriptions.
    pub(crate) fn spawn<A, S>(name: &'static str, engine: Handle<A>, source: S) -> Result<Feed>
    where
        A: Adapter,
        S: Source<Command = A::Command>,
    {
        let mut begun = Ok(source.begin()?);
        let run = async move {
            loop {
                match begun {
                    Ok(subscription) => {
                        if read(name, &engine, &source, subscription).await.is_none() {
                            return;
                        }
                    }
                    Err(status) => tracing::warn!("{name}: the bus is not read: {status}"),
                }
                sleep(PAUSE).await;
                begun = source.begin();
            }
        };
        Ok(Feed { _task: Task::spawn(run) })
    }
}

/// Sends the entries of a subscription; `None` when the engine has ended.
async fn read<A, S>(
    name: &'static str,
    engine: &Handle<A>,
    source: &S,
    mut subscription: Subscription<Bytes>,
) -> Option<()>
where
    A: Adapter,
    S: Source<Command = A::Command>,
{
    let mut taken = 0;
    loop {
        source.ready().await?;
        let entry = loop {
            match next(source, &mut subscription, &mut taken).await {
                Ok(Some(Delivery::Entry(entry))) => break entry,
                Ok(Some(Delivery::Gap(gap))) => engine.send(source.missed(gap)).await.ok()?,
                Ok(Some(_)) => {}
                Ok(None) => {
                    source.unused();
                    return Some(());
                }
                Err(status) => tracing::warn!("{name}: a subscription of the bus: {status}"),
            }
        };
        let command = source.entry(entry).await?;
        engine.send(command).await.ok()?;
    }
}

/// Returns the next item of a subscription; the source learns when there is none. `taken` counts the items since then.
async fn next<S: Source>(
    source: &S,
    subscription: &mut Subscription<Bytes>,
    taken: &mut u32,
) -> Result<Option<Delivery<Bytes>>> {
    let mut next = pin!(subscription.next());
    poll_fn(|cx| {
        let mark = source.mark();
        let polled = next.as_mut().poll(cx);
        if polled.is_ready() {
            *taken = taken.saturating_add(1);
        } else if std::mem::take(taken) < PAUSE_AFTER {
            source.caught_up(mark, cx);
        } else {
            // It may have more, and only pauses: the next poll shows it.
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
}

/// Begins a subscription of a bus inside the process, which does not wait.
///
/// # Errors
/// That of the bus.
pub fn begin(
    subscribe: impl IntoFuture<Output = Result<Subscription<Bytes>>>,
) -> Result<Subscription<Bytes>> {
    let begun = pin!(subscribe.into_future());
    match begun.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(begun) => begun,
        Poll::Pending => Err(Status::unimplemented(
            "peers of an adapter cannot be on the topics of another process; use a bus of this process",
        )),
    }
}

/// Entries between the bus and an engine, bounded by their bytes.
#[derive(Clone, Debug)]
pub(crate) struct WaitingBytes(Arc<Semaphore>);

impl WaitingBytes {
    /// Creates the bound: 4 MiB.
    pub(crate) fn new() -> WaitingBytes {
        WaitingBytes(Arc::new(Semaphore::new(WAITING_KIB)))
    }

    /// Waits until the entry is within the bound. The permit is dropped when the engine has handled it.
    pub(crate) async fn admit(&self, entry: &Message<Bytes>) -> Option<OwnedSemaphorePermit> {
        let kib = (entry.len() / 1024).saturating_add(1).min(WAITING_KIB) as u32;
        self.0.clone().acquire_many_owned(kib).await.ok()
    }
}
