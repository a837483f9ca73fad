//! Delivery of entries of the bus to the groups of subscribers.

use super::{
    Encoder, Feeds, Notice,
    catch_up::after,
    command::{FeedCommand, Kind},
    feed::{Feed, Members, MergeState},
    personal::PersonalKind,
};
use crate::{
    control::Control,
    counters::{Counters, DropReason, add},
    start::Start,
};
use bytes::Bytes;
use smallvec::SmallVec;
use std::{hash::Hash, task::Poll, time::Duration};
use switchboard_adapter::parts::Task;
use switchboard_fanout::{SubscriberId, Subscribers};
use switchboard_message::{Delivery, Gap, Message};
use switchboard_wire::{Outbox, Outgoing};
use tokio::time::sleep;

/// Entries that are delivered in a row, before other connections are served, and their bytes.
const ENTRIES_MAX: usize = 1_024;
const BYTES_MAX: usize = 1 << 20;
/// Entries that are encoded together.
const BATCH_MAX: usize = 64;

impl<K: Clone + Eq + Hash + Send + 'static> Feeds<K> {
    /// Delivers the entries of the topics that have some. Call it after reading from connections that may have
    /// published, so that their entries do not wait for the next command.
    pub fn turn<E: Encoder<Key = K>>(&mut self, encoder: &mut E, subscribers: &mut Subscribers) {
        let mut polled = std::mem::take(&mut self.polled);
        self.ready.take(&mut polled);
        let mut budget = Budget { entries: ENTRIES_MAX, bytes: BYTES_MAX };
        for index in polled.drain(..) {
            if let Some(kind) = PersonalKind::of_index(index) {
                self.deliver_personal(kind, &mut budget, encoder, subscribers);
                continue;
            }
            if self.is_merging(index) {
                continue;
            }
            self.deliver(index, &mut budget, encoder, subscribers);
            self.advance(index, encoder, subscribers);
        }
        self.polled = polled;
    }

    /// Returns whether the entries of a feed wait for the end of its merge window, which may begin now.
    fn is_merging(&mut self, index: u32) -> bool {
        let engine = self.engine.clone();
        let Some(feed) = self.feed_mut(index) else { return false };
        // The first poll registers the waker, and finds no entry.
        if feed.merge.window.is_zero() || !feed.has_begun() || !feed.was_polled {
            return false;
        }
        match feed.merge.state {
            MergeState::Due => false,
            MergeState::Waiting(_) => true,
            MergeState::Idle => {
                let (feed_index, generation, window) = (feed.index, feed.generation, feed.merge.window);
                feed.merge.state = MergeState::Waiting(Task::spawn(async move {
                    sleep(window).await;
                    engine.send(FeedCommand(Kind::Merged { feed: feed_index, generation })).await;
                }));
                true
            }
        }
    }

    pub(super) fn execute<E: Encoder<Key = K>>(
        &mut self,
        command: FeedCommand,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let is_it = |feed: &Feed<K>, generation| feed.generation == generation;
        match command.0 {
            Kind::Ready => {}
            Kind::Close(id, order) => self.notices.push_back(Notice::Close(id, order)),
            Kind::Merged { feed: index, generation } => {
                let Some(feed) = self.feed_mut(index).filter(|feed| is_it(feed, generation)) else { return };
                feed.merge.state = MergeState::Due;
                self.polled.push(index);
            }
            Kind::Begun { feed: index, generation, result } => {
                let Some(feed) = self.feed_mut(index).filter(|feed| is_it(feed, generation)) else { return };
                match result {
                    Ok(subscription) => {
                        feed.begun(subscription);
                        self.polled.push(index);
                    }
                    Err(status) => {
                        let ids: Vec<_> = feed.waiting.drain(..).map(|waiting| waiting.id).collect();
                        for id in ids {
                            self.failed(index, id, status.clone());
                        }
                        self.begin_later(index);
                        self.remove_if_unused(index);
                    }
                }
            }
            Kind::CatchUp { feed: index, generation, id, result } => {
                let Some(feed) = self.feed_mut(index).filter(|feed| is_it(feed, generation)) else { return };
                let Some(at) = feed.waiting.iter().position(|waiting| waiting.id == id) else { return };
                match result {
                    Ok(subscription) => {
                        feed.waiting[at].read(Box::new(subscription));
                        self.advance(index, encoder, subscribers);
                    }
                    Err(status) => {
                        feed.waiting.swap_remove(at);
                        self.failed(index, id, status);
                        self.remove_if_unused(index);
                    }
                }
            }
        }
    }

    /// Delivers the entries of one topic. Subscribers that have much to write then fall back.
    fn deliver<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        budget: &mut Budget,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let mut slow = Slow::new();
        let has_ended = self.deliver_entries(index, budget, encoder, subscribers, &mut slow);
        self.slow(index, &slow, encoder, subscribers);
        if has_ended {
            // The topic closes slow readers, or the engine has ended it: go on after what was delivered.
            self.begin_later(index);
        }
    }

    /// Delivers entries until there are none, or a subscriber is slow. Returns true if the subscription has ended.
    fn deliver_entries<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        budget: &mut Budget,
        encoder: &mut E,
        subscribers: &mut Subscribers,
        slow: &mut Slow,
    ) -> bool {
        let (counters, ready) = (self.state.counters.clone(), self.ready.clone());
        let Some(feed) = self.feeds.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return false;
        };
        let mut batch = SmallVec::<[Message<Bytes>; 4]>::new();
        let scratch = &mut self.scratch;
        loop {
            if batch.len() >= BATCH_MAX || budget.is_spent() {
                feed.flush(&mut batch, encoder, subscribers, (&mut *scratch, &counters), slow);
            }
            if budget.is_spent() || !slow.is_empty() {
                feed.requeue(&ready);
                return false;
            }
            feed.was_polled = true;
            let Poll::Ready(item) = feed.poll(&ready) else {
                feed.merge.state = MergeState::Idle;
                feed.flush(&mut batch, encoder, subscribers, (&mut *scratch, &counters), slow);
                return false;
            };
            match item {
                Some(Ok(Delivery::Entry(message))) => {
                    feed.position = Some(message.position());
                    budget.spend(message.len());
                    let order = if feed.is_personal { Control::of(message.entry()) } else { None };
                    let Some(order) = order else {
                        batch.push(message);
                        continue;
                    };
                    feed.flush(&mut batch, encoder, subscribers, (&mut *scratch, &counters), slow);
                    if let Some(order) = order {
                        self.notices.extend(feed.each().map(|id| Notice::Order(id, order.clone())));
                    }
                }
                Some(Ok(Delivery::Gap(gap))) => {
                    feed.flush(&mut batch, encoder, subscribers, (&mut *scratch, &counters), slow);
                    feed.position = Some(after(&gap));
                    feed.missed(&gap, encoder, subscribers, (&mut *scratch, &counters));
                }
                Some(Ok(_)) => {}
                Some(Err(status)) => tracing::warn!("push: topic \"{}\": {status}", feed.topic),
                None => {
                    feed.flush(&mut batch, encoder, subscribers, (&mut *scratch, &counters), slow);
                    return true;
                }
            }
        }
    }

    /// Begins the subscription of a feed again, after its last entry.
    fn begin_later(&mut self, index: u32) {
        let (bus, engine) = (self.state.bus.clone(), self.engine.clone());
        let Some(feed) = self.feed_mut(index) else { return };
        let start = feed.position.map_or(Start::Next, Start::After);
        let topic = feed.topic.clone();
        feed.begin_after(PAUSE, engine, async move { start.subscribe(&bus, &topic).await });
    }
}

