//! Subscriptions of the bus for the clients of an engine.
//!
//! All subscriptions of QoS 0 with a filter are one cursor, whose entries are encoded once for each encoding. A shared
//! subscription is a cursor of its group. A subscription of QoS 1 or 2 has a cursor of its own, which moves as far as
//! the window of its client allows.

use super::{
    adapter::{Command, MqttAdapter},
    messages::Stored,
    session::{Grant, Resume},
};
use crate::{
    feed,
    ready::{FeedWaker, Ready},
};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use switchboard_core::Result;
use switchboard_fanout::{BufferId, Handle, Subscribers};
use switchboard_message::{Bus, Delivery, Gap, GapReason, Position, Subscription};

/// Name of a feed, with the pattern of its topics.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Key {
    /// The group of a shared subscription.
    Group(Box<str>, Box<str>),
    /// All subscriptions of QoS 0.
    Live(Box<str>),
    /// One subscription of a session.
    Own(u64, Box<str>),
}

impl Key {
    fn topics(&self) -> &str {
        let (Key::Group(_, topics) | Key::Live(topics) | Key::Own(_, topics)) = self;
        topics
    }
}

/// A subscription of the bus, and those of clients that get its entries.
pub(super) struct Feed {
    key: Key,
    subscription: Subscription<Bytes>,
    queued: Arc<FeedWaker>,
    waker: Waker,
    pub(super) kind: Kind,
    /// An item that was read to find the outcome of the start.
    stash: Option<Delivery<Bytes>>,
    /// Where the subscription began.
    start: Resume,
    /// Position of the last item, of the only topic.
    position: Option<Position>,
    /// No member has room; it is read again when one has.
    pub(super) is_stalled: bool,
}

/// The members of a feed.
pub(super) enum Kind {
    Group(Group),
    Live(Live),
    Own(Member),
}

/// A subscription of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Index of the client.
    pub(super) client: u32,
    pub(super) grant: Grant,
}

/// Subscriptions of QoS 0.
#[derive(Default)]
pub(super) struct Live {
    pub(super) variants: Vec<Variant>,
    /// Those that cannot share bytes: "no local", or a limit on packets.
    pub(super) singles: Vec<Member>,
}

/// Subscribers with equal bytes.
pub(super) struct Variant {
    pub(super) encoding: Encoding,
    pub(super) buffer: BufferId,
}

/// Parameters that determine the bytes of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Encoding {
    pub(super) is_v5: bool,
    pub(super) retain_as_published: bool,
    pub(super) id: Option<u32>,
}

/// A shared subscription.
#[derive(Default)]
pub(super) struct Group {
    pub(super) members: Vec<Member>,
    /// The member that gets the next entry.
    pub(super) next: usize,
    /// Messages of members that have left.
    pub(super) pending: VecDeque<Stored>,
    /// Subscriptions of sessions, also of absent ones: the cursor is kept for them.
    pub(super) references: usize,
}

/// The feeds of an engine.
pub(super) struct Feeds {
    feeds: Vec<Option<Feed>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
    pub(super) ready: Arc<Ready>,
}

impl Feeds {
    pub(super) fn new(engine: Handle<MqttAdapter>) -> Feeds {
        let ready = Ready::new(move || drop(engine.try_send(Command::Ready)));
        Feeds { feeds: Vec::new(), free: Vec::new(), by_key: HashMap::new(), ready }
    }

    pub(super) fn get(&self, index: u32) -> Option<&Feed> {
        self.feeds.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Feed> {
        self.feeds.get_mut(index as usize)?.as_mut()
    }

    /// Returns the feed with a name, if there is one.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// Begins a feed, which is read in a later turn.
    ///
    /// # Errors
    /// That of the bus: its limit of subscriptions, or an invalid pattern.
    pub(super) fn open(&mut self, bus: &Bus, key: Key, kind: Kind, start: Resume) -> Result<u32> {
        let subscription = subscribe(bus, &key, &start)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.feeds.push(None);
            (self.feeds.len() - 1) as u32
        });
        let queued = FeedWaker::new(index, &self.ready);
        let waker = queued.waker();
        self.by_key.insert(key.clone(), index);
        let position = match start {
            Resume::Topic(position) => Some(position),
            _ => subscription.begins_after(),
        };
        let feed =
            Feed { key, subscription, queued, waker, kind, stash: None, start, position, is_stalled: false };
        // The first poll registers the waker.
        feed.requeue();
        self.feeds[index as usize] = Some(feed);
        Ok(index)
    }

    /// Ends a feed.
    pub(super) fn close(&mut self, index: u32, subscribers: &mut Subscribers) -> Option<Feed> {
        let feed = self.feeds.get_mut(index as usize)?.take()?;
        self.by_key.remove(&feed.key);
        self.free.push(index);
        if let Kind::Live(live) = &feed.kind {
            live.variants.iter().for_each(|variant| subscribers.close_buffer(variant.buffer));
        }
        Some(feed)
    }

    /// Has a feed read again in a later turn.
    pub(super) fn requeue(&mut self, index: u32) {
        if let Some(feed) = self.get_mut(index) {
            feed.is_stalled = false;
            feed.requeue();
        }
    }

    /// Begins the subscription of a feed again, after the bus has ended it.
    ///
    /// # Errors
    /// That of the bus.
    pub(super) fn begin_again(&mut self, index: u32, bus: &Bus) -> Result<()> {
        if let Some(feed) = self.get_mut(index) {
            let start = feed.resume();
            feed.subscription = subscribe(bus, &feed.key, &start)?;
        }
        Ok(())
    }
}

