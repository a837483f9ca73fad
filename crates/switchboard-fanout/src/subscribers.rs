//! The subscribers of an engine, as its adapter sees them.

use crate::{
    broadcast_buffer::BroadcastBuffer,
    close_reason::CloseReason,
    link::Link,
    mailbox::{LinkWaker, Wakes},
    options::Options,
    subscriber::{
        BLOCKED, BUSY, CLOSING, Feed, LAGGED, LINGERING, PAUSED, Pages, READ_CLOSED, READ_QUEUED, RESUMED,
        State, SubscriberId, WRITE_QUEUED,
    },
    timer_wheel::TimerWheel,
};
use bytes::Bytes;
use mio::Registry;
use std::{any::Any, collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};
use switchboard_core::memory::{MemoryBudget, Pressure};
use switchboard_wire::Outbox;

/// The number of a broadcast buffer. It may be used again after [`Subscribers::close_buffer`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BufferId(pub(crate) u32);

/// A broadcast buffer and the subscribers that read it.
pub(crate) struct Buffer {
    pub(crate) bytes: BroadcastBuffer,
    /// Indices of subscribers.
    pub(crate) members: Vec<u32>,
    pub(crate) pass: Option<Pass>,
    /// Set if it is in the list of buffers to write.
    pub(crate) queued: bool,
    open: bool,
    /// Bytes charged to the memory budget.
    charged: usize,
}

/// A write pass: all members that are not blocked are brought to the head.
#[derive(Clone, Copy)]
pub(crate) struct Pass {
    /// The next member.
    pub(crate) next: usize,
    /// The head at the start of the pass: all members have reached it when the pass has ended.
    pub(crate) target: u64,
}

/// A subscriber that is gone, of which the adapter does not know yet.
pub(crate) struct Ended {
    pub(crate) id: SubscriberId,
    pub(crate) reason: CloseReason,
    pub(crate) state: State,
    _guard: Option<Box<dyn Any + Send>>,
}

/// Bytes of a subscriber or of a buffer that it may hold when memory is short.
const SHORT_BYTES: usize = 64 << 10;

/// Time limit of a peer that is closed, to read the last bytes and close its side.
const LINGER_SECONDS: u32 = 2;

/// The subscribers and broadcast buffers of one engine.
///
/// Methods that take the number of a subscriber do nothing if it is gone;
/// [`Adapter::disconnected`](crate::Adapter::disconnected) has the reason.
pub struct Subscribers {
    pub(crate) pages: Pages,
    pub(crate) buffers: Vec<Buffer>,
    free_buffers: Vec<u32>,
    pub(crate) wheel: TimerWheel,
    pub(crate) registry: Option<Registry>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) memory: Option<Arc<MemoryBudget>>,
    pub(crate) options: Options,
    /// Bytes of buffers and of single subscribers: those that are charged to the memory budget.
    pub(crate) held_bytes: usize,
    pub(crate) open_buffers: usize,
    /// Number of times that a subscriber was too slow.
    pub(crate) lagged_total: u64,
    /// Subscribers to read, to write, and those that lagged, with the buffer and the bytes lost.
    pub(crate) to_read: VecDeque<u32>,
    pub(crate) to_write: VecDeque<u32>,
    pub(crate) lagged: VecDeque<(SubscriberId, BufferId, u64)>,
    /// The one that the adapter is notified of.
    pub(crate) lagging: Option<(SubscriberId, BufferId, u64)>,
    pub(crate) drained: VecDeque<SubscriberId>,
    pub(crate) ended: VecDeque<Ended>,
    /// Buffers with bytes that not all members have been offered.
    pub(crate) dirty: VecDeque<u32>,
}

