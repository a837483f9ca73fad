//! Entries that subscribers of the service have not acknowledged, by their `ack_id`.

use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    fmt::{self, Write},
    hash::BuildHasher,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use switchboard::{Result, Status};
use switchboard_message::Message;

/// Bytes of an id: 16 digits, a hyphen, and up to 20 digits.
const ID_BYTES_MAX: usize = 37;

/// Characters of a malformed id that its error shows.
const SHOWN_CHARS_MAX: usize = 64;

/// Unacknowledged entries of all subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    subscriptions: Mutex<Subscriptions>,
}

#[derive(Debug, Default)]
struct Subscriptions {
    held: HashMap<u64, Arc<Mutex<Held>>>,
    /// Number of the newest subscription.
    newest: u64,
    /// A caller cannot guess the ids of other subscriptions: its keys are random.
    ids: RandomState,
}

/// Entries of one subscription, by the number of their delivery.
#[derive(Debug, Default)]
struct Held {
    entries: BTreeMap<u64, Message<Bytes>>,
    newest: u64,
}

/// Entries of one subscription. They can be acknowledged until it is dropped.
#[derive(Debug)]
pub(crate) struct SubscriptionAcks {
    all: Arc<Unacknowledged>,
    id: u64,
    held: Arc<Mutex<Held>>,
    max: usize,
}

impl Unacknowledged {
    /// Adds a subscription that holds at most `max` unacknowledged entries.
    pub(crate) fn subscribe(self: &Arc<Self>, max: usize) -> SubscriptionAcks {
        let held = Arc::<Mutex<Held>>::default();
        let mut subscriptions = lock(&self.subscriptions);
        let id = loop {
            subscriptions.newest = subscriptions.newest.wrapping_add(1);
            let id = subscriptions.ids.hash_one(subscriptions.newest);
            if !subscriptions.held.contains_key(&id) {
                break id;
            }
        };
        subscriptions.held.insert(id, held.clone());
        drop(subscriptions);
        SubscriptionAcks { all: self.clone(), id, held, max }
    }

    /// Removes entries from their subscriptions, to be acknowledged or rejected, one for each id. Neighbours are mostly
    /// of one subscription, which is found once.
    pub(crate) fn take(
        &self,
        ids: impl Iterator<Item = AckId>,
    ) -> impl Iterator<Item = Option<Message<Bytes>>> {
        let mut found: Option<(u64, Option<Arc<Mutex<Held>>>)> = None;
        ids.map(move |AckId { subscription, delivery }| {
            let held = match &found {
                Some((known, held)) if *known == subscription => held,
                _ => {
                    let held = lock(&self.subscriptions).held.get(&subscription).cloned();
                    &found.insert((subscription, held)).1
                }
            };
            lock(held.as_ref()?).entries.remove(&delivery)
        })
    }

    /// Returns the number of subscriptions.
    #[cfg(test)]
    fn subscriptions(&self) -> usize {
        lock(&self.subscriptions).held.len()
    }
}

impl SubscriptionAcks {
    /// Holds an entry until it is acknowledged; returns its `ack_id`.
    pub(crate) fn hold(&self, message: Message<Bytes>) -> AckId {
        let mut held = lock(&self.held);
        held.newest = held.newest.wrapping_add(1);
        let delivery = held.newest;
        held.entries.insert(delivery, message);
        // Beyond the limit of the member, the oldest ones have gone to other members: all have the same period.
        let oldest = (held.entries.len() > self.max).then(|| held.entries.pop_first());
        drop(held);
        // Without the lock: the end of a payload may use the service.
        drop(oldest);
        AckId { subscription: self.id, delivery }
    }
}

impl Drop for SubscriptionAcks {
    fn drop(&mut self) {
        let held = lock(&self.all.subscriptions).held.remove(&self.id);
        // The guard has ended: the end of a payload may use the service.
        drop(held);
    }
}

/// Identifies a delivery to a subscription.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckId {
    subscription: u64,
    delivery: u64,
}

impl AckId {
    /// Returns the text, in one allocation.
    pub(crate) fn to_text(self) -> String {
        let mut text = String::with_capacity(ID_BYTES_MAX);
        // Writing to a string does not fail.
        let _ = write!(text, "{self}");
        text
    }
}

impl FromStr for AckId {
    type Err = Status;

    fn from_str(id: &str) -> Result<AckId> {
        let parsed = id.split_once('-').and_then(|(subscription, delivery)| {
            let subscription = u64::from_str_radix(subscription, 16).ok()?;
            Some(AckId { subscription, delivery: delivery.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            let shown: String = id.chars().take(SHOWN_CHARS_MAX).collect();
            let text =
                format!("ack_id \"{shown}\" is not one of this server; send that of an entry unchanged");
            Status::invalid_argument(text)
        })
    }
}

impl fmt::Display for AckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.subscription, self.delivery)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchboard::{Code, Codec};
    use switchboard_message::{Bus, Delivery, Publication};

    #[tokio::test]
    async fn held_entries_are_bounded_and_released_with_their_subscription() {
        let (bus, all) = (Bus::new(), Arc::<Unacknowledged>::default());
        let mut jobs = bus.subscribe_encoded("jobs").group("workers").ack().await.unwrap();
        let (mut ids, acks) = (Vec::new(), all.subscribe(2));
        for _ in 0..3 {
            bus.publish_encoded("jobs", Publication::new(Codec::Raw, "job")).await.unwrap();
            let Some(Delivery::Entry(job)) = jobs.next().await.unwrap() else { panic!("no entry") };
            ids.push(acks.hold(job));
        }
        let take = |id: AckId| all.take([id].into_iter()).next().flatten();
        assert!(take(ids[0]).is_none());
        assert!(take(ids[1]).unwrap().ack());
        assert!(take(ids[1]).is_none());
        drop(acks);
        assert!(take(ids[2]).is_none());
        assert_eq!(all.subscriptions(), 0);
        assert_eq!(ids[2].to_text().parse::<AckId>().unwrap().to_text(), ids[2].to_string());
        for id in ["", "x-1", "12", "12-x"] {
            assert_eq!(id.parse::<AckId>().unwrap_err().code(), Code::InvalidArgument, "{id}");
        }
    }
}
