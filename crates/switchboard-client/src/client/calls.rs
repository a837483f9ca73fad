//! The calls in flight on one client connection.
//!
//! Ids of calls count up, and the low bits of an id give the slot of its call, as in a ring; an id whose slot is in use
//! is skipped. So an id repeats only after all others of its width: never on a wire with 64 bits. Where a wire has 32
//! bits and no cancel, the server replies to abandoned calls too: their ids stay reserved until it has.

use bytes::Bytes;
use std::{mem, sync::Arc, task::Waker, time::Instant};
use switchboard_core::{
    compression::Message,
    queue::{MessageBatch, Queue},
};
use switchboard_wire::{
    Codec, Metadata, Status,
    wire::{CallIds, ClientCallId},
};

/// Number of slots after the first call.
const SLOTS_MIN: usize = 4;
/// Maximum number of abandoned calls with a reserved id; with more, the connection is replaced.
pub(super) const ABANDONED_MAX: usize = 1024;

pub(super) struct Calls {
    /// A power of two of slots, at most half of which are in use when a call is inserted.
    slots: Vec<CallSlot>,
    next: ClientCallId,
    /// Bit mask of ids.
    mask: ClientCallId,
    /// Number of calls in flight.
    len: usize,
    /// Number of abandoned calls without a reply, whose ids are reserved.
    abandoned: usize,
    reserves: bool,
}

/// Slot of one call; fills one cache line.
pub(super) struct CallSlot {
    id: ClientCallId,
    pub(super) deadline: Option<Instant>,
    pub(super) state: State,
}

/// State of a call; the frequent variants are small and rarely moved.
pub(super) enum State {
    /// The slot is free.
    Free,
    /// The call has ended here, but the server has not replied yet.
    Abandoned,
    /// A unary call in flight, with the waker of its caller.
    Waiting(Option<Waker>),
    /// A reply of one message without metadata. The caller was woken.
    Replied(Bytes),
    /// A unary call with a partial reply, or a reply with metadata or an error.
    PartialReply(Box<PartialReply>),
    /// A one-way call: there is no reply.
    Oneway,
    /// A stream: messages go both ways until both sides have ended.
    Stream(Box<Stream>),
}

/// Collects the parts of a reply as they arrive; `end` comes last.
#[derive(Default)]
pub(super) struct PartialReply {
    pub(super) waker: Option<Waker>,
    pub(super) item: Option<Message>,
    /// Encoding of the reply, if the server has sent it.
    pub(super) codec: Option<Codec>,
    pub(super) head: Metadata,
    pub(super) trailers: Metadata,
    pub(super) end: Option<Result<(), Status>>,
    /// The call has ended here, but the server has not replied yet.
    pub(super) awaiting_reply: bool,
}

pub(super) struct Stream {
    pub(super) inbound: Arc<Queue>,
    /// Requests still to be sent; `None` once this direction has ended.
    pub(super) outbound: Option<Arc<Queue>>,
    /// Requests taken from `outbound` and not sent yet.
    pub(super) batch: MessageBatch,
    pub(super) credit: i64,
    /// True while the stream is in the list of streams that may have something to send.
    pub(super) due: bool,
}

impl Stream {
    /// Adds the stream to the list of those that may have something to send, unless it is in it.
    pub(super) fn note_due(&mut self, id: ClientCallId, due: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.due, true) {
            due.push(id as u32);
        }
    }
}

/// The reply to a unary call.
pub(super) struct RawResponse {
    pub(super) item: Message,
    pub(super) head: Metadata,
    pub(super) trailers: Metadata,
    /// Number of attempts.
    pub(super) attempts: u32,
}

impl Calls {
    /// Creates an empty table; the wire defines how ids are chosen.
    pub(super) fn new(ids: CallIds) -> Calls {
        let reserves = ids == CallIds::Reserved;
        Calls { slots: Vec::new(), next: 0, mask: ids.mask(), len: 0, abandoned: 0, reserves }
    }

    /// The index of the slot of a call, if it has one.
    #[inline(always)]
    fn at(&self, id: ClientCallId) -> usize {
        id as usize & self.slots.len().wrapping_sub(1)
    }

    /// Chooses ids from `next` on, with these bits.
    #[cfg(test)]
    #[cfg(feature = "wires")]
    pub(super) fn with_ids(self, next: ClientCallId, mask: ClientCallId) -> Calls {
        Calls { next, mask, ..self }
    }