impl Subscribers {
    pub(crate) fn new(
        options: Options,
        memory: Option<Arc<MemoryBudget>>,
        registry: Option<Registry>,
        wakes: Arc<Wakes>,
    ) -> Subscribers {
        Subscribers {
            pages: Pages::new(),
            buffers: Vec::new(),
            free_buffers: Vec::new(),
            wheel: TimerWheel::new(),
            registry,
            wakes,
            memory,
            options,
            held_bytes: 0,
            open_buffers: 0,
            lagged_total: 0,
            to_read: VecDeque::new(),
            to_write: VecDeque::new(),
            lagged: VecDeque::new(),
            lagging: None,
            drained: VecDeque::new(),
            ended: VecDeque::new(),
            dirty: VecDeque::new(),
        }
    }

    /// Returns the number of subscribers.
    pub fn count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the numbers of at most `max` subscribers, from a record on, and the record to continue with; `None` at
    /// the end. For pages of an admin listener: one at a time, never all.
    pub fn list(&self, from: u32, max: usize) -> (Vec<SubscriberId>, Option<u32>) {
        let mut found = Vec::new();
        for index in from..self.pages.used() {
            if found.len() == max {
                return (found, Some(index));
            }
            found.extend(self.pages.id(index));
        }
        (found, None)
    }

    /// Returns whether the subscriber is connected.
    pub fn is_connected(&self, id: SubscriberId) -> bool {
        self.pages.id(id.index) == Some(id)
    }

    /// Returns the state of a subscriber, unless it is gone.
    #[inline]
    pub fn state(&mut self, id: SubscriberId) -> Option<&mut State> {
        self.pages.get_mut(id).map(|subscriber| &mut subscriber.state)
    }

    /// Returns the address of a subscriber, if it has one.
    pub fn address(&mut self, id: SubscriberId) -> Option<SocketAddr> {
        self.pages.get_mut(id).and_then(|subscriber| subscriber.address)
    }

    /// Appends bytes for one subscriber: `write` adds whole frames to its outbox, which is written at the end of the
    /// turn. Returns the number of bytes that wait then; 0 if the subscriber is gone. The adapter stops at a limit of
    /// its own and continues with [`Adapter::drained`](crate::Adapter::drained); [`Options::outbox_bytes_max`] is that
    /// of the engine, at which it closes the subscriber as lagged.
    pub fn send(&mut self, id: SubscriberId, write: impl FnOnce(&mut Outbox)) -> usize {
        let Some(subscriber) = self.pages.get_mut(id) else { return 0 };
        if subscriber.has(CLOSING | LINGERING) {
            return 0;
        }
        let outbox = subscriber.outbox.get_or_insert_default();
        if outbox.len() >= self.options.outbox_bytes_max {
            self.remove(id.index, CloseReason::Lagged);
            return 0;
        }
        write(outbox);
        let waiting = outbox.len();
        if subscriber.has(BLOCKED | LAGGED) {
            // Others are charged when they are written, at the end of the turn.
            self.charge(id.index);
            if !self.is_connected(id) {
                return 0;
            }
        }
        self.queue_write(id.index);
        waiting
    }

    /// Returns whether the socket of a subscriber is full: [`Adapter::drained`](crate::Adapter::drained) follows when
    /// everything that was sent to it alone is written.
    pub fn is_blocked(&mut self, id: SubscriberId) -> bool {
        self.pages.get_mut(id).is_some_and(|subscriber| subscriber.has(BLOCKED))
    }

    pub(crate) fn queue_write(&mut self, index: u32) {
        let subscriber = self.pages.at_mut(index);
        if !subscriber.has(WRITE_QUEUED | BLOCKED | LAGGED) {
            subscriber.flags |= WRITE_QUEUED;
            self.to_write.push_back(index);
        }
    }

    pub(crate) fn queue_read(&mut self, index: u32) {
        let subscriber = self.pages.at_mut(index);
        if !subscriber.has(READ_QUEUED) {
            subscriber.flags |= READ_QUEUED;
            self.to_read.push_back(index);
        }
    }

