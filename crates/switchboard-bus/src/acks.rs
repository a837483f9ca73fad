//! Entries that subscribers of the service have not acknowledged, by their `ack_id`.

use bytes::Bytes;
use std::{
    collections::{BTreeMap, HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use switchboard::{Result, Status};
use switchboard_message::Message;

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

    /// Removes the entry from its subscription.
    ///
    /// # Errors
    /// `InvalidArgument` for an id of another form.
    pub(crate) fn take(&self, ack_id: &str) -> Result<Option<Message<Bytes>>> {
        let parsed = ack_id.split_once('-').and_then(|(subscription, delivery)| {
            Some((u64::from_str_radix(subscription, 16).ok()?, delivery.parse::<u64>().ok()?))
        });
        let Some((subscription, delivery)) = parsed else {
            let shown: String = ack_id.chars().take(64).collect();
            let text =
                format!("ack_id \"{shown}\" is not one of this server; send that of an entry unchanged");
            return Err(Status::invalid_argument(text));
        };
        let held = lock(&self.subscriptions).held.get(&subscription).cloned();
        Ok(held.and_then(|held| lock(&held).entries.remove(&delivery)))
    }

    /// Returns the number of subscriptions.
    #[cfg(test)]
    fn subscriptions(&self) -> usize {
        lock(&self.subscriptions).held.len()
    }
}

impl SubscriptionAcks {
    /// Holds an entry until it is acknowledged; returns its `ack_id`.
    pub(crate) fn hold(&self, message: Message<Bytes>) -> impl std::fmt::Display + use<> {
        let mut held = lock(&self.held);
        held.newest = held.newest.wrapping_add(1);
        let delivery = held.newest;
        held.entries.insert(delivery, message);
        // Beyond the limit of the member, the oldest ones have gone to other members: all have the same period.
        while held.entries.len() > self.max {
            held.entries.pop_first();
        }
        drop(held);
        AckId { subscription: self.id, delivery }
    }
}

impl Drop for SubscriptionAcks {
    fn drop(&mut self) {
        lock(&self.all.subscriptions).held.remove(&self.id);
    }
}

struct AckId {
    subscription: u64,
    delivery: u64,
}

impl std::fmt::Display for AckId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
            ids.push(acks.hold(job).to_string());
        }
        assert!(all.take(&ids[0]).unwrap().is_none());
        assert!(all.take(&ids[1]).unwrap().unwrap().ack());
        assert!(all.take(&ids[1]).unwrap().is_none());
        drop(acks);
        assert!(all.take(&ids[2]).unwrap().is_none());
        assert_eq!(all.subscriptions(), 0);
        for id in ["", "x-1", "12", "12-x"] {
            assert_eq!(all.take(id).unwrap_err().code(), Code::InvalidArgument, "{id}");
        }
    }
}
