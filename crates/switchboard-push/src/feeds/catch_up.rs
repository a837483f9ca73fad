//! Subscribers that begin in the past: they read kept entries until they are where the others are.

use super::{
    Begun, Encoder, Feeds, Notice, Outcome,
    command::{FeedCommand, Kind},
    feed::{Beginning, Members, Place, Taken, UNATTACHED, begin},
};
use crate::{
    control::{self, Control},
    counters::{DropReason, add},
    start::Start,
};
use bytes::Bytes;
use futures_core::Stream;
use std::{
    hash::Hash,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use switchboard::{Result, Status};
use switchboard_adapter::parts::Task;
use switchboard_fanout::{BufferId, SubscriberId, Subscribers};
use switchboard_message::{Delivery, Gap, GapReason, Message, Position, Subscription, Topic};

/// Bytes that wait for a subscriber, at which it reads no further kept entries.
const WAITING_BYTES: usize = 64 << 10;

/// A subscriber that is not attached yet.
pub(super) struct Waiting<K> {
    pub(super) id: SubscriberId,
    pub(super) key: K,
    start: Start,
    source: Source,
    /// Position of the last entry that was sent to it.
    position: Option<Position>,
    has_begun: bool,
    /// Orders before this time, in milliseconds, were for earlier connections.
    orders_from: u64,
    /// It has as much to write as it may.
    pub(super) is_blocked: bool,
}

enum Source {
    None,
    Beginning(#[allow(dead_code, reason = "it ends with this value")] Task),
    Reading(Box<Subscription<Bytes>>),
}

/// The next step of a subscriber.
enum Step {
    /// It waits for the bus, or for its socket.
    Wait,
    Attach,
    Failed(Status),
}

impl<K> Waiting<K> {
    pub(super) fn new(id: SubscriberId, key: K, start: Start) -> Waiting<K> {
        Waiting {
            id,
            key,
            start,
            source: Source::None,
            position: None,
            has_begun: false,
            orders_from: control::now_ms(),
            is_blocked: false,
        }
    }

    /// Returns whether it has what the others have.
    fn has_reached(&self, others: Option<Position>) -> bool {
        match (self.position, others) {
            (Some(own), Some(others)) => own.epoch == others.epoch && own.offset >= others.offset,
            _ => false,
        }
    }
}

/// Calls the encoder for the beginning of a subscription.
fn send_begun<E: Encoder>(
    waiting: &mut Waiting<E::Key>,
    topic: &Topic,
    outcome: Outcome<'_>,
    encoder: &mut E,
    subscribers: &mut Subscribers,
) {
    waiting.has_begun = true;
    let begun = Begun { topic, position: waiting.position, outcome };
    subscribers.send(waiting.id, |out| encoder.begun(waiting.id, &waiting.key, &begun, out));
}

/// Returns the position after a gap.
pub(crate) fn after(gap: &Gap) -> Position {
    let next = if gap.reason == GapReason::Lost { gap.range.start } else { gap.range.end };
    Position { epoch: gap.epoch, offset: next.saturating_sub(1) }
}

impl<K: Clone + Eq + Hash + Send + 'static> Feeds<K> {
    /// Lets the waiting subscribers of a topic begin.
    pub(super) fn advance<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let ready = self.ready.clone();
        let Some(feed) = self.feed_mut(index).filter(|feed| feed.has_begun() && !feed.waiting.is_empty())
        else {
            return;
        };
        let needs_waker = feed.waiting.iter().any(|waiting| waiting.start != Start::Next);
        let waker = if needs_waker { feed.waker(&ready) } else { Waker::noop().clone() };
        let (topic, others) = (feed.topic.clone(), feed.position);
        for mut waiting in std::mem::take(&mut feed.waiting) {
            let step = match waiting.start {
                Start::Next => {
                    waiting.position = others;
                    if !waiting.has_begun {
                        send_begun(&mut waiting, &topic, Outcome::Live, encoder, subscribers);
                    }
                    Step::Attach
                }
                _ => self.catch_up(index, &mut waiting, (&topic, others, &waker), encoder, subscribers),
            };
            match step {
                Step::Attach => self.attach(index, waiting.id, waiting.key, encoder, subscribers),
                Step::Wait => {
                    if let Some(feed) = self.feed_mut(index) {
                        feed.waiting.push(waiting);
                    }
                }
                Step::Failed(status) => self.failed(index, waiting.id, status),
            }
        }
        self.remove_if_unused(index);
    }

    /// The subscription of a subscriber has failed.
    pub(super) fn failed(&mut self, index: u32, id: SubscriberId, status: Status) {
        let Some(feed) = self.feed(index) else { return };
        let topic = feed.topic.clone();
        if let Some(places) = self.places.get_mut(&id) {
            places.retain(|place| place.feed != index);
        }
        self.notices.push_back(Notice::Failed(id, topic, status));
    }

    pub(super) fn remove_if_unused(&mut self, index: u32) {
        if let Some(feed) = self.feed(index).filter(|feed| feed.is_unused()) {
            let topic = feed.topic.clone();
            self.by_topic.remove(&topic);
            self.feeds[index as usize] = None;
            self.free.push(index);
        }
    }

    /// Sends kept entries to a subscriber, as many as it may have.
    fn catch_up<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        waiting: &mut Waiting<K>,
        (topic, others, waker): (&Topic, Option<Position>, &Waker),
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) -> Step {
        if let Source::None = waiting.source
            && let Err(status) = self.begin_catch_up(index, waiting, topic)
        {
            return Step::Failed(status);
        }
        let Source::Reading(_) = &waiting.source else { return Step::Wait };
        if !waiting.has_begun && !waiting.start.has_outcome() {
            send_begun(waiting, topic, Outcome::Live, encoder, subscribers);
        }
        loop {
            if waiting.is_blocked {
                return Step::Wait;
            }
            // Without a position, the others have had no entry: all of them are to come.
            if waiting.has_begun && (others.is_none() || waiting.has_reached(others)) {
                return Step::Attach;
            }
            let Source::Reading(subscription) = &mut waiting.source else { return Step::Wait };
            match Pin::new(subscription).poll_next(&mut Context::from_waker(waker)) {
                Poll::Pending => return Step::Wait,
                Poll::Ready(Some(Ok(delivery))) => self.kept(waiting, topic, delivery, encoder, subscribers),
                Poll::Ready(Some(Err(status))) => return Step::Failed(status),
                Poll::Ready(None) => {
                    return Step::Failed(Status::resource_exhausted("the topic has closed a slow reader"));
                }
            }
        }
    }

    fn begin_catch_up(&self, index: u32, waiting: &mut Waiting<K>, topic: &Topic) -> Result<()> {
        let generation = self.feed(index).map_or(0, |feed| feed.generation);
        let (id, feed) = (waiting.id, index);
        let command = move |result| FeedCommand(Kind::CatchUp { feed, generation, id, result });
        match begin(&self.state.bus, topic, waiting.start, &self.engine, command)? {
            Beginning::Begun(subscription) => waiting.read(subscription),
            Beginning::Waits(task) => waiting.source = Source::Beginning(task),
        }
        Ok(())
    }

    /// Sends an item of the past to a subscriber.
    fn kept<E: Encoder<Key = K>>(
        &mut self,
        waiting: &mut Waiting<K>,
        topic: &Topic,
        delivery: Delivery<Bytes>,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let counters = self.state.counters.clone();
        match delivery {
            Delivery::Entry(message) => {
                waiting.position = Some(message.position());
                if let Some(order) = Control::of(message.entry()) {
                    let is_late = control::is_before(message.headers(), waiting.orders_from);
                    let order = order.filter(|_| !is_late).map(|order| Notice::Order(waiting.id, order));
                    return self.notices.extend(order);
                }
                if !encoder.admits(&waiting.key, &message) {
                    return counters.dropped(DropReason::Filtered, 1);
                }
                let entries: [&Message<Bytes>; 1] = [&message];
                let bytes = subscribers
                    .send(waiting.id, |out| encoder.encode_for(waiting.id, &waiting.key, &entries, out));
                add(&counters.delivered, 1);
                waiting.is_blocked = bytes >= WAITING_BYTES;
            }
            Delivery::Gap(gap) => {
                counters.dropped(gap.reason.into(), gap.missing.unwrap_or(1));
                waiting.position = Some(after(&gap));
                if waiting.has_begun {
                    subscribers.send(waiting.id, |out| encoder.gap(&waiting.key, &gap, out));
                } else {
                    send_begun(waiting, topic, Outcome::Gap(&gap), encoder, subscribers);
                }
            }
            Delivery::Recovered if !waiting.has_begun => {
                send_begun(waiting, topic, Outcome::Complete, encoder, subscribers);
            }
            _ => {}
        }
    }

    /// A subscriber has lost bytes of a buffer: it goes on with what the topic keeps.
    pub(super) fn catch_up_after_lag<E: Encoder<Key = K>>(
        &mut self,
        id: SubscriberId,
        buffer: BufferId,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) -> bool {
        let Some(places) = self.places.get(&id) else { return false };
        let found = places.iter().copied().find_map(|place| {
            let group = self.feed(place.feed)?.groups.get(place.group as usize)?.as_ref()?;
            match &group.members {
                Members::Buffer(shared) if shared.buffer == buffer => Some((place, shared)),
                _ => None,
            }
        });
        let Some((place, shared)) = found else { return false };
        let cursor = subscribers.position(id, buffer);
        let taken = cursor.map_or(Taken::NotBefore(None), |cursor| shared.taken(cursor));
        let Some(topic) = self.feed(place.feed).map(|feed| feed.topic.clone()) else { return false };
        if !encoder.stays_after_lag(id, &topic) {
            self.state.counters.dropped(DropReason::Lagged, 1);
            return false;
        }
        let (start, lost) = match taken {
            Taken::UpTo(position) => (Start::After(position), None),
            Taken::NotBefore(Some(first)) => (Start::After(first), Some(first)),
            Taken::NotBefore(None) => (Start::Next, None),
        };
        if !matches!(taken, Taken::UpTo(_)) {
            // The number of missing entries is not known.
            self.state.counters.dropped(DropReason::Lagged, 1);
        }
        let key = self.fall_back(id, place, start, subscribers);
        if let (Some(key), Some(first)) = (key, lost) {
            let range = first.offset..first.offset.saturating_add(1);
            let gap = Gap::new(topic, first.epoch, range, None, GapReason::Lagged);
            subscribers.send(id, |out| encoder.gap(&key, &gap, out));
        }
        self.advance(place.feed, encoder, subscribers);
        true
    }

    /// Has a subscriber that is too slow continue with kept entries from a start on; returns its key.
    fn fall_back(
        &mut self,
        id: SubscriberId,
        place: Place,
        start: Start,
        subscribers: &mut Subscribers,
    ) -> Option<K> {
        let feed = self.feed_mut(place.feed)?;
        let key = feed.groups.get(place.group as usize)?.as_ref()?.key.clone();
        let mut waiting = Waiting::new(id, key.clone(), start);
        waiting.has_begun = true;
        // The device has been connected all along: each order after the position is for it.
        waiting.orders_from = 0;
        feed.waiting.push(waiting);
        feed.detach(id, place.group, false, subscribers);
        if let Some(places) = self.places.get_mut(&id) {
            places
                .iter_mut()
                .filter(|known| known.feed == place.feed)
                .for_each(|known| known.group = UNATTACHED);
        }
        Some(key)
    }

    /// Has subscribers that have much to write continue with kept entries once it is written.
    pub(super) fn slow<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        slow: &[SubscriberId],
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        for id in slow {
            let Some(feed) = self.feed(index) else { return };
            let (topic, position) = (feed.topic.clone(), feed.position);
            let place =
                self.places.get(id).and_then(|places| places.iter().find(|place| place.feed == index));
            if let (Some(place), Some(position)) = (place.copied(), position)
                && encoder.stays_after_lag(*id, &topic)
            {
                self.fall_back(*id, place, Start::After(position), subscribers);
                let waiting = self.feed_mut(index).into_iter().flat_map(|feed| &mut feed.waiting);
                waiting.filter(|waiting| waiting.id == *id).for_each(|waiting| waiting.is_blocked = true);
            }
        }
    }
}

impl<K> Waiting<K> {
    pub(super) fn read(&mut self, subscription: Box<Subscription<Bytes>>) {
        self.position = subscription.begins_after();
        self.source = Source::Reading(subscription);
    }
}