fn subscribe(bus: &Bus, key: &Key, start: &Resume) -> Result<Subscription<Bytes>> {
    let subscribe = bus.subscribe_encoded(key.topics());
    feed::begin(match (key, start) {
        (Key::Group(group, _), _) => subscribe.group(&**group),
        (_, Resume::Head) => subscribe,
        (_, Resume::Pattern(checkpoint)) => subscribe.resume((**checkpoint).clone()),
        // Nothing of the log was read: a topic without entries and cursors is removed, and has another log later.
        (_, Resume::Topic(position)) if position.offset == 0 => subscribe.last(usize::MAX),
        (_, Resume::Topic(position)) => subscribe.after(*position),
    })
}

impl Feed {
    /// Returns the next item. `Pending` means that the bus wakes the engine for the next one.
    pub(super) fn poll(&mut self) -> Poll<Option<Result<Delivery<Bytes>>>> {
        if let Some(item) = self.stash.take() {
            return Poll::Ready(Some(Ok(item)));
        }
        self.queued.clear();
        // Not a future, whose end would leave the next entries to other members of a group.
        let polled = Pin::new(&mut self.subscription).poll_next(&mut Context::from_waker(&self.waker));
        match &polled {
            Poll::Ready(Some(Ok(Delivery::Entry(message)))) => {
                self.position = self.position.map(|_| message.position());
            }
            Poll::Ready(Some(Ok(Delivery::Gap(gap)))) => {
                let offset = gap.range.end.saturating_sub(1);
                self.position = self.position.map(|_| Position { epoch: gap.epoch, offset });
            }
            _ => {}
        }
        polled
    }

    /// Reads the outcome of a start behind the head: the reason of a gap, and the number of missing entries if all are
    /// counted.
    pub(super) fn outcome(&mut self) -> Option<(GapReason, Option<u64>)> {
        let mut found: Option<(GapReason, Option<u64>)> = None;
        loop {
            match self.poll() {
                Poll::Ready(Some(Ok(Delivery::Gap(Gap { reason, missing, .. })))) => {
                    found = Some(match found {
                        None => (reason, missing),
                        Some((first, count)) => {
                            (first, count.zip(missing).map(|(count, more)| count.saturating_add(more)))
                        }
                    });
                }
                Poll::Ready(Some(Ok(Delivery::Entry(message)))) => {
                    let missing = message.position().offset.saturating_sub(1);
                    let is_start = matches!(self.start, Resume::Topic(Position { offset: 0, .. }));
                    if is_start && missing > 0 {
                        found = Some((GapReason::Expired, Some(missing)));
                    }
                    self.stash = Some(Delivery::Entry(message));
                    break;
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) | Poll::Pending => break,
            }
        }
        self.requeue();
        found
    }

    /// Returns where a later subscription continues.
    pub(super) fn resume(&self) -> Resume {
        match self.subscription.checkpoint() {
            _ if self.stash.is_some() => self.start.clone(),
            Some(checkpoint) => Resume::Pattern(Box::new(checkpoint.clone())),
            None => self.position.map_or(Resume::Head, Resume::Topic),
        }
    }

    /// The feed was taken from the list of those that have entries: the next wake adds it again.
    pub(super) fn dequeued(&self) {
        self.queued.clear();
    }

    /// Has the feed read again in a later turn.
    pub(super) fn requeue(&self) {
        self.waker.wake_by_ref();
    }
}
