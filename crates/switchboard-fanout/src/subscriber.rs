//! Records of subscribers, in pages.

use crate::{
    link::Link,
    timer_wheel::{NONE, TimerLink, TimerLinks},
};
use smallvec::SmallVec;
use std::{any::Any, fmt, net::SocketAddr};
use switchboard_wire::{Input, Outbox};

/// Records in a page: the memory of many subscribers grows by pages, never by doubling.
const PAGE: usize = 256;

/// The number of a subscriber. It is not valid any more after the subscriber has disconnected: a later one in the same
/// record has another generation.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SubscriberId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl fmt::Debug for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// The socket is full; an event follows when it has room.
pub(crate) const BLOCKED: u16 = 1;
/// Queued for reading.
pub(crate) const READ_QUEUED: u16 = 1 << 1;
/// Queued for writing.
pub(crate) const WRITE_QUEUED: u16 = 1 << 2;
/// The peer has closed its sending side: reading goes on to the end.
pub(crate) const READ_CLOSED: u16 = 1 << 3;
/// It is closed as soon as its outbox is written.
pub(crate) const CLOSING: u16 = 1 << 4;
/// Its sending side is closed; what the peer sends is discarded until it closes, too.
pub(crate) const LINGERING: u16 = 1 << 5;
/// Bytes that it was to read were dropped; the adapter decides next.
pub(crate) const LAGGED: u16 = 1 << 6;
/// It is not read until its outbox is written.
pub(crate) const READ_STOPPED: u16 = 1 << 7;
/// The adapter wants no more of its bytes for now.
pub(crate) const PAUSED: u16 = 1 << 8;
/// Bytes that arrived before a pause are to be handled.
pub(crate) const RESUMED: u16 = 1 << 9;
/// The adapter has a response for it under way: a drain does not close it.
pub(crate) const BUSY: u16 = 1 << 10;

/// The cursor of a subscriber in a broadcast buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed {
    pub(crate) buffer: u32,
    /// Its place in the list of the buffer's members.
    pub(crate) slot: u32,
    /// The position up to which it has taken the bytes: between two frames, except during a write.
    pub(crate) cursor: u64,
}

/// A connection that receives entries.
pub(crate) struct Subscriber {
    pub(crate) link: Link,
    pub(crate) flags: u16,
    pub(crate) generation: u32,
    pub(crate) feeds: SmallVec<[Feed; 2]>,
    /// Bytes that are written before those of its buffers: the rest of a frame that its socket took in part, replies,
    /// and entries for it alone.
    pub(crate) outbox: Option<Box<Outbox>>,
    /// Part of a unit that has not arrived whole.
    pub(crate) input: Option<Box<Input>>,
    pub(crate) state: State,
    /// A value that is dropped when the connection has ended.
    pub(crate) guard: Option<Box<dyn Any + Send>>,
    pub(crate) timer: TimerLink,
    /// Bytes charged to the memory budget.
    pub(crate) charged: u32,
    /// Bytes that the adapter holds for it.
    pub(crate) adapter_bytes: u32,
    pub(crate) address: Option<SocketAddr>,
}

/// State of an adapter in the record of a subscriber.
#[derive(Default)]
pub struct State {
    /// Any bits; 0 at first.
    pub bits: u64,
    /// State of an operation of several steps. Many subscribers are idle: free it when it is not needed.
    pub extra: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("bits", &self.bits).finish_non_exhaustive()
    }
}

impl Subscriber {
    fn empty() -> Subscriber {
        Subscriber {
            link: Link::Closed,
            flags: 0,
            generation: 0,
            feeds: SmallVec::new(),
            outbox: None,
            input: None,
            state: State::default(),
            guard: None,
            timer: TimerLink::UNSET,
            charged: 0,
            adapter_bytes: 0,
            address: None,
        }
    }

    #[inline]
    pub(crate) fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Bytes that are held for it.
    pub(crate) fn held_bytes(&self) -> usize {
        let input = self.input.as_ref().map_or(0, |input| input.len());
        let outbox = self.outbox.as_ref().map_or(0, |outbox| outbox.allocated_bytes());
        input.saturating_add(outbox).saturating_add(self.adapter_bytes as usize)
    }
}

/// The records of an engine.
pub(crate) struct Pages {
    pages: Vec<Vec<Subscriber>>,
    free: Vec<u32>,
    /// Records that were used once.
    used: u32,
}

impl Pages {
    pub(crate) fn new() -> Pages {
        Pages { pages: Vec::new(), free: Vec::new(), used: 0 }
    }

    /// Number of subscribers.
    pub(crate) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// Takes a record; its generation differs from that of every earlier subscriber in it.
    pub(crate) fn insert(&mut self) -> SubscriberId {
        let index = self.free.pop().unwrap_or_else(|| {
            if self.used as usize == self.pages.len() * PAGE {
                let mut page = Vec::with_capacity(PAGE);
                page.resize_with(PAGE, Subscriber::empty);
                self.pages.push(page);
            }
            self.used += 1;
            self.used - 1
        });
        SubscriberId { index, generation: self.at(index).generation }
    }

    /// Empties a record and returns what was in it.
    pub(crate) fn remove(&mut self, index: u32) -> Subscriber {
        let record = self.at_mut(index);
        let next = Subscriber { generation: record.generation.wrapping_add(1), ..Subscriber::empty() };
        let removed = std::mem::replace(record, next);
        self.free.push(index);
        removed
    }

    #[inline]
    pub(crate) fn at(&self, index: u32) -> &Subscriber {
        &self.pages[index as usize / PAGE][index as usize % PAGE]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Subscriber {
        &mut self.pages[index as usize / PAGE][index as usize % PAGE]
    }

    /// Returns the subscriber, unless it has disconnected.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: SubscriberId) -> Option<&mut Subscriber> {
        if id.index >= self.used {
            return None;
        }
        let record = self.at_mut(id.index);
        (record.generation == id.generation && !matches!(record.link, Link::Closed)).then_some(record)
    }

    /// Returns the number of the subscriber in a record, if there is one.
    pub(crate) fn id(&self, index: u32) -> Option<SubscriberId> {
        if index >= self.used || matches!(self.at(index).link, Link::Closed) {
            return None;
        }
        Some(SubscriberId { index, generation: self.at(index).generation })
    }

    /// Records the place of a subscriber in the list of a buffer's members.
    pub(crate) fn set_slot(&mut self, index: u32, buffer: u32, slot: u32) {
        if let Some(feed) = self.at_mut(index).feeds.iter_mut().find(|feed| feed.buffer == buffer) {
            feed.slot = slot;
        }
    }

    /// Returns the indices of records that were used once.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }
}

impl TimerLinks for Pages {
    fn link(&mut self, index: u32) -> &mut TimerLink {
        debug_assert_ne!(index, NONE, "links end at NONE");
        &mut self.at_mut(index).timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million subscribers are in memory: a field more has to be worth it.
    #[test]
    fn a_record_has_at_most_200_bytes() {
        assert!(size_of::<Subscriber>() <= 200, "{} bytes", size_of::<Subscriber>());
    }
}
