//! Topics for the connections of a fan-out engine: one subscription of the bus per topic and worker, and one broadcast
//! buffer per topic and encoding key.
//!
//! An adapter of a protocol implements [`Adapter`] for its connections and [`Encoder`] for
//! its frames, and keeps [`Feeds`] beside its peers:
//!
//! ```text
//! Adapter::connected    ─► a peer with its machine, and no device; the timer of Heartbeat::login
//! Adapter::received     ─► machine ─► Hub::verify (task) ─► Hub::connect(…, EngineCloser) ─► Feeds::subscribe (own)
//!                          a room: Device::join ─► Feeds::subscribe(topic, key, start) ─► Encoder::begun, then entries
//! Adapter::command      ─► Feeds::command ─► Encoder::encode ─► Feeds::next_notice: orders to devices
//! Adapter::disconnected ─► Feeds::disconnected, and the device is dropped
//! ```

mod catch_up;
mod command;
mod deliver;
mod feed;
mod personal;

pub(crate) use catch_up::after;
pub use command::{EngineCloser, FeedCommand};

use crate::{
    control::Control,
    disconnect::Disconnect,
    hub::{Hub, State},
    names,
    start::Start,
};
use bytes::Bytes;
use catch_up::Waiting;
use command::{Ready, Sender};
use feed::{Feed, Place, UNATTACHED};
use personal::Personal;
use smallvec::SmallVec;
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::Hash,
    sync::Arc,
};
use switchboard::{Result, Status};
use switchboard_fanout::{Adapter, BufferId, Handle, SubscriberId, Subscribers};
use switchboard_message::{Gap, Message, Position, Topic};
use switchboard_wire::Outbox;

/// Encodes entries for the subscribers of a protocol.
pub trait Encoder: Send + 'static {
    /// The parameters that determine the bytes of frames, with the filter of the device: subscribers of a topic with
    /// equal keys share one broadcast buffer.
    type Key: Clone + Eq + Hash + Send + 'static;

    /// Returns whether all subscribers with this key get the same bytes. If not, [`encode_for`](Self::encode_for) is
    /// called for each of them.
    fn is_shared(&self, _key: &Self::Key) -> bool {
        true
    }

    /// Returns whether subscribers with this key get the entry: the filter of their operations.
    fn admits(&self, _key: &Self::Key, _entry: &Message<Bytes>) -> bool {
        true
    }

    /// Appends the frames of entries of one topic: one entry, or those of a merge window. Appending nothing means that
    /// the protocol cannot express them, which is counted.
    fn encode(&mut self, key: &Self::Key, entries: &[&Message<Bytes>], out: &mut Outbox);

    /// Appends the frames of entries for one subscriber: while it catches up, and always for a key that is not
    /// [shared](Self::is_shared).
    fn encode_for(
        &mut self,
        _id: SubscriberId,
        key: &Self::Key,
        entries: &[&Message<Bytes>],
        out: &mut Outbox,
    ) {
        self.encode(key, entries, out);
    }

    /// A subscription has begun: appends the response of the protocol, with the outcome of a recovery. Entries follow.
    fn begun(&mut self, _id: SubscriberId, _key: &Self::Key, _begun: &Begun<'_>, _out: &mut Outbox) {}

    /// Appends the report of entries that all subscribers with this key do not get; nothing if the protocol has no such
    /// report.
    fn gap(&mut self, _key: &Self::Key, _gap: &Gap, _out: &mut Outbox) {}

    /// A subscriber was too slow for its broadcast buffer. Returns whether it stays: it then gets the entries that the
    /// topic keeps, or a [gap](Self::gap). The default closes it.
    fn stays_after_lag(&mut self, _id: SubscriberId, _topic: &Topic) -> bool {
        false
    }
}

/// The beginning of a subscription.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Begun<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// The position after which entries follow: from the start that was wanted, if nothing is missing. `None` if the
    /// engine of the bus has none.
    pub position: Option<Position>,
    /// The outcome: entries are missing, or not.
    pub outcome: Outcome<'a>,
}

/// Outcome of a start.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It began with the next entry, or with kept ones.
    Live,
    /// It began after a position, or with an age: nothing is missing.
    Complete,
    /// It began after a position, or with an age: these entries are missing.
    Gap(&'a Gap),
}

/// A task of the adapter for a subscriber.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Pass the order to [`Device::order`](crate::Device::order), and execute what it returns.
    Order(SubscriberId, Control),
    /// Close the connection, in the form of the protocol.
    Close(SubscriberId, Disconnect),
    /// The subscription to a topic failed after it was accepted, or has ended.
    Failed(SubscriberId, Topic, Status),
}

