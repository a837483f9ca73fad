//! Queue of the messages that one peer sent.
//!
//! The producer is the task of a connection, or an inproc peer. The consumer takes all messages at once and releases
//! them once it has used them, so each side takes the lock once per batch.

use super::Core;
use crate::Message;
use crate::PeerId;
use bytes::Bytes;
use std::{
    collections::VecDeque,
    mem,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    task::Waker,
};

/// Messages from one peer.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The peer that the messages are from.
    pub(crate) peer: PeerId,
    /// Routing id of the peer, for ROUTER.
    pub(crate) route: Bytes,
    limits: LaneLimits,
    state: Mutex<State>,
}

/// Limits of a lane; 0 means no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    pub(crate) messages_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) conflate: bool,
    /// The producer is in this process: the empty queue keeps its memory, which would grow again with each batch.
    pub(crate) is_inproc: bool,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Message>,
    queue_bytes: usize,
    /// Messages and bytes that the consumer has taken and not released.
    taken: usize,
    taken_bytes: usize,
    /// The consumer knows of the lane: it takes further messages when it has used those that it has.
    is_listed: bool,
    producer: Producer,
    received: u64,
}

/// The side to be notified of room.
#[derive(Debug, Default)]
enum Producer {
    #[default]
    None,
    Peer(Weak<Core>, PeerId),
    Task(Waker),
}

impl Producer {
    fn notify(self) {
        match self {
            Producer::None => {}
            Producer::Peer(core, peer) => {
                if let Some(core) = core.upgrade() {
                    core.resume(peer);
                }
            }
            Producer::Task(waker) => waker.wake(),
        }
    }
}

/// Smallest batch that is released in halves.
const HALVES_MIN: usize = 16;

/// A batch that the consumer has taken.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) messages: VecDeque<Message>,
    count: usize,
    bytes: usize,
    /// Half of the messages are released when this number is left.
    half: usize,
}

impl Taken {
    /// Returns true if half of the messages are used, once: the producer then works at the same time as the consumer.
    #[inline]
    pub(crate) fn is_at_half(&self) -> bool {
        self.messages.len() == self.half && self.count > self.half
    }
}

/// Result of adding messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pushed {
    /// The consumer must be notified.
    News,
    /// The consumer knows of the lane.
    Quiet,
}

impl Lane {
    pub(crate) fn new(peer: PeerId, route: Bytes, limits: LaneLimits) -> Lane {
        Lane { peer, route, limits, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of messages that may be added; if it is 0, `waker` is woken once there is room.
    pub(crate) fn room_or_wake(&self, waker: &Waker) -> usize {
        let mut state = self.lock();
        let room = self.room(&state);
        if room == 0 {
            state.producer = Producer::Task(waker.clone());
        }
        room
    }

    fn room(&self, state: &State) -> usize {
        let LaneLimits { messages_max, bytes_max, conflate, .. } = self.limits;
        if conflate {
            return usize::MAX;
        }
        if bytes_max > 0 && state.queue_bytes + state.taken_bytes >= bytes_max {
            return 0;
        }
        match messages_max {
            0 => usize::MAX,
            limit => limit.saturating_sub(state.queue.len() + state.taken),
        }
    }

    /// Adds messages of the task of a connection, and leaves `messages` empty.
    pub(crate) fn extend(&self, messages: &mut Vec<Message>) -> Pushed {
        let mut state = self.lock();
        if self.limits.conflate {
            state.queue.clear();
            state.queue_bytes = 0;
            let old = messages.len().saturating_sub(1);
            messages.drain(..old);
        }
        state.received += messages.len() as u64;
        state.queue_bytes += messages.iter().map(Message::size_bytes).sum::<usize>();
        state.queue.extend(messages.drain(..));
        state.list()
    }

    /// Adds a message of an inproc peer. Leaves it and returns `None` if there is no room; the peer is then notified of
    /// room.
    #[inline]
    pub(crate) fn push(
        &self,
        message: &mut Option<Message>,
        sender: impl FnOnce() -> (Weak<Core>, PeerId),
    ) -> Option<Pushed> {
        let mut state = self.lock();
        if self.room(&state) == 0 {
            let (core, peer) = sender();
            state.producer = Producer::Peer(core, peer);
            return None;
        }
        let message = message.take()?;
        if self.limits.conflate {
            state.queue.clear();
            state.queue_bytes = 0;
        }
        state.received += 1;
        state.queue_bytes += message.size_bytes();
        state.queue.push_back(message);
        Some(state.list())
    }

    /// Returns true if there is no room; the inproc peer is then notified of room.
    pub(crate) fn is_full(&self, sender: impl FnOnce() -> (Weak<Core>, PeerId)) -> bool {
        let mut state = self.lock();
        let is_full = self.room(&state) == 0;
        if is_full {
            let (core, peer) = sender();
            state.producer = Producer::Peer(core, peer);
        }
        is_full
    }

    /// Takes all messages. If there are none, the consumer forgets the lane, and the queue of an idle connection holds
    /// no memory.
    pub(crate) fn take(&self, taken: &mut Taken) {
        let (producer, _empty) = {
            let mut state = self.lock();
            state.taken -= taken.count;
            state.taken_bytes -= taken.bytes;
            mem::swap(&mut state.queue, &mut taken.messages);
            taken.count = taken.messages.len();
            taken.half = if taken.count >= HALVES_MIN { taken.count / 2 } else { 0 };
            taken.bytes = mem::take(&mut state.queue_bytes);
            state.taken += taken.count;
            state.taken_bytes += taken.bytes;
            state.is_listed = taken.count > 0;
            let is_idle = !state.is_listed && !self.limits.is_inproc;
            let empty = if is_idle { mem::take(&mut state.queue) } else { VecDeque::new() };
            (self.producer(&mut state), empty)
        };
        producer.notify();
    }

    /// Releases the used half of a batch.
    pub(crate) fn release_half(&self, taken: &mut Taken) {
        let producer = {
            let mut state = self.lock();
            let (count, bytes) = (taken.count - taken.half, taken.bytes / 2);
            taken.count -= count;
            taken.bytes -= bytes;
            taken.half = 0;
            state.taken -= count;
            state.taken_bytes -= bytes;
            self.producer(&mut state)
        };
        producer.notify();
    }

    /// Returns the producer if it waits and has much room now.
    fn producer(&self, state: &mut State) -> Producer {
        if self.has_much_room(state) { mem::take(&mut state.producer) } else { Producer::None }
    }

    /// Returns true if half of the lane is free: a producer that is notified of each single message would be woken too
    /// often.
    fn has_much_room(&self, state: &State) -> bool {
        let LaneLimits { messages_max, bytes_max, .. } = self.limits;
        let is_half = |used: usize, limit: usize| limit == 0 || used <= limit / 2;
        is_half(state.queue.len() + state.taken, messages_max)
            && is_half(state.queue_bytes + state.taken_bytes, bytes_max)
    }

    /// Returns the number of messages that wait, and of all messages so far.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let state = self.lock();
        (state.queue.len() + state.taken, state.received)
    }
}

impl State {
    fn list(&mut self) -> Pushed {
        if self.is_listed || self.queue.is_empty() {
            return Pushed::Quiet;
        }
        self.is_listed = true;
        Pushed::News
    }
}