    /// Stops reading a subscriber, until [`resume`](Self::resume): its peer waits as soon as the buffers of the
    /// connection are full. Bytes that [`Adapter::received`](crate::Adapter::received) leaves are kept.
    ///
    /// The end of the connection is not noticed meanwhile, unless something is written to it;
    /// [`Adapter::read_closed`](crate::Adapter::read_closed) reports that the peer will send no more.
    pub fn pause(&mut self, id: SubscriberId) {
        if let Some(subscriber) = self.pages.get_mut(id)
            && !subscriber.has(CLOSING | LINGERING)
        {
            subscriber.flags |= PAUSED;
            subscriber.flags &= !RESUMED;
        }
    }

    /// Reads a subscriber again: the bytes that were kept come first, in a later turn. Without any,
    /// [`Adapter::received`](crate::Adapter::received) is called with an empty input.
    pub fn resume(&mut self, id: SubscriberId) {
        if let Some(subscriber) = self.pages.get_mut(id)
            && subscriber.has(PAUSED)
        {
            subscriber.flags &= !PAUSED;
            subscriber.flags |= RESUMED;
            self.queue_read(id.index);
        }
    }

    /// Sets whether a response to a subscriber is under way. A drain does not close a busy subscriber at the end of the
    /// notice, but when it is not busy any more; the server that stops limits the time.
    pub fn set_busy(&mut self, id: SubscriberId, is_busy: bool) {
        if let Some(subscriber) = self.pages.get_mut(id)
            && !subscriber.has(CLOSING | LINGERING)
        {
            subscriber.flags = if is_busy { subscriber.flags | BUSY } else { subscriber.flags & !BUSY };
        }
    }