    /// Takes a slot for a call and returns its id.
    #[inline(always)]
    pub(super) fn insert(&mut self, state: State) -> ClientCallId {
        if 2 * (self.len + self.abandoned) >= self.slots.len() {
            self.grow();
        }
        loop {
            let id = self.next;
            self.next = (id + 1) & self.mask;
            let at = self.at(id);
            let slot = &mut self.slots[at];
            if matches!(slot.state, State::Free) {
                slot.id = id;
                slot.state = state;
                self.len += 1;
                return id;
            }
        }
    }

    /// Doubles the number of slots. Ids that differ in their low bits still differ with one bit more.
    #[cold]
    fn grow(&mut self) {
        let len = (2 * self.slots.len()).max(SLOTS_MIN);
        let free = || CallSlot { id: 0, deadline: None, state: State::Free };
        let before = mem::replace(&mut self.slots, std::iter::repeat_with(free).take(len).collect());
        for slot in before {
            let at = self.at(slot.id);
            if !matches!(slot.state, State::Free) {
                self.slots[at] = slot;
            }
        }
    }

    /// The slot of a call in flight.
    #[inline]
    pub(super) fn get_mut(&mut self, id: ClientCallId) -> Option<&mut CallSlot> {
        let at = self.at(id);
        let slot = self.slots.get_mut(at)?;
        (slot.id == id && slot.is_in_flight()).then_some(slot)
    }

    /// The id of the call in flight with these low bits.
    pub(super) fn with_low_bits(&self, low: u32) -> Option<ClientCallId> {
        let slot = self.slots.get(self.at(low.into()))?;
        (slot.id as u32 == low && slot.is_in_flight()).then_some(slot.id)
    }

    /// Removes a call. Its id stays reserved if the server has not replied yet and the wire needs it.
    #[inline]
    pub(super) fn remove(&mut self, id: ClientCallId) -> Option<State> {
        let reserves = self.reserves;
        let slot = self.get_mut(id)?;
        slot.deadline = None;
        let after = if reserves && slot.state.awaits_reply() { State::Abandoned } else { State::Free };
        let is_reserved = matches!(after, State::Abandoned);
        let state = mem::replace(&mut slot.state, after);
        self.abandoned += usize::from(is_reserved);
        self.len -= 1;
        Some(state)
    }

    /// Removes a call that was not sent.
    #[cold]
    pub(super) fn remove_unsent(&mut self, id: ClientCallId) {
        if let Some(slot) = self.get_mut(id) {
            slot.deadline = None;
            slot.state = State::Free;
            self.len -= 1;
        }
    }

    /// Records that the server has replied to a call that had ended here: its id may be reused.
    #[cold]
    pub(super) fn reply_late(&mut self, id: ClientCallId) {
        let at = self.at(id);
        let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.id == id) else { return };
        match &mut slot.state {
            State::Abandoned => {
                slot.state = State::Free;
                self.abandoned -= 1;
            }
            State::PartialReply(parts) => parts.awaiting_reply = false,
            _ => {}
        }
    }

    /// Number of abandoned calls without a reply, whose ids are reserved.
    #[inline]
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned
    }

    /// Removes a call if it has a plain reply.
    #[inline(always)]
    pub(super) fn take_reply(&mut self, id: ClientCallId) -> Option<Bytes> {
        let at = self.at(id);
        let slot = self.slots.get_mut(at)?;
        let State::Replied(item) = &mut slot.state else { return None };
        if slot.id != id {
            return None;
        }
        let item = mem::take(item);
        slot.deadline = None;
        slot.state = State::Free;
        self.len -= 1;
        Some(item)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the calls in flight.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ClientCallId, &mut CallSlot)> {
        let in_flight = self.slots.iter_mut().filter(|slot| slot.is_in_flight());
        in_flight.map(|slot| (slot.id, slot))
    }
}

impl CallSlot {
    #[inline(always)]
    fn is_in_flight(&self) -> bool {
        !matches!(self.state, State::Free | State::Abandoned)
    }
}

impl State {
    /// Returns true when the server has not replied to a call that ends now.
    fn awaits_reply(&self) -> bool {
        match self {
            State::Waiting(_) | State::Stream(_) => true,
            State::PartialReply(parts) => parts.end.is_none() || parts.awaiting_reply,
            State::Free | State::Abandoned | State::Replied(_) | State::Oneway => false,
        }
    }

