//! Peers of a socket, and the queues towards them.

use super::{Core, batch::Batch, lane::Lane, segments::Segments};
use crate::{Message, PeerId, options::QueueOptions};
use bytes::Bytes;
use std::{
    mem,
    ops::Range,
    sync::{Arc, Weak},
    task::Waker,
};
use switchboard_wire::zmtp::{Properties, SocketType};

/// A peer: an inproc socket, a connection, or an endpoint that connects again and again.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) endpoint: Arc<str>,
    /// Socket type, known after the first handshake.
    pub(crate) kind: Option<SocketType>,
    /// Metadata of the last connection; `None` before the first one, and for an inproc peer.
    pub(crate) metadata: Option<Box<PeerMetadata>>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) sink: Sink,
    pub(crate) is_connected: bool,
    /// Stays while its connection is lost, with the messages that wait.
    pub(crate) is_persistent: bool,
    /// This socket connected to the other one, which is in this process.
    pub(crate) is_inproc_connecting: bool,
    /// Out of the rotation because its queue is full.
    pub(crate) is_suspended: bool,
    /// Messages were dropped since the queue last had room.
    pub(crate) is_dropping: bool,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) connections: u64,
    /// Number of groups that the peer joined.
    pub(crate) groups: u32,
}

/// Metadata of a connection.
#[derive(Debug)]
pub(crate) struct PeerMetadata {
    pub(crate) address: Arc<str>,
    /// User id of the verifier; empty if there is none.
    pub(crate) user_id: Box<str>,
    /// Properties that the peer sent, without its socket type and identity.
    pub(crate) properties: Properties,
}

/// Queue of messages to a peer.
#[derive(Debug)]
pub(crate) enum Sink {
    /// The lane of the other socket.
    Inproc {
        lane: Arc<Lane>,
        core: Weak<Core>,
        peer: PeerId,
    },
    Wire(WireSink),
}

/// Queue of a connection.
#[derive(Debug, Default)]
pub(crate) struct WireSink {
    /// Messages that wait; `None` while the connection is idle, so that an idle peer holds no memory for them.
    pending: Option<Box<Batch>>,
    /// Messages and bytes that the task of the connection has taken and not written.
    pub(crate) writing: usize,
    pub(crate) writing_bytes: usize,
    /// Size of the last batches.
    usual_bytes: u32,
    pub(crate) commands: Vec<Command>,
    /// The task of the connection.
    task: Option<Waker>,
    /// The task waits for messages. Otherwise it is woken for commands only.
    is_waiting: bool,
    /// The connection ends once the messages are written.
    pub(crate) is_retiring: bool,
    /// Reason for which the task of the connection must end.
    pub(crate) abort: Option<Box<str>>,
}

/// A command to a peer. The form of some depends on its version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Command {
    Cancel(Bytes),
    Join(Bytes),
    Leave(Bytes),
    Ping,
    Subscribe(Bytes),
}

/// Result of passing a message to a peer.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// The queue is full; the message is left.
    Full,
    /// Accepted; the task of the connection must be woken.
    Sent(Option<Waker>),
}

/// A message that is encoded for several peers.
#[derive(Debug)]
pub(crate) enum Encoded {
    /// In the segments of the socket.
    Range(Range<u64>),
    Whole(Bytes),
}

/// Result of passing a message to one of several peers.
#[derive(Debug)]
pub(crate) enum Shared {
    Full,
    /// Accepted; the task of the connection must be woken.
    Sent(Option<Waker>),
}

impl WireSink {
    /// Returns the task of the connection, to be woken for a command or for its end.
    pub(crate) fn task(&self) -> Option<Waker> {
        self.task.clone()
    }

    /// Returns the task of the connection if it waits for messages, to be woken once.
    #[inline]
    pub(crate) fn take_waiting(&mut self) -> Option<Waker> {
        if mem::take(&mut self.is_waiting) { self.task.clone() } else { None }
    }

    /// Notes that the task waits for messages, and releases the memory of the empty queue.
    pub(crate) fn wait(&mut self) {
        if let Some(mut pending) = self.pending.take() {
            debug_assert!(pending.is_empty(), "messages wait");
            pending.release();
        }
        self.is_waiting = true;
    }

    /// Returns the messages that wait, to append or drop some.
    #[inline]
    pub(crate) fn pending(&mut self) -> &mut Batch {
        let usual_bytes = self.usual_bytes as usize;
        self.pending.get_or_insert_with(|| Box::new(Batch::new(usual_bytes)))
    }

    /// Turns the range of messages in the segments of the socket into bytes.
    pub(crate) fn seal(&mut self, segments: &mut Segments) {
        if let Some(pending) = &mut self.pending {
            pending.seal(segments);
        }
    }

    /// Exchanges the messages that wait for an empty batch.
    pub(crate) fn take_pending(&mut self, batch: &mut Batch, segments: &mut Segments) {
        if let Some(pending) = self.pending.as_mut().filter(|pending| !pending.is_empty()) {
            pending.seal(segments);
            mem::swap(&mut **pending, batch);
            self.writing = batch.messages();
            self.writing_bytes = batch.bytes.len();
            let written = u32::try_from(self.writing_bytes).unwrap_or(u32::MAX);
            // One small batch among large ones does not count.
            self.usual_bytes = written.max(self.usual_bytes / 2);
            pending.set_usual(self.usual_bytes as usize);
        }
    }