    /// Sets the timer of a subscriber, in place of an earlier one. It is due after at least `after`, in steps of a
    /// second.
    pub fn set_timer(&mut self, id: SubscriberId, after: Duration) {
        if self.pages.get_mut(id).is_some_and(|subscriber| !subscriber.has(LINGERING)) {
            // A part of the present second has passed already.
            let seconds = u32::try_from(after.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
            self.wheel.set(id.index, seconds, &mut self.pages);
        }
    }

    /// Clears the timer of a subscriber.
    pub fn clear_timer(&mut self, id: SubscriberId) {
        if self.pages.get_mut(id).is_some_and(|subscriber| !subscriber.has(LINGERING)) {
            self.wheel.clear(id.index, &mut self.pages);
        }
    }

    /// Creates a broadcast buffer without members.
    pub fn open_buffer(&mut self) -> BufferId {
        self.open_buffers += 1;
        let bytes = BroadcastBuffer::new(self.options.broadcast_buffer_bytes_max);
        let buffer = Buffer { bytes, members: Vec::new(), pass: None, queued: false, open: true, charged: 0 };
        match self.free_buffers.pop() {
            Some(index) => {
                self.buffers[index as usize] = buffer;
                BufferId(index)
            }
            None => {
                self.buffers.push(buffer);
                BufferId((self.buffers.len() - 1) as u32)
            }
        }
    }

    /// Closes a buffer. A frame that a socket took in part is completed; bytes that a member has not begun to read are
    /// dropped.
    ///
    /// # Panics
    /// Panics if the buffer is closed already.
    pub fn close_buffer(&mut self, id: BufferId) {
        assert!(self.buffers[id.0 as usize].open, "the buffer is open");
        while let Some(member) = self.buffers[id.0 as usize].members.last().copied() {
            self.detach_index(member, id.0);
        }
        self.open_buffers -= 1;
        let buffer = &mut self.buffers[id.0 as usize];
        buffer.bytes = BroadcastBuffer::new(0);
        (buffer.open, buffer.pass) = (false, None);
        self.charge_buffer(id.0);
        let buffer = &mut self.buffers[id.0 as usize];
        // A queued index is skipped when its turn comes, and may then be used again.
        if !buffer.queued {
            self.free_buffers.push(id.0);
        }
    }

    /// Returns the number of members of a buffer.
    pub fn members(&self, buffer: BufferId) -> usize {
        self.buffers[buffer.0 as usize].members.len()
    }

    /// Returns the position after the last byte of a buffer.
    pub fn head(&self, buffer: BufferId) -> u64 {
        self.buffers[buffer.0 as usize].bytes.head()
    }

    /// Returns the position up to which a subscriber has taken the bytes of a buffer, or will as soon as its outbox is
    /// written; during [`Adapter::lagged`](crate::Adapter::lagged), that before the lost bytes. `None` if it does not
    /// read the buffer.
    pub fn position(&mut self, id: SubscriberId, buffer: BufferId) -> Option<u64> {
        let lost = match self.lagging {
            Some((lagging, of, lost)) if lagging == id && of == buffer => lost,
            _ => 0,
        };
        let subscriber = self.pages.get_mut(id)?;
        let feed = subscriber.feeds.iter().find(|feed| feed.buffer == buffer.0)?;
        Some(feed.cursor.saturating_sub(lost))
    }

    /// Makes a subscriber read a buffer from its head on. Does nothing if it does already.
    pub fn attach(&mut self, id: SubscriberId, buffer: BufferId) {
        let Some(subscriber) = self.pages.get_mut(id) else { return };
        if subscriber.has(CLOSING | LINGERING) || subscriber.feeds.iter().any(|feed| feed.buffer == buffer.0)
        {
            return;
        }
        let into = &mut self.buffers[buffer.0 as usize];
        let cursor = into.bytes.head();
        subscriber.feeds.push(Feed { buffer: buffer.0, slot: into.members.len() as u32, cursor });
        into.members.push(id.index);
        if subscriber.has(BLOCKED | LAGGED) {
            into.bytes.block(cursor);
        }
    }

    /// Ends the reading of a buffer. A frame that the socket took in part is completed.
    pub fn detach(&mut self, id: SubscriberId, buffer: BufferId) {
        if self.pages.get_mut(id).is_some() {
            self.detach_index(id.index, buffer.0);
        }
    }

    /// Ends the reading of a buffer after everything that was appended to it before: what the subscriber has not read
    /// goes to its outbox, and counts there. Returns false if bytes that it was to read were dropped already.
    pub fn leave_buffer(&mut self, id: SubscriberId, buffer: BufferId) -> bool {
        let Some(subscriber) = self.pages.get_mut(id) else { return true };
        let Some(feed) = subscriber.feeds.iter().find(|feed| feed.buffer == buffer.0) else { return true };
        let (cursor, bytes) = (feed.cursor, &self.buffers[buffer.0 as usize].bytes);
        let is_complete = cursor >= bytes.tail();
        let rest: Vec<_> = bytes.parts(cursor, bytes.head()).filter(|part| !part.is_empty()).collect();
        self.detach_index(id.index, buffer.0);
        if !rest.is_empty() {
            self.send(id, |out| rest.into_iter().for_each(|part| out.chain(part)));
        }
        is_complete
    }

    fn detach_index(&mut self, index: u32, buffer: u32) {
        let subscriber = self.pages.at_mut(index);
        let Some(at) = subscriber.feeds.iter().position(|feed| feed.buffer == buffer) else { return };
        let feed = subscriber.feeds[at];
        let bytes = &mut self.buffers[buffer as usize].bytes;
        if subscriber.has(BLOCKED | LAGGED) {
            bytes.unblock(feed.cursor);
        }
        subscriber.feeds.swap_remove(at);
        self.leave(buffer, feed.slot);
    }

    /// Removes a member from the list of a buffer. A pass over the list misses no other member.
    fn leave(&mut self, buffer: u32, slot: u32) {
        let Buffer { members, pass, .. } = &mut self.buffers[buffer as usize];
        let mut hole = slot as usize;
        if let Some(pass) = pass
            && hole < pass.next
        {
            // The last one that the pass has seen fills the hole, and one that it has not seen takes its place.
            pass.next -= 1;
            members.swap(hole, pass.next);
            let moved = members[hole];
            hole = pass.next;
            self.pages.set_slot(moved, buffer, slot);
        }
        members.swap_remove(hole);
        if let Some(moved) = members.get(hole) {
            self.pages.set_slot(*moved, buffer, hole as u32);
        }
    }

    /// Appends a frame to a buffer: its head, and its payload, which is chained if it is large. All members get it.
    pub fn append(&mut self, id: BufferId, head: &[u8], payload: &Bytes) {
        let buffer = &mut self.buffers[id.0 as usize];
        if buffer.members.is_empty() {
            return;
        }
        if let Some(memory) = &self.memory {
            // When memory is short, slow subscribers lag earlier.
            let is_short = memory.restrictions(false).pressure >= Pressure::Severe;
            let most = self.options.broadcast_buffer_bytes_max;
            buffer.bytes.set_bytes_max(if is_short { most.min(SHORT_BYTES) } else { most });
        }
        // Members that lag are found when it is their turn.
        buffer.bytes.append(head, payload);
        if !buffer.queued {
            buffer.queued = true;
            self.dirty.push_back(id.0);
        }
        self.charge_buffer(id.0);
    }

    /// Closes a subscriber after what was sent to it is written.
    pub fn close(&mut self, id: SubscriberId, reason: CloseReason) {
        let Some(subscriber) = self.pages.get_mut(id) else { return };
        if subscriber.has(CLOSING | LINGERING) {
            return;
        }
        while let Some(feed) = self.pages.at(id.index).feeds.last() {
            self.detach_index(id.index, feed.buffer);
        }
        let subscriber = self.pages.at_mut(id.index);
        subscriber.flags |= CLOSING;
        subscriber.flags &= !(BUSY | LAGGED | PAUSED | RESUMED);
        subscriber.input = None;
        let state = std::mem::take(&mut subscriber.state);
        self.wheel.set(id.index, LINGER_SECONDS, &mut self.pages);
        self.ended.push_back(Ended { id, reason, state, _guard: None });
        self.queue_write(id.index);
    }

    /// Closes a subscriber at once.
    pub fn abort(&mut self, id: SubscriberId, reason: CloseReason) {
        if self.pages.get_mut(id).is_some() {
            self.remove(id.index, reason);
        }
    }

    /// Ends the sending side of a subscriber whose last bytes are written.
    pub(crate) fn linger(&mut self, index: u32) {
        let subscriber = self.pages.at_mut(index);
        subscriber.link.shutdown();
        subscriber.flags |= LINGERING;
        if subscriber.has(READ_CLOSED) {
            self.remove(index, CloseReason::Closed);
        } else {
            self.queue_read(index);
        }
    }

    /// Drops the connection of a subscriber and frees its record.
    pub(crate) fn remove(&mut self, index: u32, reason: CloseReason) {
        let Some(id) = self.pages.id(index) else { return };
        while let Some(feed) = self.pages.at(index).feeds.last() {
            self.detach_index(index, feed.buffer);
        }
        self.wheel.clear(index, &mut self.pages);
        let subscriber = self.pages.remove(index);
        if let Some(registry) = &self.registry {
            subscriber.link.deregister(registry);
        }
        self.change_charge(subscriber.charged as usize, 0);
        if reason == CloseReason::Lagged {
            self.lagged_total = self.lagged_total.saturating_add(1);
        }
        if !subscriber.has(CLOSING) {
            let ended = Ended { id, reason, state: subscriber.state, _guard: subscriber.guard };
            self.ended.push_back(ended);
        }
    }

    /// Adds a connection; `None` if the engine is full or the socket cannot be watched.
    pub(crate) fn insert(
        &mut self,
        link: impl FnOnce(u32, &Arc<Wakes>) -> Link,
        address: Option<SocketAddr>,
        guard: Option<Box<dyn Any + Send>>,
    ) -> Option<SubscriberId> {
        if self.count() >= self.options.subscribers_max {
            tracing::warn!("closed: {} subscribers are connected (subscribers_max)", self.count());
            return None;
        }
        if self.memory.as_ref().is_some_and(|memory| memory.restrictions(false).pressure >= Pressure::High) {
            tracing::warn!("closed: no memory for another subscriber (memory_bytes_max)");
            return None;
        }
        let id = self.pages.insert();
        let link = link(id.index, &self.wakes);
        if let Some(registry) = &self.registry
            && let Err(error) = link.register(id.index, registry)
        {
            tracing::warn!("closed: the socket cannot be watched: {error}");
            self.pages.remove(id.index);
            return None;
        }
        let subscriber = self.pages.at_mut(id.index);
        (subscriber.link, subscriber.address, subscriber.guard) = (link, address, guard);
        Some(id)
    }

    /// Sets the bytes that the adapter holds for a subscriber, such as those of a message that is incomplete. They are
    /// charged to the memory budget.
    pub fn set_adapter_bytes(&mut self, id: SubscriberId, bytes: usize) {
        if let Some(subscriber) = self.pages.get_mut(id) {
            subscriber.adapter_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
    }

    /// Charges the bytes that a subscriber holds to the memory budget. Without memory, closes it if they are many.
    pub(crate) fn charge(&mut self, index: u32) {
        let subscriber = self.pages.at_mut(index);
        let held = u32::try_from(subscriber.held_bytes()).unwrap_or(u32::MAX);
        let charged = std::mem::replace(&mut subscriber.charged, held);
        self.change_charge(charged as usize, held as usize);
        let is_exhausted =
            |memory: &Arc<MemoryBudget>| memory.restrictions(false).pressure == Pressure::Exhausted;
        if held as usize > SHORT_BYTES && self.memory.as_ref().is_some_and(is_exhausted) {
            self.remove(index, CloseReason::Memory);
        }
    }

    /// Replaces a charge, `before`, by `now`.
    #[inline]
    fn change_charge(&mut self, before: usize, now: usize) {
        if before == now {
            return;
        }
        self.held_bytes = self.held_bytes.saturating_add(now).saturating_sub(before);
        if let Some(memory) = &self.memory {
            memory.change(before, now);
        }
    }

    /// Charges the memory of a buffer to the budget.
    pub(crate) fn charge_buffer(&mut self, index: u32) {
        let buffer = &mut self.buffers[index as usize];
        let held = buffer.bytes.allocated_bytes();
        let charged = std::mem::replace(&mut buffer.charged, held);
        self.change_charge(charged, held);
    }

    /// Returns whether every subscriber was offered everything that was appended.
    pub fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.to_write.is_empty()
    }

    /// Returns whether a buffer is more than half full, and not all of its members were offered its bytes.
    pub(crate) fn is_congested(&self) -> bool {
        self.dirty.iter().any(|index| {
            let bytes = &self.buffers[*index as usize].bytes;
            bytes.held_bytes() > bytes.bytes_max() / 2
        })
    }

    /// Returns a buffer that was closed while it was queued to those that may be used again.
    pub(crate) fn reuse_closed(&mut self, buffer: u32) -> bool {
        let closed = !self.buffers[buffer as usize].open;
        if closed {
            self.free_buffers.push(buffer);
        }
        closed
    }
}

pub(crate) fn link_waker(index: u32, wakes: &Arc<Wakes>) -> Arc<LinkWaker> {
    LinkWaker::new(index, wakes.clone())
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.change(self.buffers.iter().map(|buffer| buffer.charged).sum(), 0);
        }
    }
}

impl std::fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscribers").field("count", &self.count()).finish_non_exhaustive()
    }
}
