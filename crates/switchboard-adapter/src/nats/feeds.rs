//! Subscriptions of the bus, one for each pattern and queue group of the clients of an engine.
//!
//! The engine reads them in its own turns: the bus wakes it with the index of a feed that has entries, and there is no
//! queue between the bus and the engine.

use super::{
    adapter::{Command, NatsAdapter},
    peer::Place,
};
use crate::{
    feed,
    ready::{FeedWaker, Ready},
};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard_core::Result;
use switchboard_fanout::Handle;
use switchboard_message::{Bus, Delivery, Pattern, Subscription};
use switchboard_wire::nats::Deliveries;

/// Name of a feed: the pattern of its topics, and the queue group.
type Key = (Box<str>, Option<Box<str>>);

/// The feeds of an engine.
pub(super) struct Feeds {
    feeds: Vec<Option<Feed>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
    pub(super) ready: Arc<Ready>,
}

/// A subscription of the bus, and those of clients that get its entries.
pub(super) struct Feed {
    key: Key,
    pub(super) pattern: Pattern,
    subscription: Subscription<Bytes>,
    queued: Arc<FeedWaker>,
    waker: Waker,
    pub(super) members: Vec<Member>,
    /// The member of a queue group that gets the next entry.
    pub(super) next: usize,
}

/// A subscription of a client.
pub(super) struct Member {
    /// Index of the client.
    pub(super) client: u32,
    pub(super) sid: Bytes,
    pub(super) deliveries: Deliveries,
}

impl Feeds {
    pub(super) fn new(engine: Handle<NatsAdapter>) -> Feeds {
        let ready = Ready::new(move || drop(engine.try_send(Command::Ready)));
        Feeds { feeds: Vec::new(), free: Vec::new(), by_key: HashMap::new(), ready }
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Feed> {
        self.feeds.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn get(&self, index: u32) -> Option<&Feed> {
        self.feeds.get(index as usize)?.as_ref()
    }

    /// Adds a subscription of a client. The first one of a pattern and queue group subscribes on the bus.
    ///
    /// # Errors
    /// That of the bus: its limit of subscriptions, or a group with other options.
    pub(super) fn enter(
        &mut self,
        bus: &Bus,
        topics: &str,
        queue: Option<&str>,
        member: Member,
    ) -> Result<Place> {
        let key: Key = (topics.into(), queue.map(Into::into));
        let index = match self.by_key.get(&key) {
            Some(index) => *index,
            None => self.open(bus, key)?,
        };
        let mut place = Place { feed: index, member: 0 };
        if let Some(feed) = self.get_mut(index) {
            place.member = feed.members.len() as u32;
            feed.members.push(member);
        }
        Ok(place)
    }

    fn open(&mut self, bus: &Bus, key: Key) -> Result<u32> {
        let pattern = Pattern::new(&key.0)?;
        let subscription = subscribe(bus, &key)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.feeds.push(None);
            (self.feeds.len() - 1) as u32
        });
        let queued = FeedWaker::new(index, &self.ready);
        let waker = queued.waker();
        self.by_key.insert(key.clone(), index);
        // The first poll registers the waker.
        waker.wake_by_ref();
        let feed = Feed { key, pattern, subscription, queued, waker, members: Vec::new(), next: 0 };
        self.feeds[index as usize] = Some(feed);
        Ok(index)
    }

    /// Removes a subscription of a client; the last one of a feed ends it. Returns the one that has its index now.
    pub(super) fn leave(&mut self, index: u32, member: u32) -> Option<&Member> {
        let feed = self.feeds.get_mut(index as usize)?.as_mut()?;
        if (member as usize) < feed.members.len() {
            feed.members.swap_remove(member as usize);
        }
        if feed.members.is_empty() {
            let feed = self.feeds[index as usize].take()?;
            self.by_key.remove(&feed.key);
            self.free.push(index);
            return None;
        }
        self.get(index)?.members.get(member as usize)
    }

    /// Begins the subscription of a feed again, after the bus has ended it.
    ///
    /// # Errors
    /// That of the bus.
    pub(super) fn begin_again(&mut self, index: u32, bus: &Bus) -> Result<()> {
        if let Some(feed) = self.get_mut(index) {
            feed.subscription = subscribe(bus, &feed.key)?;
        }
        Ok(())
    }
}

fn subscribe(bus: &Bus, (topics, queue): &Key) -> Result<Subscription<Bytes>> {
    let subscribe = bus.subscribe_encoded(&**topics);
    feed::begin(match queue {
        Some(queue) => subscribe.group(&**queue),
        None => subscribe,
    })
}

impl Feed {
    /// Returns whether each entry goes to one member.
    pub(super) fn is_group(&self) -> bool {
        self.key.1.is_some()
    }

    /// Returns the next item of the subscription. `Pending` means that the bus wakes the engine for the next one.
    pub(super) fn poll(&mut self) -> Poll<Option<Result<Delivery<Bytes>>>> {
        self.queued.clear();
        // Not a future, whose end would leave the next entries to other members of a group.
        Pin::new(&mut self.subscription).poll_next(&mut Context::from_waker(&self.waker))
    }

    /// Has the feed read again in a later turn.
    pub(super) fn requeue(&self) {
        self.waker.wake_by_ref();
    }
}
