//! A topic of an engine, and the groups of subscribers that get equal bytes.

use super::{
    catch_up::Waiting,
    command::{FeedCommand, FeedWaker, Kind, Ready, Sender},
};
use crate::{names, start::Start};
use bytes::Bytes;
use futures_core::Stream;
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use switchboard::Result;
use switchboard_adapter::parts::Task;
use switchboard_fanout::{BufferId, SubscriberId, Subscribers};
use switchboard_message::{Bus, Delivery, Position, Subscription, Topic};
use tokio::time::sleep;

/// Subscribers of a group that has a broadcast buffer, at least. For fewer, each gets a copy at once.
const BUFFER_FROM: usize = 8;
/// A subscriber that is not attached to a group: it waits for its start.
pub(super) const UNATTACHED: u32 = u32::MAX;

/// The place of a subscriber in a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) feed: u32,
    pub(super) group: u32,
}

/// A topic of an engine.
pub(super) struct Feed<K> {
    pub(super) topic: Topic,
    pub(super) index: u32,
    pub(super) generation: u32,
    /// `None` while it begins.
    subscription: Option<Subscription<Bytes>>,
    #[allow(dead_code, reason = "it ends with this value")]
    beginning: Option<Task>,
    /// Position up to which entries were delivered to the groups.
    pub(super) position: Option<Position>,
    /// Wakes the engine for this feed; created when it is needed.
    waking: Option<(Arc<FeedWaker>, Waker)>,
    /// Its entries arrive by the subscription to all topics of its kind.
    pub(super) is_shared: bool,
    /// Entries up to this one were published before the feed.
    pub(super) skip: Option<Position>,
    pub(super) groups: SmallVec<[Option<Group<K>>; 1]>,
    pub(super) waiting: Vec<Waiting<K>>,
    pub(super) merge: Merge,
    /// Orders to devices arrive here.
    pub(super) is_personal: bool,
    /// The waker is registered with the bus.
    pub(super) was_polled: bool,
}

/// The merge window of a topic.
pub(super) struct Merge {
    pub(super) window: Duration,
    pub(super) state: MergeState,
}

pub(super) enum MergeState {
    Idle,
    Waiting(#[allow(dead_code, reason = "it ends with this value")] Task),
    Due,
}

/// Subscribers of a topic with one encoding key.
pub(super) struct Group<K> {
    pub(super) key: K,
    pub(super) members: Members,
}

pub(super) enum Members {
    Each(SmallVec<[SubscriberId; 2]>),
    Buffer(Box<Shared>),
}

/// A broadcast buffer of a group.
pub(super) struct Shared {
    pub(super) buffer: BufferId,
    /// Number of its members.
    members: usize,
    /// Positions of the buffer after the last entries, each with that of the topic.
    marks: VecDeque<(u64, Position)>,
}

/// The entries that a subscriber has taken of a buffer.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// All entries up to this one.
    UpTo(Position),
    /// It has missed this entry, the first whose position is remembered, and perhaps some before it.
    NotBefore(Option<Position>),
}

/// Entries whose positions a buffer remembers.
const MARKS_MAX: usize = 4_096;

impl Shared {
    /// Creates a buffer whose members have been sent the entries up to a position.
    fn new(buffer: BufferId, members: usize, (head, position): (u64, Option<Position>)) -> Shared {
        let marks = position.map(|position| (head, position));
        Shared { buffer, members, marks: marks.into_iter().collect() }
    }

    /// Notes the position of an entry that was appended.
    pub(super) fn mark(&mut self, head: u64, position: Position) {
        if self.marks.len() >= MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back((head, position));
    }

    /// Returns the position after which a subscriber goes on that has taken the bytes up to `cursor`.
    pub(super) fn taken(&self, cursor: u64) -> Taken {
        let after = self.marks.partition_point(|(head, _)| *head <= cursor);
        match after.checked_sub(1).and_then(|last| self.marks.get(last)) {
            Some((_, position)) => Taken::UpTo(*position),
            None => Taken::NotBefore(self.marks.front().map(|(_, position)| *position)),
        }
    }
}

impl Members {
    pub(super) fn len(&self) -> usize {
        match self {
            Members::Each(members) => members.len(),
            Members::Buffer(shared) => shared.members,
        }
    }
}

impl<K: Clone + Eq> Feed<K> {
    pub(super) fn new(topic: &Topic, (index, generation): (u32, u32), window: Duration) -> Feed<K> {
        Feed {
            topic: topic.clone(),
            index,
            generation,
            subscription: None,
            beginning: None,
            position: None,
            waking: None,
            is_shared: false,
            skip: None,
            groups: SmallVec::new(),
            waiting: Vec::new(),
            merge: Merge { window, state: MergeState::Idle },
            is_personal: names::is_personal(topic.name()),
            was_polled: false,
        }
    }

    /// Begins the subscription of the bus: at once for topics of this process, else in a task.
    pub(super) fn begin(&mut self, bus: &Bus, start: Start, engine: &Arc<dyn Sender>) -> Result<()> {
        self.subscription = None;
        let (feed, generation) = (self.index, self.generation);
        let begun = begin(bus, &self.topic, start, engine, move |result| {
            FeedCommand(Kind::Begun { feed, generation, result })
        })?;
        match begun {
            Beginning::Begun(subscription) => self.begun(*subscription),
            Beginning::Waits(task) => self.beginning = Some(task),
        }
        Ok(())
    }