/// The topics of an engine. Call [`command`](Self::command) for each [`FeedCommand`], and
/// [`next_notice`](Self::next_notice) until it is `None` after each call of `subscribe`, `command` and `turn`.
pub struct Feeds<K> {
    state: Arc<State>,
    engine: Arc<dyn Sender>,
    feeds: Vec<Option<Box<Feed<K>>>>,
    free: Vec<u32>,
    by_topic: HashMap<Topic, u32>,
    /// Topics of each subscriber.
    places: HashMap<SubscriberId, SmallVec<[Place; 4]>>,
    ready: Arc<Ready>,
    /// Topics of users, and of keys, where they are in this process: an idle device has no topic of its own.
    personal: [Option<Personal>; 2],
    /// Feeds that are polled in this turn.
    polled: Vec<u32>,
    notices: VecDeque<Notice>,
    /// Memory of frames that are encoded.
    scratch: Outbox,
    generation: u32,
}

impl<K: Clone + Eq + Hash + Send + 'static> Feeds<K> {
    /// Creates the topics of an engine, without any.
    pub fn new<A>(hub: &Hub, engine: Handle<A>) -> Feeds<K>
    where
        A: Adapter<Command: From<FeedCommand>>,
    {
        let engine: Arc<dyn Sender> = Arc::new(engine);
        Feeds {
            state: hub.state.clone(),
            ready: Arc::new(Ready::new(engine.clone())),
            engine,
            feeds: Vec::new(),
            free: Vec::new(),
            by_topic: HashMap::new(),
            places: HashMap::new(),
            personal: [None, None],
            polled: Vec::new(),
            notices: VecDeque::new(),
            scratch: Outbox::new(),
            generation: 0,
        }
    }

    /// Subscribes a connection to a topic. [`Encoder::begun`] is called before the first entry: before this function
    /// returns for topics of this process and a start at the next entry, else perhaps later. A connection that is
    /// subscribed already stays as it is; [`rekey`](Self::rekey) changes its key.
    ///
    /// # Errors
    /// Returns the errors of the bus, such as its limit of subscriptions.
    pub fn subscribe<E: Encoder<Key = K>>(
        &mut self,
        id: SubscriberId,
        topic: &Topic,
        (key, start): (K, Start),
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) -> Result<()> {
        let index = match self.by_topic.get(topic) {
            Some(index) => *index,
            None => self.open(topic)?,
        };
        let places = self.places.entry(id).or_default();
        if places.iter().any(|place| place.feed == index) {
            return Ok(());
        }
        places.push(Place { feed: index, group: UNATTACHED });
        if let Some(feed) = self.feed_mut(index) {
            feed.waiting.push(Waiting::new(id, key, start));
        }
        self.advance(index, encoder, subscribers);
        Ok(())
    }

    /// Unsubscribes a connection from a topic; returns false if it was not subscribed. Entries that were sent to it
    /// before arrive.
    pub fn unsubscribe(&mut self, id: SubscriberId, topic: &Topic, subscribers: &mut Subscribers) -> bool {
        let Some(index) = self.by_topic.get(topic).copied() else { return false };
        let Some(places) = self.places.get_mut(&id) else { return false };
        let Some(at) = places.iter().position(|place| place.feed == index) else { return false };
        let place = places.swap_remove(at);
        if places.is_empty() {
            self.places.remove(&id);
        }
        self.release(id, place, subscribers);
        true
    }

    /// Ends all subscriptions of a connection.
    pub fn disconnected(&mut self, id: SubscriberId, subscribers: &mut Subscribers) {
        for place in self.places.remove(&id).unwrap_or_default() {
            self.release(id, place, subscribers);
        }
    }

    /// Changes the encoding key of a connection for all its topics, after its filter or its protocol options have
    /// changed.
    pub fn rekey<E: Encoder<Key = K>>(
        &mut self,
        id: SubscriberId,
        key: &K,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let places = self.places.get(&id).cloned().unwrap_or_default();
        for place in places {
            if place.group == UNATTACHED {
                let waiting = self.feed_mut(place.feed).map(|feed| &mut feed.waiting);
                for waiting in waiting.into_iter().flatten().filter(|waiting| waiting.id == id) {
                    waiting.key = key.clone();
                }
                continue;
            }
            if let Some(feed) = self.feed_mut(place.feed) {
                feed.detach(id, place.group, true, subscribers);
            }
            self.attach(place.feed, id, key.clone(), encoder, subscribers);
        }
    }

    /// Returns the topics of a connection.
    pub fn topics(&self, id: SubscriberId) -> impl Iterator<Item = &Topic> {
        let places = self.places.get(&id).into_iter().flatten();
        places.filter_map(|place| self.feed(place.feed).map(|feed| &feed.topic))
    }

    /// Returns the position up to which the subscribers of a topic on this worker have been sent its entries, for
    /// resume tokens.
    pub fn position(&self, topic: &Topic) -> Option<Position> {
        self.feed(*self.by_topic.get(topic)?)?.position
    }

    /// Handles a command, and delivers the entries that are ready.
    pub fn command<E: Encoder<Key = K>>(
        &mut self,
        command: FeedCommand,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        self.execute(command, encoder, subscribers);
        self.turn(encoder, subscribers);
    }

    /// Returns what the adapter must do next for a subscriber.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// A subscriber has lagged, as [`Adapter::lagged`] reports it. Returns false if it must be closed: then call
    /// [`Subscribers::abort`].
    pub fn lagged<E: Encoder<Key = K>>(
        &mut self,
        id: SubscriberId,
        buffer: BufferId,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) -> bool {
        self.catch_up_after_lag(id, buffer, encoder, subscribers)
    }

    /// The outbox of a subscriber is written, as [`Adapter::drained`] reports it: it catches up further.
    pub fn drained<E: Encoder<Key = K>>(
        &mut self,
        id: SubscriberId,
        encoder: &mut E,
        subscribers: &mut Subscribers,
    ) {
        let Some(places) = self.places.get(&id) else { return };
        let waiting: SmallVec<[u32; 4]> =
            places.iter().filter(|place| place.group == UNATTACHED).map(|place| place.feed).collect();
        for index in waiting {
            for waiting in self.feed_mut(index).into_iter().flat_map(|feed| &mut feed.waiting) {
                if waiting.id == id {
                    waiting.is_blocked = false;
                }
            }
            self.advance(index, encoder, subscribers);
        }
    }

    fn feed(&self, index: u32) -> Option<&Feed<K>> {
        self.feeds.get(index as usize)?.as_deref()
    }

    fn feed_mut(&mut self, index: u32) -> Option<&mut Feed<K>> {
        self.feeds.get_mut(index as usize)?.as_deref_mut()
    }

    /// Subscribes to a topic of the bus.
    fn open(&mut self, topic: &Topic) -> Result<u32> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.feeds.push(None);
            (self.feeds.len() - 1) as u32
        });
        self.generation = self.generation.wrapping_add(1);
        let merge = names::room_of(topic.name()).map(|room| self.state.class_of(room).settings.merge);
        let mut feed = Feed::new(topic, (index, self.generation), merge.unwrap_or_default());
        let begun = match feed.is_personal && !self.state.is_shared {
            true => self.begin_personal(&mut feed),
            // The first poll registers the waker.
            false => feed.begin(&self.state.bus, Start::Next, &self.engine).map(|()| self.ready.push(index)),
        };
        if let Err(status) = begun {
            self.free.push(index);
            return Err(status);
        }
        self.by_topic.insert(topic.clone(), index);
        self.feeds[index as usize] = Some(Box::new(feed));
        Ok(index)
    }

    /// Removes a connection from a topic; the last one ends the subscription of the bus.
    fn release(&mut self, id: SubscriberId, place: Place, subscribers: &mut Subscribers) {
        let Some(feed) = self.feed_mut(place.feed) else { return };
        if place.group == UNATTACHED {
            feed.waiting.retain(|waiting| waiting.id != id);
        } else {
            feed.detach(id, place.group, true, subscribers);
        }
        self.remove_if_unused(place.feed);
        if self.places.is_empty() {
            self.personal = [None, None];
        }
    }

    /// Has a subscriber receive the entries of a topic from now on.
    fn attach<E: Encoder<Key = K>>(
        &mut self,
        index: u32,
        id: SubscriberId,
        key: K,
        encoder: &E,
        subscribers: &mut Subscribers,
    ) {
        let is_shared = encoder.is_shared(&key);
        let Some(feed) = self.feed_mut(index) else { return };
        let group = feed.attach(id, key, is_shared, subscribers);
        if let Some(place) =
            self.places.get_mut(&id).and_then(|places| places.iter_mut().find(|place| place.feed == index))
        {
            place.group = group;
        }
    }
}

impl<K> fmt::Debug for Feeds<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feeds")
            .field("topics", &self.by_topic.len())
            .field("subscribers", &self.places.len())
            .finish_non_exhaustive()
    }
}
