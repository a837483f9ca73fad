//! Topics that this process follows.

use super::{RESPONSE_TIMEOUT, Shared, jetstream, read};
use crate::record;
use async_nats::{Message, Subscriber};
use futures_core::Stream;
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use switchboard_core::Result;
use switchboard_message::{
    Position, Topic,
    broker::{LiveEvent, Mailbox, StoredEntry},
};
use tokio::{task::JoinHandle, time::timeout};

/// A task that delivers the entries of a topic; dropped, it ends.
pub(super) struct Follower {
    pub(super) mailbox: Mailbox,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Interval at which a topic without entries checks that its stream is the one it knows.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Begins to deliver the entries of a topic; resolves to the position of the newest one.
pub(super) async fn follow(
    shared: &Arc<Shared>,
    topic: &Topic,
    known: Option<Position>,
    to: Mailbox,
) -> Result<Position> {
    let client = shared.client().await?;
    // First: a number that is not behind it then belongs to a stream that was created since.
    let drops = shared.drops.load(Ordering::Acquire);
    let (epoch, newest) = shared.renew(&client, known).await?;
    let subscribing = timeout(RESPONSE_TIMEOUT, client.subscribe(shared.options.live(topic)));
    let entries = subscribing
        .await
        .map_err(|_| shared.away("does not respond"))?
        .map_err(|error| shared.away(error))?;
    // Requests on the connection are handled after the subscription.
    let newest_of_topic = read::newest(shared, &client, topic).await?;
    let (topic_name, weak) = (topic.clone(), Arc::downgrade(shared));
    let following = Following { shared: weak, topic: topic_name, epoch, newest, drops, to: to.clone() };
    let task = tokio::spawn(following.run(entries));
    let before = shared.followers().insert(topic.clone(), Follower { mailbox: to, task });
    drop(before);
    Ok(Position { epoch, offset: newest_of_topic })
}

/// State of the task of one topic.
struct Following {
    shared: Weak<Shared>,
    topic: Topic,
    epoch: u64,
    /// Number of the stream's newest message when the delivery began, or of the newest entry.
    newest: u64,
    /// Number of drops after which the newest entry of the topic is known to have arrived.
    drops: u64,
    to: Mailbox,
}

impl Following {
    async fn run(mut self, mut entries: Subscriber) {
        loop {
            let next = timeout(CHECK_INTERVAL, poll_fn(|cx| Pin::new(&mut entries).poll_next(cx)));
            let Ok(message) = next.await else {
                let Some(shared) = self.shared.upgrade().filter(|shared| !self.is_of_another(shared)) else {
                    return;
                };
                if self.has_missed(&shared).await {
                    let why = "has delivered more than this process has read";
                    return self.to.deliver(LiveEvent::Interrupted(shared.away(why)));
                }
                continue;
            };
            let Some(shared) = self.shared.upgrade() else { return };
            let Some(message) = message else {
                return self.to.deliver(LiveEvent::Interrupted(shared.away("has ended the subscription")));
            };
            // A message of another program on the subject is no entry.
            let Some(entry) = entry(message, self.epoch) else { continue };
            if entry.position.offset <= self.newest {
                // The stream was created again. Its new epoch ends all deliveries, also this one.
                let Ok(client) = shared.client().await else { continue };
                let _ = shared.renew(&client, None).await;
                continue;
            }
            self.newest = entry.position.offset;
            shared.newest.fetch_max(self.newest, Ordering::AcqRel);
            self.to.deliver(LiveEvent::Entry(entry));
        }
    }

    /// Returns whether the last entries of the topic were dropped because it was read too slowly: there is no later one
    /// that shows it.
    async fn has_missed(&mut self, shared: &Arc<Shared>) -> bool {
        let drops = shared.drops.load(Ordering::Acquire);
        if drops == self.drops {
            return false;
        }
        let Ok(client) = shared.client().await else { return false };
        let Ok(newest) = read::newest(shared, &client, &self.topic).await else { return false };
        self.drops = drops;
        newest > self.newest
    }

    /// Returns whether the process knows another stream by now, in which case this delivery was ended.
    fn is_of_another(&self, shared: &Shared) -> bool {
        shared.epoch.load(Ordering::Acquire) != self.epoch
    }
}

/// Reads a republished message.
fn entry(message: Message, epoch: u64) -> Option<StoredEntry> {
    let offset = jetstream::number(&message, "Nats-Sequence")?;
    let previous = jetstream::number(&message, "Nats-Last-Sequence")?;
    let publication = record::decode(message.payload, record::now());
    Some(StoredEntry::new(Position { epoch, offset }, previous, publication))
}
