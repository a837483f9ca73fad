//! The calls of one connection that did not end in the turn that began them.

use super::wakes::{CallWaker, Wakes};
use crate::{
    stream::{Items, Queue},
    trace::Trace,
};
use std::{collections::HashMap, pin::Pin, sync::Arc, task::Waker, time::Instant};
use switchboard_wire::{MethodId, wire::CallId};

/// A table of parked calls: by index for wakers, by number for the wire.
pub(super) struct Calls {
    wakes: Arc<Wakes>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_id: HashMap<CallId, u32>,
    /// The place that was found last.
    last: u32,
}

struct Entry {
    call_waker: Arc<CallWaker>,
    waker: Waker,
    parked: Option<Parked>,
}

/// A call in flight.
pub(super) struct Parked {
    pub(super) id: CallId,
    pub(super) method: MethodId,
    pub(super) oneway: bool,
    pub(super) began: Instant,
    /// Bytes of its messages so far.
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Bytes that its request and its queues hold.
    pub(super) held: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) trace: Option<Arc<Trace>>,
    /// Requests that are still coming.
    pub(super) inbound: Option<Arc<Queue>>,
    /// Bytes of replies that the peer takes now; a message may overdraw it.
    pub(super) credit: i64,
    pub(super) stage: Stage,
}

/// What the call waits for.
pub(super) enum Stage {
    /// The handler, in this slot of this service.
    Handler { service: u16, slot: u32 },
    /// Being polled right now.
    Polled,
    /// The replies, as the peer's credit allows.
    Replies { items: Pin<Box<dyn Items>>, head_sent: bool },
}

impl Calls {
    pub(super) fn new(wakes: Arc<Wakes>) -> Calls {
        Calls { wakes, entries: Vec::new(), free: Vec::new(), by_id: HashMap::new(), last: 0 }
    }

    /// How many calls are parked.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// A free place, for the waker of a call that is about to be polled.
    #[inline]
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let index = self.entries.len() as u32;
            let call_waker = CallWaker::new(index, self.wakes.clone());
            let waker = Waker::from(call_waker.clone());
            self.entries.push(Entry { call_waker, waker, parked: None });
            index
        })
    }

    /// Gives a reserved place back.
    #[inline]
    pub(super) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    #[inline]
    pub(super) fn waker(&self, index: u32) -> &Waker {
        &self.entries[index as usize].waker
    }

    /// Parks a call at its reserved place.
    pub(super) fn park(&mut self, index: u32, parked: Parked) {
        self.by_id.insert(parked.id, index);
        self.entries[index as usize].parked = Some(parked);
        self.wakes.set_parked(self.by_id.len());
    }

    /// The place of the call with this number. Messages of a stream come in runs, which are looked up once.
    #[inline]
    pub(super) fn find(&mut self, id: CallId) -> Option<u32> {
        if self.get_mut(self.last).is_none_or(|parked| parked.id != id) {
            self.last = *self.by_id.get(&id)?;
        }
        Some(self.last)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Parked> {
        self.entries.get_mut(index as usize)?.parked.as_mut()
    }

    /// The call and its waker, for polling; wakes from now on queue it again.
    pub(super) fn poll_parts(&mut self, index: u32) -> Option<(&mut Parked, &Waker)> {
        let entry = self.entries.get_mut(index as usize)?;
        entry.call_waker.rearm();
        Some((entry.parked.as_mut()?, &entry.waker))
    }

    /// Takes a call out; its place is free.
    pub(super) fn remove(&mut self, index: u32) -> Option<Parked> {
        let parked = self.entries.get_mut(index as usize)?.parked.take()?;
        self.by_id.remove(&parked.id);
        self.wakes.set_parked(self.by_id.len());
        self.free.push(index);
        Some(parked)
    }

    /// Places of the calls whose deadline has passed, and the next deadline after them.
    pub(super) fn overdue(&self, now: Instant) -> (Vec<u32>, Option<Instant>) {
        let mut overdue = Vec::new();
        let mut next = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let Some(deadline) = entry.parked.as_ref().and_then(|parked| parked.deadline) else { continue };
            if deadline <= now {
                overdue.push(index as u32);
            } else if next.is_none_or(|next| deadline < next) {
                next = Some(deadline);
            }
        }
        (overdue, next)
    }

    /// All parked calls.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Parked> {
        self.entries.iter().filter_map(|entry| entry.parked.as_ref())
    }

    /// Places of all parked calls.
    pub(super) fn all(&self) -> Vec<u32> {
        self.by_id.values().copied().collect()
    }

    /// Whether places were made.
    pub(super) fn has_room(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Gives memory back when nothing is parked.
    pub(super) fn shrink(&mut self) {
        if self.by_id.is_empty() {
            self.entries = Vec::new();
            self.free = Vec::new();
            self.by_id = HashMap::new();
        }
    }
}