    /// Returns the parts of a reply that is more than one message, or `None` if the call is of another kind or has its
    /// reply.
    pub(super) fn partial_reply(&mut self) -> Option<&mut PartialReply> {
        if let State::Waiting(waker) = self {
            let waker = waker.take();
            *self = State::PartialReply(Box::new(PartialReply { waker, ..PartialReply::default() }));
        }
        match self {
            State::PartialReply(parts) if parts.end.is_none() => Some(parts),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashSet, VecDeque};

    const ALL: [CallIds; 3] = [CallIds::Wide, CallIds::Canceled, CallIds::Reserved];

    fn waiting() -> State {
        State::Waiting(Some(Waker::noop().clone()))
    }

    #[test]
    fn late_replies_do_not_reach_another_call() {
        let mut calls = Calls::new(CallIds::Wide);
        let first = calls.insert(waiting());
        assert!(calls.remove(first).is_some());
        let second = calls.insert(waiting());
        assert_ne!(first, second);
        assert!(calls.get_mut(first).is_none() && calls.remove(first).is_none());
        assert!(calls.take_reply(second).is_none(), "it has no reply yet");
        calls.get_mut(second).unwrap().state = State::Replied(Bytes::from_static(b"a"));
        assert!(calls.take_reply(first).is_none());
        assert_eq!(calls.len(), 1);
        assert_eq!(calls.take_reply(second).unwrap(), "a");
        assert_eq!((calls.len(), calls.iter_mut().count()), (0, 0));
    }

    #[test]
    fn ids_do_not_repeat_after_many_calls() {
        for ids in ALL {
            let (mut calls, mut seen) = (Calls::new(ids), HashSet::new());
            // One call stays in flight throughout.
            assert!(seen.insert(calls.insert(waiting())));
            for _ in 0..100_000 {
                let id = calls.insert(State::Oneway);
                assert!(seen.insert(id) && calls.remove(id).is_some(), "{ids:?}: {id} was used before");
            }
            assert!(calls.slots.len() <= 8, "{ids:?}: {} slots", calls.slots.len());
        }
    }

    /// Ids of 6 bits instead of 31: calls are inserted, abandoned, and get timely and late replies in random order.
    #[test]
    fn reserved_ids_are_not_reused_before_the_reply() {
        let mut calls = Calls { mask: 63, ..Calls::new(CallIds::Reserved) };
        let (mut in_flight, mut abandoned) = (VecDeque::new(), Vec::new());
        let mut seed = 7u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for _ in 0..100_000 {
            match random(4) {
                0 | 1 if in_flight.len() + abandoned.len() < 31 => {
                    let id = calls.insert(waiting());
                    assert!(!abandoned.contains(&id) && !in_flight.contains(&id), "{id} is in use");
                    in_flight.push_back(id);
                }
                0..=2 if !in_flight.is_empty() => {
                    let id = in_flight.remove(random(in_flight.len())).unwrap();
                    if random(2) == 0 {
                        assert!(calls.remove(id).is_some() && calls.get_mut(id).is_none());
                        abandoned.push(id);
                    } else {
                        calls.get_mut(id).unwrap().state = State::Replied(Bytes::new());
                        assert!(calls.take_reply(id).is_some());
                    }
                }
                _ if !abandoned.is_empty() => {
                    let id = abandoned.swap_remove(random(abandoned.len()));
                    calls.reply_late(id);
                    calls.reply_late(id);
                }
                _ => {}
            }
            assert_eq!((calls.len(), calls.abandoned()), (in_flight.len(), abandoned.len()));
        }
    }

    #[test]
    fn calls_stay_reachable_as_the_slots_grow() {
        for ids in ALL {
            let mut calls = Calls { next: ids.mask() - 100, ..Calls::new(ids) };
            let inserted: Vec<_> = (0..1000).map(|_| calls.insert(waiting())).collect();
            for (n, id) in inserted.iter().enumerate() {
                calls.get_mut(*id).unwrap().state = State::Replied(Bytes::from(n.to_string()));
            }
            assert_eq!(calls.iter_mut().count(), 1000);
            for (n, id) in inserted.iter().enumerate() {
                assert_eq!(calls.take_reply(*id).unwrap(), n.to_string(), "{ids:?}");
            }
            assert!(inserted.iter().all(|id| *id <= ids.mask()) && calls.len() == 0);
        }
    }

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<CallSlot>(), 64);
    }
}
