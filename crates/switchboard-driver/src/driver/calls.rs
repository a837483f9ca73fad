//! Table of the calls of one connection that did not finish in the turn that started them.

use crate::serving::CallRecord;
use std::{collections::HashMap, pin::Pin, sync::Arc, task::Waker, time::Instant};
use switchboard_core::queue::{Items, Queue};
use switchboard_net::connection::{CallWaker, Wakes};
use switchboard_wire::wire::CallId;

/// Table of parked calls, indexed by slot for wakers and by call number for the wire.
pub(super) struct Calls {
    wakes: Arc<Wakes>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_id: HashMap<CallId, u32>,
    /// Index that the last lookup returned.
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
    pub(super) record: CallRecord,
    pub(super) oneway: bool,
    /// Bytes of the call itself: its entry, its context and its metadata.
    pub(super) entry: usize,
    /// Bytes that the call, its request and its queues hold.
    pub(super) held: usize,
    /// Queue of a request stream that is still open.
    pub(super) inbound: Option<Arc<Queue>>,
    /// Set while the call waits for its turn to send replies.
    pub(super) stalled: bool,
    /// Bytes of replies that the peer accepts now; a message may overdraw it.
    pub(super) credit: i64,
    pub(super) stage: Stage,
}

/// State of a parked call.
pub(super) enum Stage {
    /// Waits for the handler, in this slot of this service.
    Handler { service: u16, slot: u32 },
    /// The handler is being polled.
    Polled,
    /// Sends replies as the peer's credit allows.
    Replies { items: Pin<Box<dyn Items>>, head_sent: bool },
}

impl Calls {
    pub(super) fn new(wakes: Arc<Wakes>) -> Calls {
        Calls { wakes, entries: Vec::new(), free: Vec::new(), by_id: HashMap::new(), last: 0 }
    }

    /// Returns the number of parked calls.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Reserves an index, for the waker of a call that is about to be polled.
    #[inline(always)]
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let index = self.entries.len() as u32;
            let call_waker = CallWaker::new(index, self.wakes.clone());
            let waker = Waker::from(call_waker.clone());
            if index == 0 {
                // Most connections have one call at a time; `push` would make room for four.
                self.entries.reserve_exact(1);
            }
            self.entries.push(Entry { call_waker, waker, parked: None });
            index
        })
    }

    /// Releases a reserved index.
    #[inline]
    pub(super) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    #[inline]
    pub(super) fn waker(&self, index: u32) -> &Waker {
        &self.entries[index as usize].waker
    }

    /// Parks a call at its reserved index.
    pub(super) fn park(&mut self, index: u32, parked: Parked) {
        self.by_id.insert(parked.id, index);
        self.entries[index as usize].parked = Some(parked);
        self.wakes.set_parked(self.by_id.len());
    }

    /// Returns the index of the call with this number. Consecutive messages of one stream share a lookup.
    #[inline]
    pub(super) fn find(&mut self, id: CallId) -> Option<u32> {
        if self.get_mut(self.last).is_none_or(|parked| parked.id != id) {
            self.last = *self.by_id.get(&id)?;
        }
        Some(self.last)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Parked> {
        self.entries.get_mut(index as usize)?.parked.as_mut()
    }

    /// Returns the call and its waker for polling; later wakes queue the call again.
    #[inline]
    pub(super) fn poll_parts(&mut self, index: u32) -> Option<(&mut Parked, &Waker)> {
        let entry = self.entries.get_mut(index as usize)?;
        entry.call_waker.rearm();
        Some((entry.parked.as_mut()?, &entry.waker))
    }

    /// Removes a call and frees its index.
    pub(super) fn remove(&mut self, index: u32) -> Option<Parked> {
        let parked = self.entries.get_mut(index as usize)?.parked.take()?;
        self.by_id.remove(&parked.id);
        self.wakes.set_parked(self.by_id.len());
        self.free.push(index);
        Some(parked)
    }

    /// Returns the indices of the calls whose deadline has passed, and the next deadline after them.
    pub(super) fn overdue(&self, now: Instant) -> (Vec<u32>, Option<Instant>) {
        let mut overdue = Vec::new();
        let mut next = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let Some(deadline) = entry.parked.as_ref().and_then(|parked| parked.record.deadline) else {
                continue;
            };
            if deadline <= now {
                overdue.push(index as u32);
            } else if next.is_none_or(|next| deadline < next) {
                next = Some(deadline);
            }
        }
        (overdue, next)
    }

    /// Returns all parked calls.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Parked> {
        self.entries.iter().filter_map(|entry| entry.parked.as_ref())
    }

    /// Returns the indices of all parked calls.
    pub(super) fn all(&self) -> Vec<u32> {
        self.by_id.values().copied().collect()
    }

    /// Returns whether the table has allocated entries.
    pub(super) fn has_room(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Releases memory if no call is parked.
    pub(super) fn shrink(&mut self) {
        if self.by_id.is_empty() {
            self.entries = Vec::new();
            self.free = Vec::new();
            self.by_id = HashMap::new();
        }
    }
}