    /// Begins the subscription again after a pause.
    pub(super) fn begin_after(
        &mut self,
        pause: Duration,
        engine: Arc<dyn Sender>,
        subscribe: impl Future<Output = Result<Subscription<Bytes>>> + Send + 'static,
    ) {
        self.subscription = None;
        let (feed, generation) = (self.index, self.generation);
        self.beginning = Some(Task::spawn(async move {
            sleep(pause).await;
            let result = subscribe.await;
            engine.send(FeedCommand(Kind::Begun { feed, generation, result })).await;
        }));
    }

    pub(super) fn begun(&mut self, subscription: Subscription<Bytes>) {
        if self.position.is_none() {
            self.position = subscription.begins_after();
        }
        self.subscription = Some(subscription);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.is_shared || self.subscription.is_some()
    }

    /// Returns the waker that has the feed polled.
    pub(super) fn waker(&mut self, ready: &Arc<Ready>) -> Waker {
        let (_, waker) = self.waking.get_or_insert_with(|| {
            let queued = Arc::new(FeedWaker::new(self.index, ready.clone()));
            (queued.clone(), Waker::from(queued))
        });
        waker.clone()
    }

    /// Returns the next item of the subscription. `Pending` means that the bus wakes the engine for the next one.
    pub(super) fn poll(&mut self, ready: &Arc<Ready>) -> Poll<Option<Result<Delivery<Bytes>>>> {
        if let Some((queued, _)) = &self.waking {
            queued.rearm();
        }
        if self.subscription.is_none() {
            return Poll::Pending;
        }
        let waker = self.waker(ready);
        let Some(subscription) = &mut self.subscription else { return Poll::Pending };
        Pin::new(subscription).poll_next(&mut Context::from_waker(&waker))
    }

    /// Has the feed polled again in a later turn.
    pub(super) fn requeue(&mut self, ready: &Arc<Ready>) {
        self.waker(ready).wake();
    }

    pub(super) fn is_unused(&self) -> bool {
        self.waiting.is_empty() && self.groups.iter().all(Option::is_none)
    }

    /// Adds a subscriber to the group of its key; returns the group.
    pub(super) fn attach(
        &mut self,
        id: SubscriberId,
        key: K,
        is_shared: bool,
        subscribers: &mut Subscribers,
    ) -> u32 {
        let known = self.groups.iter().position(|group| group.as_ref().is_some_and(|group| group.key == key));
        let at = known.unwrap_or_else(|| {
            let group = Some(Group { key, members: Members::Each(SmallVec::new()) });
            match self.groups.iter().position(Option::is_none) {
                Some(free) => {
                    self.groups[free] = group;
                    free
                }
                None => {
                    self.groups.push(group);
                    self.groups.len() - 1
                }
            }
        });
        let may_share = is_shared && !self.is_personal;
        if let Some(group) = &mut self.groups[at] {
            group.add(id, may_share, self.position, subscribers);
        }
        at as u32
    }

    /// Removes a subscriber from a group. With `keeps_rest`, what was appended for it before is sent to it.
    pub(super) fn detach(
        &mut self,
        id: SubscriberId,
        group: u32,
        keeps_rest: bool,
        subscribers: &mut Subscribers,
    ) {
        let Some(slot) = self.groups.get_mut(group as usize) else { return };
        let Some(known) = slot else { return };
        match &mut known.members {
            Members::Each(members) => {
                if let Some(at) = members.iter().position(|member| *member == id) {
                    members.swap_remove(at);
                }
            }
            Members::Buffer(shared) if keeps_rest => {
                subscribers.leave_buffer(id, shared.buffer);
                shared.members -= 1;
            }
            Members::Buffer(shared) => {
                subscribers.detach(id, shared.buffer);
                shared.members -= 1;
            }
        }
        if known.members.len() == 0 {
            if let Members::Buffer(shared) = &known.members {
                subscribers.close_buffer(shared.buffer);
            }
            *slot = None;
        }
    }
}

impl<K> Group<K> {
    fn add(
        &mut self,
        id: SubscriberId,
        may_share: bool,
        position: Option<Position>,
        subscribers: &mut Subscribers,
    ) {
        match &mut self.members {
            Members::Buffer(shared) => {
                subscribers.attach(id, shared.buffer);
                shared.members += 1;
            }
            Members::Each(members) => {
                members.push(id);
                if may_share && members.len() >= BUFFER_FROM {
                    let buffer = subscribers.open_buffer();
                    let begin = (subscribers.head(buffer), position);
                    for member in members.iter() {
                        subscribers.attach(*member, buffer);
                    }
                    self.members = Members::Buffer(Box::new(Shared::new(buffer, members.len(), begin)));
                }
            }
        }
    }
}

/// A subscription of the bus that begins.
pub(super) enum Beginning {
    Begun(Box<Subscription<Bytes>>),
    Waits(Task),
}

/// Begins a subscription; one that takes time is sent to the engine by `command`.
pub(super) fn begin(
    bus: &Bus,
    topic: &Topic,
    start: Start,
    engine: &Arc<dyn Sender>,
    command: impl FnOnce(Result<Subscription<Bytes>>) -> FeedCommand + Send + 'static,
) -> Result<Beginning> {
    let mut subscribing = Box::pin(start.subscribe(bus, topic).into_future());
    match subscribing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(begun) => Ok(Beginning::Begun(Box::new(begun?))),
        Poll::Pending => {
            let engine = engine.clone();
            Ok(Beginning::Waits(Task::spawn(async move {
                let result = subscribing.await;
                engine.send(command(result)).await;
            })))
        }
    }
}