    /// Returns the number of messages that the task has not taken.
    #[inline]
    pub(crate) fn pending_messages(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.messages())
    }

    /// Returns the number of bytes that are not written.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.len()) + self.writing_bytes
    }

    /// Sets the task of the connection.
    pub(crate) fn set_task(&mut self, waker: &Waker) {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            self.task = Some(waker.clone());
        }
    }

    /// Forgets the task of a connection that ended, and all that was meant for it.
    pub(crate) fn forget_task(&mut self) {
        self.commands.clear();
        self.task = None;
        self.is_waiting = false;
        self.abort = None;
        self.writing = 0;
        self.writing_bytes = 0;
    }

    pub(crate) fn messages(&self) -> usize {
        self.pending_messages() + self.writing
    }

    #[inline]
    pub(crate) fn is_full(&self, queues: &QueueOptions) -> bool {
        let is_over = |used: usize, limit: usize| limit > 0 && used >= limit;
        !queues.conflate
            && (is_over(self.messages(), queues.send_messages_max)
                || is_over(self.bytes(), queues.send_bytes_max))
    }
}

impl Peer {
    /// Returns true if the queue has no room. Its socket `core` is then notified of room.
    pub(crate) fn is_full(&self, queues: &QueueOptions, core: &Weak<Core>) -> bool {
        match &self.sink {
            Sink::Inproc { lane, .. } => lane.is_full(|| (core.clone(), self.id)),
            Sink::Wire(wire) => wire.is_full(queues),
        }
    }

    /// Passes a message to one of several connections, encoded for all of them; `None` for an inproc peer.
    #[inline]
    pub(crate) fn deliver_encoded(
        &mut self,
        encoded: &Encoded,
        segments: &mut Segments,
        queues: &QueueOptions,
    ) -> Option<Shared> {
        let Sink::Wire(wire) = &mut self.sink else { return None };
        if wire.is_full(queues) {
            return Some(Shared::Full);
        }
        let pending = wire.pending();
        if queues.conflate {
            pending.clear();
        }
        match encoded {
            Encoded::Range(range) => pending.push_range(range, segments),
            Encoded::Whole(bytes) => {
                pending.seal(segments);
                pending.push_encoded(bytes);
            }
        }
        self.sent += 1;
        Some(Shared::Sent(wire.take_waiting()))
    }

    /// Turns the range of messages in the segments of the socket into bytes.
    pub(crate) fn seal(&mut self, segments: &mut Segments) {
        if let Sink::Wire(wire) = &mut self.sink {
            wire.seal(segments);
        }
    }

    /// Passes a message to the peer, unless its queue is full.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        message: &mut Option<Message>,
        queues: &QueueOptions,
        core: &Weak<Core>,
    ) -> Delivery {
        match &mut self.sink {
            Sink::Wire(wire) => {
                if wire.is_full(queues) {
                    return Delivery::Full;
                }
                let pending = wire.pending();
                if queues.conflate {
                    pending.clear();
                }
                if let Some(message) = message.take() {
                    pending.push(&message);
                }
                self.sent += 1;
                Delivery::Sent(wire.take_waiting())
            }
            Sink::Inproc { lane, core: other, .. } => match lane.push(message, || (core.clone(), self.id)) {
                None => Delivery::Full,
                Some(pushed) => {
                    self.sent += 1;
                    if pushed == super::lane::Pushed::News
                        && let Some(other) = other.upgrade()
                    {
                        other.inbox.arrived(lane, pushed);
                    }
                    Delivery::Sent(None)
                }
            },
        }
    }

    /// Returns true if the queue has just become half full, or full: the task of the connection should run before it
    /// must drop messages.
    pub(crate) fn should_yield(&self, queues: &QueueOptions) -> bool {
        match &self.sink {
            Sink::Inproc { .. } => false,
            Sink::Wire(wire) => {
                let (messages, limit) = (wire.messages(), queues.send_messages_max);
                let bytes = wire.bytes();
                let is_large = queues.send_bytes_max > 0 && bytes >= queues.send_bytes_max / 2;
                limit > 0 && (messages == limit / 2 || messages == limit) || is_large
            }
        }
    }

    /// Returns the number of messages that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        match &self.sink {
            Sink::Inproc { .. } => 0,
            Sink::Wire(wire) => wire.messages(),
        }
    }

    /// Appends a command; returns the task to be woken. Inproc peers have no commands.
    pub(crate) fn command(&mut self, command: Command) -> Option<Waker> {
        match &mut self.sink {
            Sink::Wire(wire) if self.is_connected => {
                wire.commands.push(command);
                wire.task()
            }
            _ => None,
        }
    }
}

/// Peers by number.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    count: usize,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    peer: Option<Box<Peer>>,
}

impl Peers {
    /// Adds the peer that `create` returns for its number.
    pub(crate) fn insert(&mut self, create: impl FnOnce(PeerId) -> Peer) -> PeerId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        let id = PeerId::new(slot, entry.generation);
        entry.peer = Some(Box::new(create(id)));
        self.count += 1;
        id
    }

    #[inline]
    pub(crate) fn find(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.slots.get_mut(id.slot() as usize)?.peer.as_deref_mut().filter(|peer| peer.id == id)
    }

    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Box<Peer>> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        let peer = slot.peer.take_if(|peer| peer.id == id)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot());
        self.count -= 1;
        Some(peer)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().filter_map(|slot| slot.peer.as_deref())
    }

    /// Returns the peers from a slot on, each with its slot.
    pub(crate) fn iter_from(&self, first: usize) -> impl Iterator<Item = (usize, &Peer)> {
        let slots = self.slots.iter().enumerate().skip(first);
        slots.filter_map(|(slot, peer)| Some((slot, peer.peer.as_deref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.slots.iter_mut().filter_map(|slot| slot.peer.as_deref_mut())
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }
}