/// Pause before a subscription that the bus has ended begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// Entries and bytes that may still be delivered in this turn.
pub(super) struct Budget {
    entries: usize,
    bytes: usize,
}

impl Budget {
    pub(super) fn is_spent(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Feed<K> {
    /// Sends entries to all groups, and empties the batch.
    pub(super) fn flush<E: Encoder<Key = K>>(
        &mut self,
        batch: &mut SmallVec<[Message<Bytes>; 4]>,
        encoder: &mut E,
        subscribers: &mut Subscribers,
        (scratch, counters): (&mut Outbox, &Counters),
        slow: &mut Slow,
    ) {
        let Some(last) = batch.last().map(Message::position) else { return };
        let mut admitted = SmallVec::<[&Message<Bytes>; 4]>::new();
        for group in self.groups.iter_mut().flatten() {
            admitted.clear();
            admitted.extend(batch.iter().filter(|entry| encoder.admits(&group.key, entry)));
            let members = group.members.len() as u64;
            let filtered = (batch.len() - admitted.len()) as u64;
            counters.dropped(DropReason::Filtered, filtered.saturating_mul(members));
            if admitted.is_empty() {
                continue;
            }
            let entries = (admitted.len() as u64).saturating_mul(members);
            if let Members::Each(members) = &group.members
                && !encoder.is_shared(&group.key)
            {
                for id in members {
                    subscribers.send(*id, |out| encoder.encode_for(*id, &group.key, &admitted, out));
                }
                add(&counters.delivered, entries);
                continue;
            }
            encoder.encode(&group.key, &admitted, scratch);
            if scratch.is_empty() {
                counters.dropped(DropReason::NotEncodable, entries);
                continue;
            }
            send(&group.members, &Bytes::from(scratch.take_all()), subscribers, slow);
            if let Members::Buffer(shared) = &mut group.members {
                shared.mark(subscribers.head(shared.buffer), last);
            }
            add(&counters.delivered, entries);
        }
        drop(admitted);
        batch.clear();
    }

    /// Reports missing entries to all groups.
    pub(super) fn missed<E: Encoder<Key = K>>(
        &self,
        gap: &Gap,
        encoder: &mut E,
        subscribers: &mut Subscribers,
        (scratch, counters): (&mut Outbox, &Counters),
    ) {
        for group in self.groups.iter().flatten() {
            let entries = gap.missing.unwrap_or(1).saturating_mul(group.members.len() as u64);
            counters.dropped(gap.reason.into(), entries);
            encoder.gap(&group.key, gap, scratch);
            if !scratch.is_empty() {
                send(&group.members, &Bytes::from(scratch.take_all()), subscribers, &mut Slow::new());
            }
        }
    }

    /// Returns the subscribers of groups without a buffer: all of a personal topic.
    pub(super) fn each(&self) -> impl Iterator<Item = SubscriberId> {
        self.groups.iter().flatten().flat_map(|group| match &group.members {
            Members::Each(members) => members.iter().copied(),
            Members::Buffer(..) => [].iter().copied(),
        })
    }
}

/// Subscribers that have much to write.
pub(super) type Slow = SmallVec<[SubscriberId; 4]>;

/// Bytes that wait for a subscriber, at which it is slow.
const SLOW_BYTES: usize = 256 << 10;

/// Sends bytes to the members of a group.
fn send(members: &Members, bytes: &Bytes, subscribers: &mut Subscribers, slow: &mut Slow) {
    match members {
        Members::Buffer(shared) => subscribers.append(shared.buffer, &[], bytes),
        Members::Each(members) => {
            for id in members {
                let waiting = subscribers.send(*id, |out| out.put(Outgoing::Lent(bytes)));
                if waiting >= SLOW_BYTES && !slow.contains(id) {
                    slow.push(*id);
                }
            }
        }
    }
}
